// Prefill attention of one slot on tensor cores of compute capability 9.0: flash.cu with wgmma,
// TMA and warp specialization, after FlashAttention-3. Tested against attend.cu.
//
// A block has one or two consumer warpgroups and a producer warpgroup that loads keys and
// values, two tiles (a step, 128 positions) at a time, into 3-stage pipelines in shared memory,
// K and V apart, with full and empty mbarriers. A consumer has 64 query rows of one head, which
// start at a multiple of 64; consumers of a block have neighbouring rows, or heads of one kv
// head at the same rows, and share what is loaded. The wgmma of one step's O += P·V overlaps
// with the softmax of the next. Bound by the tensor cores: 4·dim operations for each row and
// key.
#include "tiles.cuh"
#include "wgmma.cuh"

#if WGMMA

constexpr int STEP_TILES = 2;
constexpr int STEP = STEP_TILES * PAGE;  // key positions of a step
constexpr int PANEL = STEP * 64;         // f16 of a swizzled panel of 64 columns
constexpr int STEP_STAGES = 6 / STEP_TILES;

// StepMask is the positions of a step, -1 for none, and log2 of the list's weights.
struct StepMask {
	i32 at[STEP];
	float bias[STEP];
};

// GroupMask is what all rows of a consumer warpgroup see, so that most tiles need no mask.
struct GroupMask {
	int own;                     // position of the warpgroup's first row
	int back, bound, span_sink;  // of its last row
	int sink, recent_first, recent_last;
	bool all, weights;
	int pages, entries;  // tiles that need no mask: [0, pages), and `entries` tiles of the list from its first

	// range finds them from the counts alone: pages before its own that are on the border of
	// neither sinks nor window, and list tiles if all entries lie in the selected region.
	__device__ void range(const Plan& plan, const Tiles& w) {
		int before = own / PAGE;
		pages = entries = 0;
		if (plan.span.back || plan.span.drop != 0 || weights) return;
		if (all || (w.head * PAGE <= sink && (recent_last <= w.tail * PAGE || w.tail >= before))) {
			int tails = w.pages - w.head - w.selected;
			pages = before < w.tail ? min_of(before, w.head) + (w.blocks ? min_of(w.selected, max_of(lower_bound(w.e, before) - w.from, 0)) : 0)
			                        : w.head + w.selected + min_of(tails, before - w.tail);
		}
		if (w.all > w.pages && w.e.n > 0 && w.e.index[0] >= sink && w.e.index[w.e.n - 1] < min_of(recent_first, own + 1)) entries = w.e.n / PAGE;
	}

	// unmasked reports whether tile t is one of them.
	__device__ bool unmasked(const Tiles& w, int t) const { return t < pages || (t >= w.pages && t < w.pages + entries); }
	__device__ bool unmasked_step(const Tiles& w, int j) const { return unmasked(w, j * STEP_TILES) && unmasked(w, j * STEP_TILES + STEP_TILES - 1); }

	// fully_visible reports whether all rows read all of a tile with weight one, by its positions.
	__device__ bool fully_visible(const StepMask& m, const Tiles& w, int t) const {
		int lo = m.at[t % STEP_TILES * PAGE], hi = m.at[t % STEP_TILES * PAGE + PAGE - 1];
		if (lo < 0 || hi < 0 || hi > own || lo < back || !(hi < span_sink || lo >= bound)) return false;
		if (t >= w.pages) return !weights && lo >= sink && hi < recent_first;
		return all || hi < sink || lo >= recent_last || (w.listed(t) && !weights);
	}
};

// BlockWork is what a block works on, in shared memory to save registers.
struct BlockWork {
	Tiles tiles;
	GroupMask groups[2];
	int first, lo, last;  // first position of the call; positions of the block
	int kv_head;

	// set is called by one thread.
	__device__ void set(const Tiles& w, int first_row, int from, int to, int head) {
		tiles = w;
		first = first_row;
		lo = from;
		last = to;
		kv_head = head;
	}
};
static_assert(sizeof(BlockWork) <= 256, "flash.go reserves 256 bytes");

// Pipeline is the shared memory of a block. Mbarriers as in CUTLASS: full is completed by the
// producers (K stages, then V stages), the empty ones by the consumers.
template <int DIM>
struct Pipeline {
	u16 k[STEP_STAGES][STEP * DIM], v[STEP_STAGES][STEP * DIM];
	StepMask masks[STEP_STAGES];
	Mbarrier full[2 * STEP_STAGES], k_empty[STEP_STAGES], v_empty[STEP_STAGES];  // full: keys, then values
	BlockWork block;

	// init initializes the mbarriers; called by all threads, ends with a block barrier.
	__device__ __forceinline__ void init(int groups) {
		if (threadIdx.x == 0) {
			for (int i = 0; i < STEP_STAGES; i++) {
				mbarrier_init(full + i, 4);
				mbarrier_init(full + STEP_STAGES + i, 4);
				mbarrier_init(k_empty + i, 4 * groups);
				mbarrier_init(v_empty + i, 4 * groups);
			}
		}
		__syncthreads();
	}
};

// PipelineState is a stage and the phase parity of its mbarriers.
struct PipelineState {
	int at;
	u32 phase;

	// prev is that of the step before.
	__device__ __forceinline__ PipelineState prev() const { return at > 0 ? PipelineState{at - 1, phase} : PipelineState{STEP_STAGES - 1, phase ^ 1}; }
	__device__ __forceinline__ void next() {
		at++;
		if (at < STEP_STAGES) return;
		at = 0;
		phase ^= 1;
	}
};

// step_count is the number of steps of some tiles; the last may lack a tile.
__device__ __forceinline__ int step_count(const Tiles& w) { return (w.all + STEP_TILES - 1) / STEP_TILES; }

// warp_arrive arrives at an mbarrier that counts warps.
__device__ __forceinline__ void warp_arrive(Mbarrier* g) {
	__syncwarp();
	if (lane() == 0) mbarrier_arrive(g);
}

// FlashWgmmaArgs adds TMA descriptors of the cache as matrices [pages·heads·PAGE, dim].
struct FlashWgmmaArgs : FlashArgs {
	TensorMap keys, values;
};

template <int DIM>
struct ConsumerRows {
	u32 q[DIM / 16][4];
	float acc[DIM / 2];
	SoftmaxState s[2];
};

// row_position_of is the position of row u that this lane has parts of, own being that of the
// warpgroup's first row.
__device__ __forceinline__ int row_position_of(int own, int u) { return own + warp() % 4 * 16 + lane() / 4 + u * 8; }

// apply_mask masks a step's scores and adds the list's weights; the first `paged` positions are
// of pages. The mask of a lane's two rows is built as bits first, to save registers.
__device__ inline void apply_mask(float (&s)[STEP / 2], const Plan& plan, int own, const StepMask& m, int paged) {
	RowMask see[2] = {row_mask(plan, row_position_of(own, 0)), row_mask(plan, row_position_of(own, 1))};
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

// softmax_step turns scores into weights P and says what O is to be rescaled by. Four running
// maxima and sums per lane, for instruction-level parallelism.
template <int DIM>
__device__ __forceinline__ void softmax_step(ConsumerRows<DIM>& r, float (&s)[STEP / 2], float (&scale)[2]) {
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
	for (int u = 0; u < 2; u++) r.s[u].sum = r.s[u].sum * scale[u] + (sum[2 * u] + sum[2 * u + 1]);  // this lane's columns only; reduced at the end
}

// Producer is what the producer warps do: each loads some rows of a tile of every step. A page
// that the block sees to its end is loaded by TMA, one 64-column panel per warp; rows of other
// tiles are gathered by cp.async.
template <int DIM, int GROUPS, bool VALUES>
struct Producer {
	static constexpr int PIECES = DIM / 8, ONCE = WARP / PIECES;  // 16-byte pieces of a row; rows that the warp copies at once
	static constexpr int ROWS = STEP / 4, SHARE = PAGE / ROWS;    // rows of a warp; warps of a tile
	static constexpr u32 NONE = ~0u;

	const FlashWgmmaArgs& a;
	Pipeline<DIM>& ring;
	const BlockWork& b;
	const Tiles& w;
	// State of row lane%ROWS of the warp's. Lookups of list, page table and cache depend on each
	// other and are software pipelined over steps.
	int at;       // position in the step to load
	u32 row;      // row of the cache as a matrix; NONE if masked
	int next;     // position in the next step
	int page;     // its page, unchecked
	int after;    // position in the step after that
	int pending[2];  // full mbarriers of the cp.async groups in flight, -1 for none

	// tile and first are the warp's tile of step j, and its first row in the step.
	__device__ __forceinline__ static int tile(int j) { return j * STEP_TILES + warp() % 4 / SHARE; }
	__device__ __forceinline__ static int first() { return warp() % 4 * ROWS; }

	// read looks up the position in step j.
	__device__ __forceinline__ int read(int j) const { return tile(j) < w.all ? w.position(tile(j), first() % PAGE + lane() % ROWS) : -1; }
	__device__ __forceinline__ int page_of_next() const { return next >= 0 && next <= b.last ? page_entry(a.g, 0, next / PAGE) : -1; }

	// begin fills the lookup pipeline; called before locate(0).
	__device__ __forceinline__ void begin() {
		next = read(0);
		page = page_of_next();
		after = read(1);
		pending[0] = pending[1] = -1;
	}

	// locate finds the rows of step j; steps in order.
	__device__ __forceinline__ void locate(int j) {
		at = next >= 0 && next <= b.last && page_valid(a.g, 0, page) ? next : -1;
		row = at >= 0 ? ((u32)page * (u32)a.g.heads + (u32)b.kv_head) * PAGE + (u32)at % PAGE : NONE;
		next = after;
		page = page_of_next();
		after = read(j + 2);
	}

	// paged reports whether TMA loads the warp's tile of step j: a valid page whose last position
	// the block sees. Uniform over the warps of a tile.
	__device__ __forceinline__ bool paged(int j) const {
		return tile(j) < w.pages && __shfl_sync(FULL_MASK, at >= 0 && at / PAGE * PAGE + PAGE - 1 <= b.last, 0);
	}

	// load starts the copy of the located rows of keys or values; the mbarrier completes when they
	// have arrived.
	__device__ __forceinline__ void load(u16* to, const TensorMap& map, const void* cache, u32 rows, bool paged, int barrier) {
		if (!paged) {
			copy(to, cache, rows);
			cp_async_commit();
			cp_async_wait<2>();
			hand_over(pending[0]);
			pending[0] = pending[1];
			pending[1] = barrier;
			return;
		}
		flush();
		int panel = warp() % SHARE, tile = first() / PAGE * PAGE;
		__syncwarp();
		if (lane() > 0) return;
		if (panel >= DIM / 64) {
			mbarrier_arrive(ring.full + barrier);
			return;
		}
		mbarrier_arrive_expect_tx(ring.full + barrier, PAGE * 64 * 2);
		tma_load_2d(to + panel * PANEL + tile * 64, map, panel * 64, (int)(rows / PAGE * PAGE), ring.full + barrier);
	}

	// copy gathers rows by cp.async, with the 128-byte swizzle.
	__device__ __forceinline__ void copy(u16* to, const void* cache, u32 rows) const {
		int c = lane() % PIECES, from = lane() / PIECES;
		to += c / 8 * PANEL + (first() + from) * 64;
		int piece = (c % 8 ^ from) * 8;
		const u16* pieces = (const u16*)cache + c * 8;
#pragma unroll 4
		for (int i = 0; i < ROWS; i += ONCE) {
			u32 r = __shfl_sync(FULL_MASK, rows, i + from);
			bool there = r != NONE;
			cp_async_zfill(to + (piece ^ i % 8 * 8) + i * 64, pieces + (there ? (i64)r * DIM : 0), there);  // 128-byte swizzle: piece c of row r lies at c ^ r%8
		}
	}

	// hand_over arrives at the mbarrier of a finished cp.async group, flush at all of them.
	__device__ __forceinline__ void hand_over(int& barrier) const {
		if (barrier < 0) return;
		fence_proxy_async();
		warp_arrive(ring.full + barrier);
		barrier = -1;
	}
	__device__ __forceinline__ void flush() {
		if (pending[1] < 0) return;
		cp_async_wait<0>();
		hand_over(pending[0]);
		hand_over(pending[1]);
	}

	// mark writes the mask of step j, whose rows are located.
	__device__ __forceinline__ void mark(StepMask& m, int j) const {
		if (lane() >= ROWS) return;
		m.at[first() + lane()] = at;
		if (a.plan.selected != SELECTED_ALL) m.bias[first() + lane()] = tile(j) < w.all ? w.bias(tile(j), first() % PAGE + lane()) : 0;
	}

	__device__ __forceinline__ void run() {
		int steps = step_count(w);
		PipelineState k = {0, 0};
		begin();
		u32 before = NONE;  // row of the step before
		bool whole = false, whole_before = false;
		for (int j = 0; j <= steps; j++) {
			if (j < steps) {
				locate(j);
				whole = paged(j);
				mbarrier_wait(ring.k_empty + k.at, k.phase ^ 1);
				mark(ring.masks[k.at], j);
				load(ring.k[k.at], a.keys, a.g.k, row, whole, k.at);
			}
			if (VALUES && j > 0) {
				PipelineState v = k.prev();
				mbarrier_wait(ring.v_empty + v.at, v.phase ^ 1);
				load(ring.v[v.at], a.values, a.g.v, before, whole_before, STEP_STAGES + v.at);
			}
			k.next();
			before = row;
			whole_before = whole;
		}
		flush();
	}
};

// group_mask is that of the warpgroup whose first row is at own.
__device__ inline GroupMask group_mask(const Plan& plan, const Tiles& w, int own, bool all) {
	RowMask late = row_mask(plan, own + FLASH_ROWS - 1);
	GroupMask g = {own, late.back, late.bound, late.span_sink, late.sink, recent_of(plan, own), late.recent, all, plan.list.weight != nullptr, 0, 0};
	g.range(plan, w);
	return g;
}

// attend_group is the main loop of a consumer warpgroup.
template <int DIM, int GROUPS>
__device__ __forceinline__ void attend_group(const FlashWgmmaArgs& a, Pipeline<DIM>& ring) {
	const BlockWork& b = ring.block;
	const Tiles& w = b.tiles;
	const GroupMask& see = b.groups[threadIdx.x / 128];
	auto head = [&] { return a.by_heads ? blockIdx.y * GROUPS + threadIdx.x / 128 : blockIdx.y; };
	ConsumerRows<DIM> r;
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		int at = row_position_of(see.own, u);
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
				wgmma<1>(s, r.q[i], k.advance(i / 4 * PANEL * 2 + i % 4 * 32));
		}
		wgmma_commit();
	};
	auto multiply_values = [&](SmemDesc v) {
		wgmma_fence();
#pragma unroll
		for (int k = 0; k < STEP / 16; k++) wgmma_tn(r.acc, p[k], v.advance(k * 2048));
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
	auto mask_if_needed = [&](const StepMask& m, int j) {
		bool all = true;
		for (int t = j * STEP_TILES; t < (j + 1) * STEP_TILES; t++) all = all && see.fully_visible(m, w, t);
		if (!all) apply_mask(s, a.plan, see.own, m, (w.pages - j * STEP_TILES) * PAGE);
	};
	PipelineState k = {0, 0};
	mbarrier_wait(ring.full, 0);
	multiply_keys(keys(0));
	wgmma_wait<0>(s);
	mask_if_needed(ring.masks[0], 0);
	warp_arrive(ring.k_empty);
	softmax_step(r, s, scale);
	pack();
	for (int j = 1; j < step_count(w); j++) {
		bool unmasked = see.unmasked_step(w, j);
		k.next();
		PipelineState v = k.prev();
		SmemDesc key = keys(k.at), value = values(v.at);
		mbarrier_wait(ring.full + k.at, k.phase);
		multiply_keys(key);
		mbarrier_wait(ring.full + STEP_STAGES + v.at, v.phase);
		multiply_values(value);
		if (unmasked) {
			wgmma_wait<1>(s);
			warp_arrive(ring.k_empty + k.at);
			softmax_step(r, s, scale);
			// wgmma of the values is waited for in two branches, by two spellings of the same instruction
			// that depend on the accumulators: otherwise the compiler moves the wait before the
			// softmax and the overlap is lost.
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
			mask_if_needed(ring.masks[k.at], j);
			warp_arrive(ring.k_empty + k.at);
			softmax_step(r, s, scale);
			rescale();
			pack();
		}
		warp_arrive(ring.v_empty + k.prev().at);
	}
	mbarrier_wait(ring.full + STEP_STAGES + k.at, k.phase);
	multiply_values(values(k.at));
	wgmma_wait<0>(r.acc);
#pragma unroll
	for (int u = 0; u < 2; u++) {
		float sum = r.s[u].sum;
		sum += __shfl_xor_sync(FULL_MASK, sum, 1);
		sum += __shfl_xor_sync(FULL_MASK, sum, 2);
		float part = normalizer(sum, false);
		int at = row_position_of(see.own, u);
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
	DYNAMIC_SHARED_1024(Pipeline<DIM>, ring);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * GROUPS, h = a.by_heads ? blockIdx.y * GROUPS + group % GROUPS : blockIdx.y;
	int tile = first / span + (int)(gridDim.x - 1 - blockIdx.x);  // longest first, to balance the tail of the grid
	int lo = max_of(tile * span, first), last = min_of((tile + 1) * span, first + rows) - 1;
	if (lo > last) return;
	RowPosition at = {0, first, lo};
	Tiles w = tiles_of(a.plan, entries(a.plan.list, a.g, at, h, (int)a.heads), lo, last);
	if (w.all == 0) {  // one empty tile, so that the pipeline runs
		w.all = 1;
		w.e.n = 0;
	}
	if (threadIdx.x == 0) ring->block.set(w, first, lo, last, h * (int)a.g.heads / (int)a.heads);
	if (group < GROUPS && threadIdx.x % 128 == 0)
		ring->block.groups[group] = group_mask(a.plan, w, tile * span + (a.by_heads ? 0 : group * FLASH_ROWS), a.plan.selected == SELECTED_ALL);
	ring->init(GROUPS);
	if (group == GROUPS) {
		if (GROUPS == 2) setmaxnreg_dec<56>();
		Producer<DIM, GROUPS, true> b = {a, *ring, ring->block, ring->block.tiles};
		b.run();
	} else {
		if (GROUPS == 2) setmaxnreg_inc<224>();
		attend_group<DIM, GROUPS>(a, *ring);
	}
}

// edge_group is the main loop of anchor_max: the largest score of each row of a warpgroup over
// sinks and window; see select_margin_mma.cu. Q in f16 high and low parts, two wgmma each.
template <int DIM>
__device__ __forceinline__ void edge_group(const FlashWgmmaArgs& a, const Tiles& w, Pipeline<DIM>& ring, int h, int own, int first, int lo, int last) {
	int p[2];
	for (int u = 0; u < 2; u++) p[u] = own + warp() % 4 * 16 + lane() / 4 + u * 8;
	auto there = [&](int u) { return p[u] >= lo && p[u] <= last; };
	u32 high[DIM / 16][4], low[DIM / 16][4];
	load_queries<DIM>(high, low, [&](int u) { return there(u) ? a.q + ((i64)(p[u] - first) * a.heads + h) * DIM : nullptr; });
	RowMask see[2] = {row_mask(a.plan, p[0]), row_mask(a.plan, p[1])};
	GroupMask all = group_mask(a.plan, w, own, false);
	float s[PAGE / 2], top[4] = {-infinity(), -infinity(), -infinity(), -infinity()};
	SmemDesc keys = smem_desc(ring.k, 0, 1024);
	PipelineState state = {0, 0};
	for (int t = 0; t < w.all; t++) {
		if (t % STEP_TILES == 0) mbarrier_wait(ring.full + state.at, state.phase);
		SmemDesc k = keys.uniform(state.at * (STEP * DIM * 2) + t % STEP_TILES * (PAGE * 128));
		wgmma_fence();
#pragma unroll
		for (int i = 0; i < DIM / 16; i++) {
			SmemDesc part = k.advance(i / 4 * PANEL * 2 + i % 4 * 32);
			if (i == 0)
				wgmma<0>(s, high[i], part);
			else
				wgmma<1>(s, high[i], part);
			wgmma<1>(s, low[i], part);
		}
		wgmma_commit();
		wgmma_wait<0>(s);
		if (t % STEP_TILES == STEP_TILES - 1) {
			warp_arrive(ring.k_empty + state.at);
			state.next();
		}
		if (!all.unmasked(w, t)) {
			int from = w.page(t) * PAGE + lane() % 4 * 2;
#pragma unroll
			for (int i = 0; i < PAGE / 2; i++) {
				int j = from + i / 4 * 8 + i % 2;
				if (!see[i / 2 % 2].spanned(j) || !see[i / 2 % 2].in_sinks_or_window(j)) s[i] = -infinity();
			}
		}
		bool nan = false;
#pragma unroll
		for (int i = 0; i < PAGE / 2; i++) {
			top[i % 4] = fmaxf(top[i % 4], s[i]);
			nan |= s[i] != s[i];
		}
		if (nan) {
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

// edge_max_wgmma: blocks as of flash_wgmma, K only.
template <int DIM>
__device__ __forceinline__ void edge_max_wgmma(const FlashWgmmaArgs& a) {
	DYNAMIC_SHARED_1024(Pipeline<DIM>, ring);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * 2, h = a.by_heads ? blockIdx.y * 2 + group % 2 : blockIdx.y;
	int tile = first / span + (int)(gridDim.x - 1 - blockIdx.x);
	int lo = max_of(tile * span, first), last = min_of((tile + 1) * span, first + rows) - 1;
	if (lo > last) return;
	Entries none = {nullptr, nullptr, 0};
	Tiles w = tiles_of(a.plan, none, lo, last);
	if (threadIdx.x == 0) ring->block.set(w, first, lo, last, h * (int)a.g.heads / (int)a.heads);
	ring->init(2);
	if (group < 2) {
		edge_group<DIM>(a, w, *ring, h, tile * span + (a.by_heads ? 0 : group * FLASH_ROWS), first, lo, last);
	} else if (w.all > 0) {
		Producer<DIM, 2, false> b = {a, *ring, ring->block, ring->block.tiles};
		b.run();
	}
}

KERNEL_1_PER_SM(anchor_max_wgmma_64, FlashWgmmaArgs, 384) { edge_max_wgmma<64>(a); }
KERNEL_1_PER_SM(anchor_max_wgmma_128, FlashWgmmaArgs, 384) { edge_max_wgmma<128>(a); }

KERNEL_1_PER_SM(flash_wgmma_64, FlashWgmmaArgs, 384) { flash_wgmma<64, 2>(a); }
KERNEL_1_PER_SM(flash_wgmma_128, FlashWgmmaArgs, 384) { flash_wgmma<128, 2>(a); }
KERNEL(flash_wgmma_1wg_64, FlashWgmmaArgs, 256) { flash_wgmma<64, 1>(a); }
KERNEL(flash_wgmma_1wg_128, FlashWgmmaArgs, 256) { flash_wgmma<128, 1>(a); }

#else

KERNEL_1_PER_SM(flash_wgmma_64, FlashArgs, 384) {}
KERNEL_1_PER_SM(flash_wgmma_128, FlashArgs, 384) {}
KERNEL(flash_wgmma_1wg_64, FlashArgs, 256) {}
KERNEL(flash_wgmma_1wg_128, FlashArgs, 256) {}

KERNEL(anchor_max_wgmma_64, FlashArgs, 384) {}
KERNEL(anchor_max_wgmma_128, FlashArgs, 384) {}

#endif
