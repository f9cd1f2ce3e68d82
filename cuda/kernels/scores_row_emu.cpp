//go:build cudaemu

#include "scores_row.cu"
