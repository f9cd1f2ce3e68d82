//go:build cudaemu

#include "reuse.cu"
