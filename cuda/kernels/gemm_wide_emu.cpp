//go:build cudaemu

#include "gemm_wide.cu"
