//go:build cudaemu

// Kernels of attention for the emulator; doc.go says why there are three units.
#include "attend.cu"
#include "decode.cu"
#include "decode_each.cu"
#include "mass_decode.cu"
#include "flash.cu"
#include "flash_wgmma.cu"
