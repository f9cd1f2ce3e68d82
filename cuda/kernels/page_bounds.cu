// Page bounds, the index of Quest: for every sub-page (PAGE / sub_pages positions), kv head
// and channel c the minimum and the maximum of its keys. Σ_c max(q_c·min_c, q_c·max_c) is an
// upper bound on q·k over the sub-page, so a row is ranked by 2/size of the bytes of K, size
// being the positions of a sub-page. Reference implementation: package cpu.
#include "cluster_select.cuh"
#include "newest.cuh"
#include "row_tile.cuh"

struct BoundsArgs {
	void* bounds;  // [pages, kvheads, sub_pages, 2·dim] in the cache's type: minima, then maxima
	i64 sub_pages;
	PagedKV g;  // g.rows: rows that were just appended to each slot
};

// key_bounds (summarize) computes the bounds of the sub-pages that the appended rows lie in, from
// all their stored keys. Grid: (touched page, kv head, slot). One thread per channel of a
// sub-page, so that a warp reads consecutive channels of a key. Bound by reading those keys.
KERNEL(key_bounds, BoundsArgs, 256) {
	int slot = blockIdx.z, first = first_position(a.g, slot), dim = (int)a.g.dim, size = PAGE / (int)a.sub_pages;
	if (first < 0) return;
	int b = first / PAGE + blockIdx.x, n = min_of(first + (int)a.g.rows - b * PAGE, PAGE);
	if (n <= 0) return;
	int page = page_of(a.g, slot, b);
	if (page < 0) return;
	int from = max_of(first - b * PAGE, 0) / size;
	for (int i = from * dim + threadIdx.x; i < (n + size - 1) / size * dim; i += blockDim.x) {
		int sub_page = i / dim, d = i % dim;
		float min_k = infinity(), max_k = -infinity();
		for (int j = sub_page * size; j < min_of((sub_page + 1) * size, n); j++) {
			float x = load_kv(a.g.k, a.g.half, kv_offset(a.g, page, blockIdx.y, j) + d);
			if (x < min_k) min_k = x;
			if (x > max_k) max_k = x;
		}
		i64 to = (((i64)page * a.g.heads + blockIdx.y) * a.sub_pages + sub_page) * 2 * dim + d;
		if (a.g.half) {
			((u16*)a.bounds)[to] = to_half(min_k);
			((u16*)a.bounds)[to + dim] = to_half(max_k);
		} else {
			((float*)a.bounds)[to] = min_k;
			((float*)a.bounds)[to + dim] = max_k;
		}
	}
}

struct BoundScoresArgs {
	float* dst;      // [slots, head_groups, width]
	const float* q;  // [slots, heads, dim]
	const void* bounds;
	i64 heads, head_groups, width, sub_pages;
	PagedKV g;
};

// bound_scores (score): dst = Σ_{h in group} Σ_c max(q_hc·min_c, q_hc·max_c) for each sub-page up
// to the row's own. Grid: (slot, head group, z), block z taking every gridDim.z-th page; one warp
// per sub-page, its lanes over the channels. The sign of q_c says which of the two products is
// larger, so that a lane reads one bound only. Bound by reading the bounds once per group.
KERNEL(bound_scores, BoundScoresArgs, 256) {
	int slot = blockIdx.x, head_group = blockIdx.y, p = first_position(a.g, slot), dim = (int)a.g.dim, size = PAGE / (int)a.sub_pages;
	if (p < 0) return;
	int group_heads = (int)(a.heads / a.head_groups), kv_head = head_group * (int)a.g.heads / (int)a.head_groups;
	const float* q = a.q + ((i64)slot * a.heads + head_group * group_heads) * dim;
	float* out = a.dst + ((i64)slot * a.head_groups + head_group) * a.width;
	for (int b = blockIdx.z; b <= p / PAGE; b += gridDim.z) {
		int page = page_of(a.g, slot, b);
		if (page < 0) return;
		for (int i = warp(); i < a.sub_pages && b * PAGE + i * size <= p; i += blockDim.x / WARP) {
			i64 from = (((i64)page * a.g.heads + kv_head) * a.sub_pages + i) * 2 * dim;
			float sum = 0;
			for (int d = lane(); d < group_heads * dim; d += WARP) {
				float x = q[d];
				sum += x * load_kv(a.bounds, a.g.half, from + d % dim + (x < 0 ? 0 : dim));
			}
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) out[b * a.sub_pages + i] = sum;
		}
	}
}

constexpr int BOUND_TILE = 16;  // sub-pages of a warp's tile

// signed_queries makes the rows that bounds are multiplied with, [lists, 2·dim]: what is negative of
// a query, for the minima, and what is positive, for the maxima. A list of several heads gets the
// sum of theirs. All threads call it.
__device__ inline void signed_queries(float* to, const float* q, int lists, int heads_each, int dim) {
	__syncthreads();  // the previous queries have been read
	for (int i = threadIdx.x; i < lists * 2 * dim; i += blockDim.x) {
		int d = i % (2 * dim);
		float sum = 0;
		for (int h = 0; h < heads_each; h++) {
			float x = q[(i / (2 * dim) * heads_each + h) * dim + d % dim];
			sum += d < dim ? min_of(x, 0.0f) : max_of(x, 0.0f);
		}
		to[i] = sum;
	}
	__syncthreads();
}

// bound_rows (score): bound_scores of f16 bounds on tensor cores, as products of rows of 2·DIM with
// the queries of signed_queries, each row read once for all heads of a kv head. Grid: (part of the
// sub-pages, kv head, slot). Bound by reading the bounds once.
template <int DIM>
__device__ __forceinline__ void bound_rows(const BoundScoresArgs& a) {
	SHARED(float, q, TILE_HEADS * 2 * DIM);
	pdl_trigger();
	int slot = blockIdx.z, kv_head = blockIdx.y, p = first_position(a.g, slot), sub_pages = (int)a.sub_pages;
	if (p < 0) {
		pdl_wait();
		return;
	}
	int lists = (int)(a.head_groups / a.g.heads), each = (int)(a.heads / a.head_groups), n = p / (PAGE / sub_pages) + 1;
	int tiles = (n + BOUND_TILE - 1) / BOUND_TILE, by = (int)blockDim.x / WARP, shift = 31 - __clz(sub_pages);
	int first = (int)((i64)tiles * blockIdx.x / gridDim.x) + warp(), end = (int)((i64)tiles * (blockIdx.x + 1) / gridDim.x);
	const u16* bounds = (const u16*)a.bounds + kv_head * sub_pages * 2 * DIM;
	// row is where the sub-page of the lane's half u of a tile starts; tiles behind the last have none.
	auto row = [&](int tile, int u) {
		int i = tile * BOUND_TILE + u * 8 + lane() / 4, page = tile < end && i < n ? page_of(a.g, slot, i >> shift) : -1;
		return page < 0 ? nullptr : bounds + ((i64)page * a.g.heads * sub_pages + (i & (sub_pages - 1))) * 2 * DIM;
	};
	const u16* start[2] = {row(first, 0), row(first, 1)};  // page tables are written by the host
	pdl_wait();
	for (int l = 0; l < lists; l += TILE_HEADS) {
		int now = min_of(TILE_HEADS, lists - l), c = lane() % 4;
		i64 list = (i64)slot * a.head_groups + kv_head * lists + l;
		RowTile<2 * DIM> tile;
		const u16* rows[2] = {start[0], start[1]};
		auto load = [&](int u) {
			if (rows[u]) tile.load(u, rows[u]);
		};
		load(0);
		load(1);
		signed_queries(q, a.q + list * each * DIM, now, each, DIM);
		QueryColumns<2 * DIM> columns;
		columns.load(q, now, 1);
		for (int t = first; t < end; t += by) {
			float s[2];
			const u16* next[2] = {row(t + by, 0), row(t + by, 1)};
			tile.scores(s, columns);
			bool there = rows[c / 2] != nullptr;
			int to = t * BOUND_TILE + c / 2 * 8 + lane() / 4;
			rows[0] = next[0];
			rows[1] = next[1];
			load(0);
			load(1);
#pragma unroll
			for (int u = 0; u < 2; u++) {
				int head = c % 2 * 2 + u;
				if (there && head < now) a.dst[(list + head) * a.width + to] = s[u];
			}
		}
	}
}

KERNEL_2_PER_SM(bound_scores_64, BoundScoresArgs, 256) { bound_rows<64>(a); }
KERNEL_2_PER_SM(bound_scores_128, BoundScoresArgs, 256) { bound_rows<128>(a); }

struct SelectSubPagesArgs {
	i32 *index, *count;   // [slots, head_groups, cap], [slots, head_groups]
	const float* scores;  // [slots, head_groups, width]
	i64 head_groups, width, cap, sub_pages;
	i64 budget;  // positions, unless share > 0
	f64 share;
	i64 min_selected;
	Span span;
	i64 part;  // elements of a block, at most
	PagedKV g;
};

// SubPageScores are the keys of a row of sub-pages; those that the span hides take no part, and
// -Inf and NaN come last.
struct SubPageScores {
	const float* x;
	const Span& span;
	int p, size;

	// open says that the span shows everything before the row.
	__device__ __forceinline__ bool open() const { return span.back == 0 && span.drop == 0; }

	// seen is how many positions of a sub-page before the row's own the row sees.
	__device__ inline int seen(int sub_page) const {
		if (open()) return size;
		int n = 0;
		for (int j = sub_page * size; j < (sub_page + 1) * size; j++) n += sees(span, p, j);
		return n;
	}

	__device__ __forceinline__ float fetch(int i) const { return ld_cg(x + i); }
	__device__ __forceinline__ u32 key(int i, float s, bool) const { return seen(i) > 0 ? radix_key(s) : 0; }
};

// SubPageEntries is how many entries a sub-page is: the positions that the row sees, or one page.
struct SubPageEntries {
	const SubPageScores& scores;

	__device__ int operator()(int sub_page) const { return scores.size == PAGE ? 1 : scores.seen(sub_page); }
};

// top_subpages (select) lists the row's own sub-page and the best of those before it, ties to the
// lowest: budget / size of them in all, at least min_selected, and all of them where the budget
// covers the row. The list is ascending positions, or page numbers where a sub-page is a page.
// Grid: (slot, head group, block of the cluster), a cluster for each list; see cluster_select.cuh.
// Bound by the latency of its barriers.
KERNEL_2_PER_SM(top_subpages, SelectSubPagesArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	int slot = blockIdx.x, p = first_position(a.g, slot), size = PAGE / (int)a.sub_pages;
	pdl_wait();
	if (p < 0) return;
	ClusterBlock c = this_block();
	i64 list = (i64)slot * a.head_groups + blockIdx.y;
	int own = p / size;
	i64 budget = a.share > 0 ? (i64)floor(a.share * (double)(p + 1) + 1e-9) : a.budget;
	i64 k = budget > p ? own : max_of(max_of(a.min_selected, (i64)1), budget / size) - 1;  // besides the row's own
	SubPageScores scores = {a.scores + list * a.width, a.span, p, size};
	ListPart<SubPageScores> part = list_part(c, *scratch, own, a.part, scores);
	if (k > 0) cluster_select<false>(c, *scratch, part, [](u32, u32) { return (u64)1; }, [&](u64) { return (u64)k; });
	i32* index = a.index + list * a.cap;
	// put writes the entries of a sub-page from place to on, and returns the place behind them.
	auto put = [&](int sub_page, i64 to) {
		if (size == PAGE) {
			if (to < a.cap) index[to] = sub_page;
			return to + 1;
		}
		for (int j = sub_page * size; j < (sub_page + 1) * size && j <= p; j++) {
			if (!scores.open() && !sees(a.span, p, j)) continue;
			if (to < a.cap) index[to] = j;
			to++;
		}
		return to;
	};
	SubPageEntries entries = {scores};
	i64 all = k > 0 ? cluster_put_entries(c, *scratch, part, entries, put) : 0;
	if (threadIdx.x == 0 && c.rank == c.size - 1) {
		all = put(own, all);
		if (all > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[list] = (i32)min_of(all, a.cap);
	}
	c.sync();  // peers have read the counts
}
