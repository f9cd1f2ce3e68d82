// The walk of Sketch&Walk over block scores, and the selection of blocks by it. With W = Â^s
// element by element (s the exponent), the first sparse layer starts with R = W and each further
// one takes R ← R·W; row i of R then ranks the blocks of the rows in block i. Reference
// implementation: package cpu. In logarithms, arith=log, with e = s·ln|Â|:
//
//	L'[i][j] = ln Σ_m exp(L[i][m] + e[m][j]),  less the row's maximum without column 0
//
// or as f64 values, arith=scaled, each row divided by its largest magnitude. A triangle has no
// m > i and no j > m; square scores do.
#include "walk.cuh"

struct WalkArgs {
	void* dst;        // [rows, width] f32 logarithms, or with values f64
	const void* src;  // R of the layer before, as dst; NULL: the first sparse layer
	void* work;       // [slots, blocks, width] as dst; logarithms: LogSumExp [slots, runs, blocks, width]
	i64 width, rows, values, exponent, slots, blocks;
	i64 run;  // terms m of a partial sum; only of logarithms
	f64 own;  // part of the result that is the block's own row, both parts scaled to sum 1; 0: none
	BlockScores scores;
	PagedKV g;
};

// power is xⁿ, n ≥ 1.
__device__ inline double power(double x, i64 n) {
	double y = 1;
	for (; n > 0; n /= 2) {
		if (n % 2) y *= x;
		x *= x;
	}
	return y;
}

constexpr int WALK_WARPS = 8;

// walk: Σ_m src[m]·scores[m][j]^exponent of f64 values into work. Grid: (touched block, 32
// elements, slot); a warp takes every WALK_WARPS-th m, and the warps' sums are added in order.
KERNEL(walk, WalkArgs, WALK_WARPS * WARP) {
	SHARED(double, sums, WALK_WARPS * WARP);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end, j = blockIdx.y * WARP + lane();
	const float* own = score_row(a.scores, a.g, b, b.index, end);
	if ((int)blockIdx.y * WARP >= end) return;
	const double* src = (const double*)a.src + walk_row_index(b, a.slots, a.rows) * a.width;
	double sum = 0;
	int start = a.scores.square ? 0 : blockIdx.y * WARP;  // a triangle has no scores before
	for (int m = start + warp(); m < end && a.src; m += WALK_WARPS) {
		int width;
		const float* row = score_row(a.scores, a.g, b, m, width);
		if (j < min_of(width, end)) sum += src[m] * power(row[j], a.exponent);
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (warp() > 0 || j >= end) return;
	for (int w = 1; w < WALK_WARPS; w++) sum += sums[w * WARP + lane()];
	((double*)a.work)[((i64)blockIdx.z * a.blocks + blockIdx.x) * a.width + j] = a.src ? sum : power(own[j], a.exponent);
}

// damp_values adds the own row of scores to a row of values x of end elements, both scaled so
// that their magnitudes sum to 1. All threads call it.
__device__ inline void damp_values(const WalkArgs& a, const float* own, double* x, int end) {
	double walked = 0, mine = 0;
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		walked += fabs(x[j]);
		mine += fabs(power(own[j], a.exponent));
	}
	walked = reduce_block(walked, 0.0, Plus());
	mine = reduce_block(mine, 0.0, Plus());
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		double y = walked > 0 ? x[j] * ((1 - a.own) / walked) : x[j];
		if (mine > 0) y += power(own[j], a.exponent) * a.own / mine;
		x[j] = y;
	}
	__syncthreads();
}

// walk_store damps a walk, and divides each row of values by its largest magnitude but that of
// column 0. Grid: (touched block, 1, slot).
KERNEL(walk_store, WalkArgs, 256) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end;
	const float* own = score_row(a.scores, a.g, b, b.index, end);
	double* dst = (double*)a.dst + walk_row_index(b, a.slots, a.rows) * a.width;
	double* x = (double*)a.work + ((i64)blockIdx.z * a.blocks + blockIdx.x) * a.width;
	if (a.own > 0 && a.src) damp_values(a, own, x, end);
	double top = 0;
	for (int j = min_of(1, end - 1) + threadIdx.x; j < end; j += blockDim.x) top = max_of(top, fabs(x[j]));
	top = reduce_block(top, 0.0, Max());
	for (int j = threadIdx.x; j < end; j += blockDim.x) dst[j] = top > 0 ? x[j] / top : x[j];
}

// Of logarithms the walk is a product of two matrices of exponentials, exp(L[i][m] - max_m) and
// exp(e[m][j] - max_m), both maxima over WALK_RUN terms, so that nothing overflows. A sum that is
// nearly 0 may have lost a term to underflow and is computed again term by term. Cost: i²/2
// multiply-adds a row of triangles.

constexpr int WALK_RUN = 256;     // terms of a tile
constexpr int WALK_ROWS = 32;     // touched blocks of a tile
constexpr int WALK_COLUMNS = 32;  // elements of their rows
constexpr int WALK_PAD = 4;
constexpr float WALK_MIN_SUM = 0x1p-90f;

// WalkTile is the shared memory of walk_logs.
struct WalkTile {
	float src[WALK_RUN][WALK_ROWS + WALK_PAD];
	union {
		float pairs[WALK_RUN][WALK_COLUMNS];
		float sums[WALK_WARPS][WALK_ROWS][WALK_COLUMNS];
	};
	float tops[2][WALK_WARPS][WALK_COLUMNS];  // maxima of each warp: of rows, of columns
};

// run_count is how many partial sums an element has in work.
__device__ inline int run_count(const WalkArgs& a) { return (int)((a.width + a.run - 1) / a.run); }

// first_run is the first partial sum of element j and the elements of its tile.
__device__ inline int first_run(const WalkArgs& a, int j) { return a.scores.square ? 0 : j / WALK_COLUMNS * WALK_COLUMNS / (int)a.run; }

// exact_sum is the sum over [lo, hi) term by term.
__device__ inline LogSumExp exact_sum(const WalkArgs& a, const Block& b, const float* src, int j, int lo, int hi) {
	LogSumExp sum = {-infinity(), 0};
	for (int m = lo; m < hi; m++) {
		int width;
		const float* row = score_row(a.scores, a.g, b, m, width);
		if (j < width) sum.add(log_term(src[m] + row[j] * (float)a.exponent), 1);
	}
	return sum;
}

// walk_logs: partial sums over `run` terms, WALK_RUN at a time. Grid: (32 touched blocks, 32
// elements, slot · runs + run); a warp takes 32 of the terms of a tile, a lane 4 rows and 8
// columns of the product, and the warps' sums meet in shared memory. Bound by multiply-adds and by
// the exponentials of the tile, 32 + 32 for each term.
KERNEL(walk_logs, WalkArgs, WALK_WARPS * WARP) {
	DYNAMIC_SHARED(WalkTile, t);
	int runs = run_count(a), run = blockIdx.z % runs, slot = blockIdx.z / runs;
	Block b;
	if (!block_of(a.g, slot, blockIdx.x * WALK_ROWS, TOUCHED, b)) return;
	int rows = min_of(b.blocks() - b.index, WALK_ROWS), max_blocks = a.scores.square ? b.blocks() : b.index + rows;
	int column = blockIdx.y * WALK_COLUMNS, start = a.scores.square ? 0 : column, run_end = min_of((run + 1) * (int)a.run, max_blocks);
	if (column >= max_blocks || run * a.run >= max_blocks || run < first_run(a, column)) return;
	auto end_of = [&](int r) { return a.scores.square ? max_blocks : b.index + r + 1; };
	int first_row = (int)walk_row_index(b, a.slots, a.rows);
	auto from_of = [&](int r) {
		int row = first_row + r;  // rows of a single slot wrap around
		if (row >= a.rows) row -= (int)a.rows;
		return (const float*)a.src + row * a.width;
	};
	constexpr int EACH = WALK_ROWS / WALK_WARPS;  // rows of a warp when sums meet
	LogSumExp all[EACH];
#pragma unroll
	for (int k = 0; k < EACH; k++) all[k] = {-infinity(), 0};
	for (int base = run * (int)a.run; base < run_end; base += WALK_RUN) {
		if (base + WALK_RUN <= start) continue;
		// exp(L): one thread per term.
		int m = base + threadIdx.x;
#pragma unroll
		for (int r = 0; r < WALK_ROWS; r++) {
			bool in = r < rows && m >= start && m < end_of(r);
			t->src[threadIdx.x][r] = in ? log_term(from_of(r)[m]) : -infinity();
		}
		// exp(e): 32 terms per warp, one lane per element; lane i looks up the row of term i.
		float x[WARP], top = -infinity();
		int width = 0;
		const float* pairs = score_row(a.scores, a.g, b, min_of(m, max_blocks - 1), width);
		if (m >= max_blocks) width = 0;
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			const float* row = (const float*)__shfl_sync(FULL_MASK, (u64)pairs, i);
			bool in = column + lane() < __shfl_sync(FULL_MASK, width, i);
			x[i] = in ? row[column + lane()] : -infinity();
		}
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			x[i] = log_term(x[i] * (float)a.exponent);
			top = max_of(top, x[i]);
		}
		t->tops[1][warp()][lane()] = top;
		__syncthreads();
		top = -infinity();
		for (int i = 0; i < WARP; i++) top = max_of(top, t->src[warp() * WARP + i][lane()]);
		t->tops[0][warp()][lane()] = top;
		__syncthreads();
		float row_top = -infinity(), column_top = -infinity();
		for (int w = 0; w < WALK_WARPS; w++) {
			row_top = max_of(row_top, t->tops[0][w][lane()]);
			column_top = max_of(column_top, t->tops[1][w][lane()]);
		}
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			t->pairs[warp() * WARP + i][lane()] = x[i] > -infinity() ? exp2_ftz((x[i] - column_top) * LOG2_E) : 0;
			float& s = t->src[warp() * WARP + i][lane()];
			s = s > -infinity() ? exp2_ftz((s - row_top) * LOG2_E) : 0;
		}
		__syncwarp();

		// The product: a lane takes 4 rows and 8 columns.
		float sum[4][8];
#pragma unroll
		for (int r = 0; r < 4; r++) {
#pragma unroll
			for (int c = 0; c < 8; c++) sum[r][c] = 0;
		}
		int row = lane() / 4 * 4, first = lane() % 4 * 8, last = min_of(max_blocks - base, (warp() + 1) * WARP);
#pragma unroll 4
		for (int i = warp() * WARP; i < last; i++) {
			float p[4], q[8];
#pragma unroll
			for (int r = 0; r < 4; r++) p[r] = t->src[i][row + r];
#pragma unroll
			for (int c = 0; c < 8; c++) q[c] = t->pairs[i][first + c];
#pragma unroll
			for (int r = 0; r < 4; r++) {
#pragma unroll
				for (int c = 0; c < 8; c++) sum[r][c] = fmaf(p[r], q[c], sum[r][c]);
			}
		}
		__syncthreads();
#pragma unroll
		for (int r = 0; r < 4; r++) {
#pragma unroll
			for (int c = 0; c < 8; c++) t->sums[warp()][row + r][first + c] = sum[r][c];
		}
		__syncthreads();
#pragma unroll
		for (int k = 0; k < EACH; k++) {
			int r = k * WALK_WARPS + warp(), j = column + lane();
			if (r >= rows || j >= end_of(r)) continue;
			LogSumExp part = {-infinity(), 0};
			row_top = -infinity();
			for (int w = 0; w < WALK_WARPS; w++) {
				part.sum += t->sums[w][r][lane()];
				row_top = max_of(row_top, t->tops[0][w][r]);
			}
			if (row_top > -infinity() && column_top > -infinity()) {
				part.top = row_top + column_top;
				if (part.sum < WALK_MIN_SUM) part = exact_sum(a, b, from_of(r), j, max_of(base, start), min_of(base + WALK_RUN, end_of(r)));
			}
			all[k].add(part.top, part.sum);
		}
		__syncthreads();
	}
#pragma unroll
	for (int k = 0; k < EACH; k++) {
		int r = k * WALK_WARPS + warp(), j = column + lane();
		if (r >= rows || j >= end_of(r)) continue;
		((LogSumExp*)a.work)[(((i64)slot * runs + run) * a.blocks + blockIdx.x * WALK_ROWS + r) * a.width + j] = all[k];
	}
}

// select_blocks_any is select_blocks for rows of any length and type; key(j) is the radix key of
// element j.
template <class K, class Key>
__device__ inline void select_blocks_any(const SelectBlocksArgs& a, const Block& b, Key key) {
	if (b.group() >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, b.group(), a.groups, 0);
		return;
	}
	int p = max_of(b.first, b.index * PAGE), n = b.index + 1;
	u64 seen = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) seen += block_visible(a.span, p, j);
	seen = reduce_block(seen, (u64)0, Plus());
	i64 want = block_budget(a, b.index, (i64)seen);
	bool all = want >= (i64)seen;
	Edges edges = edges_of(a, b.index, (i64)seen);
	auto forced = [&](int j) { return edges.has(j) && block_visible(a.span, p, j); };
	// The forced members do not compete.
	u64 some = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) some += forced(j);
	i64 k = max_of(want - (i64)reduce_block(some, (u64)0, Plus()), (i64)0);
	auto competes = [&](i64 j, K& x) {
		x = key(j);
		return (a.open || !edges.has((int)j)) && block_visible(a.span, p, (int)j);
	};
	Threshold<K> cut = select_all<K>();
	if (!all && k > 0) cut = radix_select<K, u32>(n, (u64)k, [&](i64 j, K& x) { return (u32)competes(j, x); });
	Selector<K> start = make_selector(cut, n, competes), in = start;
	auto takes = [&](i64 j) {
		K x;
		bool candidate = competes(j, x), best = candidate && k > 0 && in.takes(x);
		return all ? block_visible(a.span, p, (int)j) : best || forced((int)j);
	};
	ThreadRange r = thread_range(n);
	u64 mine = 0, total;
	for (i64 j = r.lo; j < r.hi; j++) mine += takes(j);
	u64 to = scan_block(mine, total);
	in = start;
	for (i64 j = r.lo; j < r.hi; j++) {
		if (takes(j)) a.index[b.group() * a.cap + to++] = (i32)j;
	}
	if (threadIdx.x == 0) a.count[b.group()] = (i32)total;
}

// top_blocks (select) lists the blocks with the largest elements in the row of each touched block.
// Grid: (touched block, 1, slot).
KERNEL(top_blocks, SelectBlocksArgs, 1024) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	i64 from = walk_row_index(b, a.slots, a.n) * a.width;
	for (int j = threadIdx.x; j <= b.index; j += blockDim.x) count_nan(a.g, a.values ? ((const double*)a.rows)[from + j] : (double)((const float*)a.rows)[from + j]);
	SHARED(u32, keys, MAX_SELECT_KEYS);
	if (!a.values && b.index < MAX_SELECT_KEYS) {
		for (int j = threadIdx.x; j <= b.index; j += blockDim.x) keys[j] = radix_key(((const float*)a.rows)[from + j]);
		select_blocks(a, b, keys);
		return;
	}
	if (a.values)
		select_blocks_any<u64>(a, b, [&](i64 j) { return radix_key64(((const double*)a.rows)[from + j]); });
	else
		select_blocks_any<u32>(a, b, [&](i64 j) { return radix_key(((const float*)a.rows)[from + j]); });
}

struct WalkTopArgs {
	WalkArgs w;
	SelectBlocksArgs p;  // index NULL: nothing is selected
};

// finish_row normalizes a row of logarithms and selects blocks by it. at(j) is element j, called
// once. keys has room for a row, or is NULL where nothing is selected. All threads call it.
template <class ElementAt>
__device__ inline void finish_row(const WalkTopArgs& a, const Block& b, int end, u32* keys, ElementAt at) {
	float *to = (float*)a.w.dst + walk_row_index(b, a.w.slots, a.w.rows) * a.w.width, top = -infinity();
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		float y = at(j);
		to[j] = y;
		if (j > 0 || end == 1) top = max_of(top, y);
	}
	top = reduce_block(top, -infinity(), Max());
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		float y = to[j];
		if (top > -infinity()) to[j] = y -= top;
		if (!a.p.index || j > b.index) continue;
		count_nan(a.w.g, y);
		keys[j] = radix_key(y);
	}
	if (a.p.index) select_blocks(a.p, b, keys);
}

// LogScale is what is added to the two parts of a damped row of logarithms.
struct LogScale {
	double walked, own;
};

// log_scale is ln(part / Σ exp) of a row of logarithms; ln(part) where the sum is 0. All threads
// call it.
template <class ElementAt>
__device__ inline double log_scale(double part, int end, ElementAt at) {
	float top = -infinity();
	for (int j = threadIdx.x; j < end; j += blockDim.x) top = max_of(top, at(j));
	top = reduce_block(top, -infinity(), Max());
	if (!(top > -infinity())) return log(part);
	double sum = 0;
	for (int j = threadIdx.x; j < end; j += blockDim.x) sum += exp((double)at(j) - top);
	return log(part) - top - log(reduce_block(sum, 0.0, Plus()));
}

// damped is the element of which the two parts are the logarithms x and y.
__device__ inline float damped(LogScale s, float x, float y) {
	double u = x + s.walked, v = y + s.own, top = max_of(u, v);
	return top > -infinity() ? (float)(top + log1p(exp(min_of(u, v) - top))) : -infinity();
}

// walk_top: the rows of R from the partial sums of walk_logs, and the selection. Grid: (touched
// block, 1, slot).
KERNEL(walk_top, WalkTopArgs, 1024) {
	DYNAMIC_SHARED(u32, keys);
	Block b;
	if (!block_of(a.w.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end, runs = run_count(a.w);
	const float* own = score_row(a.w.scores, a.w.g, b, b.index, end);
	auto own_log = [&](int j) { return (float)a.w.exponent * own[j]; };
	auto walked = [&](int j) {
		LogSumExp all = {-infinity(), 0};
		for (int r = first_run(a.w, j); r * a.w.run < end; r++) {
			LogSumExp part = ((const LogSumExp*)a.w.work)[(((i64)blockIdx.z * runs + r) * a.w.blocks + blockIdx.x) * a.w.width + j];
			all.add(part.top, part.sum);
		}
		return all.sum > 0 ? all.top + logf(all.sum) : -infinity();
	};
	LogScale s = {0, 0};
	bool damp = a.w.own > 0;
	if (a.w.src && damp) s = {log_scale(1 - a.w.own, end, walked), log_scale(a.w.own, end, own_log)};
	finish_row(a, b, end, keys, [&](int j) {
		if (!a.w.src) return own_log(j);
		return damp ? damped(s, walked(j), own_log(j)) : walked(j);
	});
}
