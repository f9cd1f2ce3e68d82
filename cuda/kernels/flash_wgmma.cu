// Attention of many rows of one slot on the tensor cores of compute capability 9.0:
// flash.cu with the instructions of wide.cuh. Checked against attend.cu.
//
// A block has one or two groups of four warps, and four that bring them keys and
// values, two tiles at a time: a step. A group takes 64 positions of one head, which
// start at a multiple of 64: groups of a block are neighbours, or heads of one kv head
// at the same positions. They share what is brought, which lies in rings in shared
// memory. While the tensor cores add up a group's values, its threads make the weights
// of the next step.
#include "tiles.cuh"
#include "wgmma.cuh"

#if WGMMA

constexpr int STEP_TILES = 2;
constexpr int STEP = STEP_TILES * PAGE;  // positions of a step
constexpr int PANEL = STEP * 64;         // halves of a panel of a step
constexpr int STEP_RING = 6 / STEP_TILES;

// Marks are the positions of a step, -1 for none, and log2 of the weight of what the
// list names.
struct Marks {
	i32 at[STEP];
	float bias[STEP];
};

// WideGroup is what a group of warps reads, beyond what its rows see one by one: what
// all of its rows see.
struct WideGroup {
	int own;                     // position of its first row
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
			pages = before < w.tail ? min_of(before, w.head) + (w.blocks ? min_of(w.middle, max_of(lower_bound(w.e, before) - w.from, 0)) : 0)
			                        : w.head + w.middle + min_of(tails, before - w.tail);
		}
		if (w.all > w.pages && w.e.n > 0 && w.e.index[0] >= sink && w.e.index[w.e.n - 1] < min_of(recent_first, own + 1)) entries = w.e.n / PAGE;
	}

	// fast reports whether tile t is one of them.
	__device__ bool fast(const Tiles& w, int t) const { return t < pages || (t >= w.pages && t < w.pages + entries); }
	__device__ bool fast_step(const Tiles& w, int j) const { return fast(w, j * STEP_TILES) && fast(w, j * STEP_TILES + STEP_TILES - 1); }

	// whole reports whether all rows read all of a tile, with weight one.
	__device__ bool fully_visible(const Marks& m, const Tiles& w, int t) const {
		int lo = m.at[t % STEP_TILES * PAGE], hi = m.at[t % STEP_TILES * PAGE + PAGE - 1];
		if (lo < 0 || hi < 0 || hi > own || lo < back || !(hi < span_sink || lo >= bound)) return false;
		if (t >= w.pages) return !weights && lo >= sink && hi < recent_first;
		return all || hi < sink || lo >= recent_last || (w.listed(t) && !weights);
	}
};

// WideBlock is what a block knows of its work, in shared memory: registers are few.
struct WideBlock {
	Tiles tiles;
	WideGroup groups[2];
	int first, lo, last;  // the first row of the call, and the block's rows
	int kv_head;

	// set is what one thread does.
	__device__ void set(const Tiles& w, int first_row, int from, int to, int head) {
		tiles = w;
		first = first_row;
		lo = from;
		last = to;
		kv_head = head;
	}
};
static_assert(sizeof(WideBlock) <= 256, "flash.go has 256 bytes for it");

// WideRing is what is brought, in panels as wide.cuh has them. Gates open when keys
// or values are there, and when all groups have used them.
template <int DIM>
struct WideRing {
	u16 k[STEP_RING][STEP * DIM], v[STEP_RING][STEP * DIM];
	Marks marks[STEP_RING];
	Mbarrier there[2 * STEP_RING], keys_used[STEP_RING], values_used[STEP_RING];  // keys, then values
	WideBlock block;

	// make comes before all; the block meets in it.
	__device__ __forceinline__ void make(int groups) {
		if (threadIdx.x == 0) {
			for (int i = 0; i < STEP_RING; i++) {
				mbarrier_init(there + i, 4);
				mbarrier_init(there + STEP_RING + i, 4);
				mbarrier_init(keys_used + i, 4 * groups);
				mbarrier_init(values_used + i, 4 * groups);
			}
		}
		__syncthreads();
	}
};

// Turn is where a step is in a ring, and whether the ring was gone round an odd number
// of times.
struct Turn {
	int at;
	u32 odd;

	// before is that of the step before.
	__device__ __forceinline__ Turn before() const { return at > 0 ? Turn{at - 1, odd} : Turn{STEP_RING - 1, odd ^ 1}; }
	__device__ __forceinline__ void next() {
		at++;
		if (at < STEP_RING) return;
		at = 0;
		odd ^= 1;
	}
};

// steps_of is how many steps some tiles are: the last one may lack a tile.
__device__ __forceinline__ int steps_of(const Tiles& w) { return (w.all + STEP_TILES - 1) / STEP_TILES; }

// come is what a warp does at a gate that counts warps.
__device__ __forceinline__ void come(Mbarrier* g) {
	__syncwarp();
	if (lane() == 0) mbarrier_arrive(g);
}

// FlashWgmmaArgs are FlashArgs with the cache as rows of the length of a head.
struct FlashWgmmaArgs : FlashArgs {
	TensorMap keys, values;
};

template <int DIM>
struct WideRows {
	u32 q[DIM / 16][4];
	float acc[DIM / 2];
	SoftmaxState s[2];
};

// row_of is the position of a row that this lane has parts of, of a group whose first
// is at own.
__device__ __forceinline__ int row_of(int own, int u) { return own + warp() % 4 * 16 + lane() / 4 + u * 8; }

// hide takes out of a step's scores what rows do not see, and weighs the rest. So many
// of its positions are of pages. What a lane's two rows see of its columns is made as
// bits, because registers are few.
__device__ inline void hide(float (&s)[STEP / 2], const Plan& plan, int own, const Marks& m, int paged) {
	Sight see[2] = {sight_of(plan, row_of(own, 0)), sight_of(plan, row_of(own, 1))};
	u32 seen[2] = {0, 0}, listed[2] = {0, 0};
#pragma unroll 2
	for (int i = 0; i < STEP / 4; i++) {
		int c = i / 2 * 8 + lane() % 4 * 2 + i % 2, j = m.at[c];
#pragma unroll
		for (int u = 0; u < 2; u++) {
			bool edge = see[u].in_sinks_or_window(j), in = j >= 0 && see[u].spanned(j) && (c < paged || !edge);
			seen[u] |= (u32)in << i;
			listed[u] |= (u32)(in && !edge) << i;
		}
	}
#pragma unroll
	for (int i = 0; i < STEP / 2; i++) {
		if (!(seen[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1)) s[i] = -infinity();
	}
	if (!(listed[0] | listed[1])) return;
#pragma unroll
	for (int i = 0; i < STEP / 2; i++) {
		if (listed[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1) s[i] += m.bias[i / 4 * 8 + lane() % 4 * 2 + i % 2];
	}
}

// weigh makes scores weights, and says what sums so far are to be multiplied by. A
// lane has two rows of four columns' maxima and sums on their way at once.
template <int DIM>
__device__ __forceinline__ void weigh(WideRows<DIM>& r, float (&s)[STEP / 2], float (&scale)[2]) {
	float top[4], sum[4];
#pragma unroll
	for (int i = 0; i < 4; i++) top[i] = s[i];
#pragma unroll
	for (int n = 1; n < STEP / 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) top[i] = fmaxf(top[i], s[n * 4 + i]);
	}
#pragma unroll
	for (int u = 0; u < 2; u++) top[u] = fmaxf(top[2 * u], top[2 * u + 1]);
#pragma unroll
	for (int m = 1; m < 4; m *= 2) {
		float other[2] = {__shfl_xor_sync(FULL_MASK, top[0], m), __shfl_xor_sync(FULL_MASK, top[1], m)};
#pragma unroll
		for (int u = 0; u < 2; u++) top[u] = fmaxf(top[u], other[u]);
	}
#pragma unroll
	for (int u = 0; u < 2; u++) {
		top[u] = fmaxf(top[u], r.s[u].max);
		scale[u] = exp2_ftz(r.s[u].max - top[u]);
		r.s[u].max = top[u];
	}
#pragma unroll
	for (int i = 0; i < 4; i++) sum[i] = 0;
#pragma unroll
	for (int n = 0; n < STEP / 8; n++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			s[n * 4 + i] = exp2_ftz(s[n * 4 + i] - top[i / 2]);
			sum[i] += s[n * 4 + i];
		}
	}
#pragma unroll
	for (int u = 0; u < 2; u++) r.s[u].sum = r.s[u].sum * scale[u] + (sum[2 * u] + sum[2 * u + 1]);  // of this lane's columns
}

// Bringer is what the warps do that bring steps: each has some rows of one of their
// tiles. A page that the block sees to its end is brought by the GPU as a whole, a
// panel for a warp; of others each lane copies pieces.
template <int DIM, int GROUPS, bool VALUES>
struct Bringer {
	static constexpr int PIECES = DIM / 8, ONCE = WARP / PIECES;  // of a row; rows at once
	static constexpr int ROWS = STEP / 4, SHARE = PAGE / ROWS;    // of a warp; warps of a tile
	static constexpr u32 NONE = ~0u;

	const FlashWgmmaArgs& a;
	WideRing<DIM>& ring;
	const WideBlock& b;
	const Tiles& w;
	// Of row lane%ROWS of the warp's. A list and the table of pages take long to read,
	// so what is read for the steps after is not looked at before their turn.
	int at;       // its position in the step to bring
	u32 row;      // where it lies in the cache, in rows of DIM; NONE for nothing
	int next;     // its position in the step after
	int page;     // of that, unchecked
	int after;    // its position in the step after that
	int sent[2];  // gates of what is being copied, -1 for none

	// tile and first are the warp's tile of step j, and its first row in the step.
	__device__ __forceinline__ static int tile(int j) { return j * STEP_TILES + warp() % 4 / SHARE; }
	__device__ __forceinline__ static int first() { return warp() % 4 * ROWS; }

	// read is the position in step j.
	__device__ __forceinline__ int read(int j) const { return tile(j) < w.all ? w.position(tile(j), first() % PAGE + lane() % ROWS) : -1; }
	__device__ __forceinline__ int page_of_next() const { return next >= 0 && next <= b.last ? page_entry(a.g, 0, next / PAGE) : -1; }

	// begin comes before locate(0).
	__device__ __forceinline__ void begin() {
		next = read(0);
		page = page_of_next();
		after = read(1);
		sent[0] = sent[1] = -1;
	}

	// locate finds the rows of step j, after that of the step before.
	__device__ __forceinline__ void locate(int j) {
		at = next >= 0 && next <= b.last && page_valid(a.g, 0, page) ? next : -1;
		row = at >= 0 ? ((u32)page * (u32)a.g.heads + (u32)b.kv_head) * PAGE + (u32)at % PAGE : NONE;
		next = after;
		page = page_of_next();
		after = read(j + 2);
	}

	// paged reports whether the tile of step j is a page that is brought as a whole:
	// its last position is seen, and the page is there. All its warps say the same.
	__device__ __forceinline__ bool paged(int j) const {
		return tile(j) < w.pages && __shfl_sync(FULL_MASK, at >= 0 && at / PAGE * PAGE + PAGE - 1 <= b.last, 0);
	}

	// bring begins to bring the rows that were located, of keys or values, and has the
	// gate open when they are there.
	__device__ __forceinline__ void bring(u16* to, const TensorMap& map, const void* cache, u32 rows, bool paged, int gate) {
		if (!paged) {
			copy(to, cache, rows);
			cp_async_commit();
			cp_async_wait<2>();
			hand(sent[0]);
			sent[0] = sent[1];
			sent[1] = gate;
			return;
		}
		flush();
		int panel = warp() % SHARE, tile = first() / PAGE * PAGE;
		__syncwarp();
		if (lane() > 0) return;
		if (panel >= DIM / 64) {
			mbarrier_arrive(ring.there + gate);
			return;
		}
		mbarrier_arrive_expect_tx(ring.there + gate, PAGE * 64 * 2);
		tma_load_2d(to + panel * PANEL + tile * 64, map, panel * 64, (int)(rows / PAGE * PAGE), ring.there + gate);
	}

	// copy begins to copy pieces of rows.
	__device__ __forceinline__ void copy(u16* to, const void* cache, u32 rows) const {
		int c = lane() % PIECES, from = lane() / PIECES;
		to += c / 8 * PANEL + (first() + from) * 64;
		int piece = (c % 8 ^ from) * 8;
		const u16* pieces = (const u16*)cache + c * 8;
#pragma unroll 4
		for (int i = 0; i < ROWS; i += ONCE) {
			u32 r = __shfl_sync(FULL_MASK, rows, i + from);
			bool there = r != NONE;
			cp_async_zfill(to + (piece ^ i % 8 * 8) + i * 64, pieces + (there ? (i64)r * DIM : 0), there);  // row i + from has its pieces at c ^ (i + from)%8
		}
	}

	// hand tells a gate that what was copied is there, flush all gates.
	__device__ __forceinline__ void hand(int& gate) const {
		if (gate < 0) return;
		fence_proxy_async();
		come(ring.there + gate);
		gate = -1;
	}
	__device__ __forceinline__ void flush() {
		if (sent[1] < 0) return;
		cp_async_wait<0>();
		hand(sent[0]);
		hand(sent[1]);
	}

	// mark says what step j, whose rows were located, has.
	__device__ __forceinline__ void mark(Marks& m, int j) const {
		if (lane() >= ROWS) return;
		m.at[first() + lane()] = at;
		if (a.plan.middle != MIDDLE_ALL) m.bias[first() + lane()] = tile(j) < w.all ? w.bias(tile(j), first() % PAGE + lane()) : 0;
	}

	__device__ __forceinline__ void run() {
		int steps = steps_of(w);
		Turn k = {0, 0};
		begin();
		u32 before = NONE;  // of the step before: row
		bool whole = false, whole_before = false;
		for (int j = 0; j <= steps; j++) {
			if (j < steps) {
				locate(j);
				whole = paged(j);
				mbarrier_wait(ring.keys_used + k.at, k.odd ^ 1);
				mark(ring.marks[k.at], j);
				bring(ring.k[k.at], a.keys, a.g.k, row, whole, k.at);
			}
			if (VALUES && j > 0) {
				Turn v = k.before();
				mbarrier_wait(ring.values_used + v.at, v.odd ^ 1);
				bring(ring.v[v.at], a.values, a.g.v, before, whole_before, STEP_RING + v.at);
			}
			k.next();
			before = row;
			whole_before = whole;
		}
		flush();
	}
};

// group_of is what a group sees whose first row is at own.
__device__ inline WideGroup group_of(const Plan& plan, const Tiles& w, int own, bool all) {
	Sight late = sight_of(plan, own + FLASH_ROWS - 1);
	WideGroup g = {own, late.back, late.bound, late.span_sink, late.sink, recent_of(plan, own), late.recent, all, plan.list.weight != nullptr, 0, 0};
	g.range(plan, w);
	return g;
}

// attend_group is what a group of four warps does: the rows from its own on, of which
// the block has some.
template <int DIM, int GROUPS>
__device__ __forceinline__ void attend_group(const FlashWgmmaArgs& a, WideRing<DIM>& ring) {
	const WideBlock& b = ring.block;
	const Tiles& w = b.tiles;
	const WideGroup& see = b.groups[threadIdx.x / 128];
	auto head = [&] { return a.by_heads ? blockIdx.y * GROUPS + threadIdx.x / 128 : blockIdx.y; };
	WideRows<DIM> r;
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		int at = row_of(see.own, u);
		r.s[u] = {EMPTY_MAX, 0};
		bool there = at >= b.lo && at <= b.last;
		const float* q = a.q + ((i64)(there ? at - b.first : 0) * a.heads + head()) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
			r.q[k][u] = there ? pack_half(q[k * 16] * unit, q[k * 16 + 1] * unit) : 0;
			r.q[k][u + 2] = there ? pack_half(q[k * 16 + 8] * unit, q[k * 16 + 9] * unit) : 0;
		}
	}
#pragma unroll
	for (int d = 0; d < DIM / 2; d++) r.acc[d] = 0;

	float s[STEP / 2], scale[2] = {1, 1};
	u32 p[STEP / 16][4];
	auto keys = [&](int at) { return smem_desc(ring.k[at], 0, 1024); };
	auto values = [&](int at) { return smem_desc(ring.v[at], PANEL * 2, 1024); };
	auto multiply_keys = [&](SmemDesc k) {
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < DIM / 16; i++) {
			if (i == 0)
				wgmma<0>(s, r.q[i], k);
			else
				wgmma<1>(s, r.q[i], k.from(i / 4 * PANEL * 2 + i % 4 * 32));
		}
		wgmma_commit();
	};
	auto multiply_values = [&](SmemDesc v) {
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < STEP / 16; k++) wgmma_tn(r.acc, p[k], v.from(k * 2048));
		wgmma_commit();
	};
	auto pack = [&] {
#pragma unroll
		for (int k = 0; k < STEP / 16; k++) {
#pragma unroll
			for (int i = 0; i < 4; i++) p[k][i] = pack_half(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
		}
	};
	auto rescales = [&] { return __any_sync(FULL_MASK, scale[0] != 1 || scale[1] != 1 || !(r.s[0].sum + r.s[1].sum >= 0)); };
	auto rescale = [&] {
#pragma unroll
		for (int d = 0; d < DIM / 2; d++) r.acc[d] *= scale[d / 2 % 2];
	};
	auto look = [&](const Marks& m, int j) {
		bool all = true;
		for (int t = j * STEP_TILES; t < (j + 1) * STEP_TILES; t++) all = all && see.fully_visible(m, w, t);
		if (!all) hide(s, a.plan, see.own, m, (w.pages - j * STEP_TILES) * PAGE);
	};
	Turn k = {0, 0};
	mbarrier_wait(ring.there, 0);
	multiply_keys(keys(0));
	wgmma_wait<0>(s);
	look(ring.marks[0], 0);
	come(ring.keys_used);
	weigh(r, s, scale);
	pack();
	for (int j = 1; j < steps_of(w); j++) {
		bool fast = see.fast_step(w, j);
		k.next();
		Turn v = k.before();
		SmemDesc key = keys(k.at), value = values(v.at);
		mbarrier_wait(ring.there + k.at, k.odd);
		multiply_keys(key);
		mbarrier_wait(ring.there + STEP_RING + v.at, v.odd);
		multiply_values(value);
		if (fast) {
			wgmma_wait<1>(s);
			come(ring.keys_used + k.at);
			weigh(r, s, scale);
			// The values are waited for in two branches, which hang on the sums: else
			// the compiler waits before it makes the weights.
			if (rescales()) {
				wgmma_wait<0>(r.acc);
				rescale();
			} else {
				wgmma_wait_alt<0>(r.acc);
			}
			pack();
		} else {
			wgmma_wait<0>(s);
			wgmma_wait<0>(r.acc);
			look(ring.marks[k.at], j);
			come(ring.keys_used + k.at);
			weigh(r, s, scale);
			rescale();
			pack();
		}
		come(ring.values_used + k.before().at);
	}
	mbarrier_wait(ring.there + STEP_RING + k.at, k.odd);
	multiply_values(values(k.at));
	wgmma_wait<0>(r.acc);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		float sum = r.s[u].sum;
		sum += __shfl_xor_sync(FULL_MASK, sum, 1);
		sum += __shfl_xor_sync(FULL_MASK, sum, 2);
		float part = normalizer(sum, false);
		int at = row_of(see.own, u);
		if (at < b.lo || at > b.last) continue;
		float* y = a.dst + ((i64)(at - b.first) * a.heads + head()) * DIM + lane() % 4 * 2;
#pragma unroll
		for (int d = 0; d < DIM / 8; d++) {
			y[d * 8] = r.acc[d * 4 + 2 * u] * part;
			y[d * 8 + 1] = r.acc[d * 4 + 2 * u + 1] * part;
		}
	}
}

template <int DIM, int GROUPS>
__device__ __forceinline__ void flash_wgmma(const FlashWgmmaArgs& a) {
	DYNAMIC_SHARED_1024(WideRing<DIM>, ring);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * GROUPS, h = a.by_heads ? blockIdx.y * GROUPS + group % GROUPS : blockIdx.y;
	int tile = first / span + (int)(gridDim.x - 1 - blockIdx.x);  // the long ones first
	int lo = max_of(tile * span, first), last = min_of((tile + 1) * span, first + rows) - 1;
	if (lo > last) return;
	RowPosition at = {0, first, lo};
	Tiles w = tiles_of(a.plan, entries(a.plan.list, a.g, at, h, (int)a.heads), lo, last);
	if (w.all == 0) {  // a tile of nothing
		w.all = 1;
		w.e.n = 0;
	}
	if (threadIdx.x == 0) ring->block.set(w, first, lo, last, h * (int)a.g.heads / (int)a.heads);
	if (group < GROUPS && threadIdx.x % 128 == 0)
		ring->block.groups[group] = group_of(a.plan, w, tile * span + (a.by_heads ? 0 : group * FLASH_ROWS), a.plan.middle == MIDDLE_ALL);
	ring->make(GROUPS);
	if (group == GROUPS) {
		if (GROUPS == 2) setmaxnreg_dec<56>();
		Bringer<DIM, GROUPS, true> b = {a, *ring, ring->block, ring->block.tiles};
		b.run();
	} else {
		if (GROUPS == 2) setmaxnreg_inc<224>();
		attend_group<DIM, GROUPS>(a, *ring);
	}
}

// edge_group is the largest score of a group's rows over the tiles of a plan without a
// middle; see stripe_many.cu. h is its head, own the position of its first row.
template <int DIM>
__device__ __forceinline__ void edge_group(const FlashWgmmaArgs& a, const Tiles& w, WideRing<DIM>& ring, int h, int own, int first, int lo, int last) {
	int p[2];
	for (int u = 0; u < 2; u++) p[u] = own + warp() % 4 * 16 + lane() / 4 + u * 8;
	auto there = [&](int u) { return p[u] >= lo && p[u] <= last; };
	u32 high[DIM / 16][4], low[DIM / 16][4];
	load_queries<DIM>(high, low, [&](int u) { return there(u) ? a.q + ((i64)(p[u] - first) * a.heads + h) * DIM : nullptr; });
	Sight see[2] = {sight_of(a.plan, p[0]), sight_of(a.plan, p[1])};
	WideGroup all = group_of(a.plan, w, own, false);
	float s[PAGE / 2], top[4] = {-infinity(), -infinity(), -infinity(), -infinity()};
	SmemDesc keys = smem_desc(ring.k, 0, 1024);
	Turn turn = {0, 0};
	for (int t = 0; t < w.all; t++) {
		if (t % STEP_TILES == 0) mbarrier_wait(ring.there + turn.at, turn.odd);
		SmemDesc k = keys.same(turn.at * (STEP * DIM * 2) + t % STEP_TILES * (PAGE * 128));
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < DIM / 16; i++) {
			SmemDesc part = k.from(i / 4 * PANEL * 2 + i % 4 * 32);
			if (i == 0)
				wgmma<0>(s, high[i], part);
			else
				wgmma<1>(s, high[i], part);
			wgmma<1>(s, low[i], part);
		}
		wgmma_commit();
		wgmma_wait<0>(s);
		if (t % STEP_TILES == STEP_TILES - 1) {
			come(ring.keys_used + turn.at);
			turn.next();
		}
		if (!all.fast(w, t)) {
			int from = w.page(t) * PAGE + lane() % 4 * 2;
#pragma unroll
			for (int i = 0; i < PAGE / 2; i++) {
				int j = from + i / 4 * 8 + i % 2;
				if (!see[i / 2 % 2].spanned(j) || !see[i / 2 % 2].in_sinks_or_window(j)) s[i] = -infinity();
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
				if (there(i / 2 % 2)) count_nan(a.g, s[i]);
			}
		}
	}
	for (int u = 0; u < 2; u++) {
		float most = fmaxf(top[2 * u], top[2 * u + 1]);
		most = fmaxf(most, __shfl_xor_sync(FULL_MASK, most, 1));
		most = fmaxf(most, __shfl_xor_sync(FULL_MASK, most, 2));
		if (there(u) && lane() % 4 == 0) a.dst[(i64)(p[u] - first) * a.heads + h] = most * (1 / sqrtf((float)DIM));
	}
}

// edge_max_wgmma has the blocks of flash_wide.
template <int DIM>
__device__ __forceinline__ void edge_max_wgmma(const FlashWgmmaArgs& a) {
	DYNAMIC_SHARED_1024(WideRing<DIM>, ring);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * 2, h = a.by_heads ? blockIdx.y * 2 + group % 2 : blockIdx.y;
	int tile = first / span + (int)(gridDim.x - 1 - blockIdx.x);
	int lo = max_of(tile * span, first), last = min_of((tile + 1) * span, first + rows) - 1;
	if (lo > last) return;
	Entries none = {nullptr, nullptr, 0};
	Tiles w = tiles_of(a.plan, none, lo, last);
	if (threadIdx.x == 0) ring->block.set(w, first, lo, last, h * (int)a.g.heads / (int)a.heads);
	ring->make(2);
	if (group < 2) {
		edge_group<DIM>(a, w, *ring, h, tile * span + (a.by_heads ? 0 : group * FLASH_ROWS), first, lo, last);
	} else if (w.all > 0) {
		Bringer<DIM, 2, false> b = {a, *ring, ring->block, ring->block.tiles};
		b.run();
	}
}

KERNEL_1_PER_SM(edge_max_wgmma_64, FlashWgmmaArgs, 384) { edge_max_wgmma<64>(a); }
KERNEL_1_PER_SM(edge_max_wgmma_128, FlashWgmmaArgs, 384) { edge_max_wgmma<128>(a); }

KERNEL_1_PER_SM(flash_wgmma_64, FlashWgmmaArgs, 384) { flash_wgmma<64, 2>(a); }
KERNEL_1_PER_SM(flash_wgmma_128, FlashWgmmaArgs, 384) { flash_wgmma<128, 2>(a); }
KERNEL(flash_wgmma_1wg_64, FlashWgmmaArgs, 256) { flash_wgmma<64, 1>(a); }
KERNEL(flash_wgmma_1wg_128, FlashWgmmaArgs, 256) { flash_wgmma<128, 1>(a); }

#else

KERNEL_1_PER_SM(flash_wgmma_64, FlashArgs, 384) {}
KERNEL_1_PER_SM(flash_wgmma_128, FlashArgs, 384) {}
KERNEL(flash_wgmma_1wg_64, FlashArgs, 256) {}
KERNEL(flash_wgmma_1wg_128, FlashArgs, 256) {}

KERNEL(edge_max_wgmma_64, FlashArgs, 384) {}
KERNEL(edge_max_wgmma_128, FlashArgs, 384) {}

#endif
