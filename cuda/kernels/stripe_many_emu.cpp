//go:build cudaemu

#include "stripe_many.cu"
