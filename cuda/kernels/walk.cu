// Walks over the products of blocks, and the choice of blocks. Definitions: package cpu,
// walk.go.
#include "rank.cuh"
#include "sketch.cuh"

struct WalkArgs {
	void* dst;        // [rows, width] f32 logarithms, or with values f64
	const void* src;  // likewise; NULL starts
	void* work;       // [slots, blocks, width] likewise
	i64 width, rows, values, exponent, slots, blocks;
	i64 run;  // m of a sum in work; of logarithms
	Pairs pairs;
	Pages g;
};

// walk_row is the number of the row of a block in a tensor of n rows.
__device__ inline i64 walk_row(const Block& b, i64 slots, i64 n) { return slots > 1 ? b.slot : b.index % n; }

// power is x to the n, n at least 1.
__device__ inline double power(double x, i64 n) {
	double y = 1;
	for (; n > 0; n /= 2) {
		if (n % 2) y *= x;
		x *= x;
	}
	return y;
}

// LogSum is ln Σ exp, term by term.
struct LogSum {
	float top, sum;

	__device__ void add(float t, float s) {
		if (!(t > -infinity())) return;
		if (t > top) {
			sum = sum * expf(top - t) + s;
			top = t;
		} else {
			sum += s * expf(t - top);
		}
	}
};

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
		if (j < smaller(width, end)) sum += src[m] * power(row[j], a.exponent);
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
	for (int j = smaller(1, end - 1) + threadIdx.x; j < end; j += blockDim.x) top = larger(top, fabs(x[j]));
	top = reduce_block(top, 0.0, Top());
	for (int j = threadIdx.x; j < end; j += blockDim.x) dst[j] = top > 0 ? x[j] / top : x[j];
}

constexpr float LOG2_E = 1.4426950408889634f;

// term is a logarithm, or none of what is not a number.
__device__ __forceinline__ float term(float x) { return x > -infinity() ? x : -infinity(); }

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
	DYNAMIC(WalkTile, t);
	int runs = runs_of(a), run = blockIdx.z % runs, slot = blockIdx.z / runs;
	Block b;
	if (!block_of(a.g, slot, blockIdx.x * WALK_ROWS, TOUCHED, b)) return;
	int rows = smaller(b.blocks() - b.index, WALK_ROWS), most = a.pairs.square ? b.blocks() : b.index + rows;
	int column = blockIdx.y * WALK_COLUMNS, start = a.pairs.square ? 0 : column, run_end = smaller((run + 1) * (int)a.run, most);
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
		const float* pairs = row_of(a.pairs, a.g, b, smaller(m, most - 1), width);
		if (m >= most) width = 0;
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			const float* row = (const float*)__shfl_sync(ALL, (u64)pairs, i);
			bool in = column + lane() < __shfl_sync(ALL, width, i);
			x[i] = in ? row[column + lane()] : -infinity();
		}
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			x[i] = term(x[i] * (float)a.exponent);
			top = larger(top, x[i]);
		}
		t->tops[1][warp()][lane()] = top;
		__syncthreads();
		top = -infinity();
		for (int i = 0; i < WARP; i++) top = larger(top, t->src[warp() * WARP + i][lane()]);
		t->tops[0][warp()][lane()] = top;
		__syncthreads();
		float row_top = -infinity(), column_top = -infinity();
		for (int w = 0; w < WALK_WARPS; w++) {
			row_top = larger(row_top, t->tops[0][w][lane()]);
			column_top = larger(column_top, t->tops[1][w][lane()]);
		}
#pragma unroll
		for (int i = 0; i < WARP; i++) {
			t->pairs[warp() * WARP + i][lane()] = x[i] > -infinity() ? power2((x[i] - column_top) * LOG2_E) : 0;
			float& s = t->src[warp() * WARP + i][lane()];
			s = s > -infinity() ? power2((s - row_top) * LOG2_E) : 0;
		}
		__syncwarp();

		// A lane takes 4 rows and 8 columns.
		float sum[4][8];
#pragma unroll
		for (int r = 0; r < 4; r++) {
#pragma unroll
			for (int c = 0; c < 8; c++) sum[r][c] = 0;
		}
		int row = lane() / 4 * 4, first = lane() % 4 * 8, last = smaller(most - base, (warp() + 1) * WARP);
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
				row_top = larger(row_top, t->tops[0][w][r]);
			}
			if (row_top > -infinity() && column_top > -infinity()) {
				part.top = row_top + column_top;
				if (part.sum < WALK_LEAST) part = slow_sum(a, b, from_of(r), j, larger(base, start), smaller(base + WALK_RUN, end_of(r)));
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

struct PickArgs {
	i32 *index, *count;  // [groups, cap], [groups]
	const void* rows;    // [n, width] f32, or with values f64
	i64 groups, cap, n, width, values, slots;
	i64 of;  // blocks; 0: by share
	f64 share;
	i64 open;  // block 0 has to compete
	Span span;
	Pages g;
};

// sees_block reports whether the row at p sees any position of block j.
__device__ inline bool sees_block(const Span& s, int p, int j) {
	int last = smaller(j * PAGE + PAGE - 1, p), sink = smaller(last, (int)s.sink - 1);
	return sees(s, p, last) || (sink >= j * PAGE && sees(s, p, sink));
}

// pick_of is Pick.Of.
__device__ inline i64 pick_of(const PickArgs& a, i64 n) {
	i64 k = a.of ? a.of : larger((i64)2, (i64)ceil(a.share * (double)n - 1e-9));
	return k > n || n <= 2 ? n : k;
}


constexpr int PICK_MOST = 4096;  // the most blocks of a row whose keys fit in shared memory
constexpr u32 KEY_ALWAYS = 0xffffffffu;  // above every number's

constexpr int PICK_EACH = 8;  // keys that a thread holds

// cut_of is where the want-th largest of the keys lies; a key of 0 takes no part. There
// are at least so many. It finds two bits of it at a time: few instructions, which a block
// that is alone with them has to fetch. All threads call it.
__device__ inline Cut<u32> cut_of(const u32* keys, int n, u32 want) {
	SHARED(u32, counts, 2 * WARP);  // of each warp: of three keys that are tried, 10 bits each
	u32 mine[PICK_EACH], least = 0, above = 0;  // above: so many are more than least
#pragma unroll
	for (int i = 0; i < PICK_EACH; i++) {
		int at = i * (int)blockDim.x + (int)threadIdx.x;
		mine[i] = at < n ? keys[at] : 0;
	}
#pragma unroll 1
	for (int shift = 30; shift >= 0; shift -= 2) {
		u32 many = 0;
#pragma unroll
		for (int i = 0; i < PICK_EACH; i++) many += (mine[i] >= (least | 1u << shift)) + ((mine[i] >= (least | 2u << shift)) << 10) + ((mine[i] >= (least | 3u << shift)) << 20);
		many = add_warp(many);
		u32* at = counts + shift / 2 % 2 * WARP;
		if (lane() == 0) at[warp()] = many;
		__syncthreads();
		many = lane() < (int)blockDim.x / WARP ? at[lane()] : 0;
		u32 low = add_warp(many & 1023), middle = add_warp(many >> 10 & 1023), high = add_warp(many >> 20);
		u32 digit = high >= want ? 3 : middle >= want ? 2 : low >= want ? 1 : 0;
		if (digit < 3) above = digit == 2 ? high : digit == 1 ? middle : low;
		least |= digit << shift;
	}
	Cut<u32> cut = {least, want - above};
	return cut;
}

// leave_out makes the keys of blocks 0 that the row of b at p does not see, and gives how
// many are left. All threads call it.
__device__ APART u32 leave_out(const Span& span, int p, int n, u32* keys) {
	u32 seen = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		bool in = sees_block(span, p, j);
		if (!in) keys[j] = 0;
		seen += in;
	}
	return reduce_block(seen, 0u, Plus());
}

// pick_keys lists the blocks with the largest keys in the row of b, as many as keys has,
// which it changes. All threads call it, and have written keys.
__device__ inline void pick_keys(const PickArgs& a, const Block& b, u32* keys) {
	if (b.group() >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, b.group(), a.groups, 0);
		return;
	}
	int n = b.index + 1;
	u32 seen = n;
	__syncthreads();
	if (a.span.back != 0 || a.span.drop != 0) seen = leave_out(a.span, larger(b.first, b.index * PAGE), n, keys);
	__syncthreads();
	i64 want = pick_of(a, (i64)seen);
	bool zero = !a.open && keys[0] != 0;
	// The best, after those that are read in any case: its own, and block 0.
	i64 k = larger(want - 1 - (zero ? 1 : 0), (i64)0);
	Cut<u32> cut = {0, 0};  // of all that are seen
	if (want < (i64)seen) {
		__syncthreads();
		if (threadIdx.x == 0 && !a.open) keys[b.index] = 0;
		if (threadIdx.x == 0 && zero) keys[0] = 0;
		__syncthreads();
		cut = k > 0 ? cut_of(keys, n, (u32)k) : Cut<u32>{KEY_ALWAYS - 1, 0};
		__syncthreads();
		if (threadIdx.x == 0) keys[b.index] = KEY_ALWAYS;
		if (threadIdx.x == 0 && zero) keys[0] = KEY_ALWAYS;
		__syncthreads();
	}
	i32* index = a.index + b.group() * a.cap;
	int total = compact(keys, n, cut, [&](int to, int i, u32) { index[to] = i; });
	if (threadIdx.x == 0) a.count[b.group()] = total;
}

// pick_blocks lists the blocks with the largest elements in the row of b; key(j) is
// that of element j.
template <class K, class Key>
__device__ inline void pick_blocks(const PickArgs& a, const Block& b, Key key) {
	if (b.group() >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, b.group(), a.groups, 0);
		return;
	}
	int p = larger(b.first, b.index * PAGE), n = b.index + 1;
	u64 seen = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) seen += sees_block(a.span, p, j);
	seen = reduce_block(seen, (u64)0, Plus());
	i64 want = pick_of(a, (i64)seen);
	bool all = want >= (i64)seen, zero = !a.open && sees_block(a.span, p, 0);
	// The best, after those that are read in any case: its own, and block 0.
	i64 k = larger(want - 1 - (zero ? 1 : 0), (i64)0);
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
	for (int j = threadIdx.x; j <= b.index; j += blockDim.x) met(a.g, a.values ? ((const double*)a.rows)[from + j] : (double)((const float*)a.rows)[from + j]);
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
	PickArgs p;     // index NULL: no choice
	i32* finished;  // [slots]: blocks that are done; 0 between launches
	i64 early;      // of walk_newest
};

// finish_row divides a row of logarithms by its largest element but the first, and
// chooses. All threads call it; at(j) is element j, asked for once. keys, which may be
// NULL where nothing is chosen, has room for all of them.
template <class At>
__device__ inline void finish_row(const WalkTopArgs& a, const Block& b, int end, u32* keys, At at) {
	float *to = (float*)a.w.dst + walk_row(b, a.w.slots, a.w.rows) * a.w.width, top = -infinity();
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		float y = at(j);
		to[j] = y;
		if (j > 0 || end == 1) top = larger(top, y);
	}
	top = reduce_block(top, -infinity(), Top());
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		float y = to[j];
		if (top > -infinity()) to[j] = y -= top;
		if (!a.p.index || j > b.index) continue;
		met(a.w.g, y);
		keys[j] = key_of(y);
	}
	if (a.p.index) pick_keys(a.p, b, keys);
}

// walk_join makes the rows of the sums of walk_logs. Block (b, 0, slot) takes a row.
KERNEL(walk_join, WalkTopArgs, 1024) {
	DYNAMIC(u32, keys);
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

// Of the newest row of each slot, whose walk is bound by reading the pairs once.

constexpr int WALK_NEWEST = 512;  // threads
constexpr int WALK_GROUP = 8;     // elements of a row that a block takes at a time, 32 bytes of it
constexpr int WALK_EACH = 4;      // m of a thread, all on their way at once

// walk_newest walks and chooses. Block (i, slot) takes the i-th group of 8 elements of a
// row from its start and the i-th from its end, which together have as many m as those
// of every other block. A lane takes 4 elements of every so-many-th m. The last block to
// finish chooses. Called early, the kernel before lets this one start when it has seen
// the end of those before it, and then writes no rows of pairs but the last two: so
// what it does before wait_before needs nothing else.
KERNEL_TWICE(walk_newest, WalkTopArgs, WALK_NEWEST) {
	DYNAMIC(u32, keys);
	SHARED(LogSum, parts, WALK_NEWEST / WARP * WALK_GROUP);
	SHARED(int, last, 1);
	let_next();
	const WalkArgs& w = a.w;
	Block b;
	bool there = block_of(w.g, blockIdx.y, 0, TOUCHED, b);
	int end = b.index + 1, groups = (end + WALK_GROUP - 1) / WALK_GROUP, blocks = (groups + 1) / 2, all_warps = WALK_NEWEST / WARP;
	if (!there || (int)blockIdx.x >= blocks) {
		wait_before();
		return;
	}
	// The warps are dealt to the two groups by what they have to read.
	int low = blockIdx.x, high = groups - 1 - low, late = larger(end - 2, 0);
	int many = larger(late - low * WALK_GROUP, 0), more = high > low ? larger(late - high * WALK_GROUP, 0) : 0;
	int highs = more > 0 ? larger(more * all_warps / (many + more), 1) : 0, lows = all_warps - highs;
	bool is_low = warp() < lows;
	int group = (is_low ? low : high) * WALK_GROUP, by = (is_low ? lows : highs) * (WARP / 2), from = (warp() - (is_low ? 0 : lows)) * (WARP / 2) + lane() / 2;
	int column = group + lane() % 2 * 4;
	if (!a.early) wait_before();
	const float* src = (const float*)w.src + walk_row(b, w.slots, w.rows) * w.width;
	LogSum sum[4];
	for (int c = 0; c < 4; c++) sum[c] = {-infinity(), 0};
	// Where the rows of the pairs are, in what keys will need later.
#pragma unroll 4
	for (int m = low * WALK_GROUP + (int)threadIdx.x; m < late && w.src; m += blockDim.x) keys[m] = (u32)page_or(w.g, b, m);
	__syncthreads();
#pragma unroll 1
	for (int m0 = group + from; m0 < late && w.src; m0 += by * WALK_EACH) {
		float x[WALK_EACH][4], s[WALK_EACH];
#pragma unroll
		for (int i = 0; i < WALK_EACH; i++) {
			int m = smaller(m0 + i * by, late - 1);
			s[i] = fresh(src + m);
			fresh4(x[i], w.pairs.data + keys[m] * w.pairs.width + column);
		}
#pragma unroll
		for (int c = 0; c < 4; c++) {
			float top = sum[c].top;
#pragma unroll
			for (int i = 0; i < WALK_EACH; i++) {
				int m = m0 + i * by;
				x[i][c] = m < late && column + c <= m ? term(s[i] + x[i][c] * (float)w.exponent) : -infinity();
				top = larger(top, x[i][c]);
			}
			if (!(top > -infinity())) continue;
			float part = sum[c].sum * power2((sum[c].top - top) * LOG2_E);
#pragma unroll
			for (int i = 0; i < WALK_EACH; i++) part += power2((x[i][c] - top) * LOG2_E);
			sum[c] = {top, part};
		}
	}
#pragma unroll
	for (int c = 0; c < 4; c++) {
		float top = sum[c].top;
		for (int m = 2; m < WARP; m *= 2) top = larger(top, __shfl_xor_sync(ALL, top, m));
		float part = sum[c].top > -infinity() ? sum[c].sum * power2((sum[c].top - top) * LOG2_E) : 0;
		for (int m = 2; m < WARP; m *= 2) part += __shfl_xor_sync(ALL, part, m);
		if (lane() < 2) parts[warp() * WALK_GROUP + lane() * 4 + c] = {top, part};
	}
	// Half a warp takes an element: a warp's sum each, and one of the last two rows.
	constexpr int LANES = WALK_NEWEST / WARP;
	bool of_low = threadIdx.x < WALK_GROUP * LANES;
	int part = (int)threadIdx.x % LANES, at = (int)threadIdx.x / LANES % WALK_GROUP, j = (of_low ? low : high) * WALK_GROUP + at, m = larger(late, 0) + part;
	bool element = threadIdx.x < 2 * WALK_GROUP * LANES && j < end && (of_low || high > low), newer = element && m < end && m >= j;
	const float* row = w.pairs.data + (newer ? page_or(w.g, b, m) : b.page) * w.pairs.width + (element ? j : 0);
	float before = newer && w.src ? fresh(src + m) : 0;
	if (a.early) wait_before();
	__syncthreads();
	float* logs = (float*)w.work + (i64)blockIdx.y * w.width;
	if (threadIdx.x < 2 * WALK_GROUP * LANES) {
		LogSum mine = {-infinity(), 0};
		if (element && (of_low ? part < lows : part >= lows)) mine = parts[part * WALK_GROUP + at];
		if (newer && w.src) mine.add(term(before + fresh(row) * (float)w.exponent), 1);
		float top = mine.top;
		for (int i = 1; i < LANES; i *= 2) top = larger(top, __shfl_xor_sync(ALL, top, i));
		float sum = mine.top > -infinity() ? mine.sum * power2((mine.top - top) * LOG2_E) : 0;
		for (int i = 1; i < LANES; i *= 2) sum += __shfl_xor_sync(ALL, sum, i);
		float y = sum > 0 ? top + logf(sum) : -infinity();
		if (!w.src) y = (float)w.exponent * fresh(w.pairs.data + b.page * w.pairs.width + (element ? j : 0));
		if (element && part == 0) logs[j] = y;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		last[0] = atomicAdd(a.finished + blockIdx.y, 1) == blocks - 1;
		__threadfence();
		if (last[0]) a.finished[blockIdx.y] = 0;
	}
	__syncthreads();
	if (!last[0]) return;
	finish_row(a, b, end, keys, [&](int j) { return fresh(logs + j); });
}
