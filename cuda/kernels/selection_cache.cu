// The selection cache: a decode step reuses what an earlier step of its block of steps selected,
// when its query is similar, as in CIS (CPE). For head group s and the step at position p:
//
//	reuse   the newest step e of the block of p with min_{h in group} cos(q_p, q_e) > min_cosine
//	        has a selection: read that, widened by neighbours of its best entries and by what
//	        has slid out of the window since
//	select  otherwise: the k best positions of the selected region by q·k/√dim, a group of
//	        several heads by ln Σ_h softmax_h; store them with the query for later steps
//
// reuse_selection looks, in every block of a kv head, for steps that its head groups reuse, which
// costs little, and scores a part of its keys for those that found none, each key once. A second
// launch, reuse_rank (reuse_rank.cu), selects for the groups that were scored. reuse_attend.cu is both
// and the attention in one launch, where there are heads enough. Bound by reading the keys where a
// group selects, by latency where all reuse.
// Reference implementation: package cpu.
#include "keys.cuh"
#include "selection_cache.cuh"

// ReuseBlock is what a block of reuse_selection works with: the head groups of a kv head.
struct ReuseBlock {
	CacheStep step;
	int first, groups, group_heads;  // the first of its head groups, their number, and the heads of one
	float* q;                        // [groups·group_heads, dim]
	i32* records;                    // [groups, number, 3]
	int* found;                      // [groups]: the entry that is reused, or -1

	__device__ __forceinline__ int heads() const { return groups * group_heads; }
	__device__ __forceinline__ bool selects(int head) const { return found[head / group_heads] < 0; }
};

// load_entries loads what find_entries looks through, and stores the queries of the step.
__device__ inline void load_entries(const ReuseArgs& a, const ReuseBlock& b, bool store) {
	int dim = (int)a.g.dim, n = 3 * b.step.number;
	i64 head = b.step.slot * a.cache.heads + b.first * b.group_heads;
	for (int i = threadIdx.x; i < b.groups * n; i += blockDim.x) b.records[i] = entry_record(a.cache, b.step.slot, b.first + i / n, 0)[i % n];
	for (int i = threadIdx.x; i < b.heads() * dim; i += blockDim.x) {
		float x = a.cos_q[head * dim + i];
		b.q[i] = x;
		if (store) a.cache.query[((head + i / dim) * a.cache.block + b.step.number) * dim + i % dim] = x;
	}
	__syncthreads();
}

// list_reused lists what head group first+i reads, which reuses an entry, and makes the step's.
// marks is [p/PAGE+1].
__device__ inline void list_reused(const ReuseArgs& a, const ReuseBlock& b, int i, const VisibleRange& selectable, u64* marks) {
	int p = b.step.p, group = b.first + i;
	i64 item = b.step.slot * a.cache.head_groups + group;
	for (int w = threadIdx.x; w <= p / PAGE; w += blockDim.x) marks[w] = 0;
	__syncthreads();
	mark_reused(a, b.step, group, b.records + 3 * i * b.step.number, selectable, b.found[i], marks);
	if (threadIdx.x == 0) record_reuse(a, b.step, group, b.found[i]);
	__syncthreads();
	bitmap_to_list(marks, p / PAGE + 1, a.index + item * a.cap, a.count[item], a.cap, a.g.failure);
	__syncthreads();
}

// store_softmax stores the softmax of a part of the past of a head of the kv head.
__device__ __forceinline__ void store_softmax(const ReuseArgs& a, const ReuseBlock& b, int head, HeadSoftmax s) {
	float* to = a.softmax + ((b.step.slot * a.cache.heads + b.first * b.group_heads + head) * a.parts + blockIdx.x) * 3;
	to[0] = s.max;
	to[1] = s.sum;
	to[2] = s.best;
}

// score_part computes x = q·k/√dim [heads, width] of the block's pages for the heads that select, over
// an f16 cache, and the softmax of each.
template <int DIM>
__device__ __forceinline__ void score_part(const ReuseArgs& a, const ReuseBlock& b, const VisibleRange& scored, const VisibleRange& selectable, KeyPair<DIM>* ring, float* x) {
	SHARED(HeadSoftmax, parts, KEY_WARPS * 8);
	int p = b.step.p, head = lane() / 4, kv_head = blockIdx.y;
	bool valid = head < b.heads() && b.selects(head);
	i64 item = b.step.slot * a.cache.heads + b.first * b.group_heads + (head < b.heads() ? head : 0);
	HeadSoftmax sum = empty_softmax();
	bool several = b.group_heads > 1;
	auto page = [&](int i) { return scored.shows(i * PAGE, (i + 1) * PAGE) ? a.g.table[(i64)b.step.slot * a.g.width + i] : -1; };
	auto put = [&](int i, float (&s)[EIGHTS][2]) {
		if (!valid) return;
#pragma unroll
		for (int n = 0; n < EIGHTS; n++) {
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int at = i * PAGE + n * 8 + lane() % 4 * 2 + j;
				if (!scored.contains(at)) continue;
				x[head * a.width + at] = s[n][j];
				count_nan(a.g, s[n][j]);
				if (several) sum.add(s[n][j], selectable.contains(at));
			}
		}
	};
	score_pages<DIM>(a.g, ring + warp() * KEY_STAGES, kv_head, a.q + item * DIM, valid, 1 / sqrtf((float)DIM), warp_pages(p / PAGE + 1), p / PAGE, false, page, put);
	if (!several) return;
	sum.merge_lane(1);
	sum.merge_lane(2);
	if (lane() % 4 == 0) parts[warp() * 8 + head] = sum;
	__syncthreads();
	if ((int)threadIdx.x >= b.heads() || !b.selects(threadIdx.x)) return;
	HeadSoftmax all = empty_softmax();
	for (int w = 0; w < KEY_WARPS; w++) all.merge(parts[w * 8 + threadIdx.x]);
	store_softmax(a, b, threadIdx.x, all);
}

// Positions lo to hi-1 of a block.
struct PartRange {
	int lo, hi;
};

__device__ __forceinline__ PartRange part_range(int p) {
	int pages = p / PAGE + 1, parts = gridDim.x, part = blockIdx.x;
	PartRange r = {(int)((i64)pages * part / parts) * PAGE, min_of((int)((i64)pages * (part + 1) / parts) * PAGE, p + 1)};
	return r;
}

// score_part_scalar computes scores as score_part does, of any cache and any number of heads, one warp
// for a position.
__device__ inline void score_part_scalar(const ReuseArgs& a, const ReuseBlock& b, const VisibleRange& scored, float* x) {
	PartRange r = part_range(b.step.p);
	int dim = (int)a.g.dim;
	float unit = 1 / sqrtf((float)dim);
	const float* q = a.q + (b.step.slot * a.cache.heads + b.first * b.group_heads) * dim;
	for (int j = r.lo + warp(); j < r.hi; j += (int)blockDim.x / WARP) {
		if (!scored.contains(j)) continue;
		i64 from = key_offset(a.g, b.step.slot, blockIdx.y, j);
		for (int h = 0; h < b.heads(); h++) {
			if (!b.selects(h)) continue;
			float sum = 0;
			for (int d = lane(); d < dim; d += WARP) sum += q[h * dim + d] * load_kv(a.g.k, a.g.half, from + d);
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) x[h * a.width + j] = sum * unit;
		}
	}
	__syncthreads();
}

// sum_part counts the NaN among the scores of the block's part and makes the softmax of each head.
__device__ inline void sum_part(const ReuseArgs& a, const ReuseBlock& b, const VisibleRange& scored, const VisibleRange& selectable, const float* x) {
	SHARED(HeadSoftmax, parts, WARP);
	constexpr int IN_FLIGHT = 8;
	PartRange r = part_range(b.step.p);
	for (int h = 0; h < b.heads(); h++) {
		if (!b.selects(h)) continue;
		HeadSoftmax sum = empty_softmax();
		for (int first = r.lo + threadIdx.x; first < r.hi; first += IN_FLIGHT * blockDim.x) {
			float v[IN_FLIGHT];
#pragma unroll
			for (int i = 0; i < IN_FLIGHT; i++) v[i] = ld_cg(x + h * a.width + min_of(first + i * (int)blockDim.x, r.hi - 1));
#pragma unroll
			for (int i = 0; i < IN_FLIGHT; i++) {
				int j = first + i * blockDim.x;
				if (j >= r.hi || !scored.contains(j)) continue;
				count_nan(a.g, v[i]);
				if (b.group_heads > 1) sum.add(v[i], selectable.contains(j));
			}
		}
		if (b.group_heads == 1) continue;
		for (int by = 1; by < WARP; by *= 2) sum.merge_lane(by);
		__syncthreads();
		if (lane() == 0) parts[warp()] = sum;
		__syncthreads();
		if (threadIdx.x > 0) continue;
		for (int w = 1; w < (int)blockDim.x / WARP; w++) sum.merge(parts[w]);
		store_softmax(a, b, h, sum);
	}
}

// reuse (select) finds what the head groups of kv head blockIdx.y of slot blockIdx.z reuse, and scores
// part blockIdx.x of its pages for the others. Shared memory: the pipeline of keys (keys.cuh), which
// overlays a bitmap of what a group reads; the queries; the entries.
template <int DIM>
__device__ __forceinline__ void reuse(const ReuseArgs& a) {
	DYNAMIC_SHARED(unsigned char, shared);
	pdl_trigger();
	ReuseBlock b;
	int part = blockIdx.x, slot = blockIdx.z, p = first_position(a.g, slot);
	bool good = p >= 0 && page_table_valid(a.g, slot, p);
	pdl_wait();
	if (!good) return;
	if (p >= a.width) {
		if (threadIdx.x == 0 && part == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	b.step = cache_step(a.cache, slot, p);
	b.groups = (int)(a.cache.head_groups / a.g.heads);
	b.group_heads = (int)(a.cache.heads / a.cache.head_groups);
	b.first = (int)blockIdx.y * b.groups;
	b.q = (float*)(shared + max_of((i64)(DIM > 0 ? KEY_WARPS * KEY_STAGES * sizeof(KeyPair<(DIM > 0 ? DIM : 64)>) : 0), 8 * a.g.width));
	b.found = (int*)(b.q + b.heads() * a.g.dim);
	b.records = b.found + b.groups;
	load_entries(a, b, part == 0);
	find_entries(a, b.step, b.first, b.groups, b.q, b.records, b.found);
	VisibleRange selectable = selectable_range(a.plan, p);
	if (part == 0 && threadIdx.x == 0) check_budget(a, p);
	bool select = false;
	for (int i = 0; i < b.groups; i++) {
		if (part == 0 && threadIdx.x == 0) a.cache.found[slot * a.cache.head_groups + b.first + i] = b.found[i];
		select |= b.found[i] < 0;
		if (b.found[i] >= 0 && i % (int)gridDim.x == part) list_reused(a, b, i, selectable, (u64*)shared);
	}
	if (!select) return;
	VisibleRange scored = b.group_heads == 1 ? selectable : visible_range(a.plan.span, p);
	float* x = a.scores + (slot * a.cache.heads + b.first * b.group_heads) * a.width;
	if constexpr (DIM > 0) {
		score_part<DIM>(a, b, scored, selectable, (KeyPair<DIM>*)shared, x);
	} else {
		if (!a.scored) score_part_scalar(a, b, scored, x);
		sum_part(a, b, scored, selectable, x);
	}
}

// reuse_selection is for any cache, and for scores of low-bit keys. Grid of all: (part, kv head, slot).
KERNEL_2_PER_SM(reuse_selection, ReuseArgs, REUSE_THREADS) { reuse<0>(a); }
KERNEL_2_PER_SM(reuse_selection_64, ReuseArgs, REUSE_THREADS) { reuse<64>(a); }
KERNEL_2_PER_SM(reuse_selection_128, ReuseArgs, REUSE_THREADS) { reuse<128>(a); }
