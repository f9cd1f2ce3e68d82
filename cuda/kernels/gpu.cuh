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
constexpr u32 ALL = 0xffffffffu;  // every lane of a warp

#ifdef GOLLM_EMU

#include "emu/emu.h"

#else

#define KERNEL(name, Args, threads) \
	extern "C" __global__ void __launch_bounds__(threads) gollm_##name(const __grid_constant__ Args a)

// SHARED is n elements of shared memory; nothing is in them at first.
#define SHARED(T, name, n) __shared__ T name[n]

// DYNAMIC is the shared memory that the launch asked for, on 16 bytes.
#define DYNAMIC(T, name)                                 \
	extern __shared__ __align__(16) unsigned char dynamic_[]; \
	T* name = reinterpret_cast<T*>(dynamic_)

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

#endif

// infinity and nan are as in IEEE 754.
__device__ __forceinline__ float infinity() { return __uint_as_float(0x7f800000u); }

// from_bfloat is the value of a bfloat16 number.
__device__ __forceinline__ float from_bfloat(u16 h) { return __uint_as_float((u32)h << 16); }

__device__ __forceinline__ int lane() { return threadIdx.x % WARP; }
__device__ __forceinline__ int warp() { return threadIdx.x / WARP; }

template <class T>
__device__ __forceinline__ T smaller(T a, T b) { return b < a ? b : a; }

template <class T>
__device__ __forceinline__ T larger(T a, T b) { return a < b ? b : a; }
