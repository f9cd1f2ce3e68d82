// Two selections of one list by a cluster of thread blocks: its best elements, and the best of those.
// Steps (1) to (5) of cluster_select.cuh for both at once: one sample, one pass over the list that
// divides it by two brackets, a histogram for each, and the same barriers. What one pass does not
// settle is left to cluster_select: a cut outside its bracket, a warp's list that has no room, and a
// bin of too many keys, as where many are equal.
#pragma once

#include "cluster_select.cuh"

constexpr int CUTS = 2;  // the selection, and the one inside it

// NestedScratch is a block's shared memory for them behind its ClusterScratch, whose histogram has a half
// for each selection. Behind it are the lists of its warps for the inner one.
struct NestedScratch {
	u32 keys[CUTS][RANKED];
	u32 listed[CUTS][RANKED];  // keys of the cut's bin that the block has
	u32 candidates[CUTS];      // their number; more than RANKED: not all are listed
	u32 overfull[CUTS];        // a warp of the block has had no room
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
	u32 n;         // elements of the warp's list
	bool settled;  // as yet
};

// split_nested is split_part by two brackets, in a pass over the warp's elements. What is above a
// bracket goes to bin 0 of its histogram, the rest to the bins of its keys. All lanes call it.
template <class Part>
__device__ __forceinline__ void split_nested(ClusterScratch& s, NestedScratch& t, const Part* const parts, NestedCut* cuts) {
	unsigned below = (1u << lane()) - 1;
	u32 above[CUTS] = {0, 0};
#pragma unroll
	for (int c = 0; c < CUTS; c++) cuts[c].n = 0;
	parts[0].each(true, [&](int i, u32 key) {
#pragma unroll
		for (int c = 0; c < CUTS; c++) {
			bool in = key >= cuts[c].bins.lo && key <= cuts[c].bins.hi;
			unsigned over = __ballot_sync(FULL_MASK, key > cuts[c].bins.hi), who = __ballot_sync(FULL_MASK, in);
			if (lane() == 0) parts[c].bits[i / WARP] = over;
			u32 to = cuts[c].n + __popc(who & below);
			if (in && to < WARP_LIST) {
				parts[c].keys[to] = key;
				parts[c].at[to] = (u32)i;
			}
			above[c] += __popc(over);
			cuts[c].n += __popc(who);
		}
	});
	__syncwarp();
#pragma unroll
	for (int c = 0; c < CUTS; c++) {
		if (lane() == 0 && above[c] > 0) atomicAdd(&s.bins[c * CUT_BINS], above[c]);
		if (lane() == 0 && cuts[c].n > WARP_LIST) t.overfull[c] = 1;
		cuts[c].n = min_of(cuts[c].n, (u32)WARP_LIST);
		for (u32 i = lane(); i < cuts[c].n; i += WARP) atomicAdd(&s.bins[c * CUT_BINS + cuts[c].bins.of(parts[c].keys[i])], 1u);
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
#pragma unroll
	for (int w = 0; w < CUTS; w++) cuts[w].settled = t.cut[w][0] > 0 && warp_max(c.of_lane(&t.overfull[w])) == 0;
}

// narrow_nested keeps a warp's elements in a bin, marks those above it, and lists its keys for the
// cluster. All lanes call it.
template <class Part>
__device__ __forceinline__ void narrow_nested(NestedScratch& t, int which, const Part& part, NestedCut& cut, int bin) {
	unsigned below = (1u << lane()) - 1;
	u32 kept = 0, to = 0;
	for (u32 base = 0; base < cut.n; base += WARP) {
		bool there = base + lane() < cut.n;
		u32 key = there ? part.keys[base + lane()] : 0, i = there ? part.at[base + lane()] : 0;
		int own = there ? cut.bins.of(key) : CUT_BINS;
		unsigned who = __ballot_sync(FULL_MASK, own == bin);
		__syncwarp();
		if (own < bin) mark(part, i);
		if (own == bin) {
			u32 place = kept + __popc(who & below);
			part.keys[place] = key;
			part.at[place] = i;
		}
		kept += __popc(who);
	}
	__syncwarp();
	cut.n = kept;
	if (lane() == 0 && kept > 0) to = atomicAdd(&t.candidates[which], kept);
	to = __shfl_sync(FULL_MASK, to, 0);
	for (u32 i = lane(); i < kept && to + kept <= RANKED; i += WARP) t.listed[which][to + i] = part.keys[i];
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

// mark_nested is mark_selected for both. parts' lists have the keys of the cuts' bins.
template <class Part>
__device__ __forceinline__ void mark_nested(const ClusterBlock& c, NestedScratch& t, const Part* const parts, const NestedCut* cuts, Selected* selected) {
	u32 n[2 * CUTS] = {}, all[2 * CUTS];
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		u32 cut = (u32)t.cut[w][0];
		bool tied = t.cut[w][1] != ~0ull;
		for (u32 i = lane(); i < cuts[w].n; i += WARP) {
			u32 key = parts[w].keys[i];
			if (key > cut || (!tied && key == cut)) mark(parts[w], parts[w].at[i]);
			n[2 * w + 1] += tied && key == cut;
		}
		__syncwarp();
		for (int i = parts[w].from / WARP + lane(); i * WARP < parts[w].until; i += WARP) n[2 * w] += __popc(parts[w].bits[i]);
		n[2 * w] = warp_add(n[2 * w]);
		n[2 * w + 1] = warp_add(n[2 * w + 1]);
	}
	sum_before(c, t.counts, t.warps, n, all);
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		u32 cut = (u32)t.cut[w][0], ties = (u32)min_of(t.cut[w][1], (u64)all[2 * w + 1]), equal = n[2 * w + 1];
		for (u32 base = 0; ties > 0 && base < cuts[w].n; base += WARP) {
			bool same = base + lane() < cuts[w].n && parts[w].keys[base + lane()] == cut;
			unsigned who = __ballot_sync(FULL_MASK, same);
			if (same && equal + __popc(who & ((1u << lane()) - 1)) < ties) mark(parts[w], parts[w].at[base + lane()]);
			equal += __popc(who);
		}
		__syncwarp();
		selected[w].before = n[2 * w] + min_of(n[2 * w + 1], ties);
		selected[w].all = all[2 * w] + ties;
	}
}

// select_nested marks the best wants[0] elements of a list in the bitmap of parts[0], and the best
// wants[1], fewer, in that of parts[1]; ties to the lowest. parts differ in bitmaps and lists. settled says
// which it has; a list has more than wants[0] elements. All threads of the cluster call it; peers may
// read the block's shared memory until the barrier that the caller puts behind it.
template <class Part>
__device__ __forceinline__ void select_nested(const ClusterBlock& c, ClusterScratch& s, NestedScratch& t, const Part* const parts, const u32* wants, Selected* selected, bool* settled) {
	NestedCut cuts[CUTS];
	CutBins bins[CUTS];
	u64 want[CUTS] = {wants[0], wants[1]};
	clear_bins<true>(s.bins);
	if (threadIdx.x < CUTS) t.candidates[threadIdx.x] = t.overfull[threadIdx.x] = 0;
	if (parts[0].n > RANKED)
		bracket_sample<CUTS>(s, t.found, parts[0], want, bins);
	else
		bins[0] = bins[1] = key_bins(1, ~0u);
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		cuts[w].want = wants[w];
		cuts[w].bins = bins[w];
	}
	__syncthreads();  // the histogram is clear
	split_nested(s, t, parts, cuts);
	c.sync();
	find_nested_cuts(c, s, t, cuts);
#pragma unroll
	for (int w = 0; w < CUTS; w++) {
		if (cuts[w].settled) narrow_nested(t, w, parts[w], cuts[w], (int)t.cut[w][0]);
	}
	c.sync();
	rank_nested(c, t, cuts);
	mark_nested(c, t, parts, cuts, selected);
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
