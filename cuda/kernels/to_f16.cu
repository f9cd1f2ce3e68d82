// Conversion to f16 for the tensor core GEMMs: weights of every type (dequantized),
// activations, and RMSNorm and SwiGLU fused with it. Saturates at ±65504 instead of inf.
// Bound by memory: each element is read and written once.
#include "args.cuh"
#include "dequant.cuh"
#include "reduce.cuh"

constexpr float MAX_HALF = 65504;  // largest finite f16

__device__ __forceinline__ u32 pack_half_saturated(float lo, float hi) {
	return pack_half(fminf(fmaxf(lo, -MAX_HALF), MAX_HALF), fminf(fmaxf(hi, -MAX_HALF), MAX_HALF));
}

struct ToF16Args {
	u16* dst;       // [rows, k]
	const void* x;  // [rows, k]
	i64 type, rows, k, row;  // row: bytes from a row of x to the next
};

// to_f16_plain: f32 or bf16, 8 elements a thread, in a grid-stride loop over all rows.
template <int TYPE>
__device__ __forceinline__ void to_f16_plain(const ToF16Args& a) {
	i64 n = a.rows * a.k / 8;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
		float y[8];
		load_weights8<TYPE>(y, (const u8*)a.x, i * 8);
		Word4 v = {{pack_half_saturated(y[0], y[1]), pack_half_saturated(y[2], y[3]), pack_half_saturated(y[4], y[5]), pack_half_saturated(y[6], y[7])}};
		((Word4*)a.dst)[i] = v;
	}
}

constexpr int TO_F16_THREADS = 128;

// to_f16_blocks: quantized rows. Grid (k / 4096, rows), 128 threads, 32 weights a thread.
// Results go through shared memory, padded to 80 bytes a thread, so that global stores are
// coalesced.
template <class Unpack>
__device__ __forceinline__ void to_f16_blocks(const ToF16Args& a, Unpack unpack) {
	SHARED(Word4, out, TO_F16_THREADS * 5);
	i64 from = (i64)blockIdx.x * TO_F16_THREADS, all = a.k / 32;
	const u8* row = (const u8*)a.x + blockIdx.y * a.row;
	if (from + threadIdx.x < all) unpack(row, (int)(from + threadIdx.x), out + threadIdx.x * 5);
	__syncthreads();
	Word4* to = (Word4*)(a.dst + blockIdx.y * a.k) + from * 4;
	for (int i = threadIdx.x; i < TO_F16_THREADS * 4 && from + i / 4 < all; i += TO_F16_THREADS) to[i] = out[i / 4 * 5 + i % 4];
}

template <int TYPE>
__device__ __forceinline__ void to_f16_block32(const ToF16Args& a) {
	to_f16_blocks(a, [](const u8* row, int b, Word4* out) {
		Block32 f = unpack_block32<TYPE>(row, b);
		u32* to = (u32*)out;
#pragma unroll
		for (int i = 0; i < 16; i++) {
			int v = f.v[i / 2] >> i % 2 * 16;
			float d = f.d[i / 8], m = f.m[i / 8];
			to[i] = pack_half_saturated(d * (float)(signed char)v - m, d * (float)(signed char)(v >> 8) - m);
		}
	});
}

struct ToF16NormArgs {
	u16* dst;        // [rows, k]
	const float* x;  // [rows, k]
	const float* w;  // [k]
	i64 k;
	f64 eps;
};

// to_f16_rmsnorm: dst = f16(x / sqrt(mean(x²) + eps) · w). Grid (rows), 8 elements a thread.
KERNEL(to_f16_rmsnorm, ToF16NormArgs, 256) {
	const u8 *x = (const u8*)(a.x + (i64)blockIdx.x * a.k), *w = (const u8*)a.w;
	Word4* to = (Word4*)(a.dst + (i64)blockIdx.x * a.k);
	float sum = 0, y[8], by[8];
	for (int i = threadIdx.x; i < (int)a.k / 8; i += blockDim.x) {
		load_weights8<F32>(y, x, i * 8);
#pragma unroll
		for (int j = 0; j < 8; j++) sum += y[j] * y[j];
	}
	sum = reduce_block(sum, 0.0f, Plus());
	float scale = 1 / sqrtf(sum / (float)a.k + (float)a.eps);
	for (int i = threadIdx.x; i < (int)a.k / 8; i += blockDim.x) {
		load_weights8<F32>(y, x, i * 8);
		load_weights8<F32>(by, w, i * 8);
#pragma unroll
		for (int j = 0; j < 8; j++) y[j] = y[j] * scale * by[j];
		to[i] = {{pack_half_saturated(y[0], y[1]), pack_half_saturated(y[2], y[3]), pack_half_saturated(y[4], y[5]), pack_half_saturated(y[6], y[7])}};
	}
}

struct ToF16GatedArgs {
	u16* dst;  // [n, 8]
	const float *gate, *up;
	i64 n;
};

// to_f16_swiglu: dst = f16(silu(gate)·up), 8 elements a thread.
KERNEL(to_f16_swiglu, ToF16GatedArgs, 256) {
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x) {
		float g[8], u[8];
		load_weights8<F32>(g, (const u8*)a.gate, i * 8);
		load_weights8<F32>(u, (const u8*)a.up, i * 8);
#pragma unroll
		for (int j = 0; j < 8; j++) u[j] *= g[j] / (1 + expf(-g[j]));
		((Word4*)a.dst)[i] = {{pack_half_saturated(u[0], u[1]), pack_half_saturated(u[2], u[3]), pack_half_saturated(u[4], u[5]), pack_half_saturated(u[6], u[7])}};
	}
}

KERNEL(to_f16_f32, ToF16Args, 256) { to_f16_plain<F32>(a); }
KERNEL(to_f16_bf16, ToF16Args, 256) { to_f16_plain<BF16>(a); }
KERNEL(to_f16_q4_0, ToF16Args, TO_F16_THREADS) { to_f16_block32<Q4_0>(a); }
KERNEL(to_f16_q8_0, ToF16Args, TO_F16_THREADS) { to_f16_block32<Q8_0>(a); }
KERNEL(to_f16_q4_k, ToF16Args, TO_F16_THREADS) { to_f16_block32<Q4_K>(a); }
KERNEL(to_f16_q5_k, ToF16Args, TO_F16_THREADS) { to_f16_block32<Q5_K>(a); }
KERNEL(to_f16_q6_k, ToF16Args, TO_F16_THREADS) { to_f16_block32<Q6_K>(a); }

// to_f16_any takes the types that have no kernel of their own.
KERNEL(to_f16_any, ToF16Args, TO_F16_THREADS) {
	to_f16_blocks(a, [&](const u8* row, int b, Word4* out) {
		u32* to = (u32*)out;
		for (int i = 0; i < 16; i++) to[i] = pack_half_saturated(element((int)a.type, row, b * 32 + 2 * i), element((int)a.type, row, b * 32 + 2 * i + 1));
	});
}
