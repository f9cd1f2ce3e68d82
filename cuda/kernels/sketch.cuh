// Blocks of PAGE positions and the scores between them.
#pragma once

#include "args.cuh"

// Block is a block of a slot; a block is a page of the cache.
struct Block {
	int slot, index;  // index: among the slot's blocks
	int page;
	int first;  // position of the slot's first row of the call
	int len;    // positions of the slot

	__device__ int positions() const { return min_of(len - index * PAGE, PAGE); }
	__device__ int blocks() const { return (len + PAGE - 1) / PAGE; }
	__device__ int group() const { return slot + index - first / PAGE; }
};

// Which blocks of a slot a call covers: those its rows lie in; these and the block that they have
// completed; or all.
enum { TOUCHED, COMPLETED, EVERY };

// block_of is covered block i of a slot; false if there is none.
__device__ inline bool block_of(const PagedKV& g, int slot, int i, int which, Block& b) {
	b.slot = slot;
	b.first = first_position(g, slot);
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

// page_or_own is the page of block i of b's slot, or b's own after a failure, which is reported.
__device__ inline int page_or_own(const PagedKV& g, const Block& b, int i) {
	int page = page_of(g, b.slot, i);
	return page < 0 ? b.page : page;
}

// BlockScores is a lower triangle of scores of blocks, row i beside page i, [pages, width], or,
// square, [slots, width, width].
struct BlockScores {
	float* data;
	i64 width, square;
};

// score_row is row i of b's slot, and how many elements it has.
__device__ inline float* score_row(const BlockScores& p, const PagedKV& g, const Block& b, int i, int& n) {
	n = p.square ? b.blocks() : i + 1;
	return p.data + (p.square ? b.slot * p.width + i : (i64)page_or_own(g, b, i)) * p.width;
}

constexpr int HEADS_IN_FLIGHT = 32;  // loads in flight of a thread

// head_mean is element d of the mean of the heads of a row that belong to head h.
__device__ __forceinline__ float head_mean(const float* row, int h, i64 heads, i64 x_heads, i64 dim, i64 d) {
	int n = (int)(x_heads / heads);
	const float* from = row + h * n * dim + d;
	float mean = 0;
	for (int base = 0; base < n; base += HEADS_IN_FLIGHT) {
		float v[HEADS_IN_FLIGHT];
#pragma unroll
		for (int u = 0; u < HEADS_IN_FLIGHT; u++) v[u] = base + u < n ? ld_cg(from + (base + u) * dim) : 0;
#pragma unroll
		for (int u = 0; u < HEADS_IN_FLIGHT; u++) mean += v[u];
	}
	return mean / (float)n;
}

enum { FORM_RAW, FORM_RELU, FORM_SOFTMAX };

// A product of sketches is summed in DOT_PARTS interleaved partial sums, each of every 16th run
// of 4 elements, so that it has the same bits in every kernel.
constexpr int DOT_PARTS = 16;

// apply_form turns a product into the stored score: NaN and infinities become 0, with relu also
// negative products; then ln|·| if log_of, unless softmax follows.
__device__ inline float apply_form(float product, i64 form, i64 log_of) {
	if (product - product != 0 || (form == FORM_RELU && product < 0)) product = 0;
	return form == FORM_SOFTMAX || !log_of ? product : (float)log(fabs((double)product));
}
