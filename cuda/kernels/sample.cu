// The choice of the next token. Definition: package cpu, sample.go. A row of logits is
// divided among blocks, each of which finds the best of each slice; the last block to
// finish chooses. Shares that are compared with a mass are counted in units of
// 2⁻⁴⁴, so that their sums do not depend on an order.
#include "args.cuh"
#include "best.cuh"
#include "draw.cuh"
#include "dequant.cuh"

// Setting is how a row's token is chosen. What is absent from the order of its stages has
// a setting that does nothing: only what comes before what is left to say.
struct Setting {
	float temperature;                  // 0 is greedy
	float top_p, min_p;                 // 1 and 0 keep all
	float repeat, presence, frequency;  // penalties, which come first
	i32 top_k;                          // 0 keeps all
	i32 last_n;                         // tokens that the penalties look at, 0 for none
	u64 seed;
	i64 order;
};

// The order of the other stages. All of them keep the likeliest; so it matters only what
// top-p takes the softmax of, and whether the temperature comes before.
enum { TOP_K_BEFORE_P = 1, MIN_P_BEFORE_P = 2, WARM_TOP_P = 4, WARM_MIN_P = 8 };

constexpr int SAMPLE_ROWS = 16;  // rows of a launch

struct SampleArgs {
	i32* next;        // [rows]
	float* logits;    // [rows, vocab]
	i32* history;     // [rows, window]
	const i32* pos;   // [rows]
	i64 vocab, window;
	u64* tops;    // [rows, slices]
	f64* sums;    // [rows, blocks, 2]: what top-p takes the softmax of, and of what is drawn without it; 0 is none
	int* counts;  // [rows]: zeros, and zeros again
	Setting settings[SAMPLE_ROWS];
};

constexpr int LOGITS_EACH = 4;               // logits of a thread
constexpr int LOGITS_SLICE = LOGITS_EACH * WARP;    // logits of a warp
constexpr int FEW_KEPT = 256;         // the most that top-k keeps of a few candidates
constexpr int TOP_SLICES = 256;       // without top-k: those whose best are candidates, of all a quarter at most
constexpr int CANDIDATES = 1024;
constexpr int CROWD_SORTED = 256;     // the most candidates that are compared with each other

// penalize makes the newest tokens less likely, those from lo to hi-1.
__device__ inline void penalize(const SampleArgs& a, const Setting& s, float* logits, const i32* history, int at, i64 lo, i64 hi) {
	if (s.last_n <= 0) return;
	SHARED(int, seen, 1024 * LOGITS_EACH);
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

// load_logits reads up to LOGITS_EACH logits from i on, past the first-level cache: others may
// have changed the ones beside them.
__device__ __forceinline__ int load_logits(float v[LOGITS_EACH], const float* logits, i64 i, i64 vocab) {
	int n = (int)min_of((i64)LOGITS_EACH, max_of(vocab - i, (i64)0));
	if (n == LOGITS_EACH && (u64)(logits + i) % 16 == 0) {
		ld_cg4(v, logits + i);
	} else {
#pragma unroll
		for (int j = 0; j < LOGITS_EACH; j++) v[j] = j < n ? ld_cg(logits + i + j) : 0;
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
		if (j < n) top = max_of(top, rank_of(v[j], (int)i + j));
	}
	return top;
}

// Odds is the weights of a logit: exp((logit - top)/temperature), for the draw, and for
// top-p and min-p what they compare, before the temperature or after.
struct Odds {
	double top, temperature;
	double least;  // of min_p
	bool warm_top_p, warm_min_p;

	__device__ double weight(float logit, double by) const {
		if (logit != logit) logit = -infinity();
		double p = exp(((double)logit - top) / by);
		return p != p ? 1 : p;  // both infinite
	}
	__device__ double operator()(float logit) const { return weight(logit, temperature); }
	__device__ double of_top_p(float logit) const { return weight(logit, warm_top_p ? temperature : 1); }
	__device__ bool min_p(float logit) const { return least <= 0 || weight(logit, warm_min_p ? temperature : 1) >= least; }
};

__device__ inline Odds odds_of(const Setting& s, float top) {
	Odds odds = {top, s.temperature, s.min_p, (s.order & WARM_TOP_P) != 0, (s.order & WARM_MIN_P) != 0};
	return odds;
}

// counted and massed are whether top-k and top-p leave something out.
__device__ __forceinline__ bool counted(const Setting& s, i64 vocab) { return s.top_k > 0 && s.top_k < vocab; }
__device__ __forceinline__ bool massed(const Setting& s) { return s.top_p > 0 && s.top_p < 1; }

// units is a share in units of 2⁻⁴⁴.
__device__ __forceinline__ u64 units(double share) { return (u64)(share * 0x1p44); }

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
		u32 n = __popc(__ballot_sync(FULL_MASK, mine[0] >= next)) + __popc(__ballot_sync(FULL_MASK, mine[1] >= next));
		if (lane() == 0) of[warp()] = n;
		__syncthreads();
		n = warp_add(lane() < warps ? of[lane()] : 0);
		if ((int)n >= want) cut = next;
		if ((int)n >= want && (int)n <= want + want / 2) break;
	}
	return cut;
}

// choose_few draws among a few candidates. The best of slices say what the last that
// top-k keeps reaches at least; what reaches that is a candidate. Without top-k, top-p,
// which takes the softmax of weights with the sum all, must keep no more than the
// candidates. It returns false, having done nothing, where they are too many or too few,
// and where top-p comes before top-k. All threads call it.
__device__ inline bool choose_few(const SampleArgs& a, const Setting& s, const float* logits, const u64* tops, int slices, Odds odds, double all, int at, int& id) {
	bool few = counted(s, a.vocab), mass = massed(s);
	int k = few ? min_of(s.top_k, FEW_KEPT + 1) : min_of(slices / 4, TOP_SLICES);
	if (few ? mass && !(s.order & TOP_K_BEFORE_P) : !mass) return false;
	if (k < 1 || k > FEW_KEPT || k > slices || slices > 2 * (int)blockDim.x) return false;
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
	if (few) n = k;
	int i = threadIdx.x, place = i < n ? place_of(found[i]) : (int)a.vocab;
	float logit = i < n ? value_of((u32)(found[i] >> 32)) : -infinity();
	double p = i < n ? odds(logit) : 0;
	bool takes = i < n && odds.min_p(logit);
	if (mass) {
		double share = i < n && (takes || !(s.order & MIN_P_BEFORE_P)) ? odds.of_top_p(logit) : 0;
		double sum = few ? reduce_block(share, 0.0, Plus()) : all;
		u64 want = max_of(units(s.top_p), (u64)1), there, before = scan_block(units(share / sum), there);
		if (!few && there < want) return false;
		takes = takes && before < want;
	}
	SHARED(double, weights, CANDIDATES);
	if (i < n) weights[i] = takes ? p : 0;
	double total = reduce_block(takes ? p : 0.0, 0.0, Plus());
	n = reduce_block(takes ? i + 1 : 0, 0, Max());
	Draw d = {s.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total, upto = 0;
	for (int j = 0; j < n && takes; j++) {
		if (place_of(found[j]) <= place) upto += weights[j];
	}
	int first = -reduce_block(takes && upto > u ? -place : -(int)a.vocab, -(int)a.vocab, Max());
	int last = reduce_block(takes && p > 0 ? place : -1, -1, Max());
	id = first < (int)a.vocab ? first : max_of(last, 0);
	return true;
}

// Kept is what the stages leave of a row: what top-k, top-p and min-p keep, all three.
struct Kept {
	const float* logits;
	Odds odds;
	Picker<u32> top_k, top_p;
	Run run;  // of this thread

	// takes is asked for each element of the run, in order.
	__device__ bool takes(i64 i) {
		u32 key = key_of(logits[i]);
		bool ok = top_k.takes(key);
		ok = top_p.takes(key) && ok;
		return ok && odds.min_p(logits[i]);
	}
};

// keep finds what the stages leave of a row. All threads call it.
__device__ inline Kept keep(const SampleArgs& a, const Setting& s, const float* l, Odds odds) {
	auto all = [&](i64 i, u32& key) {
		key = key_of(l[i]);
		return true;
	};
	Cut<u32> first = everything<u32>(), second = first;
	if (counted(s, a.vocab))
		first = select<u32>(a.vocab, (u64)s.top_k, [&](i64 i, u32& key) {
			key = key_of(l[i]);
			return (u64)1;
		});
	Picker<u32> start = picker(first, a.vocab, all);
	Run r = run_of(a.vocab);
	if (massed(s)) {
		bool top_k = s.order & TOP_K_BEFORE_P, min_p = s.order & MIN_P_BEFORE_P;
		double sum = 0;
		Picker<u32> in = start;
		for (i64 i = r.lo; i < r.hi; i++) {
			if ((in.takes(key_of(l[i])) || !top_k) && (!min_p || odds.min_p(l[i]))) sum += odds.of_top_p(l[i]);
		}
		sum = reduce_block(sum, 0.0, Plus());
		// What is equal to the first cut's key and not selected weighs nothing
		// here, because a cut within those equal keeps the lowest ids of both.
		second = select<u32>(a.vocab, max_of(units(s.top_p), (u64)1), [&](i64 i, u32& key) {
			key = key_of(l[i]);
			if (top_k && key < first.key || min_p && !odds.min_p(l[i])) return (u64)0;
			return units(odds.of_top_p(l[i]) / sum);
		});
	}
	Kept kept = {l, odds, start, picker(second, a.vocab, all), r};
	return kept;
}

// choose_of_all draws among all tokens.
__device__ inline int choose_of_all(const SampleArgs& a, const Setting& s, const float* l, Odds odds, int at) {
	Kept kept = keep(a, s, l, odds), again = kept;
	double part = 0, total;
	for (i64 i = kept.run.lo; i < kept.run.hi; i++) {
		if (kept.takes(i)) part += odds(l[i]);
	}
	double before = scan_block(part, total);

	Draw d = {s.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
	double u = (double)uniform(d, 0) * total;
	i64 found = a.vocab, last = -1;
	for (i64 i = kept.run.lo; i < kept.run.hi && found == a.vocab; i++) {
		if (!again.takes(i)) continue;
		double p = odds(l[i]);
		if (p > 0) last = i;
		before += p;
		if (before > u) found = i;
	}
	found = -reduce_block(-found, -a.vocab, Max());
	last = reduce_block(last, (i64)-1, Max());
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
	for (int s = threadIdx.x; s < slices; s += blockDim.x) top = max_of(top, tops[s]);
	return reduce_block(top, (u64)0, Max());
}

// take makes id the token that follows the row.
__device__ inline void take(const SampleArgs& a, int at, int id) {
	if (threadIdx.x != 0) return;
	int row = blockIdx.y;
	a.counts[row] = 0;
	a.next[row] = id;
	if (a.window > 0) a.history[row * a.window + (u32)(at + 1) % (u32)a.window] = id;
}

// summed reports whether sample_sums chooses the row's token.
__device__ __forceinline__ bool summed(const SampleArgs& a, const Setting& s) { return a.sums && s.temperature > 0 && !counted(s, a.vocab); }

// sample chooses the token that follows row blockIdx.y, unless sample_sums does.
KERNEL(sample, SampleArgs, 1024) {
	pdl_trigger();
	pdl_wait();
	int row = blockIdx.y, at = a.pos[row], warps = blockDim.x / WARP, slices = gridDim.x * warps;
	const Setting& s = a.settings[row];
	float* l = a.logits + row * a.vocab;
	i64 from = (i64)blockIdx.x * blockDim.x * LOGITS_EACH;
	penalize(a, s, l, a.history + row * a.window, at, from, min_of(from + blockDim.x * LOGITS_EACH, a.vocab));
	u64* tops = a.tops + (i64)row * slices;
	u64 top = reduce_warp(best_of(l, from + threadIdx.x * LOGITS_EACH, a.vocab), Max());
	if (lane() == 0) tops[blockIdx.x * warps + warp()] = top;
	if (summed(a, s) || !last_of_row(a)) return;

	top = top_of(tops, slices);
	int id = place_of(top);
	if (s.temperature > 0) {
		Odds odds = odds_of(s, value_of((u32)(top >> 32)));
		if (!counted(s, a.vocab) || !choose_few(a, s, l, tops, slices, odds, 0, at, id)) id = choose_of_all(a, s, l, odds, at);
	}
	take(a, at, id);
}

// sample_before does the stages that come before the penalties, where some do: what they
// leave out is less likely than anything from then on.
KERNEL(sample_before, SampleArgs, 1024) {
	pdl_wait();
	int row = blockIdx.y;
	const Setting& s = a.settings[row];
	if (s.order < 0) return;
	float* l = a.logits + row * a.vocab;
	u64 top = 0;
	for (i64 i = threadIdx.x; i < a.vocab; i += blockDim.x) top = max_of(top, rank_of(l[i], (int)i));
	top = reduce_block(top, (u64)0, Max());
	Setting warm = s;
	if (s.temperature <= 0) warm.temperature = 1;
	Kept kept = keep(a, warm, l, odds_of(warm, value_of((u32)(top >> 32))));
	for (i64 i = kept.run.lo; i < kept.run.hi; i++) {
		bool takes = kept.takes(i) && (s.temperature > 0 || i == place_of(top));
		l[i] = takes ? (float)((double)l[i] / warm.temperature) : -infinity();
	}
}

// sample_sums chooses without top-k, after sample.
KERNEL(sample_sums, SampleArgs, 1024) {
	pdl_trigger();
	pdl_wait();
	int row = blockIdx.y, at = a.pos[row], blocks = gridDim.x, slices = blocks * (blockDim.x / WARP);
	const Setting& s = a.settings[row];
	if (!summed(a, s)) return;
	const float* l = a.logits + row * a.vocab;
	const u64* tops = a.tops + (i64)row * slices;
	Odds odds = odds_of(s, value_of((u32)(top_of(tops, slices) >> 32)));
	bool mass = massed(s), few = mass && s.order & MIN_P_BEFORE_P;
	double weights[LOGITS_EACH];
	auto weigh = [&](i64 block) {  // those that min_p keeps, and the sum of what top-p looks at
		float v[LOGITS_EACH];
		int n = load_logits(v, l, (block * blockDim.x + threadIdx.x) * LOGITS_EACH, a.vocab);
		double sum = 0;
#pragma unroll
		for (int j = 0; j < LOGITS_EACH; j++) {
			bool there = j < n && odds.min_p(v[j]);
			if (mass && j < n && (there || !few)) sum += odds.of_top_p(v[j]);
			weights[j] = there && !mass ? odds(v[j]) : 0;
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
	if (mass) {
		all = reduce_block(t < blocks ? sums[2 * t] : 0.0, 0.0, Plus());
		if (!choose_few(a, s, l, tops, slices, odds, all, at, id)) id = choose_of_all(a, s, l, odds, at);
		take(a, at, id);
		return;
	}
	// The block that the draw falls into, the last one with a weight if it is beyond all by
	// rounding, and then the token in it.
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
		double upto = scan_block(kept(), total);
		int here = (block * (int)blockDim.x + t) * LOGITS_EACH, first = (int)a.vocab;
		last = -1;
		for (int j = 0; j < LOGITS_EACH; j++) {
			upto += weights[j];
			if (weights[j] > 0) last = here + j;
			if (weights[j] > 0 && upto > left[0]) first = min_of(first, here + j);
		}
		first = -reduce_block(-first, -(int)a.vocab, Max());
		last = reduce_block(last, -1, Max());
		id = first < (int)a.vocab ? first : max_of(last, 0);
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
	pdl_wait();
	int at = 0;
	for (int i = 0; i < 4; at += (int)a.words[i++]) {
		for (int w = threadIdx.x; w < a.words[i]; w += blockDim.x) a.to[at + w] = a.from[i][w];
	}
	if (threadIdx.x == 0) a.to[DELIVERED] = (u32)a.failure->code;
}
