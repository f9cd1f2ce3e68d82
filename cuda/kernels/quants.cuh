// GGUF element types: dequantization element by element, the definition that the kernels for whole
// blocks are checked against. Formats as in ggml-quants.
#pragma once

#include "gpu.cuh"

// The element types, numbered as in package device.
enum { F32 = 1, F16, BF16, I32, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS };

__device__ inline u16 read_u16(const u8* b) { return (u16)(b[0] | b[1] << 8); }
__device__ inline u32 read_u32(const u8* b) { return b[0] | b[1] << 8 | b[2] << 16 | (u32)b[3] << 24; }
__device__ inline float read_f16(const u8* b) { return from_half(read_u16(b)); }

// codebook is value i of the 16 of IQ4_NL and IQ4_XS, packed as bytes.
__device__ inline int codebook(int i) {
	const u32 words[4] = {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u};
	return (signed char)(words[i / 4] >> i % 4 * 8);
}

// q4_k_scale and q4_k_min are the 6-bit scale and minimum g, of 8, of a Q4_K or Q5_K superblock.
__device__ inline int q4_k_scale(const u8* s, int g) { return g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4; }
__device__ inline int q4_k_min(const u8* s, int g) { return g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4; }

// q3_k_scale is the 6-bit scale g, of 16, of a Q3_K superblock.
__device__ inline int q3_k_scale(const u8* s, int g) {
	int low = s[g % 8] >> (g / 8 * 4) & 15, high = s[8 + g % 4] >> (g / 4 * 2) & 3;
	return (low | high << 4) - 32;
}

// iq4_xs_scale is the 6-bit scale g, of 8, of an IQ4_XS superblock.
__device__ inline int iq4_xs_scale(const u8* b, int g) {
	int low = b[4 + g / 2] >> (g % 2 * 4) & 15, high = read_u16(b + 2) >> (g * 2) & 3;
	return (low | high << 4) - 32;
}

// block_len is the elements of a block, block_size its bytes.
__device__ inline int block_len(int type) { return type <= I32 ? 1 : type <= Q8_0 || type == IQ4_NL ? 32 : 256; }

__device__ inline int block_size(int type) {
	switch (type) {
	case F32: case I32: return 4;
	case F16: case BF16: return 2;
	case Q4_0: case IQ4_NL: return 18;
	case Q4_1: return 20;
	case Q5_0: return 22;
	case Q5_1: return 24;
	case Q8_0: return 34;
	case Q2_K: return 84;
	case Q3_K: return 110;
	case Q4_K: return 144;
	case Q5_K: return 176;
	case Q6_K: return 210;
	}
	return 136;
}

// nibble is element i of 32 that are stored as low nibbles, then high nibbles, of 16 bytes.
__device__ inline int nibble(const u8* q, int i) { return q[i % 16] >> (i / 16 * 4) & 15; }

// plain_element is element i of a row without blocks.
__device__ inline float plain_element(int type, const void* row, i64 i) {
	if (type == F32) return ((const float*)row)[i];
	u16 bits = ((const u16*)row)[i];
	return type == F16 ? from_half(bits) : from_bfloat(bits);
}

// block_element is element i of a block of 32.
__device__ inline float block_element(int type, const u8* b, int i) {
	float d = read_f16(b);
	switch (type) {
	case Q4_0: return d * (float)(nibble(b + 2, i) - 8);
	case Q4_1: return d * (float)nibble(b + 4, i) + read_f16(b + 2);
	case Q5_0: return d * (float)(nibble(b + 6, i) + (int)(read_u32(b + 2) >> i & 1) * 16 - 16);
	case Q5_1: return d * (float)(nibble(b + 8, i) + (int)(read_u32(b + 4) >> i & 1) * 16) + read_f16(b + 2);
	case Q8_0: return d * (float)(signed char)b[2 + i];
	}
	return d * (float)codebook(nibble(b + 2, i));
}

// superblock_element is element i of a superblock of 256.
__device__ inline float superblock_element(int type, const u8* b, int i) {
	switch (type) {
	case Q2_K: {
		int s = b[i / 16], v = b[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
		return read_f16(b + 80) * (float)(s & 15) * (float)v - read_f16(b + 82) * (float)(s >> 4);
	}
	case Q3_K: {
		int v = (b[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) - 4 + (b[i % 32] >> (i / 32) & 1) * 4;
		return read_f16(b + 108) * (float)q3_k_scale(b + 96, i / 16) * (float)v;
	}
	case Q4_K: {
		int v = b[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
		return read_f16(b) * (float)q4_k_scale(b + 4, i / 32) * (float)v - read_f16(b + 2) * (float)q4_k_min(b + 4, i / 32);
	}
	case Q5_K: {
		int v = (b[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
		return read_f16(b) * (float)q4_k_scale(b + 4, i / 32) * (float)v - read_f16(b + 2) * (float)q4_k_min(b + 4, i / 32);
	}
	case Q6_K: {
		int v = (b[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15) | (b[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) << 4;
		return read_f16(b + 208) * (float)(signed char)b[192 + i / 16] * (float)(v - 32);
	}
	}
	int v = b[8 + i / 32 * 16 + i % 16] >> (i / 16 % 2 * 4) & 15;
	return read_f16(b) * (float)iq4_xs_scale(b, i / 32) * (float)codebook(v);
}

// element is element i of a row.
__device__ inline float element(int type, const u8* row, i64 i) {
	if (type <= I32) return plain_element(type, row, i);
	int n = block_len(type);
	const u8* b = row + i / n * block_size(type);
	return n == 32 ? block_element(type, b, (int)(i % n)) : superblock_element(type, b, (int)(i % n));
}
