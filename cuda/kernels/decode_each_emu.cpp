//go:build cudaemu

#include "decode_each.cu"
