// Attention of a decode step, one row of each slot, over a cache in half precision:
// bound by reading the keys and values that the plan asks for once. Checked against
// attend.cu, with the bound of f32.
//
// A block takes the query heads that share a kv head, up to 8, and a share of what
// they read, cut into 16 positions at a time: quarters of pages, then entries of a
// list of positions. Each warp has a ring of them in shared memory. Products are on
// tensor cores: of the eight columns of a product every other one is a head rounded to half
// precision and the next one what that left, so that the two together are good to 22 bits;
// the weights of values likewise. Blocks that run together merge their shares in shared memory, and
// the last block of a group of heads to finish merges what these have, in their order.
#pragma once

#include "dequant.cuh"
#include "state.cuh"

struct DecodeArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	float* parts;    // [rows, heads, splits, dim], of which each of the blocks that run together has one
	SoftmaxState* states;   // [rows, heads, splits]
	i32* finished;   // [rows, heads / group]: blocks that are done; 0 between launches
	i64 heads, splits, group;
	i64 together;  // blocks that merge their shares in shared memory
	i64 settled;  // keys and values of all positions but the newest are there before the kernels before are done
	PagedKV g;      // f16
	Plan plan;
};

constexpr int TAKE = 16;  // positions that a warp takes at a time
constexpr int QUARTERS = PAGE / TAKE;

// A block of decode leaves half of the shared memory to the product before it or to the
// one after it, so that it starts to read while that one ends, and the other way round.
constexpr int RING_WARPS = 4;
constexpr int RING_STAGES = 3;
constexpr int MAX_CLUSTER = 8;

// Tile is 16 positions.
template <int DIM>
struct Tile {
	u16 k[TAKE * (DIM + 8)], v[TAKE * (DIM + 8)];
	float bias[TAKE];  // log2 of the weight; of a mixture the weight; -infinity or 0 for none
};

// Reads is what a row and head read, as a sequence of tiles.
struct Reads {
	Entries e;
	const i32* table;  // of the slot
	int slot, p, middle;
	int from, span_sink, span_bound;  // sees: from on, and before span_sink or from span_bound on
	int sink, recent;  // edge: before sink, or from recent on
	int head, tail;    // pages before and from which on all are looked at
	int listed, pages;  // pages of the list, and all
	int tiles;
	bool plain;  // all up to the row's position

	__device__ __forceinline__ int cut() const { return pages * QUARTERS; }  // tiles of pages
	__device__ __forceinline__ bool sees(int j) const { return j <= p && j >= from && (j < span_sink || j >= span_bound); }
	__device__ __forceinline__ bool in_sinks_or_window(int j) const { return middle == MIDDLE_ALL || j < sink || j >= recent; }
};

// reads_of is what the row at a place and a head read.
__device__ __forceinline__ Reads reads_of(const DecodeArgs& a, RowPosition at, int head) {
	Reads r;
	Plan plan = a.plan;
	int p = at.p, all = p / PAGE + 1;
	r.table = a.g.table + (i64)at.slot * a.g.width;
	r.slot = at.slot;
	r.p = p;
	r.e = entries(plan.list, a.g, at, head, (int)a.heads);
	if (selects_all(plan, r.e, p)) plan.middle = MIDDLE_ALL;
	r.middle = (int)plan.middle;
	FixedPages edges = fixed_pages(plan, p);
	r.head = min_of(edges.head, all);
	r.tail = min_of(max_of(edges.tail, r.head), all);
	r.listed = r.middle == MIDDLE_BLOCKS ? r.e.n : 0;
	r.pages = r.head + r.listed + all - r.tail;
	r.tiles = r.cut() + (r.middle == MIDDLE_TOKENS ? (r.e.n + TAKE - 1) / TAKE : 0);
	const Span& span = plan.span;
	r.from = span.back ? (int)max_of((i64)p + 1 - span.back, (i64)0) : 0;
	r.span_sink = (int)min_of(span.sink, (i64)p + 1);
	r.span_bound = bound_of(span, p);
	r.sink = (int)min_of(plan.sink, (i64)p + 1);
	r.recent = recent_of(plan, p);
	r.plain = r.middle == MIDDLE_ALL && span.back == 0 && span.drop == 0;
	return r;
}

// Raw is what a lane knows of its position of a tile before the list has arrived.
struct Raw {
	int at;  // a block, or a position of a list; -1 for none
	float weight;
};

__device__ __forceinline__ Raw raw_of(const Reads& r, int tile) {
	Raw raw = {-1, 1};
	if (tile >= r.tiles || r.plain) return raw;
	if (tile >= r.cut()) {
		int i = (tile - r.cut()) * TAKE + lane() % TAKE;
		if (i >= r.e.n) return raw;
		raw.at = r.e.index[i];
		if (r.e.weight) raw.weight = r.e.weight[i];
		return raw;
	}
	int page = tile / QUARTERS;
	if (page >= r.head && page < r.head + r.listed) {
		int i = page - r.head;
		raw.at = r.e.index[i];
		if (r.e.weight) raw.weight = r.e.weight[i];
		return raw;
	}
	raw.at = page < r.head ? page : page - r.head - r.listed + r.tail;
	raw.weight = r.middle == MIDDLE_BLOCKS ? weight_of(r.e, raw.at) : 0;
	return raw;
}

// Spot is where a lane's position lies.
struct Spot {
	int page;  // its number, before it is checked; of a tile of pages all lanes have it
	int in;    // the position there; -1 for none
	float weight;
};

__device__ __forceinline__ Spot spot_of(const Reads& r, int tile, Raw raw) {
	Spot s = {0, -1, 1};
	int in = tile % QUARTERS * TAKE + lane() % TAKE;
	if (r.plain) {
		int block = tile / QUARTERS;
		if (tile >= r.tiles) return s;
		s.page = r.table[block];
		if (block * PAGE + in <= r.p) s.in = in;
		return s;
	}
	int j = raw.at;
	if (j < 0) return s;
	if (tile >= r.cut()) {
		if (!r.sees(j) || r.in_sinks_or_window(j)) return s;
		s.weight = raw.weight;
		s.in = j % PAGE;
		s.page = r.table[j / PAGE];
		return s;
	}
	int number = tile / QUARTERS;
	bool listed = number >= r.head && number < r.head + r.listed;
	if (listed && (j < r.head || j >= r.tail)) return s;  // among the others
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

// bring begins to copy a tile.
template <int DIM>
__device__ __forceinline__ void bring(Tile<DIM>& t, const PagedKV& g, const Reads& r, bool mixture, int kv_head, int tile, Spot s) {
	constexpr int PIECES = DIM / 8, ROWS = WARP / PIECES;  // of 16 bytes of a row; rows of a turn
	bool there = s.in >= 0;
	if (there && (u32)s.page >= (u32)g.count) {
		fail(g.failure, FAIL_PAGE, r.slot, s.page, g.count);
		there = false;
	}
	u32 seen = __ballot_sync(FULL_MASK, there);
	float bias = 0;
	if (!there || s.weight != 1) bias = mixture ? (there ? s.weight : 0) : there && s.weight > 0 ? log2f(s.weight) : -infinity();
	if (there && s.weight == 1 && mixture) bias = 1;
	if (lane() < TAKE) t.bias[lane()] = bias;
	int first = lane() / PIECES, piece = lane() % PIECES * 8;
	u16 *k = t.k + first * (DIM + 8) + piece, *v = t.v + first * (DIM + 8) + piece;
	auto element = [&](int in) { return ((i64)s.page * (int)g.heads + kv_head) * (PAGE * DIM) + in * DIM; };
	if (tile < r.cut()) {
		// 16 positions of a page, one behind the other.
		i64 from = seen ? element(tile % QUARTERS * TAKE + first) + piece : 0;
		const u16 *from_k = (const u16*)g.k + from, *from_v = (const u16*)g.v + from;
		if (seen == FULL_MASK && !mixture) {
#pragma unroll
			for (int i = 0; i < TAKE; i += ROWS) {
				cp_async(k + i * (DIM + 8), from_k + i * DIM);
				cp_async(v + i * (DIM + 8), from_v + i * DIM);
			}
			return;
		}
#pragma unroll
		for (int i = 0; i < TAKE; i += ROWS) {
			bool in = seen >> (i + first) & 1;
			if (!mixture) cp_async_zfill(k + i * (DIM + 8), from_k + i * DIM, in);
			cp_async_zfill(v + i * (DIM + 8), from_v + i * DIM, in);
		}
		return;
	}
	i64 place = there ? element(s.in) : 0;
#pragma unroll
	for (int i = 0; i < TAKE; i += ROWS) {
		i64 from = __shfl_sync(FULL_MASK, place, i + first) + piece;
		bool in = seen >> (i + first) & 1;
		if (!mixture) cp_async_zfill(k + i * (DIM + 8), (const u16*)g.k + from, in);
		cp_async_zfill(v + i * (DIM + 8), (const u16*)g.v + from, in);
	}
}

// Heads is what a lane has of the heads of its block, in sets of four. Of a set, a product
// has eight columns: a head's queries, or its weights, rounded to half precision, and what
// that left. A lane gives columns lane/4, and gets those of head lane%4.
template <int DIM, int SETS>
struct Heads {
	u32 q[SETS][DIM / 16][2];
	float unit[SETS];  // what a product of q and a key is multiplied by
	float acc[SETS][DIM / 16][4];
	SoftmaxState s[SETS];  // sum is the lane's own part
};

// ask gives a block's heads their queries, times a power of two that keeps both halves of
// them within half precision.
template <int DIM, int SETS>
__device__ __forceinline__ void ask(Heads<DIM, SETS>& h, const float* q, int group) {
#pragma unroll
	for (int set = 0; set < SETS; set++) {
		int head = set * 4 + lane() / 8;
		bool rest = lane() / 4 % 2;
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
		int power = min_of(max_of((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased: top becomes 2¹⁰ or more
		float up = __uint_as_float((u32)(254 - power) << 23), down = __uint_as_float((u32)power << 23);
		h.unit[set] = __shfl_sync(FULL_MASK, down * (1.4426950408889634f / sqrtf((float)DIM)), lane() % 4 * 8);
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				float x = v[k][2 * i] * up, y = v[k][2 * i + 1] * up;
				u32 both = pack_half(x, y);
				h.q[set][k][i] = rest ? pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16))) : both;
			}
		}
	}
}

// add_tile adds the positions of a tile.
template <int DIM, int SETS>
__device__ __forceinline__ void add_tile(Heads<DIM, SETS>& h, const Tile<DIM>& t, bool mixture) {
	float p[SETS][2];  // of positions lane/4 and lane/4 + 8
	const float bias[2] = {t.bias[lane() / 4], t.bias[lane() / 4 + 8]};
	if (mixture) {
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			for (int i = 0; i < 2; i++) p[set][i] = bias[i];
		}
	} else {
		float s[SETS][2][4];  // over every other k
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
				top = max_of(top, p[set][i]);
			}
			for (int m = 4; m < WARP; m *= 2) top = max_of(top, __shfl_xor_sync(FULL_MASK, top, m));
			float scale = rescale(h.s[set].max, top);
			if (__any_sync(FULL_MASK, scale != 1)) {
				h.s[set].sum *= scale;
#pragma unroll
				for (int d = 0; d < DIM / 16; d++) {
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
		u32 both = pack_half(p[set][0], p[set][1]);
		w[set][0] = movmatrix_trans(pack_half(p[set][0], p[set][0] - from_half((u16)both)));
		w[set][1] = movmatrix_trans(pack_half(p[set][1], p[set][1] - from_half((u16)(both >> 16))));
	}
#pragma unroll
	for (int d = 0; d < DIM / 16; d++) {
		u32 values[4];
		ldmatrix_x4_trans(values, t.v + (lane() % 8 + lane() / 16 * 8) * (DIM + 8) + d * 16 + lane() / 8 % 2 * 8);
#pragma unroll
		for (int set = 0; set < SETS; set++) mma_f16(h.acc[set][d], values, w[set]);
	}
}

// Quad is four numbers of a head.
struct alignas(16) Quad {
	float v[4];
};

// merge adds up the shares of a group's heads in their order. A thread asks for its
// part of the first of them before it knows what to multiply them by. A rehearsal leaves
// nothing.
template <int DIM>
__device__ __forceinline__ void merge(const DecodeArgs& a, i64 index, int shares, float* scales, bool rehearsal) {
	constexpr int AHEAD = 16;
	int group = (int)a.group, splits = (int)a.splits;
	const SoftmaxState* states = a.states + index * splits;
	const float* parts = a.parts + index * splits * DIM;
	Quad v[AHEAD];
	int own = (int)threadIdx.x * 4;
	const float* mine = parts + (i64)(own / DIM) * splits * DIM + own % DIM;
#pragma unroll
	for (int s = 0; s < AHEAD; s++) {
		v[s] = {{0, 0, 0, 0}};
		if (s < shares && own < group * DIM) v[s] = *(const Quad*)(mine + s * DIM);
	}
	for (int h = warp(); h < group; h += (int)blockDim.x / WARP) {
		float top = EMPTY_MAX, sum = 0;
		for (int s = lane(); s < shares; s += WARP) top = max_of(top, states[h * splits + s].max);
		top = reduce_warp(top, Max());
		for (int s = lane(); s < shares; s += WARP) {
			float scale = rescale(states[h * splits + s].max, top);
			if (!rehearsal) scales[h * shares + s] = scale;
			sum += states[h * splits + s].sum * scale;
		}
		sum = reduce_warp(sum, Plus());
		if (lane() == 0 && !rehearsal) scales[group * shares + h] = normalizer(sum, a.plan.mixture);
	}
	__syncthreads();
	for (int i = own; i < group * DIM; i += (int)blockDim.x * 4) {
		int h = i / DIM;
		const float* more = parts + (i64)h * splits * DIM + i % DIM;
		Quad x = {{0, 0, 0, 0}};
		auto take = [&](const Quad& part, int s) {
			float scale = scales[h * shares + s];
			for (int j = 0; j < 4; j++) x.v[j] += part.v[j] * scale;
		};
#pragma unroll
		for (int s = 0; s < AHEAD; s++) {
			if (s >= shares) break;
			if (i != own) v[s] = *(const Quad*)(more + s * DIM);
			take(v[s], s);
		}
#pragma unroll 4
		for (int s = AHEAD; s < shares; s++) take(*(const Quad*)(more + s * DIM), s);
		for (int j = 0; j < 4; j++) x.v[j] *= scales[group * shares + h];
		if (!rehearsal) *(Quad*)(a.dst + index * DIM + i) = x;
	}
}

// bring_row begins to copy one position of a tile again.
template <int DIM>
__device__ __forceinline__ void bring_row(Tile<DIM>& t, const PagedKV& g, int kv_head, int page, int in) {
	constexpr int PIECES = DIM / 8;
	if (lane() >= 2 * PIECES) return;
	bool value = lane() >= PIECES;
	int piece = lane() % PIECES * 8;
	cp_async((value ? t.v : t.k) + in % TAKE * (DIM + 8) + piece, (const u16*)(value ? g.v : g.k) + kv_offset(g, page, kv_head, in) + piece);
}

// decode: block (r, y, s) adds up share s of what row r reads for heads
// y·group to y·group + group-1, no more than four for each of SETS.
template <int DIM, int SETS, int STAGES, bool WHOLE>
__device__ __forceinline__ void decode(const DecodeArgs& a, int y) {
	DYNAMIC_SHARED(Tile<DIM>, ring);
	SHARED(int, last, 1);
	// The kernels after one that reads lists may rely on those before it being done.
	bool lists = a.plan.middle == MIDDLE_BLOCKS || a.plan.middle == MIDDLE_TOKENS;
	if (!lists) pdl_trigger();
	int row = blockIdx.x, group = (int)a.group, split = blockIdx.z;
	RowPosition at = row_position(a.g, row);  // what the host writes, lengths and pages, is there already
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	int first = y * group, kv_head = first * (int)a.g.heads / (int)a.heads;
	i64 index = (i64)row * a.heads + first;
	// The list names pages that will be looked up.
	if (lists) {
		for (int b = threadIdx.x * WARP; b <= at.p / PAGE; b += blockDim.x * WARP) prefetch_l2(a.g.table + (i64)at.slot * a.g.width + b);
	}

	// A tile is copied STAGES turns before it is added; its page is looked up a turn
	// earlier, and the list that names the page one more.
	Tile<DIM>* mine = ring + warp() * STAGES;
	Reads r;
	int shares = min_of((int)a.splits, 2), end = 0, tile = warp(), next = 0, slot = 0, begun = 0;
	int together = (int)a.together, rank = together > 1 ? cluster_rank() : 0;
	int again = -1, page = 0;  // where in the ring the newest position is copied again, and its page
	Raw ahead = {-1, 1};
	Spot spot = {0, -1, 1};
	auto raw = [&](int t) { return t < end ? raw_of(r, t) : Raw{-1, 1}; };
	auto fetch = [&]() {
		if (next < end) {
			bring<DIM>(mine[slot], a.g, r, a.plan.mixture, kv_head, next, spot);
			next += RING_WARPS;
			spot = spot_of(r, next, ahead);
			ahead = raw(next + RING_WARPS);
		}
		cp_async_commit();
		if (++slot == STAGES) slot = 0;
	};

	// While the kernels before still run, the ring is filled with what earlier steps stored;
	// of that, the newest position is copied again when it is there. And a rehearsal
	// brings the instructions, which other kernels have driven out since the last time.
	for (int turn = WHOLE ? 1 : 0; turn < 2; turn++) {
		bool rehearsal = turn == 0;
		if (!rehearsal) {
			pdl_wait();
			if (lists) pdl_trigger();
		}
		if (rehearsal != lists) {
			r = reads_of(a, at, first);
			if (WHOLE && r.middle != MIDDLE_ALL) return;
			int each = max_of((r.tiles + (int)a.splits - 1) / (int)a.splits, RING_WARPS);
			shares = max_of((r.tiles + each - 1) / each, 1);
			shares = (shares + together - 1) / together;  // of blocks together
			if (split / together >= shares) return;       // share 0 waits for the kernels before
			end = min_of((split + 1) * each, r.tiles);
			int newest = (r.pages - 1) * QUARTERS + at.p % PAGE / TAKE;  // where the row's own position is
			if (r.plain) end = min_of(end, newest + 1);
			tile = next = split * each + warp();
			spot = spot_of(r, next, raw(next));
			ahead = raw(next + RING_WARPS);
			if (!lists && a.settled && r.sees(at.p) && r.in_sinks_or_window(at.p)) {
				for (; begun < STAGES; begun++) fetch();
				if (newest >= tile && newest < next && (newest - tile) % RING_WARPS == 0) {
					again = (newest - tile) / RING_WARPS;
					page = r.table[at.p / PAGE];
					cp_async_wait<0>();
					__syncwarp();
				}
			}
		}
		if (!rehearsal) {
			if (again >= 0 && (u32)page < a.g.count) bring_row<DIM>(mine[again], a.g, kv_head, page, at.p % PAGE);
			for (; begun < STAGES; begun++) fetch();
		}
		Heads<DIM, SETS> h;
		ask(h, a.q + index * DIM, group);
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			h.s[set] = {EMPTY_MAX, 0};
#pragma unroll
			for (int d = 0; d < DIM / 16; d++) h.acc[set][d][0] = h.acc[set][d][1] = h.acc[set][d][2] = h.acc[set][d][3] = 0;
		}
		int stop = rehearsal ? tile + 1 : end;
		for (int t = tile; t < stop; t += RING_WARPS) {
			if (again < 0)
				cp_async_wait<STAGES - 1>();
			else
				cp_async_wait<0>();
			__syncwarp();
			add_tile(h, mine[slot], a.plan.mixture);
			__syncwarp();  // all have read what the next tile overwrites
			if (!rehearsal) fetch();
		}
		if (!rehearsal) cp_async_wait<0>();
		__syncthreads();

		// The warps of the block, in their order.
		constexpr int WIDTH = DIM + 8;  // so that heads are in other banks
		float* accs = (float*)ring;     // [warps, 8, WIDTH]
		float *tops = accs + RING_WARPS * 8 * WIDTH, *sums = tops + RING_WARPS * 8;  // [warps, 8]
#pragma unroll
		for (int set = 0; set < SETS; set++) {
			float sum = h.s[set].sum;
			for (int m = 4; m < WARP; m *= 2) sum += __shfl_xor_sync(FULL_MASK, sum, m);
			int head = set * 4 + lane() % 4, at = warp() * 8 + head;
			if (head >= group || rehearsal) continue;
			if (lane() < 4) {
				tops[at] = h.s[set].max;
				sums[at] = sum;
			}
			float* to = accs + at * WIDTH + lane() / 4;
#pragma unroll
			for (int d = 0; d < DIM / 16; d++) {
				to[d * 16] = h.acc[set][d][0] + h.acc[set][d][1];
				to[d * 16 + 8] = h.acc[set][d][2] + h.acc[set][d][3];
			}
		}
		__syncthreads();
		float* own = sums + RING_WARPS * 8;     // [group, DIM]: of the block
		float* states = own + group * DIM;      // [group, 2]
		auto leave = [&](int i, Quad& y, float top, float total) {
			if (rehearsal) return;
			if (shares == 1) {
				float scale = normalizer(total, a.plan.mixture);
				for (int j = 0; j < 4; j++) y.v[j] *= scale;
				*(Quad*)(a.dst + index * DIM + i) = y;
				return;
			}
			i64 part = (index + i / DIM) * a.splits + split / together;
			*(Quad*)(a.parts + part * DIM + i % DIM) = y;
			if (i % DIM == 0) a.states[part] = {top, total};
		};
		for (int i = threadIdx.x * 4; i < group * DIM; i += blockDim.x * 4) {
			int g = i / DIM, d = i % DIM;
			float top = EMPTY_MAX, total = 0;
			Quad y = {{0, 0, 0, 0}};
#pragma unroll
			for (int w = 0; w < RING_WARPS; w++) top = max_of(top, tops[w * 8 + g]);
#pragma unroll
			for (int w = 0; w < RING_WARPS; w++) {
				float scale = rescale(tops[w * 8 + g], top);
				total += sums[w * 8 + g] * scale;
				const Quad& part = *(const Quad*)(accs + (w * 8 + g) * WIDTH + d);
				for (int j = 0; j < 4; j++) y.v[j] += part.v[j] * scale;
			}
			if (together == 1) {
				leave(i, y, top, total);
			} else if (!rehearsal) {
				*(Quad*)(own + i) = y;
				if (d == 0) {
					states[2 * g] = top;
					states[2 * g + 1] = total;
				}
			}
		}
		if (together > 1) {
			// The blocks that run together, in their order, a part of the heads each.
			if (!rehearsal) cluster_sync();
			int each = (group * DIM / 4 + together - 1) / together * 4;
			for (int i = rank * each + threadIdx.x * 4; i < min_of((rank + 1) * each, group * DIM); i += blockDim.x * 4) {
				float top_of[MAX_CLUSTER], sum_of[MAX_CLUSTER], top = EMPTY_MAX, total = 0;
				Quad parts[MAX_CLUSTER], y = {{0, 0, 0, 0}};
#pragma unroll
				for (int r = 0; r < MAX_CLUSTER; r++) {
					top_of[r] = EMPTY_MAX;
					sum_of[r] = 0;
					parts[r] = {{0, 0, 0, 0}};
					if (r >= together) continue;
					int from = rehearsal ? rank : r;
					top_of[r] = dsmem_load(states + i / DIM * 2, from);
					sum_of[r] = dsmem_load(states + i / DIM * 2 + 1, from);
					dsmem_load4(parts[r].v, own + i, from);
				}
#pragma unroll
				for (int r = 0; r < MAX_CLUSTER; r++) top = max_of(top, top_of[r]);
#pragma unroll
				for (int r = 0; r < MAX_CLUSTER; r++) {
					float scale = rescale(top_of[r], top);
					total += sum_of[r] * scale;
					for (int j = 0; j < 4; j++) y.v[j] += parts[r].v[j] * scale;
				}
				leave(i, y, top, total);
			}
			if (!rehearsal) cluster_sync();  // all have read what goes with a block that returns
		}
		if (shares == 1) {
			if (rehearsal) continue;
			return;
		}
		__syncthreads();
		if (threadIdx.x == 0) {
			// One fence passes on what the block has written, and one lets it see what others have.
			i32* finished = a.finished + (i64)row * gridDim.y + blockIdx.y;
			last[0] = 1;
			if (!rehearsal) {
				__threadfence();
				last[0] = atomicAdd(finished, 1) == shares * together - 1;
				__threadfence();
				if (last[0]) *finished = 0;
			}
		}
		__syncthreads();
		if (!last[0]) return;
		merge<DIM>(a, index, shares, accs, rehearsal);
	}
}
