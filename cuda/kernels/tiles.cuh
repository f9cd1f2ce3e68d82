// What a block of query rows of a prefill reads, as a sequence of KV tiles of 64 positions:
// whole pages first, then entries of a position list, gathered 64 at a time.
#pragma once

#include "dequant.cuh"
#include "state.cuh"

struct FlashArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	i64 heads;
	i64 by_heads;  // flash_wgmma.cu: the consumer warpgroups of a block take heads of one kv head instead of neighbouring rows
	PagedKV g;       // of one slot, f16
	Plan plan;
};

constexpr int FLASH_ROWS = 64;  // query rows of a tile (block_M)

// RowMask is the mask of the row at p without the list: causal, span, sinks and window.
struct RowMask {
	int p, back, span_sink, bound, sink, recent;
	bool all;

	__device__ bool spanned(int j) const { return j <= p && j >= back && (j < span_sink || j >= bound); }
	__device__ bool in_sinks_or_window(int j) const { return all || j < sink || j >= recent; }

	// shows reports whether the span lets the row see any position of page b.
	__device__ bool shows(int b) const {
		int lo = b * PAGE, hi = lo + PAGE - 1;
		return lo <= p && hi >= back && (lo < span_sink || hi >= bound);
	}
};

__device__ inline RowMask row_mask(const Plan& plan, int p) {
	RowMask s = {p, plan.span.back ? p + 1 - (int)plan.span.back : 0, (int)plan.span.sink, bound_of(plan.span, p), (int)plan.sink, recent_of(plan, p), plan.selected == SELECTED_ALL};
	return s;
}

// Tiles is the tile sequence of a block, in ascending order: the pages of the sinks, the
// listed pages, the pages of the window, and then a position list in groups of 64.
struct Tiles {
	Entries e;
	int head, selected, tail;  // pages of the sinks, selected pages, first page of the window
	int from;                // entry of the list that is the first listed page
	int pages, all;          // tiles that are pages; all tiles
	bool blocks;             // the list is of pages, not of positions

	// listed reports whether tile t is a page of the list.
	__device__ bool listed(int t) const { return t >= head && t < head + selected; }
	__device__ int page(int t) const { return t < head ? t : t < head + selected ? e.index[from + t - head] : tail + t - head - selected; }

	// position is the position in row r of tile t, -1 for none.
	__device__ int position(int t, int r) const {
		if (t < pages) return page(t) * PAGE + r;
		int i = (t - pages) * PAGE + r;
		return i < e.n ? e.index[i] : -1;
	}

	// bias is log2 of the list's weight of row r of tile t, to be added to a score in base 2.
	__device__ float bias(int t, int r) const {
		float w = 1;
		if (t >= pages) {
			int i = (t - pages) * PAGE + r;
			if (e.weight && i < e.n) w = e.weight[i];
		} else {
			w = !blocks ? 0 : !listed(t) ? weight_of(e, page(t)) : e.weight ? e.weight[from + t - head] : 1;
		}
		return w == 1 ? 0 : w > 0 ? log2f(w) : -infinity();
	}
};

// tiles_of is the tile sequence of the rows lo to last.
__device__ inline Tiles tiles_of(const Plan& plan, const Entries& e, int lo, int last) {
	FixedPages edges = fixed_pages(plan, lo);
	Tiles w;
	int pages = last / PAGE + 1;
	w.e = e;
	w.blocks = plan.selected == SELECTED_BLOCKS;
	w.head = min_of(edges.head, pages);
	w.tail = min_of(max_of(edges.tail, w.head), pages);
	w.from = w.blocks ? lower_bound(e, w.head) : 0;
	w.selected = w.blocks ? lower_bound(e, w.tail) - w.from : 0;
	w.pages = w.head + w.selected + pages - w.tail;
	w.all = w.pages + (plan.selected == SELECTED_TOKENS ? (e.n + PAGE - 1) / PAGE : 0);
	return w;
}

// split_half splits two floats into f16 high and low parts, x = high + low to 22 bits: two
// tensor core products instead of one recover nearly the precision of f32.
__device__ __forceinline__ void split_half(float x, float y, u32& high, u32& low) {
	high = pack_half(x, y);
	low = pack_half(x - from_half((u16)high), y - from_half((u16)(high >> 16)));
}

// load_queries loads the A fragments of 16 query rows, split into high and low f16 parts;
// row(u) points to row lane/4 + 8·u, NULL for none.
template <int DIM, class Row>
__device__ __forceinline__ void load_queries(u32 (&high)[DIM / 16][4], u32 (&low)[DIM / 16][4], Row row) {
#pragma unroll
	for (int u = 0; u < 2; u++) {
		const float* q = row(u);
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				int d = k * 16 + i * 8 + lane() % 4 * 2;
				split_half(q ? q[d] : 0, q ? q[d + 1] : 0, high[k][u + 2 * i], low[k][u + 2 * i]);
			}
		}
	}
}
