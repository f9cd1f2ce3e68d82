// The wrappers of wgmma.cuh for a C++ compiler. A wgmma is computed when it is issued, so a
// missing wgmma_wait goes unnoticed; layouts in shared memory are those of a GPU.
#pragma once

#include "emu.h"

#define DYNAMIC_SHARED_1024(T, name) DYNAMIC_SHARED(T, name)

struct SmemDesc {
	const char* at;
	int lead, stride;

	SmemDesc advance(int bytes) const { return {at + bytes, lead, stride}; }
	SmemDesc uniform(int bytes) const { return {__shfl_sync(0xffffffffu, at + bytes, 0), lead, stride}; }

	// half is the f16 at a byte offset from the start, with the 128-byte swizzle undone.
	float half(int offset) const {
		uint64_t p = (uint64_t)at + offset, base = (uint64_t)emu::dynamic();
		p = base + ((p - base) ^ ((p - base) >> 7 & 7) << 4);
		return from_half(*(const uint16_t*)p);
	}
	// of_rows is element k of row r of a matrix whose rows run along k.
	float of_rows(int r, int k) const { return half(r / 8 * stride + r % 8 * 128 + k * 2); }
	// of_columns is element n of row k of a matrix whose rows run along n.
	float of_columns(int n, int k) const { return half(n / 64 * lead + k / 8 * stride + k % 8 * 128 + n % 64 * 2); }
};

inline SmemDesc smem_desc(const void* at, int lead, int stride) {
	if (((uint64_t)at - (uint64_t)emu::dynamic()) % 1024) emu::stop("a matrix %llu bytes into shared memory", (unsigned long long)((uint64_t)at - (uint64_t)emu::dynamic()));
	return {(const char*)at, lead, stride};
}
inline void fence_proxy_async() {}

// An Mbarrier is its arrival count, the arrivals of this phase, the phase parity, and the bytes
// that the phase still waits for.
typedef uint64_t Mbarrier;
namespace emu {
struct GateState {
	uint8_t all, arrived;
	uint16_t odd;
	int32_t bytes;
};
inline GateState& state(Mbarrier* g) { return *(GateState*)g; }
inline void try_open(Mbarrier* g);
// tma_complete executes a TMA copy and completes its bytes.
inline void tma_complete(const TmaCopy& b, Mbarrier* g) {
	for (int r = 0; r < 64; r++) {
		for (int c = 0; c < 8; c++) memcpy(b.to + r * 128 + (c ^ r % 8) * 16, b.from + r * b.pitch + c * 16, 16);
	}
	state(g).bytes -= 64 * 128;
	try_open(g);
}
// tma_complete_all executes the TMA copies that are pending on an mbarrier.
inline void tma_complete_all(Mbarrier* g) {
	TmaCopy b;
	while (tma_pop(g, b)) tma_complete(b, g);
}
inline void try_open(Mbarrier* g) {
	GateState& s = state(g);
	if (s.arrived != s.all || s.bytes != 0) return;
	s.arrived = 0;
	s.odd ^= 1;
	wake_mbarrier(g);
}
}  // namespace emu
inline void mbarrier_init(Mbarrier* g, int n) { emu::state(g) = {(uint8_t)n, 0, 0, 0}; }
inline void mbarrier_arrive(Mbarrier* g) {
	emu::state(g).arrived++;
	emu::try_open(g);
}
inline void mbarrier_arrive_expect_tx(Mbarrier* g, int bytes) {
	emu::state(g).bytes += bytes;
	mbarrier_arrive(g);
}
inline void mbarrier_wait(Mbarrier* g, unsigned odd) {
	emu::tma_complete_all(g);
	while (emu::state(g).odd == odd) {
		emu::wait_mbarrier(g);
		emu::tma_complete_all(g);
	}
}

struct TensorMap {
	uint64_t words[16];  // address of the matrix, rows, columns
};

inline void tma_load_2d(void* to, const TensorMap& map, int column, int row, Mbarrier* g) {
	const char* from = (const char*)map.words[0];
	uint64_t rows = map.words[1], width = map.words[2];
	if (((uint64_t)to - (uint64_t)emu::dynamic()) % 1024) emu::stop("a panel %llu bytes into shared memory", (unsigned long long)((uint64_t)to - (uint64_t)emu::dynamic()));
	if (row < 0 || row + 64ull > rows || column < 0 || column + 64ull > width) emu::stop("64 rows from %d on and 64 columns from %d on of a matrix of %llu x %llu", row, column, (unsigned long long)rows, (unsigned long long)width);
	emu::TmaCopy b = {(char*)to, from + (row * width + column) * 2, width * 2, g};
	if (emu::early())
		emu::tma_complete(b, g);
	else
		emu::tma_issue(b);
}

template <int N>
void setmaxnreg_dec() {}
template <int N>
void setmaxnreg_inc() {}
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int M>
void keep_accumulators(float (&)[M]) {}
template <int N, int M>
void wgmma_wait(float (&)[M]) {}
template <int N, int M>
void wgmma_wait_alt(float (&)[M]) {}

namespace emu {

// wgmma_add accumulates a lane's part of its warp's 16 rows.
template <class A, class B, int M>
void wgmma_add(float (&c)[M], A a, B b) {
	int l = threadIdx.x & 31;
	for (int j = 0; j < M / 4; j++) {
		for (int i = 0; i < 4; i++) {
			for (int k = 0; k < 16; k++) c[j * 4 + i] += a(l / 4 + i / 2 * 8, k) * b(j * 8 + l % 4 * 2 + i % 2, k);
		}
	}
}

// wgmma_gather_a gathers the 16 rows of A that the lanes of a warp have in registers.
inline void wgmma_gather_a(float x[16][16], const uint32_t a[4]) {
	for (int half = 0; half < 2; half++) {
		const uint64_t* all = exchange(a[2 * half] | (uint64_t)a[2 * half + 1] << 32, "wide_multiply");
		for (int l = 0; l < 32; l++) {
			for (int i = 0; i < 4; i++) x[l / 4 + i / 2 * 8][2 * (l % 4) + i % 2 + half * 8] = from_half((uint16_t)(all[l] >> 16 * i));
		}
	}
}

}  // namespace emu

inline void wgmma(float (&c)[128], SmemDesc a, SmemDesc b) {
	int first = (threadIdx.x / 32 & 3) * 16;
	emu::wgmma_add(c, [&](int r, int k) { return a.of_rows(first + r, k); }, [&](int n, int k) { return b.of_rows(n, k); });
}
template <int ADD, int M>
void wgmma(float (&c)[M], const uint32_t a[4], SmemDesc b) {
	float x[16][16];
	if (!ADD) memset(c, 0, sizeof c);
	emu::wgmma_gather_a(x, a);
	emu::wgmma_add(c, [&](int r, int k) { return x[r][k]; }, [&](int n, int k) { return b.of_rows(n, k); });
}
template <int M>
void wgmma_tn(float (&c)[M], const uint32_t a[4], SmemDesc b) {
	float x[16][16];
	emu::wgmma_gather_a(x, a);
	emu::wgmma_add(c, [&](int r, int k) { return x[r][k]; }, [&](int n, int k) { return b.of_columns(n, k); });
}
