// The newest row of each slot: where a decode step finds its query and its keys.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

// page_table_valid checks the page table of a slot up to position p; called by all threads.
__device__ inline bool page_table_valid(const PagedKV& g, int slot, int p) {
	int bad = 0;
	for (int b = threadIdx.x; b <= p / PAGE; b += blockDim.x) bad |= page_of(g, slot, b) < 0;
	return !reduce_block(bad, 0, Max());
}

// newest_position is the position of a slot's newest row, -1 if it has none or its page table
// is invalid; called by all threads.
__device__ inline int newest_position(const PagedKV& g, int slot) {
	int p = first_position(g, slot);
	return p >= 0 && page_table_valid(g, slot, p) ? p : -1;
}

// key_offset is the offset of the key of position j; its page must be valid.
__device__ inline i64 key_offset(const PagedKV& g, int slot, int kv_head, int j) {
	return kv_offset(g, g.table[(i64)slot * g.width + j / PAGE], kv_head, j % PAGE);
}

// in_selected_region reports whether the row at p may see position j, and j is neither a sink nor
// in the recent window.
__device__ inline bool in_selected_region(const Plan& plan, int p, int j) {
	return sees(plan.span, p, j) && !(j < plan.sink || j >= recent_of(plan, p));
}
