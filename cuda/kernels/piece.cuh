// What single.cu makes of a type: how rows of weights are cut into chunks, what meets a
// chunk, and the product of the two.
#pragma once

#include "few.cuh"
#include "reduce.cuh"

// Piece is how a type is cut: WEIGHTS of a row in BYTES. A chunk is a piece of one row,
// or with EIGHT, of 8 rows, which lie PITCH apart in shared memory. STAGES of them are
// in a ring.
template <int TYPE>
struct Piece {
	static constexpr bool QUANTIZED = TYPE >= Q4_0, EIGHT = TYPE == F16 || TYPE == Q8_0 || TYPE == Q4_K;
	static constexpr int WEIGHTS = TYPE == F16 ? 128 : TYPE == Q8_0 ? 256 : TYPE == Q4_K ? 512 : QUANTIZED ? 2048 : TYPE == F32 ? 256 : 512;
	static constexpr int BYTES = TYPE == F16 ? 256 : TYPE == Q8_0 ? 272 : TYPE == Q4_K ? 288 : TYPE == Q4_0 ? 1152 : TYPE == Q5_K ? 1408 : TYPE == Q6_K ? 1680 : 1024;
	static constexpr int PITCH = TYPE == F16 ? 320 : BYTES, CHUNK = EIGHT ? 8 * PITCH : BYTES;
	static constexpr int STAGES = EIGHT ? 4 : BYTES == 1024 ? 6 : BYTES == 1152 ? 4 : 3;
	// Bytes of the part of x that meets a chunk.
	static constexpr int X = TYPE == F16 ? 528 : TYPE == Q8_0 ? 288 : TYPE == Q4_K ? 640 : QUANTIZED ? 3072 : WEIGHTS * 4;
};

// A lane takes 64 of the 2048 weights of a chunk of a quantized type: of one block
// of 256, 16 of each 32 in a half. With Share it finds them; they are dealt to
// lanes such that 8 neighbours read other banks.
struct Share {
	int block, half, part;
};

__device__ __forceinline__ Share share_of_lane(int lane) {
	int q = lane / 4;
	return {(q & 4) | (q & 1) << 1 | (q >> 1 & 1), lane / 2 % 2, lane % 2};
}

__device__ __forceinline__ int lane_of(int block, int half, int part) {
	return ((block & 4) | (block & 1) << 1 | (block >> 1 & 1)) * 4 + half * 2 + part;
}

// x that meets a chunk of a quantized type, for each lane: 4 times 16 integers,
// [4][32][16] bytes; their 4 scales, f32 [32][4]; and the sums of the numbers that the
// integers stand for, f32 [32][4].
constexpr int X_SCALES = 2048, X_SUMS = 2560;

// put_eight is put of the types whose chunks are of 8 rows. Of F16, x is a sum of two
// halves, good to 22 bits: the first half of 128 numbers, then the second, times a power
// of two that keeps both within half precision; then what undoes it. Of quantized types
// x is integers, then for each 32 their scale and, of Q4_K, the sum of the numbers
// that they stand for.
template <int TYPE>
__device__ __forceinline__ void put_eight(u8* x, int i, const float v[4]) {
	int e = i * 4 % Piece<TYPE>::WEIGHTS;
	u8* tile = x + i * 4 / Piece<TYPE>::WEIGHTS * Piece<TYPE>::X;
	float top = larger(larger(fabsf(v[0]), fabsf(v[1])), larger(fabsf(v[2]), fabsf(v[3])));
	for (int m = 1; m < (TYPE == F16 ? WARP : 8); m *= 2) top = larger(top, __shfl_xor_sync(ALL, top, m));
	if (TYPE == F16) {
		int power = smaller(larger((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased: top becomes 2¹⁰ or more
		float up = __uint_as_float((u32)(254 - power) << 23);
		for (int j = 0; j < 2; j++) {
			float a = v[2 * j] * up, b = v[2 * j + 1] * up;
			u32 both = pack_half(a, b);
			((u32*)tile)[e / 2 + j] = both;
			((u32*)tile)[64 + e / 2 + j] = pack_half(a - from_half((u16)both), b - from_half((u16)(both >> 16)));
		}
		if (e == 0) ((float*)tile)[128] = __uint_as_float((u32)power << 23);
		return;
	}
	float d = top * (1 / 127.0f), per = top > 1e-36f ? 127 / top : 0;
	u32 word = 0;
	int sum = 0;
	for (int j = 0; j < 4; j++) {
		int q = (int)rintf(v[j] * per);
		word |= (u32)(q & 255) << 8 * j;
		sum += q;
	}
	*(u32*)(tile + e) = word;
	float* scales = (float*)(tile + Piece<TYPE>::WEIGHTS);
	if (TYPE == Q8_0) {
		if (e % 32 == 0) scales[e / 32] = d;
		return;
	}
	for (int m = 1; m < 8; m *= 2) sum += __shfl_xor_sync(ALL, sum, m);
	if (e % 32) return;
	scales[e / 16] = d;
	scales[e / 16 + 1] = d * (float)sum;
}

// put stores numbers 4i to 4i+3 of x. All lanes of a warp call it.
template <int TYPE>
__device__ __forceinline__ void put(u8* x, int i, const float v[4]) {
	if (Piece<TYPE>::EIGHT) {
		put_eight<TYPE>(x, i, v);
		return;
	}
	if (!Piece<TYPE>::QUANTIZED) {
		// Of a type of 2 bytes a lane takes 8 numbers: the first 4 of all lanes, then the others.
		int at = TYPE == F32 ? i : i / 64 * 64 + i % 2 * 32 + i % 64 / 2;
		for (int j = 0; j < 4; j++) ((float*)x)[at * 4 + j] = v[j];
		return;
	}
	float top = larger(larger(fabsf(v[0]), fabsf(v[1])), larger(fabsf(v[2]), fabsf(v[3])));
	for (int m = 1; m < 8; m *= 2) top = larger(top, __shfl_xor_sync(ALL, top, m));
	float d = top * (1 / 127.0f), per = top > 1e-36f ? 127 / top : 0;
	u32 word = 0;
	int sum = 0;
	for (int j = 0; j < 4; j++) {
		int q = (int)rintf(v[j] * per);
		word |= (u32)(q & 255) << 8 * j;
		sum += q;
	}
	for (int m = 1; m < 4; m *= 2) sum += __shfl_xor_sync(ALL, sum, m);
	int e = i * 4, piece = e / 32 % 4, of = lane_of(e / 256 % 8, e / 128 % 2, e / 16 % 2);
	u8* tile = x + e / 2048 * Piece<TYPE>::X;
	*(u32*)(tile + piece * 512 + of * 16 + e % 16) = word;
	if (e % 16) return;
	((float*)(tile + X_SCALES))[of * 4 + piece] = d;
	((float*)(tile + X_SUMS))[of * 4 + piece] = d * (float)sum;
}

// odd16 is 16 bytes at an address that is 2 past a multiple of 4.
__device__ __forceinline__ Word4 odd16(const u8* at) {
	const u32* p = (const u32*)(at - 2);
	u32 w[5] = {p[0], p[1], p[2], p[3], p[4]};
	return {{__byte_perm(w[0], w[1], 0x5432), __byte_perm(w[1], w[2], 0x5432), __byte_perm(w[2], w[3], 0x5432), __byte_perm(w[3], w[4], 0x5432)}};
}

// even16 is 16 bytes at a multiple of 4.
__device__ __forceinline__ Word4 even16(const u8* at) {
	const u32* p = (const u32*)at;
	return {{p[0], p[1], p[2], p[3]}};
}

__device__ __forceinline__ float half_of(const u8* at) { return from_half(*(const u16*)at); }

// dot16 is the sum of 16 products of bytes.
__device__ __forceinline__ int dot16(const u32 v[4], const Word4& x) {
	int s = 0;
#pragma unroll
	for (int i = 0; i < 4; i++) s = __dp4a((int)v[i], (int)x.w[i], s);
	return s;
}

// byte_of is byte t of a word: the lowest of the fraction of 2²³.
__device__ __forceinline__ float byte_of(u32 word, int t) { return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650 + t)) - 8388608; }

// dot is a lane's part of the product of a chunk at w with what meets it at x.
template <int TYPE>
__device__ __forceinline__ float dot(const u8* w, const u8* x) {
	Share g = share_of_lane(lane());
	Word4 d4 = load16(x + X_SCALES + lane() * 16), s4 = load16(x + X_SUMS + lane() * 16);
	const u8* mine = x + lane() * 16;
	float sum = 0;
	if (TYPE == Q4_0) {
		const u8* b = w + (g.block * 8 + g.half * 4) * 18;
#pragma unroll
		for (int t = 0; t < 4; t++, b += 18) {
			Word4 v = t % 2 ? even16(b + 2) : odd16(b + 2);
			for (int i = 0; i < 4; i++) v.w[i] = v.w[i] >> (g.part * 4) & 0x0f0f0f0fu;
			float y = __uint_as_float(d4.w[t]) * (float)dot16(v.w, load16(mine + t * 512)) - 8 * __uint_as_float(s4.w[t]);
			sum += half_of(b) * y;
		}
	}
	if (TYPE == Q5_K) {
		const u8* b = w + g.block * 176;
		Word4 head = load16(b), high;
		u32 scale = head.w[1] & 0x3f3f3f3fu, least = head.w[2] & 0x3f3f3f3fu;
		if (g.half) {
			scale = (head.w[3] & 0x0f0f0f0fu) | (head.w[1] >> 2 & 0x30303030u);
			least = (head.w[3] >> 4 & 0x0f0f0f0fu) | (head.w[2] >> 2 & 0x30303030u);
		}
		high = load16(b + 16 + g.part * 16);
		for (int i = 0; i < 4; i++) high.w[i] >>= g.half * 4;
		const u8* q = b + 48 + g.half * 64 + g.part * 16;
		float plus = 0, minus = 0;
#pragma unroll
		for (int t = 0; t < 4; t++) {
			Word4 v = load16(q + t / 2 * 32);
			for (int i = 0; i < 4; i++) {
				v.w[i] = v.w[i] >> (t % 2 * 4) & 0x0f0f0f0fu;
				v.w[i] |= (high.w[i] >> t & 0x01010101u) << 4;
			}
			float d = __uint_as_float(d4.w[t]);
			plus += d * (float)(dot16(v.w, load16(mine + t * 512)) * (int)(scale >> 8 * t & 255));
			minus += __uint_as_float(s4.w[t]) * byte_of(least, t);
		}
		sum = from_half((u16)head.w[0]) * plus - from_half((u16)(head.w[0] >> 16)) * minus;
	}
	if (TYPE == Q6_K) {
		const u8 *b = w + g.block * 210, *q = b + g.half * 64 + g.part * 16;
		bool odd = g.block % 2;  // then b is 2 past a multiple of 4
		u32 pick = odd ? 0x5432 : 0x3210;
		Word4 low[2], high;
		auto read = [&](Word4& v, const u8* at) {
			const u32* p = (const u32*)(odd ? at - 2 : at);
			u32 next[5] = {p[0], p[1], p[2], p[3], p[4]};
			for (int i = 0; i < 4; i++) v.w[i] = __byte_perm(next[i], next[i + 1], pick);
		};
		read(low[0], q);
		read(low[1], q + 32);
		read(high, b + 128 + g.half * 32 + g.part * 16);
		const signed char* scale = (const signed char*)b + 192 + g.half * 8 + g.part;
#pragma unroll
		for (int t = 0; t < 4; t++) {
			u32 v[4];
			for (int i = 0; i < 4; i++) v[i] = (low[t % 2].w[i] >> (t / 2 * 4) & 0x0f0f0f0fu) | (high.w[i] >> (2 * t) & 0x03030303u) << 4;
			float y = __uint_as_float(d4.w[t]) * (float)dot16(v, load16(mine + t * 512)) - 32 * __uint_as_float(s4.w[t]);
			sum += y * (float)scale[2 * t];
		}
		sum *= half_of(b + 208);
	}
	return sum;
}

// dot_plain is dot of F32 and BF16, of which left weights are there.
template <int TYPE>
__device__ __forceinline__ float dot_plain(const u8* w, const u8* x, int left) {
	constexpr int EACH = TYPE == F32 ? 4 : 8;  // weights in 16 bytes
	float sum = 0;
#pragma unroll
	for (int u = 0; u < 2; u++) {
		if ((u * WARP + lane()) * EACH >= left) break;
		Word4 v = load16(w + (u * WARP + lane()) * 16);
		const u8* mine = x + u * WARP * EACH * 4 + lane() * 16;
		for (int h = 0; h < EACH / 4; h++) {
			Word4 y = load16(mine + h * 512);
			for (int j = 0; j < 4; j++) {
				if (TYPE == F32) {
					sum += __uint_as_float(v.w[j]) * __uint_as_float(y.w[j]);
					continue;
				}
				sum += from_bfloat((u16)(v.w[h * 2 + j / 2] >> j % 2 * 16)) * __uint_as_float(y.w[j]);
			}
		}
	}
	return sum;
}

// Pair is a lane's sums of rows 2(l%4) and 2(l%4)+1 of a chunk of 8 rows: of F16 those
// of lanes 0 to 3, otherwise those of all lanes together.
struct Pair {
	float one, two;
};

// dot_eight is the products of a chunk of 8 rows at w with what meets it at x, on tensor
// cores: column n is row n, and lane 4n + i has 16 bytes of each 64 of F16, or 8 of each
// block of 32 weights. Of F16, row 0 is the first halves of x and row 8 the second. Of
// quantized types, row j is what meets block j, alone with its block, so that the sums
// of 8 blocks are there at once and are then scaled.
template <int TYPE>
__device__ __forceinline__ Pair dot_eight(const u8* w, const u8* x, int left) {
	constexpr int PITCH = Piece<TYPE>::PITCH;
	int g = lane() / 4, i = lane() % 4;
	const u8 *mine = w + g * PITCH, *one = w + 2 * i * PITCH, *two = one + PITCH;
	Pair sum = {0, 0};
	if (TYPE == F16) {
		float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
		for (int s = 0; s < 4; s++) {
			Word4 v = load16(mine + s * 64 + i * 16), y = {{0, 0, 0, 0}}, z = {{0, 0, 0, 0}};
			if (g == 0) {
				y = load16(x + s * 64 + i * 16);
				z = load16(x + 256 + s * 64 + i * 16);
			}
			u32 a[2][4] = {{y.w[0], z.w[0], y.w[1], z.w[1]}, {y.w[2], z.w[2], y.w[3], z.w[3]}};
			multiply_add(c[0], a[0], v.w);
			multiply_add(c[1], a[1], v.w + 2);
		}
		float unit = ((const float*)x)[128];
		sum.one = (c[0][0] + c[0][2] + (c[1][0] + c[1][2])) * unit;
		sum.two = (c[0][1] + c[0][3] + (c[1][1] + c[1][3])) * unit;
	}
	if (TYPE == Q8_0) {
		u32 y = ((const u32*)x)[g * 8 + i], z = ((const u32*)x)[g * 8 + i + 4];
		int c[4] = {0, 0, 0, 0};
#pragma unroll
		for (int b = 0; b < 8; b++) {
			const u32* q = (const u32*)mine + (b * 34 + 2) / 4 + i;  // of an even block 2 bytes before it
			u32 v[2] = {q[0], q[4]};
			if (b % 2 == 0) {
				v[0] = __byte_perm(v[0], q[1], 0x5432);
				v[1] = __byte_perm(v[1], q[5], 0x5432);
			}
			u32 a[4] = {g == b ? y : 0, 0, g == b ? z : 0, 0};
			multiply_add_bytes(c, a, v);
		}
		float d = ((const float*)(x + 256))[g];
		sum.one = half_of(one + g * 34) * (d * (float)c[0]);
		sum.two = half_of(two + g * 34) * (d * (float)c[1]);
	}
	if (TYPE == Q4_K) {
#pragma unroll
		for (int s = 0; s < 2; s++, mine += 144, one += 144, two += 144) {
			if (s * 256 >= left) break;
			u32 y = ((const u32*)x)[s * 64 + lane() * 2], z = ((const u32*)x)[s * 64 + lane() * 2 + 1];
			int c[4] = {0, 0, 0, 0};
#pragma unroll
			for (int b = 0; b < 8; b += 2) {
				const u32* q = (const u32*)(mine + 16 + b * 16 + i * 8);
				u32 p[2] = {q[0], q[1]}, low[2] = {p[0] & 0x0f0f0f0fu, p[1] & 0x0f0f0f0fu}, high[2] = {p[0] >> 4 & 0x0f0f0f0fu, p[1] >> 4 & 0x0f0f0f0fu};
				u32 a[4] = {g == b ? y : 0, 0, g == b ? z : 0, 0}, next[4] = {g == b + 1 ? y : 0, 0, g == b + 1 ? z : 0, 0};
				multiply_add_bytes(c, a, low);
				multiply_add_bytes(c, next, high);
			}
			const float* scales = (const float*)(x + 512) + (s * 8 + g) * 2;
			float d = scales[0], of = scales[1];
			auto scaled = [&](const u8* b, int c) {
				Word4 head = load16(b);
				int by = g % 4 * 8;
				u32 p = head.w[1] >> by & 255, q = head.w[2] >> by & 255, r = head.w[3] >> by & 255;
				u32 scale = g < 4 ? p & 63 : (r & 15) | p >> 6 << 4, least = g < 4 ? q & 63 : r >> 4 | q >> 6 << 4;
				return from_half((u16)head.w[0]) * (d * (float)(c * (int)scale)) - from_half((u16)(head.w[0] >> 16)) * (of * (float)(int)least);
			};
			sum.one += scaled(one, c[0]);
			sum.two += scaled(two, c[1]);
		}
	}
	if (TYPE != F16) {
		for (int m = 4; m < WARP; m *= 2) {
			sum.one += __shfl_xor_sync(ALL, sum.one, m);
			sum.two += __shfl_xor_sync(ALL, sum.two, m);
		}
	}
	return sum;
}
