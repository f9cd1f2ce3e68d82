// Prefill attention of one slot on tensor cores, for GPUs without wgmma:
// FlashAttention over a paged f16 cache, for every plan. Tested against attend.cu within the
// bound of f16.
//
// Grid (tiles of 64 query rows, heads), 4 warps of 16 rows each. Tiles start at multiples of
// 64 of the sequence, so that results do not depend on how a prompt is cut into chunks. A KV
// tile is a page or 64 entries of a position list, double buffered by cp.async. Q and the
// softmax weights P are rounded to f16; S, O and the online softmax are f32. Bound by the
// tensor cores: 4·dim operations for each row and key.
#include "tiles.cuh"

template <int DIM>
struct KVStage {
	u16 k[PAGE * (DIM + 8)], v[PAGE * (DIM + 8)];
	i32 at[PAGE];       // positions of the rows, -1 for none
	float bias[PAGE];   // log2 of the weights of the list
};

// load_tile_async starts the copy of tile t. last is the last position of the block.
template <int DIM>
__device__ inline void load_tile_async(const FlashArgs& a, const Tiles& w, KVStage<DIM>& s, int t, int kv_head, int last) {
	constexpr int PIECES = DIM / 8;
	for (int i = threadIdx.x; i < PAGE * PIECES; i += blockDim.x) {
		int r = i / PIECES, c = i % PIECES * 8, j = w.position(t, r);
		int page = j >= 0 && j <= last ? page_of(a.g, 0, j / PAGE) : -1;
		u16 *k = s.k + r * (DIM + 8) + c, *v = s.v + r * (DIM + 8) + c;
		if (page >= 0) {
			i64 from = kv_offset(a.g, page, kv_head, j % PAGE) + c;
			cp_async(k, (const u16*)a.g.k + from);
			cp_async(v, (const u16*)a.g.v + from);
		} else {
			Word4 zero = {{0, 0, 0, 0}};
			*(Word4*)k = zero;
			*(Word4*)v = zero;
		}
		if (c == 0) {
			s.at[r] = page < 0 ? -1 : j;
			s.bias[r] = w.bias(t, r);
		}
	}
	cp_async_commit();
}

// RowFragments is a warp's 16 query rows; a lane has parts of rows lane/4 and lane/4 + 8.
template <int DIM>
struct RowFragments {
	u32 q[DIM / 16][4];
	float acc[DIM / 8][4];
	SoftmaxState s[2];
	RowMask mask[2];
};

// scores computes S = Q·Kᵀ of the warp's rows with a tile, and masks it unless whole says that
// every row sees all of the tile.
template <int DIM>
__device__ __forceinline__ void scores(RowFragments<DIM>& r, const KVStage<DIM>& t, float s[PAGE / 8][4], bool whole, bool page_tile) {
#pragma unroll
	for (int n = 0; n < PAGE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int n = 0; n < PAGE / 16; n++) {
			u32 b[4];
			ldmatrix_x4(b, t.k + (n * 16 + lane() % 8 + lane() / 16 * 8) * (DIM + 8) + k * 16 + lane() / 8 % 2 * 8);
			mma_f16(s[2 * n], r.q[k], b);
			mma_f16(s[2 * n + 1], r.q[k], b + 2);
		}
	}
	if (whole) return;
#pragma unroll
	for (int n = 0; n < PAGE / 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int c = n * 8 + lane() % 4 * 2 + i % 2, j = t.at[c];
			const RowMask& see = r.mask[i / 2];
			bool in = j >= 0 && see.spanned(j), edge = see.in_sinks_or_window(j);
			if (!in || (!page_tile && edge))
				s[n][i] = -infinity();
			else if (!edge)
				s[n][i] += t.bias[c];
		}
	}
}

// add_tile adds a tile to the online softmax and O += P·V.
template <int DIM>
__device__ __forceinline__ void add_tile(RowFragments<DIM>& r, const KVStage<DIM>& t, float s[PAGE / 8][4]) {
	float scale[2];
#pragma unroll
	for (int u = 0; u < 2; u++) {
		float top = r.s[u].max;
#pragma unroll
		for (int n = 0; n < PAGE / 8; n++) top = max_of(top, max_of(s[n][2 * u], s[n][2 * u + 1]));
		top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 1));
		top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 2));
		scale[u] = rescale(r.s[u].max, top);
		r.s[u].max = top;
		float sum = 0;
#pragma unroll
		for (int n = 0; n < PAGE / 8; n++) {
			s[n][2 * u] = exp2f(s[n][2 * u] - top);
			s[n][2 * u + 1] = exp2f(s[n][2 * u + 1] - top);
			sum += s[n][2 * u] + s[n][2 * u + 1];
		}
		r.s[u].sum = r.s[u].sum * scale[u] + sum;  // this lane's columns only; reduced at the end
	}
#pragma unroll
	for (int d = 0; d < DIM / 8; d++) {
#pragma unroll
		for (int i = 0; i < 4; i++) r.acc[d][i] *= scale[i / 2];
	}
#pragma unroll
	for (int k = 0; k < PAGE / 16; k++) {
		u32 p[4] = {pack_half(s[2 * k][0], s[2 * k][1]), pack_half(s[2 * k][2], s[2 * k][3]), pack_half(s[2 * k + 1][0], s[2 * k + 1][1]), pack_half(s[2 * k + 1][2], s[2 * k + 1][3])};
#pragma unroll
		for (int d = 0; d < DIM / 16; d++) {
			u32 b[4];
			ldmatrix_x4_trans(b, t.v + (k * 16 + lane() % 16) * (DIM + 8) + d * 16 + lane() / 16 * 8);
			mma_f16(r.acc[2 * d], p, b);
			mma_f16(r.acc[2 * d + 1], p, b + 2);
		}
	}
}

template <int DIM>
__device__ __forceinline__ void flash(const FlashArgs& a) {
	DYNAMIC_SHARED(KVStage<DIM>, stages);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, h = blockIdx.y;
	if (first < 0) return;
	int tile = first / FLASH_ROWS + (int)(gridDim.x - 1 - blockIdx.x);  // longest first, to balance the tail of the grid
	int lo = max_of(tile * FLASH_ROWS, first), last = min_of((tile + 1) * FLASH_ROWS, first + rows) - 1;
	if (lo > last) return;
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	RowPosition at = {0, first, lo};
	Tiles w = tiles_of(a.plan, entries(a.plan.list, a.g, at, h, (int)a.heads), lo, last);
	if (w.all > 0) load_tile_async<DIM>(a, w, stages[0], 0, kv_head, last);
	RowFragments<DIM> r;
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
	int p[2];
#pragma unroll
	for (int u = 0; u < 2; u++) {
		p[u] = tile * FLASH_ROWS + warp() * 16 + lane() / 4 + u * 8;
		r.s[u] = {EMPTY_MAX, 0};
		r.mask[u] = row_mask(a.plan, p[u]);
		bool there = p[u] >= lo && p[u] <= last;
		const float* q = a.q + ((i64)(there ? p[u] - first : 0) * a.heads + h) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
			r.q[k][u] = there ? pack_half(q[k * 16] * unit, q[k * 16 + 1] * unit) : 0;
			r.q[k][u + 2] = there ? pack_half(q[k * 16 + 8] * unit, q[k * 16 + 9] * unit) : 0;
		}
	}
#pragma unroll
	for (int d = 0; d < DIM / 8; d++) r.acc[d][0] = r.acc[d][1] = r.acc[d][2] = r.acc[d][3] = 0;

	const Span& span = a.plan.span;
	bool dense = a.plan.selected == SELECTED_ALL && span.back == 0 && span.drop == 0;
	for (int t = 0; t < w.all; t++) {
		if (t + 1 < w.all)
			load_tile_async<DIM>(a, w, stages[(t + 1) % 2], t + 1, kv_head, last);
		else
			cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		const KVStage<DIM>& stage = stages[t % 2];
		float s[PAGE / 8][4];
		scores(r, stage, s, dense && stage.at[PAGE - 1] >= 0 && stage.at[PAGE - 1] <= lo, t < w.pages);
		add_tile(r, stage, s);
		__syncthreads();
	}
#pragma unroll
	for (int u = 0; u < 2; u++) {
		float sum = r.s[u].sum;
		sum += __shfl_xor_sync(FULL_MASK, sum, 1);
		sum += __shfl_xor_sync(FULL_MASK, sum, 2);
		float scale = normalizer(sum, false);
		if (p[u] < lo || p[u] > last) continue;
		float* y = a.dst + ((i64)(p[u] - first) * a.heads + h) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int d = 0; d < DIM / 8; d++) {
			y[d * 8] = r.acc[d][2 * u] * scale;
			y[d * 8 + 1] = r.acc[d][2 * u + 1] * scale;
		}
	}
}

KERNEL(flash_64, FlashArgs, 128) { flash<64>(a); }
KERNEL(flash_128, FlashArgs, 128) { flash<128>(a); }
