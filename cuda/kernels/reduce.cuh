// Sums and maxima over a warp and over a block. The order of a sum depends on
// nothing but the number of threads.
#pragma once

#include "gpu.cuh"

struct Plus {
	template <class T>
	__device__ T operator()(T a, T b) const { return a + b; }
};

struct Max {
	template <class T>
	__device__ T operator()(T a, T b) const { return max_of(a, b); }
};

template <class T, class Op>
__device__ __forceinline__ T reduce_warp(T v, Op op) {
	for (int m = WARP / 2; m > 0; m /= 2) v = op(v, __shfl_xor_sync(FULL_MASK, v, m));
	return v;
}

// reduce_block gives every thread of a block the result. All must call it; zero
// changes nothing under op.
template <class T, class Op>
__device__ __forceinline__ T reduce_block(T v, T zero, Op op) {
	SHARED(T, parts, 33);
	v = reduce_warp(v, op);
	__syncthreads();  // parts may still be in use by the last call
	if (lane() == 0) parts[warp()] = v;
	__syncthreads();
	if (warp() == 0) {
		T part = lane() < (int)blockDim.x / WARP ? parts[lane()] : zero;
		part = reduce_warp(part, op);
		if (lane() == 0) parts[32] = part;
	}
	__syncthreads();
	return parts[32];
}

// scan_block is the sum of v over the threads before, and in total over all.
template <class T>
__device__ __forceinline__ T scan_block(T v, T& total) {
	SHARED(T, parts, 32);
	T sum = v;
	for (int by = 1; by < WARP; by *= 2) {
		T left = __shfl_up_sync(FULL_MASK, sum, by);
		if (lane() >= by) sum += left;
	}
	__syncthreads();  // parts may still be in use by the last call
	if (lane() == WARP - 1) parts[warp()] = sum;
	__syncthreads();
	int warps = (int)blockDim.x / WARP;
	T upto = lane() < warps ? parts[lane()] : 0;  // of a warp, and then of all to there
	for (int by = 1; by < warps; by *= 2) {
		T left = __shfl_up_sync(FULL_MASK, upto, by);
		if (lane() >= by) upto += left;
	}
	total = __shfl_sync(FULL_MASK, upto, warps - 1);
	T before = __shfl_sync(FULL_MASK, upto, max_of(warp() - 1, 0));
	return (warp() == 0 ? 0 : before) + sum - v;
}
