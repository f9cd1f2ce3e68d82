// Products of one row with matrices, dst = x·wᵀ: what a decode step does for one
// sequence, bound by reading the matrices once. Checked against matmul.cu.
//
// A block for each multiprocessor takes rows that lie one behind the other. It makes
// x ready in shared memory, normalized if asked to, and with 8 bits where the weights
// are quantized; its warps take the chunks of the rows in turn, each with a ring of
// them in shared memory, and the sums of a row are added in the order of its chunks at
// the end. The rings are filled with the first chunks before x is there: weights
// do not wait for the kernels before, so that memory is busy between launches too.
// What bounds the loop after that is instructions, not memory, unless there are few of
// them for each byte: hence 8 rows at a time on tensor cores.
#include "args.cuh"
#include "piece.cuh"

// What becomes of a product.
// GATE: dst = silu(x·w[0]ᵀ)·(x·w[1]ᵀ). HEADS: dst are queries, keys and values, which
// are turned and appended as by rope_append.
enum { STORE, ADD, GATE, HEADS };

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
	// Of HEADS; pairs of elements that turn are neighbours.
	i64 role[3];  // of dst: 0 queries, 1 keys, 2 values
	Pages g;
	const i32* pos;      // [1]
	const float* freqs;  // [pairs]
	f64 scale;
	i64 pairs;
};

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
			if (i - lane() < n) put<TYPE>(x, i, v[j]);
		}
	}
}

constexpr int SINGLE_THREADS = 512;
constexpr int SUMS = SINGLE_THREADS / WARP;  // that a block keeps of each row, of 8 rows at a time

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

// single is what block number block of blocks does.
template <int TYPE>
__device__ __forceinline__ void single(const SingleArgs& a, int block, int blocks) {
	typedef Piece<TYPE> C;
	DYNAMIC(u8, x);
	let_next();
	// The block takes items lo to hi-1: rows of the matrices one after the other, or
	// of GATE, rows of w[0] and then the same of w[1].
	int items = (int)a.n[0] + (a.mode == GATE ? 0 : (int)a.n[1] + (int)a.n[2]);
	int whole = a.mode == HEADS ? 2 : 1;  // items that a block has all of
	int lo = (int)((i64)(items / whole) * block / blocks) * whole, hi = (int)((i64)(items / whole) * (block + 1) / blocks) * whole;
	int chunks = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS, warps = blockDim.x / WARP;
	int rows = a.mode == GATE ? 2 * (hi - lo) : hi - lo, all = (C::EIGHT ? (rows + 7) / 8 : rows) * chunks;
	int end[2] = {a.mode == GATE ? hi - lo : (int)a.n[0] - lo, a.mode == GATE ? rows : (int)(a.n[0] + a.n[1]) - lo};
	// Where row 0 of the block would be if each matrix had all rows: addresses, as nothing
	// need be there.
	u64 start[3] = {(u64)a.w[0] + lo * a.row, (u64)a.w[1] - (end[0] - (a.mode == GATE ? lo : 0)) * a.row, (u64)a.w[2] - end[1] * a.row};
	int tail = (int)a.row - (chunks - 1) * C::BYTES;  // bytes of the last chunk of a row

	// Sums of chunks, [rows, sums]. Of 8 rows at a time a warp adds up what it has of a row,
	// and rows lie such that neighbours are in other banks.
	int sums = C::EIGHT ? SUMS + 1 : chunks;
	float *parts = (float*)(x + chunks * C::X), *turns = parts + rows * sums;  // of HEADS [rows]: cosine and sine
	u8* ring = x + chunks * C::X + (rows * (sums + 1) * 4 + 15) / 16 * 16 + warp() * C::STAGES * C::CHUNK;
	March load = {warp(), warp() / chunks, warp() % chunks, warps / chunks, warps % chunks, warps}, use = load;
	u8* slot = ring;
	auto bring = [&]() {
		if (load.i < all) {
			int size = load.c == chunks - 1 ? tail : C::BYTES;
			int v = C::EIGHT ? load.v * 8 + lane() / 4 : load.v, at = (C::EIGHT ? lane() % 4 : lane()) * 16;
			u64 row = v < end[0] ? start[0] : v < end[1] ? start[1] : start[2];
			const u8* from = (const u8*)(row + (u64)v * a.row + load.c * C::BYTES);
			if (C::EIGHT) {
				bool there = v < rows;
				u8* to = slot + lane() / 4 * C::PITCH;
#pragma unroll
				for (int i = 0; i < (C::BYTES + 63) / 64; i++, at += 64) {
					bool in = there && at < size;
					if (at < C::BYTES) copy_async_if(to + at, in ? from + at : a.w[0], in);
				}
			} else {
#pragma unroll
				for (int i = 0; i < (C::BYTES / 16 + WARP - 1) / WARP; i++, at += WARP * 16) {
					if (at < size) copy_async(slot + at, from + at);
				}
			}
			load.next(chunks);
		}
		copy_commit();
		slot = slot == ring + (C::STAGES - 1) * C::CHUNK ? ring : slot + C::CHUNK;
	};
	if (!a.fixed) wait_before();
	for (int i = 1; i < C::STAGES; i++) bring();
	Norms norms = norms_of(a);
	// Which row of which matrix row v of the block is.
	auto matrix = [&](int v) { return v < end[0] ? 0 : v < end[1] ? 1 : 2; };
	auto row_of = [&](int v, int m) { return m == 0 ? lo + v : m == 1 ? v - end[0] : v - end[1]; };
	if (a.mode == HEADS) {
		for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
			int m = matrix(v), pair = row_of(v, m) % (int)a.g.dim / 2;
			if (a.role[m] == 2 || pair >= a.pairs) continue;
			double sine, cosine;
			sincos((double)a.pos[0] * (double)a.freqs[pair], &sine, &cosine);
			turns[v] = (float)(cosine * a.scale);
			turns[v + 1] = (float)(sine * a.scale);
		}
	}
	if (C::EIGHT) {
		for (int i = threadIdx.x; i < rows * sums; i += blockDim.x) parts[i] = 0;
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
		int there = (int)a.k - use.c * C::WEIGHTS;
		const u8* meets = x + use.c * C::X;
		if (C::EIGHT) {
			Pair sum = dot_eight<TYPE>(w, meets, there);
			int v = use.v * 8 + lane() * 2;
			float* to = parts + v * sums + use.c % SUMS;
			if (lane() < 4 && v < rows) to[0] += sum.one;
			if (lane() < 4 && v + 1 < rows) to[sums] += sum.two;
		} else {
			float sum = 0;
			if (!C::QUANTIZED)
				sum = dot_plain<TYPE>(w, meets, there);
			else if (share_of_lane(lane()).block * 256 < there)
				sum = dot<TYPE>(w, meets);
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) parts[use.i] = sum;
		}
		w = w == ring + (C::STAGES - 1) * C::CHUNK ? ring : w + C::CHUNK;
		use.next(chunks);
	}
	__syncthreads();
	auto total = [&](int v) {
		float sum = 0;
		for (int c = 0; c < (C::EIGHT ? smaller(chunks, SUMS) : chunks); c++) sum += parts[v * sums + c];
		return sum;
	};
	if (a.mode == HEADS) {
		At at = place(a.g, 0);
		for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
			int m = matrix(v), row = row_of(v, m), role = (int)a.role[m], d = row % (int)a.g.dim;
			float one = total(v), two = total(v + 1);
			if (role < 2 && d / 2 < a.pairs) {
				float u = one, cosine = turns[v], sine = turns[v + 1];
				one = u * cosine - two * sine;
				two = u * sine + two * cosine;
			}
			a.dst[m][row] = one;
			a.dst[m][row + 1] = two;
			if (role == 0 || at.p < 0) continue;
			int page = page_of(a.g, at.slot, at.p / PAGE);
			if (page < 0) continue;
			void* cache = role == 1 ? a.g.k : a.g.v;
			i64 to = element_of(a.g, page, row / (int)a.g.dim, at.p % PAGE) + d;
			if (a.g.half) {
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

KERNEL_TWICE(single_f32, SingleArgs, SINGLE_THREADS) { single<F32>(a, blockIdx.x, gridDim.x); }
KERNEL(single_f16, SingleArgs, SINGLE_THREADS) { single<F16>(a, blockIdx.x, gridDim.x); }
KERNEL_TWICE(single_bf16, SingleArgs, SINGLE_THREADS) { single<BF16>(a, blockIdx.x, gridDim.x); }
KERNEL_TWICE(single_q4_0, SingleArgs, SINGLE_THREADS) { single<Q4_0>(a, blockIdx.x, gridDim.x); }
KERNEL(single_q8_0, SingleArgs, SINGLE_THREADS) { single<Q8_0>(a, blockIdx.x, gridDim.x); }
KERNEL(single_q4_k, SingleArgs, SINGLE_THREADS) { single<Q4_K>(a, blockIdx.x, gridDim.x); }
KERNEL_TWICE(single_q5_k, SingleArgs, SINGLE_THREADS) { single<Q5_K>(a, blockIdx.x, gridDim.x); }
KERNEL_TWICE(single_q6_k, SingleArgs, SINGLE_THREADS) { single<Q6_K>(a, blockIdx.x, gridDim.x); }

struct PairArgs {
	SingleArgs one, other;
	i64 blocks;  // of one
};

// single_q4_k_q6_k: products of one row with matrices of two types.
KERNEL(single_q4_k_q6_k, PairArgs, SINGLE_THREADS) {
	int blocks = (int)a.blocks;
	if ((int)blockIdx.x < blocks)
		single<Q4_K>(a.one, blockIdx.x, blocks);
	else
		single<Q6_K>(a.other, blockIdx.x - blocks, gridDim.x - blocks);
}
