//go:build cudaemu

#include "sketch.cu"
