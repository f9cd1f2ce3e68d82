//go:build cudaemu

#include "feature.cu"
