//go:build cudaemu

#include "stripe.cu"
