//go:build cudaemu

#include "flash_wgmma.cu"
