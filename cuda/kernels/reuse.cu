// What a later step reads of what an earlier one chose. Definitions: package cpu,
// reuse.go, choose.go and widen.go; package device, reuse.go, says what a memo is.
#include "rank.cuh"
#include "scores.cuh"

struct Memo {
	float* query;        // [slots, heads·block, dim]
	i32* entry;          // [slots, sets·block, 3]
	i32* index;          // [slots, sets·block, most]
	const i32* since;    // [slots]
	i32* found;          // [slots, sets]
	u32* tally;          // [slots, sets, 4]
	i64 heads, sets, block, most, relative, chain;
	f64 above;
	i64 k;
	f64 share;
};

// k_of is Memo.K of n positions.
__device__ inline i64 k_of(const Memo& m, i64 n) { return m.share > 0 ? (i64)floor(m.share * (double)n + 1e-9) : m.k; }

// origin is Memo.Origin: where the block of position p starts, and the number of
// p in it.
__device__ inline int origin(const Memo& m, int slot, int p, int& number) {
	int from = m.relative ? smaller(m.since[slot], p) : 0;
	number = (int)((p - from) % m.block);
	return p - number;
}

// record is entry e of a set: position plus one, source, count.
__device__ inline i32* record(const Memo& m, int slot, int set, int e) { return m.entry + ((slot * m.sets + set) * m.block + e) * 3; }

// chosen is what entry e of a set chose, best first.
__device__ inline i32* chosen(const Memo& m, int slot, int set, int e, int& n) {
	n = smaller(larger(record(m, slot, set, e)[2], 0), (int)m.most);
	return m.index + ((slot * m.sets + set) * m.block + e) * m.most;
}

// cosine of two vectors, by a warp; less than any for one of length zero.
__device__ inline double cosine(const float* a, const float* b, int dim) {
	double ab = 0, aa = 0, bb = 0;
	for (int i = lane(); i < dim; i += WARP) {
		double x = a[i], y = b[i];
		ab += x * y;
		aa += x * x;
		bb += y * y;
	}
	ab = reduce_warp(ab, Plus());
	aa = reduce_warp(aa, Plus());
	bb = reduce_warp(bb, Plus());
	return aa == 0 || bb == 0 ? -(double)infinity() : smaller(ab / sqrt(aa * bb), 1.0);
}

struct RecallArgs {
	Memo m;
	const float* q;  // [slots, heads, dim]
	Pages g;
};

// recall finds the entry that set blockIdx.x of slot blockIdx.y uses, and notes
// the queries of its heads. A warp takes an entry at a time.
KERNEL(recall, RecallArgs, 256) {
	int set = blockIdx.x, slot = blockIdx.y, p = newest(a.g, slot), number, dim = (int)a.g.dim;
	if (p < 0) return;
	int start = origin(a.m, slot, p, number), run = (int)(a.m.heads / a.m.sets);
	const float* q = a.q + (slot * a.m.heads + set * run) * dim;
	float* noted = a.m.query + (slot * a.m.heads + set * run) * a.m.block * dim;  // [run, block, dim]
	int best = -1;
	for (int e = number - 1 - warp(); e >= 0 && best < 0; e -= blockDim.x / WARP) {
		int at = record(a.m, slot, set, e)[0] - 1;
		if (at != start + e || at < a.m.since[slot]) continue;
		double alike = (double)infinity();
		for (int h = 0; h < run; h++) alike = smaller(alike, cosine(q + h * dim, noted + (h * a.m.block + e) * dim, dim));
		if (alike > a.m.above) best = e;
	}
	best = reduce_block(best, -1, Top());
	if (threadIdx.x == 0) a.m.found[slot * a.m.sets + set] = best < 0 ? -1 : record(a.m, slot, set, best)[1];
	for (int i = threadIdx.x; i < run * dim; i += blockDim.x) noted[((i / dim) * a.m.block + number) * dim + i % dim] = q[i];
}

struct ChooseArgs {
	Memo m;
	float* scores;   // [slots, heads, width]
	const float* q;  // [slots, heads, dim]
	u64* work;       // [slots, sets, places]: ranks
	i64 width, places, room;  // places: most or more, a power of two; room: bytes of shared memory of choose
	Pages g;
	Plan plan;
};

// choose_scores: q·k/√dim over what the span lets the newest row see, for the heads
// whose sets found no entry. Block (i, kv head, slot) takes chunk i.
KERNEL(choose_scores, ChooseArgs, 128) {
	int slot = blockIdx.z, kv_head = blockIdx.y, lo = blockIdx.x * CHUNK, p = first_of(a.g, slot), dim = (int)a.g.dim;
	if (p < lo || p >= a.width) return;
	int n = smaller(CHUNK, p + 1 - lo), run = (int)(a.m.heads / a.g.heads), bad = 0;
	for (int i = threadIdx.x; i < (n + PAGE - 1) / PAGE; i += blockDim.x) bad |= page_of(a.g, slot, lo / PAGE + i) < 0;
	if (reduce_block(bad, 0, Top())) return;
	float unit = 1 / sqrtf((float)dim);
	int bound = bound_of(a.plan.span, p), since = a.plan.span.back ? p + 1 - (int)a.plan.span.back : 0;
	auto some = [&](int i) { return lo + i >= since && (lo + i < a.plan.span.sink || lo + i >= bound); };
	for (int h = 0; h < run; h += TOGETHER) {
		int heads = smaller(TOGETHER, run - h);
		i64 first = slot * a.m.heads + kv_head * run + h;
		u32 asked = 0;
		for (int u = 0; u < heads; u++) asked |= (a.m.found[slot * a.m.sets + (kv_head * run + h + u) * a.m.sets / a.m.heads] < 0 ? 1u : 0u) << u;
		if (!asked) continue;
		score_keys(a.g, Keys{slot, kv_head, lo, n}, a.q + first * dim, heads, some, [&](int u, int i, float sum) {
			if (asked >> u & 1 && some(i)) a.scores[(first + u) * a.width + lo + i] = sum * unit;
		});
	}
}

// weigh makes the first head's row of a set what the set is ranked by: its score,
// or the sum of its heads' softmax.
__device__ inline float* weigh(const ChooseArgs& a, int slot, int set, int p) {
	int run = (int)(a.m.heads / a.m.sets);
	float* first = a.scores + (slot * a.m.heads + set * run) * a.width;
	for (int h = 0; h < run && a.m.sets < a.m.heads; h++) {
		float* x = first + h * a.width;
		float top = -infinity(), sum = 0;
		for (int j = threadIdx.x; j <= p; j += blockDim.x) {
			if (!sees(a.plan.span, p, j)) continue;
			met(a.g, x[j]);
			top = larger(top, x[j]);
		}
		top = reduce_block(top, -infinity(), Top());
		for (int j = threadIdx.x; j <= p; j += blockDim.x) {
			if (sees(a.plan.span, p, j)) sum += x[j] > -infinity() ? expf(x[j] - top) : 0;
		}
		sum = reduce_block(sum, 0.0f, Plus());
		float share = sum > 0 ? 1 / sum : 0;
		for (int j = threadIdx.x; j <= p; j += blockDim.x) {
			if (!sees(a.plan.span, p, j)) continue;
			float e = x[j] > -infinity() ? expf(x[j] - top) * share : 0;
			first[j] = h == 0 ? e : first[j] + e;
		}
		__syncthreads();
	}
	return first;
}

// pick_best writes the best positions of the plan's middle, best first, and returns
// how many they are. x becomes keys where shared memory does not hold them.
__device__ inline int pick_best(const ChooseArgs& a, float* x, i32* index, u64* ranks, u64* shared, int p, i64 want) {
	u32* keys = (i64)(p + 1) * 4 <= a.room ? (u32*)shared : (u32*)x;
	for (int j = threadIdx.x; j <= p; j += blockDim.x) {
		u32 key = 0;
		if (between(a.plan, p, j)) {
			met(a.g, x[j]);
			key = key_of(x[j]);
		}
		keys[j] = key > KEY_LOWEST ? key : 0;
	}
	if (want <= 0) return 0;
	__syncthreads();
	Cut<u32> cut = select<u32, u32>(p + 1, (u64)want, [&](i64 j, u32& key) {
		key = keys[j];
		return (u32)(key > 0);
	});
	int n = compact(keys, p + 1, cut, [&](int to, int j, u32 key) { ranks[to] = (u64)key << 32 | (u32)~(u32)j; });
	__syncthreads();
	int whole = 1;
	while (whole < n) whole *= 2;
	u64* sorted = (i64)whole * 8 <= a.room ? shared : ranks;
	for (int i = threadIdx.x; i < whole; i += blockDim.x) sorted[i] = i < n ? ranks[i] : 0;
	sort_down(sorted, whole);
	for (int i = threadIdx.x; i < n; i += blockDim.x) index[i] = (i32)~(u32)sorted[i];
	__syncthreads();
	return n;
}

// choose makes, copies or clears the entry of set blockIdx.x of slot blockIdx.y,
// and counts.
KERNEL(choose, ChooseArgs, 256) {
	DYNAMIC(u64, shared);
	int set = blockIdx.x, slot = blockIdx.y, p = newest(a.g, slot), number, n;
	if (p < 0) return;
	if (p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	origin(a.m, slot, p, number);
	i64 item = slot * a.m.sets + set, k = k_of(a.m, p + 1);
	i32* rec = record(a.m, slot, set, number);
	u32* tally = a.m.tally + item * 4;
	int found = a.m.found[item];
	if (smaller(k, (i64)p + 1) > a.m.most && threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.m.most, 0, 0);
	if (found >= 0) {
		if (threadIdx.x > 0) return;
		tally[0]++;
		rec[0] = a.m.chain ? p + 1 : 0;
		rec[1] = a.m.chain ? found : 0;
		rec[2] = 0;
		return;
	}
	float* x = weigh(a, slot, set, p);
	i32* index = chosen(a.m, slot, set, number, n);
	n = pick_best(a, x, index, a.work + item * a.places, shared, p, smaller(k, a.m.most));
	bool middle = a.m.sets == a.m.heads;
	u64 scored = 0;
	for (int j = threadIdx.x; j <= p; j += blockDim.x)
		scored += sees(a.plan.span, p, j) && (!middle || (j >= a.plan.sink && j < recent_of(a.plan, p)));
	scored = reduce_block(scored, (u64)0, Plus());
	if (threadIdx.x > 0) return;
	tally[0]++;
	tally[1]++;
	u64 sum = (tally[2] | (u64)tally[3] << 32) + scored;
	tally[2] = (u32)sum;
	tally[3] = (u32)(sum >> 32);
	rec[0] = p + 1;
	rec[1] = number;
	rec[2] = n;
}

struct ReuseArgs {
	i32 *index, *count;  // [slots, sets, cap], [slots, sets]
	u64* marks;          // [slots, sets, pages]
	i64 cap;
	Memo m;
	i64 best;
	f64 best_share;
	i64 near, slid;
	Pages g;
	Plan plan;
};

// set_bits marks positions lo to hi-1 as far as they exist.
__device__ inline void set_bits(u64* marks, int p, int lo, int hi) {
	for (int j = larger(lo, 0); j < hi && j < (p / PAGE + 1) * PAGE; j++) atomicOr((unsigned long long*)&marks[j / PAGE], 1ull << j % PAGE);
}

// reuse lists what set blockIdx.x of slot blockIdx.y reads.
KERNEL(reuse, ReuseArgs, 256) {
	int set = blockIdx.x, slot = blockIdx.y, p = newest(a.g, slot), number, n;
	if (p < 0) return;
	i64 item = slot * a.m.sets + set;
	u64* marks = a.marks + item * a.g.width;
	for (int w = threadIdx.x; w <= p / PAGE; w += blockDim.x) marks[w] = 0;
	__syncthreads();
	int found = a.m.found[item];
	origin(a.m, slot, p, number);
	const i32* list = chosen(a.m, slot, set, found < 0 ? number : found, n);
	i64 best = 0;
	int own = 0;
	if (found >= 0) {
		own = record(a.m, slot, set, found)[0] - 1;
		i64 k = k_of(a.m, own + 1);
		best = a.best_share > 0 ? (i64)floor(a.best_share * (double)k + 1e-9) : a.best;
	}
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		int near = i < best ? (int)a.near : 0;
		set_bits(marks, p, list[i] - near, list[i] + near + 1);
	}
	if (found >= 0 && a.slid && threadIdx.x == 0) set_bits(marks, p, recent_of(a.plan, own), recent_of(a.plan, p));
	__syncthreads();
	for (int w = threadIdx.x; w <= p / PAGE; w += blockDim.x) {
		u64 keep = 0;
		for (u64 bits = marks[w]; bits; bits &= bits - 1) {
			int j = w * PAGE + __ffsll((long long)bits) - 1;
			if (j >= a.plan.sink && j < recent_of(a.plan, p) && sees(a.plan.span, p, j)) keep |= bits & (~bits + 1);
		}
		marks[w] = keep;
	}
	__syncthreads();
	list_marked(marks, p / PAGE + 1, a.index + item * a.cap, a.count[item], a.cap, a.g.failure);
}
