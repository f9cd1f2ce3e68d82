// Top-k by one histogram of BINS bins of equal width between the smallest and the largest score:
// two passes instead of radix select's four, where few scores are nearly equal. Callers fall back
// to radix_select.cuh where a bin has too many.
#pragma once

#include "dequant.cuh"
#include "radix_select.cuh"

constexpr int BINS = 2048;
constexpr int MAX_BIN_TIES = 32;  // scores of a bin that are ranked by comparing all pairs

// LinearBins maps scores to bins, the largest to bin 0. Scale 0 puts all into bin 0: scores that
// are all equal, or infinite.
struct LinearBins {
	float top, scale;

	__device__ __forceinline__ int of(float s) const { return scale > 0 ? min_of((int)((top - s) * scale), BINS - 1) : 0; }
};

// CutBin is the bin that holds the want-th best score.
struct CutBin {
	int bin;
	int above, taken;  // scores in the bins above it, and with its own
	bool overfull;     // a bin down to it has more than MAX_BIN_TIES
};

// for_each_score calls take(positions, scores, valid) with SCORES positions of [lo, hi) of a
// thread at a time, unrolled, so that their loads are in flight together. at(j, score) sets the
// score and says whether position j takes part.
template <int SCORES, class ScoreAt, class Take>
__device__ __forceinline__ void for_each_score(int lo, int hi, ScoreAt at, Take take) {
	for (int first = lo + threadIdx.x; first < hi; first += SCORES * blockDim.x) {
		int j[SCORES];
		float s[SCORES];
		bool there[SCORES];
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			j[i] = first + i * blockDim.x;
			there[i] = j[i] < hi && at(j[i], s[i]);
		}
		take(j, s, there);
	}
}

// find_cut_bin builds the histogram of [lo, hi) and finds the bin where the count reaches want,
// which is above 0. start, [BINS] in shared memory, becomes the exclusive scan of the histogram.
// THREADS is the size of the block, or 0 for any; where it is given, start is aligned to 16
// bytes. All threads call it.
template <int THREADS, int SCORES, class ScoreAt>
__device__ inline CutBin find_cut_bin(int lo, int hi, u32 want, u32* start, LinearBins& bins, ScoreAt at) {
	SHARED(int, found, 4);
	for (int i = threadIdx.x; i < BINS; i += blockDim.x) start[i] = 0;
	if (threadIdx.x == 0) found[3] = 0;
	float top = -infinity(), low = infinity();
	for_each_score<SCORES>(lo, hi, at, [&](const int* j, const float* s, const bool* there) {
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			if (!there[i]) continue;
			top = max_of(top, s[i]);
			low = min_of(low, s[i]);
		}
	});
	top = reduce_block(top, -infinity(), Max());
	low = -reduce_block(-low, -infinity(), Max());
	float scale = (BINS - 1) / (top - low);
	bins.top = top;
	bins.scale = scale > 0 && scale < infinity() && top < infinity() ? scale : 0;
	for_each_score<SCORES>(lo, hi, at, [&](const int* j, const float* s, const bool* there) {
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			if (there[i]) atomicAdd(&start[bins.of(s[i])], 1u);
		}
	});
	__syncthreads();
	ThreadRange own = thread_range(BINS);
	u32 mine = 0, all;
	if constexpr (THREADS > 0) {
		for (i64 i = own.lo; i < own.hi; i += 4) {
			Word4 four = load16(start + i);
			mine += (four.w[0] + four.w[1]) + (four.w[2] + four.w[3]);
		}
	} else {
		for (i64 i = own.lo; i < own.hi; i++) mine += start[i];
	}
	u32 to = scan_block(mine, all);
	if (threadIdx.x == 0 && all < want) {
		found[0] = BINS - 1;
		found[1] = found[2] = (int)all;
	}
	auto before = [&](i64 i, u32 n) {
		if (to < want && n > MAX_BIN_TIES) found[3] = 1;
		if (to < want && to + n >= want) {
			found[0] = (int)i;
			found[1] = (int)to;
			found[2] = (int)(to + n);
		}
		to += n;
		return to - n;
	};
	if constexpr (THREADS > 0) {
		static_assert(BINS / THREADS % 4 == 0, "whole words of 16 bytes");
		for (i64 i = own.lo; i < own.hi; i += 4) {
			Word4 four = load16(start + i);
#pragma unroll
			for (int c = 0; c < 4; c++) four.w[c] = before(i + c, four.w[c]);
			*(Word4*)(start + i) = four;
		}
	} else {
		for (i64 i = own.lo; i < own.hi; i++) start[i] = before(i, start[i]);
	}
	__syncthreads();
	CutBin b = {found[0], found[1], found[2], found[3] > 0};
	return b;
}

// rank_key orders scores, ties to the lowest position; rank_position is its position.
__device__ __forceinline__ u64 rank_key(float x, int j) { return (u64)radix_key(x) << 32 | (u32)~(u32)j; }
__device__ __forceinline__ int rank_position(u64 rank) { return (int)~(u32)rank; }
