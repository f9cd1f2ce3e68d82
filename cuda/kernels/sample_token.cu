// Next-token sampling: penalties, then greedy, or temperature, top-k, top-p and min-p in one of
// llama.cpp's orders, and a draw. Logits are f32 [rows, vocab], weights f64. Reference
// implementation: package cpu, which samples the same token. Top-p adds up weights in fixed point
// (2⁻⁴⁴), so that the sums do not depend on an order.
//
// A row is divided among blocks, a warp taking a slice of LOGITS_SLICE logits; the last block of
// a row to finish goes on alone. With few candidates it looks again only at the slices whose
// maximum can matter (sample_candidates), otherwise at the whole row by radix select
// (sample_all). Bound by reading the logits once, and by the latency of what the last block does.
#include "args.cuh"
#include "dequant.cuh"
#include "histogram_select.cuh"
#include "philox.cuh"

// SamplerParams is how a row's token is sampled. A stage that is missing from the order has a
// value that does nothing; only what precedes what is left to say.
struct SamplerParams {
	float temperature;                  // 0: greedy
	float top_p, min_p;                 // 1 and 0: off
	float repeat, presence, frequency;  // penalties, the first stage
	i32 top_k;                          // 0: off
	i32 last_n;                         // tokens that the penalties look at
	u64 seed;
	i64 order;
};

// The order of the other stages. Each keeps a prefix of the tokens by logit, so only two things
// depend on it: which tokens top-p normalizes over, and whether top-p and min-p see the
// temperature.
enum { TOP_K_BEFORE_P = 1, MIN_P_BEFORE_P = 2, WARM_TOP_P = 4, WARM_MIN_P = 8 };

constexpr int SAMPLE_ROWS = 16;  // rows of a launch

struct SampleArgs {
	i32* next;       // [rows]
	float* logits;   // [rows, vocab]
	i32* history;    // [rows, window]: ring buffer of tokens by position
	const i32* pos;  // [rows]
	i64 vocab, window;
	u64* tops;    // [rows, slices]: the rank_key of the best logit of a slice
	f64* sums;    // [rows, blocks, 2]: sums of weights: what top-p normalizes by; what is kept; NULL: none
	int* counts;  // [rows]: blocks that are done; 0 between launches
	SamplerParams params[SAMPLE_ROWS];
};

constexpr int LOGITS_PER_THREAD = 4;                    // of a thread
constexpr int LOGITS_SLICE = LOGITS_PER_THREAD * WARP;  // of a warp
constexpr int MAX_FAST_TOP_K = 256;                     // the largest top-k of sample_candidates
constexpr int MAX_TOP_P_SLICES = 256;                   // slices whose maxima bound the candidates of top-p
constexpr int CANDIDATES = 1024;
constexpr int MAX_RANKED = 256;  // candidates that are ranked by comparing all pairs

// penalize applies the repeat, presence and frequency penalties to logits [lo, hi).
__device__ inline void penalize(const SampleArgs& a, const SamplerParams& s, float* logits, const i32* history, int at, i64 lo, i64 hi) {
	if (s.last_n <= 0) return;
	SHARED(int, seen, 1024 * LOGITS_PER_THREAD);
	for (i64 i = lo + threadIdx.x; i < hi; i += blockDim.x) seen[i - lo] = 0;
	__syncthreads();
	i64 n = min_of(min_of((i64)s.last_n, a.window), (i64)at + 1);
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
		int id = history[(at - i) % a.window];
		if (id >= lo && id < hi) atomicAdd(&seen[id - lo], 1);
	}
	__syncthreads();
	for (i64 i = lo + threadIdx.x; i < hi; i += blockDim.x) {
		int times = seen[i - lo];
		if (times == 0) continue;
		float logit = ld_cg(logits + i);
		if (s.repeat != 0) logit = logit > 0 ? logit / s.repeat : __fmul_rn(logit, s.repeat);
		logits[i] = __fadd_rn(logit, -__fadd_rn(__fmul_rn((float)times, s.frequency), s.presence));
	}
	__syncthreads();
}

// load_logits loads up to LOGITS_PER_THREAD logits from i on, past L1, where neighbouring ones may
// be stale: other blocks have penalized them.
__device__ __forceinline__ int load_logits(float v[LOGITS_PER_THREAD], const float* logits, i64 i, i64 vocab) {
	int n = (int)min_of((i64)LOGITS_PER_THREAD, max_of(vocab - i, (i64)0));
	if (n == LOGITS_PER_THREAD && (u64)(logits + i) % 16 == 0) {
		ld_cg4(v, logits + i);
	} else {
#pragma unroll
		for (int j = 0; j < LOGITS_PER_THREAD; j++) v[j] = j < n ? ld_cg(logits + i + j) : 0;
	}
	return n;
}

// thread_argmax is the rank_key of the best of a thread's logits.
__device__ __forceinline__ u64 thread_argmax(const float* logits, i64 i, i64 vocab) {
	float v[LOGITS_PER_THREAD];
	int n = load_logits(v, logits, i, vocab);
	u64 top = 0;
#pragma unroll
	for (int j = 0; j < LOGITS_PER_THREAD; j++) {
		if (j < n) top = max_of(top, rank_key(v[j], (int)i + j));
	}
	return top;
}

// LogitWeights computes exp((logit - max)/temperature): operator() for the draw, of_top_p and
// min_p for what those stages compare, which is before or after the temperature.
struct LogitWeights {
	double top, temperature;
	double min_weight;  // of min_p
	bool warm_top_p, warm_min_p;

	__device__ double weight(float logit, double by) const {
		if (logit != logit) logit = -infinity();
		double p = exp(((double)logit - top) / by);
		return p != p ? 1 : p;  // both infinite
	}
	__device__ double operator()(float logit) const { return weight(logit, temperature); }
	__device__ double of_top_p(float logit) const { return weight(logit, warm_top_p ? temperature : 1); }
	__device__ bool min_p(float logit) const { return min_weight <= 0 || weight(logit, warm_min_p ? temperature : 1) >= min_weight; }
};

__device__ inline LogitWeights make_weights(const SamplerParams& s, float top) {
	LogitWeights prob = {top, s.temperature, s.min_p, (s.order & WARM_TOP_P) != 0, (s.order & WARM_MIN_P) != 0};
	return prob;
}

// uses_top_k and uses_top_p say whether the stage can leave tokens out.
__device__ __forceinline__ bool uses_top_k(const SamplerParams& s, i64 vocab) { return s.top_k > 0 && s.top_k < vocab; }
__device__ __forceinline__ bool uses_top_p(const SamplerParams& s) { return s.top_p > 0 && s.top_p < 1; }

// fixed44 is a share in units of 2⁻⁴⁴.
__device__ __forceinline__ u64 fixed44(double share) { return (u64)(share * 0x1p44); }

// logit_of is the logit of a radix_key; NaN became -Inf.
__device__ __forceinline__ float logit_of(u32 key) { return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key); }

// bound_key is a key that at least want of the maxima reach and at most 1.5·want, where a prefix
// of the key's bits can tell them apart. Each thread has two maxima.
__device__ inline u32 bound_key(const u32 mine[2], int want) {
	SHARED(u32, counts, 2 * WARP);
	int warps = blockDim.x / WARP;
	u32 cut = 0;
	for (int bit = 31; bit >= 0; bit--) {
		u32 next = cut | 1u << bit, *of = counts + bit % 2 * WARP;
		u32 n = __popc(__ballot_sync(FULL_MASK, mine[0] >= next)) + __popc(__ballot_sync(FULL_MASK, mine[1] >= next));
		if (lane() == 0) of[warp()] = n;
		__syncthreads();
		n = warp_add(lane() < warps ? of[lane()] : 0);
		if ((int)n >= want) cut = next;
		if ((int)n >= want && (int)n <= want + want / 2) break;
	}
	return cut;
}

// sample_candidates samples among few candidates. The k-th best slice maximum is a lower bound of
// the k-th best logit, so only slices that reach it are read, and what reaches it is a candidate.
// Without top-k, top-p must be reached among the candidates, its weights normalized by their sum
// `all` over the row. It returns false, without effect, where the candidates are too many or too
// few and where top-p precedes top-k. All threads call it.
__device__ inline bool sample_candidates(const SampleArgs& a, const SamplerParams& s, const float* logits, const u64* tops, int slices, LogitWeights prob, double all, int at, int& id) {
	bool with_top_k = uses_top_k(s, a.vocab), with_top_p = uses_top_p(s);
	int k = with_top_k ? min_of(s.top_k, MAX_FAST_TOP_K + 1) : min_of(slices / 4, MAX_TOP_P_SLICES);
	if (with_top_k ? with_top_p && !(s.order & TOP_K_BEFORE_P) : !with_top_p) return false;
	if (k < 1 || k > MAX_FAST_TOP_K || k > slices || slices > 2 * (int)blockDim.x) return false;
	SHARED(u64, found, CANDIDATES);
	SHARED(int, hot, 2 * 1024);
	SHARED(int, counts, 2);
	u32 mine[2];
	for (int j = 0; j < 2; j++) {
		int s = j * blockDim.x + threadIdx.x;
		mine[j] = s < slices ? (u32)(tops[s] >> 32) : 0;
	}
	for (int i = threadIdx.x; i < CANDIDATES; i += blockDim.x) found[i] = 0;
	if (threadIdx.x < 2) counts[threadIdx.x] = 0;
	u32 cut = bound_key(mine, k);
	for (int j = 0; j < 2; j++) {
		if (mine[j] > 0 && mine[j] >= cut) hot[atomicAdd(&counts[0], 1)] = j * blockDim.x + threadIdx.x;
	}
	__syncthreads();
	for (int h = warp(), n = counts[0]; h < n; h += blockDim.x / WARP) {
		float v[LOGITS_PER_THREAD];
		i64 i = (i64)hot[h] * LOGITS_SLICE + lane() * LOGITS_PER_THREAD;
		int there = load_logits(v, logits, i, a.vocab);
		for (int j = 0; j < there; j++) {
			if (radix_key(v[j]) < cut) continue;
			int to = atomicAdd(&counts[1], 1);
			if (to < CANDIDATES) found[to] = rank_key(v[j], (int)i + j);
		}
	}
	__syncthreads();
	int n = counts[1];
	if (n > CANDIDATES || n > (int)blockDim.x || n < k) return false;
	if (n <= MAX_RANKED) {  // one thread per candidate
		int t = threadIdx.x, to = 0;
		u64 own = found[t < n ? t : 0];
		for (int j = 0; j < n && t < n; j++) to += found[j] > own;
		__syncthreads();
		if (t < n) found[to] = own;
		__syncthreads();
	} else {
		int size = 2;
		while (size < n) size *= 2;
		bitonic_sort_down(found, size);
	}

	// Thread i has candidate i of those that top-k keeps.
	if (with_top_k) n = k;
	int i = threadIdx.x, place = i < n ? rank_position(found[i]) : (int)a.vocab;
	float logit = i < n ? logit_of((u32)(found[i] >> 32)) : -infinity();
	double p = i < n ? prob(logit) : 0;
	bool takes = i < n && prob.min_p(logit);
	if (with_top_p) {
		double share = i < n && (takes || !(s.order & MIN_P_BEFORE_P)) ? prob.of_top_p(logit) : 0;
		double sum = with_top_k ? reduce_block(share, 0.0, Plus()) : all;
		u64 want = max_of(fixed44(s.top_p), (u64)1), there, before = scan_block(fixed44(share / sum), there);
		if (!with_top_k && there < want) return false;
		takes = takes && before < want;
	}
	SHARED(double, weights, CANDIDATES);
	if (i < n) weights[i] = takes ? p : 0;
	double total = reduce_block(takes ? p : 0.0, 0.0, Plus());
	n = reduce_block(takes ? i + 1 : 0, 0, Max());
	Draw d = {s.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total, upto = 0;
	for (int j = 0; j < n && takes; j++) {
		if (rank_position(found[j]) <= place) upto += weights[j];
	}
	int first = -reduce_block(takes && upto > u ? -place : -(int)a.vocab, -(int)a.vocab, Max());
	int last = reduce_block(takes && p > 0 ? place : -1, -1, Max());
	id = first < (int)a.vocab ? first : max_of(last, 0);
	return true;
}

// Filtered is what top-k, top-p and min-p leave of a row.
struct Filtered {
	const float* logits;
	LogitWeights prob;
	Selector<u32> top_k, top_p;
	ThreadRange run;  // of this thread

	// takes must be called for each element of the run, in order.
	__device__ bool takes(i64 i) {
		u32 key = radix_key(logits[i]);
		bool ok = top_k.takes(key);
		ok = top_p.takes(key) && ok;
		return ok && prob.min_p(logits[i]);
	}
};

// filter_row finds what the stages leave of a row. All threads call it.
__device__ inline Filtered filter_row(const SampleArgs& a, const SamplerParams& s, const float* l, LogitWeights prob) {
	auto all = [&](i64 i, u32& key) {
		key = radix_key(l[i]);
		return true;
	};
	Threshold<u32> first = select_all<u32>(), second = first;
	if (uses_top_k(s, a.vocab))
		first = radix_select<u32>(a.vocab, (u64)s.top_k, [&](i64 i, u32& key) {
			key = radix_key(l[i]);
			return (u64)1;
		});
	Selector<u32> start = make_selector(first, a.vocab, all);
	ThreadRange r = thread_range(a.vocab);
	if (uses_top_p(s)) {
		bool top_k = s.order & TOP_K_BEFORE_P, min_p = s.order & MIN_P_BEFORE_P;
		double sum = 0;
		Selector<u32> in = start;
		for (i64 i = r.lo; i < r.hi; i++) {
			if ((in.takes(radix_key(l[i])) || !top_k) && (!min_p || prob.min_p(l[i]))) sum += prob.of_top_p(l[i]);
		}
		sum = reduce_block(sum, 0.0, Plus());
		// A token equal to top-k's threshold that top-k leaves out still has weight here. That
		// changes nothing: both thresholds then lie at that logit and keep its lowest ids.
		second = radix_select<u32>(a.vocab, max_of(fixed44(s.top_p), (u64)1), [&](i64 i, u32& key) {
			key = radix_key(l[i]);
			if (top_k && key < first.key || min_p && !prob.min_p(l[i])) return (u64)0;
			return fixed44(prob.of_top_p(l[i]) / sum);
		});
	}
	Filtered filtered = {l, prob, start, make_selector(second, a.vocab, all), r};
	return filtered;
}

// sample_all samples among all tokens by the cumulative weight in order of ids.
__device__ inline int sample_all(const SampleArgs& a, const SamplerParams& s, const float* l, LogitWeights prob, int at) {
	Filtered filtered = filter_row(a, s, l, prob), again = filtered;
	double part = 0, total;
	for (i64 i = filtered.run.lo; i < filtered.run.hi; i++) {
		if (filtered.takes(i)) part += prob(l[i]);
	}
	double before = scan_block(part, total);

	Draw d = {s.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total;
	i64 found = a.vocab, last = -1;
	for (i64 i = filtered.run.lo; i < filtered.run.hi && found == a.vocab; i++) {
		if (!again.takes(i)) continue;
		double p = prob(l[i]);
		if (p > 0) last = i;
		before += p;
		if (before > u) found = i;
	}
	found = -reduce_block(-found, -a.vocab, Max());
	last = reduce_block(last, (i64)-1, Max());
	return (int)(found < a.vocab ? found : last < 0 ? 0 : last);
}

// last_block_of_row reports whether the block is the last of its row to arrive. All threads call
// it.
__device__ inline bool last_block_of_row(const SampleArgs& a) {
	SHARED(int, arrival, 1);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		arrival[0] = atomicAdd(a.counts + blockIdx.y, 1);
		__threadfence();
	}
	__syncthreads();
	return arrival[0] == (int)gridDim.x - 1;
}

// row_argmax is the best of all slices.
__device__ inline u64 row_argmax(const u64* tops, int slices) {
	u64 top = 0;
	for (int s = threadIdx.x; s < slices; s += blockDim.x) top = max_of(top, tops[s]);
	return reduce_block(top, (u64)0, Max());
}

// store_token makes id the token that follows the row.
__device__ inline void store_token(const SampleArgs& a, int at, int id) {
	if (threadIdx.x != 0) return;
	int row = blockIdx.y;
	a.counts[row] = 0;
	a.next[row] = id;
	if (a.window > 0) a.history[row * a.window + (u32)(at + 1) % (u32)a.window] = id;
}

// uses_sums reports whether sample_sums samples the row's token.
__device__ __forceinline__ bool uses_sums(const SampleArgs& a, const SamplerParams& s) { return a.sums && s.temperature > 0 && !uses_top_k(s, a.vocab); }

// sample (sample) samples the token that follows row blockIdx.y, unless sample_sums does. Grid:
// (part of the row, row).
KERNEL(sample_token, SampleArgs, 1024) {
	pdl_trigger();
	pdl_wait();
	int row = blockIdx.y, at = a.pos[row], warps = blockDim.x / WARP, slices = gridDim.x * warps;
	const SamplerParams& s = a.params[row];
	float* l = a.logits + row * a.vocab;
	i64 from = (i64)blockIdx.x * blockDim.x * LOGITS_PER_THREAD;
	penalize(a, s, l, a.history + row * a.window, at, from, min_of(from + blockDim.x * LOGITS_PER_THREAD, a.vocab));
	u64* tops = a.tops + (i64)row * slices;
	u64 top = reduce_warp(thread_argmax(l, from + threadIdx.x * LOGITS_PER_THREAD, a.vocab), Max());
	if (lane() == 0) tops[blockIdx.x * warps + warp()] = top;
	if (uses_sums(a, s) || !last_block_of_row(a)) return;

	top = row_argmax(tops, slices);
	int id = rank_position(top);
	if (s.temperature > 0) {
		LogitWeights prob = make_weights(s, logit_of((u32)(top >> 32)));
		if (!uses_top_k(s, a.vocab) || !sample_candidates(a, s, l, tops, slices, prob, 0, at, id)) id = sample_all(a, s, l, prob, at);
	}
	store_token(a, at, id);
}

// sample_before (sample) applies the stages that precede the penalties in the order: what they
// leave out becomes -Inf. Grid: (1, row).
KERNEL(sample_before, SampleArgs, 1024) {
	pdl_wait();
	int row = blockIdx.y;
	const SamplerParams& s = a.params[row];
	if (s.order < 0) return;
	float* l = a.logits + row * a.vocab;
	u64 top = 0;
	for (i64 i = threadIdx.x; i < a.vocab; i += blockDim.x) top = max_of(top, rank_key(l[i], (int)i));
	top = reduce_block(top, (u64)0, Max());
	SamplerParams warm = s;
	if (s.temperature <= 0) warm.temperature = 1;
	Filtered filtered = filter_row(a, warm, l, make_weights(warm, logit_of((u32)(top >> 32))));
	for (i64 i = filtered.run.lo; i < filtered.run.hi; i++) {
		bool takes = filtered.takes(i) && (s.temperature > 0 || i == rank_position(top));
		l[i] = takes ? (float)((double)l[i] / warm.temperature) : -infinity();
	}
}

// sample_sums (sample) samples without top-k, after sample, which has found the maximum: its
// blocks sum the weights, the last one finds the block that the draw falls into, and the token in
// it. Grid as sample.
KERNEL(sample_sums, SampleArgs, 1024) {
	pdl_trigger();
	pdl_wait();
	int row = blockIdx.y, at = a.pos[row], blocks = gridDim.x, slices = blocks * (blockDim.x / WARP);
	const SamplerParams& s = a.params[row];
	if (!uses_sums(a, s)) return;
	const float* l = a.logits + row * a.vocab;
	const u64* tops = a.tops + (i64)row * slices;
	LogitWeights prob = make_weights(s, logit_of((u32)(row_argmax(tops, slices) >> 32)));
	bool with_top_p = uses_top_p(s), min_p_first = with_top_p && s.order & MIN_P_BEFORE_P;
	double weights[LOGITS_PER_THREAD];
	auto weigh = [&](i64 block) {  // tokens that min_p keeps, and the weight that top-p normalizes over
		float v[LOGITS_PER_THREAD];
		int n = load_logits(v, l, (block * blockDim.x + threadIdx.x) * LOGITS_PER_THREAD, a.vocab);
		double sum = 0;
#pragma unroll
		for (int j = 0; j < LOGITS_PER_THREAD; j++) {
			bool there = j < n && prob.min_p(v[j]);
			if (with_top_p && j < n && (there || !min_p_first)) sum += prob.of_top_p(v[j]);
			weights[j] = there && !with_top_p ? prob(v[j]) : 0;
		}
		return sum;
	};
	auto filtered = [&]() { return weights[0] + weights[1] + weights[2] + weights[3]; };
	f64* sums = a.sums + (i64)row * blocks * 2;
	double all = reduce_block(weigh(blockIdx.x), 0.0, Plus()), some = reduce_block(filtered(), 0.0, Plus());
	if (threadIdx.x == 0) {
		sums[2 * blockIdx.x] = all;
		sums[2 * blockIdx.x + 1] = some;
	}
	if (!last_block_of_row(a)) return;

	int id = 0, t = threadIdx.x;
	if (with_top_p) {
		all = reduce_block(t < blocks ? sums[2 * t] : 0.0, 0.0, Plus());
		if (!sample_candidates(a, s, l, tops, slices, prob, all, at, id)) id = sample_all(a, s, l, prob, at);
		store_token(a, at, id);
		return;
	}
	// The block that the draw falls into, or the last with a weight where rounding leaves the draw
	// beyond all, and then the token in it.
	SHARED(double, left, 1);
	double own = t < blocks ? sums[2 * t + 1] : 0, total, before = scan_block(own, total);
	Draw d = {s.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total;
	int block = -reduce_block(own > 0 && before + own > u ? -t : -blocks, -blocks, Max());
	int last = reduce_block(own > 0 ? t : -1, -1, Max());
	if (block == blocks) block = last;
	if (t == block) left[0] = u - before;
	__syncthreads();
	if (block >= 0) {
		weigh(block);
		double upto = scan_block(filtered(), total);
		int here = (block * (int)blockDim.x + t) * LOGITS_PER_THREAD, first = (int)a.vocab;
		last = -1;
		for (int j = 0; j < LOGITS_PER_THREAD; j++) {
			upto += weights[j];
			if (weights[j] > 0) last = here + j;
			if (weights[j] > 0 && upto > left[0]) first = min_of(first, here + j);
		}
		first = -reduce_block(-first, -(int)a.vocab, Max());
		last = reduce_block(last, -1, Max());
		id = first < (int)a.vocab ? first : max_of(last, 0);
	}
	store_token(a, at, id);
}

struct ReadbackArgs {
	u32* to;  // pinned host memory: [READBACK_WORDS], then the failure's code
	const u32* from[4];
	i64 words[4];
	const Failure* failure;
};

constexpr int READBACK_WORDS = 16;  // of 32 bits

// copy_to_host copies results to the host for an AsyncReader, with the code of the first failure.
KERNEL(copy_to_host, ReadbackArgs, 32) {
	pdl_wait();
	int at = 0;
	for (int i = 0; i < 4; at += (int)a.words[i++]) {
		for (int w = threadIdx.x; w < a.words[i]; w += blockDim.x) a.to[at + w] = a.from[i][w];
	}
	if (threadIdx.x == 0) a.to[READBACK_WORDS] = (u32)a.failure->code;
}
