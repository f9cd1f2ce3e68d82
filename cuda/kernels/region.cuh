// The positions that a row of scores is of, and the pages that a warp reads of them.
#pragma once

#include "dequant.cuh"
#include "newest.cuh"
#include "tiles.cuh"

// ScoredRegion is a region of what the row at p sees, without a list.
struct ScoredRegion {
	RowMask mask;
	bool selected, fixed;  // only the selected region; only sinks and window

	__device__ __forceinline__ bool has(int j) const {
		if (!mask.spanned(j)) return false;
		if (selected) return j >= mask.sink && j < mask.recent;
		return !fixed || mask.in_sinks_or_window(j);
	}

	// whole reports whether the region has all positions of page b.
	__device__ __forceinline__ bool whole(int b) const {
		int lo = b * PAGE, hi = lo + PAGE - 1;
		return hi <= mask.p && lo >= mask.back && (hi < mask.span_sink || lo >= mask.bound) && !fixed && (!selected || (lo >= mask.sink && hi < mask.recent));
	}

	// store4 stores the scores of positions j to j+3, a multiple of four, of a row: -Inf outside the
	// region, and where they are not known. inside says that they are known, that the region has
	// them all, and that rows are aligned to 16 bytes.
	__device__ __forceinline__ void store4(float* row, int j, const float s[4], bool known, bool inside) const {
		if (inside) {
			store_float4(row + j, s);
			return;
		}
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (j + i <= mask.p) row[j + i] = known && has(j + i) ? s[i] : -infinity();
		}
	}
};

// rows_aligned reports whether rows of width scores are aligned to 16 bytes.
__device__ inline bool rows_aligned(const float* dst, i64 width) { return ((u64)dst & 15) == 0 && width % 4 == 0; }

__device__ inline ScoredRegion scored_region(const Plan& plan, int p, bool selected, bool fixed) {
	ScoredRegion r = {row_mask(plan, p), selected, fixed};
	return r;
}

// PageAhead gives a warp the pages of its units, of which per_page are one page: every by-th from
// from on. Its lanes look up a page each, so that no load of a key waits for that of a table
// entry. All lanes call next.
struct PageAhead {
	const PagedKV& g;
	const ScoredRegion& region;
	int slot, per_page, from, end, by;
	int taken = 0, mine = -1;

	// next is the page of the next unit, -1 behind the last, for what the region does not have, and
	// after a failure.
	__device__ __forceinline__ int next() {
		if (taken % WARP == 0) {
			int unit = from + (taken + lane()) * by, b = unit / per_page;
			mine = unit < end && region.mask.shows(b) ? page_of(g, slot, b) : -1;
		}
		return __shfl_sync(FULL_MASK, mine, taken++ % WARP);
	}
};
