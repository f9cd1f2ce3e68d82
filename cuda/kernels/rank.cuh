// Selection by rank: the largest numbers first, the lowest index among equals,
// and what is not a number last. A block selects from one row, every thread
// from a run of neighbours, so that runs and ranks are in the order of indices.
#pragma once

#include "args.cuh"
#include "reduce.cuh"

// key orders floats as unsigned numbers; nothing is below the key of -Inf.
__device__ inline u32 key_of(float x) {
	if (x != x) x = -infinity();
	u32 b = __float_as_uint(x + 0.0f);  // -0 is 0
	return b >> 31 ? ~b : b | 0x80000000u;
}

// number_of is the number that has a key.
__device__ inline float number_of(u32 key) { return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key); }

// wide_key_of orders doubles in the same way.
__device__ inline u64 wide_key_of(double x) {
	if (x != x) x = -(double)infinity();
	u64 b = (u64)__double_as_longlong(x + 0.0);
	return b >> 63 ? ~b : b | 1ull << 63;
}

constexpr u32 KEY_LOWEST = 0x007fffffu;  // of -Inf

// Run is the part of a row that a thread looks at.
struct Run {
	i64 lo, hi;
};

__device__ inline Run run_of(i64 n) {
	i64 each = (n + blockDim.x - 1) / blockDim.x;
	Run r = {min_of((i64)threadIdx.x * each, n), min_of((i64)(threadIdx.x + 1) * each, n)};
	return r;
}

// list_marked lists the positions whose bits are set in marks, [words], ascending.
// All threads of the block call it, and are told how many there are.
__device__ inline u64 list_marked(const u64* marks, i64 words, i32* index, i32& count, i64 cap, Failure* failure) {
	constexpr int PIECE = 16;  // bits that a thread takes at a time
	const u16* pieces = (const u16*)marks;
	Run r = run_of(words * (PAGE / PIECE));
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

// Cut divides a row: what lies above the key is selected, and of those equal to
// it the first ties.
template <class K>
struct Cut {
	K key;
	u64 ties;
};

// everything selects a whole row.
template <class K>
__device__ inline Cut<K> everything() {
	Cut<K> cut = {0, ~0ull};
	return cut;
}

// Picker walks over a thread's run, in order.
template <class K>
struct Picker {
	Cut<K> cut;
	u64 rank;  // of the next one equal to the key

	__device__ bool takes(K key) { return key > cut.key || (key == cut.key && rank++ < cut.ties); }
};

// picker starts a walk; all threads of the block call it. among says whether
// element i takes part, and what its key is.
template <class K, class Among>
__device__ inline Picker<K> picker(Cut<K> cut, i64 n, Among among) {
	Run r = run_of(n);
	u64 equal = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) {
		K key;
		if (among(i, key) && key == cut.key) equal++;
	}
	Picker<K> p = {cut, scan_block(equal, total)};
	return p;
}

// add_to_bins adds weights to bins; the warp calls it together. Most keys of a row
// share a bin, and lanes that add to one wait for each other, so the first two bins
// are added up in the warp.
__device__ inline void add_to_bins(unsigned long long* bins, int bin, u64 w) {
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

// add_to_bins of weights that are 0 or 1.
__device__ inline void add_to_bins(u32* bins, int bin, u32 w) {
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

// select finds where the weights of elements, the largest keys first, reach
// want: those above the key weigh less than want, those equal to it reach it. It
// selects everything when all together do not. weigh gives the key and the weight
// of element i; a weight of 0 takes no part. Equal keys have equal weights. With Sum
// u32 weights are 0 or 1.
template <class K, class Sum = unsigned long long, class Weigh>
__device__ inline Cut<K> select(i64 n, u64 want, Weigh weigh) {
	SHARED(Sum, bins, 256);
	SHARED(u64, found, 2);
	constexpr int first = 8 * sizeof(K) - 8;
	K prefix = 0;   // of the key of the border, as far as it is known
	u64 above = 0;  // what lies above it weighs
	for (int shift = first; shift >= 0; shift -= 8) {
		__syncthreads();
		for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
		__syncthreads();
		for (i64 base = 0; base < n; base += blockDim.x) {
			i64 i = base + threadIdx.x;
			K key = 0;
			Sum w = i < n ? weigh(i, key) : 0;
			if (shift != first && key >> (shift + 8) != prefix >> (shift + 8)) w = 0;
			add_to_bins(bins, (int)(key >> shift) & 255, w);
		}
		__syncthreads();
		if (warp() == 0) {  // lane i has the bins from 255 - 8·i down
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
		if ((i64)found[0] < 0) return everything<K>();
		prefix |= (K)found[0] << shift;
		above = found[1];
	}
	// How many are equal to the key, and what one of them weighs.
	u64 count = 0, weight = 0;
	for (i64 i = threadIdx.x; i < n; i += blockDim.x) {
		K key;
		u64 w = weigh(i, key);
		if (w > 0 && key == prefix) {
			count++;
			weight = w;
		}
	}
	count = reduce_block(count, (u64)0, Plus());
	weight = reduce_block(weight, (u64)0, Max());
	u64 ties = (want - above + weight - 1) / weight;
	Cut<K> cut = {prefix, min_of(ties, count)};
	return cut;
}

// compact lists what a cut of keys selects, where a key of 0 takes no part; all
// threads call it. Each warp takes a run of neighbours, so that ties go to the first.
// It returns how many they are; put(to, i, key) gets element i and its place.
template <class Put>
__device__ inline int compact(const u32* keys, int n, Cut<u32> cut, Put put) {
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

// sort_down puts n numbers, a power of two, into descending order; all threads call it.
__device__ inline void sort_down(u64* x, int n) {
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
