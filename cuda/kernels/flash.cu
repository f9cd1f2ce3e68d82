// Attention of many rows of one slot on tensor cores: what a prefill does. Checked
// against attend.cu, with the bound that half precision allows.
//
// A block computes 64 positions of one head, which start at a multiple of 64, so
// that the chunk that a row comes in changes nothing. Its four warps take 16 rows
// each and add up the tiles that a row of the block sees, in ascending order: a
// page of keys and values, or 64 entries of a list, in shared memory while the
// next one is on its way. Queries and weights are rounded to half precision,
// scores and sums are in f32.
#include "tiles.cuh"

template <int DIM>
struct Stage {
	u16 k[PAGE * (DIM + 8)], v[PAGE * (DIM + 8)];
	i32 at[PAGE];       // positions, -1 for none
	float bias[PAGE];   // log2 of the weight of what the list names
};

// bring begins to copy tile t. last is the block's last position.
template <int DIM>
__device__ inline void bring(const FlashArgs& a, const Tiles& w, Stage<DIM>& s, int t, int kv_head, int last) {
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

// Rows is what a warp has of its 16 rows; a lane has parts of rows lane/4 and
// lane/4 + 8.
template <int DIM>
struct Rows {
	u32 q[DIM / 16][4];
	float acc[DIM / 8][4];
	SoftmaxState s[2];
	Sight sight[2];
};

// scores computes the warp's rows with a tile, and hides what they do not see.
template <int DIM>
__device__ __forceinline__ void scores(Rows<DIM>& r, const Stage<DIM>& t, float s[PAGE / 8][4], bool whole, bool page_tile) {
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
			const Sight& see = r.sight[i / 2];
			bool in = j >= 0 && see.spanned(j), edge = see.in_sinks_or_window(j);
			if (!in || (!page_tile && edge))
				s[n][i] = -infinity();
			else if (!edge)
				s[n][i] += t.bias[c];
		}
	}
}

// add merges a tile into the warp's rows.
template <int DIM>
__device__ __forceinline__ void add_tile(Rows<DIM>& r, const Stage<DIM>& t, float s[PAGE / 8][4]) {
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
		r.s[u].sum = r.s[u].sum * scale[u] + sum;  // of this lane's columns
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
	DYNAMIC_SHARED(Stage<DIM>, stages);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, h = blockIdx.y;
	if (first < 0) return;
	int tile = first / FLASH_ROWS + (int)(gridDim.x - 1 - blockIdx.x);  // the long ones first
	int lo = max_of(tile * FLASH_ROWS, first), last = min_of((tile + 1) * FLASH_ROWS, first + rows) - 1;
	if (lo > last) return;
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	RowPosition at = {0, first, lo};
	Tiles w = tiles_of(a.plan, entries(a.plan.list, a.g, at, h, (int)a.heads), lo, last);
	if (w.all > 0) bring<DIM>(a, w, stages[0], 0, kv_head, last);
	Rows<DIM> r;
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
	int p[2];
#pragma unroll
	for (int u = 0; u < 2; u++) {
		p[u] = tile * FLASH_ROWS + warp() * 16 + lane() / 4 + u * 8;
		r.s[u] = {EMPTY_MAX, 0};
		r.sight[u] = sight_of(a.plan, p[u]);
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
	bool dense = a.plan.middle == MIDDLE_ALL && span.back == 0 && span.drop == 0;
	for (int t = 0; t < w.all; t++) {
		if (t + 1 < w.all)
			bring<DIM>(a, w, stages[(t + 1) % 2], t + 1, kv_head, last);
		else
			cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		const Stage<DIM>& stage = stages[t % 2];
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
