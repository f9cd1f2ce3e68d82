//go:build cudaemu

#include "several.cu"
