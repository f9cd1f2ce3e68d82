// The second half of a selection of the selection cache: see selection_cache.cu.
#include "cluster_nested.cuh"
#include "scores.cuh"
#include "selection_cache.cuh"
#include "state.cuh"

// RankedScores are the keys of a head group's selectable range, element 0 being its first position.
// A group of several heads is ranked by log2 Σ_h softmax_h up to a constant: the sum itself would be 0
// in f32 for positions far below another position, often the row's own.
struct RankedScores {
	const float* x;  // [group_heads, width], from the range's first position on
	i64 width;
	int group_heads;
	const float* log;  // [group_heads]: what is added to a head's scores in base 2 to get the logarithm of its softmax, -Inf where there is none
	VisibleRange range;

	// pooled makes x[n] what elements i[n] are ranked by: loads of all are in flight together.
	template <int N>
	__device__ __forceinline__ void pooled(float (&y)[N], const int (&i)[N]) const {
		float sum[N];
#pragma unroll
		for (int n = 0; n < N; n++) {
			y[n] = EMPTY_MAX;
			sum[n] = 0;
		}
		for (int first = 0; first < group_heads; first += HEADS_PER_PASS) {
			float v[N][HEADS_PER_PASS], to_log[HEADS_PER_PASS];
#pragma unroll
			for (int h = 0; h < HEADS_PER_PASS; h++) {
#pragma unroll
				for (int n = 0; n < N; n++) v[n][h] = ld_cg(x + min_of(first + h, group_heads - 1) * width + i[n]);
				to_log[h] = first + h < group_heads ? log[first + h] : -infinity();
			}
#pragma unroll
			for (int n = 0; n < N; n++) {
				float top = y[n];
#pragma unroll
				for (int h = 0; h < HEADS_PER_PASS; h++) {
					v[n][h] = v[n][h] * LOG2_E + to_log[h];
					top = v[n][h] > top ? v[n][h] : top;
				}
				sum[n] *= exp2_ftz(y[n] - top);
#pragma unroll
				for (int h = 0; h < HEADS_PER_PASS; h++) sum[n] += v[n][h] > -infinity() ? exp2_ftz(v[n][h] - top) : 0;
				y[n] = top;
			}
		}
#pragma unroll
		for (int n = 0; n < N; n++) y[n] = sum[n] > 0 ? y[n] + log2f(sum[n]) : EMPTY_MAX;  // finite, so that it can still be selected
	}

	__device__ __forceinline__ float fetch(int i) const {
		if (group_heads == 1) return ld_cg(x + i);
		float y[1];
		const int at[1] = {i};
		pooled(y, at);
		return y[0];
	}
	__device__ __forceinline__ bool has(int i) const { return range.outside_gap(range.lo + i); }
	__device__ __forceinline__ u32 key(int i, float s, bool) const {
		u32 k = radix_key(s);
		return has(i) && k > KEY_NEG_INF ? k : 0;
	}
};

// fetch_run fetches those of several heads some at a time.
__device__ __forceinline__ void fetch_run(const RankedScores& load, float (&x)[KEYS_IN_FLIGHT], int first, int last) {
	constexpr int TOGETHER = 4;
	if (load.group_heads == 1) {
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) x[i] = ld_cg(load.x + min_of(first + i * WARP, last));
		return;
	}
#pragma unroll
	for (int i = 0; i < KEYS_IN_FLIGHT; i += TOGETHER) {
		float y[TOGETHER];
		int at[TOGETHER];
#pragma unroll
		for (int n = 0; n < TOGETHER; n++) at[n] = min_of(first + (i + n) * WARP, last);
		load.pooled(y, at);
#pragma unroll
		for (int n = 0; n < TOGETHER; n++) x[i + n] = y[n];
	}
}

using RankedPart = ListPart<RankedScores>;

// group_softmax merges the softmax of the parts of each head of a group. log is [2·group_heads] in
// shared memory, the first half as in RankedScores, up to a constant. All threads of the block call it.
__device__ inline void group_softmax(const ReuseArgs& a, i64 head, int group_heads, float* log) {
	float* best = log + group_heads;
	for (int h = warp(); h < group_heads; h += (int)blockDim.x / WARP) {
		HeadSoftmax all = empty_softmax();
		for (int i = lane(); i < a.parts; i += WARP) {
			const float* from = a.softmax + ((head + h) * a.parts + i) * 3;
			HeadSoftmax part = {ld_cg(from), ld_cg(from + 1), ld_cg(from + 2)};
			all.merge(part);
		}
		for (int by = 1; by < WARP; by *= 2) all.merge_lane(by);
		if (lane() == 0) {
			log[h] = all.sum > 0 ? -(all.max + logf(all.sum)) : -infinity();
			best[h] = all.best + log[h];
		}
	}
	__syncthreads();
	float shift = -infinity();
	for (int h = 0; h < group_heads; h++) shift = max_of(shift, best[h]);
	__syncthreads();
	for (int h = threadIdx.x; h < group_heads; h += blockDim.x) log[h] = (log[h] - (shift > -infinity() ? shift : 0)) * LOG2_E;
	__syncthreads();
}

// load_cg is ld_cg of an integer.
__device__ __forceinline__ i32 load_cg(const i32* at) { return (i32)__float_as_uint(ld_cg((const float*)at)); }

// list_reused lists what a head group reads that reuses an entry: each block of the cluster its part of
// the selectable range. It returns how many positions that is.
__device__ inline u32 list_reused(const ReuseArgs& a, const ClusterBlock& c, ClusterScratch& s, const CacheStep& t, int head_group, int found, const VisibleRange& selectable, const RankedPart& part, i32* list) {
	const i32* rec = entry_record(a.cache, t.slot, head_group, found);
	int own = load_cg(rec) - 1, n = min_of(max_of(load_cg(rec + 2), 0), (int)a.cache.max_selected);
	int lo = selectable.lo + part.lo, hi = selectable.lo + part.hi;
	for (int w = threadIdx.x; w * WARP < part.hi - part.lo; w += blockDim.x) part.bits[w] = 0;
	__syncthreads();
	auto set = [&](int from, int until) {
		for (int j = max_of(from, lo); j < min_of(until, hi); j++) {
			if (selectable.outside_gap(j)) mark(part, (u32)(j - lo));
		}
	};
	const i32* index = entry_selection(a.cache, t.slot, head_group, found);
	i64 k = selection_budget(a.cache, own + 1), best = a.widened_share > 0 ? (i64)floor(a.widened_share * (double)k + 1e-9) : a.widened;
	constexpr int IN_FLIGHT = 8;
	for (int first = threadIdx.x; first < n; first += IN_FLIGHT * blockDim.x) {
		i32 at[IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) at[i] = load_cg(index + min_of(first + i * (int)blockDim.x, n - 1));
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			int j = first + i * blockDim.x, neighbors = j < best ? (int)a.neighbors : 0;
			if (j < n) set(at[i] - neighbors, at[i] + neighbors + 1);
		}
	}
	if (a.keep_slid && warp() == 0) {
		int slid = recent_of(a.plan, own), until = recent_of(a.plan, t.p);
		for (int j = slid + lane(); j < until; j += WARP) set(j, j + 1);
	}
	__syncthreads();
	u32 before[1] = {0}, all[1];
	for (int w = part.from / WARP + lane(); w * WARP < part.until; w += WARP) before[0] += __popc(part.bits[w]);
	before[0] = warp_add(before[0]);
	sum_before(c, s.counts[0], s.warps, before, all);
	Selected selected = {before[0], all[0]};
	cluster_put(part, selected, [&](int i, i64 to) {
		if (to < a.cap) list[to] = selectable.lo + i;
	});
	return all[0];
}

// select_one is cluster_select for what a pass for two selections does not settle: a function of its
// own, so that the kernel stays short.
__device__ NOINLINE Selected select_one(ClusterBlock c, ClusterScratch* s, RankedPart part, u32 want, int bitmap) {
	return cluster_select<false>(c, *s, part, [](u32, u32) { return (u64)1; }, [&](u64) { return (u64)want; }, bitmap);
}

// select_anew lists the best positions of a head group's selectable range, and stores them in the step's
// entry. It returns how many they are. nested is NULL where there is no room for it; lists are the lists of
// the block's warps.
__device__ inline u32 select_anew(const ReuseArgs& a, const ClusterBlock& c, ClusterScratch& s, NestedScratch* nested, u32* lists, const CacheStep& t, int head_group, int base, const RankedPart& part, i32* list) {
	i64 budget = selection_budget(a.cache, t.p + 1), k = min_of(budget, a.cache.max_selected);
	i64 best = min_of(a.widened_share > 0 ? (i64)floor(a.widened_share * (double)budget + 1e-9) : a.widened, k);
	if (k <= 0) return 0;
	RankedPart inner = part;
	inner.bits += part_words(a.part);
	bool both = best > 0 && best < k && a.neighbors > 0, settled[CUTS] = {false, false};
	Selected selected[CUTS] = {select_none(), select_none()};
	if (nested && both && k < part.n) {
		u32* const bits[CUTS] = {part.bits, inner.bits};
		const u32 wants[CUTS] = {(u32)k, (u32)best};
		select_nested(c, s, *nested, part, lists, bits, wants, selected, settled);
	}
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		if (settled[w] || (w > 0 && !both)) continue;
		c.sync();  // peers have read what the selection before has counted
		selected[w] = select_one(c, &s, w ? inner : part, (u32)(w ? best : k), w);
	}
	// Those that get neighbors come first in the entry.
	i32* index = entry_selection(a.cache, t.slot, head_group, t.number);
	cluster_put_nested(part, selected[0], inner, selected[1], [&](int i, i64 to, i64 place) {
		if (to < a.cap) list[to] = base + i;
		index[place] = base + i;
	});
	return selected[0].all;
}

// reuse_rank (select) lists what each head group reads: what it reuses, or the best of what
// reuse_selection has scored; and makes the step's entries. Grid: (head group, slot, block of the
// cluster). Bound by the latency of the cluster's barriers, and by reading the scores from L2, of all
// heads of a group, or the positions of an entry. It is no early launch: its blocks would take the first
// places that reuse_selection leaves, two on a multiprocessor, while others idle.
KERNEL_2_PER_SM(reuse_rank, ReuseArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	ClusterScratch& s = *scratch;
	int head_group = blockIdx.x, slot = blockIdx.y, p = first_position(a.g, slot), group_heads = (int)(a.cache.heads / a.cache.head_groups);
	if (p < 0 || p >= a.width) return;  // an invalid page table is a failure of reuse_selection
	i64 item = slot * a.cache.head_groups + head_group;
	int found = load_cg(a.cache.found + item);
	ClusterBlock c = this_block();
	CacheStep t = cache_step(a.cache, slot, p);
	VisibleRange selectable = selectable_range(a.plan, p);
	u32* lists = (u32*)(scratch + 1) + 2 * part_words(a.part);
	float* log = (float*)(lists + blockDim.x / WARP * 2 * (a.nested ? NESTED_LIST : WARP_LIST));
	RankedScores load = {a.scores + (slot * a.cache.heads + head_group * group_heads) * a.width + selectable.lo, a.width, group_heads, log, selectable};
	RankedPart part = list_part(c, s, max_of(selectable.hi - selectable.lo, 0), a.part, load, 0, 2);
	i32* list = a.index + item * a.cap;
	u32 all;
	if (found >= 0) {
		all = list_reused(a, c, s, t, head_group, found, selectable, part, list);
	} else {
		if (group_heads > 1) group_softmax(a, slot * a.cache.heads + head_group * group_heads, group_heads, log);
		all = select_anew(a, c, s, a.nested ? (NestedScratch*)(log + 2 * group_heads) : nullptr, lists, t, head_group, selectable.lo, part, list);
	}
	if (threadIdx.x == 0 && c.rank == 0) {
		if (all > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[item] = (i32)min_of((i64)all, a.cap);
		if (found >= 0)
			record_reuse(a, t, head_group, found);
		else
			record_selection(a, slot, head_group, p, t.number, (int)all, group_heads == 1 ? selectable : visible_range(a.plan.span, p));
	}
	c.sync();  // peers have read the counts
}
