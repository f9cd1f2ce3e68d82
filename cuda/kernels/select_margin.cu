// Difference-aware selection of single positions for a group of rows, as in AnchorAttention: a
// key is selected if for one of the group's blocks of rows its score comes within a margin of the
// anchor max, the largest score over sinks and window:
//
//	mean over the block of max_anchor(p) - q̄·k_j/√dim ≤ margin,  q̄ the block's mean query
//
// Selections are shared by the group. These kernels take any cache and head dimension;
// select_margin_mma.cu and flash_wgmma.cu have faster ones. Reference implementation: package cpu.
#include "radix_select.cuh"
#include "select_margin.cuh"

// anchor_max (score): the anchor max of row r and head h, max q·k/√dim over the plan's sinks and
// window inside the span, -Inf where there are none. Grid: (row, head), one warp per position.
// Bound by reading the keys of sinks and window once for every row and head.
KERNEL(anchor_max, AnchorMaxArgs, 128) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int dim = (int)a.g.dim, h = blockIdx.y, kv_head = h * (int)a.g.heads / (int)a.heads;
	i64 index = (i64)blockIdx.x * a.heads + h;
	const float* q = a.q + index * dim;
	FixedPages edges = fixed_pages(a.plan, at.p);
	float top = -infinity();
	for (int b = 0; b <= at.p / PAGE; b++) {
		if (b >= edges.head && b < edges.tail) continue;
		int page = page_of(a.g, at.slot, b);
		for (int i = warp(); i < PAGE && page >= 0; i += blockDim.x / WARP) {
			int j = b * PAGE + i;
			if (!sees(a.plan.span, at.p, j) || !in_sinks_or_window(a.plan, at.p, j)) continue;
			i64 from = kv_offset(a.g, page, kv_head, i);
			float sum = 0;
			for (int d = lane(); d < dim; d += WARP) sum += q[d] * load_kv(a.g.k, a.g.half, from + d);
			sum = reduce_warp(sum, Plus());
			if (sum > top) top = sum;
			if (lane() == 0) count_nan(a.g, sum);
		}
	}
	top = reduce_block(top, -infinity(), Max());
	if (threadIdx.x == 0) a.dst[index] = top * (1 / sqrtf((float)dim));
}

struct MeanArgs {
	float* dst;      // [groups, width]
	const float* x;  // [rows, width]
	i64 groups, width, block;
	PagedKV g;
};

// mean_rows (summarize): the mean of the rows of a block of positions, of queries or anchor
// maxima, added up in their order. Grid: (block of rows, z, slot), one thread per element. Bound
// by reading x once.
KERNEL(mean_rows, MeanArgs, 256) {
	int slot = blockIdx.z, first = first_position(a.g, slot), n = (int)a.block;
	if (first < 0) return;
	int rows = (int)a.g.rows, index = first / n + blockIdx.x;
	int lo = max_of(first, index * n), hi = min_of(first + rows, (index + 1) * n);
	if (lo >= hi) return;
	i64 group = slot + blockIdx.x;
	if (group >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, group, a.groups, 0);
		return;
	}
	for (i64 i = blockIdx.y * blockDim.x + threadIdx.x; i < a.width; i += gridDim.y * blockDim.x) {
		float sum = 0;
		for (int p = lo; p < hi; p++) sum += a.x[((i64)slot * rows + p - first) * a.width + i];
		a.dst[group * a.width + i] = sum / (float)(hi - lo);
	}
}

// near (score and select) marks the positions of the selected region that are within the margin of
// a block of the group. Grid: (group · heads + head, z, slot), block z taking every gridDim.y-th
// page; one warp per position, which stops at the first block of rows that selects it.
KERNEL(within_margin, MarginArgs, 256) {
	SHARED(unsigned, marked, 4);
	RowGroup r;
	if (!row_group(a, blockIdx.x / (int)a.heads, r)) return;
	int h = blockIdx.x % (int)a.heads, dim = (int)a.g.dim, kv_head = h * (int)a.g.heads / (int)a.heads;
	int lo = (int)a.plan.sink, hi = min_of(recent_of(a.plan, r.from), r.from + 1);
	float unit = 1 / sqrtf((float)dim);
	u64* marks = a.marks + (r.list + h) * a.words * 2;
	for (int b = blockIdx.y; b < a.words; b += gridDim.y) {
		__syncthreads();
		if (threadIdx.x < 4) marked[threadIdx.x] = 0;
		__syncthreads();
		int page = b * PAGE < hi && (b + 1) * PAGE > lo ? page_of(a.g, r.slot, b) : -1;
		for (int i = warp(); i < PAGE && page >= 0; i += blockDim.x / WARP) {
			int j = b * PAGE + i;
			if (j < lo || j >= hi || !sees(a.plan.span, r.from, j)) continue;
			i64 from = kv_offset(a.g, page, kv_head, i);
			bool within = false;
			for (int u = 0; u < r.blocks && !within; u++) {
				const float* q = a.q + ((i64)(r.block + u) * a.heads + h) * dim;
				float sum = 0;
				for (int d = lane(); d < dim; d += WARP) sum += q[d] * load_kv(a.g.k, a.g.half, from + d);
				sum = reduce_warp(sum, Plus()) * unit;
				if (lane() == 0) count_nan(a.g, sum);
				within = a.top[(i64)(r.block + u) * a.heads + h] - sum <= (float)a.margin;
			}
			if (lane() > 0) continue;
			if (within || j < a.double_before) atomicOr(&marked[i / 32], 1u << i % 32);
			if (within) atomicOr(&marked[2 + i / 32], 1u << i % 32);
		}
		__syncthreads();
		if (threadIdx.x < 2) marks[b * 2 + threadIdx.x] = (u64)marked[threadIdx.x * 2 + 1] << 32 | marked[threadIdx.x * 2];
	}
}

// margin_list (select) lists the marked positions, ascending; with weight 2 those within the margin
// before double_before. Grid: (group · heads + head, 1, slot).
KERNEL(margin_list, MarginArgs, 256) {
	RowGroup r;
	if (!row_group(a, blockIdx.x / (int)a.heads, r)) return;
	i64 list = r.list + blockIdx.x % a.heads;
	const u64* marks = a.marks + list * a.words * 2;
	ThreadRange run = thread_range(a.words);
	u64 mine = 0, total;
	for (i64 w = run.lo; w < run.hi; w++) mine += __popcll(marks[w * 2]);
	u64 to = scan_block(mine, total);
	for (i64 w = run.lo; w < run.hi; w++) {
		for (u64 bits = marks[w * 2]; bits; bits &= bits - 1, to++) {
			if (to >= (u64)a.cap) continue;
			int i = __ffsll((long long)bits) - 1;
			a.index[list * a.cap + to] = (i32)(w * PAGE + i);
			if (a.weight) a.weight[list * a.cap + to] = w * PAGE + i < a.double_before && marks[w * 2 + 1] >> i & 1 ? 2 : 1;
		}
	}
	if (threadIdx.x == 0) {
		if (total > (u64)a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[list] = (i32)min_of(total, (u64)a.cap);
	}
}
