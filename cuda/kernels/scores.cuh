// Scores q·k of the query heads of a group with a run of keys of one kv head, on CUDA cores:
// each key is loaded once for all heads. A block takes CHUNK positions.
#pragma once

#include "dequant.cuh"
#include "newest.cuh"

constexpr int CHUNK = 256;   // positions per block
constexpr int HEADS_PER_PASS = 4;  // query heads that share a load of a key

// Keys is the range of positions lo to lo+n-1 of a slot, lo a multiple of CHUNK.
struct Keys {
	int slot, kv_head, lo, n;
};

// score_f16 calls put(u, i, q_u·k_i) for those of n keys that some(i) asks for, and put with an
// undefined value for others. where(i) is the offset of a key. DIM/8 neighbouring lanes load
// 16 bytes each of a key, and a warp has LOADS such loads in flight. q is [heads, DIM].
template <int DIM, int HEADS, class Some, class Where, class Put>
__device__ inline void score_f16(const PagedKV& g, int n, const float* q, int heads, Some some, Where where, Put put) {
	constexpr int PIECES = DIM / 8, KEYS_PER_LOAD = WARP / PIECES, LOADS = 8;
	int piece = lane() % PIECES;
	float mine[HEADS][8];
#pragma unroll
	for (int u = 0; u < HEADS; u++) {
#pragma unroll
		for (int d = 0; d < 8; d++) mine[u][d] = u < heads ? q[u * DIM + piece * 8 + d] : 0;
	}
	for (int from = warp() * KEYS_PER_LOAD * LOADS; from < n; from += (int)blockDim.x / WARP * KEYS_PER_LOAD * LOADS) {
		Word4 raw[LOADS];
#pragma unroll
		for (int t = 0; t < LOADS; t++) {
			int i = from + t * KEYS_PER_LOAD + lane() / PIECES;
			raw[t] = Word4{{0, 0, 0, 0}};
			if (i < n && some(i)) raw[t] = load16((const u16*)g.k + where(i) + piece * 8);
		}
#pragma unroll
		for (int t = 0; t < LOADS; t++) {
			int i = from + t * KEYS_PER_LOAD + lane() / PIECES;
			float sum[HEADS];
#pragma unroll
			for (int u = 0; u < HEADS; u++) sum[u] = 0;
#pragma unroll
			for (int w = 0; w < 4; w++) {
				float even = from_half((u16)raw[t].w[w]), odd = from_half((u16)(raw[t].w[w] >> 16));
#pragma unroll
				for (int u = 0; u < HEADS; u++) sum[u] += mine[u][2 * w] * even + mine[u][2 * w + 1] * odd;
			}
			if constexpr (HEADS == 1) {
#pragma unroll
				for (int m = PIECES / 2; m > 0; m /= 2) sum[0] += __shfl_xor_sync(FULL_MASK, sum[0], m);
				if (piece == 0 && i < n) put(0, i, sum[0]);
			} else {
				// Butterfly reduction of four sums at once: each step halves the heads of a lane.
				static_assert(HEADS == 4, "four heads, or one");
				bool second = lane() & PIECES / 2, odd = lane() & PIECES / 4;
				float low = second ? sum[2] : sum[0], high = second ? sum[3] : sum[1];
				low += __shfl_xor_sync(FULL_MASK, second ? sum[0] : sum[2], PIECES / 2);
				high += __shfl_xor_sync(FULL_MASK, second ? sum[1] : sum[3], PIECES / 2);
				float one = odd ? high : low;
				one += __shfl_xor_sync(FULL_MASK, odd ? low : high, PIECES / 4);
#pragma unroll
				for (int m = PIECES / 8; m > 0; m /= 2) one += __shfl_xor_sync(FULL_MASK, one, m);
				int u = (second ? 2 : 0) + (odd ? 1 : 0);
				if (lane() % (PIECES / 4) == 0 && u < heads && i < n) put(u, i, one);
			}
		}
	}
}

// score_any is score_f16 for any cache type and dimension, up to HEADS_PER_PASS heads.
template <class Some, class Where, class Put>
__device__ inline void score_any(const PagedKV& g, int n, const float* q, int heads, Some some, Where where, Put put) {
	int dim = (int)g.dim;
	if (g.half && dim == 128) {
		if (heads == 1)
			score_f16<128, 1>(g, n, q, heads, some, where, put);
		else
			score_f16<128, HEADS_PER_PASS>(g, n, q, heads, some, where, put);
		return;
	}
	if (g.half && dim == 64) {
		if (heads == 1)
			score_f16<64, 1>(g, n, q, heads, some, where, put);
		else
			score_f16<64, HEADS_PER_PASS>(g, n, q, heads, some, where, put);
		return;
	}
	for (int i = warp(); i < n; i += (int)blockDim.x / WARP) {
		if (!some(i)) continue;
		i64 from = where(i);
		float sum[HEADS_PER_PASS] = {0, 0, 0, 0};
		for (int d = lane(); d < dim; d += WARP) {
			float k = load_kv(g.k, g.half, from + d);
#pragma unroll
			for (int u = 0; u < HEADS_PER_PASS; u++) sum[u] += u < heads ? q[u * dim + d] * k : 0;
		}
#pragma unroll
		for (int u = 0; u < HEADS_PER_PASS; u++) {
			float all = reduce_warp(sum[u], Plus());
			if (lane() == 0 && u < heads) put(u, i, all);
		}
	}
}

// score_keys is score_any for consecutive positions.
template <class Some, class Put>
__device__ inline void score_keys(const PagedKV& g, Keys keys, const float* q, int heads, Some some, Put put) {
	score_any(g, keys.n, q, heads, some, [&](int i) { return key_offset(g, keys.slot, keys.kv_head, keys.lo + i); }, put);
}
