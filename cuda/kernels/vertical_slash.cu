// Vertical-slash estimation (MInference) and query-aware block selection (FlexPrefill): the causal
// softmax of a prompt's newest rows is summed along columns (vertical lines: one position) and
// diagonals (slash lines: one distance, diagonal o being o positions before the row); the largest
// sums say what every row of the prompt reads. FlexPrefill takes a cumulative budget of blocks of
// them, and, for heads where pooled q·k agrees with the columns, adds the blocks with the largest
// pooled attention. Reference implementation: package cpu. Calls have one slot.
//
// Sums of weights are f32 in the form of hold_share (state.cuh), which keeps those below f32's
// range as logarithms; they are added up in f64.
#include "radix_select.cuh"
#include "shares.cuh"

struct VerticalSlashArgs {
	float *columns, *diagonals;    // [heads, width]
	const float* q;                // [rows, heads, dim]
	const SoftmaxState* states;    // [heads of the launch, rows]: softmax states of the rows
	double* parts;                 // [heads of the launch, pages, rows + PAGE - 1]: partial diagonal sums
	i64 heads, width, first_head;  // first_head: that of blockIdx.y 0
	i64 forced_columns, forced_diagonals;
	PagedKV g;
};

// row_fits reports whether rows of width numbers have one for each of n positions.
__device__ inline bool row_fits(const PagedKV& g, int n, i64 width) {
	if (n <= width) return true;
	if (threadIdx.x == 0) fail(g.failure, FAIL_SCORES, n - 1, width, 0);
	return false;
}

// vertical_slash (score): column sums Σ_p softmax(q·k/√dim)_pj, complete, and the page's part of the
// diagonal sums; forced columns are +Inf. Grid: (page, head). The page's keys stay in shared
// memory while VECTORS rows at a time are loaded. A thread scores a key against EACH rows, then adds
// a column, and then diagonals of the VECTORS x PAGE tile, in a fixed order. Bound by its
// multiply-adds, rows·dim a key and head; the weights are recomputed from the rows' states
// instead of stored.
KERNEL(vertical_slash, VerticalSlashArgs, 256) {
	DYNAMIC_SHARED(float, shared);  // the KeyTile, then f64 [rows + PAGE - 1]: diagonals
	SHARED(Entries, lists, VECTORS);
	SHARED(float, shares, VECTORS* PAGE);
	int b = blockIdx.x, local_head = blockIdx.y, head = (int)a.first_head + local_head, first = first_position(a.g, 0), rows = (int)a.g.rows, dim = (int)a.g.dim;
	if (first < 0 || b * PAGE >= first + rows || !row_fits(a.g, first + rows, a.width)) return;
	int page = page_of(a.g, 0, b), page_diagonals = rows + PAGE - 1;
	if (page < 0) return;
	Plan dense = {};
	Vectors x = vectors_of(a.g, a.q, 0, first, head, a.heads, 1);
	KeyTile t = key_tile(shared, lists, dim);
	double* diagonals = (double*)(shared + (PAGE * (dim + 1) + VECTORS * dim + 1) / 2 * 2);
	for (int i = threadIdx.x; i < page_diagonals; i += blockDim.x) diagonals[i] = 0;
	load_keys(t, a.g, page, x.kv_head, min_of(PAGE, first + rows - b * PAGE));
	double column = 0;  // of the thread's key
	for (int from = 0; from < rows; from += VECTORS) {
		load_vectors(t, x, a.g, dense, from);
		float s[EACH];
		score_tile(s, t, x, a.g, dense, b);
		for (int u = 0; u < EACH; u++) {
			int v = (int)threadIdx.x / PAGE * EACH + u;
			float w = 0;
			if (s[u] > EMPTY_MAX) {
				SoftmaxState state = a.states[(i64)local_head * rows + from + v];
				w = exp2f(s[u] - state.max) * normalizer(state.sum, false);
				if (w < TINY_SHARE && state.sum > 0) w = s[u] - state.max - log2f(state.sum);
			}
			shares[v * PAGE + threadIdx.x % PAGE] = w;
		}
		__syncthreads();
		for (int v = 0; v < VECTORS && threadIdx.x < PAGE; v++) column += share_of(shares[v * PAGE + threadIdx.x]);
		// Row v and key k of the tile meet on diagonal v - k + PAGE - 1, counted from the smallest
		// distance between the tile's rows and the page's keys.
		for (int i = threadIdx.x; i < VECTORS + PAGE - 1 && from + i < page_diagonals; i += blockDim.x) {
			double sum = 0;
			for (int v = max_of(0, i - (PAGE - 1)); v < VECTORS && v <= i; v++) sum += share_of(shares[v * PAGE + v - i + PAGE - 1]);
			diagonals[from + i] += sum;
		}
	}
	__syncthreads();
	int j = b * PAGE + threadIdx.x;
	if (threadIdx.x < PAGE && j < first + rows) a.columns[head * a.width + j] = j < a.forced_columns ? infinity() : hold_share(column);
	double* out = a.parts + ((i64)local_head * a.g.width + b) * page_diagonals;
	for (int i = threadIdx.x; i < page_diagonals; i += blockDim.x) out[i] = diagonals[i];
}

// slash_sums (score) adds up each diagonal over the pages, in their order; forced ones are
// +Inf. Grid: (z, head), one thread per diagonal.
KERNEL(slash_sums, VerticalSlashArgs, 256) {
	int local_head = blockIdx.y, head = (int)a.first_head + local_head, first = first_position(a.g, 0), rows = (int)a.g.rows, page_diagonals = rows + PAGE - 1;
	if (first < 0 || first + rows > a.width) return;
	const double* parts = a.parts + (i64)local_head * a.g.width * page_diagonals;
	for (int o = blockIdx.x * blockDim.x + threadIdx.x; o < first + rows; o += gridDim.x * blockDim.x) {
		// Diagonal o is number o - (first - b·PAGE) + PAGE - 1 of page b.
		int lo = max_of(0, (first - o - PAGE + 1 + PAGE - 1) / PAGE);
		double sum = 0;
		for (int b = lo; b * PAGE < first + rows; b++) {
			int i = o - (first - b * PAGE) + PAGE - 1;
			if (i >= page_diagonals) break;
			if (i >= 0) sum += parts[(i64)b * page_diagonals + i];
		}
		a.diagonals[head * a.width + o] = o < a.forced_diagonals ? infinity() : hold_share(sum);
	}
}

struct ListVerticalSlashArgs {
	i32 *index, *count;                           // [groups, heads, cap], [groups, heads]
	u64* marks;                                   // [items, words]: bitmaps
	i64 groups, heads, cap, group, first, words;  // first: the item of block 0
	List columns, diagonals;
	PagedKV g;
};

// set_range sets bits lo to hi-1 of a bitmap.
__device__ inline void set_range(u64* bitmap, int lo, int hi) {
	for (int b = lo / PAGE; b * PAGE < hi; b++) {
		u64 bits = ~0ull;
		if (lo > b * PAGE) bits &= ~0ull << lo % PAGE;
		if (hi < (b + 1) * PAGE) bits &= ~0ull >> (PAGE - hi % PAGE);
		bitmap[b] |= bits;
	}
}

// expand_lines (select) lists the positions that a group of rows reads: the columns, and tiles of
// `group` positions that cover the diagonals, as in MInference's index construction. Diagonal o
// of the group from position a needs group positions from max(a - o, 0) on; ranges that touch are
// merged, and one that reaches beyond its predecessor adds a whole tile. Grid: one block for each
// item, head i%heads of group i/heads. One thread lays the tiles, because each depends on those
// before; they are few. Bound by latency.
KERNEL(expand_lines, ListVerticalSlashArgs, 128) {
	i64 item = a.first + blockIdx.x;
	int first = first_position(a.g, 0), n = (int)a.group, rows = (int)a.g.rows, head = (int)(item % a.heads);
	if (first < 0) return;
	int start = (first / n + (int)(item / a.heads)) * n, end = min_of(start + n, first + rows);
	if (start >= end) return;
	if (item / a.heads >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_GROUP, item / a.heads, a.groups, 0);
		return;
	}
	u64* bitmap = a.marks + blockIdx.x * a.words;
	int words = (end + PAGE - 1) / PAGE;
	for (int i = threadIdx.x; i < words; i += blockDim.x) bitmap[i] = 0;
	__syncthreads();
	RowPosition at = {0, 0, 0};
	Entries columns = entries(a.columns, a.g, at, head, (int)a.heads), diagonals = entries(a.diagonals, a.g, at, head, (int)a.heads);
	if (threadIdx.x == 0) {
		int lo = 0, hi = 0;  // the merged tiles that are not set yet
		for (int i = diagonals.n - 1; i >= 0; i--) {
			int o = diagonals.index[i], from = max_of(start - o, 0);
			if (o < 0 || o >= start + n) continue;
			if (hi == 0 || from > hi) {
				set_range(bitmap, lo, min_of(hi, end));
				lo = from;
				hi = from + n;
			} else if (from + n > hi) {
				hi += n;
			}
		}
		set_range(bitmap, lo, min_of(hi, end));
	}
	__syncthreads();
	for (int i = threadIdx.x; i < columns.n; i += blockDim.x) {
		int j = columns.index[i];
		if (j >= 0 && j < end) atomicOr((unsigned long long*)&bitmap[j / PAGE], 1ull << j % PAGE);
	}
	__syncthreads();
	bitmap_to_list(bitmap, words, a.index + item * a.cap, a.count[item], a.cap, a.g.failure);
}

struct MeanKeysArgs {
	float* dst;  // [blocks, kvheads, dim]
	i64 blocks, block;
	PagedKV g;
};

// mean_keys (summarize): the mean key of each block of positions, added up in their order. Grid:
// (block, kv head), one thread per channel. Bound by reading the keys once.
KERNEL(mean_keys, MeanKeysArgs, 128) {
	int last = newest_position(a.g, 0), dim = (int)a.g.dim, from = blockIdx.x * (int)a.block, to = min_of(from + (int)a.block, last + 1);
	if (last < 0 || !row_fits(a.g, last + 1, a.blocks * a.block)) return;
	for (int d = threadIdx.x; d < dim && from < to; d += blockDim.x) {
		float sum = 0;
		for (int j = from; j < to; j++) sum += load_kv(a.g.k, a.g.half, key_offset(a.g, 0, blockIdx.y, j) + d);
		a.dst[((i64)blockIdx.x * a.g.heads + blockIdx.y) * dim + d] = sum / (float)(to - from);
	}
}

// pooled_softmax computes x = softmax(q·k̄/√dim) over the mean keys k̄ of the first n blocks, in
// f64. All threads call it.
__device__ inline void pooled_softmax(double* x, int n, const float* q, const float* keys, const PagedKV& g, int kv_head) {
	int dim = (int)g.dim;
	for (int j = warp(); j < n; j += blockDim.x / WARP) {
		const float* k = keys + ((i64)j * g.heads + kv_head) * dim;
		double sum = 0;
		for (int d = lane(); d < dim; d += WARP) sum += (double)q[d] * (double)k[d];
		sum = reduce_warp(sum, Plus()) / sqrt((double)dim);
		if (lane() == 0) x[j] = sum;
	}
	__syncthreads();
	double none = -(double)infinity(), top = none, sum = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) top = max_of(top, x[j]);
	top = reduce_block(top, none, Max());
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		x[j] = x[j] > none ? exp(x[j] - top) : 0;
		sum += x[j];
	}
	sum = reduce_block(sum, 0.0, Plus());
	for (int j = threadIdx.x; j < n && sum > 0; j += blockDim.x) x[j] /= sum;
	__syncthreads();
}

// pool_blocks sums n columns or diagonals in blocks of `block`. All threads call it.
__device__ inline void pool_blocks(double* y, const float* x, int n, int block) {
	for (int i = threadIdx.x; i * block < n; i += blockDim.x) {
		double sum = 0;
		for (int j = i * block; j < min_of((i + 1) * block, n); j++) sum += share_of(x[j]);
		y[i] = sum;
	}
	__syncthreads();
}

struct PooledAgreementArgs {
	i32* agrees;           // [heads]: 1 where pooled attention agrees with the columns
	const float* columns;  // [heads, width]
	const float* q;        // [heads, dim]: the mean query of the newest rows
	const float* keys;     // [blocks, kvheads, dim]: mean keys
	double* work;          // [items, 2, words]
	i64 heads, width, block, blocks, first, words;
	f64 max_divergence;
	PagedKV g;
};

// agree (score): FlexPrefill's query-aware test. √JS(softmax(q̄·k̄/√dim), column sums of blocks,
// normalized) < max_divergence, with JS the Jensen-Shannon divergence in nats and 0·ln 0 = 0.
// Grid: one block for each head, first + i.
KERNEL(pooled_agreement, PooledAgreementArgs, 256) {
	int n = newest_position(a.g, 0) + 1, head = (int)a.first + blockIdx.x, dim = (int)a.g.dim;
	if (n == 0 || !row_fits(a.g, n, min_of(a.width, a.blocks * a.block))) return;
	int blocks = (n + (int)a.block - 1) / (int)a.block;
	double *pooled = a.work + blockIdx.x * 2 * a.words, *sums = pooled + a.words;
	pooled_softmax(pooled, blocks, a.q + (i64)head * dim, a.keys, a.g, head * (int)a.g.heads / (int)a.heads);
	pool_blocks(sums, a.columns + head * a.width, n, (int)a.block);
	double total = 0, divergence = 0;
	for (int i = threadIdx.x; i < blocks; i += blockDim.x) total += sums[i];
	total = reduce_block(total, 0.0, Plus());
	for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
		double p = pooled[i], q = sums[i] / total, m = (p + q) / 2;
		if (p > 0) divergence += p * log(p / m) / 2;
		if (q > 0) divergence += q * log(q / m) / 2;
	}
	divergence = reduce_block(divergence, 0.0, Plus());
	if (threadIdx.x == 0) a.agrees[head] = sqrt(divergence < 0 ? 0 : divergence) < a.max_divergence;
}

struct CumulativeBudgetArgs {
	i32 *index, *count;  // [1, heads, cap], [1, heads]
	const float* x;      // [heads, width]: columns or diagonals
	const i32* agrees;   // [heads]
	double* work;        // [items, words]: sums of blocks
	i64 width, cap, block, first, words;
	f64 share;
	i64 min_blocks, max_blocks;
	PagedKV g;
};

constexpr double SLACK = 1 + 1e-9;  // device.Slack: what rounding may add to a sum of softmax rows

// cumulative_budget is 1 + how many columns (or diagonals), the largest first, sum to at most the
// share of all, ties to the lowest. Weights are integers in units of 2⁻⁴⁴ of the largest, so that
// their sums do not depend on an order.
__device__ inline i64 cumulative_budget(const float* x, int n, double share) {
	float top = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) top = max_of(top, x[i]);
	top = reduce_block(top, 0.0f, Max());
	if (!(share >= 0)) return 1;
	if (top == 0) return n + 1;
	if (top == infinity()) return share > 0 ? n + 1 : 1;
	auto weigh = [&](i64 i, u32& key) {
		key = radix_key(x[i]);
		return (u64)((double)max_of(x[i], 0.0f) / (double)top * 0x1p44);
	};
	u64 total = 0, before = 0;
	u32 key;
	for (int i = threadIdx.x; i < n; i += blockDim.x) total += weigh(i, key);
	total = reduce_block(total, (u64)0, Plus());
	double want = share * SLACK * (double)total;
	if (want >= (double)total) return n + 1;
	Threshold<u32> cut = radix_select<u32>(n, (u64)want + 1, weigh);
	for (int i = threadIdx.x; i < n; i += blockDim.x) before += radix_key(x[i]) > cut.key;
	return (i64)(reduce_block(before, (u64)0, Plus()) + cut.ties);
}

// top_lines (select) lists the blocks of columns or diagonals with the largest sums, block 0
// always: cumulative_budget / block + 1 of them within [min_blocks, max_blocks], or the minimum
// for heads whose pooled attention agrees. Grid: one block for each head, first + i; radix select
// and a stable compaction.
KERNEL(top_lines, CumulativeBudgetArgs, 256) {
	int n = first_position(a.g, 0) + 1, head = (int)a.first + blockIdx.x;
	if (n <= 0 || !row_fits(a.g, n, min_of(a.width, a.cap * a.block))) return;
	const float* x = a.x + head * a.width;
	i64 budget = a.agrees[head] ? 0 : cumulative_budget(x, n, a.share), blocks = (n + a.block - 1) / a.block;
	i64 keep = min_of(max_of(budget / a.block + 1, a.min_blocks), a.max_blocks > 0 ? min_of(blocks, a.max_blocks) : blocks);
	double* sums = a.work + blockIdx.x * a.words;
	pool_blocks(sums, x, n, (int)a.block);
	auto other = [&](i64 i, u64& key) {
		key = radix_key64(sums[i]);
		return i > 0;
	};
	Threshold<u64> cut = {~0ull, 0};  // selects nothing
	if (keep > 1) cut = radix_select<u64>(blocks, (u64)(keep - 1), [&](i64 i, u64& key) { return (u64)other(i, key); });
	Selector<u64> start = make_selector(cut, blocks, other), in = start;
	ThreadRange r = thread_range(blocks);
	u64 mine = 0, total, key;
	for (i64 i = r.lo; i < r.hi; i++) mine += i == 0 || (other(i, key) && in.takes(key));
	u64 to = scan_block(mine, total);
	in = start;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (i == 0 || (other(i, key) && in.takes(key))) a.index[head * a.cap + to++] = (i32)i;
	}
	if (threadIdx.x == 0) a.count[head] = (i32)total;
}

struct BlockMapArgs {
	i32 *index, *count;                                                       // [groups, heads, cap], [groups, heads]
	const float* queries;                                                     // [query_blocks, heads, dim]: mean queries
	const float* keys;                                                        // [blocks, kvheads, dim]: mean keys
	const i32* agrees;                                                        // [heads]
	double* pooled_map;                                                       // [items, rows, words]: pooled attention, then 2 for what is selected
	i64 groups, heads, cap, query_blocks, blocks, block, first, words, rows;  // first: the head of item 0
	f64 share;
	List columns, diagonals;
	PagedKV g;
};

// RowBlocks is the blocks that a call's rows lie in: how many, the first, and the slot's length.
struct RowBlocks {
	int rows, first, len;
};

__device__ inline bool row_blocks(const BlockMapArgs& a, RowBlocks& c) {
	int first = first_position(a.g, 0), block = (int)a.block;
	if (first < 0) return false;
	c.len = first + (int)a.g.rows;
	c.first = first / block;
	c.rows = (c.len - 1) / block - c.first + 1;
	i64 room = min_of(min_of(a.groups, a.query_blocks), a.blocks - c.first);
	if (c.rows <= room && (c.len + PAGE - 1) / PAGE <= a.cap) return true;
	if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, c.rows - 1, room, 0);
	return false;
}

// pooled_softmax (score): row r of the pooled attention map softmax(q̄_r·k̄_j/√dim), j ≤ r, for heads
// that agree. Grid: (row block, head).
KERNEL(pooled_softmax, BlockMapArgs, 256) {
	RowBlocks c;
	int r = blockIdx.x, head = (int)a.first + blockIdx.y, dim = (int)a.g.dim;
	if (!row_blocks(a, c) || r >= c.rows || !a.agrees[head]) return;
	double* x = a.pooled_map + ((i64)blockIdx.y * a.rows + r) * a.words;
	pooled_softmax(x, c.first + r + 1, a.queries + ((i64)r * a.heads + head) * dim, a.keys, a.g, head * (int)a.g.heads / (int)a.heads);
}

// pooled_top (select): the blocks with the largest pooled attention over the flattened map of a
// head, as long as they sum to at most share · row blocks, in units of 2⁻⁵⁰; ties to the lowest
// row, then to the lowest block. Grid: one block for each head, because rows share the budget.
// Bound by the passes of a radix select over rows·words f64 in L2.
KERNEL(pooled_top, BlockMapArgs, 1024) {
	RowBlocks c;
	int head = (int)a.first + blockIdx.x;
	if (!row_blocks(a, c) || !a.agrees[head]) return;
	double* x = a.pooled_map + (i64)blockIdx.x * a.rows * a.words;
	i64 n = (i64)c.rows * a.words;
	auto is = [&](i64 i, u64& key) {
		if (i % a.words > c.first + i / a.words) return false;
		key = radix_key64(x[i]);
		return true;
	};
	auto weigh = [&](i64 i, u64& key) { return is(i, key) ? (u64)(x[i] * 0x1p50) : (u64)0; };
	double want = a.share * c.rows * SLACK * 0x1p50;
	Threshold<u64> cut = {~0ull, 0};  // selects nothing
	if (want >= 0) {
		cut = radix_select<u64>(n, (u64)min_of(want, 0x1p62) + 1, weigh);
		if (cut.key > 0) cut.ties--;  // the one that exceeds the budget
	}
	Selector<u64> in = make_selector(cut, n, is);
	ThreadRange r = thread_range(n);
	u64 key;
	for (i64 i = r.lo; i < r.hi; i++) x[i] = is(i, key) && in.takes(key) ? 2 : 0;
}

// expand_blocks (select) lists the pages of what a block of rows reads: its own block, the selected
// columns, the selected diagonals, and what pooled_top selected. Grid: (row block, head).
KERNEL(expand_blocks, BlockMapArgs, 128) {
	RowBlocks c;
	int r = blockIdx.x, head = (int)a.first + blockIdx.y;
	if (!row_blocks(a, c) || r >= c.rows) return;
	RowPosition at = {0, 0, 0};
	Entries columns = entries(a.columns, a.g, at, head, (int)a.heads), diagonals = entries(a.diagonals, a.g, at, head, (int)a.heads);
	const double* pooled_map = a.pooled_map + ((i64)blockIdx.y * a.rows + r) * a.words;
	int own = c.first + r, each = (int)a.block / PAGE, last = (min_of((own + 1) * (int)a.block, c.len) + PAGE - 1) / PAGE;
	auto reads = [&](i64 j) { return j == own || find(columns, (int)j) >= 0 || find(diagonals, own - (int)j) >= 0 || (a.agrees[head] && pooled_map[j] == 2); };
	ThreadRange run = thread_range(own + 1);
	u64 mine = 0, total;
	for (i64 j = run.lo; j < run.hi; j++) {
		if (reads(j)) mine += min_of((int)(j + 1) * each, last) - j * each;
	}
	u64 to = scan_block(mine, total);
	i64 list = (i64)r * a.heads + head;
	for (i64 j = run.lo; j < run.hi; j++) {
		if (!reads(j)) continue;
		for (int page = (int)j * each; page < min_of((int)(j + 1) * each, last); page++) a.index[list * a.cap + to++] = page;
	}
	if (threadIdx.x == 0) a.count[list] = (i32)total;
}
