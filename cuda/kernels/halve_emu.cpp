//go:build cudaemu

#include "halve.cu"
