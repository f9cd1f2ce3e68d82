// Products with transposed matrices, dst = x·wᵀ: the definition, for every
// element type and every shape. The fast kernels of single.cu, several.cu and gemm.cu are
// checked against it.
#include "args.cuh"
#include "blocks.cuh"
#include "reduce.cuh"

struct MatMulArgs {
	float* dst;      // [rows, n]
	const float* x;  // [rows, k]
	const u8* w;     // [n, k], of the type
	i64 type, rows, n, k, row;  // row: bytes of a row of w
};

// matmul: a warp takes one element of dst; its lanes take every 32nd product.
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
