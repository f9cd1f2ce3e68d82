//go:build cudaemu

#include "skinny_gemm.cu"
