// What a block of query rows reads, as tiles of 64 positions: pages, and entries of
// a list of positions.
#pragma once

#include "dequant.cuh"
#include "state.cuh"

struct FlashArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	i64 heads;
	i64 by_heads;  // flash_wide.cu: a block's groups of warps take heads, not rows
	PagedKV g;       // of one slot, f16
	Plan plan;
};

constexpr int FLASH_ROWS = 64;  // query rows that share tiles

// Sight is what the row at p sees, without the list.
struct Sight {
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

__device__ inline Sight sight_of(const Plan& plan, int p) {
	Sight s = {p, plan.span.back ? p + 1 - (int)plan.span.back : 0, (int)plan.span.sink, bound_of(plan.span, p), (int)plan.sink, recent_of(plan, p), plan.middle == MIDDLE_ALL};
	return s;
}

// Tiles are those of a block, in order: the pages before those of the list, the
// pages that the list names, those after, and then its positions 64 at a time.
struct Tiles {
	Entries e;
	int head, middle, tail;  // pages before, pages listed, and the first page after
	int from;                // entry of the first page listed
	int pages, all;          // tiles that are pages, and all tiles
	bool blocks;             // the list names pages

	// listed reports whether tile t is a page that the list names.
	__device__ bool listed(int t) const { return t >= head && t < head + middle; }
	__device__ int page(int t) const { return t < head ? t : t < head + middle ? e.index[from + t - head] : tail + t - head - middle; }

	// position is what row r of tile t holds, -1 for nothing.
	__device__ int position(int t, int r) const {
		if (t < pages) return page(t) * PAGE + r;
		int i = (t - pages) * PAGE + r;
		return i < e.n ? e.index[i] : -1;
	}

	// bias is log2 of the weight that the list gives row r of tile t.
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

// tiles_of are the tiles that the rows at lo to last need.
__device__ inline Tiles tiles_of(const Plan& plan, const Entries& e, int lo, int last) {
	FixedPages edges = fixed_pages(plan, lo);
	Tiles w;
	int pages = last / PAGE + 1;
	w.e = e;
	w.blocks = plan.middle == MIDDLE_BLOCKS;
	w.head = min_of(edges.head, pages);
	w.tail = min_of(max_of(edges.tail, w.head), pages);
	w.from = w.blocks ? lower_bound(e, w.head) : 0;
	w.middle = w.blocks ? lower_bound(e, w.tail) - w.from : 0;
	w.pages = w.head + w.middle + pages - w.tail;
	w.all = w.pages + (plan.middle == MIDDLE_TOKENS ? (e.n + PAGE - 1) / PAGE : 0);
	return w;
}

// split_half is a pair of numbers as two pairs of halves, whose sums they are.
__device__ __forceinline__ void split_half(float x, float y, u32& high, u32& low) {
	high = pack_half(x, y);
	low = pack_half(x - from_half((u16)high), y - from_half((u16)(high >> 16)));
}

// load_queries gives a lane its parts of 16 rows of queries; row(u) is where row
// lane/4 + 8·u is, NULL for none.
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
