//go:build cudaemu

#include "gemv_batch.cu"
