//go:build cudaemu

#include "rows.cu"
