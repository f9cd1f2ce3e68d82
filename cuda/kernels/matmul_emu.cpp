//go:build cudaemu

// Kernels of matrix products and of rows for the emulator.
#include "gemm.cu"
#include "gemm_wgmma.cu"
#include "gemv.cu"
#include "gemv_batch.cu"
#include "matmul.cu"
#include "rows.cu"
#include "skinny_gemm.cu"
#include "to_f16.cu"
