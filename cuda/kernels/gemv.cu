// Decode GEMV, dst = x·wᵀ for one row of x, with prologue and epilogue fused: RMSNorm of x
// before; SwiGLU, residual add, or RoPE and KV append after. Bound by reading the weights once.
// Tested against matmul.cu.
//
// One persistent block per SM, 16 warps, takes consecutive rows of up to three matrices. Rows
// are cut into chunks; a warp keeps to one chunk of k, whose part of x it holds in registers
// (int8 for quantized weights), and streams that chunk of its rows through a cp.async pipeline
// of its own, without block barriers. Sums of several rows are reduced over the lanes at once;
// those of the chunks of a row are added in the order of k at the end, where the scale of the
// norm is multiplied in. The pipelines are filled before pdl_wait, since weights do not depend on
// the preceding kernels, so that memory stays busy between launches (PDL).
//
// Copies are of 16 bytes, so a row that starts between two multiples of 16 (Q6_K of 3584 or 18944
// weights) is copied from the one before it, and each stage is read from where the row starts.
#include "args.cuh"
#include "dequant.cuh"
#include "reduce.cuh"

struct GemvArgs {
	const float* x;     // [k]
	const float* norm;  // [k]: weight of an RMSNorm of x; NULL: no norm
	f64 eps;
	float* dst[3];      // [n]
	const u8* w[3];     // [n, k]
	i64 n[3];
	i64 k, row;  // row: bytes from a row of w to the next
	i64 mode;
	i64 fixed;  // constant weights: they may be read before pdl_wait
	i64 slots;  // warps that share a row
};

// GemvQKVArgs fuses the q, k and v projections with their biases, RoPE and append.
struct GemvQKVArgs {
	GemvArgs s;
	i64 role[3];  // of dst[i]: 0 queries, 1 keys, 2 values
	PagedKV g;
	const i32* pos;      // [1]
	const float* freqs;  // [pairs]
	f64 scale;
	i64 pairs, halves;     // halves: pair i is elements i and i + pairs of a head, otherwise 2i and 2i + 1
	const float* bias[3];  // added to dst[i]; NULL: none
};

// pair_row is the row of matrix m that is computed in place of another, such that the rows of a
// pair follow each other.
__device__ __forceinline__ int pair_row(const GemvQKVArgs& a, int m, int row) {
	int dim = (int)a.g.dim, d = dim & (dim - 1) ? row % dim : row & (dim - 1);
	if (!a.halves || a.role[m] == 2 || d >= 2 * (int)a.pairs) return row;
	return row - d + d / 2 + d % 2 * (int)a.pairs;
}

constexpr int GEMV_THREADS = 512;

// GemvChunk is the tiling of a type: WEIGHTS of a row in BYTES, STAGES of them in a pipeline.
template <int TYPE>
struct GemvChunk {
	static constexpr bool QUANTIZED = TYPE >= Q4_0;
	static constexpr int WEIGHTS = QUANTIZED ? 2048 : TYPE == F32 ? 512 : 1024;
	static constexpr int BYTES = TYPE == Q4_0 || TYPE == Q4_K ? 1152 : TYPE == Q8_0 ? 2176 : TYPE == Q5_K ? 1408 : TYPE == Q6_K ? 1680 : 2048;
	static constexpr int STAGES = BYTES == 1152 ? 4 : 3;
	static constexpr bool SHIFTED = TYPE == Q4_0 || TYPE == Q8_0 || TYPE == Q6_K;  // rows need not start on 16 bytes
	static constexpr int SLOT = BYTES + (SHIFTED ? 16 : 0);  // bytes of a stage
	static constexpr int X = QUANTIZED ? 2432 : 0;  // bytes of shared memory for a chunk's part of x, quantized
};

// A lane takes 64 consecutive weights of the 2048 of a chunk of a quantized type; of Q6_K, 16 of
// each 32 in half a block of 256, which have scales of their own. Its part of x is 4 times 16
// int8: [4][32 lanes][16] bytes in shared memory, with a stride of X_STRIDE between the four
// against bank conflicts of the warp that writes them, then a scale for each 32.
constexpr int X_STRIDE = 544, X_SCALES = 4 * X_STRIDE;

// store_quantized quantizes elements 8i to 8i+7 of x to int8 by blocks of 32 (absmax). All lanes
// of a warp call it.
template <int TYPE>
__device__ __forceinline__ void store_quantized(u8* x, int i, const float v[8]) {
	float top = fabsf(v[0]);
	for (int j = 1; j < 8; j++) top = max_nan(top, fabsf(v[j]));
	for (int m = 1; m < 4; m *= 2) top = max_nan(top, __shfl_xor_sync(FULL_MASK, top, m));
	float per = top > 1e-36f ? fast_div(127, top) : 0;
	u32 word[2];
	for (int h = 0; h < 2; h++) {
		u32 q[4];  // 1.5·2²³ + v rounds v to the lowest byte
		for (int j = 0; j < 4; j++) q[j] = __float_as_uint(v[h * 4 + j] * per + 12582912.0f);
		word[h] = __byte_perm(__byte_perm(q[0], q[1], 0x0040), __byte_perm(q[2], q[3], 0x0040), 0x5410);
	}
	int e = i * 8, in = e % 2048;
	int of = TYPE == Q6_K ? in / 128 * 2 + in / 16 % 2 : in / 64, piece = TYPE == Q6_K ? in / 32 % 4 : in / 16 % 4;
	u8* tile = x + e / 2048 * GemvChunk<TYPE>::X;
	*(u64*)(tile + piece * X_STRIDE + of * 16 + in % 16) = word[0] | (u64)word[1] << 32;
	if (in % 32 == 0) ((float*)(tile + X_SCALES))[in / 32] = top * (1 / 127.0f);
}

// quantize_x fills shared memory with x, multiplied by the weights of the norm, and returns the
// thread's part of its sum of squares. Loops stay rolled: a launch starts with a cold
// instruction cache.
template <int TYPE>
__device__ __forceinline__ float quantize_x(const GemvArgs& a, u8* x) {
	constexpr int HOLD = 2;  // loads of 8 elements in flight per thread
	float squares = 0;
	int n = (int)a.k / 8, whole = (n + WARP - 1) / WARP * WARP;  // lanes beyond n store zeros
#pragma unroll 1
	for (int base = threadIdx.x; base < whole; base += HOLD * blockDim.x) {
		float v[HOLD][8];
#pragma unroll
		for (int j = 0; j < HOLD; j++) {
			int i = base + j * blockDim.x;
			if (i >= n) {
				for (int u = 0; u < 8; u++) v[j][u] = 0;
				continue;
			}
			ld_cg4(v[j], a.x + 8 * i);
			ld_cg4(v[j] + 4, a.x + 8 * i + 4);
		}
#pragma unroll 1
		for (int i = base; i < min_of(whole, base + HOLD * (int)blockDim.x); i += blockDim.x) {
			if (a.norm && i < n) {
				Word4 norm[2] = {load16(a.norm + 8 * i), load16(a.norm + 8 * i + 4)};
				for (int u = 0; u < 8; u++) {
					squares += v[0][u] * v[0][u];
					v[0][u] *= __uint_as_float(norm[u / 4].w[u % 4]);
				}
			}
			store_quantized<TYPE>(x, i, v[0]);
			for (int u = 0; u < 8; u++) {
				for (int j = 1; j < HOLD; j++) v[j - 1][u] = v[j][u];
			}
		}
	}
	return squares;
}

// XFragment is a lane's part of a chunk of x. For a quantized type: int8 in the order of the
// weights' bytes, scales of each 32, their sums for weights with minima, and start values of
// the integer sums, which subtract the zero points.
template <int TYPE, bool = GemvChunk<TYPE>::QUANTIZED>
struct XFragment {
	u32 v[18];
	float d[4], sum[2];
	int start[4];
	u32 block, at;    // byte offsets of the lane's block and weights in a chunk
	const float* scales;  // for Q6_K, which has no registers left for them
	u32 pick, later;  // byte_perm selector and mask for its scales of a block of Q4_K or Q5_K
};
template <int TYPE>
struct XFragment<TYPE, false> {
	float v[GemvChunk<TYPE>::WEIGHTS / WARP];
};

// shift_two_bytes moves 32 bytes of x up by two, for a block whose integers start 2 past a
// multiple of 4; the bytes before and after it are multiplied by zeros.
__device__ __forceinline__ void shift_two_bytes(u32* to, const u32* x, int words) {
#pragma unroll
	for (int i = 0; i <= words; i++) to[i] = __byte_perm(i > 0 ? x[i - 1] : 0, i < words ? x[i] : 0, 0x5432);
}

// load_x loads the fragment of a chunk of a quantized type.
template <int TYPE>
__device__ __forceinline__ XFragment<TYPE> load_x(const u8* x, int chunk) {
	x += chunk * GemvChunk<TYPE>::X;
	XFragment<TYPE> t;
	u32 v[16];
	int sum[4];
#pragma unroll
	for (int p = 0; p < 4; p++) {
		Word4 w = load16(x + p * X_STRIDE + lane() * 16);
		sum[p] = 0;
		for (int i = 0; i < 4; i++) {
			v[p * 4 + i] = w.w[i];
			sum[p] = __dp4a((int)w.w[i], 0x01010101, sum[p]);
		}
	}
	const float* d = (const float*)(x + X_SCALES) + lane() * 2;
	if (TYPE == Q6_K) {
		for (int p = 0; p < 4; p++) {
			t.start[p] = -32 * sum[p];
		}
		t.scales = d - lane() % 2 * 2;
	} else {
		for (int h = 0; h < 2; h++) {
			t.d[h] = d[h];
			t.sum[h] = t.d[h] * (float)(sum[2 * h] + sum[2 * h + 1]);
			t.start[h] = -128 * (sum[2 * h] + sum[2 * h + 1]);
		}
	}
	if (TYPE == Q8_0) {
		shift_two_bytes(t.v, v, 8);
		for (int i = 0; i < 8; i++) t.v[9 + i] = v[8 + i];
	} else if (TYPE == Q4_0) {
		shift_two_bytes(t.v, v, 4);
		shift_two_bytes(t.v + 5, v + 4, 4);
		for (int i = 0; i < 8; i++) t.v[10 + i] = v[8 + i];
	} else {
		for (int i = 0; i < 16; i++) t.v[i] = v[i];
	}
	int quarter = lane() % 4;
	t.pick = 0x5410 + 0x2222 * (quarter % 2);
	t.later = quarter < 2 ? 0 : 0x0f0f0f0fu;
	t.block = lane() / 4 * (TYPE == Q4_K ? 144 : 176);
	t.at = t.block + (TYPE == Q4_K ? 16 : 48) + quarter * 32;
	keep_in_register(t.pick);
	keep_in_register(t.later);
	keep_in_register(t.block);
	keep_in_register(t.at);
	// Integer sums of a multiple of the weights: the scale makes up for it.
	if (TYPE == Q4_0) t.d[0] *= 1 / 16.0f;
	if (TYPE == Q4_0 || TYPE == Q4_K) t.d[1] *= 1 / 16.0f;
	if (TYPE == Q5_K) t.d[1] *= 0.5f;
	return t;
}

// PlainX is a lane's view of a vector for a chunk of a plain type, of which the lane has every
// 32nd 16 bytes.
template <int TYPE>
struct PlainX {
	const float* at;
	int left;

	__device__ __forceinline__ PlainX(const float* v, i64 k, int chunk) {
		int first = chunk * GemvChunk<TYPE>::WEIGHTS + lane() * (TYPE == F32 ? 4 : 8);
		at = v + first;
		left = (int)k - first;
	}
	// load4 loads what meets weights i to i+3 of the lane; zeros beyond the end.
	__device__ __forceinline__ Word4 load4(int i) const {
		int to = TYPE == F32 ? i * WARP : i / 8 * 8 * WARP + i % 8;
		if (to < left) return load16(at + to);
		return {{0, 0, 0, 0}};
	}
};

// load_norm loads the weights of the norm for a chunk of a plain type, or ones.
template <int TYPE>
__device__ __forceinline__ void load_norm(XFragment<TYPE>& t, const GemvArgs& a, int chunk) {
	PlainX<TYPE> norm(a.norm, a.norm ? a.k : 0, chunk);
#pragma unroll
	for (int i = 0; i < GemvChunk<TYPE>::WEIGHTS / WARP; i += 4) {
		Word4 w = norm.load4(i);
#pragma unroll
		for (int j = 0; j < 4; j++) t.v[i + j] = a.norm ? __uint_as_float(w.w[j]) : 1;
	}
}

// multiply_x multiplies x into what load_norm loaded, and adds its squares to square.
template <int TYPE>
__device__ __forceinline__ void multiply_x(XFragment<TYPE>& t, float& square, const GemvArgs& a, int chunk) {
	constexpr int IN_FLIGHT = 16;  // elements loaded at once, limited by registers
	PlainX<TYPE> x(a.x, a.k, chunk);
#pragma unroll
	for (int base = 0; base < GemvChunk<TYPE>::WEIGHTS / WARP; base += IN_FLIGHT) {
		Word4 w[IN_FLIGHT / 4];
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i += 4) w[i / 4] = x.load4(base + i);
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			float v = __uint_as_float(w[i / 4].w[i % 4]);
			square += v * v;
			t.v[base + i] *= v;
		}
	}
}

__device__ __forceinline__ float half_of(const u8* at) { return from_half(*(const u16*)at); }

// byte_of converts byte t of a word to float, through the mantissa of 2²³.
__device__ __forceinline__ float byte_of(u32 word, int t) { return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650 + t)) - 8388608; }

// dot is a lane's part of the dot product of a chunk of a quantized type at w with x.
template <int TYPE>
__device__ __forceinline__ float dot(const u8* w, const XFragment<TYPE, true>& x) {
	if (TYPE == Q8_0) {
		// Two blocks of 34 bytes: 17 words per lane, an odd stride, so without bank conflicts.
		const u32* b = (const u32*)w + lane() * 17;
		u32 first = b[0], middle = b[8];
		int one = __dp4a((int)first, (int)x.v[0], 0), two = 0;
#pragma unroll
		for (int i = 1; i < 8; i++) one = __dp4a((int)b[i], (int)x.v[i], one);
		one = __dp4a((int)middle, (int)x.v[8], one);
#pragma unroll
		for (int i = 9; i < 17; i++) two = __dp4a((int)b[i], (int)x.v[i], two);
		return from_half((u16)first) * x.d[0] * (float)one + from_half((u16)(middle >> 16)) * x.d[1] * (float)two;
	}
	if (TYPE == Q4_0) {
		// Two blocks of 18 bytes: 9 words per lane.
		const u32* b = (const u32*)w + lane() * 9;
		u32 first = b[0], middle = b[4];
		float sum = 0;
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int low = 0, high = x.start[h];
#pragma unroll
			for (int i = 0; i < 5 - h; i++) {
				u32 word = h ? b[5 + i] : i == 0 ? first : i == 4 ? middle : b[i];
				low = dp4a_u8s8(word & 0x0f0f0f0fu, x.v[h * 10 + i], low);
				high = dp4a_u8s8(word & 0xf0f0f0f0u, x.v[h * 10 + 5 - h + i], high);
			}
			sum += from_half((u16)(h ? middle >> 16 : first)) * x.d[h] * (float)(low * 16 + high);
		}
		return sum;
	}
	if (TYPE == Q4_K || TYPE == Q5_K) {
		// A quarter of a superblock: 32 bytes, whose low and high nibbles are two groups of 32 weights.
		const u8 *b = w + x.block, *q = w + x.at;
		// Bytes 0 and 1 of scales are the lane's two scales, 2 and 3 the minima. Those of the second
		// half of a superblock have their low 4 bits elsewhere.
		Word4 head = load16(b);
		u32 early = __byte_perm(head.w[1], head.w[2], x.pick) >> (x.later & 2), shift_two_bytes = __byte_perm(head.w[3], head.w[3] >> 4, x.pick);
		u32 scales = ((early & ~x.later) | (shift_two_bytes & x.later)) & 0x3f3f3f3fu;
		int one = 0, two = 0;
#pragma unroll
		for (int u = 0; u < 2; u++) {
			Word4 v = load16(q + u * 16), high;
			if (TYPE == Q5_K) high = load16(b + 16 + u * 16);
#pragma unroll
			for (int i = 0; i < 4; i++) {
				u32 low = v.w[i] & 0x0f0f0f0fu, up = v.w[i] & 0xf0f0f0f0u;
				if (TYPE == Q5_K) {
					u32 bits = high.w[i] >> 2 * (lane() % 4);
					low |= bits << 4 & 0x10101010u;
					up = (v.w[i] >> 3 & 0x1e1e1e1eu) | (bits << 4 & 0x20202020u);
				}
				one = dp4a_u8s8(low, x.v[u * 4 + i], one);
				two = dp4a_u8s8(up, x.v[8 + u * 4 + i], two);
			}
		}
		float plus = x.d[0] * (float)(one * (int)(scales & 255)) + x.d[1] * (float)(two * (int)(scales >> 8 & 255));
		float minus = x.sum[0] * byte_of(scales, 2) + x.sum[1] * byte_of(scales, 3);
		return from_half((u16)head.w[0]) * plus - from_half((u16)(head.w[0] >> 16)) * minus;
	}
	// Q6_K: 210 bytes, so every other block is 2 past a multiple of 4.
	int half = lane() / 2 % 2, part = lane() % 2;
	const u8 *b = w + lane() / 4 * 210, *q = b + half * 64 + part * 16;
	bool odd = (u64)b % 4;
	u32 pick = odd ? 0x5432 : 0x3210;
	auto read = [&](Word4& v, const u8* at) {
		const u32* p = (const u32*)(odd ? at - 2 : at);
		u32 next[5] = {p[0], p[1], p[2], p[3], p[4]};
		for (int i = 0; i < 4; i++) v.w[i] = __byte_perm(next[i], next[i + 1], pick);
	};
	Word4 low[2], high;
	read(low[0], q);
	read(low[1], q + 32);
	read(high, b + 128 + half * 32 + part * 16);
	const signed char* scale = (const signed char*)b + 192 + half * 8 + part;
	Word4 d = load16(x.scales);
	float sum = 0;
#pragma unroll
	for (int t = 0; t < 4; t++) {
		int products = x.start[t];
		for (int i = 0; i < 4; i++) {
			u32 bits = t == 0 ? high.w[i] << 4 : t == 1 ? high.w[i] << 2 : t == 2 ? high.w[i] : high.w[i] >> 2;
			products = dp4a_u8s8((low[t % 2].w[i] >> (t / 2 * 4) & 0x0f0f0f0fu) | (bits & 0x30303030u), x.v[t * 4 + i], products);
		}
		sum += __uint_as_float(d.w[t]) * (float)(products * (int)scale[2 * t]);
	}
	return sum * half_of(b + 208);
}

// The same for plain types.
template <int TYPE>
__device__ __forceinline__ float dot(const u8* w, const XFragment<TYPE, false>& x) {
	constexpr int EACH = TYPE == F32 ? 4 : 8;  // weights in 16 bytes
	float sums[4] = {0, 0, 0, 0};
#pragma unroll
	for (int u = 0; u < GemvChunk<TYPE>::BYTES / 16 / WARP; u++) {
		Word4 v = load16(w + (u * WARP + lane()) * 16);
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			float weight;
			if (TYPE == F32) {
				weight = __uint_as_float(v.w[j]);
			} else {
				u16 bits = (u16)(v.w[j / 2] >> j % 2 * 16);
				weight = TYPE == F16 ? from_half(bits) : from_bfloat(bits);
			}
			sums[j % 4] += weight * x.v[u * EACH + j];
		}
	}
	return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// fold_lanes is a butterfly step for two sums at once over lanes that differ in bit m: the lower
// lane of a pair goes on with a, the upper one with b.
__device__ __forceinline__ float fold_lanes(float a, float b, int m) {
	bool upper = lane() & m;
	return (upper ? b : a) + __shfl_xor_sync(FULL_MASK, upper ? a : b, m);
}

// reduce_rows reduces the sums of two or four rows over the lanes at once: each half or quarter
// of the warp ends up with the sum of one row.
template <int ROWS>
__device__ __forceinline__ float reduce_rows(const float sums[ROWS]) {
	float sum = fold_lanes(sums[0], sums[1], 16);
	if (ROWS == 4) sum = fold_lanes(sum, fold_lanes(sums[ROWS - 2], sums[ROWS - 1], 16), 8);
	for (int m = WARP / ROWS / 2; m > 0; m /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, m);
	return sum;
}

// prepare_rope finds where the row's first head lies in the cache, -1 for nowhere, and cosine
// and sine of the pairs among the block's rows. It reads positions, lengths and page tables,
// which the host has written, so it runs before pdl_wait.
template <class Matrix, class RowOf>
__device__ __forceinline__ void prepare_rope(const GemvQKVArgs& heads, int rows, i64* stored, float* rotations, Matrix matrix, RowOf row_of) {
	const PagedKV& g = heads.g;
	if (threadIdx.x == 0) {
		int n = g.len[0], page = -1;
		if (n >= g.rows && n <= g.width * PAGE) page = g.table[(n - 1) / PAGE];
		stored[0] = page < 0 || page >= g.count ? -1 : kv_offset(g, page, 0, (n - 1) % PAGE);
	}
	for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
		int m = matrix(v), pair = row_of(v, m) % (int)heads.g.dim / 2;
		if (heads.role[m] == 2 || pair >= heads.pairs) continue;
		double sine, cosine;
		sincos((double)heads.pos[0] * (double)heads.freqs[pair], &sine, &cosine);
		rotations[v] = (float)(cosine * heads.scale);
		rotations[v + 1] = (float)(sine * heads.scale);
	}
}

// norm_scale is 1 / sqrt(mean(x²) + eps) from the threads' sums of squares, of which the first
// warps have some; 1 without a norm. It ends the main loop with a block barrier.
__device__ __forceinline__ float norm_scale(const GemvArgs& a, float square, float* squares, int warps) {
	if (a.norm) {
		square = reduce_warp(square, Plus());
		if (lane() == 0 && warp() < warps) squares[warp()] = square;
	}
	__syncthreads();
	float scale = 1;
	if (a.norm) {
		float sum = 0;
		for (int i = 0; i < warps; i++) sum += squares[i];
		scale = rsqrtf(fast_div(sum, (float)a.k) + (float)a.eps);
	}
	return scale;
}

// store_qkv is the epilogue of q, k and v: RoPE of q and k, append of k and v at base, the
// offset that prepare_rope found. A thread takes a pair of rows; total(v) is the product of row v.
template <class Matrix, class RowOf, class Total>
__device__ __forceinline__ void store_qkv(const GemvArgs& a, const GemvQKVArgs& heads, int rows, i64 base, const float* rotations, Matrix matrix, RowOf row_of, Total total) {
	const PagedKV& g = heads.g;
	if (base < 0) {
		RowPosition at = row_position(g, 0);  // records the failure
		if (at.p >= 0) page_of(g, at.slot, at.p / PAGE);
	}
	for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
		int m = matrix(v), row = row_of(v, m), role = (int)heads.role[m], d = row % (int)g.dim;
		int first = pair_row(heads, m, row), next = pair_row(heads, m, row + 1) - first;
		float one = total(v), two = total(v + 1);
		if (heads.bias[m]) {
			one += heads.bias[m][first];
			two += heads.bias[m][first + next];
		}
		if (role < 2 && d / 2 < heads.pairs) {
			float u = one, cosine = rotations[v], sine = rotations[v + 1];
			one = u * cosine - two * sine;
			two = u * sine + two * cosine;
		}
		a.dst[m][first] = one;
		a.dst[m][first + next] = two;
		if (role == 0 || base < 0) continue;
		void* cache = role == 1 ? g.k : g.v;
		i64 to = base + (i64)(row / (int)g.dim) * PAGE * g.dim + d + first - row;
		if (g.half) {
			((u16*)cache)[to] = to_half(one);
			((u16*)cache)[to + next] = to_half(two);
		} else {
			((float*)cache)[to] = one;
			((float*)cache)[to + next] = two;
		}
	}
}

// zero_tails zeroes what copies of size bytes leave of the stages of a pipeline.
template <class C>
__device__ __forceinline__ void zero_tails(u8* ring, int size) {
	for (int at = lane() * 16; at < C::STAGES * C::BYTES; at += WARP * 16) {
		if (at % C::BYTES >= size) *(Word4*)(ring + at) = {{0, 0, 0, 0}};
	}
}

// store_rows is the epilogue of rows lo to hi-1: store, SwiGLU, or add to dst, of which before is
// what the thread's first sum is added to for quantized weights.
template <bool QUANTIZED, class Matrix, class RowOf, class Total>
__device__ __forceinline__ void store_rows(const GemvArgs& a, int lo, int hi, float before, Matrix matrix, RowOf row_of, Total total) {
	for (int v = threadIdx.x; v < hi - lo; v += blockDim.x) {
		float sum = total(v);
		if (a.mode == GATE) {
			a.dst[0][lo + v] = fast_div(sum, 1 + expf(-sum)) * total(hi - lo + v);
			continue;
		}
		int m = matrix(v);
		float* to = a.dst[m] + row_of(v, m);
		*to = a.mode != ADD ? sum : (QUANTIZED && v == (int)threadIdx.x ? before : *to) + sum;
	}
}

// gemv: grid (SMs), GEMV_THREADS threads. HEADS: q, k and v with RoPE and append.
template <int TYPE, bool HEADS>
__device__ __forceinline__ void gemv(const GemvArgs& a, const GemvQKVArgs* heads) {
	typedef GemvChunk<TYPE> C;
	constexpr int ROWS = C::QUANTIZED ? 2 : 4;  // rows whose sums are reduced over the lanes at once
	DYNAMIC_SHARED(u8, x);
	SHARED(float, squares, GEMV_THREADS / WARP);  // partial sums of x² by warp
	pdl_trigger();
	// The block takes rows lo to hi-1 of the matrices laid end to end; with GATE, rows lo to hi-1
	// of w[0] and of w[1].
	int items = (int)a.n[0] + (a.mode == GATE ? 0 : (int)a.n[1] + (int)a.n[2]);
	constexpr int WHOLE = HEADS ? 2 : 1;  // rows that stay in one block: a rotated pair
	int lo = (int)((i64)(items / WHOLE) * blockIdx.x / gridDim.x) * WHOLE, hi = (int)((i64)(items / WHOLE) * (blockIdx.x + 1) / gridDim.x) * WHOLE;
	int chunks = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS, slots = (int)a.slots, warps = blockDim.x / WARP;
	int rows = a.mode == GATE ? 2 * (hi - lo) : hi - lo;
	// Maps row v of the block to a matrix and a row of it.
	int end0 = a.mode == GATE ? hi - lo : (int)a.n[0] - lo, end1 = a.mode == GATE ? rows : (int)(a.n[0] + a.n[1]) - lo;
	auto matrix = [&](int v) { return v < end0 ? 0 : v < end1 ? 1 : 2; };
	auto row_of = [&](int v, int m) { return m == 0 || a.mode == GATE ? lo + v - m * (hi - lo) : m == 1 ? v - end0 : v - end1; };

	float *parts = (float*)(x + chunks * C::X), *rotations = parts + rows * chunks;  // [rows, chunks]; with HEADS [rows]: cosine and sine of each pair
	u8* ring = x + chunks * C::X + (rows * (chunks + (HEADS ? 1 : 0)) * 4 + 15) / 16 * 16 + warp() * C::STAGES * C::SLOT;
	// A warp takes every groups-th row from first on, of these chunk `chunk`; if warps are fewer
	// than chunks, one chunk after the other.
	int first = warp() / slots, groups = warps / slots, chunk = warp() % slots;

	int load = 0, border = 0, size = 0;  // next row to load, the row where its matrix ends, bytes of the chunk
	const u8* from;
	u8* slot;  // stage of the pipeline to be used next
	u32 shifts = 0;  // where the rows start in the stages, 4 bits each, the next one lowest
	auto load_stage = [&]() {
		shifts >>= 4;
		if (load < rows) {
			if (load >= border || HEADS && heads->halves) {
				int m = matrix(load), row = row_of(load, m);
				border = m == 0 ? end0 : m == 1 ? end1 : rows;
				from = a.w[m] + (HEADS ? pair_row(*heads, m, row) : row) * a.row + chunk * C::BYTES + lane() * 16;
			}
			u8* to = slot + lane() * 16;
			int shift = C::SHIFTED ? (int)((u64)from % 16) : 0;
			shifts |= (u32)shift << 4 * (C::STAGES - 1);
#pragma unroll
			for (int at = 0; at < C::SLOT; at += WARP * 16) {
				if (lane() * 16 < size + shift - at) cp_async(to + at, from - shift + at);
			}
			load += groups;
			from += groups * a.row;
		}
		cp_async_commit();
		slot = slot == ring + (C::STAGES - 1) * C::SLOT ? ring : slot + C::SLOT;
	};
	// fill starts the pipeline on the warp's chunk.
	auto fill = [&]() {
		size = min_of((int)a.row - chunk * C::BYTES, C::BYTES);
		load = first, border = 0, slot = ring;
		if (!C::QUANTIZED && size < C::BYTES) zero_tails<C>(ring, size);
#pragma unroll 1
		for (int i = 0; i < C::STAGES; i++) load_stage();
	};
	if (!a.fixed) pdl_wait();
	fill();
	SHARED(i64, stored, 1);  // offset of the row's first head in the cache, -1 for none
	if (HEADS) {
		prepare_rope(*heads, rows, stored, rotations, matrix, row_of);
	}
	XFragment<TYPE> mine;
	float square = 0;
	if constexpr (C::QUANTIZED) {
		for (int i = threadIdx.x * 32; a.norm && i < (int)a.k; i += blockDim.x * 32) prefetch_l2(a.norm + i);
	} else {
		load_norm<TYPE>(mine, a, chunk);
	}
	if (a.fixed) pdl_wait();
	if constexpr (C::QUANTIZED) {
		square = quantize_x<TYPE>(a, x);
		__syncthreads();
	}
	// The residual is loaded before it is needed.
	bool adds = C::QUANTIZED && a.mode == ADD && (int)threadIdx.x < hi - lo;
	float before = adds ? ld_cg(a.dst[0] + lo + threadIdx.x) : 0;
	while (chunk < chunks) {
		int there = (int)a.k - chunk * C::WEIGHTS;
		if constexpr (C::QUANTIZED) {
			mine = load_x<TYPE>(x, chunk);
		} else {
			multiply_x<TYPE>(mine, square, a, chunk);
		}
		for (int v = first; v < rows; v += ROWS * groups) {
			float sums[ROWS];
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				cp_async_wait<C::STAGES - 1>();
				// A lane of a plain type reads back what it has copied itself. Rows beyond the end give sums
				// that are dropped.
				if constexpr (C::QUANTIZED) {
					__syncwarp();
					sums[r] = dot<TYPE>(slot + shifts % 16, mine);
					if (lane() * 64 >= there) sums[r] = 0;
					__syncwarp();
				} else {
					sums[r] = dot<TYPE>(slot, mine);
				}
				load_stage();
			}
			float sum = reduce_rows<ROWS>(sums);
			int row = v + (lane() / 16 + (ROWS == 4 ? lane() / 8 % 2 * 2 : 0)) * groups;
			if (lane() % (WARP / ROWS) == 0 && row < rows) parts[row * chunks + chunk] = sum;
		}
		chunk += slots;
		if (chunk >= chunks) break;
		fill();
		if constexpr (!C::QUANTIZED) load_norm<TYPE>(mine, a, chunk);
	}
	float scale = norm_scale(a, square, squares, C::QUANTIZED ? warps : slots);
	auto total = [&](int v) {
		float sum = 0;
#pragma unroll 1
		for (int c = 0; c < chunks; c++) sum += parts[v * chunks + c];
		return sum * scale;
	};
	if (HEADS) {
		store_qkv(a, *heads, rows, stored[0], rotations, matrix, row_of, total);
		return;
	}
	store_rows<C::QUANTIZED>(a, lo, hi, before, matrix, row_of, total);
}

KERNEL_2_PER_SM(gemv_f32, GemvArgs, GEMV_THREADS) { gemv<F32, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_f16, GemvArgs, GEMV_THREADS) { gemv<F16, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_bf16, GemvArgs, GEMV_THREADS) { gemv<BF16, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_q4_0, GemvArgs, GEMV_THREADS) { gemv<Q4_0, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_q8_0, GemvArgs, GEMV_THREADS) { gemv<Q8_0, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_q4_k, GemvArgs, GEMV_THREADS) { gemv<Q4_K, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_q5_k, GemvArgs, GEMV_THREADS) { gemv<Q5_K, false>(a, nullptr); }
KERNEL_2_PER_SM(gemv_q6_k, GemvArgs, GEMV_THREADS) { gemv<Q6_K, false>(a, nullptr); }

KERNEL_2_PER_SM(gemv_qkv_f32, GemvQKVArgs, GEMV_THREADS) { gemv<F32, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_f16, GemvQKVArgs, GEMV_THREADS) { gemv<F16, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_bf16, GemvQKVArgs, GEMV_THREADS) { gemv<BF16, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_q4_0, GemvQKVArgs, GEMV_THREADS) { gemv<Q4_0, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_q8_0, GemvQKVArgs, GEMV_THREADS) { gemv<Q8_0, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_q4_k, GemvQKVArgs, GEMV_THREADS) { gemv<Q4_K, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_q5_k, GemvQKVArgs, GEMV_THREADS) { gemv<Q5_K, true>(a.s, &a); }
KERNEL_2_PER_SM(gemv_qkv_q6_k, GemvQKVArgs, GEMV_THREADS) { gemv<Q6_K, true>(a.s, &a); }
