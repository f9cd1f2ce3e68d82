// Top-k and top-p of a list by the thread blocks of a cluster, each with a consecutive part of
// the list: multi-block radix select as RAFT's and FlashInfer's, with the histograms in
// distributed shared memory instead of in kernels of their own.
//
// Why clusters. A list of 131,072 scores is 512 KB in L2: one block reads it in some 20 µs a pass,
// eight of a cluster in 1 to 2, and hold it in shared memory (64 KB each, two blocks a
// multiprocessor) for the passes that follow. With 8 or 32 lists, 64 or 256 blocks, all are resident
// at once on 132 multiprocessors. What blocks must agree on (smallest and largest key, histograms,
// counts) costs a cluster barrier, a fraction of a microsecond, where a kernel for each pass costs
// its launch and a histogram in L2, and where a grid-wide barrier needs all blocks resident. From
// 132 lists on a block has a list of its own, and the barriers are those of the block.
//
// How. (1) Keys, the order-preserving integers of scores, to shared memory, with their smallest and
// largest. (2) A histogram of CUT_BINS bins of equal width in the score, which few scores share
// whatever their exponents, so that atomics rarely collide; every block sums those of all and finds
// the bin where the weight reaches what is wanted. (3) The keys of that bin are listed; a histogram
// by key refines the cut until it is a single key, or a whole bin: mostly two rounds over some
// hundred keys. (4) Positions are written in ascending order behind those of the blocks before, ties
// to the lowest. Weights are integers, 1 for top-k and softmax mass in fixed point for top-p, so the
// cut is exact and depends neither on the number of blocks nor on the order of atomics.
#pragma once

#include "radix_select.cuh"

constexpr int SELECT_THREADS = 512;
constexpr int CUT_BINS = 1024;        // of a histogram; a multiple of the threads of a block
constexpr int CUT_CANDIDATES = 1024;  // keys of the cut bin that a block lists
constexpr int KEYS_IN_FLIGHT = 8;     // of a thread

// ClusterBlock is this block among those that share a list, a power of two of them.
struct ClusterBlock {
	int rank, size;

	__device__ __forceinline__ void sync() const {
		if (size > 1)
			cluster_sync();
		else
			__syncthreads();
	}

	// peers is the words at one address of shared memory in all blocks, from the own on in the
	// order of ranks, 0 behind the last.
	__device__ __forceinline__ void peers(u32 v[MAX_CLUSTER], const u32* at) const {
		if (size == 1) {
			for (int i = 1; i < MAX_CLUSTER; i++) v[i] = 0;
			v[0] = *at;
			return;
		}
#pragma unroll
		for (int i = 0; i < MAX_CLUSTER; i++) v[i] = dsmem_load(at, (rank + i) & (size - 1));
#pragma unroll
		for (int i = 0; i < MAX_CLUSTER; i++) v[i] = i < size ? v[i] : 0;
	}

	// sum is the sum of such words, and before the sum of those of lower ranks.
	__device__ __forceinline__ u64 sum(const u32* at) const {
		u32 v[MAX_CLUSTER];
		peers(v, at);
		u64 all = 0;
#pragma unroll
		for (int i = 0; i < MAX_CLUSTER; i++) all += v[i];
		return all;
	}
	__device__ __forceinline__ i64 before(const u32* at) const {
		u32 v[MAX_CLUSTER];
		peers(v, at);
		i64 lower = 0;
#pragma unroll
		for (int i = 0; i < MAX_CLUSTER; i++) lower += i < size && rank + i >= size ? v[i] : 0;
		return lower;
	}
};

// this_block is the block among those of its list, which are the cluster, along z.
__device__ __forceinline__ ClusterBlock this_block() {
	ClusterBlock c = {gridDim.z > 1 ? cluster_rank() : 0, (int)gridDim.z};
	return c;
}

// ClusterScratch is a block's shared memory for a selection; staged keys follow it.
struct ClusterScratch {
	u32 bins[2][2 * CUT_BINS];  // histograms of alternate rounds: low words of the weights, then high words
	u32 listed[CUT_CANDIDATES];
	u32 candidates;  // more than CUT_CANDIDATES: not all are listed
	u32 ends[2][2];  // ~smallest and largest key: of the part, of its candidates
	u32 counts[3];   // of the part: keys equal to each of two cuts, entries selected
};
static_assert(sizeof(ClusterScratch) == 20512, "the host reckons with it");

// ListPart is the elements lo to hi-1 of a list, those of a block. A key of 0 takes no part in the
// selection. Load has fetch(i), which reads what the key of element i is made of, and key(i, x,
// first), which makes it; first says that this is the first time.
template <class Load>
struct ListPart {
	int lo, hi, staged;  // staged: how many of them have a place in shared memory
	u32* keys;           // [staged]
	Load load;

	__device__ __forceinline__ u32 key(int i) const { return i - lo < staged ? keys[i - lo] : load.key(i, load.fetch(i), false); }

	// stage calls take(key) for every element that takes part, and stores keys.
	template <class Take>
	__device__ __forceinline__ void stage(Take take) const {
		for (int first = lo + threadIdx.x; first < hi; first += KEYS_IN_FLIGHT * blockDim.x) {
			float x[KEYS_IN_FLIGHT];
#pragma unroll
			for (int i = 0; i < KEYS_IN_FLIGHT; i++) x[i] = load.fetch(min_of(first + i * (int)blockDim.x, hi - 1));
#pragma unroll
			for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
				int j = first + i * blockDim.x;
				if (j >= hi) break;
				u32 k = load.key(j, x[i], true);
				if (j - lo < staged) keys[j - lo] = k;
				if (k > 0) take(k);
			}
		}
	}

	// each calls take(key) for every element that takes part.
	template <class Take>
	__device__ __forceinline__ void each(Take take) const {
#pragma unroll 4
		for (int i = lo + threadIdx.x; i < hi; i += blockDim.x) {
			u32 k = key(i);
			if (k > 0) take(k);
		}
	}
};

// list_part is the block's part of a list of n elements.
template <class Load>
__device__ __forceinline__ ListPart<Load> list_part(const ClusterBlock& c, ClusterScratch& s, int n, int staged, Load load) {
	int each = ((n + c.size - 1) / c.size + WARP - 1) / WARP * WARP, lo = min_of(c.rank * each, n);
	ListPart<Load> part = {lo, min_of(lo + each, n), staged, (u32*)(&s + 1), load};
	return part;
}

// cluster_ends makes lo and hi, of a thread's keys, the smallest and largest of the list's.
__device__ inline void cluster_ends(const ClusterBlock& c, u32 ends[2], u32& lo, u32& hi) {
	u32 low = reduce_block(~lo, 0u, Max()), top = reduce_block(hi, 0u, Max());
	if (threadIdx.x == 0) {
		ends[0] = low;
		ends[1] = top;
	}
	c.sync();
	u32 v[MAX_CLUSTER];
	c.peers(v, &ends[0]);
	for (int i = 0; i < MAX_CLUSTER; i++) low = max_of(low, v[i]);
	c.peers(v, &ends[1]);
	for (int i = 0; i < MAX_CLUSTER; i++) top = max_of(top, v[i]);
	lo = ~low;
	hi = top;
}

// clear_bins clears a histogram. A barrier follows before it is used.
template <bool WEIGHTED>
__device__ __forceinline__ void clear_bins(u32* bins) {
	for (int i = threadIdx.x; i < (WEIGHTED ? 2 : 1) * CUT_BINS; i += blockDim.x) bins[i] = 0;
}

// add_weight adds to a bin; a 64-bit weight by two atomics and a carry.
template <bool WEIGHTED>
__device__ __forceinline__ void add_weight(u32* bins, int bin, u64 w) {
	if constexpr (WEIGHTED) {
		u32 low = (u32)w, old = atomicAdd(&bins[bin], low), high = (u32)(w >> 32) + ((u32)(old + low) < low);
		if (high > 0) atomicAdd(&bins[CUT_BINS + bin], high);
	} else {
		atomicAdd(&bins[bin], 1u);
	}
}

// WeightCut is the bin in which the weight, bin 0 first, reaches want; bin -1 where it does not.
struct WeightCut {
	int bin;
	u64 above, weight;  // of the bins before it, and its own
	u64 want;
};

// find_weight_cut finds it in the sum of the cluster's histograms. want(total) is what is wanted, at
// least 1. All threads of the cluster call it, behind a barrier of the cluster.
template <bool WEIGHTED, class Want>
__device__ inline WeightCut find_weight_cut(const ClusterBlock& c, const u32* bins, Want want) {
	SHARED(u64, found, 3);
	int each = CUT_BINS / (int)blockDim.x, first = (int)threadIdx.x * each;
	auto weight = [&](int bin) {
		u64 w = c.sum(bins + bin);
		if constexpr (WEIGHTED) w += c.sum(bins + CUT_BINS + bin) << 32;
		return w;
	};
	u64 mine = 0, total;
	for (int i = 0; i < each; i++) mine += weight(first + i);
	u64 above = scan_block(mine, total), wanted = want(total);
	if (threadIdx.x == 0 && total < wanted) found[0] = ~0ull;
	if (above < wanted && above + mine >= wanted) {
		u64 w = weight(first);
		while (above + w < wanted) {
			above += w;
			w = weight(++first);
		}
		found[0] = (u64)first;
		found[1] = above;
		found[2] = w;
	}
	__syncthreads();
	WeightCut cut = {(int)found[0], found[1], found[2], wanted};
	return cut;
}

// ScoreBins are CUT_BINS bins of equal width between two keys' scores, the largest in bin 0. All
// keys share bin 0 where there is no such width: where scores are infinite or all equal.
struct ScoreBins {
	float top, scale;

	__device__ __forceinline__ int of(u32 key) const { return scale > 0 ? min_of((int)((top - from_radix_key(key)) * scale), CUT_BINS - 1) : 0; }
};

__device__ inline ScoreBins score_bins(u32 lo, u32 hi) {
	float top = from_radix_key(hi), scale = (CUT_BINS - 1) / (top - from_radix_key(lo));
	ScoreBins bins = {top, scale > 0 && scale < infinity() && top < infinity() ? scale : 0};
	return bins;
}

// refine_cut narrows a cut, within keys lo to hi of the listed candidates, to a threshold. weight(key)
// is the weight of an element, left the weight wanted of them and all what they have in all.
template <bool WEIGHTED, class Part, class Weight>
__device__ inline Threshold<u32> refine_cut(const ClusterBlock& c, ClusterScratch& s, const Part& part, u32 lo, u32 hi, u64 left, u64 all, Weight weight) {
	int listed = s.candidates <= CUT_CANDIDATES ? (int)s.candidates : -1;
	for (int round = 1; left < all && lo < hi; round++) {
		u32* bins = s.bins[round % 2];  // all blocks have read what it had two rounds ago
		int shift = max_of(32 - __clz((int)(hi - lo)) - 10, 0);
		static_assert(CUT_BINS == 1 << 10, "10 bits");
		clear_bins<WEIGHTED>(bins);
		__syncthreads();
		auto add = [&](u32 key) {
			if (key >= lo && key <= hi) add_weight<WEIGHTED>(bins, (int)((hi - key) >> shift), weight(key));
		};
		if (listed < 0) part.each(add);
		for (int i = threadIdx.x; i < listed; i += blockDim.x) add(s.listed[i]);
		c.sync();
		WeightCut cut = find_weight_cut<WEIGHTED>(c, bins, [&](u64) { return left; });
		hi -= (u32)cut.bin << shift;
		lo = max_of(lo, hi - min_of(hi, (1u << shift) - 1));
		left -= cut.above;
		all = cut.weight;
	}
	Threshold<u32> t = {lo, ~0ull};
	if (left < all) {
		u64 each = weight(lo), ties = (left + each - 1) / each;
		if (ties < all / each) t.ties = ties;
	}
	return t;
}

// cluster_threshold finds the threshold of the best elements of a list whose weight reaches
// want(total); all of them where it does not. weight(key, top) is the weight of an element, top the
// largest key; weight 0 takes no part. WEIGHTED: weights are not all 1. Of several thresholds of a
// list the first stages its keys, and a barrier of the cluster lies between them. All threads of the
// cluster call it.
template <bool WEIGHTED, class Part, class Weight, class Want>
__device__ inline Threshold<u32> cluster_threshold(const ClusterBlock& c, ClusterScratch& s, const Part& part, Weight weight, Want want, bool first = true) {
	u32 lo = ~0u, hi = 0;
	clear_bins<WEIGHTED>(s.bins[0]);
	if (threadIdx.x == 0) s.candidates = 0;
	auto widen = [&](u32 key) {
		lo = min_of(lo, key);
		hi = max_of(hi, key);
	};
	if (first)
		part.stage(widen);
	else
		part.each(widen);
	cluster_ends(c, s.ends[0], lo, hi);
	u32 top = hi;
	ScoreBins bins = score_bins(lo, hi);
	part.each([&](u32 key) {
		u64 w = weight(key, top);
		if (w > 0) add_weight<WEIGHTED>(s.bins[0], bins.of(key), w);
	});
	c.sync();
	WeightCut cut = find_weight_cut<WEIGHTED>(c, s.bins[0], want);
	if (cut.bin < 0) return select_all<u32>();
	lo = ~0u;
	hi = 0;
	part.each([&](u32 key) {
		if (bins.of(key) != cut.bin || (WEIGHTED && weight(key, top) == 0)) return;
		lo = min_of(lo, key);
		hi = max_of(hi, key);
		if (*(volatile u32*)&s.candidates > CUT_CANDIDATES) return;
		u32 to = atomicAdd(&s.candidates, 1u);
		if (to < CUT_CANDIDATES) s.listed[to] = key;
	});
	cluster_ends(c, s.ends[1], lo, hi);
	return refine_cut<WEIGHTED>(c, s, part, lo, hi, cut.want - cut.above, cut.weight, [&](u32 key) { return weight(key, top); });
}

// OneEntry says that every element of a list is one entry of the output.
struct OneEntry {
	static constexpr bool UNIT = true;
	__device__ int operator()(int) const { return 1; }
};

// warp_prefix sums v over the lower warps of the block, and in total over all.
__device__ inline u32 warp_prefix(u32 v, u32& total) {
	u32 before = scan_block(lane() == 0 ? v : 0, total);
	return __shfl_sync(FULL_MASK, before, 0);
}

// WarpCut applies a threshold to a warp's elements in order; rank counts the equal keys so far.
struct WarpCut {
	Threshold<u32> cut;
	u64 rank;

	// takes is whether the lane's element is selected. All lanes call it.
	__device__ __forceinline__ bool takes(u32 key) {
		if (cut.ties == ~0ull) return key > 0 && key >= cut.key;
		bool same = key > 0 && key == cut.key;
		unsigned who = __ballot_sync(FULL_MASK, same);
		bool in = key > cut.key || (same && rank + __popc(who & ((1u << lane()) - 1)) < cut.ties);
		rank += __popc(who);
		return in;
	}
};

// WarpRange is the elements of a warp, consecutive ones.
struct WarpRange {
	int lo, hi;
};

template <class Part>
__device__ __forceinline__ WarpRange warp_range(const Part& part) {
	int warps = (int)blockDim.x / WARP, each = (part.hi - part.lo + warps * WARP - 1) / (warps * WARP) * WARP;
	int lo = min_of(part.lo + warp() * each, part.hi);
	WarpRange r = {lo, min_of(lo + each, part.hi)};
	return r;
}

// warp_cut counts the equal keys before the warp's elements, where it matters; count is a word of
// shared memory for it.
template <class Part>
__device__ inline WarpCut warp_cut(const ClusterBlock& c, u32* count, const Part& part, Threshold<u32> cut) {
	WarpCut w = {cut, 0};
	if (cut.ties == ~0ull || cut.ties == 0) return w;
	WarpRange r = warp_range(part);
	u32 equal = 0, total;
	for (int i = r.lo + lane(); i - lane() < r.hi; i += WARP) equal += __popc(__ballot_sync(FULL_MASK, i < r.hi && part.key(i) == cut.key));
	equal = warp_prefix(equal, total);
	if (threadIdx.x == 0) *count = total;
	c.sync();
	w.rank = c.before(count) + equal;
	return w;
}

// select_none is the threshold that selects nothing.
__device__ __forceinline__ Threshold<u32> select_none() {
	Threshold<u32> cut = {~0u, 0};
	return cut;
}

// Listed counts the entries of a list: up to the end of the block's part, and of the cluster.
struct Listed {
	i64 end, all;
};

// cluster_compact calls put(i, to) for the elements that threshold in selects and out does not, to
// being the number of entries before those of i. entries(i) is how many element i has. A warp takes
// consecutive elements, so that ties go to the lowest. All threads of the cluster call it; peers may
// read the block's shared memory until the barrier that the caller puts behind it.
template <class Part, class Entries, class Put>
__device__ inline Listed cluster_compact(const ClusterBlock& c, ClusterScratch& s, const Part& part, Threshold<u32> in, Threshold<u32> out, Entries entries, Put put) {
	WarpRange r = warp_range(part);
	const WarpCut start_in = warp_cut(c, &s.counts[0], part, in), start_out = warp_cut(c, &s.counts[1], part, out);
	// each calls take(i, whether the lane's element i is selected) for the warp's elements.
	auto each = [&](auto take) {
		WarpCut inside = start_in, outside = start_out;
		for (int i = r.lo + lane(); i - lane() < r.hi; i += WARP) {
			u32 key = i < r.hi ? part.key(i) : 0;
			bool a = inside.takes(key), b = outside.takes(key);
			take(i, a && !b);
		}
	};
	u32 mine = 0, total;
	each([&](int i, bool selected) {
		if constexpr (Entries::UNIT)
			mine += __popc(__ballot_sync(FULL_MASK, selected));
		else
			mine += warp_add(selected ? entries(i) : 0);
	});
	u32 before_warp = warp_prefix(mine, total);
	if (threadIdx.x == 0) s.counts[2] = total;
	c.sync();
	i64 before_block = c.before(&s.counts[2]), to = before_block + before_warp;
	each([&](int i, bool selected) {
		u32 before, all;
		if constexpr (Entries::UNIT) {
			unsigned who = __ballot_sync(FULL_MASK, selected);
			before = __popc(who & ((1u << lane()) - 1));
			all = __popc(who);
		} else {
			u32 n = selected ? entries(i) : 0, upto = n;
			for (int by = 1; by < WARP; by *= 2) {
				u32 left = __shfl_up_sync(FULL_MASK, upto, by);
				if (lane() >= by) upto += left;
			}
			before = upto - n;
			all = __shfl_sync(FULL_MASK, upto, WARP - 1);
		}
		if (selected) put(i, to + before);
		to += all;
	});
	Listed listed = {before_block + total, (i64)c.sum(&s.counts[2])};
	return listed;
}
