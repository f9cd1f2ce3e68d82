// Skinny GEMM for decode batches, dst = x·wᵀ for 2 to 32 rows of x, on tensor cores. Bound by
// reading the weights once. Tested against matmul.cu.
//
// mma.m16n8k16 with the weights as A: 16 rows of w, a tile, by 8 rows of x. One persistent block
// per SM. Each warp keeps to a slice of k, whose B fragments of x (packed by pack_operand) stay
// in registers for the whole launch, and streams the tiles of its block through a cp.async
// pipeline of its own. Partial sums of warps are reduced in shared memory in the order of k;
// where k has more slices than a block has warps, split-K: blocks write partial sums to global
// memory and the last one of a range to finish (a counter) adds them up in order. Pipelines are
// filled before pdl_wait, since weights do not depend on the preceding kernels.
//
// x is scaled by a power of two for each slice, to fit f16. With F16 weights x is the sum of
// two f16 (22 bits), with BF16 weights of three bf16. Quantized weights are dequantized to f16 in
// registers, and x is f16.
#include "args.cuh"
#include "dequant.cuh"
#include "reduce.cuh"
#include "weight_fragment.cuh"

struct SkinnyArgs {
	const Word4* x;  // packed by pack_operand, with:
	const float *unit, *squares;
	i64 norm;  // RMSNorm of x: its weight is in x, its scale is applied in the epilogue
	f64 eps;
	float* dst[3];      // [rows, n]
	const u8* w[3];     // [n, k]
	i64 n[3];
	i64 rows, k, row;  // row: bytes from a row of w to the next
	i64 mode;
	i64 fixed;       // constant weights: they may be read before pdl_wait
	float* parts;    // [ranges, splits, tiles, 8·NT, 16]: partial sums
	i32* finished;   // [ranges]: counters of finished blocks; 0 between launches
	i64 ranges, splits, across, tiles;  // across: slices per block; tiles: maximum per range
};

constexpr int TILE_M = 16;  // rows of w in a tile: m of an mma
constexpr int SUM_STRIDE = 20;  // padded stride of a warp's partial sums in shared memory

// KSlice is the tiling of a type: WEIGHTS of k per slice, and TERMS that x is a sum of. A row of
// a tile takes PITCH bytes of a stage, of which PIECES of 16 are copied; a stage is a tile of
// a slice, or for plain types 64 weights of it.
template <int TYPE, int NT>
struct KSlice {
	static constexpr bool QUANTIZED = TYPE >= Q4_0;
	static constexpr int WARPS = NT == 4 ? 8 : 16;
	static constexpr int WEIGHTS = QUANTIZED ? 256 : TYPE == F16 ? 128 : 64;
	static constexpr int TERMS = QUANTIZED ? 1 : TYPE == F16 ? 2 : 3;
	static constexpr int STEPS = WEIGHTS / 16;
	static constexpr int SIZE = TYPE == Q4_0 || TYPE == Q4_K ? 144 : TYPE == Q8_0 ? 272 : TYPE == Q5_K ? 176 : TYPE == Q6_K ? 210 : WEIGHTS * 2;
	static constexpr int PIECES = QUANTIZED ? (SIZE + 15) / 16 : 8;
	static constexpr int PITCH = TYPE == Q6_K ? 240 : PIECES * 16;
	static constexpr int SLOT = TILE_M * PITCH;
	static constexpr int ROUNDS = QUANTIZED ? 1 : WEIGHTS / 64;  // stages per tile
	static constexpr int STAGES = (QUANTIZED && SIZE > 200 ? 3 : QUANTIZED && SIZE > 144 ? 4 : 5) * (16 / WARPS);
	static constexpr int SUM_BUFFERS = TYPE == Q8_0 && NT > 1 ? 1 : 2;  // buffers of partial sums
	static constexpr int FRAGMENTS = STEPS * TERMS / 2;  // 128-bit words of B fragments per lane and 8 rows of x
};

// split_pair rounds two floats to the type of w and leaves the remainders.
template <int TYPE>
__device__ __forceinline__ u32 split_pair(float& x, float& y) {
	u32 both = TYPE == BF16 ? pack_bfloat(x, y) : pack_half(x, y);
	x -= TYPE == BF16 ? from_bfloat((u16)both) : from_half((u16)both);
	y -= TYPE == BF16 ? from_bfloat((u16)(both >> 16)) : from_half((u16)(both >> 16));
	return both;
}

struct OperandArgs {
	Word4* to;       // [slices, tiles, FRAGMENTS, 32 lanes]: B fragments of 8 rows and a slice
	float* unit;     // [slices, 8·tiles]: scales that undo the power of two
	float* squares;  // [slices, 8·tiles]: sums of squares of x
	const float* x;     // [rows, k]
	const float* norm;  // [k]: weight of an RMSNorm; NULL: none
	i64 rows, k;
};

// pack_operand: grid (slices, rows / 8), one warp. Packs x as B fragments of mma.m16n8k16, so
// that every block of skinny_gemm loads them with 128-bit loads. Global reads are coalesced and
// are transposed through shared memory.
template <int TYPE>
__device__ __forceinline__ void pack_operand(const OperandArgs& a) {
	typedef KSlice<TYPE, 1> C;
	constexpr int EACH = C::QUANTIZED ? 2 : 1;  // 128-bit loads of a row per lane
	constexpr int PARTS = C::QUANTIZED ? 2 : C::TERMS;
	constexpr int ROW = 272;  // bytes of a row in scratch, padded
	SHARED(Word4, scratch, 8 * ROW / 16);
	pdl_trigger();
	int slice = blockIdx.x, tile = blockIdx.y, cols = gridDim.y * 8, from = slice * C::WEIGHTS, t = lane() % 4;
	int left = min_of((int)a.k - from, C::WEIGHTS);
	int at[EACH];
	float norm[EACH][4], v[8][EACH][4];
#pragma unroll
	for (int e = 0; e < EACH; e++) {
		at[e] = C::QUANTIZED ? lane() / 8 * 64 + e * 32 + lane() % 8 * 4 : lane() * 4;
		Word4 w = {{0x3f800000u, 0x3f800000u, 0x3f800000u, 0x3f800000u}};
		if (a.norm && at[e] < left) w = load16(a.norm + from + at[e]);
		for (int i = 0; i < 4; i++) norm[e][i] = __uint_as_float(w.w[i]);
	}
	pdl_wait();
#pragma unroll
	for (int c = 0; c < 8; c++) {
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			Word4 w = {{0, 0, 0, 0}};
			if (tile * 8 + c < (int)a.rows && at[e] < left) w = load16(a.x + (tile * 8 + c) * a.k + from + at[e]);
			for (int i = 0; i < 4; i++) v[c][e][i] = __uint_as_float(w.w[i]);
		}
	}
#pragma unroll
	for (int c = 0; c < 8; c++) {
		float top = 0, sum = 0;
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			for (int i = 0; i < 4; i++) {
				sum += v[c][e][i] * v[c][e][i];
				v[c][e][i] *= norm[e][i];
				top = max_of(top, fabsf(v[c][e][i]));
			}
		}
		top = reduce_warp(top, Max());
		sum = reduce_warp(sum, Plus());
		// The largest element becomes 2¹³ to 2¹⁴.
		u32 exponent = min_of(max_of(__float_as_uint(top) >> 23, 14u), 253u);
		float up = __uint_as_float((267 - exponent) << 23);
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			for (int i = 0; i < 4; i++) v[c][e][i] *= up;
		}
		if (lane() == c) {
			a.unit[slice * cols + tile * 8 + c] = __uint_as_float((exponent - 13) << 23);
			a.squares[slice * cols + tile * 8 + c] = sum;
		}
	}
	// One half of the slice at a time, or one term.
#pragma unroll
	for (int e = 0; e < PARTS; e++) {
		__syncwarp();
#pragma unroll
		for (int c = 0; c < 8; c++) {
			float* four = v[c][C::QUANTIZED ? e : 0];
			u32* to = (u32*)((u8*)scratch + c * ROW + lane() * 8);
			to[0] = C::QUANTIZED ? split_pair<TYPE>(four[0], four[2]) : split_pair<TYPE>(four[0], four[1]);
			to[1] = C::QUANTIZED ? split_pair<TYPE>(four[1], four[3]) : split_pair<TYPE>(four[2], four[3]);
		}
		__syncwarp();
#pragma unroll
		for (int i = 0; i < C::FRAGMENTS / PARTS; i++) {
			const u8* w = (const u8*)scratch + lane() / 4 * ROW + (C::QUANTIZED ? t * 64 + i * 16 : i * 64 + t * 16);
			a.to[(((i64)slice * gridDim.y + tile) * C::FRAGMENTS + e * (C::FRAGMENTS / PARTS) + i) * WARP + lane()] = load16(w);
		}
	}
}

KERNEL(pack_operand_f16, OperandArgs, WARP) { pack_operand<F16>(a); }
KERNEL(pack_operand_bf16, OperandArgs, WARP) { pack_operand<BF16>(a); }
KERNEL(pack_operand_quantized, OperandArgs, WARP) { pack_operand<Q4_0>(a); }

// XFragments are a warp's B fragments, and the scales of columns 2t and 2t+1 of a lane.
template <int TYPE, int NT>
struct XFragments {
	u32 b[KSlice<TYPE, NT>::STEPS][NT][KSlice<TYPE, NT>::TERMS][2];
	float unit[NT][2];
};

// load_x loads what pack_operand packed.
template <int TYPE, int NT>
__device__ __forceinline__ void load_x(XFragments<TYPE, NT>& p, const Word4* x, const float* unit, int slice) {
	typedef KSlice<TYPE, NT> C;
	constexpr int PARTS = C::QUANTIZED ? 2 : C::TERMS;
#pragma unroll
	for (int j = 0; j < NT; j++) {
#pragma unroll
		for (int i = 0; i < C::FRAGMENTS; i++) {
			Word4 w = x[((slice * NT + j) * C::FRAGMENTS + i) * WARP + lane()];
			int part = i / (C::FRAGMENTS / PARTS), step = i % (C::FRAGMENTS / PARTS) * 2 + (C::QUANTIZED ? part * 8 : 0), term = C::QUANTIZED ? 0 : part;
			p.b[step][j][term][0] = w.w[0];
			p.b[step][j][term][1] = w.w[1];
			p.b[step + 1][j][term][0] = w.w[2];
			p.b[step + 1][j][term][1] = w.w[3];
		}
		for (int i = 0; i < 2; i++) p.unit[j][i] = unit[(slice * NT + j) * 8 + lane() % 4 * 2 + i];
	}
}

// add_step multiplies one k16 step of the tile.
template <int TYPE, int NT>
__device__ __forceinline__ void add_step(float (&c)[NT][4], const u32 w[4], const XFragments<TYPE, NT>& p, int step) {
#pragma unroll
	for (int j = 0; j < NT; j++) {
#pragma unroll
		for (int term = 0; term < KSlice<TYPE, NT>::TERMS; term++) {
			if (TYPE == BF16)
				mma_bf16(c[j], w, p.b[step][j][term]);
			else
				mma_f16(c[j], w, p.b[step][j][term]);
		}
	}
}

// add_quantized adds the warp's part of a tile of a quantized type. Row r starts at
// (start + r·step) % 16 bytes in its row of the stage.
template <int TYPE, int NT>
__device__ __forceinline__ void add_quantized(float (&c)[NT][4], const u8* slot, const XFragments<TYPE, NT>& p, int start, int step) {
	typedef KSlice<TYPE, NT> C;
	WeightFragment<TYPE> one, other;
	one.read(slot + lane() / 4 * C::PITCH, lane() % 4, (start + lane() / 4 * step) % 16);
	other.read(slot + (lane() / 4 + 8) * C::PITCH, lane() % 4, (start + (lane() / 4 + 8) * step) % 16);
#pragma unroll
	for (int i = 0; i < C::STEPS; i++) {
		u32 x[2], y[2];
		one.step(x, i);
		other.step(y, i);
		u32 w[4] = {x[0], y[0], x[1], y[1]};
		add_step<TYPE, NT>(c, w, p, i);
	}
}

// TilePosition is where a tile lies.
struct TilePosition {
	int matrix, row, last;  // first row of the tile; last row of the matrix
};

// tile_position is tile sub of an item: 16 rows of the matrices laid end to end, or with GATE
// the same 16 rows of both.
__device__ __forceinline__ TilePosition tile_position(const SkinnyArgs& a, int item, int sub) {
	if (a.mode == GATE) return {sub, item * TILE_M, (int)a.n[0] - 1};
	int end = ((int)a.n[0] + TILE_M - 1) / TILE_M, next = end + ((int)a.n[1] + TILE_M - 1) / TILE_M;
	if (item < end) return {0, item * TILE_M, (int)a.n[0] - 1};
	if (item < next) return {1, (item - end) * TILE_M, (int)a.n[1] - 1};
	return {2, (item - next) * TILE_M, (int)a.n[2] - 1};
}

template <class T>
__device__ __forceinline__ T pick(T const (&of)[3], int i) { return i == 0 ? of[0] : i == 1 ? of[1] : of[2]; }

// finish_range adds up the splits of a range of items and applies the epilogue: scale of the
// norm, then store, add or SwiGLU.
template <int NT>
__device__ __forceinline__ void finish_range(const SkinnyArgs& a, int range, int lo, int items, const float* scales) {
	constexpr int COLS = NT * 8, WORDS = COLS * TILE_M / 4, IN_FLIGHT = 2;  // 128-bit words of a tile; words in flight per thread
	int splits = (int)a.splits, per = a.mode == GATE ? 2 : 1;
	i64 stride = a.tiles * WORDS;
	const Word4* parts = (const Word4*)a.parts + (i64)range * splits * stride;
	auto plus = [](float v[4], const Word4& w) {
		for (int i = 0; i < 4; i++) v[i] += __uint_as_float(w.w[i]);
	};
	for (int base = threadIdx.x; base < items * WORDS; base += IN_FLIGHT * blockDim.x) {
		float v[IN_FLIGHT][2][4] = {};
		const Word4* from[IN_FLIGHT];
#pragma unroll
		for (int u = 0; u < IN_FLIGHT; u++) {
			int i = min_of(base + u * (int)blockDim.x, items * WORDS - 1);
			from[u] = parts + (i64)(i / WORDS * per) * WORDS + i % WORDS;
		}
#pragma unroll 4
		for (int s = 0; s < splits; s++) {
#pragma unroll
			for (int u = 0; u < IN_FLIGHT; u++) {
				plus(v[u][0], load16(from[u] + s * stride));
				if (per == 2) plus(v[u][1], load16(from[u] + s * stride + WORDS));
			}
		}
#pragma unroll
		for (int u = 0; u < IN_FLIGHT; u++) {
			int i = base + u * blockDim.x, col = i / (TILE_M / 4) % COLS;
			if (i >= items * WORDS || col >= (int)a.rows) continue;
			TilePosition at = tile_position(a, lo + i / WORDS, 0);
			int row = at.row + i % (TILE_M / 4) * 4;
			float scale = a.norm ? scales[col] : 1;
			float* to = pick(a.dst, at.matrix) + col * (i64)(at.last + 1) + row;
#pragma unroll
			for (int j = 0; j < 4; j++) {
				if (row + j > at.last) break;
				float y = v[u][0][j] * scale;
				if (a.mode == GATE) y = y / (1 + expf(-y)) * (v[u][1][j] * scale);
				to[j] = a.mode == ADD ? to[j] + y : y;
			}
		}
	}
}

// norm_scale is 1 / sqrt(mean(x²) + eps) of row threadIdx.x of x.
__device__ __forceinline__ float norm_scale(const SkinnyArgs& a, int cols, int slices) {
	float sum = 0;
#pragma unroll 8
	for (int s = 0; s < slices; s++) sum += a.squares[s * cols + threadIdx.x];
	return 1 / sqrtf(sum / (float)a.k + (float)a.eps);
}

// reduce_warps adds the partial sums of the warps of each tile of step n, in the order of k, and
// stores them: deep tiles at a time, each by the warps of `there` slices.
template <int COLS>
__device__ __forceinline__ void reduce_warps(float* parts, const float* sums, const SkinnyArgs& a, int items, int n, int per, int deep, int across, int there) {
	constexpr int SUMS = COLS * SUM_STRIDE;
	for (int i = threadIdx.x; i < deep * COLS * TILE_M; i += blockDim.x) {
		int d = i / (COLS * TILE_M), item = n / per * deep + d, word = i % (COLS * TILE_M);
		if (item >= items || word / TILE_M >= (int)a.rows) continue;
		const float* of = sums + d * across * SUMS + word / TILE_M * SUM_STRIDE + word % TILE_M;
		float sum = 0;
#pragma unroll 8
		for (int w = 0; w < there; w++) sum += of[w * SUMS];
		parts[(i64)(item * per + n % per) * COLS * TILE_M + word] = sum;
	}
}

// skinny_gemm: grid (ranges · splits), one block per SM: range blockIdx.x / splits of the items,
// split blockIdx.x % splits of the slices.
template <int TYPE, int NT>
__device__ __forceinline__ void skinny_gemm(const SkinnyArgs& a) {
	typedef KSlice<TYPE, NT> C;
	constexpr int COLS = NT * 8, SUMS = COLS * SUM_STRIDE;
	DYNAMIC_SHARED(u8, memory);
	SHARED(int, last, 1);
	pdl_trigger();
	int splits = (int)a.splits, across = (int)a.across, deep = C::WARPS / across, per = a.mode == GATE ? 2 : 1;
	int range = blockIdx.x / splits, split = blockIdx.x % splits;
	int all = ((int)a.n[0] + TILE_M - 1) / TILE_M;
	if (per == 1) all += ((int)a.n[1] + TILE_M - 1) / TILE_M + ((int)a.n[2] + TILE_M - 1) / TILE_M;
	int lo = (int)((i64)all * range / a.ranges), items = (int)((i64)all * (range + 1) / a.ranges) - lo;
	int steps = (items + deep - 1) / deep * per;

	// The warp takes items mine, mine+deep... of the range, and one slice.
	int slice = split * across + warp() % across, mine = warp() / across, from = slice * C::WEIGHTS;
	int slices = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS, there = min_of(across, slices - split * across);  // of the block
	int own = mine < deep && warp() % across < there ? (items - mine + deep - 1) / deep * per : 0;

	float* sums = (float*)memory;                          // [SUM_BUFFERS, warps, SUMS]
	float* scales = sums + C::SUM_BUFFERS * C::WARPS * SUMS;  // [COLS]
	u8* ring = (u8*)(scales + COLS) + warp() * C::STAGES * C::SLOT;
	int step = 0, round = 0, into = 0, most = 0, bytes = (int)a.row;
	const u8* w = nullptr;
	auto start_of = [&](int step) {
		TilePosition at = tile_position(a, lo + step / per * deep + mine, step % per);
		return (u64)pick(a.w, at.matrix) + at.row * a.row + slice * C::SIZE;
	};
	auto load_stage = [&]() {
		if (step < own) {
			if (round == 0) {
				TilePosition at = tile_position(a, lo + step / per * deep + mine, step % per);
				w = pick(a.w, at.matrix) + at.row * a.row + (C::QUANTIZED ? slice * C::SIZE : from * 2 + lane() % 8 * 16);
				most = at.last - at.row;
			}
			u8* slot = ring + into * C::SLOT;
			if constexpr (C::QUANTIZED) {
				u8* to = slot + lane() * 16;
				const u8* source = w + lane() * 16;
				int gap = bytes - C::PIECES * 16;
#pragma unroll
				for (int i = 0; i < (TILE_M * C::PIECES + WARP - 1) / WARP; i++) {
					int r = (i * WARP + lane()) / C::PIECES;
					const u8* piece = source + r * gap + i * WARP * 16;
					if (most < TILE_M - 1) piece -= max_of(r - most, 0) * bytes;
					// Rows of Q6_K are 2-byte aligned.
					if (TYPE == Q6_K) piece -= (u64)(piece - (lane() + i * WARP - r * C::PIECES) * 16) & 15;
					if (i * WARP + lane() < TILE_M * C::PIECES) cp_async(to + i * WARP * 16 + r * (C::PITCH - C::PIECES * 16), piece);
				}
			} else {
				// 16-byte pieces of odd rows are swizzled against bank conflicts.
				bool there = from + round * 64 + lane() % 8 * 8 < (int)a.k;
				u8* to = slot + lane() / 8 * 128 + (lane() % 8 ^ lane() / 8 % 2 * 4) * 16;
#pragma unroll
				for (int i = 0; i < 4; i++) cp_async_zfill(to + i * 512, w + min_of(lane() / 8 + i * 4, most) * bytes + round * 128, there);
			}
			if (++round == C::ROUNDS) {
				round = 0;
				step++;
			}
		}
		cp_async_commit();
		if (++into == C::STAGES) into = 0;
	};
	if (!a.fixed) pdl_wait();
	for (int i = 1; i < C::STAGES; i++) load_stage();
	if (a.fixed) pdl_wait();
	XFragments<TYPE, NT> p;
	if (own > 0) load_x<TYPE, NT>(p, a.x, a.unit, slice);
	if (a.norm && threadIdx.x < COLS) scales[threadIdx.x] = norm_scale(a, COLS, slices);

	int use = 0;
	float* parts = a.parts + (i64)blockIdx.x * a.tiles * COLS * TILE_M;
	for (int n = 0; n < steps; n++) {
		float c[NT][4];
#pragma unroll
		for (int j = 0; j < NT; j++) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
		if (n < own) {
#pragma unroll
			for (int q = 0; q < C::ROUNDS; q++) {
				__syncwarp();  // the stage about to be overwritten has been read
				load_stage();
				cp_async_wait<C::STAGES - 1>();
				__syncwarp();
				const u8* slot = ring + use * C::SLOT;
				if constexpr (C::QUANTIZED) {
					add_quantized<TYPE, NT>(c, slot, p, TYPE == Q6_K ? (int)(start_of(n) & 15) : 0, TYPE == Q6_K ? bytes & 15 : 0);
				} else {
#pragma unroll
					for (int h = 0; h < 2; h++) {
						const u8* row = slot + lane() / 4 * 128 + ((h * 4 + lane() % 4) ^ lane() / 4 % 2 * 4) * 16;
						Word4 x = load16(row), y = load16(row + 1024);
						u32 one[4] = {x.w[0], y.w[0], x.w[1], y.w[1]}, two[4] = {x.w[2], y.w[2], x.w[3], y.w[3]};
						add_step<TYPE, NT>(c, one, p, 4 * q + 2 * h);
						add_step<TYPE, NT>(c, two, p, 4 * q + 2 * h + 1);
					}
				}
				if (++use == C::STAGES) use = 0;
			}
		}
		if (C::SUM_BUFFERS == 1) __syncthreads();  // the previous partial sums have been read
		float* turned = sums + n % C::SUM_BUFFERS * C::WARPS * SUMS;
		if (n < own) {
			float* to = turned + warp() * SUMS + lane() % 4 * 2 * SUM_STRIDE + lane() / 4;
#pragma unroll
			for (int j = 0; j < NT; j++) {
#pragma unroll
				for (int i = 0; i < 4; i++) to[(j * 8 + i % 2) * SUM_STRIDE + i / 2 * 8] = c[j][i] * p.unit[j][i % 2];
			}
		}
		__syncthreads();
		reduce_warps<COLS>(parts, turned, a, items, n, per, deep, across, there);
	}
	cp_async_wait<0>();
	__syncthreads();
	if (splits > 1 && !last_to_finish(a.finished + range, splits, last)) return;
	finish_range<NT>(a, range, lo, items, scales);
}

// Instances for each type and for up to 8, 16 and 32 rows of x. With the three terms of BF16,
// 32 rows at once take longer than 16 twice.
#define SKINNY(name, TYPE)                                                             \
	KERNEL_1_PER_SM(name##_8, SkinnyArgs, 16 * WARP) { skinny_gemm<TYPE, 1>(a); } \
	KERNEL_1_PER_SM(name##_16, SkinnyArgs, 16 * WARP) { skinny_gemm<TYPE, 2>(a); }
#define SKINNY_32(name, TYPE) \
	SKINNY(name, TYPE)        \
	KERNEL_1_PER_SM(name##_32, SkinnyArgs, 8 * WARP) { skinny_gemm<TYPE, 4>(a); }

SKINNY_32(skinny_gemm_f16, F16)
SKINNY(skinny_gemm_bf16, BF16)
SKINNY_32(skinny_gemm_q4_0, Q4_0)
SKINNY_32(skinny_gemm_q8_0, Q8_0)
SKINNY_32(skinny_gemm_q4_k, Q4_K)
SKINNY_32(skinny_gemm_q5_k, Q5_K)
SKINNY_32(skinny_gemm_q6_k, Q6_K)
