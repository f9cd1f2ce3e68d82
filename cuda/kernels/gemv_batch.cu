// Simple GEMV for up to 8 rows of x, dst = x·wᵀ: F32, and shapes that do not fit the pipelines of
// gemv.cu and skinny_gemm.cu (compute capability 8.x, odd sizes). A warp takes rows of w and all
// rows of x. Bound by reading w once. Tested against matmul.cu.
//
// Quantized weights are multiplied with activations quantized to int8 by blocks of 32, as in
// package cpu (llama.cpp's Q8_1): integers, a scale, and block sums for weights with minima.
// Products are dp4a.
#include "args.cuh"
#include "dequant.cuh"
#include "reduce.cuh"

// A row of quantized activations: [k] int8, [k/32] scales, [k/16] sums of the dequantized
// values, padded to 16 bytes.
__device__ inline i64 q8_row_size(i64 k) { return (k + k / 32 * 4 + k / 16 * 4 + 15) / 16 * 16; }

struct QuantizeArgs {
	u8* dst;         // [rows, q8_row_size(k)]
	const float* x;  // [rows, k]
	i64 k;
};

// quantize: absmax quantization to int8. Grid (k / 256, rows), a block of 32 per warp.
KERNEL(quantize, QuantizeArgs, 256) {
	i64 b = (i64)blockIdx.x * (blockDim.x / WARP) + warp();
	if (b >= a.k / 32) return;
	float x = a.x[blockIdx.y * a.k + b * 32 + lane()];
	float largest = reduce_warp(fabsf(x), Max()), d = largest * (1 / 127.0f);
	int q = largest > 1e-36f ? (int)rintf(x * (127 / largest)) : 0;  // below that 127 / largest would overflow
	int sum = q;
	for (int m = 8; m > 0; m /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, m);
	u8* row = a.dst + blockIdx.y * q8_row_size(a.k);
	row[b * 32 + lane()] = (u8)(signed char)q;
	if (lane() == 0) ((float*)(row + a.k))[b] = d;
	if (lane() % 16 == 0) ((float*)(row + a.k + a.k / 8))[b * 2 + lane() / 16] = d * (float)sum;
}

struct GemvBatchArgs {
	float* dst;      // [rows, n]
	const void* x;   // [rows, k] f32, or rows of quantize
	const u8* w;     // [n, k], of type
	i64 rows, n, k, row;  // row: bytes from a row of w to the next
};

constexpr int GEMV_BATCH_WARPS = 8;
constexpr int STAGED = 1024;  // weights of a warp's stage in shared memory

// gemv_batch_quantized: grid (n / 8), a warp per row of w. Blocks of most types are only 2-byte
// aligned, so the warp stages STAGED weights through shared memory with aligned 128-bit loads,
// double buffered in registers; a lane then takes 32 of them.
template <int TYPE, int ROWS>
__device__ __forceinline__ void gemv_batch_quantized(const GemvBatchArgs& a) {
	constexpr int LEN = TYPE <= Q8_0 ? 32 : 256;
	constexpr int SIZE = TYPE == Q8_0 ? 34 : TYPE == Q4_0 ? 18 : TYPE == Q4_K ? 144 : TYPE == Q5_K ? 176 : 210;
	constexpr int BYTES = STAGED / LEN * SIZE, PIECES = (BYTES + 15 + 15) / 16, EACH = (PIECES + WARP - 1) / WARP;
	SHARED(Word4, staged, GEMV_BATCH_WARPS * PIECES);
	i64 c = (i64)blockIdx.x * GEMV_BATCH_WARPS + warp();
	if (c >= a.n) return;
	const u8 *w = a.w + c * a.row, *end = w + a.row;
	Word4* mine = staged + warp() * PIECES;
	float sum[ROWS] = {};
	Word4 next[EACH];
	auto fetch = [&](i64 at) {
		const u8* from = (const u8*)((u64)(w + at) & ~(u64)15);
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			const u8* piece = from + (i64)(lane() + i * WARP) * 16;
			if (lane() + i * WARP < PIECES && piece < end) next[i] = load16(piece);
		}
	};
	fetch(0);
	for (i64 chunk = 0; chunk * STAGED < a.k; chunk++) {
		__syncwarp();
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			if (lane() + i * WARP < PIECES) mine[lane() + i * WARP] = next[i];
		}
		__syncwarp();
		const u8* row = (const u8*)mine + ((u64)(w + chunk * BYTES) & 15);
		if ((chunk + 1) * STAGED < a.k) fetch((chunk + 1) * BYTES);
		i64 b = chunk * (STAGED / 32) + lane();
		if (b >= a.k / 32) continue;
		Block32 f = unpack_block32<TYPE>(row, lane());
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			if (r >= a.rows) break;
			const u8* x = (const u8*)a.x + r * q8_row_size(a.k);
			Word4 lo = load16(x + b * 32), hi = load16(x + b * 32 + 16);
			int s0 = 0, s1 = 0;
#pragma unroll
			for (int i = 0; i < 4; i++) {
				s0 = __dp4a(f.v[i], (int)lo.w[i], s0);
				s1 = __dp4a(f.v[i + 4], (int)hi.w[i], s1);
			}
			float d = ((const float*)(x + a.k))[b];
			const float* sums = (const float*)(x + a.k + a.k / 8) + b * 2;
			sum[r] += d * (f.d[0] * (float)s0 + f.d[1] * (float)s1) - (f.m[0] * sums[0] + f.m[1] * sums[1]);
		}
	}
#pragma unroll
	for (int r = 0; r < ROWS; r++) {
		float s = reduce_warp(sum[r], Plus());
		if (lane() == 0 && r < a.rows) a.dst[r * a.n + c] = s;
	}
}

// GEMV_BATCH_PAIR is how many rows of w a warp takes at once, so that a load of x serves both.
constexpr int GEMV_BATCH_PAIR = 2;

// gemv_batch_plain: 8 weights of a row per lane and iteration; k is a multiple of 8.
template <int TYPE, int ROWS>
__device__ __forceinline__ void gemv_batch_plain(const GemvBatchArgs& a) {
	i64 c = ((i64)blockIdx.x * GEMV_BATCH_WARPS + warp()) * GEMV_BATCH_PAIR;
	if (c >= a.n) return;
	const u8* w[GEMV_BATCH_PAIR];
	float sum[GEMV_BATCH_PAIR][ROWS] = {};
#pragma unroll
	for (int u = 0; u < GEMV_BATCH_PAIR; u++) w[u] = a.w + min_of(c + u, a.n - 1) * a.row;
#pragma unroll 4
	for (i64 i = lane() * 8; i < a.k; i += WARP * 8) {
		float v[GEMV_BATCH_PAIR][8];
#pragma unroll
		for (int u = 0; u < GEMV_BATCH_PAIR; u++) load_weights8<TYPE>(v[u], w[u], i);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			if (r >= a.rows) break;
			const float* x = (const float*)a.x + r * a.k + i;
			Word4 lo = load16(x), hi = load16(x + 4);
#pragma unroll
			for (int u = 0; u < GEMV_BATCH_PAIR; u++) {
#pragma unroll
				for (int j = 0; j < 4; j++) {
					sum[u][r] += __uint_as_float(lo.w[j]) * v[u][j];
					sum[u][r] += __uint_as_float(hi.w[j]) * v[u][j + 4];
				}
			}
		}
	}
#pragma unroll
	for (int u = 0; u < GEMV_BATCH_PAIR; u++) {
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			float s = reduce_warp(sum[u][r], Plus());
			if (lane() == 0 && r < a.rows && c + u < a.n) a.dst[r * a.n + c + u] = s;
		}
	}
}

// Instances for each type and for up to 1, 2, 4 and 8 rows of x.
#define GEMV_BATCH(name, body, TYPE)                                                  \
	KERNEL(name##_1, GemvBatchArgs, GEMV_BATCH_WARPS* WARP) { body<TYPE, 1>(a); } \
	KERNEL(name##_2, GemvBatchArgs, GEMV_BATCH_WARPS* WARP) { body<TYPE, 2>(a); } \
	KERNEL(name##_4, GemvBatchArgs, GEMV_BATCH_WARPS* WARP) { body<TYPE, 4>(a); } \
	KERNEL(name##_8, GemvBatchArgs, GEMV_BATCH_WARPS* WARP) { body<TYPE, 8>(a); }

GEMV_BATCH(gemv_batch_f32, gemv_batch_plain, F32)
GEMV_BATCH(gemv_batch_f16, gemv_batch_plain, F16)
GEMV_BATCH(gemv_batch_bf16, gemv_batch_plain, BF16)
GEMV_BATCH(gemv_batch_q4_0, gemv_batch_quantized, Q4_0)
GEMV_BATCH(gemv_batch_q8_0, gemv_batch_quantized, Q8_0)
GEMV_BATCH(gemv_batch_q4_k, gemv_batch_quantized, Q4_K)
GEMV_BATCH(gemv_batch_q5_k, gemv_batch_quantized, Q5_K)
GEMV_BATCH(gemv_batch_q6_k, gemv_batch_quantized, Q6_K)
