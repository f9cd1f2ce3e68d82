//go:build cudaemu

#include "value.cu"
