// The state of attention over a set of positions: the largest score, the sum of
// exp(score - top), and the sum of values under those weights. Sets are added up
// by merging their states, in any grouping; the empty set is the identity.
//
// Scores are in units of ln 2.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

constexpr float NOTHING = -3.4028235e38f;  // top of the empty set

struct State {
	float top, sum;
};

// scale_to is what sums over a top must be multiplied by when the top becomes
// another one.
__device__ inline float scale_to(float from, float to) { return exp2f(from - to); }

// finish is what the sum of values is multiplied by.
__device__ inline float finish(float sum, bool mixture) { return mixture ? 1 : sum > 0 ? 1 / sum : 0; }
