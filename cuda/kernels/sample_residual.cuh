// What the kernels of residual sampling share: sample_residual.cu defines it, and does all of it;
// sample_residual_mma.cu does what decode steps mostly need.
#pragma once

#include "cluster_select.cuh"
#include "philox.cuh"
#include "read_map.cuh"

struct ResidualArgs {
	i32 *index, *count;  // [rows, head_groups, cap], [rows, head_groups]
	float* weight;       // [rows, head_groups, cap]
	const float* q;      // [rows, heads, dim]
	u8* work;            // [items, item]
	i64 item;            // bytes of an item's scratch
	i64 maps;            // of them, a block's bitmaps and counts; 0: they are in shared memory
	i64 first;           // the item of block 0
	i64 head_groups, cap, heads;
	i64 pilot_count;
	f64 pilot_share, eps, z;
	i64 numerator, fpc, fresh_pilot, replace, pool_selected;
	u64 seed;
	const i32* requests;  // [slots]: their request ids; NULL: one for all
	i64 request, layer;
	PagedKV g;
	Plan plan;
};

// required_samples is the b of a spread before it is rounded and clamped. With numerator, half
// of eps is for the numerator and half for the denominator, split so that both need the same b; with
// fpc the correction for a finite population, b / (1 + b/n).
__device__ inline double required_samples(const ResidualArgs& a, int n, double spread) {
	double eps = a.numerator ? a.eps / 2 : a.eps;
	if (spread == 0 && eps > 0) return 0;
	double want = a.z * spread / eps;
	want *= want;
	return a.fpc ? want / (1 + want / n) : want;
}

// pilot_size is the size of the pilot of n >= 2 positions.
__device__ inline int pilot_size(const ResidualArgs& a, int n) {
	int pilot = (int)(a.pilot_share > 0 ? floor(a.pilot_share * (double)n + 1e-9) : (double)a.pilot_count);
	return min_of(n, max_of(2, pilot));
}

// budget is the size of the sample of n positions: what is required rounded up, at least the pilot; n
// where more is required, or NaN.
__device__ inline int budget(double want, int n, int pilot) { return want < (double)n ? min_of(n, max_of(pilot, (int)ceil(want))) : n; }

// sampler_address is the address of the random numbers of a head group of a row.
__device__ inline Draw sampler_address(const ResidualArgs& a, RowPosition at, int head_group, u32 purpose) {
	Draw d = {a.seed, a.requests ? (u32)a.requests[at.slot] : (u32)a.request, (u32)a.layer, (u32)head_group, (u32)at.p, purpose};
	return d;
}
