// Wrappers of what compute capability 9.0 adds for tensor cores: wgmma, mbarriers, TMA,
// setmaxnreg. A warpgroup (four warps) multiplies a 64-row A in registers or shared memory with
// a B in shared memory. They need code for sm_90a, where WGMMA is 1; elsewhere the kernels that
// use them are empty, and the host, which looks for the symbol wgmma_probe, does not launch
// them.
//
// Operands in shared memory use the 128-byte swizzle: panels of 64 f16 columns (128 bytes a
// row), aligned to 1024 bytes, in which 16-byte piece c of row r lies at c ^ r%8.
#pragma once

#include "gpu.cuh"

#if defined(GOLLM_EMU)

#define WGMMA 1
#include "emu/wgmma.h"

#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WGMMA 1

// gollm_wgmma_probe exists in code for sm_90a only and is never launched.
extern "C" __global__ void gollm_wgmma_probe() {}

// DYNAMIC_SHARED_1024 is DYNAMIC_SHARED aligned to 1024 bytes.
extern __shared__ __align__(1024) unsigned char dynamic_1024_[];
#define DYNAMIC_SHARED_1024(T, name) T* name = reinterpret_cast<T*>(dynamic_1024_)

// SmemDesc is a matrix descriptor of wgmma. Its upper word is constant along a loop, so only
// the lower one is advanced.
struct SmemDesc {
	u32 low, high;

	// advance moves the start address by some bytes.
	__device__ __forceinline__ SmemDesc advance(int bytes) const { return {low + (u32)(bytes >> 4), high}; }
	// uniform is advance by a value that is uniform over the warp, which the compiler cannot prove
	// itself: the descriptor then lives in uniform registers.
	__device__ __forceinline__ SmemDesc uniform(int bytes) const { return {__shfl_sync(FULL_MASK, low + (u32)(bytes >> 4), 0), high}; }
	__device__ __forceinline__ u64 bits() const { return (u64)high << 32 | low; }
};

// smem_desc makes a descriptor: stride is the byte offset between groups of 8 rows; for a
// transposed B, lead is that from panel to panel.
__device__ __forceinline__ SmemDesc smem_desc(const void* at, int lead, int stride) {
	u32 address = (u32)__cvta_generic_to_shared(at);
	return SmemDesc{(address & 0x3ffff) >> 4 | (u32)(lead >> 4) << 16, (u32)(stride >> 4) | 1u << 30}.uniform(0);
}

// fence_proxy_async makes this thread's writes to shared memory visible to the async proxy
// (wgmma, TMA); a barrier follows.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Mbarriers: mbarrier_init sets the arrival count, by one thread, before a block barrier.
// mbarrier_wait waits for the completion of the phase with the given parity; on a fresh barrier
// a wait with parity 1 returns at once, which is how pipelines start with all stages empty.
typedef u64 Mbarrier;
__device__ __forceinline__ u32 mbarrier_address(const Mbarrier* g) { return (u32)__cvta_generic_to_shared(g); }
__device__ __forceinline__ void mbarrier_init(Mbarrier* g, int n) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mbarrier_address(g)), "r"(n) : "memory");
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* g) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier_address(g)) : "memory"); }
__device__ __forceinline__ void mbarrier_wait(Mbarrier* g, u32 parity) {
	asm volatile(
		"{\n"
		".reg .pred open;\n"
		"again:\n"
		"mbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n"
		"@!open bra again;\n"
		"}" ::"r"(mbarrier_address(g)), "r"(parity) : "memory");
}

// TensorMap is a CUtensorMap, a TMA descriptor that the driver encodes.
struct alignas(64) TensorMap {
	u64 words[16];
};

// mbarrier_arrive_expect_tx arrives and adds bytes that the phase waits for. tma_load_2d copies
// a box of 64 columns and 64 rows, swizzled, to a panel, and completes its bytes on an mbarrier.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* g, int bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier_address(g)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tma_load_2d(void* to, const TensorMap& map, int column, int row, Mbarrier* g) {
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"((u32)__cvta_generic_to_shared(to)),
		"l"(&map), "r"(column), "r"(row), "r"(mbarrier_address(g)) : "memory");
}

// Register reallocation between warpgroups (setmaxnreg): all four warps execute it. In a block
// of 384 threads a producer goes down and two consumers go up, to 504 registers in all.
template <int N>
__device__ __forceinline__ void setmaxnreg_dec() {
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void setmaxnreg_inc() {
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// wgmma_fence orders register accesses before a group of wgmma, wgmma_commit closes the group,
// wgmma_wait<N> waits until at most N groups are in flight. keep_accumulators pins the
// accumulators, so that the compiler does not use them earlier.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int M>
__device__ __forceinline__ void keep_accumulators(float (&c)[M]) {
#pragma unroll
	for (int i = 0; i < M; i++) asm volatile("" : "+f"(c[i])::"memory");
}
template <int N, int M>
__device__ __forceinline__ void wgmma_wait(float (&c)[M]) {
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
	keep_accumulators(c);
}

// wgmma_wait_alt is wgmma_wait to the GPU and a different instruction to the compiler, so that
// it does not merge two of them; flash_wgmma.cu needs both.
template <int N, int M>
__device__ __forceinline__ void wgmma_wait_alt(float (&c)[M]) {
	asm volatile("wgmma.wait_group.sync.aligned %0; // too" ::"n"(N) : "memory");
	keep_accumulators(c);
}

#define WGMMA_10(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define WGMMA_32 WGMMA_10() ", " WGMMA_10(1) ", " WGMMA_10(2) ", %30, %31"
#define WGMMA_64 WGMMA_10() ", " WGMMA_10(1) ", " WGMMA_10(2) ", " WGMMA_10(3) ", " WGMMA_10(4) ", " WGMMA_10(5) ", %60, %61, %62, %63"
#define WGMMA_128                                                                                                       \
	WGMMA_10() ", " WGMMA_10(1) ", " WGMMA_10(2) ", " WGMMA_10(3) ", " WGMMA_10(4) ", " WGMMA_10(5) ", " WGMMA_10(6) \
		", " WGMMA_10(7) ", " WGMMA_10(8) ", " WGMMA_10(9) ", " WGMMA_10(10) ", " WGMMA_10(11) ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_C8(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3]), "+f"(c[i + 4]), "+f"(c[i + 5]), "+f"(c[i + 6]), "+f"(c[i + 7])
#define WGMMA_C32(c, i) WGMMA_C8(c, i), WGMMA_C8(c, i + 8), WGMMA_C8(c, i + 16), WGMMA_C8(c, i + 24)

// wgmma starts c += a·bᵀ, c [64, n] in f32: a [64, 16] and b [n, 16] in f16. n = 2·M for M
// accumulators a thread: warp w of the warpgroup has rows 16·w, in 8-column fragments as of
// mma_f16.
__device__ __forceinline__ void wgmma(float (&c)[128], SmemDesc a, SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" WGMMA_128 "}, %128, %129, 1, 1, 1, 0, 0;"
		: WGMMA_C32(c, 0), WGMMA_C32(c, 32), WGMMA_C32(c, 64), WGMMA_C32(c, 96) : "l"(a.bits()), "l"(b.bits()));
}

// A in registers, as of mma_f16. With ADD 0, c = a·bᵀ.
#define WGMMA_4 "%0, %1, %2, %3"
#define WGMMA_8 WGMMA_4 ", %4, %5, %6, %7"
#define WGMMA_16 WGMMA_10() ", %10, %11, %12, %13, %14, %15"
template <int ADD>
__device__ __forceinline__ void wgmma(float (&c)[4], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {" WGMMA_4 "}, {%4, %5, %6, %7}, %8, %9, 1, 1, 0;"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "n"(ADD));
}
template <int ADD>
__device__ __forceinline__ void wgmma(float (&c)[8], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {" WGMMA_8 "}, {%8, %9, %10, %11}, %12, %13, 1, 1, 0;"
		: WGMMA_C8(c, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "n"(ADD));
}
template <int ADD>
__device__ __forceinline__ void wgmma(float (&c)[16], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" WGMMA_16 "}, {%16, %17, %18, %19}, %20, %21, 1, 1, 0;"
		: WGMMA_C8(c, 0), WGMMA_C8(c, 8) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "n"(ADD));
}
template <int ADD>
__device__ __forceinline__ void wgmma(float (&c)[32], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WGMMA_32 "}, {%32, %33, %34, %35}, %36, %37, 1, 1, 0;"
		: WGMMA_C32(c, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "n"(ADD));
}
template <int ADD>
__device__ __forceinline__ void wgmma(float (&c)[64], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" WGMMA_64 "}, {%64, %65, %66, %67}, %68, %69, 1, 1, 0;"
		: WGMMA_C32(c, 0), WGMMA_C32(c, 32) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()), "n"(ADD));
}

// wgmma_tn is c += a·b with b [16, n] row-major (the transpose bit of the instruction), as V is.
__device__ __forceinline__ void wgmma_tn(float (&c)[32], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" WGMMA_32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
		: WGMMA_C32(c, 0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()));
}
__device__ __forceinline__ void wgmma_tn(float (&c)[64], const u32 a[4], SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" WGMMA_64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
		: WGMMA_C32(c, 0), WGMMA_C32(c, 32) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b.bits()));
}

#else

#define WGMMA 0

#endif
