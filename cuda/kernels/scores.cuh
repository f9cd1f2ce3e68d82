// Products of queries with a run of keys of one kv head, which each key is read once
// for. A block takes CHUNK positions.
#pragma once

#include "few.cuh"
#include "newest.cuh"

constexpr int CHUNK = 256;   // positions of a block
constexpr int TOGETHER = 4;  // heads that take a key at a time

// Keys are those of positions lo to lo+n-1 of a slot, lo a multiple of CHUNK.
struct Keys {
	int slot, kv_head, lo, n;
};

// score_halves gives put(u, i, product of query u and key i) for keys that some(i)
// asks for, and put of anything for others. Neighbouring lanes take 16 bytes each of a
// key, and a warp loads TURNS times before it computes. q is [heads, DIM].
template <int DIM, int HEADS, class Some, class Put>
__device__ inline void score_halves(const Pages& g, Keys keys, const float* q, int heads, Some some, Put put) {
	constexpr int PIECES = DIM / 8, EACH_TURN = WARP / PIECES, TURNS = 8;
	int piece = lane() % PIECES;
	float mine[HEADS][8];
#pragma unroll
	for (int u = 0; u < HEADS; u++) {
#pragma unroll
		for (int d = 0; d < 8; d++) mine[u][d] = u < heads ? q[u * DIM + piece * 8 + d] : 0;
	}
	for (int from = warp() * EACH_TURN * TURNS; from < keys.n; from += (int)blockDim.x / WARP * EACH_TURN * TURNS) {
		int page = g.table[(i64)keys.slot * g.width + (keys.lo + from) / PAGE];
		const u16* at = (const u16*)g.k + element_of(g, page, keys.kv_head, (keys.lo + from) % PAGE) + piece * 8;
		Word4 raw[TURNS];
#pragma unroll
		for (int t = 0; t < TURNS; t++) {
			int key = t * EACH_TURN + lane() / PIECES;
			raw[t] = Word4{{0, 0, 0, 0}};
			if (from + key < keys.n && some(from + key)) raw[t] = load16(at + key * DIM);
		}
#pragma unroll
		for (int t = 0; t < TURNS; t++) {
			int i = from + t * EACH_TURN + lane() / PIECES;
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
				for (int m = PIECES / 2; m > 0; m /= 2) sum[0] += __shfl_xor_sync(ALL, sum[0], m);
				if (piece == 0 && i < keys.n) put(0, i, sum[0]);
			} else {
				// Half of the lanes go on with two heads each, and then with one.
				static_assert(HEADS == 4, "four heads, or one");
				bool second = lane() & PIECES / 2, odd = lane() & PIECES / 4;
				float low = second ? sum[2] : sum[0], high = second ? sum[3] : sum[1];
				low += __shfl_xor_sync(ALL, second ? sum[0] : sum[2], PIECES / 2);
				high += __shfl_xor_sync(ALL, second ? sum[1] : sum[3], PIECES / 2);
				float one = odd ? high : low;
				one += __shfl_xor_sync(ALL, odd ? low : high, PIECES / 4);
#pragma unroll
				for (int m = PIECES / 8; m > 0; m /= 2) one += __shfl_xor_sync(ALL, one, m);
				int u = (second ? 2 : 0) + (odd ? 1 : 0);
				if (lane() % (PIECES / 4) == 0 && u < heads && i < keys.n) put(u, i, one);
			}
		}
	}
}

// score_keys is score_halves of any cache, up to TOGETHER heads.
template <class Some, class Put>
__device__ inline void score_keys(const Pages& g, Keys keys, const float* q, int heads, Some some, Put put) {
	int dim = (int)g.dim;
	if (g.half && dim == 128) {
		if (heads == 1)
			score_halves<128, 1>(g, keys, q, heads, some, put);
		else
			score_halves<128, TOGETHER>(g, keys, q, heads, some, put);
		return;
	}
	if (g.half && dim == 64) {
		if (heads == 1)
			score_halves<64, 1>(g, keys, q, heads, some, put);
		else
			score_halves<64, TOGETHER>(g, keys, q, heads, some, put);
		return;
	}
	for (int i = warp(); i < keys.n; i += (int)blockDim.x / WARP) {
		if (!some(i)) continue;
		i64 from = key_at(g, keys.slot, keys.kv_head, keys.lo + i);
		float sum[TOGETHER] = {0, 0, 0, 0};
		for (int d = lane(); d < dim; d += WARP) {
			float k = load(g.k, g.half, from + d);
#pragma unroll
			for (int u = 0; u < TOGETHER; u++) sum[u] += u < heads ? q[u * dim + d] * k : 0;
		}
#pragma unroll
		for (int u = 0; u < TOGETHER; u++) {
			float all = reduce_warp(sum[u], Plus());
			if (lane() == 0 && u < heads) put(u, i, all);
		}
	}
}
