//go:build cudaemu

#include "matmul.cu"
