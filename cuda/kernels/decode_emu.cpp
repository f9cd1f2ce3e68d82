//go:build cudaemu

#include "decode.cu"
