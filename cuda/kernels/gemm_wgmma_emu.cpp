//go:build cudaemu

#include "gemm_wgmma.cu"
