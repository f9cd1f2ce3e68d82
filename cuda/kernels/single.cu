// Products of one row with matrices, dst = x·wᵀ: what a decode step does for one
// sequence, bound by reading the matrices once. Checked against matmul.cu.
//
// A block for each multiprocessor stays for the whole launch. It makes x ready in
// shared memory, normalized if asked to, and with 8 bits where the weights are
// quantized; a warp takes every so many-th row of the matrices, whose chunks lie
// one behind the other in a ring of its own in shared memory. The ring is filled
// with the first chunks before x is there: weights do not wait for the kernels
// before, so that memory is busy between launches too.
#include "args.cuh"
#include "few.cuh"
#include "reduce.cuh"

// What becomes of a product.
enum { STORE, ADD, GATE };  // GATE: dst = silu(x·w[0]ᵀ)·(x·w[1]ᵀ)

struct SingleArgs {
	const float* x;     // [k]
	const float* norm;  // [k]: x is normalized and multiplied by it; NULL: x as it is
	f64 eps;
	float* dst[3];      // [n]
	const u8* w[3];     // [n, k], of the type
	i64 n[3];
	i64 k, row;  // row: bytes of a row of w
	i64 matrices;  // of which the rows are dealt to warps: 1 for GATE, whose others follow them
	i64 mode;
	i64 fixed;  // no kernel writes w
};

constexpr int SINGLE_THREADS = 512;

// Chunk is how a type is cut: WEIGHTS of a row in BYTES, STAGES of them in a ring.
template <int TYPE>
struct Chunk {
	static constexpr bool QUANTIZED = TYPE >= Q4_0;
	static constexpr int WEIGHTS = QUANTIZED ? 2048 : TYPE == F32 ? 256 : 512;
	static constexpr int BYTES = TYPE == Q4_0 || TYPE == Q4_K ? 1152 : TYPE == Q8_0 ? 2176 : TYPE == Q5_K ? 1408 : TYPE == Q6_K ? 1680 : 1024;
	static constexpr int STAGES = BYTES < 1408 ? 4 : 3;
	static constexpr int X = QUANTIZED ? 3072 : WEIGHTS * 4;  // bytes of the part of x that meets a chunk
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
// [4][32][16] bytes; their 4 scales, f32 [32][4]; and their 4 sums, i32 [32][4].
constexpr int X_SCALES = 2048, X_SUMS = 2560;

// put stores numbers 4i to 4i+3 of x. All lanes of a warp call it.
template <int TYPE>
__device__ __forceinline__ void put(u8* x, int i, const float v[4]) {
	if (!Chunk<TYPE>::QUANTIZED) {
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
	u8* tile = x + e / 2048 * Chunk<TYPE>::X;
	*(u32*)(tile + piece * 512 + of * 16 + e % 16) = word;
	if (e % 16) return;
	((float*)(tile + X_SCALES))[of * 4 + piece] = d;
	((int*)(tile + X_SUMS))[of * 4 + piece] = sum;
}

constexpr int HOLD = 4;  // times 4 numbers that a thread has of x at once

// Norms is a thread's part of the weights of a norm.
struct Norms {
	Word4 w[HOLD];
};

__device__ __forceinline__ Norms norms_of(const SingleArgs& a) {
	Norms n;
#pragma unroll
	for (int j = 0; j < HOLD; j++) {
		int i = j * blockDim.x + threadIdx.x;
		n.w[j] = {{0, 0, 0, 0}};
		if (a.norm && i < (int)a.k / 4) n.w[j] = load16(a.norm + 4 * i);
	}
	return n;
}

// prepare makes x ready. A row that is normalized is no longer than what all
// threads hold.
template <int TYPE>
__device__ __forceinline__ void prepare(const SingleArgs& a, const Norms& norms, u8* x) {
	int n = (int)a.k / 4;
	for (int base = 0; base < n; base += HOLD * blockDim.x) {
		float v[HOLD][4];
		float sum = 0;
#pragma unroll
		for (int j = 0; j < HOLD; j++) {
			int i = base + j * blockDim.x + threadIdx.x;
			Word4 word = {{0, 0, 0, 0}};
			if (i < n) word = load16(a.x + 4 * i);
			for (int u = 0; u < 4; u++) {
				v[j][u] = __uint_as_float(word.w[u]);
				sum += v[j][u] * v[j][u];
			}
		}
		if (a.norm) {
			float scale = 1 / sqrtf(reduce_block(sum, 0.0f, Plus()) / (float)a.k + (float)a.eps);
#pragma unroll
			for (int j = 0; j < HOLD; j++) {
				for (int u = 0; u < 4; u++) v[j][u] = v[j][u] * scale * __uint_as_float(norms.w[j].w[u]);
			}
		}
#pragma unroll
		for (int j = 0; j < HOLD; j++) {
			int i = base + j * blockDim.x + threadIdx.x;
			if (i < n) put<TYPE>(x, i, v[j]);
		}
	}
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

// dot is a lane's part of the product of a chunk at w with what meets it at x.
template <int TYPE>
__device__ __forceinline__ float dot(const u8* w, const u8* x) {
	Share g = share_of_lane(lane());
	Word4 d4 = load16(x + X_SCALES + lane() * 16), s4 = load16(x + X_SUMS + lane() * 16);
	const u8* mine = x + lane() * 16;
	float sum = 0;
	if (TYPE == Q8_0 || TYPE == Q4_0) {
		constexpr int SIZE = TYPE == Q8_0 ? 34 : 18;
		const u8* b = w + (g.block * 8 + g.half * 4) * SIZE;
#pragma unroll
		for (int t = 0; t < 4; t++, b += SIZE) {
			const u8* q = b + 2 + (TYPE == Q8_0 ? g.part * 16 : 0);
			Word4 v = t % 2 ? even16(q) : odd16(q);
			int minus = 0;
			if (TYPE == Q4_0) {
				for (int i = 0; i < 4; i++) v.w[i] = v.w[i] >> (g.part * 4) & 0x0f0f0f0fu;
				minus = 8 * (int)s4.w[t];
			}
			sum += half_of(b) * __uint_as_float(d4.w[t]) * (float)(dot16(v.w, load16(mine + t * 512)) - minus);
		}
	}
	if (TYPE == Q4_K || TYPE == Q5_K) {
		const u8* b = w + g.block * (TYPE == Q4_K ? 144 : 176);
		Word4 head = load16(b), high;
		u32 scale = head.w[1] & 0x3f3f3f3fu, least = head.w[2] & 0x3f3f3f3fu;
		if (g.half) {
			scale = (head.w[3] & 0x0f0f0f0fu) | (head.w[1] >> 2 & 0x30303030u);
			least = (head.w[3] >> 4 & 0x0f0f0f0fu) | (head.w[2] >> 2 & 0x30303030u);
		}
		if (TYPE == Q5_K) {
			high = load16(b + 16 + g.part * 16);
			for (int i = 0; i < 4; i++) high.w[i] >>= g.half * 4;
		}
		const u8* q = b + (TYPE == Q4_K ? 16 : 48) + g.half * 64 + g.part * 16;
		float plus = 0, minus = 0;
#pragma unroll
		for (int t = 0; t < 4; t++) {
			Word4 v = load16(q + t / 2 * 32);
			for (int i = 0; i < 4; i++) {
				v.w[i] = v.w[i] >> (t % 2 * 4) & 0x0f0f0f0fu;
				if (TYPE == Q5_K) v.w[i] |= (high.w[i] >> t & 0x01010101u) << 4;
			}
			float d = __uint_as_float(d4.w[t]);
			plus += d * (float)(dot16(v.w, load16(mine + t * 512)) * (int)(scale >> 8 * t & 255));
			minus += d * (float)((int)s4.w[t] * (int)(least >> 8 * t & 255));
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
			int whole = dot16(v, load16(mine + t * 512)) - 32 * (int)s4.w[t];
			sum += __uint_as_float(d4.w[t]) * (float)(whole * (int)scale[2 * t]);
		}
		sum *= half_of(b + 208);
	}
	return sum;
}

// dot_plain is dot of a type without blocks, of which left weights are there.
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
				u16 bits = (u16)(v.w[h * 2 + j / 2] >> j % 2 * 16);
				sum += (TYPE == F16 ? from_half(bits) : from_bfloat(bits)) * __uint_as_float(y.w[j]);
			}
		}
	}
	return sum;
}

// Cursor is the row where a warp is.
struct Cursor {
	int m, c;    // matrix and row of it
	int second;  // GATE: the row of w[1]
	bool there;
	const u8* row;

	// settle makes c a row of a matrix.
	__device__ __forceinline__ void settle(const SingleArgs& a) {
		while (there && c >= (int)a.n[m]) {
			c -= (int)a.n[m];
			there = ++m < (int)a.matrices;
		}
		if (there) row = a.w[m] + (i64)c * a.row;
	}

	__device__ __forceinline__ void next(const SingleArgs& a, int step) {
		if (a.mode == GATE) {
			second ^= 1;
			if (second) {
				row = a.w[1] + (i64)c * a.row;
				return;
			}
		}
		c += step;
		settle(a);
	}
};

template <int TYPE>
__device__ __forceinline__ void single(const SingleArgs& a) {
	typedef Chunk<TYPE> C;
	DYNAMIC(u8, x);
	let_next();
	int chunks = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS, step = gridDim.x * (blockDim.x / WARP);
	int tail = (int)a.row - (chunks - 1) * C::BYTES;  // bytes of the last chunk of a row
	u8* ring = x + chunks * C::X + warp() * C::STAGES * C::BYTES;
	Cursor use = {0, warp() * (int)gridDim.x + (int)blockIdx.x, 0, true, nullptr};
	use.settle(a);
	Cursor load = use;
	int left = chunks;  // of the row that is loaded
	u8* slot = ring + lane() * 16;
	auto bring = [&]() {
		if (load.there) {
			int size = left == 1 ? tail : C::BYTES;
#pragma unroll
			for (int i = 0; i < (C::BYTES / 16 + WARP - 1) / WARP; i++) {
				int at = i * WARP * 16;
				if (lane() * 16 < size - at) copy_async(slot + at, load.row + at + lane() * 16);
			}
			load.row += C::BYTES;
			if (--left == 0) {
				left = chunks;
				load.next(a, step);
			}
		}
		copy_commit();
		slot = slot == ring + lane() * 16 + (C::STAGES - 1) * C::BYTES ? slot - (C::STAGES - 1) * C::BYTES : slot + C::BYTES;
	};
	if (!a.fixed) wait_before();
	for (int i = 1; i < C::STAGES; i++) bring();
	Norms norms = norms_of(a);
	if (a.fixed) wait_before();
	prepare<TYPE>(a, norms, x);
	__syncthreads();

	const u8* w = ring;
	float gate = 0;
	for (; use.there; use.next(a, step)) {
		float sum = 0;
		for (int chunk = 0; chunk < chunks; chunk++) {
			__syncwarp();  // all have read what the next chunk overwrites
			bring();
			copy_wait<C::STAGES - 1>();
			__syncwarp();
			int there = (int)a.k - chunk * C::WEIGHTS;
			if (!C::QUANTIZED)
				sum += dot_plain<TYPE>(w, x + chunk * C::X, there);
			else if (share_of_lane(lane()).block * 256 < there)
				sum += dot<TYPE>(w, x + chunk * C::X);
			w = w == ring + (C::STAGES - 1) * C::BYTES ? ring : w + C::BYTES;
		}
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) {
			if (a.mode == STORE) a.dst[use.m][use.c] = sum;
			if (a.mode == ADD) atomicAdd(&a.dst[use.m][use.c], sum);  // alone at that address: it saves the wait for a load
			if (a.mode == GATE && use.second) a.dst[0][use.c] = gate / (1 + expf(-gate)) * sum;
		}
		gate = sum;
	}
}

KERNEL_TWICE(single_f32, SingleArgs, SINGLE_THREADS) { single<F32>(a); }
KERNEL_TWICE(single_f16, SingleArgs, SINGLE_THREADS) { single<F16>(a); }
KERNEL_TWICE(single_bf16, SingleArgs, SINGLE_THREADS) { single<BF16>(a); }
KERNEL_TWICE(single_q4_0, SingleArgs, SINGLE_THREADS) { single<Q4_0>(a); }
KERNEL_TWICE(single_q8_0, SingleArgs, SINGLE_THREADS) { single<Q8_0>(a); }
KERNEL_TWICE(single_q4_k, SingleArgs, SINGLE_THREADS) { single<Q4_K>(a); }
KERNEL_TWICE(single_q5_k, SingleArgs, SINGLE_THREADS) { single<Q5_K>(a); }
KERNEL_TWICE(single_q6_k, SingleArgs, SINGLE_THREADS) { single<Q6_K>(a); }
