// Prefill GEMM on the tensor cores of compute capability 9.0: gemm.cu with wgmma. Used where
// cuBLASLt is not there.
//
// Thread block tile 128 x 256 x 64, a 4-stage cp.async pipeline of 128-byte swizzled tiles in
// shared memory (192 KB), two warpgroups with 64 x 256 each. One wgmma group stays in flight
// while the next stage is loaded. No TMA and no producer warps: 511 of cuBLASLt's 724 Tflop/s
// at 8192³.
#include "gemm.cuh"
#include "wgmma.cuh"

constexpr int BLOCK_M = 128, BLOCK_N = 256, BLOCK_K_WGMMA = 64, STAGES_WGMMA = 4;
constexpr int STAGE_SIZE_WGMMA = (BLOCK_M + BLOCK_N) * BLOCK_K_WGMMA;  // f16: tile of x, then tile of w

// load_swizzled_async starts the copy of ROWS x 64 of a matrix of n rows, with the 128-byte
// swizzle that smem_desc names.
template <int ROWS>
__device__ __forceinline__ void load_swizzled_async(u16* to, const u16* from, i64 first, i64 n, i64 k) {
#pragma unroll
	for (int u = 0; u < ROWS / 32; u++) {
		int r = threadIdx.x / 8 + u * 32, c = threadIdx.x % 8;
		bool there = first + r < n;
		cp_async_zfill(to + r * 64 + (c ^ r % 8) * 8, from + (there ? first + r : 0) * k + c * 8, there);
	}
}

// gemm_wgmma: grid (rows / 128, n / 256), two warpgroups. k is a multiple of 64.
KERNEL(gemm_wgmma, GemmArgs, 256) {
#if WGMMA
	DYNAMIC_SHARED_1024(u16, ring);
	i64 first = (i64)blockIdx.x * BLOCK_M, column = (i64)blockIdx.y * BLOCK_N;
	int steps = (int)(a.k / BLOCK_K_WGMMA), group = threadIdx.x / 128;
	auto load_stage = [&](int i) {
		if (i < steps) {
			u16* to = ring + i % STAGES_WGMMA * STAGE_SIZE_WGMMA;
			load_swizzled_async<BLOCK_M>(to, a.x + i * BLOCK_K_WGMMA, first, a.rows, a.k);
			load_swizzled_async<BLOCK_N>(to + BLOCK_M * BLOCK_K_WGMMA, a.w + i * BLOCK_K_WGMMA, column, a.n, a.k);
		}
		cp_async_commit();
	};
	float acc[128];
#pragma unroll
	for (int i = 0; i < 128; i++) acc[i] = 0;
	for (int i = 0; i < STAGES_WGMMA - 2; i++) load_stage(i);
	for (int i = 0; i < steps; i++) {
		cp_async_wait<STAGES_WGMMA - 3>();
		fence_proxy_async();
		__syncthreads();  // this stage has arrived, and no warp still reads the one to be loaded next
		const u16* tile = ring + i % STAGES_WGMMA * STAGE_SIZE_WGMMA;
		SmemDesc x = smem_desc(tile + group * 64 * BLOCK_K_WGMMA, 0, 1024), w = smem_desc(tile + BLOCK_M * BLOCK_K_WGMMA, 0, 1024);
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < BLOCK_K_WGMMA / 16; k++) wgmma(acc, x.advance(k * 32), w.advance(k * 32));
		wgmma_commit();
		load_stage(i + STAGES_WGMMA - 2);
		wgmma_wait<1>(acc);
	}
	wgmma_wait<0>(acc);
#pragma unroll
	for (int j = 0; j < BLOCK_N / 8; j++) {
#pragma unroll
		for (int u = 0; u < 2; u++) {
			i64 row = first + group * 64 + warp() % 4 * 16 + lane() / 4 + u * 8, c = column + j * 8 + lane() % 4 * 2;
			if (row >= a.rows || c >= a.n) continue;
			float* to = a.dst + row * a.ld + c;
			to[0] = acc[j * 4 + u * 2] + (a.add ? to[0] : 0);
			if (c + 1 < a.n) to[1] = acc[j * 4 + u * 2 + 1] + (a.add ? to[1] : 0);
		}
	}
#endif
}
