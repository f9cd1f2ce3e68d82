// Blocks of PAGE positions that a call is about, and what they made of each other.
#pragma once

#include "args.cuh"

// Block is one of the blocks that a call's rows lie in.
struct Block {
	int slot, index;  // whose block, and which of its blocks
	int page;
	int first;  // position of the slot's first row of the call
	int len;    // positions of the slot

	__device__ int positions() const { return min_of(len - index * PAGE, PAGE); }
	__device__ int blocks() const { return (len + PAGE - 1) / PAGE; }
	__device__ int group() const { return slot + index - first / PAGE; }
};

// Which blocks of a slot a call is about: those that its rows lie in; and the
// one before them where they start a block; all.
enum { TOUCHED, COMPLETED, EVERY };

// block_of is block i of those of a slot; false if there is none.
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

// page_or is the page of block i of b's slot; a failure gives b's own.
__device__ inline int page_or(const PagedKV& g, const Block& b, int i) {
	int page = page_of(g, b.slot, i);
	return page < 0 ? b.page : page;
}

// Pairs are the numbers that blocks made of each other: [pages, width], or with
// square [slots, width, width].
struct Pairs {
	float* data;
	i64 width, square;
};

// row_of is what block i of b's slot made of the blocks that it looks at, and how
// many they are.
__device__ inline float* row_of(const Pairs& p, const PagedKV& g, const Block& b, int i, int& n) {
	n = p.square ? b.blocks() : i + 1;
	return p.data + (p.square ? b.slot * p.width + i : (i64)page_or(g, b, i)) * p.width;
}

constexpr int HEADS_AHEAD = 32;  // heads of a row that are on their way at once

// head_mean is element d of the mean of the heads of a row that belong to head h.
__device__ __forceinline__ float head_mean(const float* row, int h, i64 heads, i64 all, i64 dim, i64 d) {
	int n = (int)(all / heads);
	const float* from = row + h * n * dim + d;
	float mean = 0;
	for (int base = 0; base < n; base += HEADS_AHEAD) {
		float v[HEADS_AHEAD];
#pragma unroll
		for (int u = 0; u < HEADS_AHEAD; u++) v[u] = base + u < n ? ld_cg(from + (base + u) * dim) : 0;
#pragma unroll
		for (int u = 0; u < HEADS_AHEAD; u++) mean += v[u];
	}
	return mean / (float)n;
}

enum { FORM_RAW, FORM_RELU, FORM_SOFTMAX };

// A product of two sketches is added up in 16 parts, each of every 16th run of 4
// elements, so that it has the same bits in every kernel.
constexpr int PARTS = 16;

// shaped is what is stored of a product, except for its share.
__device__ inline float shaped(float product, i64 form, i64 log_of) {
	if (product - product != 0 || (form == FORM_RELU && product < 0)) product = 0;
	return form == FORM_SOFTMAX || !log_of ? product : (float)log(fabs((double)product));
}
