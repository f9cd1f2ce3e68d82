// WeightFragment dequantizes weights to the A fragments of mma.m16n8k16 and of wgmma, in registers:
// of skinny_gemm.cu and skinny_wgmma.cu.
#pragma once

#include "dequant.cuh"

__device__ __forceinline__ u32 duplicate(u32 half) { return __byte_perm(half, 0, 0x1010); }

// WeightFragment is a lane's part of a row of a tile of a quantized type: weights 64·t to
// 64·t+63 of the slice, t = lane%4. step i gives weights 4i, 4i+2 and 4i+1, 4i+3 as f16x2; x is
// packed in the same order of k.
template <int TYPE>
struct WeightFragment;

constexpr u32 BASE = 0x64006400u;  // f16x2 of 1024: the lowest mantissa bits have the value of integers

// Two nibbles as f16x2: 1024 + v of low ones, 1024 + 16·v of high ones.
__device__ __forceinline__ u32 low_pair(u32 w) { return (w & 0x000f000fu) | BASE; }
__device__ __forceinline__ u32 high_pair(u32 w) { return (w & 0x00f000f0u) | BASE; }

constexpr u32 LESS_1024 = 0xe400e400u, LESS_64 = 0xd400d400u, SIXTEENTH = 0x2c002c00u;

template <>
struct WeightFragment<Q4_0> {
	u32 w[9];

	__device__ __forceinline__ void read(const u8* row, int t, int) {
		for (int i = 0; i < 9; i++) w[i] = ((const u32*)(row + t * 36))[i];
	}
	__device__ __forceinline__ void step(u32 y[2], int i) const {
		int b = i / 8;
		u32 d = duplicate(b ? w[4] >> 16 : w[0] & 0xffff);
		u32 q = b ? w[5 + i % 4] : __byte_perm(w[i % 4], w[i % 4 + 1], 0x5432);
		for (int h = 0; h < 2; h++, q >>= 8)
			y[h] = hmul2_rn(i % 8 < 4 ? hadd2_rn(low_pair(q), 0xe408e408u) : hfma2_rn(high_pair(q), SIXTEENTH, 0xd480d480u), d);
	}
};

template <>
struct WeightFragment<Q8_0> {
	u32 w[17];

	__device__ __forceinline__ void read(const u8* row, int t, int) {
		for (int i = 0; i < 17; i++) w[i] = ((const u32*)(row + t * 68))[i];
	}
	__device__ __forceinline__ void step(u32 y[2], int i) const {
		int b = i / 8;
		u32 d = duplicate(b ? w[8] >> 16 : w[0] & 0xffff);
		u32 q = (b ? w[1 + i] : __byte_perm(w[i], w[i + 1], 0x5432)) ^ 0x80808080u;
		for (int h = 0; h < 2; h++) y[h] = hmul2_rn(hadd2_rn(__byte_perm(q, 0x64646464u, h ? 0x4341 : 0x4240), 0xe480e480u), d);
	}
};

// KScales is the scales and minima of two groups of 32 weights of Q4_K and Q5_K.
struct KScales {
	u32 scale[2], min[2];

	__device__ __forceinline__ void read(const Word4& head, int t) {
		u32 s = head.w[1] & 0x3f3f3f3fu, m = head.w[2] & 0x3f3f3f3fu;
		if (t >= 2) {
			s = (head.w[3] & 0x0f0f0f0fu) | (head.w[1] >> 2 & 0x30303030u);
			m = (head.w[3] >> 4 & 0x0f0f0f0fu) | (head.w[2] >> 2 & 0x30303030u);
		}
		s >>= t % 2 * 16;
		m >>= t % 2 * 16;
		float d = from_half((u16)head.w[0]), e = -from_half((u16)(head.w[0] >> 16));
		for (int g = 0; g < 2; g++, s >>= 8, m >>= 8) {
			float x = d * (float)(int)(s & 255), y = e * (float)(int)(m & 255);
			scale[g] = pack_half(x, x);
			min[g] = pack_half(y, y);
		}
	}
};

template <>
struct WeightFragment<Q4_K> {
	Word4 q[2];
	KScales s;

	__device__ __forceinline__ void read(const u8* row, int t, int) {
		s.read(load16(row), t);
		q[0] = load16(row + 16 + t * 32);
		q[1] = load16(row + 32 + t * 32);
	}
	__device__ __forceinline__ void step(u32 y[2], int i) const {
		u32 w = q[i / 4 % 2].w[i % 4];
		for (int h = 0; h < 2; h++, w >>= 8) {
			u32 v = i < 8 ? hadd2_rn(low_pair(w), LESS_1024) : hfma2_rn(high_pair(w), SIXTEENTH, LESS_64);
			y[h] = hfma2_rn(v, s.scale[i / 8], s.min[i / 8]);
		}
	}
};

template <>
struct WeightFragment<Q5_K> {
	Word4 q[2], bits[2];
	KScales s;

	__device__ __forceinline__ void read(const u8* row, int t, int) {
		s.read(load16(row), t);
		for (int h = 0; h < 2; h++) {
			q[h] = load16(row + 48 + t * 32 + h * 16);
			bits[h] = load16(row + 16 + h * 16);
			for (int i = 0; i < 4; i++) bits[h].w[i] >>= 2 * t;
		}
	}
	__device__ __forceinline__ void step(u32 y[2], int i) const {
		u32 w = q[i / 4 % 2].w[i % 4], b = bits[i / 4 % 2].w[i % 4];
		for (int h = 0; h < 2; h++, w >>= 8, b >>= 8) {
			u32 v = i < 8 ? hadd2_rn(low_pair(w) | (b << 4 & 0x00100010u), LESS_1024)
						  : hfma2_rn(high_pair(w) | (b << 7 & 0x01000100u), SIXTEENTH, LESS_64);
			y[h] = hfma2_rn(v, s.scale[i / 8], s.min[i / 8]);
		}
	}
};

template <>
struct WeightFragment<Q6_K> {
	u32 low[16], high[8], scale[4];

	// odd: the block starts 2 past a multiple of 4.
	__device__ __forceinline__ void words(u32* to, const u8* at, int n, bool odd) {
		const u32* p = (const u32*)(odd ? at - 2 : at);
		u32 pick = odd ? 0x5432 : 0x3210, before = p[0];
#pragma unroll
		for (int i = 0; i < n; i++) {
			u32 next = p[i + 1];
			to[i] = __byte_perm(before, next, pick);
			before = next;
		}
	}
	__device__ __forceinline__ void read(const u8* row, int t, int start) {
		const u8* b = row + start;
		bool odd = start % 4 != 0;
		words(low, b + t / 2 * 64, 16, odd);
		words(high, b + 128 + t / 2 * 32, 8, odd);
		u32 s;
		words(&s, b + 192 + t * 4, 1, odd);
		float d = from_half(*(const u16*)(b + 208));
		for (int i = 0; i < 4; i++) {
			float x = d * (float)(signed char)(s >> 8 * i);
			scale[i] = pack_half(x, x);
		}
		for (int i = 0; i < 16; i++) low[i] >>= t % 2 * 4;
		for (int i = 0; i < 8; i++) high[i] >>= t % 2 * 4;
	}
	__device__ __forceinline__ void step(u32 y[2], int i) const {
		u32 w = low[i], b = i < 8 ? high[i % 8] : high[i % 8] >> 2;
		for (int h = 0; h < 2; h++, w >>= 8, b >>= 8)
			y[h] = hmul2_rn(hadd2_rn(low_pair(w) | (b << 4 & 0x00300030u), 0xe420e420u), scale[i / 4]);
	}
};
