// State of the online softmax over a set of positions: the running maximum of the scores, the
// sum of exp(score - max), and (kept by the caller) the sum of values under those weights.
// States of disjoint sets merge in any grouping, as split-K and the rings of the attention
// kernels do; that of the empty set is the identity.
//
// Scores are in base 2: q·k times log2(e)/√dim, so that exp is exp2.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

constexpr float EMPTY_MAX = -3.4028235e38f;  // -FLT_MAX: max of the empty set, where -inf would give NaN in max - max

struct SoftmaxState {
	float max, sum;
};

// rescale is the factor for accumulators when the running maximum goes from one value to another.
__device__ inline float rescale(float from, float to) { return exp2f(from - to); }

// normalizer is the final factor of the sum of values: 1/sum, 0 for the empty set, and 1 for a
// mixture, whose weights are used as they are.
__device__ inline float normalizer(float sum, bool mixture) { return mixture ? 1 : sum > 0 ? 1 / sum : 0; }

// Softmax mass as device.EncodeMass stores it: what is below TINY_SHARE as its logarithm, so
// that f32 does not underflow.
constexpr float TINY_SHARE = 0x1p-100f;
__device__ inline float hold_share(double sum) { return sum < TINY_SHARE ? sum > 0 ? (float)log2(sum) : EMPTY_MAX : (float)sum; }
__device__ inline double share_of(float held) { return held < 0 ? exp2((double)held) : (double)held; }

// SelectedRegion is the positions between sinks and window that the row at p may see, as two
// ranges, because the span may have a gap.
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

// selects_all reports whether a position list leaves out nothing of the selected region and
// has weight one everywhere. Such a row takes the path of a plan without a list, so that its
// bits are those of dense attention. Called by all threads of the block.
__device__ inline bool selects_all(const Plan& plan, const Entries& e, int p) {
	if (plan.selected != SELECTED_TOKENS || plan.mixture) return false;
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
