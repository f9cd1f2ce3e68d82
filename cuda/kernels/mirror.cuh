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

struct MirrorScoresArgs {
	float* dst;         // [rows, heads, width], or [rows, kvheads, width]
	const float* q;     // [rows, heads, dim]
	const u32* mirror;  // [pages, kvheads, words+1, PAGE]
	i64 heads, width, words, bits, block, selected;  // selected: the selected region, else what is visible
	i64 pooled;                                      // mirror_decode: dst has the largest score of the heads of a kv head; NaN does not count
	f64 unit;                                        // 1/(block·√dim)
	PagedKV g;
	Plan plan;
};
