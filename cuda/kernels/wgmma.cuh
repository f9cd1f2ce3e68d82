// The matrix instructions of compute capability 9.0, wgmma, by which four warps
// multiply a matrix of 64 rows in shared memory or registers with one in shared
// memory. They exist in code for sm_90a alone, where WIDE is 1; the kernels that use
// them are empty elsewhere, and the host, which looks for wide_there, does not launch them.
//
// A matrix in shared memory consists of panels of 64 halves, 128 bytes, a row. The 8
// pieces of 16 bytes of row r change places: piece c lies at place c ^ r%8, and the
// panel starts on 1024 bytes. So no two rows of 8 meet in a bank.
#pragma once

#include "gpu.cuh"

#if defined(GOLLM_EMU)

#define WGMMA 1
#include "emu/wgmma.h"

#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)

#define WGMMA 1

// gollm_wide_there is in code for sm_90a alone; nobody launches it.
extern "C" __global__ void gollm_wgmma_probe() {}

// DYNAMIC_WIDE is DYNAMIC on 1024 bytes.
extern __shared__ __align__(1024) unsigned char dynamic_1024_[];
#define DYNAMIC_SHARED_1024(T, name) T* name = reinterpret_cast<T*>(dynamic_1024_)

// WideMatrix is a matrix in shared memory as the instructions take it.
struct SmemDesc {
	u32 low, high;

	// from is the matrix that starts some bytes later.
	__device__ __forceinline__ SmemDesc from(int bytes) const { return {low + (u32)(bytes >> 4), high}; }
	// same is from, which is the same for all lanes; so the compiler knows it.
	__device__ __forceinline__ SmemDesc same(int bytes) const { return {__shfl_sync(FULL_MASK, low + (u32)(bytes >> 4), 0), high}; }
	__device__ __forceinline__ u64 bits() const { return (u64)high << 32 | low; }
};

// wide_at is a matrix whose groups of 8 rows are stride bytes apart. Where it is
// read transposed, lead is the bytes from one panel to the next.
__device__ __forceinline__ SmemDesc smem_desc(const void* at, int lead, int stride) {
	u32 address = (u32)__cvta_generic_to_shared(at);
	return SmemDesc{(address & 0x3ffff) >> 4 | (u32)(lead >> 4) << 16, (u32)(stride >> 4) | 1u << 30}.same(0);
}

// wide_written makes what this thread wrote to shared memory known to the
// instructions; a barrier follows.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A Gate in shared memory opens each time that as many threads have come as
// gate_make says, which one thread calls; a barrier follows. gate_pass waits until it
// has opened once more than an even number of times, with odd 1 than an odd number; a
// gate that never opened passes who comes with 1.
typedef u64 Mbarrier;
__device__ __forceinline__ u32 mbarrier_address(const Mbarrier* g) { return (u32)__cvta_generic_to_shared(g); }
__device__ __forceinline__ void mbarrier_init(Mbarrier* g, int n) {
	asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(mbarrier_address(g)), "r"(n) : "memory");
	asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* g) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(mbarrier_address(g)) : "memory"); }
__device__ __forceinline__ void mbarrier_wait(Mbarrier* g, u32 odd) {
	asm volatile(
		"{\n"
		".reg .pred open;\n"
		"again:\n"
		"mbarrier.try_wait.parity.shared::cta.b64 open, [%0], %1;\n"
		"@!open bra again;\n"
		"}" ::"r"(mbarrier_address(g)), "r"(odd) : "memory");
}

// A WideMap says where the GPU finds a matrix of halves in memory: the driver writes it.
struct alignas(64) TensorMap {
	u64 words[16];
};

// gate_expect is gate_come, and has the gate wait for some bytes besides. wide_bring
// begins to copy 64 columns of 64 rows of a matrix to a panel, and tells the gate.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier* g, int bytes) {
	asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(mbarrier_address(g)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void tma_load_2d(void* to, const TensorMap& map, int column, int row, Mbarrier* g) {
	asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"((u32)__cvta_generic_to_shared(to)),
		"l"(&map), "r"(column), "r"(row), "r"(mbarrier_address(g)) : "memory");
}

// wide_shrink gives back registers but for N, wide_grow takes as many as N: four warps
// do one of them together in a block of 384 threads, where one group shrinks and two
// grow, to 504 in all.
template <int N>
__device__ __forceinline__ void setmaxnreg_dec() {
	asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
__device__ __forceinline__ void setmaxnreg_inc() {
	asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

// wide_begin comes before the first of some products, wide_commit after the last.
// wide_wait<N> waits until at most N such sets are left, and hands out what they
// wrote. wide_keep has numbers made before what follows it.
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

// wide_wait_too is wide_wait to the GPU, and to the compiler another instruction.
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

// wide_multiply begins c += a·bᵀ: a [64, 16], b [n, 16], c [64, n] spread over the
// four warps, n = 2·M: warp w has rows 16·w, and of these 8 columns at a time as
// multiply_add does.
__device__ __forceinline__ void wgmma(float (&c)[128], SmemDesc a, SmemDesc b) {
	asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" WGMMA_128 "}, %128, %129, 1, 1, 1, 0, 0;"
		: WGMMA_C32(c, 0), WGMMA_C32(c, 32), WGMMA_C32(c, 64), WGMMA_C32(c, 96) : "l"(a.bits()), "l"(b.bits()));
}

// With a in registers, as multiply_add has it. With ADD 0 it is c = a·bᵀ.
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

// wide_multiply_rows is c += a·b: b [16, n], a row of k each.
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
