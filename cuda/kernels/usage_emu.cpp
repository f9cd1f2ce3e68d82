//go:build cudaemu

#include "usage.cu"
