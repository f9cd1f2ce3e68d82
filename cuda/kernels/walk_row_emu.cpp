//go:build cudaemu

#include "walk_row.cu"
