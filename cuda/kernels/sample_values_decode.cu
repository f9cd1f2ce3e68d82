// Value sampling in decode, for the newest row of each slot over an f16 cache, on tensor cores.
// Checked against sample_values.cu, which also does lists, tiles with remainders and independent
// draws.
//
// row_shares reads K once (keys.cuh) and leaves 2^(score - max of the page) of every position and
// their sums over half pages. sample_decode or sample_attend then has blocks for each head: they scan
// the sums of the half pages into the cumulative softmax, and four lanes search it for a draw,
// by bisection down to a half page and in its 32 exponentials. Both use programmatic dependent
// launch.
#include "keys.cuh"
#include "tiles.cuh"
#include "values.cuh"

// PageSum is the softmax of a page, relative to its maximum.
struct PageSum {
	double half, all;  // Σ 2^(score - top) of the first half of the page, and of all of it
	float top;
	i32 pad[3];
};

struct ValueDecodeArgs {
	i32 *index, *count;         // [rows, heads, cap], [rows, heads]
	float* weight;              // [rows, heads, cap]; sample_attend: the output [rows, heads, dim]
	const float* q;             // [rows, heads, dim]
	float* exps;                // [rows, heads, g.width·PAGE]: 2^(score - top of the page)
	PageSum* sums;              // [rows, heads, g.width]
	float* parts;               // [rows, heads, blocks of a head, dim]: partial outputs of sample_attend
	i32* finished;              // [rows, heads]: blocks that are done; 0 between launches
	i64 cap, heads, max_draws;  // max_draws: of a head
	i64 early;                  // only the newest position of a slot is written by kernels that may still run
	Values v;
	PagedKV g;
	Plan plan;  // without a list
};

constexpr int HALF = PAGE / 2;

// row_shares (score): grid (part of the pages, kv head, row). Bound by reading K once; it writes
// 4 bytes for each head and position.
template <int DIM>
__device__ __forceinline__ void row_shares(const ValueDecodeArgs& a) {
	DYNAMIC_SHARED(KeyPair<DIM>, ring);  // [KEY_WARPS, KEY_STAGES]
	int row = blockIdx.z, kv_head = blockIdx.y, group_heads = (int)(a.heads / a.g.heads), head = lane() / 4;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	WarpPages mine = warp_pages(at.p / PAGE + 1);
	RowMask view = row_mask(a.plan, at.p);
	bool there = head < group_heads;
	i64 item = (i64)row * a.heads + kv_head * group_heads + (there ? head : 0);
	auto page = [&](int b) {
		bool some = view.shows(b) && (view.all || b * PAGE < view.sink || b * PAGE + PAGE > view.recent);
		return some ? page_of(a.g, at.slot, b) : -1;
	};
	auto put = [&](int b, float (&s)[EIGHTS][2]) {
		int lo = b * PAGE + lane() % 4 * 2;
		bool whole = b * PAGE >= view.back && b * PAGE >= view.bound && b * PAGE + PAGE - 1 <= at.p && view.all;
		float top = -infinity();
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int p = lo + i * 8 + j;
				if (!whole && !(view.spanned(p) && view.in_sinks_or_window(p))) s[i][j] = -infinity();
				if (s[i][j] != s[i][j]) {
					if (there) count_nan(a.g, s[i][j]);
					s[i][j] = -infinity();
				}
				top = max_of(top, s[i][j]);
			}
		}
		top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 1));
		top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 2));
		double sums[2] = {0, 0};
		float* to = a.exps + (item * a.g.width + b) * PAGE + lane() % 4 * 2;
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
			float2 e;
			e.x = s[i][0] > -infinity() ? exp2f(s[i][0] - top) : 0;
			e.y = s[i][1] > -infinity() ? exp2f(s[i][1] - top) : 0;
			sums[i / (EIGHTS / 2)] += (double)e.x + (double)e.y;
			if (there) *(float2*)(to + i * 8) = e;
		}
#pragma unroll
		for (int i = 0; i < 2; i++) {
			sums[i] += __shfl_xor_sync(FULL_MASK, sums[i], 1);
			sums[i] += __shfl_xor_sync(FULL_MASK, sums[i], 2);
		}
		if (there && lane() % 4 == 0) a.sums[item * a.g.width + b] = PageSum{sums[0], sums[0] + sums[1], top, {0, 0, 0}};
	};
	const float* q = a.q + item * DIM;
	score_pages<DIM>(a.g, ring + warp() * KEY_STAGES, kv_head, q, there, 1.4426950408889634f / sqrtf((float)DIM), mine, at.p / PAGE, a.early, page, put);
	pdl_trigger();  // at the end: blocks of the next launch would occupy SMs that this one still needs
}

KERNEL_2_PER_SM(softmax_decode_64, ValueDecodeArgs, KEY_WARPS * WARP) { row_shares<64>(a); }
KERNEL_2_PER_SM(softmax_decode_128, ValueDecodeArgs, KEY_WARPS * WARP) { row_shares<128>(a); }

// PageCdf is the cumulative softmax of a head by half pages, not normalized.
struct PageCdf {
	double *mass, *scale;  // [2·pages + 1]: mass before half h; [pages]: factor of a page's exponentials
	int halves;
};

// scan_pages builds the cumulative softmax of a head. All threads call it.
__device__ inline void scan_pages(const PageSum* sums, int pages, PageCdf& r) {
	int each = (pages + (int)blockDim.x - 1) / (int)blockDim.x, lo = min_of((int)threadIdx.x * each, pages), hi = min_of(lo + each, pages);
	float top = -infinity();
	for (int b = lo; b < hi; b++) top = max_of(top, sums[b].top);
	top = reduce_block(top, -infinity(), Max());
	double part = 0, total;
	for (int b = lo; b < hi; b++) {
		double scale = sums[b].top > -infinity() ? exp2((double)sums[b].top - (double)top) : 0;
		r.scale[b] = scale;
		part += sums[b].all * scale;
	}
	double sum = scan_block(part, total);
	for (int b = lo; b < hi; b++) {
		double scale = r.scale[b];
		r.mass[2 * b] = sum;
		r.mass[2 * b + 1] = sum + sums[b].half * scale;
		sum += sums[b].all * scale;
	}
	r.halves = 2 * pages;
	if (hi == pages && lo < hi) r.mass[r.halves] = sum;
	__syncthreads();
}

// search_halves is the half in [lo, hi) where the cumulative softmax reaches x and exceeds base,
// or the last one with any mass.
__device__ inline int search_halves(const PageCdf& r, int lo, int hi, double x, double base) {
	int first = lo;
	hi--;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		double end = r.mass[mid + 1];
		if (end < x || end <= base)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo > first && !(r.mass[lo + 1] > r.mass[lo])) lo--;  // only rounding leads to an empty half
	return lo;
}

// search_half is the position in a half where the cumulative softmax reaches x, or the last one
// with any mass. Four lanes call it together, each with 8 positions.
__device__ inline int search_half(const PageCdf& r, const float* exps, int half, double x) {
	int c = lane() % 4 * 8;
	const float* from = exps + half * HALF + c;
	Word4 lo = load16(from), hi = load16(from + 4);
	double sum = 0, scale = r.scale[half / 2], start = r.mass[half];
	for (int i = 0; i < 8; i++) sum += __uint_as_float(i < 4 ? lo.w[i] : hi.w[i - 4]);
	double upto = sum, left = __shfl_up_sync(FULL_MASK, upto, 1);
	if (c >= 8) upto += left;
	left = __shfl_up_sync(FULL_MASK, upto, 2);
	if (c >= 16) upto += left;
	left = __shfl_up_sync(FULL_MASK, upto, 1);
	sum = c == 0 ? 0 : left;
	int first = HALF, last = -1;
	for (int i = 0; i < 8; i++) {
		float e = __uint_as_float(i < 4 ? lo.w[i] : hi.w[i - 4]);
		sum += e;
		if (!(e > 0)) continue;
		last = c + i;
		if (first == HALF && start + sum * scale >= x) first = c + i;
	}
	first = min_of(first, __shfl_xor_sync(FULL_MASK, first, 1));
	first = min_of(first, __shfl_xor_sync(FULL_MASK, first, 2));
	last = max_of(last, __shfl_xor_sync(FULL_MASK, last, 1));
	last = max_of(last, __shfl_xor_sync(FULL_MASK, last, 2));
	return half * HALF + (first < HALF ? first : max_of(last, 0));
}

// RowDraws is what a head has drawn.
struct RowDraws {
	PageCdf cdf;
	i32* pages;      // [g.width]: the slot's page table
	i32* positions;  // [max_draws]: positions drawn, ascending; -1 where a tile has no mass
	i32* more;
	RowPosition row;
	int tile, draws_per_tile, draws;  // positions of a tile, draws of a tile, draws in all
	int begin, end;                   // draws of the block
	double draw_weight;               // weight of a draw; with equal tiles times the tile's mass

	// share is the mass of tile t, which is halves [lo, hi).
	__device__ double share(int t, int& lo, int& hi) const {
		lo = t * tile / HALF;
		hi = min_of((t * tile + tile + HALF - 1) / HALF, cdf.halves);
		return cdf.mass[hi] - cdf.mass[lo];
	}

	// weight is the weight of draw i in the output.
	__device__ double weight(const Values& v, int i) const {
		int lo, hi;
		return v.tiles == EQUAL ? draw_weight * share(i / draws_per_tile, lo, hi) : draw_weight;
	}
};

// draw_positions makes part blockIdx.y of the draws of head blockIdx.x; false where there is no
// row. shared is f64 [3·g.width + 1], i32 [g.width + max_draws], and what a caller needs besides.
// What does not depend on K precedes pdl_wait.
__device__ inline bool draw_positions(const ValueDecodeArgs& a, RowDraws& f, double* shared) {
	int heads = (int)a.heads, row = (int)blockIdx.x / heads, head = (int)blockIdx.x % heads, width = (int)a.g.width;
	f.row = row_position(a.g, row);
	if (f.row.p < 0) {
		pdl_wait();
		return false;
	}
	int n = f.row.p + 1, samples = (int)a.v.samples;
	f.cdf = {shared, shared + 2 * width + 1, 0};
	f.pages = (i32*)(f.cdf.scale + width);
	f.positions = f.pages + width;
	f.more = f.positions + a.max_draws;
	f.tile = a.v.tiles == EQUAL ? tile_of(a.v, n) : n;
	int tiles = (n + f.tile - 1) / f.tile;
	f.draws_per_tile = samples == 0 ? 0 : a.v.tiles == EQUAL ? max_of(1, samples / tiles) : samples;
	f.draws = tiles * f.draws_per_tile;
	f.begin = (int)((i64)f.draws * blockIdx.y / gridDim.y);
	f.end = (int)((i64)f.draws * (blockIdx.y + 1) / gridDim.y);
	Draw d = address_of(a.v, f.row.slot, f.row.p, head, heads, (int)a.g.heads);
	auto number = [&](int i) { return i < f.end ? uniform(d, a.v.sampler == SYSTEMATIC ? (u32)(i / f.draws_per_tile) : (u32)i) : 0; };
	float u = number(f.begin + (int)threadIdx.x / 4);
	double part = 1.0 / max_of(f.draws_per_tile, 1);
	for (int b = threadIdx.x; b <= f.row.p / PAGE; b += blockDim.x) f.pages[b] = a.g.table[(i64)f.row.slot * width + b];
	pdl_wait();
	scan_pages(a.sums + (i64)blockIdx.x * width, f.row.p / PAGE + 1, f.cdf);
	f.draw_weight = a.v.tiles == EQUAL ? part / f.cdf.mass[f.cdf.halves] : part;
	const float* exps = a.exps + (i64)blockIdx.x * width * PAGE;
	for (int first = f.begin; first < f.end; first += (int)blockDim.x / 4) {
		int i = first + (int)threadIdx.x / 4, half = 0;
		double x = 0;
		bool in = false;
		if (i < f.end) {
			int t = i / f.draws_per_tile, lo, hi;
			double share = f.share(t, lo, hi), base = f.cdf.mass[lo];
			in = share > 0;
			if (in) {
				if (first > f.begin) u = number(i);
				x = base + (i - t * f.draws_per_tile + (double)u) * part * share;
				half = search_halves(f.cdf, lo, hi, x, base);
			}
		}
		int p = search_half(f.cdf, exps, half, x);
		if (i < f.end && lane() % 4 == 0) f.positions[i] = in ? p : -1;
	}
	__syncthreads();
	return true;
}

// sample_decode (sample) lists what is drawn, a position once, weighted by its draws. Grid: (row ·
// head). Bound by latency.
KERNEL_2_PER_SM(sample_decode, ValueDecodeArgs, 512) {
	DYNAMIC_SHARED(double, shared);
	RowDraws f;
	pdl_trigger();
	if (!draw_positions(a, f, shared)) return;
	if (most_of(a.v, f.row.p + 1) > a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return;
	}
	i32 *from = f.more, *to = from + a.max_draws;  // first draw of each listed position, and the end of its draws
	int each = (f.draws + (int)blockDim.x - 1) / (int)blockDim.x, lo = min_of((int)threadIdx.x * each, f.draws), hi = min_of(lo + each, f.draws);
	int mine = 0, all;
	auto begins = [&](int i) { return f.positions[i] >= 0 && (i == 0 || f.positions[i] != f.positions[i - 1]); };
	for (int i = lo; i < hi; i++) mine += begins(i);
	int rank = scan_block(mine, all) - 1;
	for (int i = lo; i < hi; i++) {
		if (begins(i)) from[++rank] = i;
		if (f.positions[i] >= 0 && (i + 1 == f.draws || f.positions[i + 1] != f.positions[i])) to[rank] = i + 1;
	}
	__syncthreads();
	all = min_of(all, (int)a.cap);
	for (int i = threadIdx.x; i < all; i += blockDim.x) {
		a.index[blockIdx.x * a.cap + i] = f.positions[from[i]];
		a.weight[blockIdx.x * a.cap + i] = (float)((to[i] - from[i]) * f.weight(a.v, from[i]));
	}
	if (threadIdx.x == 0) a.count[blockIdx.x] = all;
}

// sample_attend (sample and attend) adds up the drawn values into a.weight, f32 [rows, heads, dim].
// Grid: (row · head, part of the draws); a thread loads 16 bytes of a value, with VALUES_AHEAD
// loads in flight. Parts are added up in their order by the last block of a head. Bound by
// gathering the drawn rows of V.
KERNEL_2_PER_SM(sample_attend, ValueDecodeArgs, 512) {
	DYNAMIC_SHARED(double, shared);
	SHARED(int, last, 1);
	RowDraws f;
	if (!draw_positions(a, f, shared)) return;
	pdl_trigger();
	constexpr int VALUES_AHEAD = 4;
	int dim = (int)a.g.dim, pieces = dim / 8, piece = threadIdx.x % pieces, groups = blockDim.x / pieces;
	int heads = (int)a.heads, kv_head = (int)blockIdx.x % heads * (int)a.g.heads / heads;
	float y[8] = {0, 0, 0, 0, 0, 0, 0, 0};
	for (int i = f.begin + (int)threadIdx.x / pieces; i < f.end; i += VALUES_AHEAD * groups) {
		float w[VALUES_AHEAD];
		Word4 v[VALUES_AHEAD];
#pragma unroll
		for (int u = 0; u < VALUES_AHEAD; u++) {
			int at = i + u * groups, p = at < f.end ? f.positions[at] : -1, page = p < 0 ? -1 : f.pages[p / PAGE];
			v[u] = Word4{{0, 0, 0, 0}};
			w[u] = 0;
			if (page < 0 || page >= a.g.count) continue;  // row_shares has reported it
			v[u] = load16((const u16*)a.g.v + kv_offset(a.g, page, kv_head, p % PAGE) + piece * 8);
			w[u] = (float)f.weight(a.v, at);
		}
#pragma unroll
		for (int u = 0; u < VALUES_AHEAD; u++) {
#pragma unroll
			for (int k = 0; k < 4; k++) {
				y[2 * k] += w[u] * from_half((u16)v[u].w[k]);
				y[2 * k + 1] += w[u] * from_half((u16)(v[u].w[k] >> 16));
			}
		}
	}
	__syncthreads();                // the draws are not needed any more
	float* parts = (float*)shared;  // [groups, dim]
	for (int k = 0; k < 8; k++) parts[(int)threadIdx.x * 8 + k] = y[k];
	__syncthreads();
	int blocks = gridDim.y;
	float* all = a.parts + (i64)blockIdx.x * blocks * dim;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		float sum = 0;
		for (int g = 0; g < groups; g++) sum += parts[g * dim + e];
		if (blocks == 1)
			a.weight[(i64)blockIdx.x * dim + e] = sum;
		else
			all[(i64)blockIdx.y * dim + e] = sum;
	}
	if (blocks == 1) return;
	__syncthreads();
	if (threadIdx.x == 0) {
		i32* finished = a.finished + blockIdx.x;
		__threadfence();
		last[0] = atomicAdd(finished, 1) == blocks - 1;
		__threadfence();
		if (last[0]) *finished = 0;
	}
	__syncthreads();
	if (!last[0]) return;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		float sum = 0;
		for (int y = 0; y < blocks; y++) sum += all[(i64)y * dim + e];
		a.weight[(i64)blockIdx.x * dim + e] = sum;
	}
}
