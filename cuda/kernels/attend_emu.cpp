//go:build cudaemu

#include "attend.cu"
