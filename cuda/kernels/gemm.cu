// Prefill GEMM, dst = x·wᵀ, on tensor cores of compute capability 8.x, where neither cuBLASLt
// nor gemm_wgmma.cu is available. Both operands in f16 (to_f16.cu), accumulation in f32.
// Tested against matmul.cu within the bound of f16.
//
// Thread block tile 128 x 128 x 32, a 3-stage cp.async pipeline in shared memory (60 KB),
// eight warps with warp tiles of 64 x 32 from mma.m16n8k16. Bound by the tensor cores:
// 2·rows·n·k operations.
#include "gemm.cuh"

constexpr int BLOCK_MN = 128, BLOCK_K = 32;
constexpr int SMEM_LD = BLOCK_K + 8;  // padded row in f16, so that ldmatrix has no bank conflicts
constexpr int STAGES_GEMM = 3;
constexpr int STAGE_SIZE = 2 * BLOCK_MN * SMEM_LD;  // f16: tile of x, then tile of w

// load_tile_async starts the copy of a 128 x 32 tile of a matrix of n rows; rows beyond the
// last are zeros.
__device__ __forceinline__ void load_tile_async(u16* to, const u16* from, i64 first, i64 n, i64 k, i64 row) {
#pragma unroll
	for (int u = 0; u < 2; u++) {
		int i = threadIdx.x + u * 256, r = i / 4, c = i % 4 * 8;
		bool there = first + r < n;
		cp_async_zfill(to + r * SMEM_LD + c, from + (there ? first + r : 0) * row + k + c, there);
	}
}

// multiply_tile accumulates one 32-deep step of a warp's 64 x 32 tile.
__device__ __forceinline__ void multiply_tile(float acc[4][4][4], const u16* x, const u16* w) {
#pragma unroll
	for (int k = 0; k < BLOCK_K; k += 16) {
		u32 a[4][4], b[2][4];
#pragma unroll
		for (int i = 0; i < 4; i++) ldmatrix_x4(a[i], x + (i * 16 + lane() % 16) * SMEM_LD + k + lane() / 16 * 8);
#pragma unroll
		for (int i = 0; i < 2; i++) ldmatrix_x4(b[i], w + (i * 16 + lane() % 8 + lane() / 16 * 8) * SMEM_LD + k + lane() / 8 % 2 * 8);
#pragma unroll
		for (int i = 0; i < 4; i++) {
#pragma unroll
			for (int j = 0; j < 4; j++) mma_f16(acc[i][j], a[i], b[j / 2] + j % 2 * 2);
		}
	}
}

// gemm: grid (rows / 128, n / 128).
KERNEL(gemm, GemmArgs, 256) {
	DYNAMIC_SHARED(u16, ring);
	i64 first = (i64)blockIdx.x * BLOCK_MN, column = (i64)blockIdx.y * BLOCK_MN;
	auto load_stage = [&](i64 k) {
		if (k < a.k) {
			u16* to = ring + k / BLOCK_K % STAGES_GEMM * STAGE_SIZE;
			load_tile_async(to, a.x, first, a.rows, k, a.k);
			load_tile_async(to + BLOCK_MN * SMEM_LD, a.w, column, a.n, k, a.k);
		}
		cp_async_commit();
	};
	float acc[4][4][4] = {};
	int m = warp() / 4 * 64, n = warp() % 4 * 32;
	for (int i = 0; i < STAGES_GEMM - 1; i++) load_stage(i * BLOCK_K);
	for (i64 k = 0; k < a.k; k += BLOCK_K) {
		cp_async_wait<STAGES_GEMM - 2>();
		__syncthreads();
		load_stage(k + (STAGES_GEMM - 1) * BLOCK_K);
		const u16* tile = ring + k / BLOCK_K % STAGES_GEMM * STAGE_SIZE;
		multiply_tile(acc, tile + m * SMEM_LD, tile + (BLOCK_MN + n) * SMEM_LD);
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
