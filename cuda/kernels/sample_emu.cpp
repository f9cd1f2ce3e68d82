//go:build cudaemu

#include "sample.cu"
