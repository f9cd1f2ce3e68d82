// Products of one row with matrices, dst = x·wᵀ: what a decode step does for one
// sequence, bound by reading the matrices once. Checked against matmul.cu.
//
// A block for each multiprocessor takes rows that lie one behind the other. It makes
// x ready in shared memory, normalized if asked to, and with 8 bits where the weights
// are quantized; its warps take the chunks of the rows in turn, each with a ring of
// them in shared memory, and the sums of the chunks of a row are added in the order of
// k at the end. The rings are filled with the first chunks before x is there: weights
// do not wait for the kernels before, so that memory is busy between launches too.
#include "args.cuh"
#include "few.cuh"
#include "reduce.cuh"

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

// TurnArgs are of products that are queries, keys and values, which are turned and
// appended as by rope_append. Pairs of elements that turn are neighbours.
struct TurnArgs {
	SingleArgs s;
	i64 role[3];  // of dst: 0 queries, 1 keys, 2 values
	Pages g;
	const i32* pos;      // [1]
	const float* freqs;  // [pairs]
	f64 scale;
	i64 pairs;
};

constexpr int SINGLE_THREADS = 512;

// Piece is how a type is cut: WEIGHTS of a row in BYTES, STAGES of them in a ring.
template <int TYPE>
struct Piece {
	static constexpr bool QUANTIZED = TYPE >= Q4_0;
	static constexpr int WEIGHTS = QUANTIZED ? 2048 : TYPE == F32 ? 256 : 512;
	static constexpr int BYTES = TYPE == Q4_0 || TYPE == Q4_K ? 1152 : TYPE == Q8_0 ? 2176 : TYPE == Q5_K ? 1408 : TYPE == Q6_K ? 1680 : 1024;
	static constexpr int STAGES = BYTES == 1024 ? 6 : BYTES < 1408 ? 4 : 3;
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
// [4][32][16] bytes; their 4 scales, f32 [32][4]; and the sums of the numbers that the
// integers stand for, f32 [32][4].
constexpr int X_SCALES = 2048, X_SUMS = 2560;

// put stores numbers 4i to 4i+3 of x. All lanes of a warp call it.
template <int TYPE>
__device__ __forceinline__ void put(u8* x, int i, const float v[4]) {
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

// byte_of is byte t of a word: the lowest of the fraction of 2²³.
__device__ __forceinline__ float byte_of(u32 word, int t) { return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650 + t)) - 8388608; }

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
			if (TYPE == Q4_0) {
				for (int i = 0; i < 4; i++) v.w[i] = v.w[i] >> (g.part * 4) & 0x0f0f0f0fu;
			}
			float y = __uint_as_float(d4.w[t]) * (float)dot16(v.w, load16(mine + t * 512));
			if (TYPE == Q4_0) y -= 8 * __uint_as_float(s4.w[t]);
			sum += half_of(b) * y;
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

// March is where a warp is in the chunks of its block's rows.
struct March {
	int i;      // number of the chunk, over all rows
	int v, c;   // row and chunk of the row
	int rows, rest, warps;  // of a step: whole rows, chunks besides, chunks

	__device__ __forceinline__ void next(int chunks) {
		i += warps;
		v += rows;
		c += rest;
		if (c >= chunks) {
			c -= chunks;
			v++;
		}
	}
};

// single is a product, or with HEADS those that heads are of.
template <int TYPE, bool HEADS>
__device__ __forceinline__ void single(const SingleArgs& a, const TurnArgs* heads) {
	typedef Piece<TYPE> C;
	DYNAMIC(u8, x);
	let_next();
	// The block takes items lo to hi-1: rows of the matrices one after the other, or
	// of GATE, rows of w[0] and then the same of w[1].
	int items = (int)a.n[0] + (a.mode == GATE ? 0 : (int)a.n[1] + (int)a.n[2]);
	constexpr int WHOLE = HEADS ? 2 : 1;  // items that a block has all of
	int lo = (int)((i64)(items / WHOLE) * blockIdx.x / gridDim.x) * WHOLE, hi = (int)((i64)(items / WHOLE) * (blockIdx.x + 1) / gridDim.x) * WHOLE;
	int chunks = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS, warps = blockDim.x / WARP;
	int rows = a.mode == GATE ? 2 * (hi - lo) : hi - lo, all = rows * chunks;
	int end[2] = {a.mode == GATE ? hi - lo : (int)a.n[0] - lo, a.mode == GATE ? rows : (int)(a.n[0] + a.n[1]) - lo};
	// Where row 0 of the block would be if each matrix had all rows: addresses, as nothing
	// need be there.
	u64 start[3] = {(u64)a.w[0] + lo * a.row, (u64)a.w[1] - (end[0] - (a.mode == GATE ? lo : 0)) * a.row, (u64)a.w[2] - end[1] * a.row};
	int tail = (int)a.row - (chunks - 1) * C::BYTES;  // bytes of the last chunk of a row

	float *parts = (float*)(x + chunks * C::X), *turns = parts + all;  // [rows, chunks]; with HEADS [rows]: cosine and sine of each pair
	u8* ring = x + chunks * C::X + ((all + (HEADS ? rows : 0)) * 4 + 15) / 16 * 16 + warp() * C::STAGES * C::BYTES;
	March load = {warp(), warp() / chunks, warp() % chunks, warps / chunks, warps % chunks, warps}, use = load;
	u8* slot = ring + lane() * 16;
	auto bring = [&]() {
		if (load.i < all) {
			int size = load.c == chunks - 1 ? tail : C::BYTES;
			u64 row = load.v < end[0] ? start[0] : load.v < end[1] ? start[1] : start[2];
			const u8* from = (const u8*)(row + (u64)load.v * a.row + load.c * C::BYTES + lane() * 16);
#pragma unroll
			for (int i = 0; i < (C::BYTES / 16 + WARP - 1) / WARP; i++) {
				int at = i * WARP * 16;
				if (lane() * 16 < size - at) copy_async(slot + at, from + at);
			}
			load.next(chunks);
		}
		copy_commit();
		slot = slot == ring + lane() * 16 + (C::STAGES - 1) * C::BYTES ? slot - (C::STAGES - 1) * C::BYTES : slot + C::BYTES;
	};
	if (!a.fixed) wait_before();
	for (int i = 1; i < C::STAGES; i++) bring();
	Norms norms = norms_of(a);
	// Which row of which matrix row v of the block is.
	auto matrix = [&](int v) { return v < end[0] ? 0 : v < end[1] ? 1 : 2; };
	auto row_of = [&](int v, int m) { return m == 0 ? lo + v : m == 1 ? v - end[0] : v - end[1]; };
	if (HEADS) {
		// The host writes positions, and so they are there before the kernels before are done.
		for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
			int m = matrix(v), pair = row_of(v, m) % (int)heads->g.dim / 2;
			if (heads->role[m] == 2 || pair >= heads->pairs) continue;
			double sine, cosine;
			sincos((double)heads->pos[0] * (double)heads->freqs[pair], &sine, &cosine);
			turns[v] = (float)(cosine * heads->scale);
			turns[v + 1] = (float)(sine * heads->scale);
		}
	}
	if (a.fixed) wait_before();
	prepare<TYPE>(a, norms, x);
	__syncthreads();

	const u8* w = ring;
	while (use.i < all) {
		__syncwarp();  // all have read what the next chunk overwrites
		bring();
		copy_wait<C::STAGES - 1>();
		__syncwarp();
		float sum = 0;
		int there = (int)a.k - use.c * C::WEIGHTS;
		if (!C::QUANTIZED)
			sum = dot_plain<TYPE>(w, x + use.c * C::X, there);
		else if (share_of_lane(lane()).block * 256 < there)
			sum = dot<TYPE>(w, x + use.c * C::X);
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) parts[use.i] = sum;
		w = w == ring + (C::STAGES - 1) * C::BYTES ? ring : w + C::BYTES;
		use.next(chunks);
	}
	__syncthreads();
	auto total = [&](int v) {
		float sum = 0;
		for (int c = 0; c < chunks; c++) sum += parts[v * chunks + c];
		return sum;
	};
	if (HEADS) {
		const Pages& g = heads->g;
		At at = place(g, 0);
		for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
			int m = matrix(v), row = row_of(v, m), role = (int)heads->role[m], d = row % (int)g.dim;
			float one = total(v), two = total(v + 1);
			if (role < 2 && d / 2 < heads->pairs) {
				float u = one, cosine = turns[v], sine = turns[v + 1];
				one = u * cosine - two * sine;
				two = u * sine + two * cosine;
			}
			a.dst[m][row] = one;
			a.dst[m][row + 1] = two;
			int page = role == 0 || at.p < 0 ? -1 : page_of(g, at.slot, at.p / PAGE);
			if (page < 0) continue;
			void* cache = role == 1 ? g.k : g.v;
			i64 to = element_of(g, page, row / (int)g.dim, at.p % PAGE) + d;
			if (g.half) {
				((u16*)cache)[to] = to_half(one);
				((u16*)cache)[to + 1] = to_half(two);
			} else {
				((float*)cache)[to] = one;
				((float*)cache)[to + 1] = two;
			}
		}
		return;
	}
	for (int v = threadIdx.x; v < hi - lo; v += blockDim.x) {
		float sum = total(v);
		if (a.mode == GATE) {
			a.dst[0][lo + v] = sum / (1 + expf(-sum)) * total(hi - lo + v);
			continue;
		}
		int m = matrix(v);
		float* to = a.dst[m] + row_of(v, m);
		*to = a.mode == ADD ? *to + sum : sum;
	}
}

KERNEL_TWICE(single_f32, SingleArgs, SINGLE_THREADS) { single<F32, false>(a, nullptr); }
KERNEL_TWICE(single_f16, SingleArgs, SINGLE_THREADS) { single<F16, false>(a, nullptr); }
KERNEL_TWICE(single_bf16, SingleArgs, SINGLE_THREADS) { single<BF16, false>(a, nullptr); }
KERNEL_TWICE(single_q4_0, SingleArgs, SINGLE_THREADS) { single<Q4_0, false>(a, nullptr); }
KERNEL_TWICE(single_q8_0, SingleArgs, SINGLE_THREADS) { single<Q8_0, false>(a, nullptr); }
KERNEL_TWICE(single_q4_k, SingleArgs, SINGLE_THREADS) { single<Q4_K, false>(a, nullptr); }
KERNEL_TWICE(single_q5_k, SingleArgs, SINGLE_THREADS) { single<Q5_K, false>(a, nullptr); }
KERNEL_TWICE(single_q6_k, SingleArgs, SINGLE_THREADS) { single<Q6_K, false>(a, nullptr); }

KERNEL_TWICE(single_f32_heads, TurnArgs, SINGLE_THREADS) { single<F32, true>(a.s, &a); }
KERNEL_TWICE(single_f16_heads, TurnArgs, SINGLE_THREADS) { single<F16, true>(a.s, &a); }
KERNEL_TWICE(single_bf16_heads, TurnArgs, SINGLE_THREADS) { single<BF16, true>(a.s, &a); }
KERNEL_TWICE(single_q4_0_heads, TurnArgs, SINGLE_THREADS) { single<Q4_0, true>(a.s, &a); }
KERNEL_TWICE(single_q8_0_heads, TurnArgs, SINGLE_THREADS) { single<Q8_0, true>(a.s, &a); }
KERNEL_TWICE(single_q4_k_heads, TurnArgs, SINGLE_THREADS) { single<Q4_K, true>(a.s, &a); }
KERNEL_TWICE(single_q5_k_heads, TurnArgs, SINGLE_THREADS) { single<Q5_K, true>(a.s, &a); }
KERNEL_TWICE(single_q6_k_heads, TurnArgs, SINGLE_THREADS) { single<Q6_K, true>(a.s, &a); }
