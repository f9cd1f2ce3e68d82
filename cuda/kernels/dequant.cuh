// Dequantization of weights in registers, 32 of a GGUF block or 8 plain ones at a time, and
// 128-bit loads and stores.
#pragma once

#include "quants.cuh"

// Epilogue of a product: dst = y, dst += y, or (SwiGLU) dst = silu(x·w[0]ᵀ)·(x·w[1]ᵀ).
enum { STORE, ADD, GATE };

struct alignas(16) Word4 {
	u32 w[4];
};

struct alignas(8) Word2 {
	u32 w[2];
};

// load16 is a 128-bit load.
__device__ __forceinline__ Word4 load16(const void* at) { return *reinterpret_cast<const Word4*>(ASSUME_ALIGNED_16(at)); }

// load16_stream is load16 of what is read once: ld_stream4.
__device__ __forceinline__ Word4 load16_stream(const void* at) {
	Word4 v;
	ld_stream4(v.w, at);
	return v;
}

// Four floats, 16-byte aligned.
__device__ __forceinline__ void load_float4(float v[4], const float* at) {
	Word4 w = load16(at);
	for (int i = 0; i < 4; i++) v[i] = __uint_as_float(w.w[i]);
}
__device__ __forceinline__ void store_float4(float* at, const float v[4]) {
	*(Word4*)at = {{__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])}};
}

// Block32 is 32 weights as integers: w = d·v - m, v packed in bytes, d and m for each 16.
struct Block32 {
	int v[8];
	float d[2], m[2];
};

// load_u32_align2 loads 4 bytes that are 2-byte aligned, as blocks of most GGUF types are.
__device__ __forceinline__ u32 load_u32_align2(const u8* at) {
	const u16* p = (const u16*)at;
	return p[0] | (u32)p[1] << 16;
}

// unpack_block32 unpacks the b-th 32 weights of a row.
template <int TYPE>
__device__ __forceinline__ Block32 unpack_block32(const u8* row, int b) {
	Block32 f;
	f.m[0] = f.m[1] = 0;
	if (TYPE == Q8_0) {
		const u8* at = row + b * 34;
		f.d[0] = f.d[1] = from_half(*(const u16*)at);
		for (int i = 0; i < 8; i++) f.v[i] = (int)load_u32_align2(at + 2 + 4 * i);
	}
	if (TYPE == Q4_0) {
		const u8* at = row + b * 18;
		f.d[0] = f.d[1] = from_half(*(const u16*)at);
		f.m[0] = f.m[1] = 8 * f.d[0];
		for (int i = 0; i < 4; i++) {
			u32 q = load_u32_align2(at + 2 + 4 * i);
			f.v[i] = (int)(q & 0x0f0f0f0fu);
			f.v[i + 4] = (int)(q >> 4 & 0x0f0f0f0fu);
		}
	}
	if (TYPE == Q4_K || TYPE == Q5_K) {
		int g = b % 8;
		const u8* at = row + b / 8 * (TYPE == Q4_K ? 144 : 176);
		f.d[0] = f.d[1] = from_half(*(const u16*)at) * (float)q4_k_scale(at + 4, g);
		f.m[0] = f.m[1] = from_half(*(const u16*)(at + 2)) * (float)q4_k_min(at + 4, g);
		const u32* q = (const u32*)(at + (TYPE == Q4_K ? 16 : 48)) + g / 2 * 8;
		for (int i = 0; i < 8; i++) {
			u32 v = q[i] >> (g % 2 * 4) & 0x0f0f0f0fu;
			if (TYPE == Q5_K) v |= (((const u32*)(at + 16))[i] >> g & 0x01010101u) << 4;
			f.v[i] = (int)v;
		}
	}
	if (TYPE == Q6_K) {
		int half = b % 8 / 4, g = b % 4;
		const u8* at = row + b / 8 * 210;
		float d = from_half(*(const u16*)(at + 208));
		for (int u = 0; u < 2; u++) {
			f.d[u] = d * (float)(signed char)at[192 + half * 8 + g * 2 + u];
			f.m[u] = 32 * f.d[u];
		}
		const u8 *low = at + half * 64 + g % 2 * 32, *high = at + 128 + half * 32;
		for (int i = 0; i < 8; i++) {
			u32 l = load_u32_align2(low + 4 * i) >> (g / 2 * 4) & 0x0f0f0f0fu, h = load_u32_align2(high + 4 * i) >> (g * 2) & 0x03030303u;
			f.v[i] = (int)(l | h << 4);
		}
	}
	return f;
}

// load_weights8 loads 8 weights from the i-th on of a row of F32, F16 or BF16.
template <int TYPE>
__device__ __forceinline__ void load_weights8(float y[8], const u8* row, i64 i) {
	if (TYPE == F32) {
		Word4 lo = load16(row + i * 4), hi = load16(row + i * 4 + 16);
		for (int j = 0; j < 4; j++) {
			y[j] = __uint_as_float(lo.w[j]);
			y[j + 4] = __uint_as_float(hi.w[j]);
		}
		return;
	}
	Word4 v = load16(row + i * 2);
	for (int j = 0; j < 4; j++) {
		u16 lo = (u16)v.w[j], hi = (u16)(v.w[j] >> 16);
		y[2 * j] = TYPE == F16 ? from_half(lo) : from_bfloat(lo);
		y[2 * j + 1] = TYPE == F16 ? from_half(hi) : from_bfloat(hi);
	}
}
