// Products of queries with a run of keys of one kv head, which each key is read once
// for. A block takes CHUNK positions.
#pragma once

#include "few.cuh"
#include "newest.cuh"

constexpr int CHUNK = 256;   // positions of a block
constexpr int TOGETHER = 4;  // heads that take a key at a time

// Keys are those of positions lo to lo+n-1 of a slot, lo a multiple of PAGE.
struct Keys {
	int slot, kv_head, lo, n;
};

// score_halves gives put(u, i, product of query u and key i) for keys that some(i)
// asks for, with q [heads, DIM] of up to TOGETHER heads. A warp takes 16 keys, which stay
// in the registers that they were loaded into: tensor cores ask four neighbouring lanes
// for numbers of a key, and it does not matter which, as long as they have the same ones
// of the queries. Column 2·u of those is query u rounded to half precision, times a power
// of two that keeps it there, and column 2·u+1 what that left: good to 22 bits.
template <int DIM, class Some, class Put>
__device__ inline void score_halves(const Pages& g, Keys keys, const float* q, int heads, Some some, Put put) {
	constexpr int PIECES = DIM / 32, ROWS = 16;  // pieces of 16 bytes of a key that a lane has
	int column = lane() / 4, piece = lane() % 4 * 8;
	float v[PIECES][8], top = 0;
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
#pragma unroll
		for (int i = 0; i < 8; i++) {
			v[j][i] = column / 2 < heads ? q[column / 2 * DIM + j * 32 + piece + i] : 0;
			top = larger(top, fabsf(v[j][i]));
		}
	}
	top = larger(top, __shfl_xor_sync(ALL, top, 1));
	top = larger(top, __shfl_xor_sync(ALL, top, 2));
	int power = smaller(larger((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased: top becomes 2¹⁰ or more
	float up = __uint_as_float((u32)(254 - power) << 23), down = __uint_as_float((u32)power << 23);
	u32 asked[PIECES][4];
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float x = v[j][2 * i] * up, y = v[j][2 * i + 1] * up;
			u32 both = pack_half(x, y);
			asked[j][i] = column % 2 == 0 ? both : pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16)));
		}
	}
	int head = lane() % 4;  // of the products that the lane gets
	float unit = __shfl_sync(ALL, down, head * 8);
	for (int from = warp() * ROWS; from < keys.n; from += (int)blockDim.x / WARP * ROWS) {
		int row = from + lane() / 4;
		bool low = row < keys.n && some(row), high = row + 8 < keys.n && some(row + 8);
		if (!__any_sync(ALL, low || high)) continue;
		int page = g.table[(i64)keys.slot * g.width + (keys.lo + from) / PAGE];
		const u16* at = (const u16*)g.k + element_of(g, page, keys.kv_head, (keys.lo + row) % PAGE) + piece;
		Word4 raw[2][PIECES];
#pragma unroll
		for (int j = 0; j < PIECES; j++) {
			raw[0][j] = load16(at + j * 32);
			raw[1][j] = load16(at + 8 * DIM + j * 32);
		}
		float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
		for (int j = 0; j < PIECES; j++) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 rows[4] = {raw[0][j].w[2 * i], raw[1][j].w[2 * i], raw[0][j].w[2 * i + 1], raw[1][j].w[2 * i + 1]};
				multiply_add(c[i], rows, &asked[j][2 * i]);
			}
		}
		if (head < heads && low) put(head, row, ((c[0][0] + c[1][0]) + (c[0][1] + c[1][1])) * unit);
		if (head < heads && high) put(head, row + 8, ((c[0][2] + c[1][2]) + (c[0][3] + c[1][3])) * unit);
	}
}

// score_scattered_halves gives put(u, i, product of query u and key i) for those of n keys that
// some(i) asks for, and put of anything for others. where(i) is where a key starts.
// Neighbouring lanes take 16 bytes each of a key, and a warp loads TURNS times before it
// computes. q is [heads, DIM].
template <int DIM, int HEADS, class Some, class Where, class Put>
__device__ inline void score_scattered_halves(const Pages& g, int n, const float* q, int heads, Some some, Where where, Put put) {
	constexpr int PIECES = DIM / 8, EACH_TURN = WARP / PIECES, TURNS = 8;
	int piece = lane() % PIECES;
	float mine[HEADS][8];
#pragma unroll
	for (int u = 0; u < HEADS; u++) {
#pragma unroll
		for (int d = 0; d < 8; d++) mine[u][d] = u < heads ? q[u * DIM + piece * 8 + d] : 0;
	}
	for (int from = warp() * EACH_TURN * TURNS; from < n; from += (int)blockDim.x / WARP * EACH_TURN * TURNS) {
		Word4 raw[TURNS];
#pragma unroll
		for (int t = 0; t < TURNS; t++) {
			int i = from + t * EACH_TURN + lane() / PIECES;
			raw[t] = Word4{{0, 0, 0, 0}};
			if (i < n && some(i)) raw[t] = load16((const u16*)g.k + where(i) + piece * 8);
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
				if (piece == 0 && i < n) put(0, i, sum[0]);
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
				if (lane() % (PIECES / 4) == 0 && u < heads && i < n) put(u, i, one);
			}
		}
	}
}

// score_scattered is score_scattered_halves of any cache, up to TOGETHER heads.
template <class Some, class Where, class Put>
__device__ inline void score_scattered(const Pages& g, int n, const float* q, int heads, Some some, Where where, Put put) {
	int dim = (int)g.dim;
	if (g.half && dim == 128) {
		if (heads == 1)
			score_scattered_halves<128, 1>(g, n, q, heads, some, where, put);
		else
			score_scattered_halves<128, TOGETHER>(g, n, q, heads, some, where, put);
		return;
	}
	if (g.half && dim == 64) {
		if (heads == 1)
			score_scattered_halves<64, 1>(g, n, q, heads, some, where, put);
		else
			score_scattered_halves<64, TOGETHER>(g, n, q, heads, some, where, put);
		return;
	}
	for (int i = warp(); i < n; i += (int)blockDim.x / WARP) {
		if (!some(i)) continue;
		i64 from = where(i);
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

// score_keys is score_halves of any cache, up to TOGETHER heads.
template <class Some, class Put>
__device__ inline void score_keys(const Pages& g, Keys keys, const float* q, int heads, Some some, Put put) {
	if (g.half && g.dim == 128) {
		score_halves<128>(g, keys, q, heads, some, put);
		return;
	}
	if (g.half && g.dim == 64) {
		score_halves<64>(g, keys, q, heads, some, put);
		return;
	}
	auto where = [&](int i) { return key_at(g, keys.slot, keys.kv_head, keys.lo + i); };
	score_scattered(g, keys.n, q, heads, some, where, put);
}
