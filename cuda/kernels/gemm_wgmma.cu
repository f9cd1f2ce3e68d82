// Products of many rows on the tensor cores of compute capability 9.0: gemm.cu with
// the instructions of wide.cuh.
//
// A block computes 128 x 256 elements of dst, 64 of k at a time, in a ring of tiles
// in shared memory. Each of its two groups of four warps multiplies 64 x 256.
#include "gemm.cuh"
#include "wgmma.cuh"

constexpr int WGMMA_ROWS = 128, WGMMA_COLUMNS = 256, WGMMA_DEPTH = 64, WGMMA_RING = 4;
constexpr int WGMMA_TILE = (WGMMA_ROWS + WGMMA_COLUMNS) * WGMMA_DEPTH;  // halves: x, then w

// bring_panel begins to copy 64 of k of ROWS rows of a matrix of n rows, as wide_at
// has it.
template <int ROWS>
__device__ __forceinline__ void bring_panel(u16* to, const u16* from, i64 first, i64 n, i64 k) {
#pragma unroll
	for (int u = 0; u < ROWS / 32; u++) {
		int r = threadIdx.x / 8 + u * 32, c = threadIdx.x % 8;
		bool there = first + r < n;
		cp_async_zfill(to + r * 64 + (c ^ r % 8) * 8, from + (there ? first + r : 0) * k + c * 8, there);
	}
}

// gemm_wgmma: block (i, j) computes rows 128·i and columns 256·j. k is a multiple of 64.
KERNEL(gemm_wgmma, GemmArgs, 256) {
#if WGMMA
	DYNAMIC_SHARED_1024(u16, ring);
	i64 first = (i64)blockIdx.x * WGMMA_ROWS, column = (i64)blockIdx.y * WGMMA_COLUMNS;
	int steps = (int)(a.k / WGMMA_DEPTH), group = threadIdx.x / 128;
	auto bring = [&](int i) {
		if (i < steps) {
			u16* to = ring + i % WGMMA_RING * WGMMA_TILE;
			bring_panel<WGMMA_ROWS>(to, a.x + i * WGMMA_DEPTH, first, a.rows, a.k);
			bring_panel<WGMMA_COLUMNS>(to + WGMMA_ROWS * WGMMA_DEPTH, a.w + i * WGMMA_DEPTH, column, a.n, a.k);
		}
		cp_async_commit();
	};
	float acc[128];
#pragma unroll
	for (int i = 0; i < 128; i++) acc[i] = 0;
	for (int i = 0; i < WGMMA_RING - 2; i++) bring(i);
	for (int i = 0; i < steps; i++) {
		cp_async_wait<WGMMA_RING - 3>();
		fence_proxy_async();
		__syncthreads();  // the tile is there, and that before the last is no longer in use
		const u16* tile = ring + i % WGMMA_RING * WGMMA_TILE;
		SmemDesc x = smem_desc(tile + group * 64 * WGMMA_DEPTH, 0, 1024), w = smem_desc(tile + WGMMA_ROWS * WGMMA_DEPTH, 0, 1024);
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < WGMMA_DEPTH / 16; k++) wgmma(acc, x.from(k * 32), w.from(k * 32));
		wgmma_commit();
		bring(i + WGMMA_RING - 2);
		wgmma_wait<1>(acc);
	}
	wgmma_wait<0>(acc);
#pragma unroll
	for (int j = 0; j < WGMMA_COLUMNS / 8; j++) {
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
