// Products of a few rows with a matrix of f32, dst = x·wᵀ. Checked against matmul.cu.
// A warp takes rows of w and all rows of x.
#include "args.cuh"
#include "few.cuh"
#include "reduce.cuh"

struct GemvArgs {
	float* dst;      // [rows, n]
	const float* x;  // [rows, k]
	const u8* w;     // [n, k] f32
	i64 rows, n, k;  // k is a multiple of 8
};

constexpr int GEMV_WARPS = 8;
constexpr int GEMV_PAIR = 2;  // rows of w that a warp takes at once, so that x is read once for them

template <int ROWS>
__device__ __forceinline__ void gemv(const GemvArgs& a) {
	i64 c = ((i64)blockIdx.x * GEMV_WARPS + warp()) * GEMV_PAIR;
	if (c >= a.n) return;
	const u8* w[GEMV_PAIR];
	float sum[GEMV_PAIR][ROWS] = {};
#pragma unroll
	for (int u = 0; u < GEMV_PAIR; u++) w[u] = a.w + smaller(c + u, a.n - 1) * a.k * 4;
#pragma unroll 4
	for (i64 i = lane() * 8; i < a.k; i += WARP * 8) {
		float v[GEMV_PAIR][8];
#pragma unroll
		for (int u = 0; u < GEMV_PAIR; u++) plain8<F32>(v[u], w[u], i);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			if (r >= a.rows) break;
			const float* x = a.x + r * a.k + i;
			Word4 lo = load16(x), hi = load16(x + 4);
#pragma unroll
			for (int u = 0; u < GEMV_PAIR; u++) {
#pragma unroll
				for (int j = 0; j < 4; j++) {
					sum[u][r] += __uint_as_float(lo.w[j]) * v[u][j];
					sum[u][r] += __uint_as_float(hi.w[j]) * v[u][j + 4];
				}
			}
		}
	}
#pragma unroll
	for (int u = 0; u < GEMV_PAIR; u++) {
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			float s = reduce_warp(sum[u][r], Plus());
			if (lane() == 0 && r < a.rows && c + u < a.n) a.dst[r * a.n + c + u] = s;
		}
	}
}

// For up to 2, 4 and 8 rows of x.
KERNEL(gemv_2, GemvArgs, GEMV_WARPS* WARP) { gemv<2>(a); }
KERNEL(gemv_4, GemvArgs, GEMV_WARPS* WARP) { gemv<4>(a); }
KERNEL(gemv_8, GemvArgs, GEMV_WARPS* WARP) { gemv<8>(a); }
