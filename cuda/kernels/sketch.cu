// Blocks of PAGE positions: sums, sketches and products of sketches. Definitions:
// package cpu, sketch.go.
#include "reduce.cuh"
#include "sketch.cuh"

constexpr int MOST_WIDTH = 1024;  // dimensions of what is sketched

struct SumArgs {
	float* sum;      // [pages, heads, dim]
	const float* x;  // [rows, all, dim]
	i64 heads, all, dim;
	PagedKV g;
};

constexpr int SUM_DIMS = 32;  // dimensions that a block of block_sum takes

// block_sum adds rows to the sums of their blocks, in order. Block (b, h·z + part,
// slot) takes 32 dimensions of head h of touched block b: its warps make the means of
// the heads of a row each, the first one adds them up.
KERNEL(block_sum, SumArgs, 512) {
	SHARED(float, means, PAGE * SUM_DIMS);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int parts = (int)((a.dim + SUM_DIMS - 1) / SUM_DIMS), h = blockIdx.y / parts, d = blockIdx.y % parts * SUM_DIMS + lane();
	int lo = max_of(b.first, b.index * PAGE), hi = min_of(b.len, (b.index + 1) * PAGE);
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
	PagedKV g;
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

struct CompareArgs {
	Pairs pairs;
	const float *q, *k, *own;  // [pages, size]
	i64 size, form, log;
	f64 scale;
	PagedKV g;
};

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
	int rows = min_of(b.blocks() - b.index, COMPARE_ROWS), first_row = b.index;
	int columns = min_of(a.pairs.square ? b.blocks() : first_row + rows, first_column + COMPARE_COLUMNS) - first_column;
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
		count_nan(a.g, product);
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
	for (int j = threadIdx.x; j < n; j += blockDim.x) top = max_of(top, x[j]);
	top = reduce_block(top, -infinity(), Max());
	double sum = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) sum += exp((double)(x[j] - top));
	sum = (double)top + log(reduce_block(sum, 0.0, Plus()));
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		double y = (double)x[j] - sum;
		x[j] = (float)(a.log ? y : exp(y));
	}
}
