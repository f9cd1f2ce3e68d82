// Products of many rows with a matrix, dst = x·wᵀ, on tensor cores: what a prefill
// does where neither cuBLASLt nor gemm_wide.cu can be used. Both sides are in half
// precision (halve.cu), sums are in f32. Checked against matmul.cu, with the bound
// that half precision allows.
//
// A block computes 128 x 128 elements of dst, 32 of k at a time, in a ring of tiles
// in shared memory: two are on their way while one is multiplied. Each of its eight
// warps multiplies 64 x 32.
#include "gemm.cuh"

constexpr int SIDE = 128, DEPTH = 32;
constexpr int STRIDE = DEPTH + 8;  // halves of a row in shared memory: no two rows of 8 meet in a bank
constexpr int RING = 3;
constexpr int RING_TILE = 2 * SIDE * STRIDE;  // halves: x, then w

// bring_rows begins to copy 32 of k of 128 rows of a matrix of n rows.
__device__ __forceinline__ void bring_rows(u16* to, const u16* from, i64 first, i64 n, i64 k, i64 row) {
#pragma unroll
	for (int u = 0; u < 2; u++) {
		int i = threadIdx.x + u * 256, r = i / 4, c = i % 4 * 8;
		bool there = first + r < n;
		cp_async_zfill(to + r * STRIDE + c, from + (there ? first + r : 0) * row + k + c, there);
	}
}

// multiply_tile adds the products of a tile's 32 of k to a warp's 64 x 32.
__device__ __forceinline__ void multiply_tile(float acc[4][4][4], const u16* x, const u16* w) {
#pragma unroll
	for (int k = 0; k < DEPTH; k += 16) {
		u32 a[4][4], b[2][4];
#pragma unroll
		for (int i = 0; i < 4; i++) ldmatrix_x4(a[i], x + (i * 16 + lane() % 16) * STRIDE + k + lane() / 16 * 8);
#pragma unroll
		for (int i = 0; i < 2; i++) ldmatrix_x4(b[i], w + (i * 16 + lane() % 8 + lane() / 16 * 8) * STRIDE + k + lane() / 8 % 2 * 8);
#pragma unroll
		for (int i = 0; i < 4; i++) {
#pragma unroll
			for (int j = 0; j < 4; j++) mma_f16(acc[i][j], a[i], b[j / 2] + j % 2 * 2);
		}
	}
}

// gemm: block (i, j) computes rows 128·i and columns 128·j.
KERNEL(gemm, GemmArgs, 256) {
	DYNAMIC_SHARED(u16, ring);
	i64 first = (i64)blockIdx.x * SIDE, column = (i64)blockIdx.y * SIDE;
	auto bring = [&](i64 k) {
		if (k < a.k) {
			u16* to = ring + k / DEPTH % RING * RING_TILE;
			bring_rows(to, a.x, first, a.rows, k, a.k);
			bring_rows(to + SIDE * STRIDE, a.w, column, a.n, k, a.k);
		}
		cp_async_commit();
	};
	float acc[4][4][4] = {};
	int m = warp() / 4 * 64, n = warp() % 4 * 32;
	for (int i = 0; i < RING - 1; i++) bring(i * DEPTH);
	for (i64 k = 0; k < a.k; k += DEPTH) {
		cp_async_wait<RING - 2>();
		__syncthreads();
		bring(k + (RING - 1) * DEPTH);
		const u16* tile = ring + k / DEPTH % RING * RING_TILE;
		multiply_tile(acc, tile + m * STRIDE, tile + (SIDE + n) * STRIDE);
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
#pragma unroll
		for (int j = 0; j < 4; j++) {
#pragma unroll
			for (int u = 0; u < 4; u++) {
				i64 row = first + m + i * 16 + lane() / 4 + u / 2 * 8, c = column + n + j * 8 + lane() % 4 * 2 + u % 2;
				if (row >= a.rows || c >= a.n) continue;
				float* to = a.dst + row * a.ld + c;
				*to = acc[i][j][u] + (a.add ? *to : 0);
			}
		}
	}
}
