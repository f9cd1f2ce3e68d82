//go:build cudaemu

#include "hash.cu"
