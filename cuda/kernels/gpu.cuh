// What every kernel is written in: short names for the integers, how a kernel
// and its shared memory are declared, and the few instructions that have no name
// in C++. Compiled by nvcc this is CUDA; compiled by a C++ compiler with
// GOLLM_EMU, emu/emu.h supplies the same names.
//
// A kernel takes one struct by value whose fields are all 8 bytes wide, so that
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
constexpr u32 FULL_MASK = 0xffffffffu;  // every lane of a warp

#ifdef GOLLM_EMU

#include "emu/emu.h"

#else

#define KERNEL(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads) gollm_##name(const __grid_constant__ Args a)

// KERNEL_ALONE is a kernel of which a multiprocessor runs one block.
#define KERNEL_1_PER_SM(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 1) gollm_##name(const __grid_constant__ Args a)

// KERNEL_TWICE is a KERNEL of which a multiprocessor can hold two blocks of threads
// threads, so that the next launch moves in beside one that still runs.
#define KERNEL_2_PER_SM(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 2) gollm_##name(const __grid_constant__ Args a)

// KERNEL_FOUR is a KERNEL of which a multiprocessor can hold four blocks of threads threads.
#define KERNEL_4_PER_SM(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads, 4) gollm_##name(const __grid_constant__ Args a)

// APART keeps the instructions of a function out of its callers.
#define NOINLINE __noinline__

// SHARED is n elements of shared memory; nothing is in them at first.
#define SHARED(T, name, n) __shared__ T name[n]

// DYNAMIC is the shared memory that the launch asked for, on 16 bytes.
extern __shared__ __align__(16) unsigned char dynamic_[];
#define DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(dynamic_)

// ON16 is an address that is on 16 bytes.
#define ASSUME_ALIGNED_16(at) __builtin_assume_aligned(at, 16)

// from_half is the value of a half precision number.
__device__ __forceinline__ float from_half(u16 h) {
	float f;
	asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
	return f;
}

// to_half rounds to half precision, ties to even.
__device__ __forceinline__ u16 to_half(float f) {
	u16 h;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
	return h;
}

// pack_half rounds two numbers to half precision, lo into the lower half.
__device__ __forceinline__ u32 pack_half(float lo, float hi) {
	u32 v;
	asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
	return v;
}

// pack_bfloat is pack_half of bfloat16.
__device__ __forceinline__ u32 pack_bfloat(float lo, float hi) {
	u32 v;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(hi), "f"(lo));
	return v;
}

// Sums and products of two numbers of half precision each, rounded once.
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

// dot4 is c plus the products of four bytes without signs and four with signs.
__device__ __forceinline__ int dp4a_u8s8(u32 a, u32 b, int c) {
	int d;
	asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
	return d;
}

// keep has a number held in a register where it would be computed again for each use.
__device__ __forceinline__ void keep_in_register(u32& v) { asm volatile("" : "+r"(v)); }

// load_matrices gives each lane its part of four 8 x 8 matrices of halves in
// shared memory: lane 8i + j says where row j of matrix i starts, and lane l gets
// elements 2(l%4) and 2(l%4)+1 of row l/4 of each.
__device__ __forceinline__ void ldmatrix_x4(u32 r[4], const void* row) {
	u32 at = (u32)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// load_transposed is load_matrices of the transposed matrices.
__device__ __forceinline__ void ldmatrix_x4_trans(u32 r[4], const void* row) {
	u32 at = (u32)__cvta_generic_to_shared(row);
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}

// transposed is a lane's two elements of row lane/4 of the transposed of an 8 x 8 matrix of
// halves, of which each lane gives those of row lane/4 from 2(l%4) on.
__device__ __forceinline__ u32 movmatrix_trans(u32 v) {
	u32 r;
	asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(v));
	return r;
}

// copy_async begins to copy 16 bytes to shared memory; copy_async_if zeroes them
// where nothing is there. What a thread began before copy_commit is one group;
// copy_wait<N> waits until at most N groups are left.
__device__ __forceinline__ void cp_async(void* to, const void* from) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void cp_async_zfill(void* to, const void* from, bool there) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ __forceinline__ void cp_async_wait() {
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// meet waits until n threads of the block have come to a point with a number, 1 to 15:
// those that wait there, and those that arrive and go on. Warps come as a whole.
__device__ __forceinline__ void named_barrier_sync(int point, int n) { asm volatile("bar.sync %0, %1;" ::"r"(point), "r"(n) : "memory"); }
__device__ __forceinline__ void named_barrier_arrive(int point, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(point), "r"(n) : "memory"); }

// Blocks that are launched together, some of the same x and y: which of them this is, what
// waits for all of their threads, and reading what lies at an address of shared memory in
// another one, which must not return before.
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
__device__ __forceinline__ void dsmem_load4(float v[4], const float* at, int rank) {
#if __CUDA_ARCH__ >= 900
	asm volatile("{\n\t.reg .b32 there;\n\tmapa.shared::cluster.u32 there, %4, %5;\n\tld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n\t}" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "r"((u32)__cvta_generic_to_shared(at)), "r"(rank) : "memory");
#endif
}

// power2 is 2 to the x, 0 where that is less than any normal number.
__device__ __forceinline__ float exp2_ftz(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// about is a quotient, but for the last bits.
__device__ __forceinline__ float fast_div(float a, float b) { return __fdividef(a, b); }

// top_of is the larger number, and none if one of them is none.
__device__ __forceinline__ float max_nan(float a, float b) {
	float y;
	asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
	return y;
}

// prefetch asks for the line of an address in the second-level cache.
__device__ __forceinline__ void prefetch_l2(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// fresh reads past the first-level cache, which may hold what was there before the
// kernels before; four of it on 16 bytes.
__device__ __forceinline__ float ld_cg(const float* at) {
	float v;
	asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(v) : "l"(at) : "memory");
	return v;
}
__device__ __forceinline__ void ld_cg4(float v[4], const float* at) {
	asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]) : "l"(at) : "memory");
}

// add_warp is the sum of v over the warp, top_warp the largest.
__device__ __forceinline__ u32 warp_add(u32 v) { return __reduce_add_sync(FULL_MASK, v); }
__device__ __forceinline__ u32 warp_max(u32 v) { return __reduce_max_sync(FULL_MASK, v); }

// A kernel that is launched ahead starts while the one before it still runs: what
// that one writes is there after wait_before, which every thread calls before it
// reads or writes anything but weights. let_next lets the next such launch start.
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

// multiply_add is c += a·b on tensor cores: a [16, 16] and b [16, 8] of halves, c
// [16, 8] of floats, spread over the warp as PTX has it for mma.m16n8k16.
__device__ __forceinline__ void mma_f16(float c[4], const u32 a[4], const u32 b[2]) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// multiply_add_bfloat is multiply_add of bfloat16.
__device__ __forceinline__ void mma_bf16(float c[4], const u32 a[4], const u32 b[2]) {
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

#endif

// infinity is that of IEEE 754.
__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// from_bfloat is the value of a bfloat16 number.
__device__ __forceinline__ float from_bfloat(u16 h) { return __uint_as_float((u32)h << 16); }

__device__ __forceinline__ int lane() { return threadIdx.x % WARP; }
__device__ __forceinline__ int warp() { return threadIdx.x / WARP; }

template <class T>
__device__ __forceinline__ T min_of(T a, T b) { return b < a ? b : a; }

template <class T>
__device__ __forceinline__ T max_of(T a, T b) { return a < b ? b : a; }
