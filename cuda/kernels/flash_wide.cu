// Attention of many rows of one slot on the tensor cores of compute capability 9.0:
// flash.cu with the instructions of wide.cuh. Checked against attend.cu.
//
// A block has one or two groups of four warps, and four that bring them tiles. A
// group takes 64 positions of one head, which start at a multiple of 64: groups of a
// block are neighbours, or heads of one kv head at the same positions. They share the
// tiles of keys and values, which lie in a ring in shared memory. While the tensor
// cores add up a group's values, its threads make the weights of the next tile.
#include "tiles.cuh"
#include "wide.cuh"

#if WIDE

constexpr int FLASH_RING = 4;
constexpr int PANEL = PAGE * 64;  // halves of a panel of a tile

// WideStage is a tile, in panels as wide.cuh has them.
template <int DIM>
struct WideStage {
	u16 k[PAGE * DIM], v[PAGE * DIM];
};

// Marks are the positions of a tile, -1 for none, and log2 of the weight of what the
// list names.
struct Marks {
	i32 at[PAGE];
	float bias[PAGE];
};

// WideGroup is what a group of warps reads, beyond what its rows see one by one: what
// all of its rows see.
struct WideGroup {
	int own;  // position of its first row
	int back, bound, span_sink;  // of the last row
	int sink, recent_first, recent_last;
	bool all, weights;
	int pages, entries;  // tiles that all rows read all of: those before pages, and from the first of entries that many

	// range finds them, without a look at the tiles: the pages before its own that
	// are neither on the border of the sinks nor of the window, and entries where all
	// lie between.
	__device__ void range(const Plan& plan, const Tiles& w) {
		int before = own / PAGE;
		pages = entries = 0;
		if (plan.span.back || plan.span.drop != 0 || weights) return;
		if (all || (w.head * PAGE <= sink && (recent_last <= w.tail * PAGE || w.tail >= before))) {
			int tails = w.pages - w.head - w.middle;
			pages = before < w.tail ? smaller(before, w.head) + (w.blocks ? smaller(w.middle, larger(below(w.e, before) - w.from, 0)) : 0)
			                        : w.head + w.middle + smaller(tails, before - w.tail);
		}
		if (w.all > w.pages && w.e.n > 0 && w.e.index[0] >= sink && w.e.index[w.e.n - 1] < smaller(recent_first, own + 1)) entries = w.e.n / PAGE;
	}

	// fast reports whether tile t is one of them.
	__device__ bool fast(const Tiles& w, int t) const { return t < pages || (t >= w.pages && t < w.pages + entries); }

	// whole reports whether all rows read all of a tile, with weight one.
	__device__ bool whole(const Marks& m, const Tiles& w, int t) const {
		int lo = m.at[0], hi = m.at[PAGE - 1];
		if (lo < 0 || hi < 0 || hi > own || lo < back || !(hi < span_sink || lo >= bound)) return false;
		if (t >= w.pages) return !weights && lo >= sink && hi < recent_first;
		return all || hi < sink || lo >= recent_last || (w.listed(t) && !weights);
	}
};

template <int DIM>
struct WideRows {
	u32 q[DIM / 16][4];
	float acc[DIM / 2];
	State s[2];
	int p[2];  // positions of the rows that this lane has parts of
};

// hide takes out of a tile's scores what rows do not see, and weighs the rest.
__device__ inline void hide(float (&s)[PAGE / 2], const Plan& plan, const int (&p)[2], const Marks& m, bool page_tile) {
	Sight see[2] = {sight_of(plan, p[0]), sight_of(plan, p[1])};
#pragma unroll
	for (int n = 0; n < PAGE / 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			int c = n * 8 + lane() % 4 * 2 + i % 2, j = m.at[c];
			bool in = j >= 0 && see[i / 2].spanned(j), edge = see[i / 2].edge(j);
			if (!in || (!page_tile && edge))
				s[n * 4 + i] = -infinity();
			else if (!edge)
				s[n * 4 + i] += m.bias[c];
		}
	}
}

// weigh makes scores weights, and says what sums so far are to be multiplied by. A
// lane has two rows of four columns' maxima and sums on their way at once.
template <int DIM>
__device__ __forceinline__ void weigh(WideRows<DIM>& r, float (&s)[PAGE / 2], float (&scale)[2]) {
	float top[4], sum[4];
#pragma unroll
	for (int i = 0; i < 4; i++) top[i] = s[i];
#pragma unroll
	for (int n = 1; n < PAGE / 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) top[i] = fmaxf(top[i], s[n * 4 + i]);
	}
#pragma unroll
	for (int u = 0; u < 2; u++) top[u] = fmaxf(top[2 * u], top[2 * u + 1]);
#pragma unroll
	for (int m = 1; m < 4; m *= 2) {
		float other[2] = {__shfl_xor_sync(ALL, top[0], m), __shfl_xor_sync(ALL, top[1], m)};
#pragma unroll
		for (int u = 0; u < 2; u++) top[u] = fmaxf(top[u], other[u]);
	}
#pragma unroll
	for (int u = 0; u < 2; u++) {
		top[u] = fmaxf(top[u], r.s[u].top);
		scale[u] = power2(r.s[u].top - top[u]);
		r.s[u].top = top[u];
	}
#pragma unroll
	for (int i = 0; i < 4; i++) sum[i] = 0;
#pragma unroll
	for (int n = 0; n < PAGE / 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			s[n * 4 + i] = power2(s[n * 4 + i] - top[i / 2]);
			sum[i] += s[n * 4 + i];
		}
	}
#pragma unroll
	for (int u = 0; u < 2; u++) r.s[u].sum = r.s[u].sum * scale[u] + (sum[2 * u] + sum[2 * u + 1]);  // of this lane's columns
}

// Where the threads of a block meet: a group when a tile is there for it, the warps
// that bring tiles when all groups have used one.
__device__ __forceinline__ int full(int t, int group) { return 1 + t % FLASH_RING * 3 + group; }
__device__ __forceinline__ int used(int t) { return 1 + t % FLASH_RING * 3 + 2; }

// Bringer is what the warps do that bring tiles: each 16 rows of them.
template <int DIM, int GROUPS, bool VALUES>
struct Bringer {
	static constexpr int PIECES = DIM / 8, STEP = WARP / PIECES;  // of a row; rows at once
	static constexpr int ROWS = PAGE / 4;
	static constexpr u32 NONE = ~0u;

	const FlashArgs& a;
	const Tiles& w;
	WideStage<DIM>* ring;
	Marks* marks;
	int kv_head, last;
	// Of row lane%16 of the warp's. A list and the table of pages take long to read, so
	// what is read for the tiles after is not looked at before their turn.
	int at;     // its position in the tile to bring
	u32 row;    // where it lies in the cache, in rows of DIM; NONE for nothing
	int next;   // its position in the tile after
	int page;   // of that, unchecked
	int after;  // its position in the tile after that

	// read is the position in tile t.
	__device__ __forceinline__ int read(int t) const { return t < w.all ? w.position(t, warp() % 4 * ROWS + lane() % ROWS) : -1; }
	__device__ __forceinline__ int page_of_next() const { return next >= 0 && next <= last ? page_at(a.g, 0, next / PAGE) : -1; }

	// begin comes before locate(0).
	__device__ __forceinline__ void begin() {
		next = read(0);
		page = page_of_next();
		after = read(1);
	}

	// locate finds the rows of tile t, after that of the tile before.
	__device__ __forceinline__ void locate(int t) {
		at = next >= 0 && next <= last && page_good(a.g, 0, page) ? next : -1;
		row = at >= 0 ? ((u32)page * (u32)a.g.heads + (u32)kv_head) * PAGE + (u32)at % PAGE : NONE;
		next = after;
		page = page_of_next();
		after = read(t + 2);
	}

	// bring begins to copy tile t, whose rows were located.
	__device__ __forceinline__ void bring(int t) {
		int c = lane() % PIECES, from = lane() / PIECES, first = warp() % 4 * ROWS;
		if (lane() < ROWS) {
			Marks& m = marks[t % FLASH_RING];
			m.at[first + lane()] = at;
			if (a.plan.middle != MIDDLE_ALL) m.bias[first + lane()] = w.bias(t, first + lane());
		}
		u16 *k = ring[t % FLASH_RING].k, *v = k + PAGE * DIM;
		int to = c / 8 * PANEL + (first + from) * 64 + (c % 8 ^ from) * 8;
		const u16 *keys = (const u16*)a.g.k + c * 8, *values = (const u16*)a.g.v + c * 8;
#pragma unroll
		for (int i = 0; i < ROWS; i += STEP) {
			u32 r = __shfl_sync(ALL, row, i + from);
			bool there = r != NONE;
			i64 one = there ? (i64)r * DIM : 0;
			int at = (to ^ i % 8 * 8) + i * 64;  // row i + from has its pieces at c ^ (i + from)%8
			copy_async_if(k + at, keys + one, there);
			if (VALUES) copy_async_if(v + at, values + one, there);
		}
	}

	// hand gives the groups tile t, which has been copied.
	__device__ __forceinline__ void hand(int t) {
		wide_written();
		for (int i = 0; i < GROUPS; i++) arrive(full(t, i), 128 + 128);
	}

	__device__ __forceinline__ void run() {
		begin();
		for (int t = 0; t < w.all; t++) {
			locate(t);
			if (t >= FLASH_RING) meet(used(t), 128 + 128 * GROUPS);
			bring(t);
			copy_commit();
			if (t == 0) continue;
			copy_wait<1>();
			hand(t - 1);
		}
		copy_wait<0>();
		hand(w.all - 1);
	}
};

// attend_group is what a group of four warps does: the rows from position own on, of
// which the block has those at lo to last.
template <int DIM, int GROUPS>
__device__ __forceinline__ void attend_group(const FlashArgs& a, const Tiles& w, WideStage<DIM>* ring, Marks* marks, int h, int own, int first, int lo, int last) {
	int group = threadIdx.x / 128;
	WideRows<DIM> r;
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		r.p[u] = own + warp() % 4 * 16 + lane() / 4 + u * 8;
		r.s[u] = {NOTHING, 0};
		bool there = r.p[u] >= lo && r.p[u] <= last;
		const float* q = a.q + ((i64)(there ? r.p[u] - first : 0) * a.heads + h) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
			r.q[k][u] = there ? pack_half(q[k * 16] * unit, q[k * 16 + 1] * unit) : 0;
			r.q[k][u + 2] = there ? pack_half(q[k * 16 + 8] * unit, q[k * 16 + 9] * unit) : 0;
		}
	}
#pragma unroll
	for (int d = 0; d < DIM / 2; d++) r.acc[d] = 0;
	int end = own + FLASH_ROWS - 1;
	Sight late = sight_of(a.plan, end);
	WideGroup see = {own, late.back, late.bound, late.span_sink, late.sink, recent_of(a.plan, own), late.recent, late.all, a.plan.list.weight != nullptr, 0, 0};
	see.range(a.plan, w);

	float s[PAGE / 2], scale[2] = {1, 1};
	u32 p[PAGE / 16][4];
	auto multiply_keys = [&](int t) {
		WideMatrix k = wide_at(ring[t % FLASH_RING].k, 0, 1024);
		wide_begin();
#pragma unroll
		for (int i = 0; i < DIM / 16; i++) {
			if (i == 0)
				wide_multiply<0>(s, r.q[i], k);
			else
				wide_multiply<1>(s, r.q[i], k.from(i / 4 * PANEL * 2 + i % 4 * 32));
		}
		wide_commit();
	};
	auto multiply_values = [&](int t) {
		WideMatrix v = wide_at(ring[t % FLASH_RING].v, PANEL * 2, 1024);
		wide_begin();
#pragma unroll
		for (int k = 0; k < PAGE / 16; k++) wide_multiply_rows(r.acc, p[k], v.from(k * 2048));
		wide_commit();
	};
	auto pack = [&] {
#pragma unroll
		for (int k = 0; k < PAGE / 16; k++) {
#pragma unroll
			for (int i = 0; i < 4; i++) p[k][i] = pack_half(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
		}
	};
	auto rescales = [&] { return __any_sync(ALL, scale[0] != 1 || scale[1] != 1 || !(r.s[0].sum + r.s[1].sum >= 0)); };
	auto rescale = [&] {
#pragma unroll
		for (int d = 0; d < DIM / 2; d++) r.acc[d] *= scale[d / 2 % 2];
	};
	meet(full(0, group), 128 + 128);
	multiply_keys(0);
	wide_wait<0>(s);
	if (!see.whole(marks[0], w, 0)) hide(s, a.plan, r.p, marks[0], 0 < w.pages);
	weigh(r, s, scale);
	pack();
	int t = 0;
	for (; t + 1 < w.all; t++) {
		bool fast = see.fast(w, t + 1);
		meet(full(t + 1, group), 128 + 128);
		multiply_keys(t + 1);
		multiply_values(t);
		if (fast) {
			wide_wait<1>(s);
			weigh(r, s, scale);
			// The values are waited for in two branches, which hang on the sums: else
			// the compiler waits before it makes the weights.
			if (rescales()) {
				wide_wait<0>(r.acc);
				rescale();
			} else {
				wide_wait_too<0>(r.acc);
			}
			pack();
		} else {
			wide_wait<0>(s);
			wide_wait<0>(r.acc);
			const Marks& m = marks[(t + 1) % FLASH_RING];
			if (!see.whole(m, w, t + 1)) hide(s, a.plan, r.p, m, t + 1 < w.pages);
			weigh(r, s, scale);
			rescale();
			pack();
		}
		if (t + FLASH_RING < w.all) arrive(used(t), 128 + 128 * GROUPS);
	}
	multiply_values(t);
	wide_wait<0>(r.acc);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		float sum = r.s[u].sum;
		sum += __shfl_xor_sync(ALL, sum, 1);
		sum += __shfl_xor_sync(ALL, sum, 2);
		float part = finish(sum, false);
		if (r.p[u] < lo || r.p[u] > last) continue;
		float* y = a.dst + ((i64)(r.p[u] - first) * a.heads + h) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int d = 0; d < DIM / 8; d++) {
			y[d * 8] = r.acc[d * 4 + 2 * u] * part;
			y[d * 8 + 1] = r.acc[d * 4 + 2 * u + 1] * part;
		}
	}
}

template <int DIM, int GROUPS>
__device__ __forceinline__ void flash_wide(const FlashArgs& a) {
	DYNAMIC_WIDE(WideStage<DIM>, ring);
	Marks* marks = (Marks*)(ring + FLASH_RING);
	int first = first_of(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * GROUPS, h = a.by_heads ? blockIdx.y * GROUPS + group % GROUPS : blockIdx.y;
	int tile = first / span + (int)(gridDim.x - 1 - blockIdx.x);  // the long ones first
	int lo = larger(tile * span, first), last = smaller((tile + 1) * span, first + rows) - 1;
	if (lo > last) return;
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	At at = {0, first, lo};
	Tiles w = tiles_of(a.plan, entries(a.plan.list, a.g, at, h, (int)a.heads), lo, last);
	if (w.all == 0) {  // a tile of nothing
		w.all = 1;
		w.e.n = 0;
	}
	if (group == GROUPS) {
		if (GROUPS == 2) wide_shrink();
		Bringer<DIM, GROUPS, true> b = {a, w, ring, marks, kv_head, last, -1, 0, -1, -1, -1};
		b.run();
	} else {
		if (GROUPS == 2) wide_grow();
		attend_group<DIM, GROUPS>(a, w, ring, marks, h, tile * span + (a.by_heads ? 0 : group * FLASH_ROWS), first, lo, last);
	}
}

// edge_group is the largest score of a group's rows over the tiles of a plan without a
// middle; see stripe_many.cu. h is its head, own the position of its first row.
template <int DIM>
__device__ __forceinline__ void edge_group(const FlashArgs& a, const Tiles& w, WideStage<DIM>* ring, int h, int own, int first, int lo, int last) {
	int group = threadIdx.x / 128, p[2];
	for (int u = 0; u < 2; u++) p[u] = own + warp() % 4 * 16 + lane() / 4 + u * 8;
	auto there = [&](int u) { return p[u] >= lo && p[u] <= last; };
	u32 high[DIM / 16][4], low[DIM / 16][4];
	load_queries<DIM>(high, low, [&](int u) { return there(u) ? a.q + ((i64)(p[u] - first) * a.heads + h) * DIM : nullptr; });
	Sight see[2] = {sight_of(a.plan, p[0]), sight_of(a.plan, p[1])}, late = sight_of(a.plan, own + FLASH_ROWS - 1);
	WideGroup all = {own, late.back, late.bound, late.span_sink, late.sink, recent_of(a.plan, own), late.recent, false, false, 0, 0};
	all.range(a.plan, w);
	float s[PAGE / 2], top[4] = {-infinity(), -infinity(), -infinity(), -infinity()};
	for (int t = 0; t < w.all; t++) {
		meet(full(t, group), 128 + 128);
		WideMatrix k = wide_at(ring[t % FLASH_RING].k, 0, 1024);
		wide_begin();
#pragma unroll
		for (int i = 0; i < DIM / 16; i++) {
			WideMatrix part = k.from(i / 4 * PANEL * 2 + i % 4 * 32);
			if (i == 0)
				wide_multiply<0>(s, high[i], part);
			else
				wide_multiply<1>(s, high[i], part);
			wide_multiply<1>(s, low[i], part);
		}
		wide_commit();
		wide_wait<0>(s);
		if (t + FLASH_RING < w.all) arrive(used(t), 128 + 128 * 2);
		if (!all.fast(w, t)) {
			int from = w.page(t) * PAGE + lane() % 4 * 2;
#pragma unroll
			for (int i = 0; i < PAGE / 2; i++) {
				int j = from + i / 4 * 8 + i % 2;
				if (!see[i / 2 % 2].spanned(j) || !see[i / 2 % 2].edge(j)) s[i] = -infinity();
			}
		}
		bool broken = false;
#pragma unroll
		for (int i = 0; i < PAGE / 2; i++) {
			top[i % 4] = fmaxf(top[i % 4], s[i]);
			broken |= s[i] != s[i];
		}
		if (broken) {
#pragma unroll
			for (int i = 0; i < PAGE / 2; i++) {
				if (there(i / 2 % 2)) met(a.g, s[i]);
			}
		}
	}
	for (int u = 0; u < 2; u++) {
		float most = fmaxf(top[2 * u], top[2 * u + 1]);
		most = fmaxf(most, __shfl_xor_sync(ALL, most, 1));
		most = fmaxf(most, __shfl_xor_sync(ALL, most, 2));
		if (there(u) && lane() % 4 == 0) a.dst[(i64)(p[u] - first) * a.heads + h] = most * (1 / sqrtf((float)DIM));
	}
}

// edge_max_wide has the blocks of flash_wide.
template <int DIM>
__device__ __forceinline__ void edge_max_wide(const FlashArgs& a) {
	DYNAMIC_WIDE(WideStage<DIM>, ring);
	Marks* marks = (Marks*)(ring + FLASH_RING);
	int first = first_of(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * 2, h = a.by_heads ? blockIdx.y * 2 + group % 2 : blockIdx.y;
	int tile = first / span + (int)(gridDim.x - 1 - blockIdx.x);
	int lo = larger(tile * span, first), last = smaller((tile + 1) * span, first + rows) - 1;
	if (lo > last) return;
	Entries none = {nullptr, nullptr, 0};
	Tiles w = tiles_of(a.plan, none, lo, last);
	if (group < 2) {
		edge_group<DIM>(a, w, ring, h, tile * span + (a.by_heads ? 0 : group * FLASH_ROWS), first, lo, last);
	} else if (w.all > 0) {
		Bringer<DIM, 2, false> b = {a, w, ring, marks, h * (int)a.g.heads / (int)a.heads, last, -1, 0, -1, -1, -1};
		b.run();
	}
}

KERNEL_ALONE(edge_max_wide_64, FlashArgs, 384) { edge_max_wide<64>(a); }
KERNEL_ALONE(edge_max_wide_128, FlashArgs, 384) { edge_max_wide<128>(a); }

KERNEL_ALONE(flash_wide_64, FlashArgs, 384) { flash_wide<64, 2>(a); }
KERNEL_ALONE(flash_wide_128, FlashArgs, 384) { flash_wide<128, 2>(a); }
KERNEL(flash_one_64, FlashArgs, 256) { flash_wide<64, 1>(a); }
KERNEL(flash_one_128, FlashArgs, 256) { flash_wide<128, 1>(a); }

#else

KERNEL_ALONE(flash_wide_64, FlashArgs, 384) {}
KERNEL_ALONE(flash_wide_128, FlashArgs, 384) {}
KERNEL(flash_one_64, FlashArgs, 256) {}
KERNEL(flash_one_128, FlashArgs, 256) {}

KERNEL(edge_max_wide_64, FlashArgs, 384) {}
KERNEL(edge_max_wide_128, FlashArgs, 384) {}

#endif
