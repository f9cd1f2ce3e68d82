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
// of 256, 16 of each 32 in a half. With Group it finds them; groups are dealt to
// lanes such that 8 neighbours read other banks.
struct Group {
	int block, half, part;
};

__device__ __forceinline__ Group group_of(int lane) {
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
	float d = top / 127;
	u32 word = 0;
	int sum = 0;
	for (int j = 0; j < 4; j++) {
		int q = top > 0 ? (int)rintf(v[j] / d) : 0;
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

// prepare makes x ready. A row that is normalized is no longer than what all
// threads hold.
template <int TYPE>
__device__ __forceinline__ void prepare(const SingleArgs& a, u8* x) {
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
				int i = base + j * blockDim.x + threadIdx.x;
				if (i >= n) continue;
				Word4 word = load16(a.norm + 4 * i);
				for (int u = 0; u < 4; u++) v[j][u] = v[j][u] * scale * __uint_as_float(word.w[u]);
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
	Group g = group_of(lane());
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
		if (TYPE == F32) {
			Word4 y = load16(mine);
			for (int j = 0; j < 4; j++) sum += __uint_as_float(v.w[j]) * __uint_as_float(y.w[j]);
			continue;
		}
		for (int h = 0; h < 2; h++) {
			Word4 y = load16(mine + h * 512);
			for (int j = 0; j < 4; j++) {
				u16 bits = (u16)(v.w[h * 2 + j / 2] >> j % 2 * 16);
				sum += (TYPE == F16 ? from_half(bits) : from_bfloat(bits)) * __uint_as_float(y.w[j]);
			}
		}
	}
	return sum;
}

// Cursor is where a warp is in the chunks of its rows.
struct Cursor {
	i64 v;      // number of the row, over all matrices
	int chunk;  // of the row
	int second;  // GATE: the row of w[1]
	int m;      // the matrix
	i64 c;      // row of the matrix
	const u8* row;

	__device__ __forceinline__ void seek(const SingleArgs& a, i64 total) {
		if (v >= total) return;
		c = v;
		m = second;
		if (a.mode != GATE) {
			while (c >= a.n[m]) c -= a.n[m++];
		}
		row = a.w[m] + c * a.row;
	}

	// next goes to the next chunk.
	__device__ __forceinline__ void next(const SingleArgs& a, int chunks, i64 step, i64 total) {
		if (++chunk < chunks) return;
		chunk = 0;
		if (a.mode == GATE && !second)
			second = 1;
		else {
			second = 0;
			v += step;
		}
		seek(a, total);
	}
};

template <int TYPE>
__device__ __forceinline__ void single(const SingleArgs& a) {
	typedef Chunk<TYPE> C;
	DYNAMIC(u8, x);
	let_next();
	int chunks = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS;
	u8* ring = x + chunks * C::X + warp() * C::STAGES * C::BYTES;
	i64 total = a.mode == GATE ? a.n[0] : a.n[0] + a.n[1] + a.n[2], step = (i64)gridDim.x * (blockDim.x / WARP);
	Cursor use = {(i64)warp() * gridDim.x + blockIdx.x, 0, 0, 0, 0, nullptr};
	use.seek(a, total);
	Cursor load = use;
	int slot = 0;  // where the next chunk goes
	auto bring = [&]() {
		if (load.v < total) {
			const u8* from = load.row + load.chunk * C::BYTES;
			int left = (int)a.row - load.chunk * C::BYTES;
#pragma unroll
			for (int i = 0; i < (C::BYTES / 16 + WARP - 1) / WARP; i++) {
				int at = (i * WARP + lane()) * 16;
				if (at < C::BYTES && at < left) copy_async(ring + slot * C::BYTES + at, from + at);
			}
			load.next(a, chunks, step, total);
		}
		copy_commit();
		if (++slot == C::STAGES) slot = 0;
	};
	if (!a.fixed) wait_before();
	for (int i = 1; i < C::STAGES; i++) bring();
	if (a.fixed) wait_before();
	prepare<TYPE>(a, x);
	__syncthreads();

	float sum = 0, gate = 0;
	for (int turn = 0; use.v < total; turn = turn + 1 == C::STAGES ? 0 : turn + 1) {
		__syncwarp();  // all have read what the next chunk overwrites
		bring();
		copy_wait<C::STAGES - 1>();
		__syncwarp();
		const u8 *w = ring + turn * C::BYTES, *part = x + use.chunk * C::X;
		int left = (int)a.k - use.chunk * C::WEIGHTS;
		if (!C::QUANTIZED)
			sum += dot_plain<TYPE>(w, part, left);
		else if (group_of(lane()).block * 256 < left)
			sum += dot<TYPE>(w, part);
		if (use.chunk + 1 == chunks) {
			float s = reduce_warp(sum, Plus());
			sum = 0;
			if (lane() == 0) {
				if (a.mode == STORE) a.dst[use.m][use.c] = s;
				if (a.mode == ADD) atomicAdd(&a.dst[use.m][use.c], s);  // alone at that address: it saves the wait for a load
				if (a.mode == GATE && use.second) a.dst[0][use.c] = gate / (1 + expf(-gate)) * s;
			}
			gate = s;
		}
		use.next(a, chunks, step, total);
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
