// The choice of the next token. Definition: package cpu, sample.go. A row of logits is
// divided among blocks, each of which finds the best of each slice; the last block to
// finish chooses. Shares that are compared with a mass are counted in units of
// 2⁻⁴⁴, so that their sums do not depend on an order.
#include "args.cuh"
#include "best.cuh"
#include "draw.cuh"
#include "few.cuh"

struct SampleArgs {
	i32* next;        // [rows]
	float* logits;    // [rows, vocab]
	i32* history;     // [rows, window]
	const i32* pos;   // [rows]
	i64 vocab, window;
	f64 temperature, top_p, min_p, penalty;
	i64 top_k;
	u64 seed;
	u64* tops;    // [rows, slices]
	f64* sums;    // [rows, blocks, 2]: of all weights, and of those that min_p keeps; 0 is none
	int* counts;  // [rows]: zeros, and zeros again
};

constexpr int LOGITS_EACH = 4;               // logits of a thread
constexpr int LOGITS_SLICE = LOGITS_EACH * WARP;    // logits of a warp
constexpr int FEW_KEPT = 256;         // the most that top-k keeps of a few candidates
constexpr int TOP_SLICES = 256;       // without top-k: those whose best are candidates, of all a quarter at most
constexpr int CANDIDATES = 1024;
constexpr int CROWD_SORTED = 256;     // the most candidates that are compared with each other

// penalize makes each token of history from lo to hi-1 less likely, once however often
// it is there.
__device__ inline void penalize(const SampleArgs& a, float* logits, const i32* history, i64 lo, i64 hi) {
	if (a.penalty == 0 || a.penalty == 1) return;
	for (i64 i = threadIdx.x; i < a.window; i += blockDim.x) {
		int id = history[i];
		bool first = id >= lo && id < hi;
		for (i64 j = 0; j < i && first; j++) first = history[j] != id;
		if (!first) continue;
		float logit = fresh(logits + id);
		logits[id] = logit > 0 ? logit / (float)a.penalty : logit * (float)a.penalty;
	}
	__syncthreads();
}

// load_logits reads up to LOGITS_EACH logits from i on, past the first-level cache: others may
// have changed the ones beside them.
__device__ __forceinline__ int load_logits(float v[LOGITS_EACH], const float* logits, i64 i, i64 vocab) {
	int n = (int)smaller((i64)LOGITS_EACH, larger(vocab - i, (i64)0));
	if (n == LOGITS_EACH && (u64)(logits + i) % 16 == 0) {
		fresh4(v, logits + i);
	} else {
#pragma unroll
		for (int j = 0; j < LOGITS_EACH; j++) v[j] = j < n ? fresh(logits + i + j) : 0;
	}
	return n;
}

// best_of is the largest logit of a thread and the lowest id among equals, as a rank.
__device__ __forceinline__ u64 best_of(const float* logits, i64 i, i64 vocab) {
	float v[LOGITS_EACH];
	int n = load_logits(v, logits, i, vocab);
	u64 top = 0;
#pragma unroll
	for (int j = 0; j < LOGITS_EACH; j++) {
		if (j < n) top = larger(top, rank_of(v[j], (int)i + j));
	}
	return top;
}

// Odds is the weight of a logit: exp((logit - top)/temperature).
struct Odds {
	double top, temperature;

	__device__ double operator()(float logit) const {
		if (logit != logit) logit = -infinity();
		double p = exp(((double)logit - top) / temperature);
		return p != p ? 1 : p;  // both infinite
	}
};

// value_of is the logit of a key; what was not a number is the smallest.
__device__ __forceinline__ float value_of(u32 key) { return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key); }

// reach_of is a key that at least want of the tops reach, and not many more. Each thread
// has two.
__device__ inline u32 reach_of(const u32 mine[2], int want) {
	SHARED(u32, counts, 2 * WARP);
	int warps = blockDim.x / WARP;
	u32 cut = 0;
	for (int bit = 31; bit >= 0; bit--) {
		u32 next = cut | 1u << bit, *of = counts + bit % 2 * WARP;
		u32 n = __popc(__ballot_sync(ALL, mine[0] >= next)) + __popc(__ballot_sync(ALL, mine[1] >= next));
		if (lane() == 0) of[warp()] = n;
		__syncthreads();
		n = add_warp(lane() < warps ? of[lane()] : 0);
		if ((int)n >= want) cut = next;
		if ((int)n >= want && (int)n <= want + want / 2) break;
	}
	return cut;
}

// choose_few draws among a few candidates. The best of slices say what the last that
// top-k keeps reaches at least; what reaches that is a candidate. Without
// top-k, whose weights have the sum all, top-p must keep no more than the candidates. It
// returns false, having done nothing, where they are too many or too few. All threads
// call it.
__device__ inline bool choose_few(const SampleArgs& a, const float* logits, const u64* tops, int slices, Odds odds, double all, int at, int& id) {
	bool counted = a.top_k > 0 && a.top_k < a.vocab, massed = a.top_p > 0 && a.top_p < 1;
	int k = counted ? (int)smaller(a.top_k, (i64)FEW_KEPT + 1) : smaller(slices / 4, TOP_SLICES);
	if (!counted && !massed || k < 1 || k > FEW_KEPT || k > slices || slices > 2 * (int)blockDim.x) return false;
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
	u32 cut = reach_of(mine, k);
	for (int j = 0; j < 2; j++) {
		if (mine[j] > 0 && mine[j] >= cut) hot[atomicAdd(&counts[0], 1)] = j * blockDim.x + threadIdx.x;
	}
	__syncthreads();
	for (int h = warp(), n = counts[0]; h < n; h += blockDim.x / WARP) {
		float v[LOGITS_EACH];
		i64 i = (i64)hot[h] * LOGITS_SLICE + lane() * LOGITS_EACH;
		int there = load_logits(v, logits, i, a.vocab);
		for (int j = 0; j < there; j++) {
			if (key_of(v[j]) < cut) continue;
			int to = atomicAdd(&counts[1], 1);
			if (to < CANDIDATES) found[to] = rank_of(v[j], (int)i + j);
		}
	}
	__syncthreads();
	int n = counts[1];
	if (n > CANDIDATES || n > (int)blockDim.x || n < k) return false;
	if (n <= CROWD_SORTED) {  // a thread for each counts what is above it
		int t = threadIdx.x, to = 0;
		u64 own = found[t < n ? t : 0];
		for (int j = 0; j < n && t < n; j++) to += found[j] > own;
		__syncthreads();
		if (t < n) found[to] = own;
		__syncthreads();
	} else {
		int size = 2;
		while (size < n) size *= 2;
		sort_down(found, size);
	}

	// Thread i has candidate i of those that top-k keeps.
	if (counted) n = k;
	int i = threadIdx.x, place = i < n ? place_of(found[i]) : (int)a.vocab;
	double p = i < n ? odds(value_of((u32)(found[i] >> 32))) : 0;
	double sum = counted ? reduce_block(p, 0.0, Plus()) : all;
	bool takes = i < n && p >= a.min_p;
	if (massed) {
		u64 want = larger((u64)(a.top_p * 0x1p44), (u64)1), there, before = scan_block(i < n ? (u64)(p / sum * 0x1p44) : (u64)0, there);
		if (!counted && there < want) return false;
		takes = takes && before < want;
	}
	SHARED(double, weights, CANDIDATES);
	if (i < n) weights[i] = takes ? p : 0;
	double total = reduce_block(takes ? p : 0.0, 0.0, Plus());
	n = reduce_block(takes ? i + 1 : 0, 0, Top());
	Draw d = {a.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total, upto = 0;
	for (int j = 0; j < n && takes; j++) {
		if (place_of(found[j]) <= place) upto += weights[j];
	}
	int first = -reduce_block(takes && upto > u ? -place : -(int)a.vocab, -(int)a.vocab, Top());
	int last = reduce_block(takes && p > 0 ? place : -1, -1, Top());
	id = first < (int)a.vocab ? first : larger(last, 0);
	return true;
}

// choose_of_all draws among all tokens.
__device__ inline int choose_of_all(const SampleArgs& a, const float* l, Odds odds, int at) {
	auto all = [&](i64 i, u32& key) {
		key = key_of(l[i]);
		return true;
	};
	Cut<u32> first = everything<u32>();
	if (a.top_k > 0 && a.top_k < a.vocab)
		first = select<u32>(a.vocab, (u64)a.top_k, [&](i64 i, u32& key) {
			key = key_of(l[i]);
			return (u64)1;
		});
	Picker<u32> start = picker(first, a.vocab, all);
	Run r = run_of(a.vocab);

	double sum = 0;
	Picker<u32> in = start;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (in.takes(key_of(l[i]))) sum += odds(l[i]);
	}
	sum = reduce_block(sum, 0.0, Plus());

	Cut<u32> second = everything<u32>();
	if (a.top_p > 0 && a.top_p < 1) {
		// What is equal to the first cut's key and not selected weighs nothing
		// here, because a cut within those equal keeps the lowest ids of both.
		second = select<u32>(a.vocab, larger((u64)(a.top_p * 0x1p44), (u64)1), [&](i64 i, u32& key) {
			key = key_of(l[i]);
			return key < first.key ? (u64)0 : (u64)(odds(l[i]) / sum * 0x1p44);
		});
	}
	Picker<u32> then = picker(second, a.vocab, all);

	double part = 0, total;
	in = start;
	Picker<u32> also = then;
	auto takes = [&](i64 i) {
		u32 key = key_of(l[i]);
		bool ok = in.takes(key);
		ok = also.takes(key) && ok;
		return ok && odds(l[i]) >= a.min_p;
	};
	for (i64 i = r.lo; i < r.hi; i++) {
		if (takes(i)) part += odds(l[i]);
	}
	double before = scan_block(part, total);

	Draw d = {a.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total;
	i64 found = a.vocab, last = -1;
	in = start;
	also = then;
	for (i64 i = r.lo; i < r.hi && found == a.vocab; i++) {
		if (!takes(i)) continue;
		double p = odds(l[i]);
		if (p > 0) last = i;
		before += p;
		if (before > u) found = i;
	}
	found = -reduce_block(-found, -a.vocab, Top());
	last = reduce_block(last, (i64)-1, Top());
	return (int)(found < a.vocab ? found : last < 0 ? 0 : last);
}

// last_of_row reports whether the block is the last of its row to come here. All
// threads call it.
__device__ inline bool last_of_row(const SampleArgs& a) {
	SHARED(int, turn, 1);
	__threadfence();
	__syncthreads();
	if (threadIdx.x == 0) {
		turn[0] = atomicAdd(a.counts + blockIdx.y, 1);
		__threadfence();
	}
	__syncthreads();
	return turn[0] == (int)gridDim.x - 1;
}

// top_of is the best of all slices.
__device__ inline u64 top_of(const u64* tops, int slices) {
	u64 top = 0;
	for (int s = threadIdx.x; s < slices; s += blockDim.x) top = larger(top, tops[s]);
	return reduce_block(top, (u64)0, Top());
}

// take makes id the token that follows the row.
__device__ inline void take(const SampleArgs& a, int at, int id) {
	if (threadIdx.x != 0) return;
	int row = blockIdx.y;
	a.counts[row] = 0;
	a.next[row] = id;
	if (a.window > 0) a.history[row * a.window + (u32)(at + 1) % (u32)a.window] = id;
}

// sample chooses the token that follows row blockIdx.y, unless sample_sums does.
KERNEL(sample, SampleArgs, 1024) {
	let_next();
	wait_before();
	int row = blockIdx.y, at = a.pos[row], warps = blockDim.x / WARP, slices = gridDim.x * warps;
	float* l = a.logits + row * a.vocab;
	i64 from = (i64)blockIdx.x * blockDim.x * LOGITS_EACH;
	penalize(a, l, a.history + row * a.window, from, smaller(from + blockDim.x * LOGITS_EACH, a.vocab));
	u64* tops = a.tops + (i64)row * slices;
	u64 top = reduce_warp(best_of(l, from + threadIdx.x * LOGITS_EACH, a.vocab), Top());
	if (lane() == 0) tops[blockIdx.x * warps + warp()] = top;
	if (a.sums || !last_of_row(a)) return;

	top = top_of(tops, slices);
	int id = place_of(top);
	if (a.temperature > 0) {
		Odds odds = {value_of((u32)(top >> 32)), a.temperature};
		bool counted = a.top_k > 0 && a.top_k < a.vocab;
		if (!counted || !choose_few(a, l, tops, slices, odds, 0, at, id)) id = choose_of_all(a, l, odds, at);
	}
	take(a, at, id);
}

// sample_sums chooses without top-k, after sample.
KERNEL(sample_sums, SampleArgs, 1024) {
	let_next();
	wait_before();
	int row = blockIdx.y, at = a.pos[row], blocks = gridDim.x, slices = blocks * (blockDim.x / WARP);
	const float* l = a.logits + row * a.vocab;
	const u64* tops = a.tops + (i64)row * slices;
	Odds odds = {value_of((u32)(top_of(tops, slices) >> 32)), a.temperature};
	double weights[LOGITS_EACH];
	auto weigh = [&](i64 block) {  // those that min_p keeps, and the sum of all
		float v[LOGITS_EACH];
		int n = load_logits(v, l, (block * blockDim.x + threadIdx.x) * LOGITS_EACH, a.vocab);
		double sum = 0;
#pragma unroll
		for (int j = 0; j < LOGITS_EACH; j++) {
			double p = j < n ? odds(v[j]) : 0;
			sum += p;
			weights[j] = p >= a.min_p ? p : 0;
		}
		return sum;
	};
	auto kept = [&]() { return weights[0] + weights[1] + weights[2] + weights[3]; };
	f64* sums = a.sums + (i64)row * blocks * 2;
	double all = reduce_block(weigh(blockIdx.x), 0.0, Plus()), some = reduce_block(kept(), 0.0, Plus());
	if (threadIdx.x == 0) {
		sums[2 * blockIdx.x] = all;
		sums[2 * blockIdx.x + 1] = some;
	}
	if (!last_of_row(a)) return;

	int id = 0, t = threadIdx.x;
	if (a.top_p > 0 && a.top_p < 1) {
		all = reduce_block(t < blocks ? sums[2 * t] : 0.0, 0.0, Plus());
		if (!choose_few(a, l, tops, slices, odds, all, at, id)) id = choose_of_all(a, l, odds, at);
		take(a, at, id);
		return;
	}
	// The block that the draw falls into, the last one with a weight if it is beyond all by
	// rounding, and then the token in it.
	SHARED(double, left, 1);
	double own = t < blocks ? sums[2 * t + 1] : 0, total, before = scan_block(own, total);
	Draw d = {a.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total;
	int block = -reduce_block(own > 0 && before + own > u ? -t : -blocks, -blocks, Top());
	int last = reduce_block(own > 0 ? t : -1, -1, Top());
	if (block == blocks) block = last;
	if (t == block) left[0] = u - before;
	__syncthreads();
	if (block >= 0) {
		weigh(block);
		double upto = scan_block(kept(), total);
		int here = (block * (int)blockDim.x + t) * LOGITS_EACH, first = (int)a.vocab;
		last = -1;
		for (int j = 0; j < LOGITS_EACH; j++) {
			upto += weights[j];
			if (weights[j] > 0) last = here + j;
			if (weights[j] > 0 && upto > left[0]) first = smaller(first, here + j);
		}
		first = -reduce_block(-first, -(int)a.vocab, Top());
		last = reduce_block(last, -1, Top());
		id = first < (int)a.vocab ? first : larger(last, 0);
	}
	take(a, at, id);
}

struct DeliverArgs {
	u32* to;           // of the host: [DELIVERED], and then the failure's code
	const u32* from[4];
	i64 words[4];
	const Failure* failure;
};

constexpr int DELIVERED = 16;  // words

// deliver copies words to the host, and whether anything has failed.
KERNEL(deliver, DeliverArgs, 32) {
	wait_before();
	int at = 0;
	for (int i = 0; i < 4; at += (int)a.words[i++]) {
		for (int w = threadIdx.x; w < a.words[i]; w += blockDim.x) a.to[at + w] = a.from[i][w];
	}
	if (threadIdx.x == 0) a.to[DELIVERED] = (u32)a.failure->code;
}
