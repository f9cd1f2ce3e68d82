// Products of many rows on the tensor cores of compute capability 9.0: gemm.cu with
// the instructions of wide.cuh.
//
// A block computes 128 x 256 elements of dst, 64 of k at a time, in a ring of tiles
// in shared memory. Each of its two groups of four warps multiplies 64 x 256.
#include "gemm.cuh"
#include "wide.cuh"

constexpr int WIDE_ROWS = 128, WIDE_COLUMNS = 256, WIDE_DEPTH = 64, WIDE_RING = 4;
constexpr int WIDE_TILE = (WIDE_ROWS + WIDE_COLUMNS) * WIDE_DEPTH;  // halves: x, then w

// bring_panel begins to copy 64 of k of ROWS rows of a matrix of n rows, as wide_at
// has it.
template <int ROWS>
__device__ __forceinline__ void bring_panel(u16* to, const u16* from, i64 first, i64 n, i64 k) {
#pragma unroll
	for (int u = 0; u < ROWS / 32; u++) {
		int r = threadIdx.x / 8 + u * 32, c = threadIdx.x % 8;
		bool there = first + r < n;
		copy_async_if(to + r * 64 + (c ^ r % 8) * 8, from + (there ? first + r : 0) * k + c * 8, there);
	}
}

// gemm_wide: block (i, j) computes rows 128·i and columns 256·j. k is a multiple of 64.
KERNEL(gemm_wide, GemmArgs, 256) {
#if WIDE
	DYNAMIC_WIDE(u16, ring);
	i64 first = (i64)blockIdx.x * WIDE_ROWS, column = (i64)blockIdx.y * WIDE_COLUMNS;
	int steps = (int)(a.k / WIDE_DEPTH), group = threadIdx.x / 128;
	auto bring = [&](int i) {
		if (i < steps) {
			u16* to = ring + i % WIDE_RING * WIDE_TILE;
			bring_panel<WIDE_ROWS>(to, a.x + i * WIDE_DEPTH, first, a.rows, a.k);
			bring_panel<WIDE_COLUMNS>(to + WIDE_ROWS * WIDE_DEPTH, a.w + i * WIDE_DEPTH, column, a.n, a.k);
		}
		copy_commit();
	};
	float acc[128];
#pragma unroll
	for (int i = 0; i < 128; i++) acc[i] = 0;
	for (int i = 0; i < WIDE_RING - 2; i++) bring(i);
	for (int i = 0; i < steps; i++) {
		copy_wait<WIDE_RING - 3>();
		wide_written();
		__syncthreads();  // the tile is there, and that before the last is no longer in use
		const u16* tile = ring + i % WIDE_RING * WIDE_TILE;
		WideMatrix x = wide_at(tile + group * 64 * WIDE_DEPTH, 0, 1024), w = wide_at(tile + WIDE_ROWS * WIDE_DEPTH, 0, 1024);
		wide_begin();
#pragma unroll
		for (int k = 0; k < WIDE_DEPTH / 16; k++) wide_multiply(acc, x.from(k * 32), w.from(k * 32));
		wide_commit();
		bring(i + WIDE_RING - 2);
		wide_wait<1>(acc);
	}
	wide_wait<0>(acc);
#pragma unroll
	for (int j = 0; j < WIDE_COLUMNS / 8; j++) {
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
