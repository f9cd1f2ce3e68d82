//go:build cudaemu

#include "single.cu"
