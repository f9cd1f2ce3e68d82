// The best scores of a row by bins of one width, which is quicker than digit by digit
// where few scores are nearly equal; rank.cuh has the way for any.
#pragma once

#include "dequant.cuh"
#include "rank.cuh"

constexpr int BINS = 2048;
constexpr int CROWD = 32;  // the most scores of a bin that are compared with each other

// Bins divide the scores from top down. Without a width, which scores of one value
// and infinite ones have none of, all are in the first.
struct Bins {
	float top, scale;

	__device__ __forceinline__ int of(float s) const { return scale > 0 ? min_of((int)((top - s) * scale), BINS - 1) : 0; }
};

// Border is the last bin that the wanted scores reach into.
struct Border {
	int bin;
	int above, taken;  // scores of the bins before it, and with its own
	bool crowded;      // a bin to there has more than CROWD
};

// each_score calls take(js, scores, there) for positions lo to hi-1, SCORES of a thread at
// a time, with what at(j, score) says of them: so that none waits for the one before.
template <int SCORES, class RowPosition, class Take>
__device__ __forceinline__ void each_score(int lo, int hi, RowPosition at, Take take) {
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

// find_border counts the scores of positions lo to hi-1 for which at(j, score) is
// true; all threads of the block, THREADS or with 0 any number, call it with want above 0,
// and take SCORES at a time. A bin of start, [BINS], on 16 bytes where THREADS are known,
// becomes the number of scores in those before it.
template <int THREADS, int SCORES, class RowPosition>
__device__ inline Border find_border(int lo, int hi, u32 want, u32* start, Bins& bins, RowPosition at) {
	SHARED(int, found, 4);
	for (int i = threadIdx.x; i < BINS; i += blockDim.x) start[i] = 0;
	if (threadIdx.x == 0) found[3] = 0;
	float top = -infinity(), low = infinity();
	each_score<SCORES>(lo, hi, at, [&](const int* j, const float* s, const bool* there) {
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
	each_score<SCORES>(lo, hi, at, [&](const int* j, const float* s, const bool* there) {
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			if (there[i]) atomicAdd(&start[bins.of(s[i])], 1u);
		}
	});
	__syncthreads();
	Run own = run_of(BINS);
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
		if (to < want && n > CROWD) found[3] = 1;
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
	Border b = {found[0], found[1], found[2], found[3] > 0};
	return b;
}

// rank_of orders scores, and equal ones by position; place_of is the position.
__device__ __forceinline__ u64 rank_of(float x, int j) { return (u64)key_of(x) << 32 | (u32)~(u32)j; }
__device__ __forceinline__ int place_of(u64 rank) { return (int)~(u32)rank; }

// mark sets the bit of position j.
__device__ __forceinline__ void mark(u64* marks, int j) { atomicOr((u32*)marks + j / 32, 1u << j % 32); }
