//go:build cudaemu

// Kernels of matrix products and of rows, and the roofline's, for the emulator.
#include "gemm.cu"
#include "gemm_wgmma.cu"
#include "gemv.cu"
#include "gemv_batch.cu"
#include "matmul.cu"
#include "read_bandwidth.cu"
#include "rows.cu"
#include "skinny_gemm.cu"
#include "skinny_wgmma.cu"
#include "to_f16.cu"
