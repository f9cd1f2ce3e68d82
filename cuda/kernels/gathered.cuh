// Attention of one query head over gathered positions on CUDA cores: DIM/8 lanes share a
// position, each with 8 elements (16 bytes) of its key and value.
#pragma once

#include "dequant.cuh"
#include "state.cuh"

constexpr int GATHER_LOADS = 2;   // positions of a lane group per stage
constexpr int GATHER_STAGES = 2;  // of a warp's cp.async pipeline

// Gathered is a stage of the pipeline. A lane reads back only what it has copied itself, so no
// barrier is needed.
struct Gathered {
	Word4 k[GATHER_LOADS][WARP], v[GATHER_LOADS][WARP];
};

// Gatherer is a lane's query, staged keys and values, and accumulator.
template <int DIM>
struct Gatherer {
	static constexpr int PIECES = DIM / 8, ROWS = WARP / PIECES, TAKEN = ROWS * GATHER_LOADS;

	Word4 k[GATHER_LOADS], v[GATHER_LOADS];
	float q[8], acc[8];
	SoftmaxState state;

	// load_query loads the lane's part of the query.
	__device__ __forceinline__ void load_query(const float* query) {
		float unit = 1.4426950408889634f / sqrtf((float)DIM);
		query += lane() % PIECES * 8;
#pragma unroll
		for (int d = 0; d < 8; d++) {
			q[d] = query[d] * unit;
			acc[d] = 0;
		}
		state = {EMPTY_MAX, 0};
	}

	// load_stage moves a stage to registers, so that it can be refilled.
	__device__ __forceinline__ void load_stage(const Gathered& g) {
#pragma unroll
		for (int t = 0; t < GATHER_LOADS; t++) {
			k[t] = g.k[t][lane()];
			v[t] = g.v[t][lane()];
		}
	}

	// add adds the positions of load_stage to the online softmax; bias(t) is log2 of the weight of
	// the lane's position, -inf for none, or in a mixture the weight itself.
	template <class Bias>
	__device__ __forceinline__ void add(bool mixture, Bias bias) {
		float s[GATHER_LOADS], top = state.max;
#pragma unroll
		for (int t = 0; t < GATHER_LOADS; t++) {
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
		for (int t = 0; t < GATHER_LOADS; t++) {
			float p = mixture ? s[t] : exp2f(s[t] - top);
			state.sum += p;
#pragma unroll
			for (int w = 0; w < 4; w++) {
				acc[2 * w] += p * from_half((u16)v[t].w[w]);
				acc[2 * w + 1] += p * from_half((u16)(v[t].w[w] >> 16));
			}
		}
	}

	// merge merges the lane groups of a block of WARPS warps in their order and stores the result:
	// accs is [WARPS·ROWS, DIM], states [WARPS·ROWS], both in shared memory. All threads call it.
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
