//go:build cudaemu

#include "gemv.cu"
