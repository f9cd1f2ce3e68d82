// Top-k and top-p of a list by the thread blocks of a cluster, each with a consecutive part of
// the list: multi-block radix select as RAFT's and FlashInfer's, with the histograms in
// distributed shared memory instead of in kernels of their own.
//
// Why clusters. A list of 131,072 scores is 512 KB in L2: one block reads it in some 20 µs a pass,
// eight of a cluster in 1 to 2. What blocks must agree on (histograms, candidates, counts) costs a
// cluster barrier, about a microsecond, where a kernel for each pass costs its launch and a histogram
// in L2, and where a grid-wide barrier needs all blocks resident. Where there are more lists than
// clusters fit, a block has a list of its own, and the barriers are those of the block.
//
// How. (1) All blocks sample the same elements of the list and bracket the keys, order-preserving
// integers of scores, at which the cut probably lies. (2) One pass over the list marks what is above
// the bracket in a bitmap, and every warp lists what it has inside it: with a tenth selected, a
// thirteenth of all. From then on only lists are read. (3) A histogram of the lists; every block sums
// those of all and finds the bin where the weight reaches what is wanted, which is the new bracket.
// (4) A few hundred keys in it are ranked by comparing all pairs; more are divided into bins again.
// (5) Of equal keys at the cut the first are selected; the positions that are marked are written in
// ascending order behind those of the blocks before.
//
// Top-p, whose weights are relative to the largest score, first finds the ends of the list, at the
// cost of a pass and a barrier, and brackets all. Weights are integers, 1 for top-k and softmax mass
// in fixed point for top-p, so the cut is exact and depends neither on the sample nor on the number
// of blocks nor on the order of atomics. A bad sample costs another pass; so does a list that is too
// long for its room, of which the elements are read again.
#pragma once

#include "radix_select.cuh"

constexpr int SELECT_THREADS = 512;
constexpr int CUT_BINS = 512;        // of a histogram
constexpr int WARP_LIST = 256;       // elements that a warp has room for
constexpr int RANKED = 256;          // keys of all blocks that are ranked by comparing all pairs
constexpr int SAMPLE = 1024;         // elements of a list that bracket the cut
constexpr int KEYS_IN_FLIGHT = 16;   // of a thread

// ClusterBlock is this block among those that share a list, a power of two of them.
struct ClusterBlock {
	int rank, size;

	__device__ __forceinline__ void sync() const {
		if (size > 1)
			cluster_sync();
		else
			__syncthreads();
	}

	// load is the word at an address of shared memory, of block from.
	__device__ __forceinline__ u32 load(const u32* at, int from) const { return size > 1 ? dsmem_load(at, from) : *at; }

	// of_lane is the word at an address of the block whose rank is the lane's number, 0 beyond.
	__device__ __forceinline__ u32 of_lane(const u32* at) const { return lane() < size ? load(at, lane()) : 0; }

	// peers is the words at one address of shared memory in all blocks, from the own on in the order of
	// ranks, 0 behind the last.
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

	// sum is the sum of the words at one address in all blocks, and before that of the blocks of lower
	// ranks.
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

// ClusterScratch is a block's shared memory for a selection. Behind it are bitmaps of its part and
// the lists of its warps.
struct ClusterScratch {
	u32 bins[2 * CUT_BINS];  // a histogram: low words of the weights, then high words
	u32 sample[CUT_BINS];
	u64 weights[RANKED];  // of keys that are ranked
	u32 keys[RANKED];
	u32 listed[RANKED];   // keys of the bracket that the block has
	u32 candidates[2];    // their number, of alternate rounds; more than RANKED: not all are listed
	u32 ends[2];          // ~smallest and largest key of the block's part
	u32 counts[2][2];     // of the part, for each bitmap: keys above the cut, and equal to it
	u32 entries;
	u32 warps[2][WARP];
	u32 found[3];
	u64 cut[4];
};
static_assert(sizeof(ClusterScratch) == 10576, "the host reckons with it");

// fetch_run fetches a lane's elements of a run of the warp, every WARP-th from first to last, which
// stands for those behind it. An overload for a type of loads may fetch them together.
template <class Load>
__device__ __forceinline__ void fetch_run(const Load& load, float (&x)[KEYS_IN_FLIGHT], int first, int last) {
#pragma unroll
	for (int i = 0; i < KEYS_IN_FLIGHT; i++) x[i] = load.fetch(min_of(first + i * WARP, last));
}

// ListPart is the elements lo to hi-1 of a list of n, those of a block. A key of 0 takes no part in
// the selection. Load has fetch(i), which reads what the key of element i is made of, and key(i, x,
// first), which makes it; first says that this is the first time.
template <class Load>
struct ListPart {
	int n, lo, hi;
	u32* bits;       // bit i%32 of word i/32: element lo+i is selected
	u32 *keys, *at;  // [WARP_LIST] of the warp: keys of elements in the bracket, and their places from lo on
	Load load;
	int from, until;  // the elements of the warp, from lo on; from is a multiple of WARP, behind until where there are none

	// each_value calls take(i, x, there) for elements lo+i of the warp in order, one for each lane, with
	// what has been fetched of it; there is false behind the last. All lanes call it.
	template <class Take>
	__device__ __forceinline__ void each_value(Take take) const {
		for (int base = from; base < until; base += KEYS_IN_FLIGHT * WARP) {
			float x[KEYS_IN_FLIGHT];
			fetch_run(load, x, lo + base + lane(), lo + until - 1);
#pragma unroll
			for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
				int j = base + i * WARP;
				if (j >= until) break;
				take(j + lane(), x[i], j + lane() < until);
			}
		}
	}

	// each calls take(i, key) for them, key 0 behind the last.
	template <class Take>
	__device__ __forceinline__ void each(bool first, Take take) const {
		each_value([&](int i, float x, bool there) { take(i, there ? load.key(lo + i, x, first) : 0); });
	}
};

// part_words is the words of a bitmap of up to limit elements.
__device__ __forceinline__ i64 part_words(i64 limit) { return limit / WARP; }

// list_part is the block's part of a list of n elements; a part has up to limit, a multiple of WARP.
// bitmap is the number of the bitmap, of so many.
template <class Load>
__device__ __forceinline__ ListPart<Load> list_part(const ClusterBlock& c, ClusterScratch& s, int n, i64 limit, Load load, int bitmap = 0, int bitmaps = 1) {
	int warps = (int)blockDim.x / WARP, each = ((n + c.size - 1) / c.size + WARP - 1) / WARP * WARP, lo = min_of(c.rank * each, n), hi = min_of(lo + each, n);
	int own = (hi - lo + warps * WARP - 1) / (warps * WARP) * WARP, from = warp() * own;
	u32 *bits = (u32*)(&s + 1), *lists = bits + bitmaps * part_words(limit) + warp() * 2 * WARP_LIST;
	ListPart<Load> part = {n, lo, hi, bits + bitmap * part_words(limit), lists, lists + WARP_LIST, load, from, min_of(from + own, hi - lo)};
	return part;
}

// block_ends makes lo and hi, of a thread's keys, the smallest and largest of the block's. All
// threads call it; at is scratch, [2, WARP].
__device__ inline void block_ends(u32 (*at)[WARP], u32& lo, u32& hi) {
	u32 low = warp_max(~lo), top = warp_max(hi);
	if (lane() == 0) {
		at[0][warp()] = low;
		at[1][warp()] = top;
	}
	__syncthreads();
	bool there = lane() < (int)blockDim.x / WARP;
	lo = ~warp_max(there ? at[0][lane()] : 0);
	hi = warp_max(there ? at[1][lane()] : 0);
}

// CutBins divide keys lo to hi into bins 1 to CUT_BINS-1, the largest keys first, of equal width in
// the score from top down, or in the key where scale is 0. Scores above top are in bin 1.
struct CutBins {
	u32 lo, hi;
	int shift;
	float top, scale;

	__device__ __forceinline__ int of(u32 key) const {
		int bin = scale > 0 ? (int)((top - from_radix_key(key)) * scale) : (int)((hi - key) >> shift);
		return 1 + min_of(max_of(bin, 0), CUT_BINS - 2);
	}

	// keys_of makes from and until the smallest and largest key of a bin that has keys. All lanes call it.
	__device__ inline void keys_of(int bin, u32& from, u32& until) const {
		u32 first[2] = {lo, lo}, n[2] = {hi - lo + 1, hi - lo + 1};  // the smallest keys of this bin and of the next are first to first+n
		while (n[0] > 0 || n[1] > 0) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 step = n[i] / WARP + 1, skip = (lane() + 1) * step - 1;  // the last key of the lane's share
				unsigned who = __ballot_sync(FULL_MASK, skip >= n[i] || of(first[i] + skip) <= bin - i);
				u32 before = (__ffs((int)who) - 1) * step;
				first[i] += before;
				n[i] = n[i] == 0 ? 0 : min_of(step - 1, n[i] - before);
			}
		}
		from = first[0];
		until = first[1] - 1;
	}
};

// key_bins are bins of equal width in the key.
__device__ inline CutBins key_bins(u32 lo, u32 hi) {
	static_assert(CUT_BINS == 1 << 9, "9 bits");
	int bits = hi > lo ? 32 - __clz((int)(hi - lo)) : 0;
	CutBins bins = {lo, hi, max_of(bits - 9, 0), 0, 0};
	return bins;
}

// score_bins are bins of equal width in the score, where there is such a width: where scores are not
// infinite nor all equal.
__device__ inline CutBins score_bins(u32 lo, u32 hi) {
	CutBins bins = key_bins(lo, hi);
	float scale = (CUT_BINS - 1) / (from_radix_key(hi) - from_radix_key(lo));
	bins.top = from_radix_key(hi);
	if (scale > 0 && scale < infinity() && bins.top < infinity()) bins.scale = scale;
	return bins;
}

// add_weight adds to a bin; a 64-bit weight by two atomics and a carry.
template <bool WEIGHTED>
__device__ __forceinline__ void add_weight(u32* bins, int bin, u64 w) {
	if constexpr (WEIGHTED) {
		u32 low = (u32)w, old = atomicAdd(&bins[bin], low), high = (u32)(w >> 32) + ((u32)(old + low) < low);
		if (high > 0) atomicAdd(&bins[CUT_BINS + bin], high);
	} else {
		atomicAdd(&bins[bin], (u32)w);
	}
}

// bracket_sample makes bins[c] a bracket of the wants[c]-th largest of a list's elements: so many standard
// deviations around it in a sample, one element of every SAMPLE-th part of the list. found is scratch,
// [2·N]. All threads of the cluster call it, and get the same.
template <int N, class Part>
__device__ inline void bracket_sample(ClusterScratch& s, u32* found, const Part& part, const u64 (&wants)[N], CutBins (&bins)[N]) {
	int each = (part.n + SAMPLE - 1) / SAMPLE, samples = (part.n + each - 1) / each;
	constexpr int MOST = 2;  // samples of a thread whose keys it keeps
	u32 kept[MOST], lo = ~0u, hi = 0;
	auto sample = [&](int i) {
		u32 jitter = (u32)i * 2654435761u >> 16;  // positions are periodic: pages, sub-pages
		int at = min_of(i * each + (int)(jitter % (u32)each), part.n - 1);
		return i < samples ? part.load.key(at, part.load.fetch(at), false) : 0;
	};
#pragma unroll
	for (int i = 0; i < MOST; i++) kept[i] = sample(threadIdx.x + i * blockDim.x);
	auto sampled = [&](auto take) {
#pragma unroll
		for (int i = 0; i < MOST; i++) {
			if (kept[i] > 0) take(kept[i]);
		}
		for (int j = threadIdx.x + MOST * blockDim.x; j < samples; j += blockDim.x) {
			u32 key = sample(j);
			if (key > 0) take(key);
		}
	};
	sampled([&](u32 key) {
		lo = min_of(lo, key);
		hi = max_of(hi, key);
	});
	for (int i = threadIdx.x; i < CUT_BINS; i += blockDim.x) s.sample[i] = 0;
	block_ends(s.warps, lo, hi);
	CutBins all = hi > 0 ? score_bins(lo, hi) : key_bins(1, ~0u);
#pragma unroll
	for (int c = 0; c < N; c++) bins[c] = all;
	if (all.scale <= 0) return;
	sampled([&](u32 key) { atomicAdd(&s.sample[all.of(key)], 1u); });
	u32 above[N], to[N];
#pragma unroll
	for (int c = 0; c < N; c++) {
		float rank = (float)samples * ((float)wants[c] / (float)part.n), slack = 4 * sqrtf(rank) + 2;
		above[c] = rank > slack ? (u32)(rank - slack) : 0;
		to[c] = (u32)(rank + slack);
		if (threadIdx.x == 0) {
			found[2 * c] = 1;
			found[2 * c + 1] = CUT_BINS - 1;
		}
	}
	__syncthreads();
	// The bins in which the number of samples reaches these.
	int own = (CUT_BINS + (int)blockDim.x - 1) / (int)blockDim.x, from = (int)threadIdx.x * own;
	u32 mine = 0, total;
	for (int i = from; i < min_of(from + own, CUT_BINS); i++) mine += s.sample[i];
	u32 sum = scan_block(mine, total);
	for (int i = from; i < min_of(from + own, CUT_BINS); i++) {
		u32 next = sum + (own == 1 ? mine : s.sample[i]);
#pragma unroll
		for (int c = 0; c < N; c++) {
			if (sum < above[c] && next >= above[c]) found[2 * c] = i;
			if (sum < to[c] && next >= to[c]) found[2 * c + 1] = i;
		}
		sum = next;
	}
	__syncthreads();
#pragma unroll
	for (int c = 0; c < N; c++) {
		u32 first = found[2 * c], last = found[2 * c + 1];
		u32 high = first > 1 ? radix_key(all.top - (float)(first - 1) / all.scale) : hi, low = max_of(radix_key(all.top - (float)last / all.scale), lo);
		bins[c] = score_bins(min_of(low, high), high);
		if (first <= 1 && bins[c].scale > 0) bins[c].hi = ~0u;  // few are wanted: what the sample has missed above it goes to bin 1
	}
}

// clear_bins clears a histogram. A barrier follows before it is used.
template <bool WEIGHTED>
__device__ __forceinline__ void clear_bins(u32* bins) {
	for (int i = threadIdx.x; i < (WEIGHTED ? 2 : 1) * CUT_BINS; i += blockDim.x) bins[i] = 0;
}

// WeightSum is the type of sums of weights, which are numbers of elements where all are 1.
template <bool WEIGHTED>
struct WeightSum {
	using Type = u64;
};
template <>
struct WeightSum<false> {
	using Type = u32;
};

// WeightCut is the bin in which the weight, bin 0 first, reaches want; bin -1 where it does not.
struct WeightCut {
	int bin;
	u64 above;  // weight of the bins before it
	u64 want;
};

// find_weight_cut finds it in the sum of the cluster's histograms. want(total) is what is wanted, at
// least 1. All threads of the cluster call it, behind a barrier of the cluster.
template <bool WEIGHTED, class Want>
__device__ inline WeightCut find_weight_cut(const ClusterBlock& c, ClusterScratch& s, Want want) {
	using Sum = typename WeightSum<WEIGHTED>::Type;
	int each = (CUT_BINS + (int)blockDim.x - 1) / (int)blockDim.x, first = (int)threadIdx.x * each;
	auto weight = [&](int bin) {
		Sum w = (Sum)c.sum(s.bins + bin);
		if constexpr (WEIGHTED) w += (Sum)c.sum(s.bins + CUT_BINS + bin) << 32;
		return w;
	};
	Sum mine = 0, total;
	for (int i = 0; i < each && first + i < CUT_BINS; i++) mine += weight(first + i);
	Sum above = scan_block(mine, total);
	u64 wanted = want((u64)total);
	if (threadIdx.x == 0 && total < wanted) s.cut[0] = ~0ull;
	if (above < wanted && above + mine >= wanted) {
		for (int i = 0; i < each; i++) {
			Sum w = each == 1 ? mine : weight(first + i);
			if (above + w >= wanted) {
				s.cut[0] = (u64)(first + i);
				s.cut[1] = above;
				break;
			}
			above += w;
		}
	}
	__syncthreads();
	WeightCut cut = {(int)s.cut[0], s.cut[1], wanted};
	return cut;
}

// WarpBracket is the keys lo to hi of a warp's elements: how many it has, of which up to WARP_LIST are
// listed. What is above is marked.
struct WarpBracket {
	u32 lo, hi;
	u32 n;

	__device__ __forceinline__ bool contains(u32 key) const { return key >= lo && key <= hi; }
};

// mark sets the bit of element i of the part.
template <class Part>
__device__ __forceinline__ void mark(const Part& part, u32 i) { atomicOr(&part.bits[i / WARP], 1u << i % WARP); }

// split_part brackets keys lo to hi, in a pass over the warp's elements, and returns in above how many
// are above. All lanes call it.
template <class Part>
__device__ inline WarpBracket split_part(const Part& part, u32 lo, u32 hi, bool first, u32& above) {
	WarpBracket b = {lo, hi, 0};
	above = 0;
	unsigned below = (1u << lane()) - 1;
	part.each(first, [&](int i, u32 key) {
		bool in = b.contains(key);
		unsigned over = __ballot_sync(FULL_MASK, key > hi), who = __ballot_sync(FULL_MASK, in);
		if (lane() == 0) part.bits[i / WARP] = over;
		u32 to = b.n + __popc(who & below);
		if (in && to < WARP_LIST) {
			part.keys[to] = key;
			part.at[to] = (u32)i;
		}
		above += __popc(over);
		b.n += __popc(who);
	});
	__syncwarp();
	return b;
}

// split_again is split_part where it is rare: a function of its own, so that kernels stay short.
template <class Part>
__device__ NOINLINE WarpBracket split_again(Part part, u32 lo, u32 hi, bool first, u32& above) {
	return split_part(part, lo, hi, first, above);
}

// narrow_list is split_part for keys of a bracket whose elements are listed.
template <class Part>
__device__ inline WarpBracket narrow_list(const Part& part, const WarpBracket& old, u32 lo, u32 hi) {
	WarpBracket b = {lo, hi, 0};
	unsigned below = (1u << lane()) - 1;
	for (u32 base = 0; base < old.n; base += WARP) {
		bool there = base + lane() < old.n;
		u32 key = there ? part.keys[base + lane()] : 0, i = there ? part.at[base + lane()] : 0;
		bool in = b.contains(key);
		unsigned who = __ballot_sync(FULL_MASK, in);
		__syncwarp();
		if (key > hi) mark(part, i);
		if (in) {
			u32 to = b.n + __popc(who & below);
			part.keys[to] = key;
			part.at[to] = i;
		}
		b.n += __popc(who);
	}
	__syncwarp();
	return b;
}

// each_inside calls take(i, key) for the warp's elements in a bracket in order, one for each lane, key
// 0 where there is none. All lanes call it.
template <class Part, class Take>
__device__ __forceinline__ void each_inside(const Part& part, const WarpBracket& b, Take take) {
	if (b.n <= WARP_LIST) {
		for (u32 base = 0; base < b.n; base += WARP) {
			bool there = base + lane() < b.n;
			take(there ? part.at[base + lane()] : 0, there ? part.keys[base + lane()] : 0);
		}
	} else {
		part.each(false, [&](int i, u32 key) { take((u32)i, b.contains(key) ? key : 0); });
	}
}

// rank_candidates is the threshold among up to RANKED keys of the cluster, theirs of the block of the
// lane's rank, at which their weight, the largest first, reaches left. All threads of the cluster call
// it.
template <bool WEIGHTED, class Weight>
__device__ inline Threshold<u32> rank_candidates(const ClusterBlock& c, ClusterScratch& s, u32 theirs, u32 all, u64 left, Weight weight) {
	u32 upto = theirs;
	for (int by = 1; by < MAX_CLUSTER; by *= 2) {
		u32 lower = __shfl_up_sync(FULL_MASK, upto, by);
		if (lane() >= by) upto += lower;
	}
	for (int from = warp(); from < c.size; from += (int)blockDim.x / WARP) {
		u32 n = __shfl_sync(FULL_MASK, theirs, from), to = __shfl_sync(FULL_MASK, upto, from) - n;
		for (u32 i = lane(); i < n; i += WARP) {
			u32 key = c.load(&s.listed[i], from);
			s.keys[to + i] = key;
			if (WEIGHTED) s.weights[to + i] = weight(key);
		}
	}
	__syncthreads();
	for (u32 i = threadIdx.x; i < all; i += blockDim.x) {
		u32 own = s.keys[i];
		typename WeightSum<WEIGHTED>::Type above = 0;
		u32 equal = 0;
#pragma unroll 4
		for (u32 j = 0; j < all; j++) {
			u32 key = s.keys[j];
			if (key > own) above += WEIGHTED ? s.weights[j] : 1;
			equal += key == own;
		}
		u64 each = WEIGHTED ? s.weights[i] : 1;
		if (above >= left || above + equal * each < left) continue;
		u64 ties = (left - above + each - 1) / each;
		s.cut[2] = own;  // the same of all equal keys
		s.cut[3] = ties < equal ? ties : ~0ull;
	}
	__syncthreads();
	Threshold<u32> t = {(u32)s.cut[2], s.cut[3]};
	return t;
}

// list_block lists the keys that a block's warps have in a bracket, and counts them. A barrier of the
// cluster follows.
template <class Part>
__device__ __forceinline__ void list_block(ClusterScratch& s, u32* candidates, const Part& part, const WarpBracket& b) {
	u32 to = 0;
	if (lane() == 0 && b.n > 0) to = atomicAdd(candidates, b.n);
	to = __shfl_sync(FULL_MASK, to, 0);
	if (to + b.n > RANKED) return;
	for (u32 i = lane(); i < b.n; i += WARP) s.listed[to + i] = part.keys[i];
}

// Selected is what a selection has marked: the entries before the warp's, and those of the list.
struct Selected {
	u32 before, all;
};

// select_none is of a list of which nothing is selected.
__device__ __forceinline__ Selected select_none() {
	Selected none = {0, 0};
	return none;
}

// sum_before makes n[i], of the warp, the sum over the warps before it in the cluster, and all[i] that
// over all warps. counts is a word of the block for each. All threads of the cluster call it.
template <int N>
__device__ inline void sum_before(const ClusterBlock& c, u32* counts, u32 (*warps)[WARP], u32 (&n)[N], u32 (&all)[N]) {
	__syncthreads();
	if (lane() == 0) {
#pragma unroll
		for (int i = 0; i < N; i++) warps[i][warp()] = n[i];
	}
	__syncthreads();
#pragma unroll
	for (int i = 0; i < N; i++) {
		u32 theirs = lane() < (int)blockDim.x / WARP ? warps[i][lane()] : 0, total = warp_add(theirs);
		n[i] = warp_add(lane() < warp() ? theirs : 0);
		if (threadIdx.x == 0) counts[i] = total;
	}
	c.sync();
#pragma unroll
	for (int i = 0; i < N; i++) {
		u32 theirs = c.of_lane(&counts[i]);
		n[i] += warp_add(lane() < c.rank ? theirs : 0);
		all[i] = warp_add(theirs);
	}
}

// mark_selected marks what a threshold selects of a bracket that it lies in.
template <class Part>
__device__ inline Selected mark_selected(const ClusterBlock& c, ClusterScratch& s, u32* counts, const Part& part, const WarpBracket& b, Threshold<u32> cut) {
	bool tied = cut.ties != ~0ull;
	u32 n[2] = {0, 0}, all[2];
	each_inside(part, b, [&](u32 i, u32 key) {
		if (key > cut.key || (!tied && key == cut.key && key > 0)) mark(part, i);
		n[1] += tied && key == cut.key && key > 0;
	});
	__syncwarp();
	for (int w = part.from / WARP + lane(); w * WARP < part.until; w += WARP) n[0] += __popc(part.bits[w]);
	n[0] = warp_add(n[0]);
	n[1] = warp_add(n[1]);
	sum_before(c, counts, s.warps, n, all);
	u32 ties = (u32)min_of(cut.ties, (u64)all[1]), equal = n[1];
	if (tied) {
		each_inside(part, b, [&](u32 i, u32 key) {
			bool same = key == cut.key && key > 0;
			unsigned who = __ballot_sync(FULL_MASK, same);
			if (same && equal + __popc(who & ((1u << lane()) - 1)) < ties) mark(part, i);
			equal += __popc(who);
		});
	}
	__syncwarp();
	Selected selected = {n[0] + min_of(n[1], ties), all[0] + ties};
	return selected;
}

// mark_all marks every element that takes part.
template <class Part>
__device__ inline Selected mark_all(const ClusterBlock& c, ClusterScratch& s, u32* counts, const Part& part, bool first) {
	u32 n[1], all[1];
	split_again(part, ~0u, 0, first, n[0]);
	sum_before(c, counts, s.warps, n, all);
	Selected selected = {n[0], all[0]};
	return selected;
}

// cluster_select marks the best elements of a list whose weight reaches want(total), ties to the
// lowest; all of them where it does not. weight(key, top) is the weight of an element, top the largest
// key; weight 0 takes no part. WEIGHTED: weights are not all 1, and want(n) is no number of elements.
// bitmap is that of the part; of several selections each has one, and a barrier of the cluster lies
// between them. All threads of the cluster call it; peers may read the block's shared memory until the
// barrier that the caller puts behind it.
template <bool WEIGHTED, class Part, class Weight, class Want>
__device__ inline Selected cluster_select(const ClusterBlock& c, ClusterScratch& s, const Part& part, Weight weight, Want want, int bitmap = 0) {
	u32 *counts = s.counts[bitmap], top = 0, above = 0;
	CutBins bins;
	WarpBracket b;
	clear_bins<WEIGHTED>(s.bins);
	bool first = bitmap == 0;
	if constexpr (WEIGHTED) {
		u32 lo = ~0u;
		part.each(first, [&](int, u32 key) {
			if (key > 0) lo = min_of(lo, key);
			top = max_of(top, key);
		});
		block_ends(s.warps, lo, top);
		if (threadIdx.x == 0) {
			s.ends[0] = ~lo;
			s.ends[1] = top;
		}
		c.sync();
		lo = ~warp_max(c.of_lane(&s.ends[0]));
		top = warp_max(c.of_lane(&s.ends[1]));
		if (top == 0) return mark_all(c, s, counts, part, false);
		bins = score_bins(lo, top);
		b = {bins.lo, bins.hi, WARP_LIST + 1};
	} else {
		if (want((u64)part.n) >= (u64)part.n) return mark_all(c, s, counts, part, first);
		CutBins bracket[1] = {key_bins(1, ~0u)};
		const u64 wants[1] = {want((u64)part.n)};
		if (part.n > RANKED) bracket_sample<1>(s, s.found, part, wants, bracket);
		bins = bracket[0];
		b = split_part(part, bins.lo, bins.hi, first, above);
	}
	u64 left = 0;
	for (int round = 0;; round++) {
		__syncthreads();  // the histogram is clear
		if (lane() == 0 && above > 0) add_weight<WEIGHTED>(s.bins, 0, above);
		if (bins.lo == bins.hi && (!WEIGHTED || round > 0)) {
			if (lane() == 0 && b.n > 0) add_weight<WEIGHTED>(s.bins, 1, b.n * weight(bins.lo, top));
		} else {
			each_inside(part, b, [&](u32, u32 key) {
				u64 w = key > 0 ? weight(key, top) : 0;
				if (w > 0) add_weight<WEIGHTED>(s.bins, bins.of(key), w);
			});
		}
		if (threadIdx.x == 0) s.candidates[round % 2] = 0;  // peers have read what it had two rounds ago
		c.sync();
		WeightCut cut = find_weight_cut<WEIGHTED>(c, s, [&](u64 total) { return round == 0 ? want(total) : left; });
		u32 lo, hi;
		if (cut.bin > 0) {  // inside: narrow the bracket
			left = cut.want - cut.above;
			bins.keys_of(cut.bin, lo, hi);
			above = 0;
			b = b.n <= WARP_LIST ? narrow_list(part, b, lo, hi) : split_again(part, lo, hi, false, above);
			list_block(s, &s.candidates[round % 2], part, b);
		} else {  // above the bracket or below it
			if (cut.bin < 0 && (WEIGHTED || bins.lo <= 1)) return mark_all(c, s, counts, part, false);
			lo = cut.bin == 0 ? bins.hi + 1 : 1;
			hi = cut.bin == 0 ? ~0u : bins.lo - 1;
		}
		bins = key_bins(lo, hi);
		c.sync();
		if (cut.bin > 0) {
			u32 theirs = c.of_lane(&s.candidates[round % 2]), all = warp_add(theirs);
			if (lo == hi) {
				u64 each = weight(lo, top), ties = (left + each - 1) / each;
				Threshold<u32> t = {lo, ties};
				return mark_selected(c, s, counts, part, b, t);
			}
			if (all <= RANKED) {
				Threshold<u32> t = rank_candidates<WEIGHTED>(c, s, theirs, all, left, [&](u32 key) { return weight(key, top); });
				return mark_selected(c, s, counts, part, b, t);
			}
			above = 0;  // left is wanted of the bracket
		} else {
			b = split_again(part, lo, hi, false, above);
			left = cut.want;
		}
		clear_bins<WEIGHTED>(s.bins);
	}
}

constexpr int FEW_MARKS = 12;  // of a word: cheaper to write one by one

// cluster_put calls put(i, to) for the elements that are marked, to being the number of those before. A
// lane takes a word where marks are few, and the warp a word after the other where they are not, so that
// neighbours write neighbours.
template <class Part, class Put>
__device__ inline void cluster_put(const Part& part, Selected selected, Put put) {
	u32 to = selected.before;
	unsigned below = (1u << lane()) - 1;
	for (int base = part.from; base < part.until; base += WARP * WARP) {
		u32 words = base + lane() * WARP < part.until ? part.bits[base / WARP + lane()] : 0, own = __popc(words);
		if (warp_max(own) <= FEW_MARKS) {
			u32 upto = own;
			for (int by = 1; by < WARP; by *= 2) {
				u32 left = __shfl_up_sync(FULL_MASK, upto, by);
				if (lane() >= by) upto += left;
			}
			i64 place = to + upto - own;
			for (int first = part.lo + base + lane() * WARP; words; words &= words - 1) put(first + __ffs((int)words) - 1, place++);
			to += __shfl_sync(FULL_MASK, upto, WARP - 1);
			continue;
		}
#pragma unroll 4
		for (int i = 0; i < WARP; i++) {
			u32 bits = __shfl_sync(FULL_MASK, words, i);
			if (bits >> lane() & 1) put(part.lo + base + i * WARP + lane(), (i64)(to + __popc(bits & below)));
			to += __popc(bits);
		}
	}
}

// cluster_put_entries is cluster_put for elements of which i has entries(i): put(i, to) writes them from
// place to on. It returns the number of all.
template <class Part, class Entries, class Put>
__device__ inline i64 cluster_put_entries(const ClusterBlock& c, ClusterScratch& s, const Part& part, Entries entries, Put put) {
	u32 n[1] = {0}, all[1];
	for (int i = part.from; i < part.until; i += WARP) {
		if (part.bits[i / WARP] >> lane() & 1) n[0] += entries(part.lo + i + lane());
	}
	n[0] = warp_add(n[0]);
	sum_before(c, &s.entries, s.warps, n, all);
	u32 to = n[0];
	for (int i = part.from; i < part.until; i += WARP) {
		bool in = part.bits[i / WARP] >> lane() & 1;
		u32 own = in ? entries(part.lo + i + lane()) : 0, upto = own;
		for (int by = 1; by < WARP; by *= 2) {
			u32 left = __shfl_up_sync(FULL_MASK, upto, by);
			if (lane() >= by) upto += left;
		}
		if (in) put(part.lo + i + lane(), (i64)(to + upto - own));
		to += __shfl_sync(FULL_MASK, upto, WARP - 1);
	}
	return all[0];
}
