// Skinny GEMM on the tensor cores of compute capability 9.0, dst = x·wᵀ for up to 64 rows of x and
// quantized w. Bound by reading the weights once. Tested against matmul.cu.
//
// wgmma m64nNk16 with the weights as A, dequantized to f16 in registers, and x as B in shared
// memory. One persistent block of two warpgroups per SM. Its unit of work is a tile of 128 rows of
// w by a slice of 256 of k. The units of all tiles, laid end to end, are divided evenly among the
// blocks (stream-K), so that every SM reads the same, whatever the shape. Sums stay in registers
// along k. A tile that several blocks have parts of is added up by the last of them to finish (a
// counter), in the order of k. Weights of the first units are copied before pdl_wait.
//
// x is scaled by a power of two for each row, to fit f16; see pack_columns.
#include "args.cuh"
#include "dequant.cuh"
#include "reduce.cuh"
#include "weight_fragment.cuh"
#include "wgmma.cuh"

constexpr int SLICE = 256;         // of k, in a unit
constexpr int PANEL_COLUMNS = 64;  // of k, in a panel of x in shared memory: 128 bytes
constexpr int UNIT_ROWS = 128;     // of w
constexpr int UNIT_WARPS = UNIT_ROWS / 16, UNIT_THREADS = UNIT_WARPS * WARP;

struct PackColumnsArgs {
	u8* to;        // [slices, 4 panels, columns, 64] f16: slices of x as they lie in shared memory
	float* scale;  // [columns]: what undoes the power of two, times the scale of the norm
	const float* x;     // [rows, k]
	const float* norm;  // [k]: weight of an RMSNorm; NULL: none
	f64 eps;
	i64 rows, k;
};

// PackedStep is step i of a slice of a row of x: elements 64t + 4i to 64t + 4i + 3 of it, for t of
// 0 to 3, with the weights of the norm multiplied in.
struct PackedStep {
	float v[4][4], norm[4][4];

	__device__ __forceinline__ int from(int step) const { return step / 16 * SLICE + step % 16 * 4; }
	__device__ __forceinline__ void load_norm(const PackColumnsArgs& a, int step) {
#pragma unroll
		for (int t = 0; t < 4; t++) {
			norm[t][0] = norm[t][1] = norm[t][2] = norm[t][3] = 1;
			if (a.norm) load_float4(norm[t], a.norm + from(step) + t * 64);
		}
	}
	// load adds the squares of x to squares.
	__device__ __forceinline__ void load(const PackColumnsArgs& a, int row, int step, float& squares) {
#pragma unroll
		for (int t = 0; t < 4; t++) ld_cg4(v[t], a.x + row * a.k + from(step) + t * 64);
#pragma unroll
		for (int t = 0; t < 4; t++) {
			for (int j = 0; j < 4; j++) {
				squares += v[t][j] * v[t][j];
				v[t][j] *= norm[t][j];
			}
		}
	}
	__device__ __forceinline__ float largest(float top) const {
		for (int t = 0; t < 4; t++) {
			for (int j = 0; j < 4; j++) top = max_of(top, fabsf(v[t][j]));
		}
		return top;
	}
	__device__ __forceinline__ void store(const PackColumnsArgs& a, int row, int step, float up) const {
		Word4 pieces[2];
		for (int t = 0; t < 4; t++) {
			for (int h = 0; h < 2; h++) pieces[h].w[t] = pack_half(v[t][h] * up, v[t][h + 2] * up);
		}
		u8* to = a.to + ((i64)(step / 4) * gridDim.x + row) * 128;
		for (int h = 0; h < 2; h++) *(Word4*)(to + ((step % 4 * 2 + h) ^ row % 8) * 16) = pieces[h];
	}
};

constexpr int PACK_THREADS = 1024;

// pack_columns: grid (columns), a block for each row of x; there are zeros beyond the rows. Within
// a slice, k is in the order in which WeightFragment has the weights; panels have wgmma's swizzle.
// A thread keeps its first step in registers.
KERNEL(pack_columns, PackColumnsArgs, PACK_THREADS) {
	SHARED(float, tops, WARP);
	SHARED(float, sums, WARP);
	pdl_trigger();
	int row = blockIdx.x, steps = (int)a.k / 16;
	bool there = row < (int)a.rows;
	if (threadIdx.x < WARP) tops[threadIdx.x] = sums[threadIdx.x] = 0;
	__syncthreads();
	PackedStep first = {}, more = {};
	float top = 0, squares = 0, ignored = 0;
	if ((int)threadIdx.x < steps) first.load_norm(a, threadIdx.x);
	pdl_wait();
	if (there && (int)threadIdx.x < steps) {
		first.load(a, row, threadIdx.x, squares);
		top = first.largest(top);
	}
	for (int step = threadIdx.x + blockDim.x; there && step < steps; step += blockDim.x) {
		more.load_norm(a, step);
		more.load(a, row, step, squares);
		top = more.largest(top);
	}
	top = reduce_warp(top, Max());
	squares = reduce_warp(squares, Plus());
	if (lane() == 0) {
		tops[warp()] = top;
		sums[warp()] = squares;
	}
	__syncthreads();
	top = reduce_warp(tops[lane()], Max());
	// The largest element becomes 2¹³ to 2¹⁴.
	u32 exponent = min_of(max_of(__float_as_uint(top) >> 23, 14u), 253u);
	float up = __uint_as_float((267 - exponent) << 23);
	if ((int)threadIdx.x < steps) first.store(a, row, threadIdx.x, up);
	for (int step = threadIdx.x + blockDim.x; step < steps; step += blockDim.x) {
		if (there) {
			more.load_norm(a, step);
			more.load(a, row, step, ignored);
		}
		more.store(a, row, step, up);
	}
	if (warp() == 0) {
		squares = reduce_warp(sums[lane()], Plus());
		float norm = a.norm ? 1 / sqrtf(squares / (float)a.k + (float)a.eps) : 1;
		if (lane() == 0) a.scale[row] = there ? __uint_as_float((exponent - 13) << 23) * norm : 0;
	}
}

struct SkinnyWgmmaArgs {
	const u8* x;         // of pack_columns
	const float* scale;  // [columns]
	float* dst[3];       // [rows, n]
	const u8* w[3];      // [n, k]
	i64 n[3];
	i64 rows, k, row;  // row: bytes from a row of w to the next
	i64 mode;
	i64 fixed;      // constant weights: they may be read before pdl_wait
	float* parts;   // [blocks, 2, 128·columns]: partial sums of a block's first and last tile
	i32* finished;  // [blocks]: counters of finished blocks; 0 between launches
};

// UnitTiling is the tiling of a type: a row of a unit takes PITCH bytes of a stage, of which PIECES
// of 16 are copied.
template <int TYPE, int N>
struct UnitTiling {
	static constexpr int SIZE = TYPE == Q4_0 || TYPE == Q4_K ? 144 : TYPE == Q8_0 ? 272 : TYPE == Q5_K ? 176 : 210;
	static constexpr int PIECES = (SIZE + 15) / 16;
	static constexpr int PITCH = TYPE == Q6_K ? 240 : SIZE;
	static constexpr int WARP_SIZE = 16 * PITCH;  // bytes of a warp's rows
	static constexpr int W_SIZE = UNIT_WARPS * WARP_SIZE, X_SIZE = SLICE * 2 * N;
	static constexpr int STAGE = W_SIZE + X_SIZE;
	static constexpr int FIT = 225 * 1024 / STAGE, STAGES = FIT < 6 ? FIT : 6;
};

// WarpRows is the 16 rows of a warp in a tile: two times up to 8 consecutive ones. Rows beyond the
// end of a matrix are its last one again.
struct WarpRows {
	const u8* from[2];  // the first row of each half
	int most[2];        // rows of it, less one

	__device__ __forceinline__ const u8* row(int r, i64 bytes) const { return from[r / 8] + min_of(r % 8, most[r / 8]) * bytes; }
};

// TileRows is where the rows of a warp of a tile are: of a matrix, from `first` on. With GATE, 8 rows
// of w[0] and the same 8 of w[1], so that a thread has the sums of both.
struct TileRows {
	int matrix, first;
};

__device__ __forceinline__ TileRows tile_rows(const SkinnyWgmmaArgs& a, int tile) {
	if (a.mode == GATE) return {0, tile * (UNIT_ROWS / 2) + warp() * 8};
	int end = ((int)a.n[0] + UNIT_ROWS - 1) / UNIT_ROWS, next = end + ((int)a.n[1] + UNIT_ROWS - 1) / UNIT_ROWS;
	int m = tile < end ? 0 : tile < next ? 1 : 2;
	return {m, (tile - (m == 0 ? 0 : m == 1 ? end : next)) * UNIT_ROWS + warp() * 16};
}

template <class T>
__device__ __forceinline__ T of_matrix(T const (&of)[3], int i) { return i == 0 ? of[0] : i == 1 ? of[1] : of[2]; }

__device__ __forceinline__ WarpRows warp_rows(const SkinnyWgmmaArgs& a, int tile) {
	TileRows at = tile_rows(a, tile);
	WarpRows w;
#pragma unroll
	for (int h = 0; h < 2; h++) {
		int m = a.mode == GATE ? h : at.matrix, first = a.mode == GATE ? at.first : at.first + h * 8, last = (int)of_matrix(a.n, m) - 1;
		first = min_of(first, last);
		w.from[h] = of_matrix(a.w, m) + first * a.row;
		w.most[h] = min_of(last - first, 7);
	}
	return w;
}

#if WGMMA

// UnitCopy is a lane's part of the copies of a warp's rows: half of the rows at a time.
template <int TYPE, int N>
struct UnitCopy {
	typedef UnitTiling<TYPE, N> C;
	static constexpr int EACH = (8 * C::PIECES + WARP - 1) / WARP;  // pieces of a half per lane
	WarpRows w;
	u32 from[2][EACH];  // offsets of the pieces from the first row of the half

	__device__ __forceinline__ void start(const WarpRows& rows, int bytes) {
		w = rows;
#pragma unroll
		for (int i = 0; i < EACH; i++) {
			int at = i * WARP + lane();
			for (int h = 0; h < 2; h++) from[h][i] = (u32)(min_of(at / C::PIECES, w.most[h]) * bytes + at % C::PIECES * 16);
		}
	}
	// load starts the copy of a slice. Rows of Q6_K are 2-byte aligned.
	__device__ __forceinline__ void load(u8* to, int slice) const {
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const u8* first = w.from[h] + slice * C::SIZE;
#pragma unroll
			for (int i = 0; i < EACH; i++) {
				int at = i * WARP + lane();
				const u8* piece = first + from[h][i];
				if (TYPE == Q6_K) piece -= (u64)piece % 16;
				if (at < 8 * C::PIECES) cp_async(to + (at / C::PIECES + h * 8) * C::PITCH + at % C::PIECES * 16, piece);
			}
		}
	}
};

// multiply_unit adds the product of a unit: w is the warp's rows, x the unit's panels.
template <int TYPE, int N>
__device__ __forceinline__ void multiply_unit(float (&c)[N / 2], const u8* w, SmemDesc x, const int start[2]) {
	typedef UnitTiling<TYPE, N> C;
	constexpr int PANELS = SLICE / PANEL_COLUMNS, STEPS = PANEL_COLUMNS / 16;
	WeightFragment<TYPE> one, other;
	one.read(w + lane() / 4 * C::PITCH, lane() % 4, start[0]);
	other.read(w + (lane() / 4 + 8) * C::PITCH, lane() % 4, start[1]);
	u32 f[2][STEPS][4];  // fragments of a panel; those of the one before are in use
#pragma unroll
	for (int p = 0; p < PANELS; p++) {
#pragma unroll
		for (int s = 0; s < STEPS; s++) {
			u32 y[2], z[2], *to = f[p % 2][s];
			one.step(y, p * STEPS + s);
			other.step(z, p * STEPS + s);
			to[0] = y[0], to[1] = z[0], to[2] = y[1], to[3] = z[1];
		}
		wgmma_fence();
#pragma unroll
		for (int s = 0; s < STEPS; s++) wgmma<1>(c, f[p % 2][s], x.advance(p * N * 128 + s * 32));
		wgmma_commit();
		if (p > 0 && p < PANELS - 1) wgmma_wait<1>(c);
	}
	wgmma_wait<0>(c);
}

// add_parts adds the partial sums of a tile: of `of` blocks, each stride floats after the one
// before. Loads of several are in flight.
template <int N>
__device__ __forceinline__ void add_parts(float (&c)[N / 2], const float* part, const float* next, i64 stride, int of) {
	constexpr int IN_FLIGHT = N >= 32 ? 2 : 8;
#pragma unroll
	for (int j = 0; j < N / 2; j++) c[j] = 0;
	for (int b = 0; b < of; b += IN_FLIGHT) {
		float v[IN_FLIGHT][N / 2];
#pragma unroll
		for (int u = 0; u < IN_FLIGHT; u++) {
			const float* from = b + u == 0 ? part : next + (min_of(b + u, of - 1) - 1) * stride;
#pragma unroll
			for (int j = 0; j < N / 8; j++) ld_cg4(v[u] + j * 4, from + j * UNIT_THREADS * 4);
		}
#pragma unroll
		for (int u = 0; u < IN_FLIGHT; u++) {
			if (b + u >= of) break;
#pragma unroll
			for (int j = 0; j < N / 2; j++) c[j] += v[u][j];
		}
	}
}

// store_tile is the epilogue of a tile: scales, then store, add or SwiGLU. What is added to is loaded
// before anything is stored, so that the loads are in flight at the same time.
template <int N>
__device__ __forceinline__ void store_tile(const SkinnyWgmmaArgs& a, int tile, const float (&c)[N / 2], const float* scales) {
	TileRows at = tile_rows(a, tile);
	i64 n = of_matrix(a.n, at.matrix);
	float *dst = of_matrix(a.dst, at.matrix), before[N / 2];
	auto column_of = [&](int j) { return j / 4 * 8 + lane() % 4 * 2 + j % 2; };
	auto row_of = [&](int j) { return at.first + lane() / 4 + j / 2 % 2 * 8; };
	auto there = [&](int j) { return column_of(j) < (int)a.rows && row_of(j) < n; };
#pragma unroll
	for (int j = 0; j < N / 2; j++) before[j] = a.mode == ADD && there(j) ? ld_cg(dst + column_of(j) * n + row_of(j)) : 0;
#pragma unroll
	for (int j = 0; j < N / 2; j++) {
		if (!there(j) || a.mode == GATE && j / 2 % 2 == 1) continue;
		float scale = scales[column_of(j)], y = c[j] * scale;
		if (a.mode == GATE) y = y / (1 + expf(-y)) * (c[min_of(j + 2, N / 2 - 1)] * scale);
		dst[column_of(j) * n + row_of(j)] = before[j] + y;
	}
}

// skinny_wgmma: grid (up to SMs), two warpgroups. Block b has units b·all/blocks and on.
template <int TYPE, int N>
__device__ __forceinline__ void skinny_wgmma(const SkinnyWgmmaArgs& a) {
	typedef UnitTiling<TYPE, N> C;
	DYNAMIC_SHARED_1024(u8, ring);
	SHARED(float, scales, N);
	SHARED(int, last, 1);
	pdl_trigger();
	int slices = (int)a.k / SLICE, block = blockIdx.x, blocks = gridDim.x, tiles = ((int)a.n[0] + UNIT_ROWS / 2 - 1) / (UNIT_ROWS / 2);
	if (a.mode != GATE) {
		tiles = 0;
		for (int m = 0; m < 3; m++) tiles += ((int)a.n[m] + UNIT_ROWS - 1) / UNIT_ROWS;
	}
	i64 all = (i64)tiles * slices;
	auto first_unit = [&](int b) { return (int)(all * b / blocks); };
	auto block_of = [&](int unit) { return (int)(((i64)(unit + 1) * blocks - 1) / all); };
	int begin = first_unit(block), end = first_unit(block + 1);

	// The weights are a stage's first part, a range for each warp; the panels of x the second.
	int next = begin, ahead = -1;  // unit to be copied next, and its tile
	UnitCopy<TYPE, N> copy;
	auto load_weights = [&](int slot) {
		if (next >= end) return;
		if (next / slices != ahead) {
			ahead = next / slices;
			copy.start(warp_rows(a, ahead), (int)a.row);
		}
		copy.load(ring + slot * C::STAGE + warp() * C::WARP_SIZE, next % slices);
		next++;
	};
	auto load_x = [&](int unit, int slot) {
		if (unit >= end) return;
		const u8* x = a.x + (i64)(unit % slices) * C::X_SIZE + threadIdx.x * 16;
		u8* to = ring + slot * C::STAGE + C::W_SIZE + threadIdx.x * 16;
#pragma unroll
		for (int i = 0; i < C::X_SIZE; i += UNIT_THREADS * 16) cp_async(to + i, x + i);
	};
	if (!a.fixed) pdl_wait();
	for (int i = 0; i < C::STAGES - 1; i++) load_weights(i);
	if (a.fixed) pdl_wait();
	for (int i = 0; i < C::STAGES - 1; i++) {
		load_x(begin + i, i);
		cp_async_commit();
	}
	if (threadIdx.x < N) scales[threadIdx.x] = ld_cg(a.scale + threadIdx.x);

	float c[N / 2];
#pragma unroll
	for (int j = 0; j < N / 2; j++) c[j] = 0;
	float* parts = a.parts + threadIdx.x * 4;
	auto part_of = [&](int b, int tile) { return parts + (i64)(2 * b + (first_unit(b) / slices != tile)) * UNIT_ROWS * N; };
	int slot = 0, into = C::STAGES - 1;
	WarpRows rows;
	for (int unit = begin; unit < end; unit++) {
		int tile = unit / slices, slice = unit % slices;
		if (unit == begin || slice == 0) rows = warp_rows(a, tile);
		cp_async_wait<C::STAGES - 2>();
		fence_proxy_async();
		__syncthreads();  // this stage has arrived, and the one to be loaded next has been read
		load_weights(into);
		load_x(unit + C::STAGES - 1, into);
		cp_async_commit();
		u8* stage = ring + slot * C::STAGE;
		int start[2] = {0, 0};
		for (int h = 0; h < 2 && TYPE == Q6_K; h++) start[h] = (int)((u64)(rows.row(lane() / 4 + h * 8, a.row) + slice * C::SIZE) % 16);
		multiply_unit<TYPE, N>(c, stage + warp() * C::WARP_SIZE, smem_desc(stage + C::W_SIZE, 0, 1024), start);
		if (++slot == C::STAGES) slot = 0;
		if (++into == C::STAGES) into = 0;
		if (slice < slices - 1 && unit < end - 1) continue;

		// The end of the block's part of a tile.
		int owner = block_of(tile * slices), of = block_of(tile * slices + slices - 1) - owner + 1;
		bool store = true;
		if (of > 1) {
			float* part = part_of(block, tile);
#pragma unroll
			for (int j = 0; j < N / 8; j++) store_float4(part + j * UNIT_THREADS * 4, c + j * 4);
			__syncthreads();
			store = last_to_finish(a.finished + owner, of, last);
			// Of the blocks only the first has something in front of the tile.
			if (store) add_parts<N>(c, part_of(owner, tile), parts + (i64)2 * (owner + 1) * UNIT_ROWS * N, (i64)2 * UNIT_ROWS * N, of);
		}
		if (store) store_tile<N>(a, tile, c, scales);
#pragma unroll
		for (int j = 0; j < N / 2; j++) c[j] = 0;
	}
	cp_async_wait<0>();
}

#define SKINNY_WGMMA(name, TYPE)                                                                            \
	KERNEL_1_PER_SM(name##_8, SkinnyWgmmaArgs, UNIT_THREADS) { skinny_wgmma<TYPE, 8>(a); }   \
	KERNEL_1_PER_SM(name##_16, SkinnyWgmmaArgs, UNIT_THREADS) { skinny_wgmma<TYPE, 16>(a); } \
	KERNEL_1_PER_SM(name##_32, SkinnyWgmmaArgs, UNIT_THREADS) { skinny_wgmma<TYPE, 32>(a); } \
	KERNEL_1_PER_SM(name##_64, SkinnyWgmmaArgs, UNIT_THREADS) { skinny_wgmma<TYPE, 64>(a); }

#else

#define SKINNY_WGMMA(name, TYPE)                    \
	KERNEL(name##_8, SkinnyWgmmaArgs, UNIT_THREADS) {}  \
	KERNEL(name##_16, SkinnyWgmmaArgs, UNIT_THREADS) {} \
	KERNEL(name##_32, SkinnyWgmmaArgs, UNIT_THREADS) {} \
	KERNEL(name##_64, SkinnyWgmmaArgs, UNIT_THREADS) {}

#endif

// Instances for each type and for up to 8, 16, 32 and 64 rows of x.
SKINNY_WGMMA(skinny_wgmma_q4_0, Q4_0)
SKINNY_WGMMA(skinny_wgmma_q8_0, Q8_0)
SKINNY_WGMMA(skinny_wgmma_q4_k, Q4_K)
SKINNY_WGMMA(skinny_wgmma_q5_k, Q5_K)
SKINNY_WGMMA(skinny_wgmma_q6_k, Q6_K)
