// What the kernels of the selection cache share; see selection_cache.cu.
#pragma once

#include "mirror.cuh"
#include "newest.cuh"
#include "radix_select.cuh"

constexpr int REUSE_THREADS = 256;

struct SelectionCache {
	float* query;      // [slots, heads·block, dim]: queries of the block of steps
	i32* entry;        // [slots, head_groups·block, 3]
	i32* index;        // [slots, head_groups·block, max_selected]
	const i32* since;  // [slots]: entries of earlier positions do not count
	i32* found;        // [slots, head_groups]: the entry that is reused, or -1
	u32* counters;     // [slots, head_groups, 4]: steps, selections, and positions scored as 64 bits
	i64 heads, head_groups, block, max_selected, relative, chain;
	f64 min_cosine;
	i64 k;
	f64 share;
};

// selection_budget is how many of n positions are selected.
__device__ inline i64 selection_budget(const SelectionCache& m, i64 n) { return m.share > 0 ? (i64)floor(m.share * (double)n + 1e-9) : m.k; }

// block_origin is where the block of steps of position p starts; number is the step of p in it.
__device__ inline int block_origin(const SelectionCache& m, int slot, int p, int& number) {
	int from = m.relative ? min_of(m.since[slot], p) : 0;
	number = (p - from) % (int)m.block;
	return p - number;
}

// entry_record is entry e of a head group: position + 1, the entry whose selection it uses, and
// how many positions it selected itself.
__device__ inline i32* entry_record(const SelectionCache& m, int slot, int head_group, int e) { return m.entry + ((slot * m.head_groups + head_group) * m.block + e) * 3; }

// entry_selection is the positions that entry e of a head group selected, those that get neighbors
// first.
__device__ inline i32* entry_selection(const SelectionCache& m, int slot, int head_group, int e) { return m.index + ((slot * m.head_groups + head_group) * m.block + e) * m.max_selected; }

// VisibleRange is positions lo to hi-1 without those of [gap, over).
struct VisibleRange {
	int lo, hi, gap, over;

	__device__ __forceinline__ bool contains(int j) const { return j >= lo && j < hi && outside_gap(j); }

	// outside_gap is contains for positions that are in [lo, hi).
	__device__ __forceinline__ bool outside_gap(int j) const { return j < gap || j >= over; }

	// shows is whether it has any of positions from to until-1, has_all whether it has them all.
	__device__ __forceinline__ bool shows(int from, int until) const { return max_of(from, lo) < min_of(until, hi) && !(from >= gap && until <= over); }
	__device__ __forceinline__ bool has_all(int from, int until) const { return from >= lo && until <= hi && (until <= gap || from >= over); }

	__device__ inline int count() const {
		int hole = min_of(over, hi) - max_of(gap, lo);
		return max_of(hi - lo, 0) - (hi > lo ? max_of(hole, 0) : 0);
	}
};

// visible_range is what a span shows the row at p.
__device__ inline VisibleRange visible_range(const Span& s, int p) {
	VisibleRange v = {s.back ? max_of(p + 1 - (int)s.back, 0) : 0, p + 1, (int)s.sink, bound_of(s, p)};
	return v;
}

// selectable_range is the part of it between the plan's sinks and its window.
__device__ inline VisibleRange selectable_range(const Plan& plan, int p) {
	VisibleRange v = visible_range(plan.span, p);
	v.lo = max_of(v.lo, (int)plan.sink);
	v.hi = min_of(v.hi, recent_of(plan, p));
	return v;
}

// range_bits is word w of the bitmap of positions lo to hi-1.
__device__ inline u64 range_bits(int w, int lo, int hi) {
	int from = min_of(max_of(lo - w * PAGE, 0), PAGE), to = min_of(max_of(hi - w * PAGE, 0), PAGE);
	if (from >= to) return 0;
	return (to == PAGE ? ~0ull : (1ull << to) - 1) & ~((1ull << from) - 1);
}

struct ReuseArgs {
	i32 *index, *count;  // [slots, head_groups, cap], [slots, head_groups]
	i64 cap;
	SelectionCache cache;
	float* scores;           // [slots, heads, width]
	const float *cos_q, *q;  // [slots, heads, dim]: what cosines compare, and what keys are scored with
	float* softmax;          // [slots, heads, parts, 3]: HeadSoftmax of each part of the past, of groups of several heads
	i64 width, parts;
	i64 widened;
	f64 widened_share;
	i64 neighbors, keep_slid;
	MirrorKeys mirror;  // of a mirror that is NULL: the keys of the cache
	i64 part, nested;   // of reuse_rank: elements of a block, at most; there is a NestedScratch
	i64 early;          // of reuse_selection: what earlier steps stored and selected is complete before pdl_wait
	PagedKV g;
	Plan plan;
};

// CacheStep is a slot's step in its block of steps.
struct CacheStep {
	int slot, p, start, number;  // start: position of the first step of the block
	int since;
};

__device__ inline CacheStep cache_step(const SelectionCache& m, int slot, int p) {
	CacheStep t;
	t.slot = slot;
	t.p = p;
	t.start = block_origin(m, slot, p, t.number);
	t.since = m.since[slot];
	return t;
}

constexpr int COSINE_LANES = 8;  // that share a cosine

// cosine of two vectors, by COSINE_LANES neighbouring lanes; -Inf if one is zero, so that it never
// reuses. All lanes of the warp call it.
__device__ inline double cosine(const float* a, const float* b, int dim) {
	double ab = 0, aa = 0, bb = 0;
#pragma unroll 16
	for (int i = lane() % COSINE_LANES; i < dim; i += COSINE_LANES) {
		double x = a[i], y = b[i];
		ab += x * y;
		aa += x * x;
		bb += y * y;
	}
#pragma unroll
	for (int m = COSINE_LANES / 2; m > 0; m /= 2) {
		ab += __shfl_xor_sync(FULL_MASK, ab, m);
		aa += __shfl_xor_sync(FULL_MASK, aa, m);
		bb += __shfl_xor_sync(FULL_MASK, bb, m);
	}
	return aa == 0 || bb == 0 ? -(double)infinity() : min_of(ab / sqrt(aa * bb), 1.0);
}

// find_entries makes found[i], in shared memory, the entry whose selection head group first+i reuses,
// or -1: of the newest step all of whose queries are similar. q [groups·heads of a group, dim] is the
// step's queries and records [groups, number, 3] the entries, both in shared memory. COSINE_LANES
// lanes take an entry of a group, from the newest down, a warp several. All threads call it.
__device__ inline void find_entries(const ReuseArgs& a, const CacheStep& t, int first, int groups, const float* q, const i32* records, int* found) {
	constexpr int EACH = WARP / COSINE_LANES;
	int dim = (int)a.g.dim, heads = (int)(a.cache.heads / a.cache.head_groups), tasks = groups * t.number;
	for (int i = threadIdx.x; i < groups; i += blockDim.x) found[i] = -1;
	__syncthreads();
	for (int base = warp() * EACH; base < tasks; base += (int)blockDim.x / WARP * EACH) {
		int task = base + lane() / COSINE_LANES, i = task % groups, e = max_of(t.number - 1 - task / groups, 0), at = records[(i * t.number + e) * 3] - 1;
		int best = __shfl_sync(FULL_MASK, *(volatile int*)&found[i], lane() / COSINE_LANES * COSINE_LANES);  // other warps change it
		bool compares = task < tasks && at == t.start + e && at >= t.since && best <= e;
		if (!__any_sync(FULL_MASK, compares)) continue;
		double similarity = (double)infinity();
#pragma unroll 2
		for (int h = i * heads; h < (i + 1) * heads; h++) {
			const float* earlier = a.cache.query + ((t.slot * a.cache.heads + first * heads + h) * a.cache.block + (compares ? e : 0)) * dim;
			similarity = min_of(similarity, cosine(q + h * dim, earlier, compares ? dim : 0));
		}
		if (lane() % COSINE_LANES == 0 && compares && similarity > a.cache.min_cosine) atomicMax(&found[i], e);
	}
	__syncthreads();
	for (int i = threadIdx.x; i < groups; i += blockDim.x) {
		if (found[i] >= 0) found[i] = records[(i * t.number + found[i]) * 3 + 1];
	}
	__syncthreads();
}

// record_selection makes the entry of a step that has selected n of the positions scored. One
// thread calls it.
__device__ inline void record_selection(const ReuseArgs& a, int slot, int head_group, int p, int number, int n, const VisibleRange& scored) {
	i32* rec = entry_record(a.cache, slot, head_group, number);
	rec[0] = p + 1;
	rec[1] = number;
	rec[2] = n;
	u32* counters = a.cache.counters + (slot * a.cache.head_groups + head_group) * 4;
	atomicAdd(&counters[0], 1u);  // red: no result is waited for
	atomicAdd(&counters[1], 1u);
	atomicAdd((unsigned long long*)(counters + 2), (unsigned long long)scored.count());
}

// set_existing sets bits lo to hi-1, those of positions up to the row's page.
__device__ inline void set_existing(u64* marks, int p, int lo, int hi) {
	for (int j = max_of(lo, 0); j < hi && j < (p / PAGE + 1) * PAGE; j++) set_bit(marks, j);
}

// mark_reused sets the bits of what a head group reads that reuses an entry of records [number, 3].
__device__ inline void mark_reused(const ReuseArgs& a, const CacheStep& t, int head_group, const i32* records, const VisibleRange& selectable, int found, u64* marks) {
	int own = records[3 * found] - 1, n = min_of(max_of(records[3 * found + 2], 0), (int)a.cache.max_selected);
	const i32* list = entry_selection(a.cache, t.slot, head_group, found);
	i64 k = selection_budget(a.cache, own + 1), best = a.widened_share > 0 ? (i64)floor(a.widened_share * (double)k + 1e-9) : a.widened;
	constexpr int IN_FLIGHT = 8;
	for (int first = threadIdx.x; first < n; first += IN_FLIGHT * blockDim.x) {
		i32 at[IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) at[i] = list[min_of(first + i * (int)blockDim.x, n - 1)];
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			int j = first + i * blockDim.x, neighbors = j < best ? (int)a.neighbors : 0;
			if (j < n) set_existing(marks, t.p, at[i] - neighbors, at[i] + neighbors + 1);
		}
	}
	__syncthreads();
	int slid = a.keep_slid ? recent_of(a.plan, own) : 0, until = a.keep_slid ? recent_of(a.plan, t.p) : 0;
	for (int w = threadIdx.x; w <= t.p / PAGE; w += blockDim.x) {
		u64 in = range_bits(w, selectable.lo, selectable.hi) & ~range_bits(w, selectable.gap, selectable.over);
		marks[w] = (marks[w] | range_bits(w, slid, until)) & in;
	}
}

// record_reuse makes the entry of a step that reuses another one. One thread calls it.
__device__ inline void record_reuse(const ReuseArgs& a, const CacheStep& t, int head_group, int found) {
	i32* rec = entry_record(a.cache, t.slot, head_group, t.number);
	atomicAdd(&a.cache.counters[(t.slot * a.cache.head_groups + head_group) * 4], 1u);  // red: no result is waited for
	rec[0] = a.cache.chain ? t.p + 1 : 0;
	rec[1] = a.cache.chain ? found : 0;
	rec[2] = 0;
}

// check_budget reports a selection that an entry has no room for. One thread calls it.
__device__ inline void check_budget(const ReuseArgs& a, int p) {
	if (min_of(selection_budget(a.cache, p + 1), (i64)p + 1) > a.cache.max_selected) fail(a.g.failure, FAIL_LIST, a.cache.max_selected, 0, 0);
}

// HeadSoftmax is the softmax of some scores of a head.
struct HeadSoftmax {
	float max, sum, best;  // best: the largest score in the selectable range

	__device__ __forceinline__ void add(float s, bool selectable) {
		if (!(s > -infinity())) return;
		float e = expf(-fabsf(s - max));
		sum = s > max ? sum * e + 1 : sum + e;
		max = max_of(max, s);
		if (selectable) best = max_of(best, s);
	}

	// add_all is add for scores of the selectable range.
	template <int N>
	__device__ __forceinline__ void add_all(const float (&s)[N]) {
		float top = max;
		bool odd = false;
#pragma unroll
		for (int i = 0; i < N; i++) {
			top = s[i] > top ? s[i] : top;
			odd |= s[i] != s[i];
		}
		if (odd || !(top > -infinity()) || top == infinity()) {
			for (int i = 0; i < N; i++) add(s[i], true);
			return;
		}
		float more = 0;
#pragma unroll
		for (int i = 0; i < N; i++) more += exp2_ftz((s[i] - top) * LOG2_E);
		sum = sum * exp2_ftz((max - top) * LOG2_E) + more;
		max = top;
		best = max_of(best, top);
	}

	__device__ __forceinline__ void merge(HeadSoftmax o) {
		best = max_of(best, o.best);
		if (!(o.sum > 0)) return;
		float top = max_of(max, o.max);
		sum = (sum > 0 ? sum * expf(max - top) : 0) + o.sum * expf(o.max - top);
		max = top;
	}

	// merge_lane merges that of the lane whose number differs in the bits by. All lanes call it.
	__device__ __forceinline__ void merge_lane(int by) {
		HeadSoftmax o = {__shfl_xor_sync(FULL_MASK, max, by), __shfl_xor_sync(FULL_MASK, sum, by), __shfl_xor_sync(FULL_MASK, best, by)};
		merge(o);
	}
};

__device__ __forceinline__ HeadSoftmax empty_softmax() {
	HeadSoftmax s = {-infinity(), 0, -infinity()};
	return s;
}
