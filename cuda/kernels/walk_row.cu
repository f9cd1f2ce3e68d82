// What a decode step compares and chooses, of the newest row of each slot: its block's
// sketches, its products with the blocks before, a step of the walk, and the blocks with
// the largest elements of it. Definitions: package device, SketchNewest and WalkTop.
//
// One launch does it all. The walk is bound by reading the pairs, of which the step writes
// no rows but the last two; where the kernels that wrote the others are known to be done,
// it goes over them while the kernel before still makes the queries. The next launch starts
// when only the choice is left: before that its blocks would be in the way of these.
#include "best.cuh"
#include "dequant.cuh"
#include "walk.cuh"

struct SketchNewestArgs {
	float *ksum, *qsum;    // [pages, dim]
	float *keys, *rows;    // [pages, width]
	const float* basis;    // [width, dim]
	const float *q, *k;    // [slots, heads, dim]; q NULL: the pairs are there
	float* pairs;          // [pages, most]
	i64 qheads, kheads, dim, width, most;
	i64 token;  // rows keeps the sketch of the row, not that of its block's mean
	i64 form, log;
	f64 scale;
	i64 fixed;  // no kernel writes basis
	PagedKV g;
};

struct WalkNewestArgs {
	SketchNewestArgs s;
	float* dst;        // [rows, width] logarithms; NULL: no walk
	const float* src;  // likewise; NULL starts
	LogSum* sums;      // [slots, width]: of a walk, but for the last two rows of pairs
	i64 width, rows, exponent, slots;
	PickArgs p;
	i32* finished;  // [slots]: blocks that are done; 0 between launches
	i64 early;      // what calls before wrote is there before wait_before
};

constexpr int NEWEST_THREADS = 512;
constexpr int NEWEST_DIM = 256;   // most dimensions, and elements of a sketch
constexpr int NEWEST_GROUP = 8;   // elements of a row that a block takes at a time, 32 bytes of it
constexpr int COMPARED = NEWEST_THREADS / PARTS;  // products of a block
constexpr int NEWEST_EACH = 4;    // rows of pairs of a thread, all on their way at once
constexpr int PAIRED = WARP / 2;  // dimensions of a warp whose mean over heads is made
constexpr int MEAN_DIMS = NEWEST_THREADS / 2 / WARP * PAIRED;
constexpr int BASIS_LANES = 8;    // threads that share a row of the basis
constexpr int BASIS_AHEAD = 4;    // times 4 numbers of it that each holds
constexpr int BASIS_ROWS = NEWEST_THREADS / BASIS_LANES;
static_assert(NEWEST_THREADS / WARP == PARTS, "half a warp adds up the sums of all warps");

// Basis is a thread's part of a row of the basis.
struct Basis {
	float v[BASIS_AHEAD][4];
};

__device__ __forceinline__ void bring(Basis& b, const SketchNewestArgs& a, int w) {
#pragma unroll
	for (int i = 0; i < BASIS_AHEAD; i++) {
		int d = (i * BASIS_LANES + (int)threadIdx.x % BASIS_LANES) * 4;
		b.v[i][0] = b.v[i][1] = b.v[i][2] = b.v[i][3] = 0;
		if (w < a.width && d < a.dim) ld_cg4(b.v[i], a.basis + w * a.dim + d);
	}
}

// paired_mean is head_mean of all heads, of which each lane of a pair, PAIRED apart, holds
// every other 16. All lanes call it.
__device__ __forceinline__ float paired_mean(const float* from, int heads, int dim, bool mine) {
	constexpr int EACH = HEADS_AHEAD / 2;
	bool second = lane() >= PAIRED;
	float sum = 0;
#pragma unroll 1
	for (int base = 0; base < heads; base += HEADS_AHEAD) {
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
			sum = __shfl_sync(FULL_MASK, next, lane() % PAIRED + half * PAIRED);
		}
	}
	return sum / (float)heads;
}

// place_in_mean is where dimension d of a mean lies, so that threads read neighbours.
__device__ __forceinline__ int place_in_mean(int d) { return d / (4 * BASIS_LANES) * (4 * BASIS_LANES) + d % 4 * BASIS_LANES + d / 4 % BASIS_LANES; }

// project makes an element of a sketch, basis · mean, of which a thread has a part of the
// row: its element at w, of one mean or of two. All threads call it.
__device__ __forceinline__ void project(float (&element)[2], const SketchNewestArgs& a, const double* one, const double* two, const Basis& b, int w) {
	int part = (int)threadIdx.x % BASIS_LANES;
	double sum[2] = {0, 0};
#pragma unroll
	for (int i = 0; i < BASIS_AHEAD; i++) {
		if ((i * BASIS_LANES + part) * 4 >= a.dim) break;
#pragma unroll
		for (int e = 0; e < 4; e++) {
			int at = place_in_mean((i * BASIS_LANES + part) * 4 + e);
			double v = (double)b.v[i][e];
			sum[0] += v * one[at];
			if (two) sum[1] += v * two[at];
		}
	}
#pragma unroll 1
	for (int d = (BASIS_AHEAD * BASIS_LANES + part) * 4; d < a.dim && w < a.width; d += d % 4 == 3 ? BASIS_LANES * 4 - 3 : 1) {
		double v = (double)a.basis[w * a.dim + d];
		sum[0] += v * one[place_in_mean(d)];
		if (two) sum[1] += v * two[place_in_mean(d)];
	}
	for (int m = 1; m < BASIS_LANES; m *= 2) {
		sum[0] += __shfl_xor_sync(FULL_MASK, sum[0], m);
		if (two) sum[1] += __shfl_xor_sync(FULL_MASK, sum[1], m);
	}
	element[0] = (float)sum[0];
	element[1] = (float)sum[1];
}

constexpr int NEWEST_BINS = NEWEST_THREADS;
constexpr int NEWEST_CROWD = NEWEST_DIM;  // the most elements of a bin that are compared with each other

// shape is shaped by itself.
static __device__ NOINLINE float shape(float product, i64 form, i64 log_of) { return shaped(product, form, log_of); }

// doubtful_page is page_or by itself, and known_page is quick where all is well.
static __device__ NOINLINE int doubtful_page(const PagedKV& g, const Block& b, int i) { return page_or(g, b, i); }
__device__ __forceinline__ int known_page(const PagedKV& g, const Block& b, int i) {
	int page = g.table[(i64)b.slot * g.width + i];
	return (u32)page < (u32)g.count ? page : doubtful_page(g, b, i);
}

// pick_slowly is pick_keys by itself, of the elements of a row.
static __device__ NOINLINE void pick_slowly(const PickArgs& a, const Block& b, u32* row) {
#pragma unroll 1
	for (int j = threadIdx.x; j <= b.index; j += NEWEST_THREADS) row[j] = key_of(__uint_as_float(row[j]));
	pick_keys(a, b, row);
}

// Choice is the shared memory of choose_newest.
struct Choice {
	Word4 counts[PICK_MOST / WARP / 4];  // of each 32 elements, those that are taken
	u32 bins[NEWEST_BINS];
	u32 tops[3][NEWEST_THREADS / WARP];
	u32 found[4];
};

// choose_newest adds the last two terms to the sums of a walk, divides the row by its largest
// element but the first, and lists blocks: the best are those of the bins of one width before that of the last of
// them, and the best of this one. All threads call it; row has room for all elements, crowd
// for NEWEST_CROWD.
__device__ __forceinline__ void choose_newest(const WalkNewestArgs& a, const Block& b, float* row, Choice& c, u64* crowd) {
	const PickArgs& p = a.p;
	constexpr int AHEAD = 4;
	int own = b.index, end = own + 1, zero = p.open ? 0 : 1;
	auto ranked = [&](int j) { return p.open || (j > 0 && j < own); };
	u32 top = 0, high = 0, low = 0;
	i64 at = walk_row(b, a.slots, a.rows) * a.width;
	const float *now = a.s.pairs + b.page * a.s.most, *before = a.s.pairs + (own > 0 ? known_page(a.s.g, b, own - 1) : b.page) * a.s.most;
	float weight = a.src ? ld_cg(a.src + at + own) : 0, weight_before = a.src && own > 0 ? ld_cg(a.src + at + own - 1) : 0;
#pragma unroll 1
	for (int base = threadIdx.x; base < end; base += AHEAD * NEWEST_THREADS) {
		float t[AHEAD][2];
		LogSum sum[AHEAD];
#pragma unroll
		for (int e = 0; e < AHEAD; e++) {
			int j = base + e * NEWEST_THREADS;
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
			int j = base + e * NEWEST_THREADS;
			if (j >= end) break;
			float y = t[e][1] * (float)a.exponent;
			if (a.src) {
				float one = term(weight_before + t[e][0] * (float)a.exponent), two = term(weight + y), top = max_of(sum[e].top, max_of(one, two));
				float all = sum[e].sum * exp2_ftz((sum[e].top - top) * LOG2_E) + exp2_ftz((one - top) * LOG2_E) + exp2_ftz((two - top) * LOG2_E);
				y = top > -infinity() ? top + logf(all) : -infinity();
			}
			row[j] = y;
		}
	}
#pragma unroll 1
	for (int j = threadIdx.x; j < end; j += NEWEST_THREADS) {
		u32 key = key_of(row[j]);
		if (j > 0 || end == 1) top = max_of(top, key);
		if (!ranked(j)) continue;
		high = max_of(high, key);
		if (key > KEY_LOWEST) low = max_of(low, ~key);
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
	int from = lane() % (NEWEST_THREADS / WARP);
	top = warp_max(c.tops[0][from]);
	high = warp_max(c.tops[1][from]);
	low = ~warp_max(c.tops[2][from]);
	float most = top > KEY_LOWEST ? number_of(top) : 0, first = number_of(high) - most, scale = (NEWEST_BINS - 1) / (first - (number_of(low) - most));
	bool good = high > KEY_LOWEST && scale > 0 && scale < infinity();
	auto bin_of = [&](float y) { return (int)min_of((float)(NEWEST_BINS - 1), (first - y) * scale); };
	float* to = a.dst + at;
#pragma unroll 1
	for (int j = threadIdx.x; j < end; j += NEWEST_THREADS) {
		float y = row[j] - most;
		row[j] = y;
		to[j] = y;
		count_nan(a.s.g, y);
		if (good && ranked(j)) atomicAdd(&c.bins[bin_of(y)], 1u);
	}
	__syncthreads();
	int want = (int)pick_of(p, end), k = want - 1 - zero, border = want < end ? -1 : NEWEST_BINS, inside = 0;
	bool partly = k > 0 && want < end;
	if (partly) {
		int all, n = (int)c.bins[threadIdx.x], before = scan_block(n, all);
		if (before < k && before + n >= k) {
			c.found[0] = threadIdx.x;
			c.found[1] = (u32)before;
			c.found[2] = (u32)n;
		}
		__syncthreads();
		border = (int)c.found[0];
		k -= (int)c.found[1];
		inside = (int)c.found[2];
	}
	if ((partly && !good) || inside > NEWEST_CROWD || p.span.back != 0 || p.span.drop != 0 || b.group() >= p.groups) {
		pick_slowly(p, b, (u32*)row);
		return;
	}
#pragma unroll 1
	for (int j = threadIdx.x; j < end; j += NEWEST_THREADS) {
		if (ranked(j) && bin_of(row[j]) == border) crowd[atomicAdd(&c.found[3], 1u)] = rank_of(row[j], j);
	}
	__syncthreads();
	// The warps mark theirs, count them, and then list them.
	constexpr int WARPS = NEWEST_THREADS / WARP;
	u32 taken = 0;
	int rounds = 0;
#pragma unroll 1
	for (int base = 0, e = 0; base < end; base += NEWEST_THREADS, e++) {
		int j = base + (int)threadIdx.x;
		bool in = j == own || (zero && j == 0);
		if (j < end && ranked(j)) {
			int bin = bin_of(row[j]);
			in |= bin < border;
			if (bin == border) {
				u64 rank = rank_of(row[j], j);
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
		if (in) index[place + __popc(who & ((1u << lane()) - 1))] = e * NEWEST_THREADS + (int)threadIdx.x;
	}
}

// walk_group leaves the sums over all rows of pairs but the last two in a.sums, of the i-th
// group of 8 elements of a row from its start and of the i-th from its end, which together
// have as many terms as those of every other block. A lane takes 4 elements of every
// so-many-th row, and half a warp an element at the end.
__device__ __forceinline__ void walk_group(const WalkNewestArgs& a, const Block& b, int blocks, u32* pages) {
	SHARED(LogSum, parts, NEWEST_THREADS / WARP * NEWEST_GROUP);
	constexpr int WARPS = NEWEST_THREADS / WARP;
	const SketchNewestArgs& s = a.s;
	int end = b.index + 1, late = max_of(b.index - 1, 0), low = blockIdx.x, high = (end + NEWEST_GROUP - 1) / NEWEST_GROUP - 1 - low;
	// The rows of pairs, each as a whole.
#pragma unroll 1
	for (int m = low + warp() * blocks; m < b.index; m += WARPS * blocks) {
		const float* row = s.pairs + known_page(s.g, b, m) * s.most;
#pragma unroll 1
		for (int j = lane() * 32; j <= m; j += WARP * 32) prefetch_l2(row + j);
	}
	// The warps are dealt to the two groups by what they have to read.
	int many = max_of(late - low * NEWEST_GROUP, 0), more = high > low ? max_of(late - high * NEWEST_GROUP, 0) : 0;
	int highs = more > 0 ? max_of(more * WARPS / (many + more), 1) : 0, lows = WARPS - highs;
	bool is_low = warp() < lows;
	int group = (is_low ? low : high) * NEWEST_GROUP, by = (is_low ? lows : highs) * (WARP / 2), from = (warp() - (is_low ? 0 : lows)) * (WARP / 2) + lane() / 2;
	int column = group + lane() % 2 * 4;
	const float* src = a.src + walk_row(b, a.slots, a.rows) * a.width;
	LogSum sum[4];
	for (int c = 0; c < 4; c++) sum[c] = {-infinity(), 0};
#pragma unroll 4
	for (int m = low * NEWEST_GROUP + (int)threadIdx.x; m < late; m += NEWEST_THREADS) pages[m] = (u32)known_page(s.g, b, m);
	__syncthreads();
#pragma unroll 1
	for (int m0 = group + from; m0 < late; m0 += by * NEWEST_EACH) {
		float x[NEWEST_EACH][4], t[NEWEST_EACH];
#pragma unroll
		for (int i = 0; i < NEWEST_EACH; i++) {
			int m = min_of(m0 + i * by, late - 1);
			t[i] = ld_cg(src + m);
			ld_cg4(x[i], s.pairs + pages[m] * s.most + column);
		}
#pragma unroll
		for (int c = 0; c < 4; c++) {
			float top = sum[c].top;
#pragma unroll
			for (int i = 0; i < NEWEST_EACH; i++) {
				int m = m0 + i * by;
				x[i][c] = m < late && column + c <= m ? term(t[i] + x[i][c] * (float)a.exponent) : -infinity();
				top = max_of(top, x[i][c]);
			}
			if (!(top > -infinity())) continue;
			float part = sum[c].sum * exp2_ftz((sum[c].top - top) * LOG2_E);
#pragma unroll
			for (int i = 0; i < NEWEST_EACH; i++) part += exp2_ftz((x[i][c] - top) * LOG2_E);
			sum[c] = {top, part};
		}
	}
#pragma unroll
	for (int c = 0; c < 4; c++) {
		float top = sum[c].top;
		for (int m = 2; m < WARP; m *= 2) top = max_of(top, __shfl_xor_sync(FULL_MASK, top, m));
		float part = sum[c].top > -infinity() ? sum[c].sum * exp2_ftz((sum[c].top - top) * LOG2_E) : 0;
		for (int m = 2; m < WARP; m *= 2) part += __shfl_xor_sync(FULL_MASK, part, m);
		if (lane() < 2) parts[warp() * NEWEST_GROUP + lane() * 4 + c] = {top, part};
	}
	__syncthreads();
	int half = (int)threadIdx.x / PARTS, part = (int)threadIdx.x % PARTS, at = half % NEWEST_GROUP;
	bool of_low = half < NEWEST_GROUP;
	int j = (of_low ? low : high) * NEWEST_GROUP + at;
	LogSum all = {-infinity(), 0};
	if (of_low ? part < lows : part >= lows) all = parts[part * NEWEST_GROUP + at];
	float top = all.top;
	for (int i = 1; i < PARTS; i *= 2) top = max_of(top, __shfl_xor_sync(FULL_MASK, top, i));
	float total = all.top > -infinity() ? all.sum * exp2_ftz((all.top - top) * LOG2_E) : 0;
	for (int i = 1; i < PARTS; i *= 2) total += __shfl_xor_sync(FULL_MASK, total, i);
	if (a.early) pdl_wait();
	if (part == 0 && half < 2 * NEWEST_GROUP && j < end && (of_low || high > low)) a.sums[(i64)b.slot * a.width + j] = {top, total};
}

// compare_newest: block 0 of those that compare adds the row's key to the sum of its block,
// sketches the mean and compares the row with it; block 1 does so with the query, for those
// that come later; the others compare the row with 32 blocks before each, and the block
// before with its own where it was completed. Half a warp takes a product. room holds the
// mean and the sketch of the key.
__device__ __forceinline__ void compare_newest(const WalkNewestArgs& a, const Block& b, int block, u32* room, double* mean) {
	SHARED(float, asked, NEWEST_DIM);
	const SketchNewestArgs& s = a.s;
	double* key_mean = (double*)room;
	float* made = (float*)(room + NEWEST_DIM * 2);
	bool has_own = block == 0;
	int own = b.index, half = (int)threadIdx.x / PARTS, part = (int)threadIdx.x % PARTS, j = has_own ? own : (block - 2) * COMPARED + half;
	bool before = block > 1 && j < own, element = before || (has_own && half == 0), renewed = b.first % PAGE == 0 && own > 0;
	int page_before = own > 0 ? known_page(s.g, b, own - 1) : b.page;
	const float* key = s.keys + (before ? known_page(s.g, b, j) : b.page) * s.width;
	float x[4] = {0, 0, 0, 0}, renewal = 0;
	if (before && part * 4 < s.width) ld_cg4(x, key + part * 4);
	Basis basis;
	if (s.fixed) bring(basis, s, (int)threadIdx.x / BASIS_LANES);
	if (renewed) {
		for (int e = part * 4; e < s.width && before; e += PARTS * 4) {
			float u[4], v[4];
			ld_cg4(u, s.rows + page_before * s.width + e);
			ld_cg4(v, key + e);
			for (int i = 0; i < 4; i++) renewal = fmaf(u[i], v[i], renewal);
		}
		for (int by = PARTS / 2; by > 0; by /= 2) renewal += __shfl_xor_sync(FULL_MASK, renewal, by);
		renewal *= (float)s.scale;
		if (before && part == 0) count_nan(s.g, renewal);
		renewal = shape(renewal, s.form, s.log);
	}
	if (a.early) pdl_wait();
	if (!s.fixed) bring(basis, s, (int)threadIdx.x / BASIS_LANES);
	// The query is of the first half of the threads, the key of the others.
	bool of_key = threadIdx.x >= NEWEST_THREADS / 2, sums = of_key ? has_own : block == 1;
	int heads = (int)(of_key ? s.kheads : s.qheads), dim = (int)s.dim;
	const float* from = (of_key ? s.k : s.q) + (i64)b.slot * heads * dim;
	float* sum = (of_key ? s.ksum : s.qsum) + (i64)b.page * dim;
#pragma unroll 1
	for (int first = 0; first < dim && (!of_key || has_own); first += MEAN_DIMS) {
		int d = first + warp() % (MEAN_DIMS / PAIRED) * PAIRED + lane() % PAIRED;
		bool mine = d < dim;
		float old = mine && sums && b.first % PAGE != 0 ? ld_cg(sum + d) : 0, x = paired_mean(from + d, heads, dim, mine);
		if (!mine || lane() >= PAIRED) continue;
		if (sums) {
			float all = old + x;
			sum[d] = all;
			if (of_key || !s.token) x = all / (float)b.positions();
		}
		(of_key ? key_mean : mean)[place_in_mean(d)] = (double)x;
	}
	__syncthreads();
#pragma unroll 1
	for (int w = (int)threadIdx.x / BASIS_LANES, first = 0; first < s.width; first += BASIS_ROWS, w += BASIS_ROWS) {
		if (first > 0) bring(basis, s, w);
		float both[2];
		project(both, s, mean, has_own ? key_mean : nullptr, basis, w);
		if (threadIdx.x % BASIS_LANES == 0 && w < s.width) {
			asked[w] = both[0];
			if (has_own) made[w] = both[1];
		}
	}
	__syncthreads();
	if (block < 2) {
		float* to = (has_own ? s.keys : s.rows) + b.page * s.width;
		for (int w = threadIdx.x; w < s.width; w += NEWEST_THREADS) to[w] = has_own ? made[w] : asked[w];
	}
	float product = 0;
#pragma unroll 1
	for (int e = part * 4; e < s.width && element; e += PARTS * 4) {
		if (!before) {
			for (int i = 0; i < 4; i++) x[i] = made[e + i];
		} else if (e >= PARTS * 4) {
			ld_cg4(x, key + e);
		}
		for (int i = 0; i < 4; i++) product = fmaf(asked[e + i], x[i], product);
	}
	for (int by = PARTS / 2; by > 0; by /= 2) product += __shfl_xor_sync(FULL_MASK, product, by);
	if (!element || part > 0) return;
	product *= (float)s.scale;
	count_nan(s.g, product);
	s.pairs[b.page * s.most + j] = shape(product, s.form, s.log);
	if (renewed && before) s.pairs[page_before * s.most + j] = renewal;
}

// walk_newest: of the blocks of a slot, the first walk and the others compare. The last to
// finish chooses.
KERNEL_2_PER_SM(walk_newest, WalkNewestArgs, NEWEST_THREADS) {
	DYNAMIC_SHARED(u32, room);  // page numbers; the mean of the keys and its sketch; at last the row
	SHARED(double, mean, NEWEST_DIM);
	SHARED(Choice, choice, 1);
	SHARED(int, last, 1);
	Block b;
	if (!block_of(a.s.g, blockIdx.y, 0, TOUCHED, b)) {
		pdl_wait();
		return;
	}
	int groups = b.index / NEWEST_GROUP + 1, walkers = !a.dst ? 0 : a.src ? (groups + 1) / 2 : a.s.q ? 0 : 1;
	int comparers = a.s.q ? 2 + (b.index + COMPARED - 1) / COMPARED : 0, block = (int)blockIdx.x - walkers;
	if (block >= comparers) {
		pdl_wait();
		return;
	}
	if (!a.early) pdl_wait();
	if (block >= 0)
		compare_newest(a, b, block, room, mean);
	else if (a.src)
		walk_group(a, b, walkers, room);
	else
		pdl_wait();
	if (!a.dst || block == 1) return;  // which nobody waits for
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		last[0] = atomicAdd(a.finished + blockIdx.y, 1) == walkers + max_of(comparers - 1, 0) - 1;
		__threadfence();
		if (last[0]) a.finished[blockIdx.y] = 0;
	}
	__syncthreads();
	pdl_trigger();
	if (last[0]) choose_newest(a, b, (float*)room, choice[0], (u64*)mean);
}
