// Arguments of the tensor core GEMMs.
#pragma once

#include "args.cuh"

struct GemmArgs {
	float* dst;    // [rows, n], leading dimension ld
	const u16* x;  // [rows, k]
	const u16* w;  // [n, k]
	i64 rows, n, k, ld;
	i64 add;  // epilogue: dst += x·wᵀ (beta = 1)
};
