// Values drawn for the newest row of each slot, over a cache in half precision: bound by
// reading the keys once. Checked as value.cu is, which does what does not suit these:
// lists, tiles that get their samples by remainders, and independent draws.
//
// row_shares has the keys go through tensor cores and leaves the exponentials of the
// scores and their sums over halves of pages. draw_row then has a block for each head:
// it adds the sums up, and four lanes find a draw, first among the sums and then among
// the 32 exponentials of one of them. Both start while the kernel before still runs.
#include "keys.cuh"
#include "tiles.cuh"
#include "values.cuh"

// PageSum is what a head reads of a page.
struct PageSum {
	double half, all;  // of 2^(score - top): over the first half of the page, and over all of it
	float top;
	i32 pad[3];
};

struct RowArgs {
	i32 *index, *count;  // [rows, heads, cap], [rows, heads]
	float* weight;       // [rows, heads, cap]
	const float* q;      // [rows, heads, dim]
	float* shares;       // [rows, heads, g.width·PAGE]: 2^(score - the page's top)
	PageSum* sums;       // [rows, heads, g.width]
	float* parts;        // [rows, heads, blocks of a head, dim]: of draw_attend
	i32* finished;       // [rows, heads]: its blocks that are done; 0 between launches
	i64 cap, heads, most;  // most: draws of a head
	i64 early;             // no position but the newest of a slot is written by kernels that may still run
	Values v;
	PagedKV g;
	Plan plan;  // without a list
};

constexpr int HALF = PAGE / 2;

// row_shares: block (i, y, r) takes part i of the pages of row r for the heads of kv
// head y.
template <int DIM>
__device__ __forceinline__ void row_shares(const RowArgs& a) {
	DYNAMIC_SHARED(KeyPair<DIM>, ring);  // [KEY_WARPS, KEY_STAGES]
	int row = blockIdx.z, kv_head = blockIdx.y, run = (int)(a.heads / a.g.heads), head = lane() / 4;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	WarpPages mine = warp_pages(at.p / PAGE + 1);
	RowMask sight = row_mask(a.plan, at.p);
	bool there = head < run;
	i64 item = (i64)row * a.heads + kv_head * run + (there ? head : 0);
	auto page = [&](int b) {
		bool some = sight.shows(b) && (sight.all || b * PAGE < sight.sink || b * PAGE + PAGE > sight.recent);
		return some ? page_of(a.g, at.slot, b) : -1;
	};
	auto put = [&](int b, float (&s)[EIGHTS][2]) {
		int lo = b * PAGE + lane() % 4 * 2;
		bool whole = b * PAGE >= sight.back && b * PAGE >= sight.bound && b * PAGE + PAGE - 1 <= at.p && sight.all;
		float top = -infinity();
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int p = lo + i * 8 + j;
				if (!whole && !(sight.spanned(p) && sight.in_sinks_or_window(p))) s[i][j] = -infinity();
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
		float* to = a.shares + (item * a.g.width + b) * PAGE + lane() % 4 * 2;
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
	pdl_trigger();  // whose blocks would be in the way of these
}

KERNEL_2_PER_SM(row_shares_64, RowArgs, KEY_WARPS * WARP) { row_shares<64>(a); }
KERNEL_2_PER_SM(row_shares_128, RowArgs, KEY_WARPS * WARP) { row_shares<128>(a); }

// Reach is the running sum of a head's softmax, not divided by its end.
struct Reach {
	double *at, *scale;  // [2·pages + 1]: before half h; [pages]: of a page's exponentials
	int halves;
};

// reach_of adds the pages' sums up; all threads of the block call it.
__device__ inline void reach_of(const PageSum* sums, int pages, Reach& r) {
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
		r.at[2 * b] = sum;
		r.at[2 * b + 1] = sum + sums[b].half * scale;
		sum += sums[b].all * scale;
	}
	r.halves = 2 * pages;
	if (hi == pages && lo < hi) r.at[r.halves] = sum;
	__syncthreads();
}

// half_at is the half from lo on, before hi, where the sum reaches x and is above base,
// or the last that has any weight.
__device__ inline int half_at(const Reach& r, int lo, int hi, double x, double base) {
	int first = lo;
	hi--;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		double end = r.at[mid + 1];
		if (end < x || end <= base)
			lo = mid + 1;
		else
			hi = mid;
	}
	while (lo > first && !(r.at[lo + 1] > r.at[lo])) lo--;  // which rounding alone can find
	return lo;
}

// position_at is the position in a half where the sum reaches x, or the last that has
// any weight. Four lanes call it together.
__device__ inline int position_at(const Reach& r, const float* shares, int half, double x) {
	int c = lane() % 4 * 8;
	const float* from = shares + half * HALF + c;
	Word4 lo = load16(from), hi = load16(from + 4);
	double sum = 0, scale = r.scale[half / 2], start = r.at[half];
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

// Found is what a head has drawn.
struct Found {
	Reach reach;
	i32* pages;  // [g.width]: of the slot
	i32* at;     // [draws]: positions, ascending; -1 where nothing could be drawn
	i32* more;
	RowPosition row;
	int tile, each, draws;  // positions and draws of a tile; all draws
	int begin, end;         // the draws of the block
	double one;             // what a draw weighs in the output, in each tile times what the tile weighs

	// share is what a tile weighs, which has halves lo to hi-1.
	__device__ double share(int t, int& lo, int& hi) const {
		lo = t * tile / HALF;
		hi = min_of((t * tile + tile + HALF - 1) / HALF, reach.halves);
		return reach.at[hi] - reach.at[lo];
	}

	// weight is that of draw i in the output.
	__device__ double weight(const Values& v, int i) const {
		int lo, hi;
		return v.tiles == EQUAL ? one * share(i / each, lo, hi) : one;
	}
};

// find_draws makes part blockIdx.y of the draws of head blockIdx.x; false where there is
// no row. shared is
// [3·g.width + 1], and then i32 [g.width + most] and whatever more is. What does not depend
// on the keys is done while they are still read.
__device__ inline bool find_draws(const RowArgs& a, Found& f, double* shared) {
	int heads = (int)a.heads, row = (int)blockIdx.x / heads, head = (int)blockIdx.x % heads, width = (int)a.g.width;
	f.row = row_position(a.g, row);
	if (f.row.p < 0) {
		pdl_wait();
		return false;
	}
	int n = f.row.p + 1, samples = (int)a.v.samples;
	f.reach = {shared, shared + 2 * width + 1, 0};
	f.pages = (i32*)(f.reach.scale + width);
	f.at = f.pages + width;
	f.more = f.at + a.most;
	f.tile = a.v.tiles == EQUAL ? tile_of(a.v, n) : n;
	int tiles = (n + f.tile - 1) / f.tile;
	f.each = samples == 0 ? 0 : a.v.tiles == EQUAL ? max_of(1, samples / tiles) : samples;
	f.draws = tiles * f.each;
	f.begin = (int)((i64)f.draws * blockIdx.y / gridDim.y);
	f.end = (int)((i64)f.draws * (blockIdx.y + 1) / gridDim.y);
	Draw d = address_of(a.v, f.row.slot, f.row.p, head, heads, (int)a.g.heads);
	auto number = [&](int i) { return i < f.end ? uniform(d, a.v.sampler == SYSTEMATIC ? (u32)(i / f.each) : (u32)i) : 0; };
	float u = number(f.begin + (int)threadIdx.x / 4);
	double part = 1.0 / max_of(f.each, 1);
	for (int b = threadIdx.x; b <= f.row.p / PAGE; b += blockDim.x) f.pages[b] = a.g.table[(i64)f.row.slot * width + b];
	pdl_wait();
	reach_of(a.sums + (i64)blockIdx.x * width, f.row.p / PAGE + 1, f.reach);
	f.one = a.v.tiles == EQUAL ? part / f.reach.at[f.reach.halves] : part;
	const float* shares = a.shares + (i64)blockIdx.x * width * PAGE;
	for (int first = f.begin; first < f.end; first += (int)blockDim.x / 4) {
		int i = first + (int)threadIdx.x / 4, half = 0;
		double x = 0;
		bool in = false;
		if (i < f.end) {
			int t = i / f.each, lo, hi;
			double share = f.share(t, lo, hi), base = f.reach.at[lo];
			in = share > 0;
			if (in) {
				if (first > f.begin) u = number(i);
				x = base + (i - t * f.each + (double)u) * part * share;
				half = half_at(f.reach, lo, hi, x, base);
			}
		}
		int p = position_at(f.reach, shares, half, x);
		if (i < f.end && lane() % 4 == 0) f.at[i] = in ? p : -1;
	}
	__syncthreads();
	return true;
}

// draw_row lists what is drawn: block i takes a head of a row.
KERNEL_2_PER_SM(draw_row, RowArgs, 512) {
	DYNAMIC_SHARED(double, shared);
	Found f;
	pdl_trigger();
	if (!find_draws(a, f, shared)) return;
	if (most_of(a.v, f.row.p + 1) > a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return;
	}
	i32 *from = f.more, *to = from + a.most;  // draws of each position that was drawn
	int run = (f.draws + (int)blockDim.x - 1) / (int)blockDim.x, lo = min_of((int)threadIdx.x * run, f.draws), hi = min_of(lo + run, f.draws);
	int mine = 0, all;
	auto begins = [&](int i) { return f.at[i] >= 0 && (i == 0 || f.at[i] != f.at[i - 1]); };
	for (int i = lo; i < hi; i++) mine += begins(i);
	int rank = scan_block(mine, all) - 1;
	for (int i = lo; i < hi; i++) {
		if (begins(i)) from[++rank] = i;
		if (f.at[i] >= 0 && (i + 1 == f.draws || f.at[i + 1] != f.at[i])) to[rank] = i + 1;
	}
	__syncthreads();
	all = min_of(all, (int)a.cap);
	for (int i = threadIdx.x; i < all; i += blockDim.x) {
		a.index[blockIdx.x * a.cap + i] = f.at[from[i]];
		a.weight[blockIdx.x * a.cap + i] = (float)((to[i] - from[i]) * f.weight(a.v, from[i]));
	}
	if (threadIdx.x == 0) a.count[blockIdx.x] = all;
}

// draw_attend adds up the values that are drawn, into a.weight, [rows, heads, dim]: block
// (i, y) takes part y of the draws of head i of the rows, and 16 bytes of a value are a
// thread's. The last block of a head to finish adds the parts up in their order.
KERNEL_2_PER_SM(draw_attend, RowArgs, 512) {
	DYNAMIC_SHARED(double, shared);
	SHARED(int, last, 1);
	Found f;
	if (!find_draws(a, f, shared)) return;
	pdl_trigger();
	constexpr int AHEAD = 4;
	int dim = (int)a.g.dim, pieces = dim / 8, piece = threadIdx.x % pieces, groups = blockDim.x / pieces;
	int heads = (int)a.heads, kv_head = (int)blockIdx.x % heads * (int)a.g.heads / heads;
	float y[8] = {0, 0, 0, 0, 0, 0, 0, 0};
	for (int i = f.begin + (int)threadIdx.x / pieces; i < f.end; i += AHEAD * groups) {
		float w[AHEAD];
		Word4 v[AHEAD];
#pragma unroll
		for (int u = 0; u < AHEAD; u++) {
			int at = i + u * groups, p = at < f.end ? f.at[at] : -1, page = p < 0 ? -1 : f.pages[p / PAGE];
			v[u] = Word4{{0, 0, 0, 0}};
			w[u] = 0;
			if (page < 0 || page >= a.g.count) continue;  // row_shares has failed
			v[u] = load16((const u16*)a.g.v + kv_offset(a.g, page, kv_head, p % PAGE) + piece * 8);
			w[u] = (float)f.weight(a.v, at);
		}
#pragma unroll
		for (int u = 0; u < AHEAD; u++) {
#pragma unroll
			for (int k = 0; k < 4; k++) {
				y[2 * k] += w[u] * from_half((u16)v[u].w[k]);
				y[2 * k + 1] += w[u] * from_half((u16)(v[u].w[k] >> 16));
			}
		}
	}
	__syncthreads();  // the draws are not needed any more
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
