// Warp and block reductions. The order of a sum depends on the number of threads only, so
// results are deterministic.
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

// reduce_block gives every thread of the block the result; all threads must call it. zero is
// the identity of op.
template <class T, class Op>
__device__ __forceinline__ T reduce_block(T v, T zero, Op op) {
	SHARED(T, parts, 33);
	v = reduce_warp(v, op);
	__syncthreads();  // the previous call's reads of parts are done
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

// scan_block is the exclusive prefix sum of v over the threads of the block, and in total the
// sum over all of them.
template <class T>
__device__ __forceinline__ T scan_block(T v, T& total) {
	SHARED(T, parts, 32);
	T sum = v;
	for (int by = 1; by < WARP; by *= 2) {
		T left = __shfl_up_sync(FULL_MASK, sum, by);
		if (lane() >= by) sum += left;
	}
	__syncthreads();  // the previous call's reads of parts are done
	if (lane() == WARP - 1) parts[warp()] = sum;
	__syncthreads();
	int warps = (int)blockDim.x / WARP;
	T upto = lane() < warps ? parts[lane()] : 0;  // a warp's sum, then inclusive over warps
	for (int by = 1; by < warps; by *= 2) {
		T left = __shfl_up_sync(FULL_MASK, upto, by);
		if (lane() >= by) upto += left;
	}
	total = __shfl_sync(FULL_MASK, upto, warps - 1);
	T before = __shfl_sync(FULL_MASK, upto, max_of(warp() - 1, 0));
	return (warp() == 0 ? 0 : before) + sum - v;
}

// last_to_finish counts a finished block and reports whether it is the last of n, which then
// sees the writes of all, and resets the counter. A block barrier comes before it. A warm-up
// counts nothing.
__device__ __forceinline__ bool last_to_finish(i32* finished, int n, int* last, bool warmup = false) {
	if (threadIdx.x == 0) {
		// Release what the block has written; acquire what the other blocks have.
		if (warmup) {
			last[0] = 1;
		} else {
			__threadfence();
			last[0] = atomicAdd(finished, 1) == n - 1;
			__threadfence();
			if (last[0]) *finished = 0;
		}
	}
	__syncthreads();
	return last[0];
}
