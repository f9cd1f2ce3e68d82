// The state of attention over a set of positions: the largest score, the sum of
// exp(score - top), and the sum of values under those weights. Sets are added up
// by merging their states, in any grouping; the empty set is the identity.
//
// Scores are in units of ln 2.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

constexpr float EMPTY_MAX = -3.4028235e38f;  // top of the empty set

struct SoftmaxState {
	float max, sum;
};

// scale_to is what sums over a top must be multiplied by when the top becomes
// another one.
__device__ inline float rescale(float from, float to) { return exp2f(from - to); }

// finish is what the sum of values is multiplied by.
__device__ inline float normalizer(float sum, bool mixture) { return mixture ? 1 : sum > 0 ? 1 / sum : 0; }

// Sums of weights as device.HoldShare holds them: those below TINY_SHARE as their
// logarithms, which seldom costs a branch.
constexpr float TINY_SHARE = 0x1p-100f;
__device__ inline float hold_share(double sum) { return sum < TINY_SHARE ? sum > 0 ? (float)log2(sum) : EMPTY_MAX : (float)sum; }
__device__ inline double share_of(float held) { return held < 0 ? exp2((double)held) : (double)held; }

// Between is the positions that the row at p sees between the plan's edges: those of two
// ranges.
struct SelectedRegion {
	int lo[2], hi[2];
	int n;
};

__device__ inline SelectedRegion selected_region(const Plan& plan, int p) {
	const Span& s = plan.span;
	int back = s.back ? max_of(p + 1 - (int)s.back, 0) : 0, sink = min_of((int)s.sink, p + 1);
	SelectedRegion b = {{back, max_of(max_of(back, bound_of(s, p)), sink)}, {sink, p + 1}, 0};
	for (int i = 0; i < 2; i++) {
		b.lo[i] = max_of(b.lo[i], (int)plan.sink);
		b.hi[i] = min_of(b.hi[i], recent_of(plan, p));
		b.n += max_of(b.hi[i] - b.lo[i], 0);
	}
	return b;
}

// whole reports whether a list of positions leaves nothing out that the row at p
// sees between the plan's edges, and weighs all the same. Such a row is computed as
// that of a plan without a list, so that it has the bits of dense attention. All
// threads of the block call it.
__device__ inline bool selects_all(const Plan& plan, const Entries& e, int p) {
	if (plan.middle != MIDDLE_TOKENS || plan.mixture) return false;
	SelectedRegion b = selected_region(plan, p);
	if (e.n < b.n) return false;
	int have = 0;
	for (int i = threadIdx.x; i < e.n; i += blockDim.x) {
		int j = e.index[i];
		bool in = (j >= b.lo[0] && j < b.hi[0]) || (j >= b.lo[1] && j < b.hi[1]);
		have += in && (!e.weight || e.weight[i] == 1);
	}
	return reduce_block(have, 0, Plus()) == b.n;
}
