// Attention of a decode step for every plan: decode.cuh.
#include "decode.cuh"

KERNEL_TWICE(decode_64, DecodeArgs, RING_WARPS * WARP) { decode<64, RING_STAGES, false>(a, blockIdx.y); }
KERNEL_TWICE(decode_128, DecodeArgs, RING_WARPS * WARP) { decode<128, RING_STAGES, false>(a, blockIdx.y); }
