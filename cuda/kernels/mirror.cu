// Low-bit copies of keys, by which positions are ranked (device.KeyMirror, device.MirrorScores).
// Words of a page are [words, PAGE], so that a warp reads a word of 32 keys at once and a thread
// has a key of its own: no reductions. Any head dimension; mirror_decode.cu has kernels on tensor
// cores for two. Reference implementation: package cpu.
#include "mirror.cuh"

struct KeyMirrorArgs {
	u32* mirror;  // [pages, kvheads, words+1, PAGE]
	i64 words, bits, block;
	PagedKV g;  // g.rows: rows that were just appended to each slot
};

// key_mirror (summarize) rotates and rounds the key of a new row. Grid: (row, kv head, slot). Bound
// by the latency of its steps.
KERNEL(key_mirror, KeyMirrorArgs, 64) {
	DYNAMIC_SHARED(float, x);  // [dim]
	int slot = blockIdx.z, first = first_position(a.g, slot), dim = (int)a.g.dim;
	if (first < 0) return;
	int p = first + (int)blockIdx.x, page = page_of(a.g, slot, p / PAGE), head = blockIdx.y;
	if (page < 0) return;
	i64 from = kv_offset(a.g, page, head, p % PAGE);
	for (int i = threadIdx.x; i < dim; i += blockDim.x) x[i] = load_kv(a.g.k, a.g.half, from + i);
	rotate_block(x, dim, (int)a.block);
	int offset = 1 << (a.bits - 1), each = 32 / (int)a.bits;
	MirrorScale s = mirror_scale(x, dim, (float)(offset - 1));
	u32* to = a.mirror + ((i64)page * a.g.heads + head) * (a.words + 1) * PAGE + p % PAGE;
	for (int w = threadIdx.x; w <= a.words; w += blockDim.x) {
		u32 word = w < a.words ? 0 : __float_as_uint(s.scale);
		for (int e = 0; e < each && w < a.words; e++) word |= (u32)(mirror_int(x[w * each + e], s) + offset) << (8 * (e % 4) + 4 * (e / 4));
		to[w * PAGE] = word;
	}
}

// mirror_scores (score): dst = (n·scale of the key)·(scale of the query·unit), n the product of
// integers; -Inf outside the region. Grid: (part, kv head, row), part i taking every gridDim.x-th
// four pages, a thread for each key. Bound by reading the copies once.
KERNEL(mirror_scores, MirrorScoresArgs, 256) {
	DYNAMIC_SHARED(float, x);
	RowPosition at = row_position(a.g, blockIdx.z);
	if (at.p < 0) return;
	if (at.p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
		return;
	}
	int group = (int)(a.heads / a.g.heads);
	i64 item = blockIdx.z * a.heads + blockIdx.y * group;
	auto has = [&](int j) { return a.selected ? in_selected_region(a.plan, at.p, j) : sees(a.plan.span, at.p, j); };
	auto put = [&](int u, int j, float score) { a.dst[(item + u) * a.width + j] = score; };
	score_mirror(a.keys, a.g, at.slot, at.p, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x, a.q + item * a.g.dim, group, x, has, put);
}
