// The second half of a selection of the selection cache: see selection_cache.cu.
#include "cluster_select.cuh"
#include "scores.cuh"
#include "selection_cache.cuh"
#include "state.cuh"

// RankedScores are the keys of a head group's selectable range, element 0 being its first position.
// A group of several heads is ranked by ln Σ_h softmax_h up to a constant: the sum itself would be 0
// in f32 for positions far below another position, often the row's own.
struct RankedScores {
	const float* x;  // [group_heads, width], from the range's first position on
	i64 width;
	int group_heads;
	const float* log;  // [group_heads]: what is added to a head's scores to get the logarithm of its softmax, -Inf where there is none
	VisibleRange range;

	__device__ inline float fetch(int i) const {
		if (group_heads == 1) return ld_cg(x + i);
		float top = EMPTY_MAX, sum = 0;
		for (int first = 0; first < group_heads; first += HEADS_PER_PASS) {
			float v[HEADS_PER_PASS];
#pragma unroll
			for (int h = 0; h < HEADS_PER_PASS; h++) v[h] = ld_cg(x + min_of(first + h, group_heads - 1) * width + i);
#pragma unroll
			for (int h = 0; h < HEADS_PER_PASS; h++) {
				float to_log = first + h < group_heads ? log[first + h] : -infinity();
				float y = v[h] > -infinity() && to_log > -infinity() ? v[h] + to_log : -infinity(), e = expf(-fabsf(y - top));
				sum = y > top ? sum * e + 1 : sum + e;
				top = max_of(top, y);
			}
		}
		return sum > 0 ? top + logf(sum) : EMPTY_MAX;  // finite, so that it can still be selected
	}
	__device__ __forceinline__ u32 key(int i, float s, bool) const {
		u32 k = radix_key(s);
		return range.outside_gap(range.lo + i) && k > KEY_NEG_INF ? k : 0;
	}
};

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
	for (int h = threadIdx.x; h < group_heads; h += blockDim.x) log[h] -= shift > -infinity() ? shift : 0;
	__syncthreads();
}

// reuse_rank (select) selects for the head groups that reuse_selection has scored, lists what they
// select and makes their entries. Grid: (head group, slot, block of the cluster). Bound by the latency
// of the cluster's barriers and by reading the scores from L2, of all heads of a group; by its launch
// where all groups reuse.
KERNEL_2_PER_SM(reuse_rank, ReuseArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	ClusterScratch& s = *scratch;
	int head_group = blockIdx.x, slot = blockIdx.y, p = first_position(a.g, slot), group_heads = (int)(a.cache.heads / a.cache.head_groups), number;
	bool good = p >= 0 && p < a.width && page_table_valid(a.g, slot, p);
	pdl_wait();
	i64 item = slot * a.cache.head_groups + head_group;
	if (!good || (i32)__float_as_uint(ld_cg((const float*)a.cache.found + item)) >= 0) return;
	ClusterBlock c = this_block();
	block_origin(a.cache, slot, p, number);
	VisibleRange selectable = selectable_range(a.plan, p), scored = group_heads == 1 ? selectable : visible_range(a.plan.span, p);
	const float* x = a.scores + (slot * a.cache.heads + head_group * group_heads) * a.width;
	float* log = (float*)((u32*)(scratch + 1) + 2 * part_words(a.part) + blockDim.x / WARP * 2 * WARP_LIST);
	if (group_heads > 1) group_softmax(a, slot * a.cache.heads + head_group * group_heads, group_heads, log);
	RankedScores load = {x + selectable.lo, a.width, group_heads, log, selectable};
	int n = max_of(selectable.hi - selectable.lo, 0);
	ListPart<RankedScores> outer = list_part(c, s, n, a.part, load, 0, 2), inner = list_part(c, s, n, a.part, load, 1, 2);
	i64 budget = selection_budget(a.cache, p + 1), k = min_of(budget, a.cache.max_selected);
	i64 best = min_of(a.widened_share > 0 ? (i64)floor(a.widened_share * (double)budget + 1e-9) : a.widened, k);
	auto one = [](u32, u32) { return (u64)1; };
	Selected selected = select_none(), widened = select_none();
	if (k > 0) selected = cluster_select<false>(c, s, outer, one, [&](u64) { return (u64)k; });
	if (best > 0 && best < k && a.neighbors > 0) {
		c.sync();
		widened = cluster_select<false>(c, s, inner, one, [&](u64) { return (u64)best; }, 1);
	}
	// Those that get neighbors come first in the entry.
	i32 *index = entry_selection(a.cache, slot, head_group, number), *list = a.index + item * a.cap;
	if (k > 0) {
		cluster_put_nested(outer, selected, inner, widened, [&](int i, i64 to, i64 place) {
			if (to < a.cap) list[to] = selectable.lo + i;
			index[place] = selectable.lo + i;
		});
	}
	i64 all = selected.all;
	if (threadIdx.x == 0 && c.rank == 0) {
		if (all > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[item] = (i32)min_of(all, a.cap);
		record_selection(a, slot, head_group, p, number, (int)all, scored);
	}
	c.sync();  // peers have read the counts
}
