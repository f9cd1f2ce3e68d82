// Numbers of any type in half precision, for products on tensor cores. Numbers
// beyond its range become its largest.
#include "args.cuh"
#include "few.cuh"
#include "reduce.cuh"

constexpr float MOST_HALF = 65504;  // the largest of half precision

__device__ __forceinline__ u32 pack_bounded(float lo, float hi) {
	return pack_half(fminf(fmaxf(lo, -MOST_HALF), MOST_HALF), fminf(fmaxf(hi, -MOST_HALF), MOST_HALF));
}

struct HalveArgs {
	u16* dst;       // [rows, k]
	const void* x;  // [rows, k]
	i64 type, rows, k, row;  // row: bytes of a row of x
};

// halve_plain: 8 numbers a thread, of f32 or bfloat16. Rows follow each other.
template <int TYPE>
__device__ __forceinline__ void halve_plain(const HalveArgs& a) {
	i64 n = a.rows * a.k / 8;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
		float y[8];
		plain8<TYPE>(y, (const u8*)a.x, i * 8);
		Word4 v = {{pack_bounded(y[0], y[1]), pack_bounded(y[2], y[3]), pack_bounded(y[4], y[5]), pack_bounded(y[6], y[7])}};
		((Word4*)a.dst)[i] = v;
	}
}

constexpr int HALVE_THREADS = 128;

// halve_blocks: block (b, r) takes 128 times 32 weights of row r, a thread 32; they
// leave through shared memory so that neighbours write neighbours.
template <class Unpack>
__device__ __forceinline__ void halve_blocks(const HalveArgs& a, Unpack unpack) {
	SHARED(Word4, out, HALVE_THREADS * 5);
	i64 from = (i64)blockIdx.x * HALVE_THREADS, all = a.k / 32;
	const u8* row = (const u8*)a.x + blockIdx.y * a.row;
	if (from + threadIdx.x < all) unpack(row, (int)(from + threadIdx.x), out + threadIdx.x * 5);
	__syncthreads();
	Word4* to = (Word4*)(a.dst + blockIdx.y * a.k) + from * 4;
	for (int i = threadIdx.x; i < HALVE_THREADS * 4 && from + i / 4 < all; i += HALVE_THREADS) to[i] = out[i / 4 * 5 + i % 4];
}

template <int TYPE>
__device__ __forceinline__ void halve_few(const HalveArgs& a) {
	halve_blocks(a, [](const u8* row, int b, Word4* out) {
		Few f = few<TYPE>(row, b);
		u32* to = (u32*)out;
#pragma unroll
		for (int i = 0; i < 16; i++) {
			int v = f.v[i / 2] >> i % 2 * 16;
			float d = f.d[i / 8], m = f.m[i / 8];
			to[i] = pack_bounded(d * (float)(signed char)v - m, d * (float)(signed char)(v >> 8) - m);
		}
	});
}

struct HalveNormArgs {
	u16* dst;        // [rows, k]
	const float* x;  // [rows, k]
	const float* w;  // [k]
	i64 k;
	f64 eps;
};

// halve_norm is rmsnorm of rows.cu, 8 numbers a thread. A block takes a row.
KERNEL(halve_norm, HalveNormArgs, 256) {
	const u8 *x = (const u8*)(a.x + (i64)blockIdx.x * a.k), *w = (const u8*)a.w;
	Word4* to = (Word4*)(a.dst + (i64)blockIdx.x * a.k);
	float sum = 0, y[8], by[8];
	for (int i = threadIdx.x; i < (int)a.k / 8; i += blockDim.x) {
		plain8<F32>(y, x, i * 8);
#pragma unroll
		for (int j = 0; j < 8; j++) sum += y[j] * y[j];
	}
	sum = reduce_block(sum, 0.0f, Plus());
	float scale = 1 / sqrtf(sum / (float)a.k + (float)a.eps);
	for (int i = threadIdx.x; i < (int)a.k / 8; i += blockDim.x) {
		plain8<F32>(y, x, i * 8);
		plain8<F32>(by, w, i * 8);
#pragma unroll
		for (int j = 0; j < 8; j++) y[j] = y[j] * scale * by[j];
		to[i] = {{pack_bounded(y[0], y[1]), pack_bounded(y[2], y[3]), pack_bounded(y[4], y[5]), pack_bounded(y[6], y[7])}};
	}
}

struct HalveGatedArgs {
	u16* dst;  // [n, 8]
	const float *gate, *up;
	i64 n;
};

// halve_gated is swiglu of rows.cu, 8 numbers a thread.
KERNEL(halve_gated, HalveGatedArgs, 256) {
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x) {
		float g[8], u[8];
		plain8<F32>(g, (const u8*)a.gate, i * 8);
		plain8<F32>(u, (const u8*)a.up, i * 8);
#pragma unroll
		for (int j = 0; j < 8; j++) u[j] *= g[j] / (1 + expf(-g[j]));
		((Word4*)a.dst)[i] = {{pack_bounded(u[0], u[1]), pack_bounded(u[2], u[3]), pack_bounded(u[4], u[5]), pack_bounded(u[6], u[7])}};
	}
}

KERNEL(halve_f32, HalveArgs, 256) { halve_plain<F32>(a); }
KERNEL(halve_bf16, HalveArgs, 256) { halve_plain<BF16>(a); }
KERNEL(halve_q4_0, HalveArgs, HALVE_THREADS) { halve_few<Q4_0>(a); }
KERNEL(halve_q8_0, HalveArgs, HALVE_THREADS) { halve_few<Q8_0>(a); }
KERNEL(halve_q4_k, HalveArgs, HALVE_THREADS) { halve_few<Q4_K>(a); }
KERNEL(halve_q5_k, HalveArgs, HALVE_THREADS) { halve_few<Q5_K>(a); }
KERNEL(halve_q6_k, HalveArgs, HALVE_THREADS) { halve_few<Q6_K>(a); }

// halve_any takes the types that have no kernel of their own.
KERNEL(halve_any, HalveArgs, HALVE_THREADS) {
	halve_blocks(a, [&](const u8* row, int b, Word4* out) {
		u32* to = (u32*)out;
		for (int i = 0; i < 16; i++) to[i] = pack_bounded(element((int)a.type, row, b * 32 + 2 * i), element((int)a.type, row, b * 32 + 2 * i + 1));
	});
}
