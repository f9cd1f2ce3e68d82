// Low-bit copies of keys, by which positions are ranked (device.KeyMirror, device.MirrorScores).
// Words of a page are [words, PAGE], so that a warp reads a word of 32 keys at once and a thread
// has a key of its own: no reductions. Any head dimension; mirror_decode.cu has kernels on tensor
// cores for two. Reference implementation: package cpu.
#include "mirror.cuh"

constexpr int MIRROR_HEADS = 4;  // query heads that share a load of a key's word

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

// mirror_queries makes queries of 8 bits of up to MIRROR_HEADS heads, a warp for each: words of four
// bytes, then what undoes the offset of the keys' integers; unit is their factors of scores. All
// threads call it; x [heads, dim] is scratch.
__device__ inline void mirror_queries(const MirrorScoresArgs& a, const float* q, int heads, float* x, i32* to, float* unit) {
	int dim = (int)a.g.dim;
	for (int i = threadIdx.x; i < heads * dim; i += blockDim.x) x[i] = q[i];
	rotate_block(x, heads * dim, (int)a.block);
	if (warp() < heads) {
		x += warp() * dim;
		to += warp() * (dim / 4 + 1);
		MirrorScale s = mirror_scale(x, dim, 127);
		int sum = 0;
		for (int w = lane(); w < dim / 4; w += WARP) {
			u32 word = 0;
			for (int b = 0; b < 4; b++) {
				int v = mirror_int(x[4 * w + b], s);
				sum += v;
				word |= (u32)(v & 255) << (8 * b);
			}
			to[w] = (i32)word;
		}
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) {
			to[dim / 4] = -sum * (1 << (a.bits - 1));
			unit[warp()] = s.scale * (float)a.unit;
		}
	}
	__syncthreads();
}

// mirror_products adds to sum the products of up to MIRROR_HEADS queries with the key at k.
template <int BITS>
__device__ __forceinline__ void mirror_products(int sum[MIRROR_HEADS], const u32* k, const i32* q, int row, int words, int heads) {
#pragma unroll 4
	for (int w = 0; w < words; w++) {
		u32 key = k[w * PAGE];
#pragma unroll
		for (int u = 0; u < MIRROR_HEADS; u++) {
			if (u >= heads) break;
			const i32* x = q + u * row;
			if (BITS == 8) {
				sum[u] = dp4a_u8s8(key, (u32)x[w], sum[u]);
			} else {
				sum[u] = dp4a_u8s8(key & 0x0f0f0f0f, (u32)x[2 * w], sum[u]);
				sum[u] = dp4a_u8s8(key >> 4 & 0x0f0f0f0f, (u32)x[2 * w + 1], sum[u]);
			}
		}
	}
}

// mirror_scores (score): dst = (n·scale of the key)·(scale of the query·unit), n the product of
// integers; -Inf outside the region. Grid: (part, kv head, row), part i taking every gridDim.x-th
// four pages, a thread for each key. Bound by reading the copies once.
KERNEL(mirror_scores, MirrorScoresArgs, 256) {
	DYNAMIC_SHARED(float, x);  // [MIRROR_HEADS, dim], then their queries: [MIRROR_HEADS, dim/4+1]
	SHARED(float, unit, MIRROR_HEADS);
	RowPosition at = row_position(a.g, blockIdx.z);
	if (at.p < 0) return;
	if (at.p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
		return;
	}
	int dim = (int)a.g.dim, group = (int)(a.heads / a.g.heads), row = dim / 4 + 1, words = (int)a.words;
	i32* q = (i32*)(x + MIRROR_HEADS * dim);
	for (int h = 0; h < group; h += MIRROR_HEADS) {
		int heads = min_of(MIRROR_HEADS, group - h);
		i64 item = blockIdx.z * a.heads + blockIdx.y * group + h;
		mirror_queries(a, a.q + item * dim, heads, x, q, unit);
		for (int j = blockIdx.x * blockDim.x + threadIdx.x; j <= at.p; j += gridDim.x * blockDim.x) {
			bool in = a.selected ? in_selected_region(a.plan, at.p, j) : sees(a.plan.span, at.p, j);
			int page = in ? page_of(a.g, at.slot, j / PAGE) : -1, sum[MIRROR_HEADS];
			float scale = 0;
			if (page >= 0) {
				const u32* k = a.mirror + ((i64)page * a.g.heads + blockIdx.y) * (words + 1) * PAGE + j % PAGE;
				for (int u = 0; u < MIRROR_HEADS; u++) sum[u] = u < heads ? q[u * row + dim / 4] : 0;
				if (a.bits == 8)
					mirror_products<8>(sum, k, q, row, words, heads);
				else
					mirror_products<4>(sum, k, q, row, words, heads);
				scale = __uint_as_float(k[words * PAGE]);
			}
			for (int u = 0; u < heads; u++) a.dst[(item + u) * a.width + j] = page >= 0 ? (float)sum[u] * scale * unit[u] : -infinity();
		}
		__syncthreads();
	}
}
