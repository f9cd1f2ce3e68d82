//go:build cudaemu

#include "flash_wide.cu"
