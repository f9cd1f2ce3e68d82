// Instances of the decode attention of decode.cuh: up to four query heads per kv head, and
// more (up to eight), for head dimensions 64 and 128.
#include "decode.cuh"

KERNEL_2_PER_SM(decode_64, DecodeArgs, RING_WARPS * WARP) { decode<64, 1, RING_STAGES, false>(a, blockIdx.y); }
KERNEL_2_PER_SM(decode_128, DecodeArgs, RING_WARPS * WARP) { decode<128, 1, RING_STAGES, false>(a, blockIdx.y); }

// With two sets of four heads.
KERNEL_2_PER_SM(decode_more_64, DecodeArgs, RING_WARPS * WARP) { decode<64, 2, RING_STAGES, false>(a, blockIdx.y); }
KERNEL_2_PER_SM(decode_more_128, DecodeArgs, RING_WARPS * WARP) { decode<128, 2, RING_STAGES, false>(a, blockIdx.y); }
