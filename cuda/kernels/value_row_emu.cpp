//go:build cudaemu

#include "value_row.cu"
