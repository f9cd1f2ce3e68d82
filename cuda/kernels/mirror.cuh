// Low-bit copies of keys and queries: how vectors become integers (device.KeyMirror,
// device.MirrorScores). Products of integers are exact and the few operations in f32 have a fixed
// order, so that scores have the bits of the CPU's. Reference implementation: package cpu.
#pragma once

#include "newest.cuh"

// rotate_block is an unnormalized Walsh-Hadamard transform of the blocks of n elements of x
// [length], n a power of two. All threads call it; x is complete on return.
__device__ inline void rotate_block(float* x, int length, int n) {
	for (int h = 1; h < n; h *= 2) {
		__syncthreads();
		for (int i = threadIdx.x; i < length / 2; i += blockDim.x) {
			int lo = i / h * 2 * h + i % h;
			float a = x[lo], b = x[lo + h];
			x[lo] = a + b;
			x[lo + h] = a - b;
		}
	}
	__syncthreads();
}

// MirrorScale is how a vector becomes integers: x is about scale·round(x·factor).
struct MirrorScale {
	float scale, factor;
};

// scale_of_largest finds it for integers up to levels from the largest bits of a magnitude, NaN
// above infinity: NaN and 0 for a vector that is not finite, and twice 0 for one of zeros.
__device__ __forceinline__ MirrorScale scale_of_largest(u32 largest, float levels) {
	float m = __uint_as_float(largest);
	MirrorScale s = {0, 0};
	if (largest >= 0x7f800000) {
		s.scale = __uint_as_float(0x7fc00000);
	} else if (m >= 0x1p-100f) {
		s.scale = m / levels;
		s.factor = levels / m;
	}
	return s;
}

// mirror_scale does it for a vector. All lanes of a warp call it.
__device__ inline MirrorScale mirror_scale(const float* x, int dim, float levels) {
	u32 largest = 0;
	for (int i = lane(); i < dim; i += WARP) largest = max_of(largest, __float_as_uint(x[i]) & 0x7fffffff);
	return scale_of_largest(reduce_warp(largest, Max()), levels);
}

// mirror_int is the integer of x.
__device__ __forceinline__ int mirror_int(float x, MirrorScale s) { return s.factor == 0 ? 0 : (int)rintf(x * s.factor); }

// MirrorKeys are low-bit copies of keys.
struct MirrorKeys {
	const u32* page;         // [pages, kvheads, words+1, PAGE]
	i64 words, bits, block;  // of a key; elements that are rotated together
	f64 unit;                // 1/(block·√dim)

	// of is the words of the first key of a page's head.
	__device__ __forceinline__ const u32* of(const PagedKV& g, int number, int head) const { return page + ((i64)number * g.heads + head) * (words + 1) * PAGE; }
};

struct MirrorScoresArgs {
	float* dst;      // [rows, heads, width], or [rows, kvheads, width]
	const float* q;  // [rows, heads, dim]
	MirrorKeys keys;
	i64 heads, width, selected;  // selected: the selected region, else what is visible
	i64 pooled;                  // mirror_decode: dst has the largest score of the heads of a kv head; NaN does not count
	PagedKV g;
	Plan plan;
};

constexpr int MIRROR_HEADS = 4;  // query heads that share a load of a key's word

// mirror_queries makes queries of 8 bits of up to MIRROR_HEADS heads, a warp for each: words of four
// bytes, then what undoes the offset of the keys' integers; unit is their factors of scores. All
// threads call it; x [heads, dim] is scratch.
__device__ inline void mirror_queries(const MirrorKeys& keys, int dim, const float* q, int heads, float* x, i32* to, float* unit) {
	for (int i = threadIdx.x; i < heads * dim; i += blockDim.x) x[i] = q[i];
	rotate_block(x, heads * dim, (int)keys.block);
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
			to[dim / 4] = -sum * (1 << (keys.bits - 1));
			unit[warp()] = s.scale * (float)keys.unit;
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

// score_mirror calls put(head, j, score) for heads heads of a kv head and the positions first, first+by, …
// up to p of a slot that has(j) wants, a thread for each position, and with -Inf for others. q is their
// queries, x scratch [MIRROR_HEADS, dim] and behind it [MIRROR_HEADS, dim/4+1]. All threads call it.
template <class Has, class Put>
__device__ __forceinline__ void score_mirror(const MirrorKeys& keys, const PagedKV& g, int slot, int p, int first, int by, const float* q, int heads, float* x, Has has, Put put) {
	SHARED(float, unit, MIRROR_HEADS);
	int dim = (int)g.dim, row = dim / 4 + 1, words = (int)keys.words;
	i32* rounded = (i32*)(x + MIRROR_HEADS * dim);
	for (int h = 0; h < heads; h += MIRROR_HEADS) {
		int n = min_of(MIRROR_HEADS, heads - h);
		mirror_queries(keys, dim, q + h * dim, n, x, rounded, unit);
		for (int j = first; j <= p; j += by) {
			int page = has(j) ? page_of(g, slot, j / PAGE) : -1, sum[MIRROR_HEADS];
			float scale = 0;
			if (page >= 0) {
				const u32* k = keys.of(g, page, blockIdx.y) + j % PAGE;
				for (int u = 0; u < MIRROR_HEADS; u++) sum[u] = u < n ? rounded[u * row + dim / 4] : 0;
				if (keys.bits == 8)
					mirror_products<8>(sum, k, rounded, row, words, n);
				else
					mirror_products<4>(sum, k, rounded, row, words, n);
				scale = __uint_as_float(k[words * PAGE]);
			}
			for (int u = 0; u < n; u++) put(h + u, j, page >= 0 ? (float)sum[u] * scale * unit[u] : -infinity());
		}
		__syncthreads();
	}
}
