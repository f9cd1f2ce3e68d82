// Arguments of anchor max and selection within a margin.
#pragma once

#include "state.cuh"

struct AnchorMaxArgs {
	float* dst;      // [rows, heads]
	const float* q;  // [rows, heads, dim]
	i64 heads;
	PagedKV g;
	Plan plan;
};

struct MarginArgs {
	const float* q;    // [blocks, heads, dim]: mean queries
	const float* top;  // [blocks, heads]: mean anchor maxima
	u64* marks;        // [groups, heads, words, 2]: bitmaps of what is listed, and of what is within the margin
	i64 heads, blocks, block, words;
	f64 margin;
	i64 double_before;       // positions before it are always listed, with weight 2 if within the margin (window=code_v4)
	i32 *index, *count;      // [groups, heads, cap], [groups, heads]
	float* weight;           // [groups, heads, cap], or NULL
	i64 groups, cap, group;  // group: positions of a group
	PagedKV g;               // g.rows: rows of each slot
	Plan plan;
};

// RowGroup is the positions of a group of rows that the call has, and their blocks.
struct RowGroup {
	int slot, from, to, block, blocks;
	i64 list;  // list of the group's head 0
};

// row_group is group i of those that the call's rows lie in; false if there is none.
__device__ inline bool row_group(const MarginArgs& a, int i, RowGroup& r) {
	r.slot = blockIdx.z;
	int first = first_position(a.g, r.slot), n = (int)a.group, rows = (int)a.g.rows;
	if (first < 0) return false;
	int index = first / n + i;
	r.from = max_of(first, index * n);
	r.to = min_of(first + rows, (index + 1) * n);
	if (r.from >= r.to) return false;
	int size = (int)a.block;
	r.block = r.slot + r.from / size - first / size;
	r.blocks = (r.to - 1) / size - r.from / size + 1;
	i64 group = r.slot + i;
	if (group >= a.groups || r.block + r.blocks > a.blocks) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, max_of(group, (i64)(r.block + r.blocks - 1)), min_of(a.groups, a.blocks), 0);
		return false;
	}
	r.list = group * a.heads;
	return true;
}
