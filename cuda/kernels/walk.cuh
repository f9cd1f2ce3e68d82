// Rows of logarithms that a walk leaves, and the choice of blocks by them.
#pragma once

#include "rank.cuh"
#include "sketch.cuh"

// walk_row is the number of the row of a block in a tensor of n rows.
__device__ inline i64 walk_row(const Block& b, i64 slots, i64 n) { return slots > 1 ? b.slot : b.index % (int)n; }

// LogSum is ln Σ exp, term by term.
struct LogSum {
	float top, sum;

	__device__ void add(float t, float s) {
		if (!(t > -infinity())) return;
		if (t > top) {
			sum = sum * expf(top - t) + s;
			top = t;
		} else {
			sum += s * expf(t - top);
		}
	}
};

constexpr float LOG2_E = 1.4426950408889634f;

// term is a logarithm, or none of what is not a number.
__device__ __forceinline__ float term(float x) { return x > -infinity() ? x : -infinity(); }

struct PickArgs {
	i32 *index, *count;  // [groups, cap], [groups]
	const void* rows;    // [n, width] f32, or with values f64
	i64 groups, cap, n, width, values, slots;
	i64 of;  // blocks; 0: by share
	f64 share;
	i64 open;  // block 0 has to compete
	Span span;
	PagedKV g;
};

// sees_block reports whether the row at p sees any position of block j.
__device__ inline bool sees_block(const Span& s, int p, int j) {
	int last = min_of(j * PAGE + PAGE - 1, p), sink = min_of(last, (int)s.sink - 1);
	return sees(s, p, last) || (sink >= j * PAGE && sees(s, p, sink));
}

// pick_of is Pick.Of.
__device__ inline i64 pick_of(const PickArgs& a, i64 n) {
	i64 k = a.of ? a.of : max_of((i64)2, (i64)ceil(a.share * (double)n - 1e-9));
	return k > n || n <= 2 ? n : k;
}

constexpr int PICK_MOST = 4096;  // the most blocks of a row whose keys fit in shared memory
constexpr u32 KEY_ALWAYS = 0xffffffffu;  // above every number's

constexpr int PICK_EACH = 8;  // keys that a thread holds

// cut_of is where the want-th largest of the keys lies; a key of 0 takes no part. There
// are at least so many. It finds two bits of it at a time: few instructions, which a block
// that is alone with them has to fetch. All threads call it.
__device__ inline Cut<u32> cut_of(const u32* keys, int n, u32 want) {
	SHARED(u32, counts, 2 * WARP);  // of each warp: of three keys that are tried, 10 bits each
	u32 mine[PICK_EACH], least = 0, above = 0;  // above: so many are more than least
#pragma unroll
	for (int i = 0; i < PICK_EACH; i++) {
		int at = i * (int)blockDim.x + (int)threadIdx.x;
		mine[i] = at < n ? keys[at] : 0;
	}
#pragma unroll 1
	for (int shift = 30; shift >= 0; shift -= 2) {
		u32 many = 0;
#pragma unroll
		for (int i = 0; i < PICK_EACH; i++) many += (mine[i] >= (least | 1u << shift)) + ((mine[i] >= (least | 2u << shift)) << 10) + ((mine[i] >= (least | 3u << shift)) << 20);
		many = warp_add(many);
		u32* at = counts + shift / 2 % 2 * WARP;
		if (lane() == 0) at[warp()] = many;
		__syncthreads();
		many = lane() < (int)blockDim.x / WARP ? at[lane()] : 0;
		u32 low = warp_add(many & 1023), middle = warp_add(many >> 10 & 1023), high = warp_add(many >> 20);
		u32 digit = high >= want ? 3 : middle >= want ? 2 : low >= want ? 1 : 0;
		if (digit < 3) above = digit == 2 ? high : digit == 1 ? middle : low;
		least |= digit << shift;
	}
	Cut<u32> cut = {least, want - above};
	return cut;
}

// leave_out makes the keys of blocks 0 that the row of b at p does not see, and gives how
// many are left. All threads call it.
static __device__ NOINLINE u32 leave_out(const Span& span, int p, int n, u32* keys) {
	u32 seen = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		bool in = sees_block(span, p, j);
		if (!in) keys[j] = 0;
		seen += in;
	}
	return reduce_block(seen, 0u, Plus());
}

// pick_keys lists the blocks with the largest keys in the row of b, as many as keys has,
// which it changes. All threads call it, and have written keys.
__device__ inline void pick_keys(const PickArgs& a, const Block& b, u32* keys) {
	if (b.group() >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, b.group(), a.groups, 0);
		return;
	}
	int n = b.index + 1;
	u32 seen = n;
	__syncthreads();
	if (a.span.back != 0 || a.span.drop != 0) seen = leave_out(a.span, max_of(b.first, b.index * PAGE), n, keys);
	__syncthreads();
	i64 want = pick_of(a, (i64)seen);
	bool zero = !a.open && keys[0] != 0;
	// The best, after those that are read in any case: its own, and block 0.
	i64 k = max_of(want - 1 - (zero ? 1 : 0), (i64)0);
	Cut<u32> cut = {0, 0};  // of all that are seen
	if (want < (i64)seen) {
		__syncthreads();
		if (threadIdx.x == 0 && !a.open) keys[b.index] = 0;
		if (threadIdx.x == 0 && zero) keys[0] = 0;
		__syncthreads();
		cut = k > 0 ? cut_of(keys, n, (u32)k) : Cut<u32>{KEY_ALWAYS - 1, 0};
		__syncthreads();
		if (threadIdx.x == 0) keys[b.index] = KEY_ALWAYS;
		if (threadIdx.x == 0 && zero) keys[0] = KEY_ALWAYS;
		__syncthreads();
	}
	i32* index = a.index + b.group() * a.cap;
	int total = compact(keys, n, cut, [&](int to, int i, u32) { index[to] = i; });
	if (threadIdx.x == 0) a.count[b.group()] = total;
}
