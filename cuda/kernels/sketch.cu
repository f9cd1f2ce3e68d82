// Blocks of PAGE positions: sums, sketches and products of sketches. Definitions:
// package cpu, sketch.go.
#include "reduce.cuh"
#include "sketch.cuh"

constexpr int MOST_WIDTH = 1024;  // dimensions of what is sketched

struct SumArgs {
	float* sum;      // [pages, heads, dim]
	const float* x;  // [rows, all, dim]
	i64 heads, all, dim;
	Pages g;
};

constexpr int HEADS_AHEAD = 32;  // heads of a row that are on their way at once

// head_mean is element d of the mean of the heads of a row that belong to head h.
__device__ __forceinline__ float head_mean(const float* row, int h, i64 heads, i64 all, i64 dim, i64 d) {
	int n = (int)(all / heads);
	const float* from = row + h * n * dim + d;
	float mean = 0;
	for (int base = 0; base < n; base += HEADS_AHEAD) {
		float v[HEADS_AHEAD];
#pragma unroll
		for (int u = 0; u < HEADS_AHEAD; u++) v[u] = base + u < n ? fresh(from + (base + u) * dim) : 0;
#pragma unroll
		for (int u = 0; u < HEADS_AHEAD; u++) mean += v[u];
	}
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

enum { FORM_RAW, FORM_RELU, FORM_SOFTMAX };

struct CompareArgs {
	Pairs pairs;
	const float *q, *k, *own;  // [pages, size]
	i64 size, form, log;
	f64 scale;
	Pages g;
};

// A product of two sketches is added up in 16 parts, each of every 16th run of 4
// elements, so that it has the same bits in every kernel.
constexpr int PARTS = 16;

__device__ __forceinline__ float join_parts(float (&part)[PARTS]) {
#pragma unroll
	for (int p = 0; p < 8; p++) part[p] += part[p + 8];
#pragma unroll
	for (int p = 0; p < 4; p++) part[p] += part[p + 4];
	return (part[0] + part[2]) + (part[1] + part[3]);
}

// product_of is such a product by a single thread.
__device__ inline float product_of(const float* x, const float* y, int size) {
	float part[PARTS];
	for (int p = 0; p < PARTS; p++) part[p] = 0;
	for (int i = 0; i < size; i++) part[i / 4 % PARTS] = fmaf(x[i], y[i], part[i / 4 % PARTS]);
	return join_parts(part);
}

// shaped is what is stored of a product, except for its share.
__device__ inline float shaped(float product, i64 form, i64 log_of) {
	if (product - product != 0 || (form == FORM_RELU && product < 0)) product = 0;
	return form == FORM_SOFTMAX || !log_of ? product : (float)log(fabs((double)product));
}

constexpr int COMPARE_ROWS = 36;     // blocks at once; a chunk of 2048 positions completes at most 34
constexpr int COMPARE_COLUMNS = 16;  // blocks that they look at
constexpr int COMPARE_SIZE = 64;     // elements of sketches at a time
constexpr int COMPARE_EACH = (COMPARE_ROWS * COMPARE_COLUMNS + 255) / 256;  // products of a thread

// compare: the products of blocks with the blocks that they look at. Block (y, z, slot)
// takes 16 of those that 36 blocks look at.
KERNEL(compare, CompareArgs, 256) {
	SHARED(float, q, COMPARE_ROWS * (COMPARE_SIZE + 4));
	SHARED(float, k, COMPARE_COLUMNS * (COMPARE_SIZE + 4));
	SHARED(i32, pages, COMPARE_ROWS);
	Block b;
	int which = a.pairs.square ? EVERY : COMPLETED, base = blockIdx.y * COMPARE_ROWS, first_column = blockIdx.x * COMPARE_COLUMNS;
	if (!block_of(a.g, blockIdx.z, base, which, b)) return;
	int rows = smaller(b.blocks() - b.index, COMPARE_ROWS), first_row = b.index;
	int columns = smaller(a.pairs.square ? b.blocks() : first_row + rows, first_column + COMPARE_COLUMNS) - first_column;
	if (columns <= 0) return;
	for (int r = threadIdx.x; r < rows; r += blockDim.x) pages[r] = page_or(a.g, b, first_row + r);
	float part[COMPARE_EACH][PARTS];
#pragma unroll
	for (int o = 0; o < COMPARE_EACH; o++) {
#pragma unroll
		for (int i = 0; i < PARTS; i++) part[o][i] = 0;
	}
	for (int from = 0; from < a.size; from += COMPARE_SIZE) {
		__syncthreads();
		for (int i = threadIdx.x; i < (rows + columns) * COMPARE_SIZE; i += blockDim.x) {
			int r = i / COMPARE_SIZE, e = i % COMPARE_SIZE;
			float x = 0;
			if (from + e < a.size) x = r < rows ? a.q[pages[r] * a.size + from + e] : a.k[page_or(a.g, b, first_column + r - rows) * a.size + from + e];
			(r < rows ? q + r * (COMPARE_SIZE + 4) : k + (r - rows) * (COMPARE_SIZE + 4))[e] = x;
		}
		__syncthreads();
#pragma unroll
		for (int o = 0; o < COMPARE_EACH; o++) {
			int at = o * 256 + threadIdx.x, r = at / COMPARE_COLUMNS, c = at % COMPARE_COLUMNS;
			if (r >= rows || c >= columns) continue;
			const float *x = q + r * (COMPARE_SIZE + 4), *y = k + c * (COMPARE_SIZE + 4);
#pragma unroll
			for (int i = 0; i < COMPARE_SIZE; i++) part[o][i / 4] = fmaf(x[i], y[i], part[o][i / 4]);
		}
	}
#pragma unroll
	for (int o = 0; o < COMPARE_EACH; o++) {
		int at = o * 256 + threadIdx.x, r = at / COMPARE_COLUMNS, c = at % COMPARE_COLUMNS, i = first_row + r, j = first_column + c;
		if (r >= rows || c >= columns || (!a.pairs.square && j > i)) continue;
		float product = join_parts(part[o]);
		if (i == j && a.own != a.q) product = product_of(a.own + pages[r] * a.size, a.k + page_or(a.g, b, j) * a.size, (int)a.size);
		product *= (float)a.scale;
		met(a.g, product);
		int n;
		row_of(a.pairs, a.g, b, i, n)[j] = shaped(product, a.form, a.log);
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

// Of the newest row of each slot, which is the query of its block.

struct SketchNewestArgs {
	float *ksum, *qsum;    // [pages, dim]
	float *keys, *rows;    // [pages, width]
	const float* basis;    // [width, dim]
	const float *q, *k;    // [slots, heads, dim]
	float* pairs;          // [pages, most]
	i64 qheads, kheads, dim, width, most;
	i64 token;  // rows keeps the sketch of the row, not that of its block's mean
	i64 form, log;
	f64 scale;
	i64 fixed;  // no kernel writes basis
	Pages g;
};

constexpr int NEWEST_DIM = 256;     // most dimensions, and elements of a sketch
constexpr int NEWEST_COLUMNS = 16;  // products of a block: a half warp each
constexpr int BASIS_AHEAD = 8;      // times 4 numbers of the basis that a thread holds

// Basis is a thread's part of a row of the basis, of which 4 threads take a part each.
struct Basis {
	float v[BASIS_AHEAD][4];
};

__device__ __forceinline__ void bring(Basis& b, const SketchNewestArgs& a, int w) {
#pragma unroll
	for (int i = 0; i < BASIS_AHEAD; i++) {
		int d = (i * 4 + (int)threadIdx.x % 4) * 4;
		b.v[i][0] = b.v[i][1] = b.v[i][2] = b.v[i][3] = 0;
		if (w < a.width && d < a.dim) fresh4(b.v[i], a.basis + w * a.dim + d);
	}
}

// project makes a sketch, dst = basis · mean. All threads call it; b is of the row of a
// thread's first element.
__device__ __forceinline__ void project(float* dst, const SketchNewestArgs& a, const double* mean, const Basis& b) {
	int each = (int)blockDim.x / 4, part = (int)threadIdx.x % 4;
	for (int base = 0; base < a.width; base += each) {
		int w = base + (int)threadIdx.x / 4;
		Basis more = b;
		if (base > 0) bring(more, a, w);
		double sum = 0;
#pragma unroll
		for (int i = 0; i < BASIS_AHEAD; i++) {
#pragma unroll
			for (int e = 0; e < 4; e++) sum += (double)more.v[i][e] * mean[(i * 4 + part) * 4 + e];
		}
		for (int d = BASIS_AHEAD * 16 + part * 4; d < a.dim && w < a.width; d += d % 4 == 3 ? 13 : 1) sum += (double)a.basis[w * a.dim + d] * mean[d];
		sum += __shfl_xor_sync(ALL, sum, 1);
		sum += __shfl_xor_sync(ALL, sum, 2);
		if (part == 0 && w < a.width) dst[w] = (float)sum;
	}
}

// sketch_newest: block (0, slot) adds the row's key to the sum of its block, sketches the
// mean and compares the row with it; block (1, slot) does so with the query, for those
// that come later; the others compare the row with 16 blocks before, and the block before
// with its own where it was completed. They ask for what the walk will read, which lies
// in memory while the kernels before still run, and make a sketch of nothing, so that
// their instructions are there when the row is.
KERNEL_TWICE(sketch_newest, SketchNewestArgs, 256) {
	SHARED(double, mean, NEWEST_DIM);
	SHARED(float, asked, NEWEST_DIM);
	SHARED(float, made, NEWEST_DIM);
	Block b;
	if (!block_of(a.g, blockIdx.y, 0, TOUCHED, b)) {
		wait_before();
		return;
	}
	int own = b.index, d = threadIdx.x, half = (int)threadIdx.x / PARTS;
	bool keys = blockIdx.x == 0, sums = blockIdx.x < 2, mine = d < a.dim;
	for (int m = (int)(blockIdx.x + warp() * gridDim.x); m < own; m += (int)(blockDim.x / WARP * gridDim.x)) {
		const float* row = a.pairs + page_or(a.g, b, m) * a.most;
		for (int j = lane() * 32; j <= m; j += WARP * 32) prefetch(row + j);
	}
	int first = ((int)blockIdx.x - 2) * NEWEST_COLUMNS, j = keys ? own : first + half;
	bool there = keys ? half == 0 : !sums && j < own;
	const float* key = a.keys + (there ? page_or(a.g, b, j) : b.page) * a.width;
	if (there && !keys) prefetch(key + lane() % PARTS * 4);
	float* sum = (keys ? a.ksum : a.qsum) + b.page * a.dim + (mine ? d : 0);
	if (sums) prefetch(sum);
	Basis basis;
	if (a.fixed) bring(basis, a, (int)threadIdx.x / 4);
	// Turn 0 is of what happens to be there; turn 1 is of the query, turn 2 of the key.
	for (int turn = a.fixed ? 0 : 1; turn < (keys ? 3 : 2); turn++) {
		if (turn == 1) {
			wait_before();
			let_next();
			if (!sums && first >= own) return;
			if (!a.fixed) bring(basis, a, (int)threadIdx.x / 4);
		}
		bool of_key = turn == 2;
		i64 heads = of_key ? a.kheads : a.qheads;
		float x = mine ? head_mean((of_key ? a.k : a.q) + blockIdx.y * heads * a.dim, 0, 1, heads, a.dim, d) : 0;
		if (mine && (of_key || (turn == 1 && sums && !keys))) {
			float all = (b.first % PAGE == 0 ? 0 : fresh(sum)) + x;
			*sum = all;
			if (of_key || !a.token) x = all / (float)b.positions();
		}
		__syncthreads();
		if (d < NEWEST_DIM) mean[d] = (double)x;
		__syncthreads();
		project(of_key ? made : asked, a, mean, basis);
	}
	__syncthreads();
	if (sums) {
		float* to = (keys ? a.keys : a.rows) + b.page * a.width;
		for (int w = threadIdx.x; w < a.width; w += blockDim.x) to[w] = keys ? made[w] : asked[w];
		if (!keys) return;
	}
	// Once for the row, and once for the block before where it was completed.
	int row = b.page;
	for (int turn = 0; turn < 2; turn++) {
		float part = 0;
		for (int e = lane() % PARTS * 4; e < a.width && there; e += PARTS * 4) {
			float x[4];
			if (keys) {
				for (int i = 0; i < 4; i++) x[i] = made[e + i];
			} else {
				fresh4(x, key + e);
			}
			for (int i = 0; i < 4; i++) part = fmaf(asked[e + i], x[i], part);
		}
		for (int by = PARTS / 2; by > 0; by /= 2) part += __shfl_xor_sync(ALL, part, by);
		if (there && lane() % PARTS == 0) {
			part *= (float)a.scale;
			met(a.g, part);
			a.pairs[row * a.most + j] = shaped(part, a.form, a.log);
		}
		if (keys || b.first % PAGE != 0 || own == 0) return;
		row = page_or(a.g, b, own - 1);
		__syncthreads();
		for (int w = threadIdx.x; w < a.width; w += blockDim.x) asked[w] = a.rows[row * a.width + w];
		__syncthreads();
	}
}
