// dst = x·wᵀ for every weight type and every shape: the reference that the fast kernels of
// gemv.cu, skinny_gemm.cu and gemm.cu are tested against, and the fallback.
#include "args.cuh"
#include "quants.cuh"
#include "reduce.cuh"

struct MatMulArgs {
	float* dst;      // [rows, n]
	const float* x;  // [rows, k]
	const u8* w;     // [n, k], of type
	i64 type, rows, n, k, row;  // row: bytes from a row of w to the next
};

// matmul: grid (n / 8, rows), 8 warps a block, one element of dst per warp. Lanes stride over
// k; no reuse of x or w, so it is slow.
KERNEL(matmul, MatMulArgs, 256) {
	i64 c = (i64)blockIdx.x * (blockDim.x / WARP) + warp(), r = blockIdx.y;
	if (c >= a.n) return;
	const u8* w = a.w + c * a.row;
	const float* x = a.x + r * a.k;
	float sum = 0;
	for (i64 i = lane(); i < a.k; i += WARP) sum += x[i] * element((int)a.type, w, i);
	sum = reduce_warp(sum, Plus());
	if (lane() == 0) a.dst[r * a.n + c] = sum;
}
