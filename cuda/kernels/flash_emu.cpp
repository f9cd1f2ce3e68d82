//go:build cudaemu

#include "flash.cu"
