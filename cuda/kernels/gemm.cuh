// The arguments of products of many rows.
#pragma once

#include "args.cuh"

struct GemmArgs {
	float* dst;    // [rows, n], rows of ld
	const u16* x;  // [rows, k]
	const u16* w;  // [n, k]
	i64 rows, n, k, ld;
	i64 add;  // to what dst holds
};
