// Two selections of one list by a cluster of thread blocks: its best elements, and the best of those.
// Steps (1) to (5) of cluster_select.cuh for both at once: one sample, one pass over the list, in which
// every warp lists what may be selected, a histogram for each, and the same barriers. What one pass
// does not settle is left to cluster_select: a cut outside its bracket, a warp's list that has no room,
// and a bin of too many keys, as where many are equal.
#pragma once

#include "cluster_select.cuh"

constexpr int CUTS = 2;                     // the selection, and the one inside it
constexpr int NESTED_LIST = 2 * WARP_LIST;  // elements that a warp has room for

// NestedScratch is a block's shared memory for them behind its ClusterScratch, whose histogram has a half
// for each selection.
struct NestedScratch {
	u32 keys[CUTS][RANKED];
	u32 listed[CUTS][RANKED];  // keys of the cut's bin that the block has
	u32 candidates[CUTS];      // their number; more than RANKED: not all are listed
	u32 overfull, pad;         // a warp of the block has had no room
	u32 counts[2 * CUTS];      // of the part: marked, and equal to the cut
	u32 warps[2 * CUTS][WARP];
	u32 found[2 * CUTS];
	u64 cut[CUTS][2];  // the bin and what is above it, then the key and its ties
};
static_assert(sizeof(NestedScratch) == 4688, "the host reckons with it");

// NestedCut is one of the selections under way: of want elements.
struct NestedCut {
	u32 want;
	CutBins bins;
	u32* bits;     // the bitmap of the block's part
	bool settled;  // as yet

	__device__ __forceinline__ void mark(u32 i) const { atomicOr(&bits[i / WARP], 1u << i % WARP); }
};

// NestedList is a warp's list: elements that may be selected, in order.
struct NestedList {
	u32 *keys, *at;  // [NESTED_LIST]
	u32 n;

	// each calls take(key, i) for the elements, one for each lane, key 0 behind the last. All lanes call it.
	template <class Take>
	__device__ __forceinline__ void each(Take take) const {
		for (u32 base = 0; base < n; base += WARP) {
			bool there = base + lane() < n;
			take(there ? keys[base + lane()] : 0, there ? at[base + lane()] : 0);
		}
	}
};

// list_from lists a warp's elements from key lo on. All lanes call it.
template <class Part>
__device__ __forceinline__ void list_from(const Part& part, NestedList& list, u32 lo) {
	float least = lo > KEY_NEG_INF ? from_radix_key(lo) : -__uint_as_float(0x7f7fffff);
	unsigned below = (1u << lane()) - 1;
	u32 n = 0;
	part.each_value([&](int i, float x, bool there) {
		bool in = there && x >= least && part.load.has(part.lo + i);
		unsigned who = __ballot_sync(FULL_MASK, in);
		u32 to = n + __popc(who & below);
		if (in && to < NESTED_LIST) {
			list.keys[to] = radix_key(x);
			list.at[to] = (u32)i;
		}
		n += __popc(who);
	});
	__syncwarp();
	list.n = n;
}

// count_nested adds a warp's list to the histograms: to bin 0 what is above a bracket.
__device__ __forceinline__ void count_nested(ClusterScratch& s, NestedScratch& t, NestedList& list, const NestedCut* cuts) {
	u32 above[CUTS] = {0, 0};
	if (list.n > NESTED_LIST && lane() == 0) t.overfull = 1;
	list.n = min_of(list.n, (u32)NESTED_LIST);
	list.each([&](u32 key, u32) {
#pragma unroll
		for (int c = 0; c < CUTS; c++) {
			const CutBins& bins = cuts[c].bins;
			above[c] += __popc(__ballot_sync(FULL_MASK, key > bins.hi));
			if (key >= bins.lo && key <= bins.hi) atomicAdd(&s.bins[c * CUT_BINS + bins.of(key)], 1u);
		}
	});
#pragma unroll
	for (int c = 0; c < CUTS; c++) {
		if (lane() == 0 && above[c] > 0) atomicAdd(&s.bins[c * CUT_BINS], above[c]);
	}
}

// find_nested_cuts finds the bins in which the cluster's histograms reach what is wanted, and what is
// above them, in t.cut. All threads of the cluster call it, behind a barrier of the cluster.
__device__ inline void find_nested_cuts(const ClusterBlock& c, ClusterScratch& s, NestedScratch& t, NestedCut* cuts) {
	int each = (CUT_BINS + (int)blockDim.x - 1) / (int)blockDim.x, first = (int)threadIdx.x * each;
	auto both = [&](int bin) { return c.sum(s.bins + bin) | c.sum(s.bins + CUT_BINS + bin) << 32; };
	u64 mine = 0, total;
	for (int i = 0; i < each && first + i < CUT_BINS; i++) mine += both(first + i);
	u64 before = scan_block(mine, total);
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		u32 above = (u32)(before >> 32 * w), own = (u32)(mine >> 32 * w), want = cuts[w].want;
		if (threadIdx.x == 0 && (u32)(total >> 32 * w) < want) t.cut[w][0] = 0;  // below the bracket
		if (above >= want || above + own < want) continue;
		for (int i = 0; i < each; i++) {
			u32 n = each == 1 ? own : (u32)c.sum(s.bins + w * CUT_BINS + first + i);
			if (above + n >= want) {
				t.cut[w][0] = (u64)(first + i);
				t.cut[w][1] = above;
				break;
			}
			above += n;
		}
	}
	__syncthreads();
	bool overfull = warp_max(c.of_lane(&t.overfull)) > 0;
#pragma unroll
	for (int w = 0; w < CUTS; w++) cuts[w].settled = t.cut[w][0] > 0 && !overfull;
}

// narrow_nested keeps a warp's elements in the cuts' bins, marks those above them, and lists the keys of
// the bins for the cluster. All lanes call it.
__device__ __forceinline__ void narrow_nested(NestedScratch& t, NestedList& list, const NestedCut* cuts) {
	unsigned below = (1u << lane()) - 1;
	u32 kept = 0;
	int bin[CUTS];
#pragma unroll
	for (int c = 0; c < CUTS; c++) bin[c] = cuts[c].settled ? (int)t.cut[c][0] : -1;
	list.each([&](u32 key, u32 i) {
		bool in = false;
#pragma unroll
		for (int c = 0; c < CUTS; c++) {
			const CutBins& bins = cuts[c].bins;
			int own = key > bins.hi ? 0 : key >= bins.lo ? bins.of(key) : CUT_BINS;
			unsigned who = __ballot_sync(FULL_MASK, own == bin[c]);
			if (own < bin[c]) cuts[c].mark(i);
			in |= own == bin[c];
			if (who == 0) continue;
			u32 to = 0;
			if (lane() == 0) to = atomicAdd(&t.candidates[c], (u32)__popc(who));
			to = __shfl_sync(FULL_MASK, to, 0) + __popc(who & below);
			if (own == bin[c] && to < RANKED) t.listed[c][to] = key;
		}
		unsigned who = __ballot_sync(FULL_MASK, in);
		if (in) {  // all lanes have read theirs
			list.keys[kept + __popc(who & below)] = key;
			list.at[kept + __popc(who & below)] = i;
		}
		kept += __popc(who);
		__syncwarp();
	});
	list.n = kept;
}

// rank_nested makes t.cut the thresholds: it compares all pairs of the keys that the cluster has listed.
// All threads of the cluster call it, behind a barrier of the cluster.
__device__ inline void rank_nested(const ClusterBlock& c, NestedScratch& t, NestedCut* cuts) {
	u32 theirs[CUTS], upto[CUTS], all[CUTS], left[CUTS];
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		theirs[w] = upto[w] = c.of_lane(&t.candidates[w]);
		for (int by = 1; by < MAX_CLUSTER; by *= 2) {
			u32 lower = __shfl_up_sync(FULL_MASK, upto[w], by);
			if (lane() >= by) upto[w] += lower;
		}
		all[w] = warp_add(theirs[w]);
		left[w] = cuts[w].want - (u32)t.cut[w][1];
		cuts[w].settled = cuts[w].settled && all[w] <= RANKED;
		if (!cuts[w].settled) all[w] = 0;
	}
	for (int at = warp(); at < CUTS * c.size; at += (int)blockDim.x / WARP) {
		int w = at / c.size, from = at % c.size;
		u32 n = __shfl_sync(FULL_MASK, w ? theirs[1] : theirs[0], from), to = __shfl_sync(FULL_MASK, w ? upto[1] : upto[0], from) - n;
		if (w ? !cuts[1].settled : !cuts[0].settled) continue;
		for (u32 i = lane(); i < n; i += WARP) t.keys[w][to + i] = c.load(&t.listed[w][i], from);
	}
	__syncthreads();  // all have read the bins, too
	for (int at = threadIdx.x; at < CUTS * RANKED; at += blockDim.x) {
		u32 w = at / RANKED, i = at % RANKED, n = w ? all[1] : all[0], want = w ? left[1] : left[0], above = 0, equal = 0;
		if (i >= n) continue;
		u32 own = t.keys[w][i];
#pragma unroll 4
		for (u32 j = 0; j < n; j++) {
			u32 key = t.keys[w][j];
			above += key > own;
			equal += key == own;
		}
		if (above >= want || above + equal < want) continue;
		t.cut[w][0] = own;  // the same of all equal keys
		t.cut[w][1] = want - above < equal ? want - above : ~0ull;
	}
	__syncthreads();
}

// mark_nested is mark_selected for both. list has the elements of the cuts' bins.
template <class Part>
__device__ __forceinline__ void mark_nested(const ClusterBlock& c, NestedScratch& t, const Part& part, const NestedList& list, const NestedCut* cuts, Selected* selected) {
	u32 n[2 * CUTS] = {}, all[2 * CUTS];
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		u32 cut = (u32)t.cut[w][0];
		bool tied = t.cut[w][1] != ~0ull;
		list.each([&](u32 key, u32 i) {
			if (key > cut || (!tied && key == cut && key > 0)) cuts[w].mark(i);
			n[2 * w + 1] += tied && key == cut && key > 0;
		});
		__syncwarp();
		for (int i = part.from / WARP + lane(); i * WARP < part.until; i += WARP) n[2 * w] += __popc(cuts[w].bits[i]);
		n[2 * w] = warp_add(n[2 * w]);
		n[2 * w + 1] = warp_add(n[2 * w + 1]);
	}
	sum_before(c, t.counts, t.warps, n, all);
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		u32 cut = (u32)t.cut[w][0], ties = (u32)min_of(t.cut[w][1], (u64)all[2 * w + 1]), equal = n[2 * w + 1];
		if (ties > 0) {
			list.each([&](u32 key, u32 i) {
				bool same = key == cut && key > 0;
				unsigned who = __ballot_sync(FULL_MASK, same);
				if (same && equal + __popc(who & ((1u << lane()) - 1)) < ties) cuts[w].mark(i);
				equal += __popc(who);
			});
		}
		__syncwarp();
		selected[w].before = n[2 * w] + min_of(n[2 * w + 1], ties);
		selected[w].all = all[2 * w] + ties;
	}
}

// select_nested marks the best wants[0] elements of a list in the bitmap bits[0] of the block's part, and
// the best wants[1], fewer, in bits[1]; ties to the lowest. lists has room for the NestedLists of the
// block's warps. settled says which it has; the list has more than wants[0] elements. All threads of the
// cluster call it; peers may read the block's shared memory until the barrier that the caller puts behind it.
template <class Part>
__device__ __forceinline__ void select_nested(const ClusterBlock& c, ClusterScratch& s, NestedScratch& t, const Part& part, u32* lists, u32* const* bits, const u32* wants, Selected* selected, bool* settled) {
	NestedCut cuts[CUTS];
	NestedList list = {lists + warp() * 2 * NESTED_LIST, lists + (warp() * 2 + 1) * NESTED_LIST, 0};
	CutBins bins[CUTS] = {key_bins(1, ~0u), key_bins(1, ~0u)};
	const u64 want[CUTS] = {wants[0], wants[1]};
	clear_bins<true>(s.bins);
	if (threadIdx.x < CUTS) t.candidates[threadIdx.x] = 0;
	if (threadIdx.x == 0) t.overfull = 0;
	if (part.n > RANKED) bracket_sample<CUTS>(s, t.found, part, want, bins);
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		cuts[w].want = wants[w];
		cuts[w].bins = bins[w];
		cuts[w].bits = bits[w];
		for (int i = part.from / WARP + lane(); i * WARP < part.until; i += WARP) bits[w][i] = 0;
	}
	list_from(part, list, min_of(bins[0].lo, bins[1].lo));
	__syncthreads();  // the histogram is clear
	count_nested(s, t, list, cuts);
	c.sync();
	find_nested_cuts(c, s, t, cuts);
	narrow_nested(t, list, cuts);
	c.sync();
	rank_nested(c, t, cuts);
	mark_nested(c, t, part, list, cuts, selected);
#pragma unroll
	for (int w = 0; w < CUTS; w++) settled[w] = cuts[w].settled;
}

// cluster_put_nested is cluster_put for two selections of a list, of which the outer one has all that
// the inner one has: put(i, to, place) has the place of i, too, where those of the inner one come first.
template <class Part, class Put>
__device__ inline void cluster_put_nested(const Part& outer, Selected out, const Part& inner, Selected in, Put put) {
	u32 to = out.before, first = in.before;
	for (int base = outer.from; base < outer.until; base += WARP * WARP) {
		bool there = base + lane() * WARP < outer.until;
		u32 words = there ? outer.bits[base / WARP + lane()] : 0, best = there && in.all > 0 ? inner.bits[base / WARP + lane()] : 0;
		u32 own = (u32)__popc(words) | (u32)__popc(best) << 16, upto = own;
		for (int by = 1; by < WARP; by *= 2) {
			u32 left = __shfl_up_sync(FULL_MASK, upto, by);
			if (lane() >= by) upto += left;
		}
		u32 place = to + (upto - own & 0xffff), rank = first + (upto - own >> 16);
		for (int i = outer.lo + base + lane() * WARP; words; words &= words - 1, place++) {
			u32 bit = words & -words;
			put(i + __ffs((int)words) - 1, (i64)place, (i64)(best & bit ? rank : in.all + place - rank));
			rank += (best & bit) != 0;
		}
		u32 all = __shfl_sync(FULL_MASK, upto, WARP - 1);
		to += all & 0xffff;
		first += all >> 16;
	}
}
