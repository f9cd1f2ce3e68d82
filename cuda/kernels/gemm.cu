// Products of many rows with a matrix, dst = x·wᵀ, on tensor cores: what a prefill
// does. Both sides become half precision on the way to shared memory, sums are in
// f32. Checked against matmul.cu, with the bound that half precision allows.
//
// A block computes 128 x 128 elements of dst, 32 of k at a time: warps 0 to 3
// bring the rows of w, a row for each thread, warps 4 to 7 those of x, the next
// ones while these are multiplied. Each warp multiplies 64 x 32.
#include "args.cuh"
#include "few.cuh"

constexpr int TILE = 128, DEPTH = 32;
constexpr int STRIDE = DEPTH + 8;  // halves of a row in shared memory: no two rows of 8 meet in a bank

struct GemmArgs {
	float* dst;      // [rows, n]
	const float* x;  // [rows, k]
	const u8* w;     // [n, k], of the type
	i64 rows, n, k, row;  // row: bytes of a row of w
};

// Piece is 32 weights of a row, or 32 activations (F32), on their way; pair(i) is its numbers 2i and 2i+1 in half precision.
template <int TYPE>
struct Piece {
	Few f;

	__device__ void load(const u8* row, i64 k) { f = few<TYPE>(row, (int)(k / 32)); }
	__device__ void clear() {
		for (int i = 0; i < 8; i++) f.v[i] = 0;
		f.d[0] = f.d[1] = f.m[0] = f.m[1] = 0;
	}
	__device__ u32 pair(int i) const {
		int v = f.v[i / 2] >> i % 2 * 16;
		float d = f.d[i / 8], m = f.m[i / 8];
		return pack_half(d * (float)(signed char)v - m, d * (float)(signed char)(v >> 8) - m);
	}
};

constexpr float MOST_HALF = 65504;  // the largest of half precision

template <>
struct Piece<F32> {
	float y[32];

	__device__ void load(const u8* row, i64 k) {
#pragma unroll
		for (int i = 0; i < 4; i++) plain8<F32>(y + 8 * i, row, k + 8 * i);
	}
	__device__ void clear() {
		for (int i = 0; i < 32; i++) y[i] = 0;
	}
	__device__ u32 pair(int i) const {
		return pack_half(fminf(fmaxf(y[2 * i], -MOST_HALF), MOST_HALF), fminf(fmaxf(y[2 * i + 1], -MOST_HALF), MOST_HALF));
	}
};

template <>
struct Piece<F16> {
	Word4 v[4];

	__device__ void load(const u8* row, i64 k) {
#pragma unroll
		for (int i = 0; i < 4; i++) v[i] = load16(row + k * 2 + i * 16);
	}
	__device__ void clear() {
		for (int i = 0; i < 4; i++) v[i] = {{0, 0, 0, 0}};
	}
	__device__ u32 pair(int i) const { return v[i / 4].w[i % 4]; }
};

template <>
struct Piece<BF16> : Piece<F16> {
	__device__ u32 pair(int i) const {
		u32 two = v[i / 4].w[i % 4];
		return pack_half(from_bfloat((u16)two), from_bfloat((u16)(two >> 16)));
	}
};

// store writes a piece as halves.
template <class P>
__device__ __forceinline__ void store(const P& p, u16* to) {
#pragma unroll
	for (int i = 0; i < 4; i++) {
		Word4 v = {{p.pair(4 * i), p.pair(4 * i + 1), p.pair(4 * i + 2), p.pair(4 * i + 3)}};
		((Word4*)to)[i] = v;
	}
}

// multiply_tile adds the products of a tile's 32 of k to a warp's 64 x 32.
__device__ __forceinline__ void multiply_tile(float acc[4][4][4], const u16* x, const u16* w) {
#pragma unroll
	for (int k = 0; k < DEPTH; k += 16) {
		u32 a[4][4], b[2][4];
#pragma unroll
		for (int i = 0; i < 4; i++) load_matrices(a[i], x + (i * 16 + lane() % 16) * STRIDE + k + lane() / 16 * 8);
#pragma unroll
		for (int i = 0; i < 2; i++) load_matrices(b[i], w + (i * 16 + lane() % 8 + lane() / 16 * 8) * STRIDE + k + lane() / 8 % 2 * 8);
#pragma unroll
		for (int i = 0; i < 4; i++) {
#pragma unroll
			for (int j = 0; j < 4; j++) multiply_add(acc[i][j], a[i], b[j / 2] + j % 2 * 2);
		}
	}
}

template <int TYPE>
__device__ __forceinline__ void gemm(const GemmArgs& a) {
	SHARED(Word4, words, 2 * 2 * TILE * STRIDE / 8);
	u16* halves = (u16*)words;  // [2 turns][x, w][TILE][STRIDE]
	i64 first = (i64)blockIdx.x * TILE, column = (i64)blockIdx.y * TILE;
	bool weights = warp() < 4;
	i64 t = threadIdx.x % TILE, r = weights ? column + t : first + t;
	bool there = r < (weights ? a.n : a.rows);
	const u8* from = weights ? a.w + r * a.row : (const u8*)(a.x + r * a.k);
	Piece<TYPE> w;
	Piece<F32> x;
	if (weights && !there) w.clear();
	if (!weights && !there) x.clear();
	auto load = [&](i64 k) {
		if (!there) return;
		if (weights)
			w.load(from, k);
		else
			x.load(from, k);
	};
	auto keep = [&](int turn) {
		u16* to = halves + ((i64)turn * 2 + weights) * TILE * STRIDE + t * STRIDE;
		if (weights)
			store(w, to);
		else
			store(x, to);
	};
	float acc[4][4][4] = {};
	int m = warp() / 4 * 64, n = warp() % 4 * 32;
	load(0);
	keep(0);
	__syncthreads();
	for (i64 k = 0, turn = 0; k < a.k; k += DEPTH, turn ^= 1) {
		if (k + DEPTH < a.k) load(k + DEPTH);
		const u16* tile = halves + turn * 2 * TILE * STRIDE;
		multiply_tile(acc, tile + m * STRIDE, tile + (TILE + n) * STRIDE);
		if (k + DEPTH < a.k) keep((int)turn ^ 1);
		__syncthreads();
	}
#pragma unroll
	for (int i = 0; i < 4; i++) {
#pragma unroll
		for (int j = 0; j < 4; j++) {
#pragma unroll
			for (int u = 0; u < 4; u++) {
				i64 row = first + m + i * 16 + lane() / 4 + u / 2 * 8, c = column + n + j * 8 + lane() % 4 * 2 + u % 2;
				if (row < a.rows && c < a.n) a.dst[row * a.n + c] = acc[i][j][u];
			}
		}
	}
}

KERNEL(gemm_f16, GemmArgs, 256) { gemm<F16>(a); }
KERNEL(gemm_bf16, GemmArgs, 256) { gemm<BF16>(a); }
KERNEL(gemm_q4_0, GemmArgs, 256) { gemm<Q4_0>(a); }
KERNEL(gemm_q8_0, GemmArgs, 256) { gemm<Q8_0>(a); }
KERNEL(gemm_q4_k, GemmArgs, 256) { gemm<Q4_K>(a); }
KERNEL(gemm_q5_k, GemmArgs, 256) { gemm<Q5_K>(a); }
KERNEL(gemm_q6_k, GemmArgs, 256) { gemm<Q6_K>(a); }
