// Lines of attention: columns, diagonals, blocks of them, and the blocks that
// means choose. Definitions: package cpu, line.go and cover.go; package device,
// line.go, says what a line is. Calls have one slot.
#include "rank.cuh"
#include "shares.cuh"

struct LineSumsArgs {
	float *columns, *diagonals;  // [heads, width]
	const float* q;              // [rows, heads, dim]
	const SoftmaxState* states;         // [sets, rows]
	double* parts;               // [sets, pages, rows + PAGE - 1]
	i64 heads, width, set;       // set: the head of block y 0
	i64 first_columns, first_diagonals;
	PagedKV g;
};

// fits reports whether rows of width numbers have one for each position.
__device__ inline bool fits(const PagedKV& g, int n, i64 width) {
	if (n <= width) return true;
	if (threadIdx.x == 0) fail(g.failure, FAIL_SCORES, n - 1, width, 0);
	return false;
}

// line_sums: block (b, h) adds up the columns of page b for a head, and what the
// page has of each diagonal.
KERNEL(line_sums, LineSumsArgs, 256) {
	DYNAMIC_SHARED(float, shared);  // the tile, then [rows + PAGE - 1] doubles: diagonals
	SHARED(Entries, lists, VECTORS);
	SHARED(float, shares, VECTORS* PAGE);
	int b = blockIdx.x, set = blockIdx.y, head = (int)a.set + set, first = first_position(a.g, 0), rows = (int)a.g.rows, dim = (int)a.g.dim;
	if (first < 0 || b * PAGE >= first + rows || !fits(a.g, first + rows, a.width)) return;
	int page = page_of(a.g, 0, b), wide = rows + PAGE - 1;
	if (page < 0) return;
	Plan dense = {};
	Vectors x = vectors_of(a.g, a.q, 0, first, head, a.heads, 1);
	KeyTile t = key_tile(shared, lists, dim);
	double* diagonals = (double*)(shared + (PAGE * (dim + 1) + VECTORS * dim + 1) / 2 * 2);
	for (int i = threadIdx.x; i < wide; i += blockDim.x) diagonals[i] = 0;
	load_keys(t, a.g, page, x.kv_head, min_of(PAGE, first + rows - b * PAGE));
	double column = 0;  // of the thread's key, if it has one
	for (int from = 0; from < rows; from += VECTORS) {
		load_vectors(t, x, a.g, dense, from);
		float s[EACH];
		score_tile(s, t, x, a.g, dense, b);
		for (int u = 0; u < EACH; u++) {
			int v = (int)threadIdx.x / PAGE * EACH + u;
			float w = 0;
			if (s[u] > EMPTY_MAX) {
				SoftmaxState state = a.states[(i64)set * rows + from + v];
				w = exp2f(s[u] - state.max) * normalizer(state.sum, false);
				if (w < TINY_SHARE && state.sum > 0) w = s[u] - state.max - log2f(state.sum);
			}
			shares[v * PAGE + threadIdx.x % PAGE] = w;
		}
		__syncthreads();
		for (int v = 0; v < VECTORS && threadIdx.x < PAGE; v++) column += share_of(shares[v * PAGE + threadIdx.x]);
		// Diagonal i of the page lies i - (PAGE-1) positions behind its first row's
		// distance: key k and vector v meet at v - k + PAGE - 1.
		for (int i = threadIdx.x; i < VECTORS + PAGE - 1 && from + i < wide; i += blockDim.x) {
			double sum = 0;
			for (int v = max_of(0, i - (PAGE - 1)); v < VECTORS && v <= i; v++) sum += share_of(shares[v * PAGE + v - i + PAGE - 1]);
			diagonals[from + i] += sum;
		}
	}
	__syncthreads();
	int j = b * PAGE + threadIdx.x;
	if (threadIdx.x < PAGE && j < first + rows) a.columns[head * a.width + j] = j < a.first_columns ? infinity() : hold_share(column);
	double* out = a.parts + ((i64)set * a.g.width + b) * wide;
	for (int i = threadIdx.x; i < wide; i += blockDim.x) out[i] = diagonals[i];
}

// line_diagonals: block (z, h) adds up diagonals of a head over the pages.
KERNEL(line_diagonals, LineSumsArgs, 256) {
	int set = blockIdx.y, head = (int)a.set + set, first = first_position(a.g, 0), rows = (int)a.g.rows, wide = rows + PAGE - 1;
	if (first < 0 || first + rows > a.width) return;
	const double* parts = a.parts + (i64)set * a.g.width * wide;
	for (int o = blockIdx.x * blockDim.x + threadIdx.x; o < first + rows; o += gridDim.x * blockDim.x) {
		// In page b it is number o - (first - b·PAGE) + PAGE - 1.
		int lo = max_of(0, (first - o - PAGE + 1 + PAGE - 1) / PAGE);
		double sum = 0;
		for (int b = lo; b * PAGE < first + rows; b++) {
			int i = o - (first - b * PAGE) + PAGE - 1;
			if (i >= wide) break;
			if (i >= 0) sum += parts[(i64)b * wide + i];
		}
		a.diagonals[head * a.width + o] = o < a.first_diagonals ? infinity() : hold_share(sum);
	}
}

struct ListLinesArgs {
	i32 *index, *count;  // [groups, heads, cap], [groups, heads]
	u64* marks;          // [items, words]
	i64 groups, heads, cap, group, first, words;  // first: number of item 0
	List columns, diagonals;
	PagedKV g;
};

// mark_run adds positions lo to hi-1 to a set.
__device__ inline void mark_run(u64* set, int lo, int hi) {
	for (int b = lo / PAGE; b * PAGE < hi; b++) {
		u64 bits = ~0ull;
		if (lo > b * PAGE) bits &= ~0ull << lo % PAGE;
		if (hi < (b + 1) * PAGE) bits &= ~0ull >> (PAGE - hi % PAGE);
		set[b] |= bits;
	}
}

// list_lines: block i makes the list of head i%heads of group i/heads. One thread
// lays the tiles, each of which depends on those before.
KERNEL(list_lines, ListLinesArgs, 128) {
	i64 item = a.first + blockIdx.x;
	int first = first_position(a.g, 0), n = (int)a.group, rows = (int)a.g.rows, head = (int)(item % a.heads);
	if (first < 0) return;
	int start = (first / n + (int)(item / a.heads)) * n, end = min_of(start + n, first + rows);
	if (start >= end) return;
	if (item / a.heads >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_GROUP, item / a.heads, a.groups, 0);
		return;
	}
	u64* set = a.marks + blockIdx.x * a.words;
	int words = (end + PAGE - 1) / PAGE;
	for (int i = threadIdx.x; i < words; i += blockDim.x) set[i] = 0;
	__syncthreads();
	RowPosition at = {0, 0, 0};
	Entries columns = entries(a.columns, a.g, at, head, (int)a.heads), diagonals = entries(a.diagonals, a.g, at, head, (int)a.heads);
	if (threadIdx.x == 0) {
		int lo = 0, hi = 0;  // of the tiles that are not added yet
		for (int i = diagonals.n - 1; i >= 0; i--) {
			int o = diagonals.index[i], from = max_of(start - o, 0);
			if (o < 0 || o >= start + n) continue;
			if (hi == 0 || from > hi) {
				mark_run(set, lo, min_of(hi, end));
				lo = from;
				hi = from + n;
			} else if (from + n > hi) {
				hi += n;
			}
		}
		mark_run(set, lo, min_of(hi, end));
	}
	__syncthreads();
	for (int i = threadIdx.x; i < columns.n; i += blockDim.x) {
		int j = columns.index[i];
		if (j >= 0 && j < end) atomicOr((unsigned long long*)&set[j / PAGE], 1ull << j % PAGE);
	}
	__syncthreads();
	list_marked(set, words, a.index + item * a.cap, a.count[item], a.cap, a.g.failure);
}

struct MeanKeysArgs {
	float* dst;  // [blocks, kvheads, dim]
	i64 blocks, block;
	PagedKV g;
};

// mean_keys: block (i, h) averages the keys of block i of kv head h, in their order.
KERNEL(mean_keys, MeanKeysArgs, 128) {
	int last = newest_position(a.g, 0), dim = (int)a.g.dim, from = blockIdx.x * (int)a.block, to = min_of(from + (int)a.block, last + 1);
	if (last < 0 || !fits(a.g, last + 1, a.blocks * a.block)) return;
	for (int d = threadIdx.x; d < dim && from < to; d += blockDim.x) {
		float sum = 0;
		for (int j = from; j < to; j++) sum += load_kv(a.g.k, a.g.half, key_offset(a.g, 0, blockIdx.y, j) + d);
		a.dst[((i64)blockIdx.x * a.g.heads + blockIdx.y) * dim + d] = sum / (float)(to - from);
	}
}

// mean_softmax sets x to softmax(q·k/√dim) for the first n blocks of mean keys.
// All threads of the block call it.
__device__ inline void mean_softmax(double* x, int n, const float* q, const float* keys, const PagedKV& g, int kv_head) {
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

// pool_lines sums n lines in blocks.
__device__ inline void pool_lines(double* y, const float* x, int n, int block) {
	for (int i = threadIdx.x; i * block < n; i += blockDim.x) {
		double sum = 0;
		for (int j = i * block; j < min_of((i + 1) * block, n); j++) sum += share_of(x[j]);
		y[i] = sum;
	}
	__syncthreads();
}

struct AgreeArgs {
	i32* agree;            // [heads]
	const float* columns;  // [heads, width]
	const float* q;        // [heads, dim]
	const float* keys;     // [blocks, kvheads, dim]
	double* work;          // [items, 2, words]
	i64 heads, width, block, blocks, first, words;
	f64 near;
	PagedKV g;
};

// agree: block i compares what means and columns of head first + i say.
KERNEL(agree, AgreeArgs, 256) {
	int n = newest_position(a.g, 0) + 1, head = (int)a.first + blockIdx.x, dim = (int)a.g.dim;
	if (n == 0 || !fits(a.g, n, min_of(a.width, a.blocks * a.block))) return;
	int blocks = (n + (int)a.block - 1) / (int)a.block;
	double *means = a.work + blockIdx.x * 2 * a.words, *sums = means + a.words;
	mean_softmax(means, blocks, a.q + (i64)head * dim, a.keys, a.g, head * (int)a.g.heads / (int)a.heads);
	pool_lines(sums, a.columns + head * a.width, n, (int)a.block);
	double total = 0, far = 0;
	for (int i = threadIdx.x; i < blocks; i += blockDim.x) total += sums[i];
	total = reduce_block(total, 0.0, Plus());
	for (int i = threadIdx.x; i < blocks; i += blockDim.x) {
		double p = means[i], q = sums[i] / total, m = (p + q) / 2;
		if (p > 0) far += p * log(p / m) / 2;
		if (q > 0) far += q * log(q / m) / 2;
	}
	far = reduce_block(far, 0.0, Plus());
	if (threadIdx.x == 0) a.agree[head] = sqrt(far < 0 ? 0 : far) < a.near;
}

struct TopLinesArgs {
	i32 *index, *count;  // [1, heads, cap], [1, heads]
	const float* x;      // [heads, width]
	const i32* agree;    // [heads]
	double* work;        // [items, words]: sums of blocks
	i64 width, cap, block, first, words;
	f64 share;
	i64 least, most;
	PagedKV g;
};

constexpr double SLACK = 1 + 1e-9;  // device.Slack

// enough_lines is how many single lines, the best first, a share needs: one more
// than sum to at most the share of all. Sums are in units of 2⁻⁴⁴ of the largest.
__device__ inline i64 enough_lines(const float* x, int n, double share) {
	float top = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) top = max_of(top, x[i]);
	top = reduce_block(top, 0.0f, Max());
	if (!(share >= 0)) return 1;
	if (top == 0) return n + 1;
	if (top == infinity()) return share > 0 ? n + 1 : 1;
	auto weigh = [&](i64 i, u32& key) {
		key = key_of(x[i]);
		return (u64)((double)max_of(x[i], 0.0f) / (double)top * 0x1p44);
	};
	u64 total = 0, before = 0;
	u32 key;
	for (int i = threadIdx.x; i < n; i += blockDim.x) total += weigh(i, key);
	total = reduce_block(total, (u64)0, Plus());
	double want = share * SLACK * (double)total;
	if (want >= (double)total) return n + 1;
	Cut<u32> cut = select<u32>(n, (u64)want + 1, weigh);
	for (int i = threadIdx.x; i < n; i += blockDim.x) before += key_of(x[i]) > cut.key;
	return (i64)(reduce_block(before, (u64)0, Plus()) + cut.ties);
}

// top_lines: block i lists blocks of lines of head first + i.
KERNEL(top_lines, TopLinesArgs, 256) {
	int n = first_position(a.g, 0) + 1, head = (int)a.first + blockIdx.x;
	if (n <= 0 || !fits(a.g, n, min_of(a.width, a.cap * a.block))) return;
	const float* x = a.x + head * a.width;
	i64 lines = a.agree[head] ? 0 : enough_lines(x, n, a.share), blocks = (n + a.block - 1) / a.block;
	i64 keep = min_of(max_of(lines / a.block + 1, a.least), a.most > 0 ? min_of(blocks, a.most) : blocks);
	double* sums = a.work + blockIdx.x * a.words;
	pool_lines(sums, x, n, (int)a.block);
	auto other = [&](i64 i, u64& key) {
		key = wide_key_of(sums[i]);
		return i > 0;
	};
	Cut<u64> cut = {~0ull, 0};  // nothing
	if (keep > 1) cut = select<u64>(blocks, (u64)(keep - 1), [&](i64 i, u64& key) { return (u64)other(i, key); });
	Picker<u64> start = picker(cut, blocks, other), in = start;
	Run r = run_of(blocks);
	u64 mine = 0, total, key;
	for (i64 i = r.lo; i < r.hi; i++) mine += i == 0 || (other(i, key) && in.takes(key));
	u64 to = scan_block(mine, total);
	in = start;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (i == 0 || (other(i, key) && in.takes(key))) a.index[head * a.cap + to++] = (i32)i;
	}
	if (threadIdx.x == 0) a.count[head] = (i32)total;
}

struct ListBlocksArgs {
	i32 *index, *count;  // [groups, heads, cap], [groups, heads]
	const float* queries;  // [lines, heads, dim]
	const float* keys;     // [blocks, kvheads, dim]
	const i32* agree;      // [heads]
	double* pairs;         // [items, rows, words]: shares, then 2 for what is chosen
	i64 groups, heads, cap, lines, blocks, block, first, words, rows;  // first: the head of item 0
	f64 share;
	List columns, diagonals;
	PagedKV g;
};

// Cover is the blocks of rows of a call, and the first of them.
struct Cover {
	int rows, first, len;
};

__device__ inline bool cover_of(const ListBlocksArgs& a, Cover& c) {
	int first = first_position(a.g, 0), block = (int)a.block;
	if (first < 0) return false;
	c.len = first + (int)a.g.rows;
	c.first = first / block;
	c.rows = (c.len - 1) / block - c.first + 1;
	i64 room = min_of(min_of(a.groups, a.lines), a.blocks - c.first);
	if (c.rows <= room && (c.len + PAGE - 1) / PAGE <= a.cap) return true;
	if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, c.rows - 1, room, 0);
	return false;
}

// pair_shares: block (r, i) finds what means say that block of rows r reads, for
// head first + i.
KERNEL(pair_shares, ListBlocksArgs, 256) {
	Cover c;
	int r = blockIdx.x, head = (int)a.first + blockIdx.y, dim = (int)a.g.dim;
	if (!cover_of(a, c) || r >= c.rows || !a.agree[head]) return;
	double* x = a.pairs + ((i64)blockIdx.y * a.rows + r) * a.words;
	mean_softmax(x, c.first + r + 1, a.queries + ((i64)r * a.heads + head) * dim, a.keys, a.g, head * (int)a.g.heads / (int)a.heads);
}

// pair_cover: block i chooses pairs of head first + i, the best first, as long as
// they sum to at most the share of all, in units of 2⁻⁵⁰.
KERNEL(pair_cover, ListBlocksArgs, 1024) {
	Cover c;
	int head = (int)a.first + blockIdx.x;
	if (!cover_of(a, c) || !a.agree[head]) return;
	double* x = a.pairs + (i64)blockIdx.x * a.rows * a.words;
	i64 n = (i64)c.rows * a.words;
	auto is = [&](i64 i, u64& key) {
		if (i % a.words > c.first + i / a.words) return false;
		key = wide_key_of(x[i]);
		return true;
	};
	auto weigh = [&](i64 i, u64& key) { return is(i, key) ? (u64)(x[i] * 0x1p50) : (u64)0; };
	double want = a.share * c.rows * SLACK * 0x1p50;
	Cut<u64> cut = {~0ull, 0};  // nothing
	if (want >= 0) {
		cut = select<u64>(n, (u64)min_of(want, 0x1p62) + 1, weigh);
		if (cut.key > 0) cut.ties--;  // the one that reaches beyond
	}
	Picker<u64> in = picker(cut, n, is);
	Run r = run_of(n);
	u64 key;
	for (i64 i = r.lo; i < r.hi; i++) x[i] = is(i, key) && in.takes(key) ? 2 : 0;
}

// list_blocks: block (r, i) lists the pages of block of rows r for head first + i.
KERNEL(list_blocks, ListBlocksArgs, 128) {
	Cover c;
	int r = blockIdx.x, head = (int)a.first + blockIdx.y;
	if (!cover_of(a, c) || r >= c.rows) return;
	RowPosition at = {0, 0, 0};
	Entries columns = entries(a.columns, a.g, at, head, (int)a.heads), diagonals = entries(a.diagonals, a.g, at, head, (int)a.heads);
	const double* pairs = a.pairs + ((i64)blockIdx.y * a.rows + r) * a.words;
	int own = c.first + r, each = (int)a.block / PAGE, last = (min_of((own + 1) * (int)a.block, c.len) + PAGE - 1) / PAGE;
	auto reads = [&](i64 j) { return j == own || find(columns, (int)j) >= 0 || find(diagonals, own - (int)j) >= 0 || (a.agree[head] && pairs[j] == 2); };
	Run run = run_of(own + 1);
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
