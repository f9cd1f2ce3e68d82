//go:build cudaemu

#include "to_f16.cu"
