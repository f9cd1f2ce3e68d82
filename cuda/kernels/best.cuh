// The best scores of a row by bins of one width, which is quicker than digit by digit
// where few scores are nearly equal; rank.cuh has the way for any.
#pragma once

#include "rank.cuh"

constexpr int BINS = 2048;
constexpr int CROWD = 32;  // the most scores of a bin that are compared with each other

// Bins divide the scores from top down. Without a width, which scores of one value
// and infinite ones have none of, all are in the first.
struct Bins {
	float top, scale;

	__device__ __forceinline__ int of(float s) const { return scale > 0 ? smaller((int)((top - s) * scale), BINS - 1) : 0; }
};

// Border is the last bin that the wanted scores reach into.
struct Border {
	int bin;
	int above, taken;  // scores of the bins before it, and with its own
	u32 crowd;         // the most of a bin to there
};

// find_border counts the scores of positions lo to hi-1 for which at(j, score) is
// true; all threads of the block call it, with want above 0. A bin of start, [BINS],
// becomes the number of scores in those before it.
template <class At>
__device__ inline Border find_border(int lo, int hi, u32 want, u32* start, Bins& bins, At at) {
	SHARED(int, found, 3);
	for (int i = threadIdx.x; i < BINS; i += blockDim.x) start[i] = 0;
	float top = -infinity(), low = infinity();
	for (int j = lo + threadIdx.x; j < hi; j += blockDim.x) {
		float s;
		if (!at(j, s)) continue;
		top = larger(top, s);
		low = smaller(low, s);
	}
	top = reduce_block(top, -infinity(), Top());
	low = -reduce_block(-low, -infinity(), Top());
	float scale = (BINS - 1) / (top - low);
	bins.top = top;
	bins.scale = scale > 0 && scale < infinity() && top < infinity() ? scale : 0;
	for (int j = lo + threadIdx.x; j < hi; j += blockDim.x) {
		float s;
		if (at(j, s)) atomicAdd(&start[bins.of(s)], 1u);
	}
	__syncthreads();
	Run own = run_of(BINS);
	u32 mine = 0, all, crowd = 0;
	for (i64 i = own.lo; i < own.hi; i++) mine += start[i];
	u32 to = scan_block(mine, all);
	if (threadIdx.x == 0 && all < want) {
		found[0] = BINS - 1;
		found[1] = found[2] = (int)all;
	}
	for (i64 i = own.lo; i < own.hi; i++) {
		u32 n = start[i];
		start[i] = to;
		if (to < want) crowd = larger(crowd, n);
		if (to < want && to + n >= want) {
			found[0] = (int)i;
			found[1] = (int)to;
			found[2] = (int)(to + n);
		}
		to += n;
	}
	crowd = reduce_block(crowd, 0u, Top());
	Border b = {found[0], found[1], found[2], crowd};
	return b;
}

// rank_of orders scores, and equal ones by position; place_of is the position.
__device__ __forceinline__ u64 rank_of(float x, int j) { return (u64)key_of(x) << 32 | (u32)~(u32)j; }
__device__ __forceinline__ int place_of(u64 rank) { return (int)~(u32)rank; }

// mark sets the bit of position j.
__device__ __forceinline__ void mark(u64* marks, int j) { atomicOr((u32*)marks + j / 32, 1u << j % 32); }
