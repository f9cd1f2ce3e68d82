//go:build cudaemu

#include "gemm.cu"
