// The newest row of each slot, and products with stored keys by a warp.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

// sound reports whether the page table of a slot is good up to position p; all threads
// call it.
__device__ inline bool page_table_valid(const PagedKV& g, int slot, int p) {
	int bad = 0;
	for (int b = threadIdx.x; b <= p / PAGE; b += blockDim.x) bad |= page_of(g, slot, b) < 0;
	return !reduce_block(bad, 0, Max());
}

// newest is the position of a slot's newest row, or -1; all threads call it. The
// page table is good up to it.
__device__ inline int newest_position(const PagedKV& g, int slot) {
	int p = first_position(g, slot);
	return p >= 0 && page_table_valid(g, slot, p) ? p : -1;
}

// key_at is where the key of position j starts, which a page is known to hold.
__device__ inline i64 key_offset(const PagedKV& g, int slot, int kv_head, int j) {
	return kv_offset(g, g.table[(i64)slot * g.width + j / PAGE], kv_head, j % PAGE);
}

// between reports whether position j is of the plan's middle for the row at p.
__device__ inline bool in_selected_region(const Plan& plan, int p, int j) {
	return sees(plan.span, p, j) && !(j < plan.sink || j >= recent_of(plan, p));
}
