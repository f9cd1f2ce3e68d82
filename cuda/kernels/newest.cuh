// The newest row of each slot, and products with stored keys by a warp.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

// sound reports whether the page table of a slot is good up to position p; all threads
// call it.
__device__ inline bool sound(const Pages& g, int slot, int p) {
	int bad = 0;
	for (int b = threadIdx.x; b <= p / PAGE; b += blockDim.x) bad |= page_of(g, slot, b) < 0;
	return !reduce_block(bad, 0, Top());
}

// newest is the position of a slot's newest row, or -1; all threads call it. The
// page table is good up to it.
__device__ inline int newest(const Pages& g, int slot) {
	int p = first_of(g, slot);
	return p >= 0 && sound(g, slot, p) ? p : -1;
}

// key_at is where the key of position j starts, which a page is known to hold.
__device__ inline i64 key_at(const Pages& g, int slot, int kv_head, int j) {
	return element_of(g, g.table[(i64)slot * g.width + j / PAGE], kv_head, j % PAGE);
}

// between reports whether position j is of the plan's middle for the row at p.
__device__ inline bool between(const Plan& plan, int p, int j) {
	return sees(plan.span, p, j) && !(j < plan.sink || j >= recent_of(plan, p));
}
