//go:build cudaemu

#include "bound.cu"
