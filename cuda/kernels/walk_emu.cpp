//go:build cudaemu

#include "walk.cu"
