// Decode attention, one query row of each slot, for every plan over an f16 cache: split-K
// flash decoding on tensor cores. Bound by reading, once, the keys and values that the plan
// selects. Tested against attend.cu within the bound of f32.
//
// A block takes the query heads that share a kv head (GQA), up to 8, and a split of what they
// read. The unit of work is a tile of 16 positions: quarters of pages first, then gathered
// entries of a position list. Each warp has a cp.async pipeline of tiles of its own, so the
// main loop has no block barrier. mma.m16n8k16 gets keys and values as A, and as B eight
// columns: four heads, each split into f16 high and low parts, which is 22 bits of precision in
// columns that would be idle otherwise; the softmax weights are split likewise.
//
// Splits are merged in two levels: blocks of a cluster through distributed shared memory, then
// clusters through global memory, where the last block of a head group to finish (a counter)
// merges the partial results in their order, so that results are deterministic.
#pragma once

#include "dequant.cuh"
#include "state.cuh"

struct DecodeArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	float* parts;    // [rows, heads, splits, dim], split-K partial results, one for each cluster
	SoftmaxState* states;   // [rows, heads, splits]
	i32* finished;   // [rows, heads / group]: counters of finished blocks; 0 between launches
	i64 heads, splits, group;
	i64 cluster;  // blocks per cluster
	i64 settled;  // keys and values of all positions but the newest were written by grids that have completed: they may be read before pdl_wait
	PagedKV g;      // f16
	Plan plan;
};

// What a kernel computes: attention, attention and TileScores, or TileScores alone.
enum DecodeResult { ATTENTION, ATTENTION_AND_SCORES, SCORES };

constexpr int TILE_ROWS = 16;  // positions per tile
constexpr int PAGE_TILES = PAGE / TILE_ROWS;

// A block takes less than half of the shared memory and registers of an SM, so that it can be
// resident together with the preceding or the following GEMV and their prologues overlap.
constexpr int RING_WARPS = 4;
constexpr int RING_STAGES = 3;

// KVTile is a pipeline stage: 16 keys and values, rows padded against bank conflicts.
template <int DIM>
struct KVTile {
	u16 k[TILE_ROWS * (DIM + 8)], v[TILE_ROWS * (DIM + 8)];
	float bias[TILE_ROWS];  // log2 of the weight, -inf for none; of a mixture the weight, 0 for none
};

// TileScores is where the scores of a decoded row are kept, for mass_decode.cu.
struct TileScores {
	u32* words;  // [rows, heads / group, tiles, score_words]
	i64 tiles;   // for so many there is room
};

// score_words is the words of a tile: its positions, -1 for none, and for each set of four heads
// the base-2 scores [TILE_ROWS, 4].
__device__ __forceinline__ constexpr int score_words(int sets) { return TILE_ROWS * (1 + 4 * sets); }

// TileSequence is what a row and head group read, as a sequence of tiles: pages of the sinks,
// listed pages, pages of the window, then a position list.
struct TileSequence {
	Entries e;
	const i32* table;  // of the slot
	int slot, p, selected;
	int from, span_sink, span_bound;  // the span: from on, and before span_sink or from span_bound on
	int sink, recent;  // sinks: before sink; window: from recent on
	int head, tail;    // fixed pages: before head and from tail on
	int listed, pages;  // listed pages, and all pages
	int tiles;
	bool plain;  // dense and causal, nothing else masked

	__device__ __forceinline__ int page_tiles() const { return pages * PAGE_TILES; }  // tiles that are quarters of pages
	__device__ __forceinline__ bool sees(int j) const { return j <= p && j >= from && (j < span_sink || j >= span_bound); }
	__device__ __forceinline__ bool in_sinks_or_window(int j) const { return selected == SELECTED_ALL || j < sink || j >= recent; }
};

// tile_sequence is that of a row and the head group of head.
__device__ __forceinline__ TileSequence tile_sequence(const DecodeArgs& a, RowPosition at, int head) {
	TileSequence r;
	Plan plan = a.plan;
	int p = at.p, all = p / PAGE + 1;
	r.table = a.g.table + (i64)at.slot * a.g.width;
	r.slot = at.slot;
	r.p = p;
	r.e = entries(plan.list, a.g, at, head, (int)a.heads);
	if (selects_all(plan, r.e, p)) plan.selected = SELECTED_ALL;
	r.selected = (int)plan.selected;
	FixedPages edges = fixed_pages(plan, p);
	r.head = min_of(edges.head, all);
	r.tail = min_of(max_of(edges.tail, r.head), all);
	r.listed = r.selected == SELECTED_BLOCKS ? r.e.n : 0;
	r.pages = r.head + r.listed + all - r.tail;
	r.tiles = r.page_tiles() + (r.selected == SELECTED_TOKENS ? (r.e.n + TILE_ROWS - 1) / TILE_ROWS : 0);
	const Span& span = plan.span;
	r.from = span.back ? (int)max_of((i64)p + 1 - span.back, (i64)0) : 0;
	r.span_sink = (int)min_of(span.sink, (i64)p + 1);
	r.span_bound = bound_of(span, p);
	r.sink = (int)min_of(plan.sink, (i64)p + 1);
	r.recent = recent_of(plan, p);
	r.plain = r.selected == SELECTED_ALL && span.back == 0 && span.drop == 0;
	return r;
}

// ListEntry is a lane's entry of a tile. The lookups of list, page table and cache depend on
// each other, so they are software pipelined: list entries are loaded two tiles ahead, page
// table entries one tile ahead.
struct ListEntry {
	int at;  // a block, or a position; -1 for none
	float weight;
};

__device__ __forceinline__ ListEntry list_entry(const TileSequence& r, int tile) {
	ListEntry raw = {-1, 1};
	if (tile >= r.tiles || r.plain) return raw;
	if (tile >= r.page_tiles()) {
		int i = (tile - r.page_tiles()) * TILE_ROWS + lane() % TILE_ROWS;
		if (i >= r.e.n) return raw;
		raw.at = r.e.index[i];
		if (r.e.weight) raw.weight = r.e.weight[i];
		return raw;
	}
	int page = tile / PAGE_TILES;
	if (page >= r.head && page < r.head + r.listed) {
		int i = page - r.head;
		raw.at = r.e.index[i];
		if (r.e.weight) raw.weight = r.e.weight[i];
		return raw;
	}
	raw.at = page < r.head ? page : page - r.head - r.listed + r.tail;
	raw.weight = r.selected == SELECTED_BLOCKS ? weight_of(r.e, raw.at) : 0;
	return raw;
}

// TileRow is where a lane's position lies in the cache.
struct TileRow {
	int page;  // unchecked; in a tile of a page the same for all lanes
	int in;    // row of the page; -1 for none
	float weight;
	int block;  // of the sequence, which the page holds
};

__device__ __forceinline__ TileRow tile_row(const TileSequence& r, int tile, ListEntry raw) {
	TileRow s = {0, -1, 1, 0};
	int in = tile % PAGE_TILES * TILE_ROWS + lane() % TILE_ROWS;
	if (r.plain) {
		int block = tile / PAGE_TILES;
		if (tile >= r.tiles) return s;
		s.block = block;
		s.page = r.table[block];
		if (block * PAGE + in <= r.p) s.in = in;
		return s;
	}
	int j = raw.at;
	if (j < 0) return s;
	if (tile >= r.page_tiles()) {
		if (!r.sees(j) || r.in_sinks_or_window(j)) return s;
		s.weight = raw.weight;
		s.in = j % PAGE;
		s.block = j / PAGE;
		s.page = r.table[j / PAGE];
		return s;
	}
	int number = tile / PAGE_TILES;
	bool listed = number >= r.head && number < r.head + r.listed;
	if (listed && (j < r.head || j >= r.tail)) return s;  // a fixed page: it has a tile already
	s.block = j;
	s.page = r.table[j];
	j = j * PAGE + in;
	if (!r.sees(j)) return s;
	if (!r.in_sinks_or_window(j)) {
		if (raw.weight == 0) return s;
		s.weight = raw.weight;
	}
	s.in = in;
	return s;
}

// load_tile_async starts the copy of a tile, without values for scores alone; rows that are masked
// are zero-filled and get bias -inf.
template <int DIM, bool VALUES>
__device__ __forceinline__ void load_tile_async(KVTile<DIM>& t, const PagedKV& g, const TileSequence& r, bool mixture, int kv_head, int tile, TileRow s) {
	constexpr int PIECES = DIM / 8, ROWS = WARP / PIECES;  // 16-byte pieces of a row; rows that the warp copies at once
	bool there = s.in >= 0;
	if (there && (u32)s.page >= (u32)g.count) {
		fail(g.failure, FAIL_PAGE, r.slot, s.page, g.count);
		there = false;
	}
	u32 seen = __ballot_sync(FULL_MASK, there);
	float bias = 0;
	if (!there || s.weight != 1) bias = mixture ? (there ? s.weight : 0) : there && s.weight > 0 ? log2f(s.weight) : -infinity();
	if (there && s.weight == 1 && mixture) bias = 1;
	if (lane() < TILE_ROWS) t.bias[lane()] = bias;
	int first = lane() / PIECES, piece = lane() % PIECES * 8;
	u16 *k = t.k + first * (DIM + 8) + piece, *v = t.v + first * (DIM + 8) + piece;
	auto element = [&](int in) { return ((i64)s.page * (int)g.heads + kv_head) * (PAGE * DIM) + in * DIM; };
	if (tile < r.page_tiles()) {
		// Contiguous: 16 rows of one page.
		i64 from = seen ? element(tile % PAGE_TILES * TILE_ROWS + first) + piece : 0;
		const u16 *from_k = (const u16*)g.k + from, *from_v = (const u16*)g.v + from;
		if (seen == FULL_MASK && !mixture) {
#pragma unroll
			for (int i = 0; i < TILE_ROWS; i += ROWS) {
				cp_async(k + i * (DIM + 8), from_k + i * DIM);
				if (VALUES) cp_async(v + i * (DIM + 8), from_v + i * DIM);
			}
			return;
		}
#pragma unroll
		for (int i = 0; i < TILE_ROWS; i += ROWS) {
			bool in = seen >> (i + first) & 1;
			if (!mixture) cp_async_zfill(k + i * (DIM + 8), from_k + i * DIM, in);
			if (VALUES) cp_async_zfill(v + i * (DIM + 8), from_v + i * DIM, in);
		}
		return;
	}
	i64 place = there ? element(s.in) : 0;
#pragma unroll
	for (int i = 0; i < TILE_ROWS; i += ROWS) {
		i64 from = __shfl_sync(FULL_MASK, place, i + first) + piece;
		bool in = seen >> (i + first) & 1;
		if (!mixture) cp_async_zfill(k + i * (DIM + 8), (const u16*)g.k + from, in);
		if (VALUES) cp_async_zfill(v + i * (DIM + 8), (const u16*)g.v + from, in);
	}
}

// QueryHeads is a lane's part of the query heads and accumulators of its block, in sets of
// four heads. The eight mma columns of a set are the high and low f16 parts of four heads: a
// lane supplies the B fragment of column lane/4, and as accumulators has those of head lane%4.
template <int DIM, int SETS>
struct QueryHeads {
	u32 q[SETS][DIM / 16][2];
	float unit[SETS];  // scale of a score
	float acc[SETS][DIM / 16][4];
	SoftmaxState s[SETS];  // sum: the lane's own part only
};

// load_queries loads a block's queries, scaled by a power of two that keeps the high and low
// f16 parts in range.
template <int DIM, int SETS>
__device__ __forceinline__ void load_queries(QueryHeads<DIM, SETS>& h, const float* q, int group) {
#pragma unroll
	for (int set = 0; set < SETS; set++) {
		int head = set * 4 + lane() / 8;
		bool low_part = lane() / 4 % 2;
		float v[DIM / 16][4], top = 0;
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
			for (int i = 0; i < 4; i += 2) {
				float2 both = {0, 0};
				if (head < group) both = *(const float2*)(q + head * DIM + k * 16 + lane() % 4 * 2 + i * 4);
				v[k][i] = both.x;
				v[k][i + 1] = both.y;
				top = max_of(top, max_of(fabsf(both.x), fabsf(both.y)));
			}
		}
		top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 1));
		top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 2));
		int power = min_of(max_of((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased exponent: the largest element becomes 2¹⁰ or more
		float up = __uint_as_float((u32)(254 - power) << 23), down = __uint_as_float((u32)power << 23);
		h.unit[set] = __shfl_sync(FULL_MASK, down * (1.4426950408889634f / sqrtf((float)DIM)), lane() % 4 * 8);
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				float x = v[k][2 * i] * up, y = v[k][2 * i + 1] * up;
				u32 both = pack_half(x, y);
				h.q[set][k][i] = low_part ? pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16))) : both;
			}
		}
	}
}

// add_tile adds a tile to the online softmax: S = K·qᵀ, then O += Vᵀ·p unless scores alone are
// wanted. The accumulators are rescaled only if the maximum of some lane has grown. scored(set, i,
// s) gets the score of position lane/4 + 8·i for head lane%4 of a set.
template <int DIM, int SETS, bool VALUES, class Scored>
__device__ __forceinline__ void add_tile(QueryHeads<DIM, SETS>& h, const KVTile<DIM>& t, bool mixture, Scored scored) {
	float p[SETS][2];  // softmax weights of positions lane/4 and lane/4 + 8
	const float bias[2] = {t.bias[lane() / 4], t.bias[lane() / 4 + 8]};
	if (mixture) {
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			for (int i = 0; i < 2; i++) p[set][i] = bias[i];
		}
	} else {
		float s[SETS][2][4];  // two accumulators in alternation, for instruction-level parallelism
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			for (int i = 0; i < 2; i++) s[set][i][0] = s[set][i][1] = s[set][i][2] = s[set][i][3] = 0;
		}
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
			u32 keys[4];
			ldmatrix_x4(keys, t.k + lane() % 16 * (DIM + 8) + k * 16 + lane() / 16 * 8);
#pragma unroll
			for (int set = 0; set < SETS; set++) mma_f16(s[set][k % 2], keys, h.q[set][k]);
		}
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			float top = h.s[set].max;
#pragma unroll
			for (int i = 0; i < 2; i++) {
				float sum = s[set][0][2 * i] + s[set][1][2 * i] + (s[set][0][2 * i + 1] + s[set][1][2 * i + 1]);
				p[set][i] = bias[i] == -infinity() ? -infinity() : sum * h.unit[set] + bias[i];
				scored(set, i, p[set][i]);
				top = max_of(top, p[set][i]);
			}
			for (int m = 4; m < WARP; m *= 2) top = max_of(top, __shfl_xor_sync(FULL_MASK, top, m));
			float scale = rescale(h.s[set].max, top);
			if (__any_sync(FULL_MASK, scale != 1)) {
				h.s[set].sum *= scale;
#pragma unroll
				for (int d = 0; VALUES && d < DIM / 16; d++) {
#pragma unroll
					for (int i = 0; i < 4; i++) h.acc[set][d][i] *= scale;
				}
			}
			h.s[set].max = top;
			for (int i = 0; i < 2; i++) p[set][i] = exp2_ftz(p[set][i] - top);
		}
	}
	u32 w[SETS][2];
#pragma unroll
	for (int set = 0; set < SETS; set++) {
		h.s[set].sum += p[set][0] + p[set][1];
		if (!VALUES) continue;
		u32 both = pack_half(p[set][0], p[set][1]);
		w[set][0] = movmatrix_trans(pack_half(p[set][0], p[set][0] - from_half((u16)both)));
		w[set][1] = movmatrix_trans(pack_half(p[set][1], p[set][1] - from_half((u16)(both >> 16))));
	}
#pragma unroll
	for (int d = 0; VALUES && d < DIM / 16; d++) {
		u32 values[4];
		ldmatrix_x4_trans(values, t.v + (lane() % 8 + lane() / 16 * 8) * (DIM + 8) + d * 16 + lane() / 8 % 2 * 8);
#pragma unroll
		for (int set = 0; set < SETS; set++) mma_f16(h.acc[set][d], values, w[set]);
	}
}

// Float4 is four elements of a head, one 128-bit access.
struct alignas(16) Float4 {
	float v[4];
};

// merge_splits merges the partial results of a head group in the order of splits. The loads of
// the first splits are issued before their scales are computed. A warm-up stores nothing.
template <int DIM>
__device__ __forceinline__ void merge_splits(const DecodeArgs& a, i64 index, int shares, float* scales, bool warmup) {
	constexpr int PRELOADED = 16;
	int group = (int)a.group, splits = (int)a.splits;
	const SoftmaxState* states = a.states + index * splits;
	const float* parts = a.parts + index * splits * DIM;
	Float4 v[PRELOADED];
	int own = (int)threadIdx.x * 4;
	const float* mine = parts + (i64)(own / DIM) * splits * DIM + own % DIM;
#pragma unroll
	for (int s = 0; s < PRELOADED; s++) {
		v[s] = {{0, 0, 0, 0}};
		if (s < shares && own < group * DIM) v[s] = *(const Float4*)(mine + s * DIM);
	}
	for (int h = warp(); h < group; h += (int)blockDim.x / WARP) {
		float top = EMPTY_MAX, sum = 0;
		for (int s = lane(); s < shares; s += WARP) top = max_of(top, states[h * splits + s].max);
		top = reduce_warp(top, Max());
		for (int s = lane(); s < shares; s += WARP) {
			float scale = rescale(states[h * splits + s].max, top);
			if (!warmup) scales[h * shares + s] = scale;
			sum += states[h * splits + s].sum * scale;
		}
		sum = reduce_warp(sum, Plus());
		if (lane() == 0 && !warmup) scales[group * shares + h] = normalizer(sum, a.plan.mixture);
	}
	__syncthreads();
	for (int i = own; i < group * DIM; i += (int)blockDim.x * 4) {
		int h = i / DIM;
		const float* more = parts + (i64)h * splits * DIM + i % DIM;
		Float4 x = {{0, 0, 0, 0}};
		auto take = [&](const Float4& part, int s) {
			float scale = scales[h * shares + s];
			for (int j = 0; j < 4; j++) x.v[j] += part.v[j] * scale;
		};
#pragma unroll
		for (int s = 0; s < PRELOADED; s++) {
			if (s >= shares) break;
			if (i != own) v[s] = *(const Float4*)(more + s * DIM);
			take(v[s], s);
		}
#pragma unroll 4
		for (int s = PRELOADED; s < shares; s++) take(*(const Float4*)(more + s * DIM), s);
		for (int j = 0; j < 4; j++) x.v[j] *= scales[group * shares + h];
		if (!warmup) *(Float4*)(a.dst + index * DIM + i) = x;
	}
}

// reload_row_async copies one row of a tile again.
template <int DIM>
__device__ __forceinline__ void reload_row_async(KVTile<DIM>& t, const PagedKV& g, int kv_head, int page, int in) {
	constexpr int PIECES = DIM / 8;
	if (lane() >= 2 * PIECES) return;
	bool value = lane() >= PIECES;
	int piece = lane() % PIECES * 8;
	cp_async((value ? t.v : t.k) + in % TILE_ROWS * (DIM + 8) + piece, (const u16*)(value ? g.v : g.k) + kv_offset(g, page, kv_head, in) + piece);
}

// reset empties the accumulators.
template <int DIM, int SETS>
__device__ __forceinline__ void reset(QueryHeads<DIM, SETS>& h) {
#pragma unroll
	for (int set = 0; set < SETS; set++) {
		h.s[set] = {EMPTY_MAX, 0};
#pragma unroll
		for (int d = 0; d < DIM / 16; d++) h.acc[set][d][0] = h.acc[set][d][1] = h.acc[set][d][2] = h.acc[set][d][3] = 0;
	}
}

// BlockMerge merges the warps of a block in their order, through the shared memory of the
// pipeline, and the blocks of a cluster in the order of their ranks, through distributed shared
// memory. The functions that get results have four elements from i on of [group, DIM], and max
// and sum of their head.
template <int DIM>
struct BlockMerge {
	static constexpr int WIDTH = DIM + 8;  // padded against bank conflicts

	int group;
	float *accs, *maxes, *sums;  // of warps: [warps, 8, WIDTH], [warps, 8], [warps, 8]
	float *own, *states;         // of the block: [group, DIM], [group, 2]

	__device__ __forceinline__ BlockMerge(float* memory, int n) {
		group = n;
		accs = memory;
		maxes = accs + RING_WARPS * 8 * WIDTH, sums = maxes + RING_WARPS * 8;
		own = sums + RING_WARPS * 8;
		states = own + group * DIM;
	}

	// store_warp stores a warp's accumulators.
	template <int SETS, bool VALUES>
	__device__ __forceinline__ void store_warp(const QueryHeads<DIM, SETS>& h, bool warmup) const {
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			float sum = h.s[set].sum;
			for (int m = 4; m < WARP; m *= 2) sum += __shfl_xor_sync(FULL_MASK, sum, m);
			int head = set * 4 + lane() % 4, at = warp() * 8 + head;
			if (head >= group || warmup) continue;
			if (lane() < 4) {
				maxes[at] = h.s[set].max;
				sums[at] = sum;
			}
			float* to = accs + at * WIDTH + lane() / 4;
#pragma unroll
			for (int d = 0; VALUES && d < DIM / 16; d++) {
				to[d * 16] = h.acc[set][d][0] + h.acc[set][d][1];
				to[d * 16 + 8] = h.acc[set][d][2] + h.acc[set][d][3];
			}
		}
	}

	template <class Result>
	__device__ __forceinline__ void merge_warps(Result result) const {
		for (int i = threadIdx.x * 4; i < group * DIM; i += blockDim.x * 4) {
			int g = i / DIM, d = i % DIM;
			float max = EMPTY_MAX, total = 0;
			Float4 y = {{0, 0, 0, 0}};
#pragma unroll
			for (int w = 0; w < RING_WARPS; w++) max = max_of(max, maxes[w * 8 + g]);
#pragma unroll
			for (int w = 0; w < RING_WARPS; w++) {
				float scale = rescale(maxes[w * 8 + g], max);
				total += sums[w * 8 + g] * scale;
				const Float4& part = *(const Float4*)(accs + (w * 8 + g) * WIDTH + d);
				for (int j = 0; j < 4; j++) y.v[j] += part.v[j] * scale;
			}
			result(i, y, max, total);
		}
	}

	// store_state stores the states of the heads, each `by` behind the one before.
	__device__ __forceinline__ void store_state(SoftmaxState* to, int by) const {
		for (int h = threadIdx.x; h < group; h += blockDim.x) {
			SoftmaxState all = {EMPTY_MAX, 0};
			for (int w = 0; w < RING_WARPS; w++) all.max = max_of(all.max, maxes[w * 8 + h]);
			for (int w = 0; w < RING_WARPS; w++) all.sum += sums[w * 8 + h] * rescale(maxes[w * 8 + h], all.max);
			to[h * by] = all;
		}
	}

	// store_block stores what merge_cluster reads from the peers.
	__device__ __forceinline__ void store_block(int i, const Float4& y, float max, float total) const {
		*(Float4*)(own + i) = y;
		if (i % DIM == 0) {
			states[2 * (i / DIM)] = max;
			states[2 * (i / DIM) + 1] = total;
		}
	}

	// merge_cluster: each block merges a slice of the elements. A warm-up reads the block's own
	// shared memory only.
	template <class Result>
	__device__ __forceinline__ void merge_cluster(int cluster, int rank, bool warmup, Result result) const {
		int each = (group * DIM / 4 + cluster - 1) / cluster * 4;
		for (int i = rank * each + threadIdx.x * 4; i < min_of((rank + 1) * each, group * DIM); i += blockDim.x * 4) {
			float max_by[MAX_CLUSTER], sum_by[MAX_CLUSTER], max = EMPTY_MAX, total = 0;
			Float4 parts[MAX_CLUSTER], y = {{0, 0, 0, 0}};
#pragma unroll
			for (int r = 0; r < MAX_CLUSTER; r++) {
				max_by[r] = EMPTY_MAX;
				sum_by[r] = 0;
				parts[r] = {{0, 0, 0, 0}};
				if (r >= cluster) continue;
				int from = warmup ? rank : r;
				max_by[r] = dsmem_load(states + i / DIM * 2, from);
				sum_by[r] = dsmem_load(states + i / DIM * 2 + 1, from);
				dsmem_load4(parts[r].v, own + i, from);
			}
#pragma unroll
			for (int r = 0; r < MAX_CLUSTER; r++) max = max_of(max, max_by[r]);
#pragma unroll
			for (int r = 0; r < MAX_CLUSTER; r++) {
				float scale = rescale(max_by[r], max);
				total += sum_by[r] * scale;
				for (int j = 0; j < 4; j++) y.v[j] += parts[r].v[j] * scale;
			}
			result(i, y, max, total);
		}
	}
};

// Splits is how a row's tiles are divided among the blocks of a head group.
struct Splits {
	int each;      // tiles of a block
	int partials;  // partial results, one for each cluster that has tiles
};

__device__ __forceinline__ Splits splits_of(const DecodeArgs& a, int tiles) {
	int each = max_of((tiles + (int)a.splits - 1) / (int)a.splits, RING_WARPS), partials = max_of((tiles + each - 1) / each, 1);
	Splits s = {each, (partials + (int)a.cluster - 1) / (int)a.cluster};
	return s;
}

// write_output writes four elements from i on of a head group whose first head is index: to dst if
// they are all there is, otherwise as partial result `part`.
template <int DIM>
__device__ __forceinline__ void write_output(const DecodeArgs& a, i64 index, int i, int partials, int part, Float4& y, float max, float total) {
	if (partials == 1) {
		float scale = normalizer(total, a.plan.mixture);
		for (int j = 0; j < 4; j++) y.v[j] *= scale;
		*(Float4*)(a.dst + index * DIM + i) = y;
		return;
	}
	i64 to = (index + i / DIM) * a.splits + part;
	*(Float4*)(a.parts + to * DIM + i % DIM) = y;
	if (i % DIM == 0) a.states[to] = {max, total};
}

// prefetch_page_table prefetches the slot's page table, which the entries of a list will need.
__device__ __forceinline__ void prefetch_page_table(const PagedKV& g, RowPosition at) {
	for (int b = threadIdx.x * WARP; b <= at.p / PAGE; b += blockDim.x * WARP) prefetch_l2(g.table + (i64)at.slot * g.width + b);
}

// decode: grid (rows, heads / group, splits), RING_WARPS warps, clusters of splits in z; at most
// four heads of a group for each of SETS. WHOLE is for decode_whole: rows whose position list
// is incomplete are skipped. With scores, partial results are left for add_mass to merge; of scores
// alone they are states, and a cluster is one block.
template <int DIM, int SETS, int STAGES, bool WHOLE, DecodeResult RESULT = ATTENTION>
__device__ __forceinline__ void decode(const DecodeArgs& a, int y, TileScores scores = {nullptr, 0}) {
	constexpr bool SCORED = RESULT != ATTENTION, VALUES = RESULT != SCORES;
	DYNAMIC_SHARED(KVTile<DIM>, ring);
	SHARED(int, last, 1);
	// A kernel that reads lists triggers its dependents late, because they rely on the grids in
	// front of it being complete. Scores are written as tiles are loaded: not before pdl_wait.
	bool listed = SCORED || a.plan.selected == SELECTED_BLOCKS || a.plan.selected == SELECTED_TOKENS;
	if (!listed) pdl_trigger();
	int row = blockIdx.x, group = (int)a.group, split = blockIdx.z;
	RowPosition at = row_position(a.g, row);  // lengths and page table are written by the host, before any grid
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	int first = y * group, kv_head = first * (int)a.g.heads / (int)a.heads;
	i64 index = (i64)row * a.heads + first;
	if (listed) prefetch_page_table(a.g, at);

	// The copies of a tile are issued STAGES tiles ahead; see ListEntry for the lookups before them.
	KVTile<DIM>* mine = ring + warp() * STAGES;
	TileSequence r;
	int partials = min_of((int)a.splits, 2), end = 0, tile = warp(), next = 0, slot = 0, issued = 0;
	int cluster = (int)a.cluster, rank = cluster > 1 ? cluster_rank() : 0;
	int reload = -1, page = 0;  // stage of the newest position, to be loaded again, and its page
	ListEntry ahead = {-1, 1};
	TileRow spot = {0, -1, 1, 0};
	auto tile_scores = [&](int t) { return scores.words + (((i64)row * gridDim.y + y) * scores.tiles + t) * score_words(SETS); };
	auto raw = [&](int t) { return t < end ? list_entry(r, t) : ListEntry{-1, 1}; };
	auto fetch = [&]() {
		if (next < end) {
			load_tile_async<DIM, VALUES>(mine[slot], a.g, r, a.plan.mixture, kv_head, next, spot);
			if (SCORED && lane() < TILE_ROWS) tile_scores(next)[lane()] = spot.in < 0 ? ~0u : (u32)(spot.block * PAGE + spot.in);
			next += RING_WARPS;
			spot = tile_row(r, next, ahead);
			ahead = raw(next + RING_WARPS);
		}
		cp_async_commit();
		if (++slot == STAGES) slot = 0;
	};

	// Two passes. The warm-up overlaps with the preceding grids: it fills the pipeline with keys
	// and values of earlier steps (only the newest position is loaded again afterwards), and runs
	// one tile of garbage through the code below to load it into the instruction cache. The
	// second pass, after pdl_wait, computes.
	for (int pass = WHOLE ? 1 : 0; pass < 2; pass++) {
		bool warmup = pass == 0;
		if (!warmup) {
			pdl_wait();
			if (listed) pdl_trigger();
		}
		if (warmup != listed) {
			r = tile_sequence(a, at, first);
			if (WHOLE && r.selected != SELECTED_ALL) return;
			Splits s = splits_of(a, r.tiles);
			int each = s.each;
			partials = s.partials;
			if (split / cluster >= partials) return;  // split 0 always stays and calls pdl_wait for this grid
			if (SCORED && r.tiles > scores.tiles) {
				if (threadIdx.x == 0) fail(a.g.failure, FAIL_COUNT, r.e.n, scores.tiles * TILE_ROWS, 0);
				return;
			}
			end = min_of((split + 1) * each, r.tiles);
			int newest = (r.pages - 1) * PAGE_TILES + at.p % PAGE / TILE_ROWS;  // the tile of the row's own position
			if (r.plain) end = min_of(end, newest + 1);
			tile = next = split * each + warp();
			spot = tile_row(r, next, raw(next));
			ahead = raw(next + RING_WARPS);
			if (!listed && a.settled && r.sees(at.p) && r.in_sinks_or_window(at.p)) {
				for (; issued < STAGES; issued++) fetch();
				if (newest >= tile && newest < next && (newest - tile) % RING_WARPS == 0) {
					reload = (newest - tile) / RING_WARPS;
					page = r.table[at.p / PAGE];
					cp_async_wait<0>();
					__syncwarp();
				}
			}
		}
		if (!warmup) {
			if (reload >= 0 && (u32)page < a.g.count) reload_row_async<DIM>(mine[reload], a.g, kv_head, page, at.p % PAGE);
			for (; issued < STAGES; issued++) fetch();
		}
		QueryHeads<DIM, SETS> h;
		load_queries(h, a.q + index * DIM, group);
		reset(h);
		int stop = warmup ? tile + 1 : end;
		for (int t = tile; t < stop; t += RING_WARPS) {
			if (reload < 0)
				cp_async_wait<STAGES - 1>();
			else
				cp_async_wait<0>();
			__syncwarp();
			add_tile<DIM, SETS, VALUES>(h, mine[slot], a.plan.mixture, [&](int set, int i, float s) {
				if (SCORED && !warmup) tile_scores(t)[TILE_ROWS * (1 + 4 * set) + i * WARP + lane()] = __float_as_uint(s);
			});
			__syncwarp();  // the stage about to be overwritten has been read
			if (!warmup) fetch();
		}
		if (!warmup) cp_async_wait<0>();
		__syncthreads();

		// Merge the warps of the block, then the blocks of the cluster.
		BlockMerge<DIM> m((float*)ring, group);
		m.template store_warp<SETS, VALUES>(h, warmup);
		__syncthreads();
		if constexpr (!VALUES) {
			if (!warmup) m.store_state(a.states + index * a.splits + split, (int)a.splits);
			continue;
		}
		auto write_result = [&](int i, Float4& y, float max, float total) {
			if (!warmup) write_output<DIM>(a, index, i, SCORED ? (int)a.splits + 1 : partials, split / cluster, y, max, total);
		};
		m.merge_warps([&](int i, Float4& y, float max, float total) {
			if (cluster == 1)
				write_result(i, y, max, total);
			else if (!warmup)
				m.store_block(i, y, max, total);
		});
		if (cluster > 1) {
			if (!warmup) cluster_sync();
			m.merge_cluster(cluster, rank, warmup, write_result);
			if (!warmup) cluster_sync();  // peers read our shared memory until here
		}
		if constexpr (SCORED) continue;
		if (partials == 1) {
			if (warmup) continue;
			return;
		}
		__syncthreads();
		if (!last_to_finish(a.finished + (i64)row * gridDim.y + blockIdx.y, partials * cluster, last, warmup)) return;
		merge_splits<DIM>(a, index, partials, m.accs, warmup);
	}
}
