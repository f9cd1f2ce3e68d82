// CUDA's device language for a C++ compiler: the threads of a block run as fibers on one CPU
// thread. A fiber runs until it waits at a barrier or in a warp intrinsic; then another one is
// picked, the next in order, or a random one where the launch has a seed. With a seed, one warp
// of each block is starved, so that the others run ahead of it as far as barriers let them, and
// blocks run in random order.
//
// Undefined behaviour of a GPU stops the launch with a message: a barrier that some threads of
// the block do not reach, a warp intrinsic that some lanes do not execute, a misaligned access.
// Shared memory is filled with 0xff bytes (NaN) when a block starts.
//
// Blocks have one dimension. The blocks of a cluster are interleaved and can read each map_shared's
// shared memory.
#pragma once

#include <stdint.h>
#include <string.h>

#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __constant__ static const
#define __align__(n) alignas(n)

struct dim3 {
	unsigned x, y, z;
};

struct float2 {
	float x, y;
};

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace emu {

typedef void (*Call)(const void* args);

// Kernel registers a kernel in the list that emu_find searches.
struct Kernel {
	Kernel(const char* name, int size, int threads, Call call);
	const char* name;
	int size, threads;  // bytes of its arguments, most threads of a block
	Call call;
	Kernel* next;
};

// wait_block is __syncthreads.
void wait_block();

// cluster_wait is the barrier of a cluster, cluster_rank_of_block this block's cluster_rank_of_block, and
// map_shared translates an address of our shared memory to a peer's (mapa).
void cluster_wait();
int cluster_rank_of_block();
const void* map_shared(const void* at, int cluster_rank_of_block);

// named_barrier counts an arrival at a named barrier of n threads, and waits if it is bar.sync.
void named_barrier(int point, int n, bool wait);

// exchange is the base of warp intrinsics: it publishes 8 bytes of this lane and returns those
// of all lanes. Valid until the thread's next exchange but one.
const uint64_t* exchange(uint64_t word, const char* what);

// shared_at allocates a SHARED array of the block, identified by a key, with no more alignment
// than its element type has: a 16-byte access to an array of floats is caught.
void* shared_at(const void* key, size_t size, size_t align);

// dynamic is the dynamic shared memory of the launch.
void* dynamic();

// wait_mbarrier suspends the thread until wake_mbarrier is called for the same mbarrier.
void wait_mbarrier(const void* mbarrier);
void wake_mbarrier(const void* mbarrier);

// early says whether an asynchronous copy is executed when issued instead of when waited for:
// with a seed, a random half of them, so that both orders are tested.
bool early();

// tma_issue queues a TMA copy of 64 rows; whoever waits at its mbarrier executes it, so that a
// missing wait reads stale data. tma_pop takes one that is pending on an mbarrier.
struct TmaCopy {
	char* to;
	const char* from;
	uint64_t pitch;
	const void* mbarrier;
};
void tma_issue(const TmaCopy& b);
bool tma_pop(const void* mbarrier, TmaCopy& b);

// cp_async_issue queues a copy of 16 bytes (of zeros from NULL), unless it is executed early;
// cp_async_close closes the group, cp_async_drain executes all but the newest groups.
void cp_async_issue(void* to, const void* from);
void cp_async_close();
void cp_async_drain(int left);

// stop aborts the launch with a message.
[[noreturn]] void stop(const char* format, ...);

// aligned checks alignment; a misaligned access aborts the launch, as on a GPU.
inline const void* aligned(const void* at, int bytes) {
	if ((uint64_t)at % bytes) stop("CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address: %p is not on %d bytes", at, bytes);
	return at;
}

template <class A, class Key>
A& shared(Key) {
	static char key;  // one for each SHARED declaration
	return *(A*)shared_at(&key, sizeof(A), alignof(A));
}

template <class T>
uint64_t word(T v) {
	static_assert(sizeof(T) <= 8);
	uint64_t w = 0;
	memcpy(&w, &v, sizeof(T));
	return w;
}

template <class T>
T value(uint64_t w) {
	T v;
	memcpy(&v, &w, sizeof(T));
	return v;
}

}  // namespace emu

#define KERNEL(name, Args, threads)                                                            \
	static void name(const Args& a);                                                           \
	static emu::Kernel name##_(#name, sizeof(Args), threads, [](const void* p) { name(*(const Args*)p); }); \
	static void name(const Args& a)

#define KERNEL_1_PER_SM KERNEL
#define KERNEL_2_PER_SM(name, Args, threads) KERNEL(name, Args, threads)
#define KERNEL_4_PER_SM(name, Args, threads) KERNEL(name, Args, threads)

#define NOINLINE

#define ASSUME_ALIGNED_16(at) emu::aligned(at, 16)

#define SHARED(T, name, n) T(&name)[n] = emu::shared<T[n]>([] {})

#define DYNAMIC_SHARED(T, name) T* name = (T*)emu::dynamic()

inline void __syncthreads() { emu::wait_block(); }
inline void __syncwarp(unsigned = 0xffffffffu) { emu::exchange(0, "__syncwarp"); }

template <class T>
T __shfl_sync(unsigned, T v, int src) {
	return emu::value<T>(emu::exchange(emu::word(v), "__shfl_sync")[src & 31]);
}
template <class T>
T __shfl_xor_sync(unsigned, T v, int mask) {
	return emu::value<T>(emu::exchange(emu::word(v), "__shfl_xor_sync")[(threadIdx.x ^ mask) & 31]);
}
template <class T>
T __shfl_up_sync(unsigned, T v, unsigned by) {
	const uint64_t* all = emu::exchange(emu::word(v), "__shfl_up_sync");
	unsigned at = threadIdx.x & 31;
	return emu::value<T>(all[at >= by ? at - by : at]);
}
template <class T>
T __shfl_down_sync(unsigned, T v, unsigned by) {
	const uint64_t* all = emu::exchange(emu::word(v), "__shfl_down_sync");
	unsigned at = threadIdx.x & 31;
	return emu::value<T>(all[at + by < 32 ? at + by : at]);
}
inline unsigned __ballot_sync(unsigned, int p) {
	const uint64_t* all = emu::exchange(p != 0, "__ballot_sync");
	unsigned bits = 0;
	for (int i = 0; i < 32; i++) bits |= (unsigned)all[i] << i;
	return bits;
}
inline int __any_sync(unsigned m, int p) { return __ballot_sync(m, p) != 0; }
inline int __all_sync(unsigned m, int p) { return __ballot_sync(m, p) == 0xffffffffu; }

template <class T>
T atomicAdd(T* at, T v) {
	T old = *at;
	*at = old + v;
	return old;
}
template <class T>
T atomicMax(T* at, T v) {
	T old = *at;
	if (old < v) *at = v;
	return old;
}
template <class T>
T atomicOr(T* at, T v) {
	T old = *at;
	*at = old | v;
	return old;
}
template <class T>
T atomicCAS(T* at, T want, T v) {
	T old = *at;
	if (old == want) *at = v;
	return old;
}
inline void __threadfence() {}

inline unsigned __float_as_uint(float f) { return emu::value<unsigned>(emu::word(f)); }
inline float __uint_as_float(unsigned u) { return emu::value<float>(u); }
inline long long __double_as_longlong(double f) { return emu::value<long long>(emu::word(f)); }
inline double __longlong_as_double(long long u) { return emu::value<double>(u); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(unsigned x) { return x ? __builtin_clz(x) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline float rsqrtf(float x) { return 1 / sqrtf(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }

// Launches run one after the other, so PDL, L1 coherence and prefetch need nothing.
inline uint32_t warp_add(uint32_t v) {
	const uint64_t* all = emu::exchange(v, "add_warp");
	uint32_t sum = 0;
	for (int i = 0; i < 32; i++) sum += (uint32_t)all[i];
	return sum;
}
inline uint32_t warp_max(uint32_t v) {
	const uint64_t* all = emu::exchange(v, "top_warp");
	uint32_t top = 0;
	for (int i = 0; i < 32; i++) {
		if ((uint32_t)all[i] > top) top = (uint32_t)all[i];
	}
	return top;
}
inline void prefetch_l2(const void*) {}
inline void keep_in_register(unsigned&) {}
inline float ld_cg(const float* at) { return *at; }
inline void ld_cg4(float v[4], const float* at) { memcpy(v, ASSUME_ALIGNED_16(at), 16); }
inline void ld_stream4(uint32_t v[4], const void* at) { memcpy(v, ASSUME_ALIGNED_16(at), 16); }
inline void pdl_wait() {}
inline void pdl_trigger() {}

// __byte_perm picks bytes of y and x by the nibbles of s.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
	uint64_t both = x | (uint64_t)y << 32;
	unsigned r = 0;
	for (int i = 0; i < 4; i++) r |= (unsigned)(both >> (s >> 4 * i & 7) * 8 & 255) << 8 * i;
	return r;
}

// __dp4a is c plus the products of four signed bytes.
inline int __dp4a(int a, int b, int c) {
	for (int i = 0; i < 32; i += 8) c += (int)(int8_t)(a >> i) * (int8_t)(b >> i);
	return c;
}

inline float fast_div(float a, float b) { return a / b; }
inline float max_nan(float a, float b) { return a != a ? a : b != b ? b : a < b ? b : a; }

// dp4a_u8s8 is c plus the dot product of four unsigned and four signed bytes.
inline int dp4a_u8s8(unsigned a, unsigned b, int c) {
	for (int i = 0; i < 32; i += 8) c += (int)(uint8_t)(a >> i) * (int8_t)(b >> i);
	return c;
}

inline float from_half(uint16_t h) {
	unsigned sign = (unsigned)(h & 0x8000) << 16, exp = h >> 10 & 31, frac = h & 0x3ff;
	if (exp == 0) {
		float f = (float)frac * 0x1p-24f;
		return sign ? -f : f;
	}
	return __uint_as_float(exp == 31 ? sign | 0x7f800000u | frac << 13 : sign | (exp + 112) << 23 | frac << 13);
}

inline uint16_t to_half(float f) {
	unsigned b = __float_as_uint(f), sign = b >> 16 & 0x8000;
	b &= 0x7fffffff;
	if (b > 0x7f800000) return 0x7fff;
	if (b >= 0x477ff000) return sign | 0x7c00;
	if (b < 0x38800000) return sign | (uint16_t)nearbyintf(__uint_as_float(b) * 0x1p24f);
	b += 0xfff + (b >> 13 & 1);
	return sign | (b >> 13) - (112 << 10);
}

inline uint32_t pack_half(float lo, float hi) { return to_half(lo) | (uint32_t)to_half(hi) << 16; }

inline void ldmatrix_x4(uint32_t r[4], const void* row) {
	const uint64_t* rows = emu::exchange((uint64_t)row, "load_matrices");
	int l = threadIdx.x & 31;
	for (int i = 0; i < 4; i++) {
		memcpy(&r[i], (const char*)ASSUME_ALIGNED_16((const void*)rows[i * 8 + l / 4]) + 4 * (l % 4), 4);
	}
}

inline void ldmatrix_x4_trans(uint32_t r[4], const void* row) {
	const uint64_t* rows = emu::exchange((uint64_t)row, "load_transposed");
	int l = threadIdx.x & 31;
	for (int i = 0; i < 4; i++) {
		const uint16_t* lo = (const uint16_t*)ASSUME_ALIGNED_16((const void*)rows[i * 8 + 2 * (l % 4)]) + l / 4;
		const uint16_t* hi = (const uint16_t*)ASSUME_ALIGNED_16((const void*)rows[i * 8 + 2 * (l % 4) + 1]) + l / 4;
		r[i] = *lo | (uint32_t)*hi << 16;
	}
}

inline uint32_t movmatrix_trans(uint32_t v) {
	const uint64_t* all = emu::exchange(v, "transposed");
	int l = threadIdx.x & 31, from = l % 4 * 8 + l / 8, half = l / 4 % 2 * 16;
	return (uint32_t)(all[from] >> half & 0xffff) | (uint32_t)(all[from + 4] >> half & 0xffff) << 16;
}

// Copies are executed when waited for, so that a missing wait reads stale data, or, if early,
// when issued, so that an overwrite of a stage still being read is caught.
inline void cp_async(void* to, const void* from) {
	emu::cp_async_issue((void*)ASSUME_ALIGNED_16(to), ASSUME_ALIGNED_16(from));
}
inline void cp_async_stream(void* to, const void* from) { cp_async(to, from); }
inline void cp_async_zfill(void* to, const void* from, bool there) {
	emu::cp_async_issue((void*)ASSUME_ALIGNED_16(to), there ? ASSUME_ALIGNED_16(from) : nullptr);
}
inline void cp_async_commit() { emu::cp_async_close(); }
template <int N>
void cp_async_wait() {
	emu::cp_async_drain(N);
}

inline int cluster_rank() { return emu::cluster_rank_of_block(); }
inline void cluster_sync() { emu::cluster_wait(); }
inline float dsmem_load(const float* at, int cluster_rank_of_block) { return *(const float*)emu::map_shared(at, cluster_rank_of_block); }
inline uint32_t dsmem_load(const uint32_t* at, int cluster_rank_of_block) { return *(const uint32_t*)emu::map_shared(at, cluster_rank_of_block); }
inline void dsmem_or(uint32_t* at, uint32_t bits, int cluster_rank_of_block) { *(uint32_t*)emu::map_shared(at, cluster_rank_of_block) |= bits; }
inline void dsmem_load4(float v[4], const float* at, int cluster_rank_of_block) { memcpy(v, emu::map_shared(ASSUME_ALIGNED_16(at), cluster_rank_of_block), 16); }

inline void named_barrier_sync(int point, int n) { emu::named_barrier(point, n, true); }
inline void named_barrier_arrive(int point, int n) { emu::named_barrier(point, n, false); }

inline float exp2_ftz(float x) { return exp2f(x); }

// bfloat16 conversions.
namespace emu {
inline float from_bf16(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
inline uint16_t to_bf16(float f) {
	unsigned b = __float_as_uint(f);
	if ((b & 0x7fffffff) > 0x7f800000) return 0x7fff;
	return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
}  // namespace emu

inline uint32_t pack_bfloat(float lo, float hi) { return emu::to_bf16(lo) | (uint32_t)emu::to_bf16(hi) << 16; }

inline uint32_t hadd2_rn(uint32_t x, uint32_t y) {
	return pack_half(from_half((uint16_t)x) + from_half((uint16_t)y), from_half((uint16_t)(x >> 16)) + from_half((uint16_t)(y >> 16)));
}
inline uint32_t hmul2_rn(uint32_t x, uint32_t y) {
	return pack_half(from_half((uint16_t)x) * from_half((uint16_t)y), from_half((uint16_t)(x >> 16)) * from_half((uint16_t)(y >> 16)));
}
inline uint32_t hfma2_rn(uint32_t x, uint32_t y, uint32_t z) {
	auto one = [](uint32_t x, uint32_t y, uint32_t z) { return from_half((uint16_t)x) * from_half((uint16_t)y) + from_half((uint16_t)z); };
	return pack_half(one(x, y, z), one(x >> 16, y >> 16, z >> 16));
}

namespace emu {

// mma gathers the fragments of A and B from the lanes and accumulates the lane's four elements
// in the order of k. value converts 16 bits to float.
template <class Value>
void mma(float c[4], const uint32_t a[4], const uint32_t b[2], Value value) {
	float x[16][16], y[16][8];
	for (int half = 0; half < 3; half++) {
		uint32_t lo = half < 2 ? a[2 * half] : b[0], hi = half < 2 ? a[2 * half + 1] : b[1];
		const uint64_t* all = exchange(lo | (uint64_t)hi << 32, "multiply_add");
		for (int l = 0; l < 32; l++) {
			for (int i = 0; i < 4; i++) {
				float v = value((uint16_t)(all[l] >> 16 * i));
				int k = 2 * (l % 4) + i % 2;
				if (half < 2)
					x[l / 4 + i / 2 * 8][k + half * 8] = v;
				else
					y[k + i / 2 * 8][l / 4] = v;
			}
		}
	}
	int l = threadIdx.x & 31;
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 16; k++) c[i] += x[l / 4 + i / 2 * 8][k] * y[k][2 * (l % 4) + i % 2];
	}
}

}  // namespace emu

inline void mma_u8s8(int c[4], const uint32_t a[4], const uint32_t b[2]) {
	uint8_t x[16][32];
	int8_t y[32][8];
	for (int half = 0; half < 3; half++) {
		uint32_t lo = half < 2 ? a[2 * half] : b[0], hi = half < 2 ? a[2 * half + 1] : b[1];
		const uint64_t* all = emu::exchange(lo | (uint64_t)hi << 32, "multiply_add");
		for (int l = 0; l < 32; l++) {
			for (int i = 0; i < 8; i++) {
				uint8_t v = (uint8_t)(all[l] >> 8 * i);
				int k = 4 * (l % 4) + i % 4;
				if (half < 2)
					x[l / 4 + i / 4 * 8][k + half * 16] = v;
				else
					y[k + i / 4 * 16][l / 4] = (int8_t)v;
			}
		}
	}
	int l = threadIdx.x & 31;
	for (int i = 0; i < 4; i++) {
		for (int k = 0; k < 32; k++) c[i] += (int)x[l / 4 + i / 2 * 8][k] * y[k][2 * (l % 4) + i % 2];
	}
}

inline void mma_f16(float c[4], const uint32_t a[4], const uint32_t b[2]) { emu::mma(c, a, b, from_half); }
inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2]) { emu::mma(c, a, b, emu::from_bf16); }
