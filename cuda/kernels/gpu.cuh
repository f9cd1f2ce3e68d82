// The dialect that all kernels are written in: short integer types, macros that declare
// kernels and shared memory, and wrappers of PTX instructions that CUDA C++ has no name for.
// nvcc compiles it as CUDA; with GOLLM_EMU a C++ compiler takes the same names from
// emu/emu.h.
//
// A kernel takes one __grid_constant__ struct whose fields are all 8 bytes wide, so that
// the host fills it as an array of words; see args.cuh.
#pragma once

#include <math.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef double f64;

constexpr int WARP = 32;
constexpr u32 FULL_MASK = 0xffffffffu;  // all lanes of a warp
constexpr int MAX_CLUSTER = 8;          // blocks of a cluster that every GPU with clusters takes

#ifdef GOLLM_EMU

#include "emu/emu.h"

#else

#define KERNEL(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads) gollm_##name(const __grid_constant__ Args a)

// KERNEL_1_PER_SM and its siblings set the minimum occupancy, in blocks per SM, that registers
// are allocated for. At two, a programmatic dependent launch can become resident on an SM
// while the preceding grid still runs there.
#define KERNEL_1_PER_SM(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 1) gollm_##name(const __grid_constant__ Args a)

#define KERNEL_2_PER_SM(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 2) gollm_##name(const __grid_constant__ Args a)

#define KERNEL_4_PER_SM(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 4) gollm_##name(const __grid_constant__ Args a)

// NOINLINE keeps a function from being inlined.
#define NOINLINE __noinline__

// SHARED declares a static array of n elements in shared memory, uninitialized.
#define SHARED(T, name, n) __shared__ T name[n]

// DYNAMIC_SHARED is the dynamic shared memory of the launch, aligned to 16 bytes.
extern __shared__ __align__(16) unsigned char dynamic_[];
#define DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(dynamic_)

// ASSUME_ALIGNED_16 promises 16-byte alignment, for vector loads and stores.
#define ASSUME_ALIGNED_16(at) __builtin_assume_aligned(at, 16)

// from_half converts from f16.
__device__ __forceinline__ float from_half(u16 h) {
	float f;
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}

// to_half converts to f16, round to nearest even.
__device__ __forceinline__ u16 to_half(float f) {
	u16 h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
}

// pack_half converts two floats to f16x2, lo in the lower half.
__device__ __forceinline__ u32 pack_half(float lo, float hi) {
	u32 v;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
	return v;
}

// pack_bfloat converts two floats to bf16x2.
__device__ __forceinline__ u32 pack_bfloat(float lo, float hi) {
	u32 v;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
	return v;
}

// f16x2 arithmetic, rounded to nearest even (__hadd2 and its siblings of cuda_fp16.h, which
// is not included for the sake of compile time).
__device__ __forceinline__ u32 hadd2_rn(u32 x, u32 y) {
	u32 v;
	asm("add.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(x), "r"(y));
	return v;
}
__device__ __forceinline__ u32 hmul2_rn(u32 x, u32 y) {
	u32 v;
	asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(v) : "r"(x), "r"(y));
	return v;
}
__device__ __forceinline__ u32 hfma2_rn(u32 x, u32 y, u32 z) {
	u32 v;
	asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(v) : "r"(x), "r"(y), "r"(z));
	return v;
}

// dp4a_u8s8 is c plus the dot product of four unsigned and four signed bytes.
__device__ __forceinline__ int dp4a_u8s8(u32 a, u32 b, int c) {
	int d;
	asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

// keep_in_register stops the compiler from rematerializing a value at each of its uses.
__device__ __forceinline__ void keep_in_register(u32& v) { asm volatile("" : "+r"(v)); }

// ldmatrix_x4 loads four 8 x 8 f16 matrices from shared memory as mma fragments: lane 8i + j
// passes the address of row j of matrix i; lane l receives elements 2(l%4) and 2(l%4)+1 of
// row l/4 of each.
__device__ __forceinline__ void ldmatrix_x4(u32 r[4], const void* row) {
	u32 at = (u32)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// ldmatrix_x4_trans is ldmatrix_x4 with each matrix transposed.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 r[4], const void* row) {
	u32 at = (u32)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// movmatrix_trans transposes an 8 x 8 f16 matrix held as a fragment across the warp.
__device__ __forceinline__ u32 movmatrix_trans(u32 v) {
	u32 r;
	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
	return r;
}

// Asynchronous copies of 16 bytes to shared memory that bypass L1 (cp.async.cg);
// cp_async_zfill writes zeros where the source is absent. cp_async_commit closes a group,
// cp_async_wait<N> waits until at most N groups of this thread are in flight.
__device__ __forceinline__ void cp_async(void* to, const void* from) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
// cp_async_stream is cp_async of what is read once: the first to leave L2.
__device__ __forceinline__ void cp_async_stream(void* to, const void* from) {
	u64 policy;
	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "l"(policy) : "memory");
}
__device__ __forceinline__ void cp_async_zfill(void* to, const void* from, bool there) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_async_wait() {
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Named barriers 1 to 15 over n threads of the block, whole warps: named_barrier_sync arrives
// and waits, named_barrier_arrive only arrives.
__device__ __forceinline__ void named_barrier_sync(int point, int n) { asm volatile("bar.sync %0, %1;" ::"r"(point), "r"(n) : "memory"); }
__device__ __forceinline__ void named_barrier_arrive(int point, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(point), "r"(n) : "memory"); }

// Thread-block clusters and distributed shared memory: the rank of this block, a barrier over
// all threads of the cluster, and loads from a peer's shared memory at the address that a
// variable has in ours. A block must not exit before its peers have read from it: cluster_sync.
__device__ __forceinline__ int cluster_rank() {
	u32 rank = 0;
#if __CUDA_ARCH__ >= 900
	asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#endif
	return (int)rank;
}
__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
	asm volatile("barrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;" ::: "memory");
#endif
}
__device__ __forceinline__ float dsmem_load(const float* at, int rank) {
	float v = 0;
#if __CUDA_ARCH__ >= 900
	asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %1, %2;\n\tld.shared::cluster.f32 %0, [there];\n\t}" : "=f"(v) : "r"((u32)__cvta_generic_to_shared(at)), "r"(rank) : "memory");
#endif
	return v;
}
__device__ __forceinline__ u32 dsmem_load(const u32* at, int rank) {
	u32 v = 0;
#if __CUDA_ARCH__ >= 900
	asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %1, %2;\n\tld.shared::cluster.u32 %0, [there];\n\t}" : "=r"(v) : "r"((u32)__cvta_generic_to_shared(at)), "r"(rank) : "memory");
#endif
	return v;
}
__device__ __forceinline__ void dsmem_load4(float v[4], const float* at, int rank) {
#if __CUDA_ARCH__ >= 900
	asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %4, %5;\n\tld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n\t}" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"((u32)__cvta_generic_to_shared(at)), "r"(rank) : "memory");
#endif
}

// dsmem_or sets bits of a word of a peer's shared memory; the next barrier of the cluster makes them visible.
__device__ __forceinline__ void dsmem_or(u32* at, u32 bits, int rank) {
#if __CUDA_ARCH__ >= 900
	asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %0, %2;\n\tred.relaxed.cluster.shared::cluster.or.b32 [there], %1;\n\t}" ::"r"((u32)__cvta_generic_to_shared(at)), "r"(bits), "r"(rank) : "memory");
#endif
}

// exp2_ftz is 2^x by the special function unit, subnormal results flushed to zero.
__device__ __forceinline__ float exp2_ftz(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// fast_div is an approximate quotient (2 ulp for divisors up to 2^126).
__device__ __forceinline__ float fast_div(float a, float b) { return __fdividef(a, b); }

// max_nan is the maximum, NaN if either operand is NaN.
__device__ __forceinline__ float max_nan(float a, float b) {
	float y;
	asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
	return y;
}

// prefetch_l2 prefetches a cache line into L2.
__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// ld_cg loads from L2, bypassing L1. An early launch may share an SM with its predecessor,
// whose L1 lines may hold what was there before that one wrote. ld_cg4 needs 16-byte
// alignment.
__device__ __forceinline__ float ld_cg(const float* at) {
	float v;
	asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
	return v;
}
__device__ __forceinline__ void ld_cg4(float v[4], const float* at) {
	asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "l"(at) : "memory");
}

// ld_stream4 loads 16 bytes that are read once: not kept in L1, and the first to leave L2, so that
// what is read again stays there.
__device__ __forceinline__ void ld_stream4(u32 v[4], const void* at) {
	u64 policy;
	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;" : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "l"(at), "l"(policy));
}

// Sum and maximum of v over the warp, as one instruction (redux.sync).
__device__ __forceinline__ u32 warp_add(u32 v) { return __reduce_add_sync(FULL_MASK, v); }
__device__ __forceinline__ u32 warp_max(u32 v) { return __reduce_max_sync(FULL_MASK, v); }

// Programmatic dependent launch: pdl_wait blocks until the preceding grids are complete and
// their writes visible; every thread calls it before it touches anything that they write, or
// writes what they read. Weights, and what the host wrote, may be read earlier. pdl_trigger
// allows the dependent grid to be scheduled; it guarantees nothing about visibility.
__device__ __forceinline__ void pdl_wait() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void pdl_trigger() {
#if __CUDA_ARCH__ >= 900
	asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// mma_f16 is c += a·b on tensor cores, mma.m16n8k16: a [16, 16] and b [16, 8] in f16, c
// [16, 8] in f32, fragments laid out across the warp as the PTX manual has them.
__device__ __forceinline__ void mma_f16(float c[4], const u32 a[4], const u32 b[2]) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mma_bf16 is mma_f16 for bfloat16.
__device__ __forceinline__ void mma_bf16(float c[4], const u32 a[4], const u32 b[2]) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// mma_u8s8 is c += a·b of integers, mma.m16n8k32: a [16, 32] of unsigned bytes, b [32, 8] of
// signed ones, c [16, 8] in i32. Exact, so that the order of k is free.
__device__ __forceinline__ void mma_u8s8(int c[4], const u32 a[4], const u32 b[2]) {
	asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

constexpr float LOG2_E = 1.4426950408889634f;  // log2(e)

// infinity is IEEE 754 +inf.
__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// from_bfloat converts from bfloat16.
__device__ __forceinline__ float from_bfloat(u16 h) { return __uint_as_float((u32)h << 16); }

__device__ __forceinline__ int lane() { return threadIdx.x % WARP; }
__device__ __forceinline__ int warp() { return threadIdx.x / WARP; }

// min_of and max_of are not CUDA's min and max, whose overloads for floats drop a NaN: max_of
// keeps a first argument that is NaN.
template <class T>
__device__ __forceinline__ T min_of(T a, T b) { return b < a ? b : a; }

template <class T>
__device__ __forceinline__ T max_of(T a, T b) { return a < b ? b : a; }
