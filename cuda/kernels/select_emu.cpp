//go:build cudaemu

#include "select.cu"
