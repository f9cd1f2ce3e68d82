// Products of tiles of 16 rows of f16, keys or bounds, with up to four queries on tensor cores,
// without shared memory. Lane 4r + c of a warp loads pieces c, c + 4, … of 16 bytes of rows r and
// r + 8: these are A operands as they are, since the operands of mma only have to agree on the
// order of k. The queries are split into f16 high and low parts, columns i and i + 4 of the B
// operand, which is 22 bits of precision at the cost of one mma.
#pragma once

#include "dequant.cuh"

constexpr int TILE_HEADS = 4;  // queries of a tile

// QueryColumns is a lane's part of the queries: column lane/4 of B, and the factors of the scores
// of heads 2·(c%2) and 2·(c%2) + 1.
template <int DIM>
struct QueryColumns {
	u32 q[DIM / 16][2];
	float unit[2];

	// load takes queries [heads, DIM], each scaled by a power of two that keeps both f16 parts in
	// range; unit is the scale of the scores.
	__device__ __forceinline__ void load(const float* from, int heads, float scale) {
		int head = lane() / 4 % TILE_HEADS;
		bool there = head < heads, low = lane() / 4 >= TILE_HEADS;
		from += (there ? head : 0) * DIM + lane() % 4 * 8;
		float largest = 0;
#pragma unroll
		for (int i = 0; i < DIM / 32 * 8; i++) largest = max_of(largest, fabsf(from[i / 8 * 32 + i % 8]));
		largest = max_of(largest, __shfl_xor_sync(FULL_MASK, largest, 1));
		largest = max_of(largest, __shfl_xor_sync(FULL_MASK, largest, 2));
		int power = min_of(max_of((int)(__float_as_uint(largest) >> 23), 24), 240) - 10;  // biased exponent: the largest element becomes 2¹⁰ or more
		float up = there ? __uint_as_float((u32)(254 - power) << 23) : 0, down = __uint_as_float((u32)power << 23) * scale;
#pragma unroll
		for (int i = 0; i < DIM / 8; i++) {
			const float* at = from + i / 4 * 32 + i % 4 * 2;
			float x = at[0] * up, y = at[1] * up;
			u32 both = pack_half(x, y);
			q[i / 2][i % 2] = low ? pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16))) : both;
		}
#pragma unroll
		for (int u = 0; u < 2; u++) unit[u] = __shfl_sync(FULL_MASK, down, (lane() % 2 * 2 + u) * 4);
	}
};

// RowTile is a lane's pieces of 16 rows.
template <int DIM>
struct RowTile {
	Word4 piece[2][DIM / 32];

	// load starts the loads of half u: row lane/4 + 8·u.
	__device__ __forceinline__ void load(int u, const u16* row) {
#pragma unroll
		for (int i = 0; i < DIM / 32; i++) piece[u][i] = load16_stream(row + (i * 4 + lane() % 4) * 8);
	}

	// An mma truncates what it adds to the place of the largest: where all products are positive, as
	// those of bounds mostly are, a running sum would lose several bits. So the sums of 16 products
	// are added in f32, rounded to nearest.
	//
	// scores gives lane 4r + c the scores of row r + c/2·8 for heads 2·(c%2) and 2·(c%2) + 1.
	__device__ __forceinline__ void scores(float s[2], const QueryColumns<DIM>& h) const {
		float sum[4] = {0, 0, 0, 0};
#pragma unroll
		for (int i = 0; i < DIM / 16; i++) {
			const u32 *x = piece[0][i / 2].w + i % 2 * 2, *y = piece[1][i / 2].w + i % 2 * 2;
			u32 rows[4] = {x[0], y[0], x[1], y[1]};
			float part[4] = {0, 0, 0, 0};
			mma_f16(part, rows, h.q[i]);
#pragma unroll
			for (int j = 0; j < 4; j++) sum[j] += part[j];
		}
		bool upper = lane() & 2;  // has the sums of low parts, and takes rows 8 to 15
#pragma unroll
		for (int u = 0; u < 2; u++) {
			float other = __shfl_xor_sync(FULL_MASK, upper ? sum[u] : sum[2 + u], 2);
			s[u] = ((upper ? sum[2 + u] : sum[u]) + other) * h.unit[u];
		}
	}
};
