// A row of scores as a list that the blocks of a cluster select from.
#pragma once

#include "cluster_select.cuh"

// RowScores are the keys of a row of scores; NaN and -Inf take no part.
struct RowScores {
	const float* x;
	const PagedKV& g;

	__device__ __forceinline__ float fetch(int i) const { return ld_cg(x + i); }
	__device__ __forceinline__ u32 key(int, float s, bool first) const {
		if (first) count_nan(g, s);
		u32 k = radix_key(s);
		return k > KEY_NEG_INF ? k : 0;
	}
};
