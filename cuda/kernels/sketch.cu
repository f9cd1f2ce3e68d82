// Block sketches, the index of Sketch&Walk: sums of queries or keys over blocks of PAGE positions
// (a block is a page of the cache), averaged over heads, projected to few dimensions by a fixed
// basis; and the products of the sketches. Reference implementation: package cpu,
// bit-identical: the order of every f32 sum is fixed, projections are f64.
#include "reduce.cuh"
#include "sketch.cuh"

constexpr int SKETCH_MAX_DIM = 1024;  // limit of what is projected

struct BlockSumArgs {
	float* sum;      // [pages, heads, dim]
	const float* x;  // [rows, x_heads, dim]
	i64 heads, x_heads, dim;
	PagedKV g;
};

constexpr int SUM_DIMS = 32;  // dimensions of a thread block

// block_sum (summarize) adds the appended rows, averaged over the heads that share a sum, to the
// sums of their blocks, in the order of positions. Grid: (touched block, head · dimension group,
// slot). Warps compute the head means of a row each into shared memory, then one warp adds them
// up, so that a sum is bit-identical for any chunking. Bound by reading x.
KERNEL(block_sum, BlockSumArgs, 512) {
	SHARED(float, means, PAGE * SUM_DIMS);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	int parts = (int)((a.dim + SUM_DIMS - 1) / SUM_DIMS), h = blockIdx.y / parts, d = blockIdx.y % parts * SUM_DIMS + lane();
	int lo = max_of(b.first, b.index * PAGE), hi = min_of(b.len, (b.index + 1) * PAGE);
	for (int p = lo + warp(); p < hi && d < a.dim; p += blockDim.x / WARP) {
		i64 row = b.slot * a.g.rows + p - b.first;
		means[(p - lo) * SUM_DIMS + lane()] = head_mean(a.x + row * a.x_heads * a.dim, h, a.heads, a.x_heads, a.dim, d);
	}
	__syncthreads();
	if (warp() > 0 || d >= a.dim) return;
	float* to = a.sum + ((i64)b.page * a.heads + h) * a.dim + d;
	float sum = lo % PAGE == 0 ? 0 : *to;
	for (int p = lo; p < hi; p++) sum += means[(p - lo) * SUM_DIMS + lane()];
	*to = sum;
}

struct SketchArgs {
	float* dst;                      // [pages, heads, width]
	const float* x;                  // sums [pages, heads, dim], or with x_heads rows [rows, x_heads, dim]
	const float* basis;              // [width, dim]
	i64 heads, x_heads, width, dim;  // x_heads 0: x has block sums
	i64 blocks_per_head;             // thread blocks that share a head
	PagedKV g;
};

// sketch (summarize): dst = basis · mean of a touched block (sum / count), or, for the row of a
// decode step, basis · head mean of the slot's newest row. Grid: (touched block, head · part,
// slot). A warp computes an element of dst. Bound by reading the basis, once a block.
KERNEL(sketch, SketchArgs, 256) {
	SHARED(float, mean, SKETCH_MAX_DIM);
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, TOUCHED, b)) return;
	if (a.x_heads && b.index != b.blocks() - 1) return;
	int h = blockIdx.y / (int)a.blocks_per_head, part = blockIdx.y % (int)a.blocks_per_head, warps = blockDim.x / WARP;
	for (i64 d = threadIdx.x; d < a.dim; d += blockDim.x) {
		if (a.x_heads)
			mean[d] = head_mean(a.x + ((b.slot + 1) * a.g.rows - 1) * a.x_heads * a.dim, h, a.heads, a.x_heads, a.dim, d);
		else
			mean[d] = a.x[((i64)b.page * a.heads + h) * a.dim + d] / (float)b.positions();
	}
	__syncthreads();
	for (i64 w = part * warps + warp(); w < a.width; w += a.blocks_per_head * warps) {
		double sum = 0;
		for (i64 d = lane(); d < a.dim; d += WARP) sum += (double)a.basis[w * a.dim + d] * (double)mean[d];
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) a.dst[((i64)b.page * a.heads + h) * a.width + w] = (float)sum;
	}
}

struct CompareArgs {
	BlockScores scores;
	const float *q, *k, *own;  // [pages, size]
	i64 size, form, log;
	f64 scale, temperature;
	PagedKV g;
};

__device__ __forceinline__ float reduce_parts(float (&part)[DOT_PARTS]) {
#pragma unroll
	for (int p = 0; p < 8; p++) part[p] += part[p + 8];
#pragma unroll
	for (int p = 0; p < 4; p++) part[p] += part[p + 4];
	return (part[0] + part[2]) + (part[1] + part[3]);
}

// dot_parts is the product of two sketches by one thread, in the order of DOT_PARTS.
__device__ inline float dot_parts(const float* x, const float* y, int size) {
	float part[DOT_PARTS];
	for (int p = 0; p < DOT_PARTS; p++) part[p] = 0;
	for (int i = 0; i < size; i++) part[i / 4 % DOT_PARTS] = fmaf(x[i], y[i], part[i / 4 % DOT_PARTS]);
	return reduce_parts(part);
}

constexpr int COMPARE_ROWS = 36;                                                  // blocks of rows; a chunk of 2048 positions completes at most 34
constexpr int COMPARE_COLUMNS = 16;                                               // blocks of columns
constexpr int COMPARE_SIZE = 64;                                                  // elements of sketches in shared memory
constexpr int COMPARE_PER_THREAD = (COMPARE_ROWS * COMPARE_COLUMNS + 255) / 256;  // products of a thread

// compare (score): block scores Â_ij = scale · q̃_i·k̃_j, in the given form (sketch.cuh), for the
// completed blocks i and all j ≤ i (square: all pairs). Grid: (16 columns, 36 rows, slot), a
// register-tiled product of the two operands in shared memory. With an `own` that is not q the
// diagonal is scale · own_i·k̃_i. Bound by its multiply-adds, size for each pair.
KERNEL(sketch_scores, CompareArgs, 256) {
	SHARED(float, q, COMPARE_ROWS * (COMPARE_SIZE + 4));
	SHARED(float, k, COMPARE_COLUMNS * (COMPARE_SIZE + 4));
	SHARED(i32, pages, COMPARE_ROWS);
	Block b;
	int which = a.scores.square ? EVERY : COMPLETED, base = blockIdx.y * COMPARE_ROWS, first_column = blockIdx.x * COMPARE_COLUMNS;
	if (!block_of(a.g, blockIdx.z, base, which, b)) return;
	int rows = min_of(b.blocks() - b.index, COMPARE_ROWS), first_row = b.index;
	int columns = min_of(a.scores.square ? b.blocks() : first_row + rows, first_column + COMPARE_COLUMNS) - first_column;
	if (columns <= 0) return;
	for (int r = threadIdx.x; r < rows; r += blockDim.x) pages[r] = page_or_own(a.g, b, first_row + r);
	float part[COMPARE_PER_THREAD][DOT_PARTS];
#pragma unroll
	for (int o = 0; o < COMPARE_PER_THREAD; o++) {
#pragma unroll
		for (int i = 0; i < DOT_PARTS; i++) part[o][i] = 0;
	}
	for (int from = 0; from < a.size; from += COMPARE_SIZE) {
		__syncthreads();
		for (int i = threadIdx.x; i < (rows + columns) * COMPARE_SIZE; i += blockDim.x) {
			int r = i / COMPARE_SIZE, e = i % COMPARE_SIZE;
			float x = 0;
			if (from + e < a.size) x = r < rows ? a.q[pages[r] * a.size + from + e] : a.k[page_or_own(a.g, b, first_column + r - rows) * a.size + from + e];
			(r < rows ? q + r * (COMPARE_SIZE + 4) : k + (r - rows) * (COMPARE_SIZE + 4))[e] = x;
		}
		__syncthreads();
#pragma unroll
		for (int o = 0; o < COMPARE_PER_THREAD; o++) {
			int at = o * 256 + threadIdx.x, r = at / COMPARE_COLUMNS, c = at % COMPARE_COLUMNS;
			if (r >= rows || c >= columns) continue;
			const float *x = q + r * (COMPARE_SIZE + 4), *y = k + c * (COMPARE_SIZE + 4);
#pragma unroll
			for (int i = 0; i < COMPARE_SIZE; i++) part[o][i / 4] = fmaf(x[i], y[i], part[o][i / 4]);
		}
	}
#pragma unroll
	for (int o = 0; o < COMPARE_PER_THREAD; o++) {
		int at = o * 256 + threadIdx.x, r = at / COMPARE_COLUMNS, c = at % COMPARE_COLUMNS, i = first_row + r, j = first_column + c;
		if (r >= rows || c >= columns || (!a.scores.square && j > i)) continue;
		float product = reduce_parts(part[o]);
		if (i == j && a.own != a.q) product = dot_parts(a.own + pages[r] * a.size, a.k + page_or_own(a.g, b, j) * a.size, (int)a.size);
		product *= (float)a.scale;
		count_nan(a.g, product);
		int n;
		score_row(a.scores, a.g, b, i, n)[j] = apply_form(product, a.form, a.log);
	}
}

// sketch_softmax (score) normalizes a row of block scores to its softmax, or its logarithm. Grid:
// (block, 1, slot).
KERNEL(sketch_softmax, CompareArgs, 256) {
	Block b;
	if (!block_of(a.g, blockIdx.z, blockIdx.x, a.scores.square ? EVERY : COMPLETED, b)) return;
	int n;
	float* x = score_row(a.scores, a.g, b, b.index, n);
	float top = -infinity();
	for (int j = threadIdx.x; j < n; j += blockDim.x) top = max_of(top, x[j] /= (float)a.temperature);
	top = reduce_block(top, -infinity(), Max());
	double sum = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) sum += exp((double)(x[j] - top));
	sum = (double)top + log(reduce_block(sum, 0.0, Plus()));
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		double y = (double)x[j] - sum;
		x[j] = (float)(a.log ? y : exp(y));
	}
}

struct CompareHeadsArgs {
	CompareArgs c;
	void* work;  // [slots, rows, heads] f64: ln of the sum of exponentials of a row
	i64 heads, key_heads, width, rows;
};

// head_product is the product of the sketches of block b and block j by head h, in the given form,
// softmax's divided by its temperature. A warp calls it, and all lanes have it.
__device__ inline float head_product(const CompareHeadsArgs& a, const Block& b, int h, int j) {
	const float* x = (j == b.index ? a.c.own : a.c.q) + ((i64)b.page * a.heads + h) * a.width;
	const float* y = a.c.k + ((i64)page_or_own(a.c.g, b, j) * a.key_heads + h / (a.heads / a.key_heads)) * a.width;
	float sum = 0;
	for (int i = lane(); i < a.width; i += WARP) sum = fmaf(x[i], y[i], sum);
	sum = reduce_warp(sum, Plus()) * (float)a.c.scale;
	sum = __shfl_sync(FULL_MASK, sum, 0);
	if (lane() == 0) count_nan(a.c.g, sum);
	return apply_form(sum, a.c.form, false) / (float)a.c.temperature;
}

// sketch_head_sums (score): of each row of block scores the ln of the sum of exponentials by each
// head. Grid: (block, head, slot); a warp computes a product.
KERNEL(sketch_head_sums, CompareHeadsArgs, 256) {
	DYNAMIC_SHARED(float, products);
	Block b;
	if (!block_of(a.c.g, blockIdx.z, blockIdx.x, a.c.scores.square ? EVERY : COMPLETED, b)) return;
	int n = a.c.scores.square ? b.blocks() : b.index + 1;
	for (int j = warp(); j < n; j += blockDim.x / WARP) {
		float product = head_product(a, b, blockIdx.y, j);
		if (lane() == 0) products[j] = product;
	}
	__syncthreads();
	float top = -infinity();
	for (int j = threadIdx.x; j < n; j += blockDim.x) top = max_of(top, products[j]);
	top = reduce_block(top, -infinity(), Max());
	double sum = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) sum += exp((double)(products[j] - top));
	sum = reduce_block(sum, 0.0, Plus());
	if (threadIdx.x == 0) ((double*)a.work)[((i64)blockIdx.z * a.rows + blockIdx.x) * a.heads + blockIdx.y] = (double)top + log(sum);
}

// sketch_head_scores (score): block scores that are the mean over heads of each head's score.
// Grid: (8 columns, block, slot); a warp computes a score.
KERNEL(sketch_head_scores, CompareHeadsArgs, 256) {
	Block b;
	if (!block_of(a.c.g, blockIdx.z, blockIdx.y, a.c.scores.square ? EVERY : COMPLETED, b)) return;
	int n, j = blockIdx.x * (blockDim.x / WARP) + warp();
	float* row = score_row(a.c.scores, a.c.g, b, b.index, n);
	if (j >= n) return;
	const double* sums = (const double*)a.work + ((i64)blockIdx.z * a.rows + blockIdx.y) * a.heads;
	double mean = 0;
	for (int h = 0; h < a.heads; h++) {
		double product = head_product(a, b, h, j);
		mean += a.c.form == FORM_SOFTMAX ? exp(product - sums[h]) : product;
	}
	mean /= (double)a.heads;
	if (lane() == 0) row[j] = (float)(a.c.log ? log(fabs(mean)) : mean);
}
