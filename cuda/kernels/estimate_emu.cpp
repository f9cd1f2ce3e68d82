//go:build cudaemu

#include "estimate.cu"
