//go:build cudaemu

#include "line.cu"
