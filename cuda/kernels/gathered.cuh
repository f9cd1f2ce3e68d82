// Attention of a head that shares its keys with no other over gathered positions:
// DIM/8 lanes have a position together, each 8 numbers of its key and of its value.
#pragma once

#include "dequant.cuh"
#include "state.cuh"

constexpr int GATHER_TURNS = 2;   // positions of a warp's part that are copied together
constexpr int GATHER_STAGES = 2;  // of a warp's ring of them

// Gathered is what a warp copies together. What a lane copies it reads back itself, so that
// nobody waits.
struct Gathered {
	Word4 k[GATHER_TURNS][WARP], v[GATHER_TURNS][WARP];
};

// Gatherer is what a lane has of its head.
template <int DIM>
struct Gatherer {
	static constexpr int PIECES = DIM / 8, ROWS = WARP / PIECES, TAKEN = ROWS * GATHER_TURNS;

	Word4 k[GATHER_TURNS], v[GATHER_TURNS];
	float q[8], acc[8];
	SoftmaxState state;

	// ask takes the head's query.
	__device__ __forceinline__ void ask(const float* query) {
		float unit = 1.4426950408889634f / sqrtf((float)DIM);
		query += lane() % PIECES * 8;
#pragma unroll
		for (int d = 0; d < 8; d++) {
			q[d] = query[d] * unit;
			acc[d] = 0;
		}
		state = {EMPTY_MAX, 0};
	}

	// take empties a place of the ring.
	__device__ __forceinline__ void take(const Gathered& g) {
#pragma unroll
		for (int t = 0; t < GATHER_TURNS; t++) {
			k[t] = g.k[t][lane()];
			v[t] = g.v[t][lane()];
		}
	}

	// add adds what was taken; bias(t) is log2 of what the lane's position weighs, -infinity
	// for none, or in a mixture the weight.
	template <class Bias>
	__device__ __forceinline__ void add(bool mixture, Bias bias) {
		float s[GATHER_TURNS], top = state.max;
#pragma unroll
		for (int t = 0; t < GATHER_TURNS; t++) {
			float b = bias(t), sum = 0;
#pragma unroll
			for (int w = 0; w < 4; w++) sum += q[2 * w] * from_half((u16)k[t].w[w]) + q[2 * w + 1] * from_half((u16)(k[t].w[w] >> 16));
#pragma unroll
			for (int m = PIECES / 2; m > 0; m /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, m);
			s[t] = b == -infinity() || mixture ? b : sum + b;
			top = max_of(top, s[t]);
		}
		if (!mixture) {
			float scale = rescale(state.max, top);
			state.max = top;
			state.sum *= scale;
#pragma unroll
			for (int d = 0; d < 8; d++) acc[d] *= scale;
		}
#pragma unroll
		for (int t = 0; t < GATHER_TURNS; t++) {
			float p = mixture ? s[t] : exp2f(s[t] - top);
			state.sum += p;
#pragma unroll
			for (int w = 0; w < 4; w++) {
				acc[2 * w] += p * from_half((u16)v[t].w[w]);
				acc[2 * w + 1] += p * from_half((u16)(v[t].w[w] >> 16));
			}
		}
	}

	// merge stores what the lanes of a block of WARPS warps added up, in their order: accs is
	// [WARPS·ROWS, DIM], states [WARPS·ROWS]. All threads call it.
	template <int WARPS>
	__device__ __forceinline__ void merge(float* dst, float* accs, SoftmaxState* states, bool mixture) {
		constexpr int GROUPS = WARPS * ROWS;
		int group = warp() * ROWS + lane() / PIECES;
#pragma unroll
		for (int d = 0; d < 8; d++) accs[group * DIM + lane() % PIECES * 8 + d] = acc[d];
		if (lane() % PIECES == 0) states[group] = state;
		__syncthreads();
		if (threadIdx.x >= DIM) return;
		float top = EMPTY_MAX, total = 0, y = 0;
		for (int i = 0; i < GROUPS; i++) top = max_of(top, states[i].max);
		for (int i = 0; i < GROUPS; i++) {
			float scale = rescale(states[i].max, top);
			total += states[i].sum * scale;
			y += accs[i * DIM + threadIdx.x] * scale;
		}
		dst[threadIdx.x] = y * normalizer(total, mixture);
	}
};
