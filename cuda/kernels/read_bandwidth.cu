// What memory gives to a kernel that only reads: the roofline of a decode step, which writes
// next to nothing.
#include "args.cuh"
#include "dequant.cuh"

constexpr int READ_THREADS = 512, READ_AHEAD = 4;  // loads of 16 bytes in flight per thread
constexpr u32 UNLIKELY_SUM = 0x9e3779b9u;

struct ReadBandwidthArgs {
	u32* sum;          // [1], written by a thread whose words sum to UNLIKELY_SUM
	const Word4* src;  // [n]
	i64 n;
};

// read_bandwidth reads src once in a grid-stride loop: a warp's loads are contiguous, and
// READ_AHEAD of them are in flight. The comparison keeps the loads alive.
KERNEL(read_bandwidth, ReadBandwidthArgs, READ_THREADS) {
	i64 stride = (i64)gridDim.x * blockDim.x, i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
	u32 sum = 0;
	for (; i + (READ_AHEAD - 1) * stride < a.n; i += READ_AHEAD * stride) {
		Word4 v[READ_AHEAD];
#pragma unroll
		for (int j = 0; j < READ_AHEAD; j++) v[j] = load16(a.src + i + j * stride);
#pragma unroll
		for (int j = 0; j < READ_AHEAD; j++) sum += v[j].w[0] + v[j].w[1] + v[j].w[2] + v[j].w[3];
	}
	for (; i < a.n; i += stride) {
		Word4 v = load16(a.src + i);
		sum += v.w[0] + v.w[1] + v.w[2] + v.w[3];
	}
	if (sum == UNLIKELY_SUM) a.sum[0] = sum;
}
