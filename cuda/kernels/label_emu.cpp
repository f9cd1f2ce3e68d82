//go:build cudaemu

#include "label.cu"
