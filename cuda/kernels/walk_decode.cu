// Sketch&Walk of a decode step in one launch, for the newest row of each slot: its sketches
// (block_sum and sketch of sketch.cu), its block scores (compare), a step of the walk (walk.cu) and
// the selection of blocks. Checked against those kernels.
//
// The walk, L'[j] = ln Σ_m exp(L[m] + e[m][j]), is bound by reading the triangle e, of which the
// step writes only the last two rows. Where the kernels that wrote the others have
// completed (early), its blocks read the triangle while the preceding kernel still computes the
// queries. The last block to finish adds the last two rows' terms and selects. pdl_trigger comes
// only then: blocks of the next launch would otherwise occupy SMs that this one still needs.
#include "dequant.cuh"
#include "histogram_select.cuh"
#include "walk.cuh"

struct SketchDecodeArgs {
	float *ksum, *qsum;  // [pages, dim]: block sums
	float *keys, *rows;  // [pages, width]: sketches of keys and queries
	const float* basis;  // [width, dim]
	const float *q, *k;  // [slots, heads, dim]; q NULL: the scores are already computed
	float* scores;       // [pages, max_blocks]: block scores
	i64 qheads, kheads, dim, width, max_blocks;
	i64 token;  // rows has the sketch of the newest row, not that of its block's mean
	i64 form, log;
	f64 scale;
	i64 basis_early;  // no kernel that may still run writes basis
	PagedKV g;
};

struct WalkDecodeArgs {
	SketchDecodeArgs s;
	float* dst;        // [rows, width]: R in logarithms; NULL: no walk
	const float* src;  // R of the layer before; NULL: the first sparse layer
	LogSumExp* sums;   // [slots, width]: the walk without the last two rows of scores
	i64 width, rows, exponent, slots;
	SelectBlocksArgs p;
	i32* finished;  // [slots]: blocks that are done; 0 between launches
	i64 early;      // what earlier calls wrote is complete before pdl_wait
};

constexpr int STEP_THREADS = 512;
constexpr int STEP_MAX_DIM = 256;                      // limit of dimensions, and of the elements of a sketch
constexpr int STEP_GROUP = 8;                          // elements of a row that a block walks at a time, 32 bytes
constexpr int STEP_SCORES = STEP_THREADS / DOT_PARTS;  // block scores of a thread block
constexpr int STEP_ROWS = 4;                           // rows of scores in flight of a thread
constexpr int PAIR_DIMS = WARP / 2;                    // dimensions of a warp whose head mean is computed
constexpr int STEP_MEAN_DIMS = STEP_THREADS / 2 / WARP * PAIR_DIMS;
constexpr int BASIS_LANES = 8;  // threads that share a row of the basis
constexpr int BASIS_AHEAD = 4;  // float4 of a row that each holds
constexpr int BASIS_ROWS = STEP_THREADS / BASIS_LANES;
static_assert(STEP_THREADS / WARP == DOT_PARTS, "half a warp adds up the sums of all warps");

// BasisSlice is a thread's part of a row of the basis.
struct BasisSlice {
	float v[BASIS_AHEAD][4];
};

__device__ __forceinline__ void load_basis(BasisSlice& b, const SketchDecodeArgs& a, int w) {
#pragma unroll
	for (int i = 0; i < BASIS_AHEAD; i++) {
		int d = (i * BASIS_LANES + (int)threadIdx.x % BASIS_LANES) * 4;
		b.v[i][0] = b.v[i][1] = b.v[i][2] = b.v[i][3] = 0;
		if (w < a.width && d < a.dim) ld_cg4(b.v[i], a.basis + w * a.dim + d);
	}
}

// head_mean_pair is head_mean over all heads by two lanes, PAIR_DIMS apart, each of which loads
// every other 16 heads; the order of the sum is head_mean's. All lanes call it.
__device__ __forceinline__ float head_mean_pair(const float* from, int heads, int dim, bool mine) {
	constexpr int EACH = HEADS_IN_FLIGHT / 2;
	bool second = lane() >= PAIR_DIMS;
	float sum = 0;
#pragma unroll 1
	for (int base = 0; base < heads; base += HEADS_IN_FLIGHT) {
		float v[EACH];
#pragma unroll
		for (int u = 0; u < EACH; u++) {
			int h = base + (second ? EACH : 0) + u;
			v[u] = mine && h < heads ? ld_cg(from + h * dim) : 0;
		}
#pragma unroll
		for (int half = 0; half < 2; half++) {
			float next = sum;
#pragma unroll
			for (int u = 0; u < EACH; u++) next += v[u];
			sum = __shfl_sync(FULL_MASK, next, lane() % PAIR_DIMS + half * PAIR_DIMS);
		}
	}
	return sum / (float)heads;
}

// mean_slot permutes the dimensions of a mean in shared memory, so that the lanes of a basis row
// read consecutive elements.
__device__ __forceinline__ int mean_slot(int d) { return d / (4 * BASIS_LANES) * (4 * BASIS_LANES) + d % 4 * BASIS_LANES + d / 4 % BASIS_LANES; }

// project computes element w of one sketch or two, basis · mean, by BASIS_LANES threads. All
// threads call it.
__device__ __forceinline__ void project(float (&element)[2], const SketchDecodeArgs& a, const double* one, const double* two, const BasisSlice& b, int w) {
	int part = (int)threadIdx.x % BASIS_LANES;
	double sum[2] = {0, 0};
#pragma unroll
	for (int i = 0; i < BASIS_AHEAD; i++) {
		if ((i * BASIS_LANES + part) * 4 >= a.dim) break;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			int at = mean_slot((i * BASIS_LANES + part) * 4 + e);
			double v = (double)b.v[i][e];
			sum[0] += v * one[at];
			if (two) sum[1] += v * two[at];
		}
	}
#pragma unroll 1
	for (int d = (BASIS_AHEAD * BASIS_LANES + part) * 4; d < a.dim && w < a.width; d += d % 4 == 3 ? BASIS_LANES * 4 - 3 : 1) {
		double v = (double)a.basis[w * a.dim + d];
		sum[0] += v * one[mean_slot(d)];
		if (two) sum[1] += v * two[mean_slot(d)];
	}
	for (int m = 1; m < BASIS_LANES; m *= 2) {
		sum[0] += __shfl_xor_sync(FULL_MASK, sum[0], m);
		if (two) sum[1] += __shfl_xor_sync(FULL_MASK, sum[1], m);
	}
	element[0] = (float)sum[0];
	element[1] = (float)sum[1];
}

constexpr int STEP_BINS = STEP_THREADS;
constexpr int STEP_BIN_LIMIT = STEP_MAX_DIM;  // elements of a bin that are ranked by comparing all pairs

// Rare paths are functions of their own, so that the common path stays short: apply_form_call is
// apply_form, page_checked is page_or_own.
static __device__ NOINLINE float apply_form_call(float product, i64 form, i64 log_of) { return apply_form(product, form, log_of); }

// page_fast is page_or_own without a failure to report.
static __device__ NOINLINE int page_checked(const PagedKV& g, const Block& b, int i) { return page_or_own(g, b, i); }
__device__ __forceinline__ int page_fast(const PagedKV& g, const Block& b, int i) {
	int page = g.table[(i64)b.slot * g.width + i];
	return (u32)page < (u32)g.count ? page : page_checked(g, b, i);
}

// select_blocks_call is select_blocks of the elements of a row.
static __device__ NOINLINE void select_blocks_call(const SelectBlocksArgs& a, const Block& b, u32* row) {
#pragma unroll 1
	for (int j = threadIdx.x; j <= b.index; j += STEP_THREADS) row[j] = radix_key(__uint_as_float(row[j]));
	select_blocks(a, b, row);
}

// SelectScratch is the shared memory of finish_and_select.
struct SelectScratch {
	Word4 counts[MAX_SELECT_KEYS / WARP / 4];  // taken of each 32 elements
	u32 bins[STEP_BINS];
	u32 tops[3][STEP_THREADS / WARP];
	u32 found[4];
};

// add_last_rows completes the walk: row[j] = ln(exp(sums[j]) + Σ exp(L[m] + e[m][j]) over the last
// two rows m), or s·ln|Â| of the row itself in the first sparse layer; at is where the row is in
// src and dst. A thread has 4 elements in flight.
__device__ __forceinline__ void add_last_rows(const WalkDecodeArgs& a, const Block& b, i64 at, float* row) {
	constexpr int AHEAD = 4;
	int own = b.index, end = own + 1;
	const float *now = a.s.scores + b.page * a.s.max_blocks, *before = a.s.scores + (own > 0 ? page_fast(a.s.g, b, own - 1) : b.page) * a.s.max_blocks;
	float weight = a.src ? ld_cg(a.src + at + own) : 0, weight_before = a.src && own > 0 ? ld_cg(a.src + at + own - 1) : 0;
#pragma unroll 1
	for (int base = threadIdx.x; base < end; base += AHEAD * STEP_THREADS) {
		float t[AHEAD][2];
		LogSumExp sum[AHEAD];
#pragma unroll
		for (int e = 0; e < AHEAD; e++) {
			int j = base + e * STEP_THREADS;
			sum[e] = {-infinity(), 0};
			t[e][0] = t[e][1] = -infinity();
			if (j >= end) continue;
			t[e][1] = ld_cg(now + j);
			if (!a.src) continue;
			if (j < own) t[e][0] = ld_cg(before + j);
			sum[e] = {ld_cg(&a.sums[(i64)b.slot * a.width + j].top), ld_cg(&a.sums[(i64)b.slot * a.width + j].sum)};
		}
#pragma unroll
		for (int e = 0; e < AHEAD; e++) {
			int j = base + e * STEP_THREADS;
			if (j >= end) break;
			float y = t[e][1] * (float)a.exponent;
			if (a.src) {
				float one = log_term(weight_before + t[e][0] * (float)a.exponent), two = log_term(weight + y), top = max_of(sum[e].top, max_of(one, two));
				float all = sum[e].sum * exp2_ftz((sum[e].top - top) * LOG2_E) + exp2_ftz((one - top) * LOG2_E) + exp2_ftz((two - top) * LOG2_E);
				y = top > -infinity() ? top + logf(all) : -infinity();
			}
			row[j] = y;
		}
	}
}

// write_taken lists the blocks whose bits are set in taken, bit e of thread t being block
// e·STEP_THREADS + t; c.counts has how many each warp takes in each round.
__device__ __forceinline__ void write_taken(const SelectBlocksArgs& p, const Block& b, const SelectScratch& c, u32 taken, int rounds) {
	constexpr int WARPS = STEP_THREADS / WARP;
	Word4 some = {{0, 0, 0, 0}};
	if (lane() < rounds * WARPS / 4) some = c.counts[lane()];
	u32 sum = some.w[0] + some.w[1] + some.w[2] + some.w[3], upto = sum;
#pragma unroll 1
	for (int by = 1; by < WARP; by *= 2) {
		u32 left = __shfl_up_sync(FULL_MASK, upto, by);
		if (lane() >= by) upto += left;
	}
	u32 start = upto - sum + (warp() % 4 > 0 ? some.w[0] : 0) + (warp() % 4 > 1 ? some.w[1] : 0) + (warp() % 4 > 2 ? some.w[2] : 0);
	if (threadIdx.x == WARP - 1) p.count[b.group()] = (i32)upto;
	i32* index = p.index + b.group() * p.cap;
#pragma unroll 1
	for (int e = 0; e < rounds; e++) {
		bool in = taken >> e & 1;
		u32 who = __ballot_sync(FULL_MASK, in), place = __shfl_sync(FULL_MASK, start, e * (WARPS / 4) + warp() / 4);
		if (in) index[place + __popc(who & ((1u << lane()) - 1))] = e * STEP_THREADS + (int)threadIdx.x;
	}
}

// finish_and_select adds the last two rows' terms to the walk, normalizes the row, and lists the
// blocks: the best by linear bins, as top-k in histogram_select.cuh, the forced ones, and where
// scores crowd a bin or a span hides blocks, by radix select. All threads call it; row has room
// for all elements, crowd for STEP_BIN_LIMIT.
__device__ __forceinline__ void finish_and_select(const WalkDecodeArgs& a, const Block& b, float* row, SelectScratch& c, u64* crowd) {
	const SelectBlocksArgs& p = a.p;
	int own = b.index, end = own + 1, zero = p.open ? 0 : 1;
	auto ranked = [&](int j) { return p.open || (j > 0 && j < own); };
	u32 top = 0, high = 0, low = 0;
	i64 at = walk_row_index(b, a.slots, a.rows) * a.width;
	add_last_rows(a, b, at, row);
#pragma unroll 1
	for (int j = threadIdx.x; j < end; j += STEP_THREADS) {
		u32 key = radix_key(row[j]);
		if (j > 0 || end == 1) top = max_of(top, key);
		if (!ranked(j)) continue;
		high = max_of(high, key);
		if (key > KEY_NEG_INF) low = max_of(low, ~key);
	}
	top = warp_max(top);
	high = warp_max(high);
	low = warp_max(low);
	if (lane() == 0) {
		c.tops[0][warp()] = top;
		c.tops[1][warp()] = high;
		c.tops[2][warp()] = low;
	}
	c.bins[threadIdx.x] = 0;
	if (threadIdx.x == 0) c.found[3] = 0;
	__syncthreads();
	int from = lane() % (STEP_THREADS / WARP);
	top = warp_max(c.tops[0][from]);
	high = warp_max(c.tops[1][from]);
	low = ~warp_max(c.tops[2][from]);
	float row_max = top > KEY_NEG_INF ? from_radix_key(top) : 0, first = from_radix_key(high) - row_max, scale = (STEP_BINS - 1) / (first - (from_radix_key(low) - row_max));
	bool good = high > KEY_NEG_INF && scale > 0 && scale < infinity();
	auto bin_of = [&](float y) { return (int)min_of((float)(STEP_BINS - 1), (first - y) * scale); };
	float* to = a.dst + at;
#pragma unroll 1
	for (int j = threadIdx.x; j < end; j += STEP_THREADS) {
		float y = row[j] - row_max;
		row[j] = y;
		to[j] = y;
		count_nan(a.s.g, y);
		if (good && ranked(j)) atomicAdd(&c.bins[bin_of(y)], 1u);
	}
	__syncthreads();
	int want = (int)block_budget(p, own, end), k = want - 1 - zero, cut_bin = want < end ? -1 : STEP_BINS, inside = 0;
	bool partly = k > 0 && want < end, wide = !p.open && !edges_of(p, own, end).plain(own);
	if (partly) {
		int all, n = (int)c.bins[threadIdx.x], before = scan_block(n, all);
		if (before < k && before + n >= k) {
			c.found[0] = threadIdx.x;
			c.found[1] = (u32)before;
			c.found[2] = (u32)n;
		}
		__syncthreads();
		cut_bin = (int)c.found[0];
		k -= (int)c.found[1];
		inside = (int)c.found[2];
	}
	if ((partly && !good) || inside > STEP_BIN_LIMIT || wide || p.span.back != 0 || p.span.drop != 0 || b.group() >= p.groups) {
		select_blocks_call(p, b, (u32*)row);
		return;
	}
#pragma unroll 1
	for (int j = threadIdx.x; j < end; j += STEP_THREADS) {
		if (ranked(j) && bin_of(row[j]) == cut_bin) crowd[atomicAdd(&c.found[3], 1u)] = rank_key(row[j], j);
	}
	__syncthreads();
	// The warps mark what they take, count it, and then list it in order.
	constexpr int WARPS = STEP_THREADS / WARP;
	u32 taken = 0;
	int rounds = 0;
#pragma unroll 1
	for (int base = 0, e = 0; base < end; base += STEP_THREADS, e++) {
		int j = base + (int)threadIdx.x;
		bool in = j == own || (zero && j == 0);
		if (j < end && ranked(j)) {
			int bin = bin_of(row[j]);
			in |= bin < cut_bin;
			if (bin == cut_bin) {
				u64 rank = rank_key(row[j], j);
				int above = 0;
#pragma unroll 4
				for (int i = 0; i < inside; i++) above += crowd[i] > rank;
				in |= above < k;
			}
		}
		taken |= (u32)in << e;
		u32 who = __ballot_sync(FULL_MASK, in);
		if (lane() == 0) ((u32*)c.counts)[e * WARPS + warp()] = __popc(who);
		rounds = e + 1;
	}
	__syncthreads();
	write_taken(p, b, c, taken, rounds);
}

// walk_columns sums over all rows of scores but the last two, into a.sums. Column j of the
// triangle has terms m ≥ j, so the block takes the i-th group of 8 columns from the start and the
// i-th from the end, which balances the load. A lane takes 4 columns of strided rows, half a warp
// merges a column at the end.
__device__ __forceinline__ void walk_columns(const WalkDecodeArgs& a, const Block& b, int blocks, u32* pages) {
	SHARED(LogSumExp, parts, STEP_THREADS / WARP * STEP_GROUP);
	constexpr int WARPS = STEP_THREADS / WARP;
	const SketchDecodeArgs& s = a.s;
	int end = b.index + 1, late = max_of(b.index - 1, 0), low = blockIdx.x, high = (end + STEP_GROUP - 1) / STEP_GROUP - 1 - low;
	// Prefetch into L2: the rows of scores, each as a whole.
#pragma unroll 1
	for (int m = low + warp() * blocks; m < b.index; m += WARPS * blocks) {
		const float* row = s.scores + page_fast(s.g, b, m) * s.max_blocks;
#pragma unroll 1
		for (int j = lane() * 32; j <= m; j += WARP * 32) prefetch_l2(row + j);
	}
	// Warps are assigned to the two groups in proportion to their terms.
	int many = max_of(late - low * STEP_GROUP, 0), more = high > low ? max_of(late - high * STEP_GROUP, 0) : 0;
	int highs = more > 0 ? max_of(more * WARPS / (many + more), 1) : 0, lows = WARPS - highs;
	bool is_low = warp() < lows;
	int group = (is_low ? low : high) * STEP_GROUP, by = (is_low ? lows : highs) * (WARP / 2), from = (warp() - (is_low ? 0 : lows)) * (WARP / 2) + lane() / 2;
	int column = group + lane() % 2 * 4;
	const float* src = a.src + walk_row_index(b, a.slots, a.rows) * a.width;
	LogSumExp sum[4];
	for (int c = 0; c < 4; c++) sum[c] = {-infinity(), 0};
#pragma unroll 4
	for (int m = low * STEP_GROUP + (int)threadIdx.x; m < late; m += STEP_THREADS) pages[m] = (u32)page_fast(s.g, b, m);
	__syncthreads();
#pragma unroll 1
	for (int m0 = group + from; m0 < late; m0 += by * STEP_ROWS) {
		float x[STEP_ROWS][4], t[STEP_ROWS];
#pragma unroll
		for (int i = 0; i < STEP_ROWS; i++) {
			int m = min_of(m0 + i * by, late - 1);
			t[i] = ld_cg(src + m);
			ld_cg4(x[i], s.scores + pages[m] * s.max_blocks + column);
		}
#pragma unroll
		for (int c = 0; c < 4; c++) {
			float top = sum[c].top;
#pragma unroll
			for (int i = 0; i < STEP_ROWS; i++) {
				int m = m0 + i * by;
				x[i][c] = m < late && column + c <= m ? log_term(t[i] + x[i][c] * (float)a.exponent) : -infinity();
				top = max_of(top, x[i][c]);
			}
			if (!(top > -infinity())) continue;
			float part = sum[c].sum * exp2_ftz((sum[c].top - top) * LOG2_E);
#pragma unroll
			for (int i = 0; i < STEP_ROWS; i++) part += exp2_ftz((x[i][c] - top) * LOG2_E);
			sum[c] = {top, part};
		}
	}
#pragma unroll
	for (int c = 0; c < 4; c++) {
		float top = sum[c].top;
		for (int m = 2; m < WARP; m *= 2) top = max_of(top, __shfl_xor_sync(FULL_MASK, top, m));
		float part = sum[c].top > -infinity() ? sum[c].sum * exp2_ftz((sum[c].top - top) * LOG2_E) : 0;
		for (int m = 2; m < WARP; m *= 2) part += __shfl_xor_sync(FULL_MASK, part, m);
		if (lane() < 2) parts[warp() * STEP_GROUP + lane() * 4 + c] = {top, part};
	}
	__syncthreads();
	int half = (int)threadIdx.x / DOT_PARTS, part = (int)threadIdx.x % DOT_PARTS, at = half % STEP_GROUP;
	bool of_low = half < STEP_GROUP;
	int j = (of_low ? low : high) * STEP_GROUP + at;
	LogSumExp all = {-infinity(), 0};
	if (of_low ? part < lows : part >= lows) all = parts[part * STEP_GROUP + at];
	float top = all.top;
	for (int i = 1; i < DOT_PARTS; i *= 2) top = max_of(top, __shfl_xor_sync(FULL_MASK, top, i));
	float total = all.top > -infinity() ? all.sum * exp2_ftz((all.top - top) * LOG2_E) : 0;
	for (int i = 1; i < DOT_PARTS; i *= 2) total += __shfl_xor_sync(FULL_MASK, total, i);
	if (a.early) pdl_wait();
	if (part == 0 && half < 2 * STEP_GROUP && j < end && (of_low || high > low)) a.sums[(i64)b.slot * a.width + j] = {top, total};
}

// sketch_and_score: block 0 of the scoring blocks adds the row's key to its block sum, sketches
// the mean and scores the diagonal; block 1 does so with the query, for later layers and steps;
// each other block scores the row against STEP_SCORES blocks before it, and, where the row starts
// a block, the completed block as well. Half a warp computes a score. room holds the mean and the
// sketch of the key.
__device__ __forceinline__ void sketch_and_score(const WalkDecodeArgs& a, const Block& b, int block, u32* room, double* mean) {
	SHARED(float, q_sketch, STEP_MAX_DIM);
	const SketchDecodeArgs& s = a.s;
	double* key_mean = (double*)room;
	float* k_sketch = (float*)(room + STEP_MAX_DIM * 2);
	bool has_own = block == 0;
	int own = b.index, half = (int)threadIdx.x / DOT_PARTS, part = (int)threadIdx.x % DOT_PARTS, j = has_own ? own : (block - 2) * STEP_SCORES + half;
	bool before = block > 1 && j < own, element = before || (has_own && half == 0), completes = b.first % PAGE == 0 && own > 0;
	int page_before = own > 0 ? page_fast(s.g, b, own - 1) : b.page;
	const float* key = s.keys + (before ? page_fast(s.g, b, j) : b.page) * s.width;
	float x[4] = {0, 0, 0, 0}, completed = 0;
	if (before && part * 4 < s.width) ld_cg4(x, key + part * 4);
	BasisSlice basis;
	if (s.basis_early) load_basis(basis, s, (int)threadIdx.x / BASIS_LANES);
	if (completes) {
		for (int e = part * 4; e < s.width && before; e += DOT_PARTS * 4) {
			float u[4], v[4];
			ld_cg4(u, s.rows + page_before * s.width + e);
			ld_cg4(v, key + e);
			for (int i = 0; i < 4; i++) completed = fmaf(u[i], v[i], completed);
		}
		for (int by = DOT_PARTS / 2; by > 0; by /= 2) completed += __shfl_xor_sync(FULL_MASK, completed, by);
		completed *= (float)s.scale;
		if (before && part == 0) count_nan(s.g, completed);
		completed = apply_form_call(completed, s.form, s.log);
	}
	if (a.early) pdl_wait();
	if (!s.basis_early) load_basis(basis, s, (int)threadIdx.x / BASIS_LANES);
	// The first half of the threads takes the query, the second the key.
	bool of_key = threadIdx.x >= STEP_THREADS / 2, sums = of_key ? has_own : block == 1;
	int heads = (int)(of_key ? s.kheads : s.qheads), dim = (int)s.dim;
	const float* from = (of_key ? s.k : s.q) + (i64)b.slot * heads * dim;
	float* sum = (of_key ? s.ksum : s.qsum) + (i64)b.page * dim;
#pragma unroll 1
	for (int first = 0; first < dim && (!of_key || has_own); first += STEP_MEAN_DIMS) {
		int d = first + warp() % (STEP_MEAN_DIMS / PAIR_DIMS) * PAIR_DIMS + lane() % PAIR_DIMS;
		bool mine = d < dim;
		float old = mine && sums && b.first % PAGE != 0 ? ld_cg(sum + d) : 0, x = head_mean_pair(from + d, heads, dim, mine);
		if (!mine || lane() >= PAIR_DIMS) continue;
		if (sums) {
			float all = old + x;
			sum[d] = all;
			if (of_key || !s.token) x = all / (float)b.positions();
		}
		(of_key ? key_mean : mean)[mean_slot(d)] = (double)x;
	}
	__syncthreads();
#pragma unroll 1
	for (int w = (int)threadIdx.x / BASIS_LANES, first = 0; first < s.width; first += BASIS_ROWS, w += BASIS_ROWS) {
		if (first > 0) load_basis(basis, s, w);
		float both[2];
		project(both, s, mean, has_own ? key_mean : nullptr, basis, w);
		if (threadIdx.x % BASIS_LANES == 0 && w < s.width) {
			q_sketch[w] = both[0];
			if (has_own) k_sketch[w] = both[1];
		}
	}
	__syncthreads();
	if (block < 2) {
		float* to = (has_own ? s.keys : s.rows) + b.page * s.width;
		for (int w = threadIdx.x; w < s.width; w += STEP_THREADS) to[w] = has_own ? k_sketch[w] : q_sketch[w];
	}
	float product = 0;
#pragma unroll 1
	for (int e = part * 4; e < s.width && element; e += DOT_PARTS * 4) {
		if (!before) {
			for (int i = 0; i < 4; i++) x[i] = k_sketch[e + i];
		} else if (e >= DOT_PARTS * 4) {
			ld_cg4(x, key + e);
		}
		for (int i = 0; i < 4; i++) product = fmaf(q_sketch[e + i], x[i], product);
	}
	for (int by = DOT_PARTS / 2; by > 0; by /= 2) product += __shfl_xor_sync(FULL_MASK, product, by);
	if (!element || part > 0) return;
	product *= (float)s.scale;
	count_nan(s.g, product);
	s.scores[b.page * s.max_blocks + j] = apply_form_call(product, s.form, s.log);
	if (completes && before) s.scores[page_before * s.max_blocks + j] = completed;
}

// walk_decode: grid (walking and scoring blocks, slot). Of a slot's blocks the first walk, the
// others sketch and score, and the last to finish selects.
KERNEL_2_PER_SM(walk_decode, WalkDecodeArgs, STEP_THREADS) {
	DYNAMIC_SHARED(u32, room);  // page numbers; mean and sketch of the key; at last the row
	SHARED(double, mean, STEP_MAX_DIM);
	SHARED(SelectScratch, scratch, 1);
	SHARED(int, last, 1);
	Block b;
	if (!block_of(a.s.g, blockIdx.y, 0, TOUCHED, b)) {
		pdl_wait();
		return;
	}
	int groups = b.index / STEP_GROUP + 1, walkers = !a.dst ? 0 : a.src ? (groups + 1) / 2 : a.s.q ? 0 : 1;
	int scorers = a.s.q ? 2 + (b.index + STEP_SCORES - 1) / STEP_SCORES : 0, block = (int)blockIdx.x - walkers;
	if (block >= scorers) {
		pdl_wait();
		return;
	}
	if (!a.early) pdl_wait();
	if (block >= 0)
		sketch_and_score(a, b, block, room, mean);
	else if (a.src)
		walk_columns(a, b, walkers, room);
	else
		pdl_wait();
	if (!a.dst || block == 1) return;  // nothing in this launch depends on block 1
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		last[0] = atomicAdd(a.finished + blockIdx.y, 1) == walkers + max_of(scorers - 1, 0) - 1;
		__threadfence();
		if (last[0]) a.finished[blockIdx.y] = 0;
	}
	__syncthreads();
	pdl_trigger();
	if (last[0]) finish_and_select(a, b, (float*)room, scratch[0], (u64*)mean);
}
