// The arguments of what finds single positions for a group of rows.
#pragma once

#include "state.cuh"

struct EdgeArgs {
	float* dst;      // [rows, heads]
	const float* q;  // [rows, heads, dim]
	i64 heads;
	PagedKV g;
	Plan plan;
};

struct NearArgs {
	const float* q;    // [blocks, heads, dim]
	const float* top;  // [blocks, heads]
	u64* marks;        // [groups, heads, words, 2]: positions to list, and those that are near
	i64 heads, blocks, block, words;
	f64 gap;
	i64 twice;           // positions before it are listed, with weight 2 if near
	i32 *index, *count;  // [groups, heads, cap], [groups, heads]
	float* weight;       // [groups, heads, cap], or NULL
	i64 groups, cap, group;  // group: positions
	PagedKV g;  // rows: of each slot
	Plan plan;
};

// RowGroup is one group of rows: the positions of it that the call has, and their
// blocks.
struct RowGroup {
	int slot, from, to, block, blocks;
	i64 list;  // of head 0
};

// group_of is group i of those that the call's rows lie in; false if there is none.
__device__ inline bool group_of(const NearArgs& a, int i, RowGroup& r) {
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
