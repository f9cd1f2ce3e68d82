// Prefill attention of one slot on tensor cores by mma: FlashAttention over a paged f16 cache,
// for every plan. Tested against attend.cu.
//
// Grid (tiles of 64 query rows, heads, splits), 4 warps of 16 rows each. Tiles start at
// multiples of 64 of the sequence, so that results do not depend on how a prompt is cut into
// chunks. A KV tile is a page or 64 entries of a position list, double buffered by cp.async. S, O
// and the online softmax are f32. Bound by the tensor cores: 4·dim operations for each row and
// key, and operand part.
//
// flash is for many rows on GPUs without wgmma: Q and the softmax weights P are rounded to f16.
// flash_rows is for the few rows of a last chunk, on every GPU: Q and P are sums of two f16
// parts, 22 bits, so that a row has the precision of attend.cu, and the past is split (split-K),
// because few rows are few blocks; attend_merge merges.
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

// RowFragments is a warp's 16 query rows; a lane has parts of rows lane/4 and lane/4 + 8. PARTS
// is the f16 parts of a number of Q and of P: high, low.
template <int DIM, int PARTS>
struct RowFragments {
	u32 q[PARTS][DIM / 16][4];
	float acc[DIM / 8][4];
	SoftmaxState s[2];
	RowMask mask[2];
};

// scores computes S = Q·Kᵀ of the warp's rows with a tile, and masks it unless whole says that
// every row sees all of the tile.
template <int DIM, int PARTS>
__device__ __forceinline__ void scores(RowFragments<DIM, PARTS>& r, const KVStage<DIM>& t, float s[PAGE / 8][4], bool whole, bool page_tile) {
#pragma unroll
	for (int n = 0; n < PAGE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int n = 0; n < PAGE / 16; n++) {
			u32 b[4];
			ldmatrix_x4(b, t.k + (n * 16 + lane() % 8 + lane() / 16 * 8) * (DIM + 8) + k * 16 + lane() / 8 % 2 * 8);
#pragma unroll
			for (int i = 0; i < PARTS; i++) {
				mma_f16(s[2 * n], r.q[i][k], b);
				mma_f16(s[2 * n + 1], r.q[i][k], b + 2);
			}
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
template <int DIM, int PARTS>
__device__ __forceinline__ void add_tile(RowFragments<DIM, PARTS>& r, const KVStage<DIM>& t, float s[PAGE / 8][4]) {
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
		u32 p[2][4];
#pragma unroll
		for (int i = 0; i < 4; i++) split_half(s[2 * k + i / 2][i % 2 * 2], s[2 * k + i / 2][i % 2 * 2 + 1], p[0][i], p[1][i]);
#pragma unroll
		for (int d = 0; d < DIM / 16; d++) {
			u32 b[4];
			ldmatrix_x4_trans(b, t.v + (k * 16 + lane() % 16) * (DIM + 8) + d * 16 + lane() / 16 * 8);
#pragma unroll
			for (int i = 0; i < PARTS; i++) {
				mma_f16(r.acc[2 * d], p[i], b);
				mma_f16(r.acc[2 * d + 1], p[i], b + 2);
			}
		}
	}
}

// load_rows loads the queries of a lane's rows p, those from lo to last, scaled for scores in base 2.
template <int DIM, int PARTS>
__device__ __forceinline__ void load_rows(RowFragments<DIM, PARTS>& r, const FlashArgs& a, const Plan& plan, const int (&p)[2], int first, int lo, int last) {
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		r.s[u] = {EMPTY_MAX, 0};
		r.mask[u] = row_mask(plan, p[u]);
		bool there = p[u] >= lo && p[u] <= last;
		const float* q = a.q + ((i64)(there ? p[u] - first : 0) * a.heads + blockIdx.y) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 parts[2];
				const float* from = q + k * 16 + i * 8;
				split_half(there ? from[0] * unit : 0, there ? from[1] * unit : 0, parts[0], parts[1]);
				for (int n = 0; n < PARTS; n++) r.q[n][k][u + 2 * i] = parts[n];
			}
		}
	}
#pragma unroll
	for (int d = 0; d < DIM / 8; d++) r.acc[d][0] = r.acc[d][1] = r.acc[d][2] = r.acc[d][3] = 0;
}

// store_row stores a row of r: the result, or of one split of several the sum and its state as
// attend_merge reads them. out is the row's in either.
template <int DIM, int PARTS>
__device__ __forceinline__ void store_row(const RowFragments<DIM, PARTS>& r, int u, float sum, bool split, float* out) {
	float scale = split ? 1 : normalizer(sum, false);
	float* y = out + lane() % 4 * 2;
#pragma unroll
	for (int d = 0; d < DIM / 8; d++) {
		y[d * 8] = r.acc[d][2 * u] * scale;
		y[d * 8 + 1] = r.acc[d][2 * u + 1] * scale;
	}
	if (!split || lane() % 4 != 0) return;
	out[DIM] = r.s[u].max;
	out[DIM + 1] = sum;
}

// flash attends with a block's rows over one split of their tiles, of `splits`; parts is NULL if
// there is but one.
template <int DIM, int PARTS>
__device__ __forceinline__ void flash(const FlashArgs& a, int splits, float* parts) {
	DYNAMIC_SHARED(KVStage<DIM>, stages);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, h = blockIdx.y;
	if (first < 0) return;
	int tile = first / FLASH_ROWS + (int)(gridDim.x - 1 - blockIdx.x);  // longest first, to balance the tail of the grid
	int lo = max_of(tile * FLASH_ROWS, first), last = min_of((tile + 1) * FLASH_ROWS, first + rows) - 1;
	if (lo > last) return;
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	RowPosition at = {0, first, lo};
	Plan plan = a.plan;
	Entries e = entries(plan.list, a.g, at, h, (int)a.heads);
	// Few rows promise the bits of dense attention where a list leaves nothing out. Without a span,
	// what it has for the last row it has for all.
	if (PARTS == 2 && plan.span.back == 0 && plan.span.drop == 0 && selects_all(plan, e, last)) plan.selected = SELECTED_ALL;
	Tiles w = tiles_of(plan, e, lo, last);
	int each = (w.all + splits - 1) / splits, from = blockIdx.z * each, end = min_of(from + each, w.all);
	if (from < end) load_tile_async<DIM>(a, w, stages[from % 2], from, kv_head, last);
	RowFragments<DIM, PARTS> r;
	int p[2] = {tile * FLASH_ROWS + warp() * 16 + lane() / 4, tile * FLASH_ROWS + warp() * 16 + lane() / 4 + 8};
	load_rows(r, a, plan, p, first, lo, last);

	const Span& span = plan.span;
	bool dense = plan.selected == SELECTED_ALL && span.back == 0 && span.drop == 0;
	for (int t = from; t < end; t++) {
		if (t + 1 < end)
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
		if (p[u] < lo || p[u] > last) continue;
		i64 index = (i64)(p[u] - first) * a.heads + h;
		store_row(r, u, sum, splits > 1, splits > 1 ? parts + (index * splits + blockIdx.z) * (DIM + 2) : a.dst + index * DIM);
	}
}

KERNEL(flash_64, FlashArgs, 128) { flash<64, 1>(a, 1, NULL); }
KERNEL(flash_128, FlashArgs, 128) { flash<128, 1>(a, 1, NULL); }

// FlashRowsArgs adds the splits of flash_rows.
struct FlashRowsArgs : FlashArgs {
	float* parts;  // [rows, heads, splits, dim + 2]: partial results and their states; unused if splits is 1
	i64 splits;
};

KERNEL(flash_rows_64, FlashRowsArgs, 128) { flash<64, 2>(a, (int)a.splits, a.parts); }
KERNEL(flash_rows_128, FlashRowsArgs, 128) { flash<128, 2>(a, (int)a.splits, a.parts); }
