// Radix select by one thread block, as RAFT's select_k and CUB's radix sorts order keys: the
// largest first, ties to the lowest index, NaN as -Inf. Every thread owns a run of consecutive
// elements, so that per-thread counts and ranks are in the order of indices and compaction is
// stable.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

// radix_key maps floats to unsigned integers of the same order; no key is below that of -Inf.
__device__ inline u32 radix_key(float x) {
	if (x != x) x = -infinity();
	u32 b = __float_as_uint(x + 0.0f);  // -0 equals 0
	return b >> 31 ? ~b : b | 0x80000000u;
}

// from_radix_key is the inverse of radix_key.
__device__ inline float from_radix_key(u32 key) { return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// radix_key64 is radix_key of doubles.
__device__ inline u64 radix_key64(double x) {
	if (x != x) x = -(double)infinity();
	u64 b = (u64)__double_as_longlong(x + 0.0);
	return b >> 63 ? ~b : b | 1ull << 63;
}

constexpr u32 KEY_NEG_INF = 0x007fffffu;  // radix_key(-Inf)
constexpr u32 KEY_INF = 0xff800000u;      // radix_key(+Inf)

// ThreadRange is a thread's run of elements of a row.
struct ThreadRange {
	i64 lo, hi;
};

__device__ inline ThreadRange thread_range(i64 n) {
	i64 each = (n + blockDim.x - 1) / blockDim.x;
	ThreadRange r = {min_of((i64)threadIdx.x * each, n), min_of((i64)(threadIdx.x + 1) * each, n)};
	return r;
}

// set_bit sets bit j of a bitmap.
__device__ __forceinline__ void set_bit(u64* marks, int j) { atomicOr((u32*)marks + j / 32, 1u << j % 32); }

// bitmap_to_list lists the set bits of a bitmap [words], ascending, and returns their number;
// more than cap are a failure. All threads call it.
__device__ inline u64 bitmap_to_list(const u64* marks, i64 words, i32* index, i32& count, i64 cap, Failure* failure) {
	constexpr int PIECE = 16;  // bits of a thread at a time
	const u16* pieces = (const u16*)marks;
	ThreadRange r = thread_range(words * (PAGE / PIECE));
	u64 mine = 0, total;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popc(pieces[w]);
	u64 to = scan_block(mine, total);
	for (i64 w = r.lo; w < r.hi; w++) {
		for (u32 bits = pieces[w]; bits; bits &= bits - 1, to++) {
			if (to < (u64)cap) index[to] = (i32)(w * PIECE + __ffs((int)bits) - 1);
		}
	}
	if (threadIdx.x == 0) {
		if (total > (u64)cap) fail(failure, FAIL_LIST, cap, 0, 0);
		count = (i32)min_of(total, (u64)cap);
	}
	return total;
}

// Threshold divides a row: elements with larger keys are selected, and the first `ties` of those
// with an equal key.
template <class K>
struct Threshold {
	K key;
	u64 ties;
};

// select_all is the threshold of a whole row.
template <class K>
__device__ inline Threshold<K> select_all() {
	Threshold<K> cut = {0, ~0ull};
	return cut;
}

// Selector applies a threshold to a thread's run, in order.
template <class K>
struct Selector {
	Threshold<K> cut;
	u64 rank;  // among equal keys of the row

	__device__ bool takes(K key) { return key > cut.key || (key == cut.key && rank++ < cut.ties); }
};

// make_selector counts the equal keys before each thread's run. candidate(i, key) says whether
// element i takes part and sets its key. All threads call it.
template <class K, class Candidate>
__device__ inline Selector<K> make_selector(Threshold<K> cut, i64 n, Candidate candidate) {
	ThreadRange r = thread_range(n);
	u64 equal = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) {
		K key;
		if (candidate(i, key) && key == cut.key) equal++;
	}
	Selector<K> p = {cut, scan_block(equal, total)};
	return p;
}

// histogram_add adds a weight of each lane to its bin. The keys of a row mostly share their first
// digits, and atomics on one address serialize, so two bins are aggregated in the warp first. All
// lanes call it.
__device__ inline void histogram_add(unsigned long long* bins, int bin, u64 w) {
	unsigned left = __ballot_sync(FULL_MASK, w > 0);
	for (int round = 0; round < 2 && left; round++) {
		int leader = __ffs((int)left) - 1, theirs = __shfl_sync(FULL_MASK, bin, leader);
		bool same = w > 0 && bin == theirs;
		u64 sum = reduce_warp(same ? w : (u64)0, Plus());
		if (lane() == leader) atomicAdd(&bins[theirs], (unsigned long long)sum);
		if (same) w = 0;
		left = __ballot_sync(FULL_MASK, w > 0);
	}
	if (w > 0) atomicAdd(&bins[bin], (unsigned long long)w);
}

// histogram_add of weights 0 and 1, aggregated by ballot.
__device__ inline void histogram_add(u32* bins, int bin, u32 w) {
	unsigned left = __ballot_sync(FULL_MASK, w > 0);
	for (int round = 0; round < 2 && left; round++) {
		int leader = __ffs((int)left) - 1, theirs = __shfl_sync(FULL_MASK, bin, leader);
		unsigned same = __ballot_sync(FULL_MASK, w > 0 && bin == theirs);
		if (lane() == leader) atomicAdd(&bins[theirs], (u32)__popc(same));
		if (bin == theirs) w = 0;
		left &= ~same;
	}
	if (w > 0) atomicAdd(&bins[bin], 1u);
}

// radix_select finds the threshold at which the weights of the elements, the largest keys first,
// reach want, 8 bits of the key a pass; the whole row if they do not. weight(i, key) is element
// i's weight and sets its key; weight 0 takes no part, and equal keys have equal weights. Weights
// are integers, so that sums are exact in any order: 1 each for top-k, shares in fixed point for
// top-p. Sum = u32 needs weights of 0 and 1. All threads call it.
template <class K, class Sum = unsigned long long, class Weight>
__device__ inline Threshold<K> radix_select(i64 n, u64 want, Weight weight) {
	SHARED(Sum, bins, 256);
	SHARED(u64, found, 2);
	constexpr int first = 8 * sizeof(K) - 8;
	K prefix = 0;   // the digits of the threshold that are known
	u64 above = 0;  // weight of the keys above it
	for (int shift = first; shift >= 0; shift -= 8) {
		__syncthreads();
		for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
		__syncthreads();
		for (i64 base = 0; base < n; base += blockDim.x) {
			i64 i = base + threadIdx.x;
			K key = 0;
			Sum w = i < n ? weight(i, key) : 0;
			if (shift != first && key >> (shift + 8) != prefix >> (shift + 8)) w = 0;
			histogram_add(bins, (int)(key >> shift) & 255, w);
		}
		__syncthreads();
		if (warp() == 0) {  // lane i has bins 255 - 8i down to 248 - 8i
			u64 part = 0;
			for (int i = 0; i < 8; i++) part += bins[255 - lane() * 8 - i];
			u64 before = above + part;
			for (int by = 1; by < WARP; by *= 2) {
				u64 left = __shfl_up_sync(FULL_MASK, before - above, by);
				if (lane() >= by) before += left;
			}
			u64 sum = before - part;
			bool here = before >= want && (sum < want || lane() == 0);
			if (here) {
				int b = 255 - lane() * 8;
				while (sum + bins[b] < want) sum += bins[b--];
				found[0] = (u64)b;
				found[1] = sum;
			} else if (lane() == WARP - 1 && before < want) {
				found[0] = (u64)-1;
			}
		}
		__syncthreads();
		if ((i64)found[0] < 0) return select_all<K>();
		prefix |= (K)found[0] << shift;
		above = found[1];
	}
	// The elements equal to the threshold, and what each of them weighs.
	u64 count = 0, each = 0;
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
		K key;
		u64 w = weight(i, key);
		if (w > 0 && key == prefix) {
			count++;
			each = w;
		}
	}
	count = reduce_block(count, (u64)0, Plus());
	each = reduce_block(each, (u64)0, Max());
	u64 ties = (want - above + each - 1) / each;
	Threshold<K> cut = {prefix, min_of(ties, count)};
	return cut;
}

// compact calls put(place, i, key) for what a threshold selects of keys in shared memory, in
// order, and returns how many they are; key 0 takes no part. Each warp takes a run of consecutive
// elements, so that ties go to the lowest. All threads call it.
template <class Put>
__device__ inline int compact(const u32* keys, int n, Threshold<u32> cut, Put put) {
	SHARED(int, parts, 2 * WARP);
	int warps = blockDim.x / WARP, each = (n + warps * WARP - 1) / (warps * WARP) * WARP;
	int lo = min_of(warp() * each, n), hi = min_of(lo + each, n), above = 0, equal = 0;
	auto of = [&](int i, bool& over, bool& same) {
		u32 key = i < hi ? keys[i] : 0;
		over = key > cut.key;
		same = key > 0 && key == cut.key;
		return key;
	};
	bool over, same;
	for (int i = lo; i < hi; i += WARP) {
		of(i + lane(), over, same);
		above += __popc(__ballot_sync(FULL_MASK, over));
		equal += __popc(__ballot_sync(FULL_MASK, same));
	}
	__syncthreads();
	if (lane() == 0) {
		parts[2 * warp()] = above;
		parts[2 * warp() + 1] = equal;
	}
	__syncthreads();
	int to = 0, ties = 0, all = 0;
	u64 before = 0;
	for (int w = 0; w < warps; w++) {
		if (w == warp()) {
			to = all;
			ties = (int)before;
		}
		u64 left = cut.ties > before ? cut.ties - before : 0;
		all += parts[2 * w] + (int)min_of((u64)parts[2 * w + 1], left);
		before += parts[2 * w + 1];
	}
	for (int i = lo; i < hi; i += WARP) {
		u32 key = of(i + lane(), over, same), ahead = (1u << lane()) - 1;
		unsigned who = __ballot_sync(FULL_MASK, same);
		bool in = over || (same && (u64)(ties + __popc(who & ahead)) < cut.ties);
		ties += __popc(who);
		who = __ballot_sync(FULL_MASK, in);
		if (in) put(to + __popc(who & ahead), i + lane(), key);
		to += __popc(who);
	}
	return all;
}

// bitonic_sort_down sorts n numbers, a power of two, in descending order. All threads call it.
__device__ inline void bitonic_sort_down(u64* x, int n) {
	for (int run = 2; run <= n; run *= 2) {
		for (int by = run / 2; by > 0; by /= 2) {
			__syncthreads();
			for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
				int lo = i / by * 2 * by + i % by, hi = lo + by;
				u64 a = x[lo], b = x[hi];
				if ((a < b) == ((lo & run) == 0)) {
					x[lo] = b;
					x[hi] = a;
				}
			}
		}
	}
	__syncthreads();
}
