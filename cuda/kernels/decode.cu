// Attention of a decode step for every plan: decode.cuh.
#include "decode.cuh"

KERNEL_2_PER_SM(decode_64, DecodeArgs, RING_WARPS * WARP) { decode<64, 1, RING_STAGES, false>(a, blockIdx.y); }
KERNEL_2_PER_SM(decode_128, DecodeArgs, RING_WARPS * WARP) { decode<128, 1, RING_STAGES, false>(a, blockIdx.y); }

// The same of more than four heads.
KERNEL_2_PER_SM(decode_more_64, DecodeArgs, RING_WARPS * WARP) { decode<64, 2, RING_STAGES, false>(a, blockIdx.y); }
KERNEL_2_PER_SM(decode_more_128, DecodeArgs, RING_WARPS * WARP) { decode<128, 2, RING_STAGES, false>(a, blockIdx.y); }
