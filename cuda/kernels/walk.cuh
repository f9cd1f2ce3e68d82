// Rows of a walk and the selection of blocks by them, for walk.cu and walk_decode.cu.
#pragma once

#include "radix_select.cuh"
#include "sketch.cuh"

// walk_row_index is the row of a block in a tensor of n rows: of its slot, or, of one slot, the
// block's index modulo n.
__device__ inline i64 walk_row_index(const Block& b, i64 slots, i64 n) { return slots > 1 ? b.slot : b.index % (int)n; }

// LogSumExp is a running Σ exp: the maximum and the sum relative to it.
struct LogSumExp {
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

// log_term is a logarithm; NaN is -Inf.
__device__ __forceinline__ float log_term(float x) { return x > -infinity() ? x : -infinity(); }

struct SelectBlocksArgs {
	i32 *index, *count;  // [groups, cap], [groups]
	const void* rows;    // [n, width] f32, or with values f64
	i64 groups, cap, n, width, values, slots;
	i64 blocks;  // budget in blocks; 0: share
	f64 share;
	i64 open;  // all blocks compete, and of the edges only the row's own is forced
	i64 first, last;  // forced members of the edges, the row's own block included
	f64 first_share, last_share;
	i64 dense;  // rows of blocks from this one on take all blocks; 0: none do
	Span span;
	PagedKV g;
};

// block_visible reports whether the row at p sees any position of block j.
__device__ inline bool block_visible(const Span& s, int p, int j) {
	int last = min_of(j * PAGE + PAGE - 1, p), sink = min_of(last, (int)s.sink - 1);
	return sees(s, p, last) || (sink >= j * PAGE && sees(s, p, sink));
}

// block_budget is how many of the n blocks that the rows of block own see are selected,
// device.BlockBudget.Of.
__device__ inline i64 block_budget(const SelectBlocksArgs& a, int own, i64 n) {
	if (a.dense && own >= a.dense) return n;
	i64 k = a.blocks ? a.blocks : max_of((i64)2, (i64)ceil(a.share * (double)n - 1e-9));
	return k > n || n <= 2 ? n : k;
}

// Edges are the forced members of a row: blocks below first and from last on, device.BlockBudget.Edges.
struct Edges {
	int first, last;

	__device__ bool has(int j) const { return j < first || j >= last; }
	__device__ bool plain(int own) const { return first == 1 && last == own; }  // block 0 and the row's own
};

__device__ inline int edge_blocks(i64 count, f64 share, i64 n) { return (int)max_of((i64)1, share > 0 ? (i64)ceil(share * (double)n - 1e-9) : count); }

__device__ inline Edges edges_of(const SelectBlocksArgs& a, int own, i64 n) {
	Edges e = {0, own};
	if (!a.open) e = {edge_blocks(a.first, a.first_share, n), own + 1 - edge_blocks(a.last, a.last_share, n)};
	return e;
}

constexpr int MAX_SELECT_KEYS = 4096;    // longest row whose keys fit in shared memory
constexpr u32 KEY_FORCED = 0xffffffffu;  // larger than the key of any number

constexpr int KEYS_PER_THREAD = 8;  // of a thread, in registers

// kth_key is the threshold at the want-th largest key; there are at least so many, and key 0
// takes no part. Two bits of it a round, keys in registers: its instructions are few, because a
// block that runs alone on its multiprocessor waits for each to be fetched. All threads call it.
__device__ inline Threshold<u32> kth_key(const u32* keys, int n, u32 want) {
	SHARED(u32, counts, 2 * WARP);                     // of each warp: counts for three candidates, 10 bits each
	u32 mine[KEYS_PER_THREAD], prefix = 0, above = 0;  // above: keys larger than the threshold so far
#pragma unroll
	for (int i = 0; i < KEYS_PER_THREAD; i++) {
		int at = i * (int)blockDim.x + (int)threadIdx.x;
		mine[i] = at < n ? keys[at] : 0;
	}
#pragma unroll 1
	for (int shift = 30; shift >= 0; shift -= 2) {
		u32 many = 0;
#pragma unroll
		for (int i = 0; i < KEYS_PER_THREAD; i++) many += (mine[i] >= (prefix | 1u << shift)) + ((mine[i] >= (prefix | 2u << shift)) << 10) + ((mine[i] >= (prefix | 3u << shift)) << 20);
		many = warp_add(many);
		u32* at = counts + shift / 2 % 2 * WARP;
		if (lane() == 0) at[warp()] = many;
		__syncthreads();
		many = lane() < (int)blockDim.x / WARP ? at[lane()] : 0;
		u32 low = warp_add(many & 1023), middle = warp_add(many >> 10 & 1023), high = warp_add(many >> 20);
		u32 digit = high >= want ? 3 : middle >= want ? 2 : low >= want ? 1 : 0;
		if (digit < 3) above = digit == 2 ? high : digit == 1 ? middle : low;
		prefix |= digit << shift;
	}
	Threshold<u32> cut = {prefix, want - above};
	return cut;
}

// mask_invisible sets the keys of blocks that the row at p does not see to 0 and returns how many
// are left. All threads call it.
static __device__ NOINLINE u32 mask_invisible(const Span& span, int p, int n, u32* keys) {
	u32 seen = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		bool in = block_visible(span, p, j);
		if (!in) keys[j] = 0;
		seen += in;
	}
	return reduce_block(seen, 0u, Plus());
}

// set_edges sets the keys of the forced members that the row at p sees to 0 or, to list them,
// KEY_FORCED, and returns how many they are. All threads call it.
static __device__ NOINLINE u32 set_edges(const Span& span, Edges e, int p, int n, u32* keys, u32 key) {
	u32 some = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		if (!e.has(j) || !block_visible(span, p, j)) continue;
		keys[j] = key;
		some++;
	}
	return reduce_block(some, 0u, Plus());
}

// select_blocks lists the blocks with the largest keys in the row of b: the forced members and the
// best others, ascending, ties to the lowest. It overwrites keys, which all threads have written.
// All threads call it.
__device__ inline void select_blocks(const SelectBlocksArgs& a, const Block& b, u32* keys) {
	if (b.group() >= a.groups) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_BLOCK, b.group(), a.groups, 0);
		return;
	}
	int n = b.index + 1;
	u32 seen = n;
	__syncthreads();
	if (a.span.back != 0 || a.span.drop != 0) seen = mask_invisible(a.span, max_of(b.first, b.index * PAGE), n, keys);
	__syncthreads();
	int p = max_of(b.first, b.index * PAGE);
	i64 want = block_budget(a, b.index, (i64)seen);
	Edges edges = edges_of(a, b.index, (i64)seen);
	bool zero = !a.open && keys[0] != 0, plain = a.open || edges.plain(b.index);
	// The forced members do not compete.
	i64 k = max_of(want - 1 - (zero ? 1 : 0), (i64)0);
	Threshold<u32> cut = {0, 0};  // selects every visible block
	if (want < (i64)seen) {
		__syncthreads();
		if (!plain) {
			k = max_of(want - (i64)set_edges(a.span, edges, p, n, keys, 0), (i64)0);
		} else if (threadIdx.x == 0) {
			if (!a.open) keys[b.index] = 0;
			if (zero) keys[0] = 0;
		}
		__syncthreads();
		cut = k > 0 ? kth_key(keys, n, (u32)k) : Threshold<u32>{KEY_FORCED - 1, 0};
		__syncthreads();
		if (!plain) {
			set_edges(a.span, edges, p, n, keys, KEY_FORCED);
		} else if (threadIdx.x == 0) {
			keys[b.index] = KEY_FORCED;
			if (zero) keys[0] = KEY_FORCED;
		}
		__syncthreads();
	}
	i32* index = a.index + b.group() * a.cap;
	int total = compact(keys, n, cut, [&](int to, int i, u32) { index[to] = i; });
	if (threadIdx.x == 0) a.count[b.group()] = total;
}
