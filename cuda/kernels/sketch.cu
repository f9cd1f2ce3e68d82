// Blocks of PAGE positions: sums, sketches, products of sketches, walks over them
// and the choice of blocks. Definitions: package cpu, sketch.go and walk.go.
#include "rank.cuh"
#include "state.cuh"

constexpr int MOST_WIDTH = 1024;  // dimensions of what is sketched

// Block is one of the blocks that a call's rows lie in.
struct Block {
	int slot, index;  // whose block, and which of its blocks
	int page;
	int first;  // position of the slot's first row of the call
	int len;    // positions of the slot

	__device__ int positions() const { return smaller(len - index * PAGE, PAGE); }
	__device__ int blocks() const { return (len + PAGE - 1) / PAGE; }
	__device__ int group() const { return slot + index - first / PAGE; }
};

// Which blocks of a slot a call is about: those that its rows lie in; and the
// one before them where they start a block; all.
enum { TOUCHED, COMPLETED, EVERY };

// block_of is block i of those of a slot; false if there is none.
__device__ inline bool block_of(const Pages& g, int slot, int i, int which, Block& b) {
	b.slot = slot;
	b.first = first_of(g, slot);
	if (b.first < 0) return false;
	b.len = b.first + (int)g.rows;
	int start = b.first / PAGE;
	if (which == EVERY)
		start = 0;
	else if (which == COMPLETED && start > 0 && b.first % PAGE == 0)
		start--;
	b.index = start + i;
	if (b.index >= b.blocks()) return false;
	b.page = page_of(g, slot, b.index);
	return b.page >= 0;
}

// page_or is the page of block i of b's slot; a failure gives b's own.
__device__ inline int page_or(const Pages& g, const Block& b, int i) {
	int page = page_of(g, b.slot, i);
	return page < 0 ? b.page : page;
}

struct SumArgs {
	float* sum;      // [pages, heads, dim]
	const float* x;  // [rows, all, dim]
	i64 heads, all, dim;
	Pages g;
};

// head_mean is element d of the mean of the heads of a row that belong to head h.
__device__ inline float head_mean(const float* row, int h, i64 heads, i64 all, i64 dim, i64 d) {
	int n = (int)(all / heads);
	float mean = row[h * n * dim + d];
#pragma unroll 8
	for (int u = 1; u < n; u++) mean += row[(h * n + u) * dim + d];
	return mean / (float)n;
}

constexpr int SUM_DIMS = 32;  // dimensions that a block of block_sum takes

// block_sum adds rows to the sums of their blocks, in order. Block (b, h·z + part,
// slot) takes 32 dimensions of head h of touched block b: its warps make the means of
// the heads of a row each, the first one adds them up.
KERNEL(block_sum, SumArgs, 512) {
	SHARED(float, means, PAGE * SUM_DIMS);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int parts = (int)((a.dim + SUM_DIMS - 1) / SUM_DIMS), h = blockIdx.y / parts, d = blockIdx.y % parts * SUM_DIMS + lane();
	int lo = larger(b.first, b.index * PAGE), hi = smaller(b.len, (b.index + 1) * PAGE);
	for (int p = lo + warp(); p < hi && d < a.dim; p += blockDim.x / WARP) {
		i64 row = b.slot * a.g.rows + p - b.first;
		means[(p - lo) * SUM_DIMS + lane()] = head_mean(a.x + row * a.all * a.dim, h, a.heads, a.all, a.dim, d);
	}
	__syncthreads();
	if (warp() > 0 || d >= a.dim) return;
	float* to = a.sum + ((i64)b.page * a.heads + h) * a.dim + d;
	float sum = lo % PAGE == 0 ? 0 : *to;
	for (int p = lo; p < hi; p++) sum += means[(p - lo) * SUM_DIMS + lane()];
	*to = sum;
}

struct SketchArgs {
	float* dst;          // [pages, heads, width]
	const float* x;      // sums [pages, heads, dim], or rows [rows, all, dim]
	const float* basis;  // [width, dim]
	i64 heads, all, width, dim;  // all 0: sums
	i64 parts;                   // blocks that share a head
	Pages g;
};

// sketch: dst = basis · the mean of a block, or · the newest row of a slot. Block
// (b, h·parts + part, slot) takes every parts-th run of elements of head h; a warp
// takes an element of dst.
KERNEL(sketch, SketchArgs, 256) {
	SHARED(float, mean, MOST_WIDTH);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	if (a.all && b.index != b.blocks() - 1) return;
	int h = blockIdx.y / (int)a.parts, part = blockIdx.y % (int)a.parts, warps = blockDim.x / WARP;
	for (i64 d = threadIdx.x; d < a.dim; d += blockDim.x) {
		if (a.all)
			mean[d] = head_mean(a.x + ((b.slot + 1) * a.g.rows - 1) * a.all * a.dim, h, a.heads, a.all, a.dim, d);
		else
			mean[d] = a.x[((i64)b.page * a.heads + h) * a.dim + d] / (float)b.positions();
	}
	__syncthreads();
	for (i64 w = part * warps + warp(); w < a.width; w += a.parts * warps) {
		double sum = 0;
		for (i64 d = lane(); d < a.dim; d += WARP) sum += (double)a.basis[w * a.dim + d] * (double)mean[d];
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) a.dst[((i64)b.page * a.heads + h) * a.width + w] = (float)sum;
	}
}

// Pairs are the numbers that blocks made of each other: [pages, width], or with
// square [slots, width, width].
struct Pairs {
	float* data;
	i64 width, square;
};

// row_of is what block i of b's slot made of the blocks that it looks at, and how
// many they are.
__device__ inline float* row_of(const Pairs& p, const Pages& g, const Block& b, int i, int& n) {
	n = p.square ? b.blocks() : i + 1;
	return p.data + (p.square ? b.slot * p.width + i : (i64)page_or(g, b, i)) * p.width;
}

enum { FORM_RAW, FORM_RELU, FORM_SOFTMAX };

struct CompareArgs {
	Pairs pairs;
	const float *q, *k, *own;  // [pages, size]
	i64 size, form, log;
	f64 scale;
	Pages g;
};

__device__ inline float stored(const CompareArgs& a, double y) { return (float)(a.log ? log(fabs(y)) : y); }

// compare: the products of block b with the blocks that it looks at. Block (b, z,
// slot) takes every gridDim.y-th of them; a warp takes one at a time.
KERNEL(compare, CompareArgs, 256) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, a.pairs.square ? EVERY : COMPLETED, b)) return;
	int n;
	float* out = row_of(a.pairs, a.g, b, b.index, n);
	for (int j = blockIdx.y * (blockDim.x / WARP) + warp(); j < n; j += gridDim.y * (blockDim.x / WARP)) {
		const float* q = (j == b.index ? a.own : a.q) + b.page * a.size;
		const float* k = a.k + page_or(a.g, b, j) * a.size;
		float sum = 0;
		for (i64 i = lane(); i < a.size; i += WARP) sum += q[i] * k[i];
		sum = reduce_warp(sum, Plus()) * (float)a.scale;
		if (lane() == 0) met(a.g, sum);
		if (sum - sum != 0 || (a.form == FORM_RELU && sum < 0)) sum = 0;
		if (lane() == 0) out[j] = a.form == FORM_SOFTMAX ? sum : stored(a, sum);
	}
}

// compare_shares makes the products of block b their shares of exp(product).
KERNEL(compare_shares, CompareArgs, 256) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, a.pairs.square ? EVERY : COMPLETED, b)) return;
	int n;
	float* x = row_of(a.pairs, a.g, b, b.index, n);
	float top = -infinity();
	for (int j = threadIdx.x; j < n; j += blockDim.x) top = larger(top, x[j]);
	top = reduce_block(top, -infinity(), Top());
	double sum = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) sum += exp((double)(x[j] - top));
	sum = (double)top + log(reduce_block(sum, 0.0, Plus()));
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		double y = (double)x[j] - sum;
		x[j] = (float)(a.log ? y : exp(y));
	}
}

struct WalkArgs {
	void* dst;        // [rows, width] f32 logarithms, or with values f64
	const void* src;  // likewise; NULL starts
	void* work;       // [slots, blocks, width] likewise
	i64 width, rows, values, exponent, slots, blocks;
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

constexpr int WALK_GROUPS = 8;  // warps, which share the m
constexpr int WALK_ROWS = 4;    // touched blocks at once
constexpr int WALK_TERMS = 4;   // terms that are added at once

// add_terms adds some terms to the sums of some rows.
__device__ __forceinline__ void add_terms(LogSum (&to)[WALK_ROWS], const float (&x)[WALK_TERMS], const float (&src)[WALK_TERMS][WALK_ROWS]) {
#pragma unroll
	for (int r = 0; r < WALK_ROWS; r++) {
		float top = -infinity(), sum = 0;
#pragma unroll
		for (int u = 0; u < WALK_TERMS; u++) top = larger(top, src[u][r] + x[u]);
		if (!(top > -infinity())) continue;
#pragma unroll
		for (int u = 0; u < WALK_TERMS; u++) {
			float t = src[u][r] + x[u];
			sum += t > -infinity() ? power2((t - top) * 1.4426950408889634f) : 0;
		}
		to[r].add(top, sum);
	}
}

// walk sums elements of the rows of touched blocks into work: of logarithms
// ln Σ_m exp(src[m] + exponent·pairs[m][j]), of values Σ_m src[m]·pairs[m][j]^exponent.
// Block (b, z, slot) takes 32 elements of four rows; a warp takes every 8th run of 32 m.
KERNEL(walk, WalkArgs, WALK_GROUPS * WARP) {
	SHARED(double, sums, WALK_GROUPS * WARP);
	SHARED(LogSum, logs, WALK_GROUPS * WARP);
	Block b[WALK_ROWS];
	int n = 0, end[WALK_ROWS], j = blockIdx.y * WARP + lane(), most = 0;
	float* own[WALK_ROWS];
	i64 from[WALK_ROWS];
	for (int r = 0; r < WALK_ROWS; r++) end[r] = 0;
	for (int r = 0; r < WALK_ROWS; r++) {
		if (!block_of(a.g, blockIdx.z, blockIdx.x * WALK_ROWS + r, TOUCHED, b[r])) break;
		own[r] = row_of(a.pairs, a.g, b[r], b[r].index, end[r]);
		from[r] = walk_row(b[r], a.slots, a.rows) * a.width;
		most = end[r];
		n++;
	}
	if (n == 0 || (int)blockIdx.y * WARP >= most) return;
	double sum[WALK_ROWS];
	LogSum log_sum[WALK_ROWS];
	for (int r = 0; r < WALK_ROWS; r++) {
		sum[r] = 0;
		log_sum[r] = {-infinity(), 0};
	}
	int start = a.pairs.square ? 0 : blockIdx.y * WARP;  // blocks before made nothing of these
	for (int base = start + warp() * WARP; base < most && a.src; base += WALK_GROUPS * WARP) {
		// Lane i has where row base + i of the pairs is, and its terms of src.
		int m = base + lane(), width = 0;
		const float* pairs = row_of(a.pairs, a.g, b[0], smaller(m, most - 1), width);
		if (a.values) {
			for (int i = 0; i < WARP && base + i < most; i++) {
				const float* row = (const float*)__shfl_sync(ALL, (u64)pairs, i);
				if (j >= __shfl_sync(ALL, width, i)) continue;
				for (int r = 0; r < n; r++) {
					if (base + i < end[r] && j < end[r]) sum[r] += ((const double*)a.src)[from[r] + base + i] * power(row[j], a.exponent);
				}
			}
			continue;
		}
		float mine[WALK_ROWS];
#pragma unroll
		for (int r = 0; r < WALK_ROWS; r++) mine[r] = m < end[r] ? ((const float*)a.src)[from[r] + m] : -infinity();
		for (int i = 0; i < WARP && base + i < most; i += WALK_TERMS) {
			float x[WALK_TERMS], src[WALK_TERMS][WALK_ROWS];
#pragma unroll
			for (int u = 0; u < WALK_TERMS; u++) {
				const float* row = (const float*)__shfl_sync(ALL, (u64)pairs, i + u);
				bool in = j < __shfl_sync(ALL, width, i + u);
				x[u] = in ? row[j] * (float)a.exponent : -infinity();
#pragma unroll
				for (int r = 0; r < WALK_ROWS; r++) src[u][r] = __shfl_sync(ALL, mine[r], i + u);
			}
			add_terms(log_sum, x, src);
		}
	}
	for (int r = 0; r < n; r++) {
		__syncthreads();
		sums[threadIdx.x] = sum[r];
		logs[threadIdx.x] = log_sum[r];
		__syncthreads();
		if (warp() > 0 || j >= end[r]) continue;
		double all = sum[r];
		LogSum log_all = log_sum[r];
		for (int w = 1; w < WALK_GROUPS; w++) {
			all += sums[w * WARP + lane()];
			log_all.add(logs[w * WARP + lane()].top, logs[w * WARP + lane()].sum);
		}
		i64 to = ((i64)blockIdx.z * a.blocks + blockIdx.x * WALK_ROWS + r) * a.width + j;
		if (a.values)
			((double*)a.work)[to] = a.src ? all : power(own[r][j], a.exponent);
		else
			((float*)a.work)[to] = !a.src ? (float)a.exponent * own[r][j] : log_all.sum > 0 ? log_all.top + logf(log_all.sum) : -infinity();
	}
}

// walk_store divides each row by its largest element but the first. Block (b, 0,
// slot) takes a row.
KERNEL(walk_store, WalkArgs, 256) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int end;
	row_of(a.pairs, a.g, b, b.index, end);
	i64 to = walk_row(b, a.slots, a.rows) * a.width, from = ((i64)blockIdx.z * a.blocks + blockIdx.x) * a.width;
	int skip = smaller(1, end - 1);
	if (a.values) {
		const double* x = (const double*)a.work + from;
		double top = 0;
		for (int j = skip + threadIdx.x; j < end; j += blockDim.x) top = larger(top, fabs(x[j]));
		top = reduce_block(top, 0.0, Top());
		for (int j = threadIdx.x; j < end; j += blockDim.x) ((double*)a.dst)[to + j] = top > 0 ? x[j] / top : x[j];
		return;
	}
	const float* x = (const float*)a.work + from;
	float top = -infinity();
	for (int j = skip + threadIdx.x; j < end; j += blockDim.x) top = larger(top, x[j]);
	top = reduce_block(top, -infinity(), Top());
	for (int j = threadIdx.x; j < end; j += blockDim.x) ((float*)a.dst)[to + j] = top > -infinity() ? x[j] - top : x[j];
}

// Of the newest row of each slot, whose walk is bound by reading the pairs once:
// walk_newest leaves sums over WALK_RUN of the m, walk_join adds them up.

constexpr int WALK_EACH = 16;                       // m of a warp, all on their way at once
constexpr int WALK_RUN = WALK_GROUPS * WALK_EACH;  // of a block

// first_run is the first of the runs that made something of 32 elements from j on.
__device__ inline int first_run(const Pairs& p, int j) { return p.square ? 0 : j / WARP * WARP / WALK_RUN; }

// walk_newest is walk of logarithms. Block (y, run, slot) takes 32 elements and one run
// of the m.
KERNEL(walk_newest, WalkArgs, WALK_GROUPS * WARP) {
	SHARED(LogSum, logs, WALK_GROUPS * WARP);
	Block b;
	if (!block_of(a.g, blockIdx.z, 0, TOUCHED, b)) return;
	int end, j = blockIdx.x * WARP + lane();
	row_of(a.pairs, a.g, b, b.index, end);
	if ((int)blockIdx.x * WARP >= end || (int)blockIdx.y * WALK_RUN >= end || (int)blockIdx.y < first_run(a.pairs, j)) return;
	// Lane i has where row base + i of the pairs is, how long it is, and its term of src.
	int base = blockIdx.y * WALK_RUN + warp() * WALK_EACH, m = base + lane() % WALK_EACH, width = 0;
	const float* pairs = row_of(a.pairs, a.g, b, smaller(m, end - 1), width);
	float mine = m < end ? ((const float*)a.src)[walk_row(b, a.slots, a.rows) * a.width + m] : -infinity(), x[WALK_EACH];
	if (m >= end) width = 0;
#pragma unroll
	for (int i = 0; i < WALK_EACH; i++) {
		const float* row = (const float*)__shfl_sync(ALL, (u64)pairs, i);
		int many = __shfl_sync(ALL, width, i);
		x[i] = j < end && j < many ? row[j] : -infinity();
	}
	float top = -infinity(), sum = 0;
#pragma unroll
	for (int i = 0; i < WALK_EACH; i++) {
		x[i] = x[i] * (float)a.exponent + __shfl_sync(ALL, mine, i);
		top = larger(top, x[i]);
	}
#pragma unroll
	for (int i = 0; i < WALK_EACH; i++) sum += x[i] > -infinity() ? power2((x[i] - top) * 1.4426950408889634f) : 0;
	LogSum all = {top, top > -infinity() ? sum : 0};
	logs[threadIdx.x] = all;
	__syncthreads();
	if (warp() > 0 || j >= end) return;
	for (int w = 1; w < WALK_GROUPS; w++) all.add(logs[w * WARP + lane()].top, logs[w * WARP + lane()].sum);
	((LogSum*)a.work)[((i64)blockIdx.z * gridDim.y + blockIdx.y) * a.width + j] = all;
}

// walk_join makes the row of the sums, and divides it by its largest element but the
// first. Block (0, 0, slot).
KERNEL(walk_join, WalkArgs, 1024) {
	Block b;
	if (!block_of(a.g, blockIdx.z, 0, TOUCHED, b)) return;
	int end, runs = ((int)a.width + WALK_RUN - 1) / WALK_RUN;
	const float* own = row_of(a.pairs, a.g, b, b.index, end);
	float* to = (float*)a.dst + walk_row(b, a.slots, a.rows) * a.width;
	float top = -infinity();
	for (int j = threadIdx.x; j < end; j += blockDim.x) {
		float y = (float)a.exponent * own[j];
		if (a.src) {
			LogSum all = {-infinity(), 0};
			for (int r = first_run(a.pairs, j); r * WALK_RUN < end; r++) {
				LogSum part = ((const LogSum*)a.work)[((i64)blockIdx.z * runs + r) * a.width + j];
				all.add(part.top, part.sum);
			}
			y = all.sum > 0 ? all.top + logf(all.sum) : -infinity();
		}
		to[j] = y;
		if (j > 0 || end == 1) top = larger(top, y);
	}
	top = reduce_block(top, -infinity(), Top());
	for (int j = threadIdx.x; j < end && top > -infinity(); j += blockDim.x) to[j] -= top;
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
	if (a.values)
		pick_blocks<u64>(a, b, [&](i64 j) { return wide_key_of(((const double*)a.rows)[from + j]); });
	else
		pick_blocks<u32>(a, b, [&](i64 j) { return key_of(((const float*)a.rows)[from + j]); });
}
