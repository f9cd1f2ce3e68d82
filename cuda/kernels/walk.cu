// Walks over the products of blocks, and the choice of blocks. Definitions: package cpu,
// walk.go.
#include "walk.cuh"

struct WalkArgs {
	void* dst;        // [rows, width] f32 logarithms, or with values f64
	const void* src;  // likewise; NULL starts
	void* work;       // [slots, blocks, width] likewise
	i64 width, rows, values, exponent, slots, blocks;
	i64 run;  // m of a sum in work; of logarithms
	Pairs pairs;
	PagedKV g;
};

// power is x to the n, n at least 1.
__device__ inline double power(double x, i64 n) {
	double y = 1;
	for (; n > 0; n /= 2) {
		if (n % 2) y *= x;
		x *= x;
	}
	return y;
}

constexpr int WALK_WARPS = 8;

// walk sums elements of the rows of touched blocks into work: Σ_m src[m]·pairs[m][j]^exponent
// of values. Block (b, z, slot) takes 32 elements of a row; a warp takes every 8th m.
KERNEL(walk, WalkArgs, WALK_WARPS * WARP) {
	SHARED(double, sums, WALK_WARPS * WARP);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end, j = blockIdx.y * WARP + lane();
	const float* own = row_of(a.pairs, a.g, b, b.index, end);
	if ((int)blockIdx.y * WARP >= end) return;
	const double* src = (const double*)a.src + walk_row(b, a.slots, a.rows) * a.width;
	double sum = 0;
	int start = a.pairs.square ? 0 : blockIdx.y * WARP;  // blocks before made nothing of these
	for (int m = start + warp(); m < end && a.src; m += WALK_WARPS) {
		int width;
		const float* row = row_of(a.pairs, a.g, b, m, width);
		if (j < min_of(width, end)) sum += src[m] * power(row[j], a.exponent);
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (warp() > 0 || j >= end) return;
	for (int w = 1; w < WALK_WARPS; w++) sum += sums[w * WARP + lane()];
	((double*)a.work)[((i64)blockIdx.z * a.blocks + blockIdx.x) * a.width + j] = a.src ? sum : power(own[j], a.exponent);
}

// walk_store divides each row of values by its largest element but the first. Block
// (b, 0, slot) takes a row.
KERNEL(walk_store, WalkArgs, 256) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end;
	row_of(a.pairs, a.g, b, b.index, end);
	double* dst = (double*)a.dst + walk_row(b, a.slots, a.rows) * a.width;
	const double* x = (const double*)a.work + ((i64)blockIdx.z * a.blocks + blockIdx.x) * a.width;
	double top = 0;
	for (int j = min_of(1, end - 1) + threadIdx.x; j < end; j += blockDim.x) top = max_of(top, fabs(x[j]));
	top = reduce_block(top, 0.0, Max());
	for (int j = threadIdx.x; j < end; j += blockDim.x) dst[j] = top > 0 ? x[j] / top : x[j];
}

// Of logarithms, Σ_m exp(src[m] + exponent·pairs[m][j]) is a product of two matrices of
// exp, each less the largest of its row or column over a run of WALK_RUN of the m, so
// that no number is above 1. A sum that is nearly nothing may have lost a term; it is
// added up again, term by term.

constexpr int WALK_RUN = 256;     // of the m
constexpr int WALK_ROWS = 32;     // touched blocks at once
constexpr int WALK_COLUMNS = 32;  // elements of their rows
constexpr int WALK_PAD = 4;
constexpr float WALK_LEAST = 0x1p-90f;

// WalkTile is the shared memory of walk_logs.
struct WalkTile {
	float src[WALK_RUN][WALK_ROWS + WALK_PAD];
	union {
		float pairs[WALK_RUN][WALK_COLUMNS];
		float sums[WALK_WARPS][WALK_ROWS][WALK_COLUMNS];
	};
	float tops[2][WALK_WARPS][WALK_COLUMNS];  // of rows, of columns: by each warp
};

// runs_of is how many runs a row has in work.
__device__ inline int runs_of(const WalkArgs& a) { return (int)((a.width + a.run - 1) / a.run); }

// first_run is the first of the runs that made something of element j and those beside it.
__device__ inline int first_run(const WalkArgs& a, int j) { return a.pairs.square ? 0 : j / WALK_COLUMNS * WALK_COLUMNS / (int)a.run; }

// slow_sum is the sum over m from lo to hi, term by term.
__device__ inline LogSum slow_sum(const WalkArgs& a, const Block& b, const float* src, int j, int lo, int hi) {
	LogSum sum = {-infinity(), 0};
	for (int m = lo; m < hi; m++) {
		int width;
		const float* row = row_of(a.pairs, a.g, b, m, width);
		if (j < width) sum.add(term(src[m] + row[j] * (float)a.exponent), 1);
	}
	return sum;
}

// walk_logs leaves the sums over one run of the m in work, WALK_RUN of them at a time.
// Block (x, y, slot·runs + run) takes 32 elements of the rows of 32 touched blocks. A warp
// takes 32 of the m.
KERNEL(walk_logs, WalkArgs, WALK_WARPS * WARP) {
	DYNAMIC_SHARED(WalkTile, t);
	int runs = runs_of(a), run = blockIdx.z % runs, slot = blockIdx.z / runs;
	Block b;
	if (!block_of(a.g, slot, blockIdx.x * WALK_ROWS, TOUCHED, b)) return;
	int rows = min_of(b.blocks() - b.index, WALK_ROWS), most = a.pairs.square ? b.blocks() : b.index + rows;
	int column = blockIdx.y * WALK_COLUMNS, start = a.pairs.square ? 0 : column, run_end = min_of((run + 1) * (int)a.run, most);
	if (column >= most || run * a.run >= most || run < first_run(a, column)) return;
	auto end_of = [&](int r) { return a.pairs.square ? most : b.index + r + 1; };
	int first_row = (int)walk_row(b, a.slots, a.rows);
	auto from_of = [&](int r) {
		int row = first_row + r;  // the rows of one slot go round
		if (row >= a.rows) row -= (int)a.rows;
		return (const float*)a.src + row * a.width;
	};
	constexpr int EACH = WALK_ROWS / WALK_WARPS;  // rows of a warp at the end
	LogSum all[EACH];
#pragma unroll
	for (int k = 0; k < EACH; k++) all[k] = {-infinity(), 0};
	for (int base = run * (int)a.run; base < run_end; base += WALK_RUN) {
		if (base + WALK_RUN <= start) continue;
		// src, a thread for each m
		int m = base + threadIdx.x;
#pragma unroll
		for (int r = 0; r < WALK_ROWS; r++) {
			bool in = r < rows && m >= start && m < end_of(r);
			t->src[threadIdx.x][r] = in ? term(from_of(r)[m]) : -infinity();
		}
		// pairs, a warp for 32 of the m, a lane for each element; lane i knows row i.
		float x[WARP], top = -infinity();
		int width = 0;
		const float* pairs = row_of(a.pairs, a.g, b, min_of(m, most - 1), width);
		if (m >= most) width = 0;
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			const float* row = (const float*)__shfl_sync(FULL_MASK, (u64)pairs, i);
			bool in = column + lane() < __shfl_sync(FULL_MASK, width, i);
			x[i] = in ? row[column + lane()] : -infinity();
		}
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			x[i] = term(x[i] * (float)a.exponent);
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

		// A lane takes 4 rows and 8 columns.
		float sum[4][8];
#pragma unroll
		for (int r = 0; r < 4; r++) {
#pragma unroll
			for (int c = 0; c < 8; c++) sum[r][c] = 0;
		}
		int row = lane() / 4 * 4, first = lane() % 4 * 8, last = min_of(most - base, (warp() + 1) * WARP);
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
			LogSum part = {-infinity(), 0};
			row_top = -infinity();
			for (int w = 0; w < WALK_WARPS; w++) {
				part.sum += t->sums[w][r][lane()];
				row_top = max_of(row_top, t->tops[0][w][r]);
			}
			if (row_top > -infinity() && column_top > -infinity()) {
				part.top = row_top + column_top;
				if (part.sum < WALK_LEAST) part = slow_sum(a, b, from_of(r), j, max_of(base, start), min_of(base + WALK_RUN, end_of(r)));
			}
			all[k].add(part.top, part.sum);
		}
		__syncthreads();
	}
#pragma unroll
	for (int k = 0; k < EACH; k++) {
		int r = k * WALK_WARPS + warp(), j = column + lane();
		if (r >= rows || j >= end_of(r)) continue;
		((LogSum*)a.work)[(((i64)slot * runs + run) * a.blocks + blockIdx.x * WALK_ROWS + r) * a.width + j] = all[k];
	}
}

// pick_blocks lists the blocks with the largest elements in the row of b; key(j) is
// that of element j.
template <class K, class Key>
__device__ inline void pick_blocks(const PickArgs& a, const Block& b, Key key) {
	if (b.group() >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, b.group(), a.groups, 0);
		return;
	}
	int p = max_of(b.first, b.index * PAGE), n = b.index + 1;
	u64 seen = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) seen += sees_block(a.span, p, j);
	seen = reduce_block(seen, (u64)0, Plus());
	i64 want = pick_of(a, (i64)seen);
	bool all = want >= (i64)seen, zero = !a.open && sees_block(a.span, p, 0);
	// The best, after those that are read in any case: its own, and block 0.
	i64 k = max_of(want - 1 - (zero ? 1 : 0), (i64)0);
	auto among = [&](i64 j, K& x) {
		x = key(j);
		return (a.open || j < b.index) && !(zero && j == 0) && sees_block(a.span, p, (int)j);
	};
	Cut<K> cut = everything<K>();
	if (!all && k > 0) cut = select<K, u32>(n, (u64)k, [&](i64 j, K& x) { return (u32)among(j, x); });
	Picker<K> start = picker(cut, n, among), in = start;
	auto takes = [&](i64 j) {
		K x;
		bool candidate = among(j, x), best = candidate && k > 0 && in.takes(x);
		return all ? sees_block(a.span, p, (int)j) : best || j == b.index || (zero && j == 0);
	};
	Run r = run_of(n);
	u64 mine = 0, total;
	for (i64 j = r.lo; j < r.hi; j++) mine += takes(j);
	u64 to = scan_block(mine, total);
	in = start;
	for (i64 j = r.lo; j < r.hi; j++) {
		if (takes(j)) a.index[b.group() * a.cap + to++] = (i32)j;
	}
	if (threadIdx.x == 0) a.count[b.group()] = (i32)total;
}

// top_blocks lists for each touched block the blocks with the largest elements
// in its row. Block (b, 0, slot) takes a list.
KERNEL(top_blocks, PickArgs, 1024) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	i64 from = walk_row(b, a.slots, a.n) * a.width;
	for (int j = threadIdx.x; j <= b.index; j += blockDim.x) count_nan(a.g, a.values ? ((const double*)a.rows)[from + j] : (double)((const float*)a.rows)[from + j]);
	SHARED(u32, keys, PICK_MOST);
	if (!a.values && b.index < PICK_MOST) {
		for (int j = threadIdx.x; j <= b.index; j += blockDim.x) keys[j] = key_of(((const float*)a.rows)[from + j]);
		pick_keys(a, b, keys);
		return;
	}
	if (a.values)
		pick_blocks<u64>(a, b, [&](i64 j) { return wide_key_of(((const double*)a.rows)[from + j]); });
	else
		pick_blocks<u32>(a, b, [&](i64 j) { return key_of(((const float*)a.rows)[from + j]); });
}

struct WalkTopArgs {
	WalkArgs w;
	PickArgs p;  // index NULL: no choice
};

// finish_row divides a row of logarithms by its largest element but the first, and
// chooses. All threads call it; at(j) is element j, asked for once. keys, which may be
// NULL where nothing is chosen, has room for all of them.
template <class RowPosition>
__device__ inline void finish_row(const WalkTopArgs& a, const Block& b, int end, u32* keys, RowPosition at) {
	float *to = (float*)a.w.dst + walk_row(b, a.w.slots, a.w.rows) * a.w.width, top = -infinity();
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
		keys[j] = key_of(y);
	}
	if (a.p.index) pick_keys(a.p, b, keys);
}

// walk_join makes the rows of the sums of walk_logs. Block (b, 0, slot) takes a row.
KERNEL(walk_join, WalkTopArgs, 1024) {
	DYNAMIC_SHARED(u32, keys);
	Block b;
	if (!block_of(a.w.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end, runs = runs_of(a.w);
	const float* own = row_of(a.w.pairs, a.w.g, b, b.index, end);
	finish_row(a, b, end, keys, [&](int j) {
		if (!a.w.src) return (float)a.w.exponent * own[j];
		LogSum all = {-infinity(), 0};
		for (int r = first_run(a.w, j); r * a.w.run < end; r++) {
			LogSum part = ((const LogSum*)a.w.work)[(((i64)blockIdx.z * runs + r) * a.w.blocks + blockIdx.x) * a.w.width + j];
			all.add(part.top, part.sum);
		}
		return all.sum > 0 ? all.top + logf(all.sum) : -infinity();
	});
}
