// Attention of many rows of one slot on the tensor cores of compute capability 9.0:
// flash.cu with the instructions of wide.cuh. Checked against attend.cu.
//
// A block has one or two groups of four warps. Each takes 64 positions of one head,
// which start at a multiple of 64: groups of a block are neighbours, or heads of one
// kv head at the same positions. They share the tiles of keys and values, which come
// through a ring in shared memory. While a group's values are being added up by one
// instruction, its threads make the weights of the next tile.
#include "tiles.cuh"
#include "wide.cuh"

#if WIDE

constexpr int FLASH_RING = 4;

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

// Group is what a group of warps reads, beyond what its rows see one by one: what
// all of its rows see.
struct WideGroup {
	int own, last;           // positions of its rows
	int back, bound, span_sink;  // of the last row
	int sink, recent_first, recent_last;
	bool all, weights;

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

// weigh makes scores weights, and says what sums so far are to be multiplied by.
template <int DIM>
__device__ __forceinline__ void weigh(WideRows<DIM>& r, float (&s)[PAGE / 2], float (&scale)[2]) {
#pragma unroll
	for (int u = 0; u < 2; u++) {
		float top = r.s[u].top;
#pragma unroll
		for (int n = 0; n < PAGE / 8; n++) top = fmaxf(top, fmaxf(s[n * 4 + 2 * u], s[n * 4 + 2 * u + 1]));
		top = fmaxf(top, __shfl_xor_sync(ALL, top, 1));
		top = fmaxf(top, __shfl_xor_sync(ALL, top, 2));
		scale[u] = power2(r.s[u].top - top);
		r.s[u].top = top;
		float sum = 0;
#pragma unroll
		for (int n = 0; n < PAGE / 8; n++) {
			s[n * 4 + 2 * u] = power2(s[n * 4 + 2 * u] - top);
			s[n * 4 + 2 * u + 1] = power2(s[n * 4 + 2 * u + 1] - top);
			sum += s[n * 4 + 2 * u] + s[n * 4 + 2 * u + 1];
		}
		r.s[u].sum = r.s[u].sum * scale[u] + sum;  // of this lane's columns
	}
}

template <int DIM, int GROUPS>
__device__ __forceinline__ void flash_wide(const FlashArgs& a) {
	constexpr int PIECES = DIM / 8, THREADS = GROUPS * 128, EACH = PAGE * PIECES / THREADS, PANEL = PAGE * 64;
	DYNAMIC_WIDE(WideStage<DIM>, ring);
	Marks* marks = (Marks*)(ring + FLASH_RING);
	int first = first_of(a.g, 0), rows = (int)a.g.rows, group = threadIdx.x / 128;
	if (first < 0) return;
	int span = a.by_heads ? FLASH_ROWS : FLASH_ROWS * GROUPS, h = a.by_heads ? blockIdx.y * GROUPS + group : blockIdx.y;
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

	// A thread copies piece threadIdx%PIECES of every so many rows of a tile, whose
	// positions it found out while the tile before was being computed: those of a
	// page follow each other.
	constexpr int STEP = THREADS / PIECES;
	static_assert(STEP % 8 == 0, "the rows of a thread change places alike");
	int c = threadIdx.x % PIECES, row = threadIdx.x / PIECES;
	int place = c / 8 * PANEL + row * 64 + (c % 8 ^ row % 8) * 8;
	struct Next {
		int block, page;           // of a page
		int at[EACH], pages[EACH];  // of entries
	};
	auto locate = [&](int t, Next& n) {
		if (t >= w.all) return;
		if (t < w.pages) {
			n.block = w.page(t);
			n.page = n.block * PAGE <= last ? page_of(a.g, 0, n.block) : -1;
			return;
		}
#pragma unroll
		for (int u = 0; u < EACH; u++) n.at[u] = w.position(t, row + u * STEP);
#pragma unroll
		for (int u = 0; u < EACH; u++) n.pages[u] = n.at[u] >= 0 && n.at[u] <= last ? page_of(a.g, 0, n.at[u] / PAGE) : -1;
	};
	auto bring = [&](int t, const Next& n) {
		if (t < w.all) {
			u16 *k = ring[t % FLASH_RING].k + place, *v = ring[t % FLASH_RING].v + place;
			if (t < w.pages) {
				i64 from = element_of(a.g, larger(n.page, 0), kv_head, 0) + threadIdx.x * 8;
				int most = n.page < 0 ? -1 : last - n.block * PAGE;
#pragma unroll
				for (int u = 0; u < EACH; u++) {
					bool there = row + u * STEP <= most;
					copy_async_if(k + u * STEP * 64, (const u16*)a.g.k + from + u * THREADS * 8, there);
					copy_async_if(v + u * STEP * 64, (const u16*)a.g.v + from + u * THREADS * 8, there);
				}
			} else {
#pragma unroll
				for (int u = 0; u < EACH; u++) {
					bool there = n.pages[u] >= 0;
					i64 from = there ? element_of(a.g, n.pages[u], kv_head, n.at[u] % PAGE) + c * 8 : 0;
					copy_async_if(k + u * STEP * 64, (const u16*)a.g.k + from, there);
					copy_async_if(v + u * STEP * 64, (const u16*)a.g.v + from, there);
				}
			}
			if (threadIdx.x < PAGE) {
				Marks& m = marks[t % FLASH_RING];
				int j = w.position(t, threadIdx.x);
				m.at[threadIdx.x] = j <= last ? j : -1;
				if (a.plan.middle != MIDDLE_ALL) m.bias[threadIdx.x] = w.bias(t, threadIdx.x);
			}
		}
		copy_commit();
	};
	Next next;
	for (int t = 0; t < FLASH_RING - 1; t++) {
		locate(t, next);
		bring(t, next);
	}

	WideRows<DIM> r;
	float unit = 1.4426950408889634f / sqrtf((float)DIM);
	int own = tile * span + (a.by_heads ? 0 : group * FLASH_ROWS);
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
	WideGroup see = {own, end, late.back, late.bound, late.span_sink, late.sink, recent_of(a.plan, own), late.recent, late.all, a.plan.list.weight != nullptr};

	float s[PAGE / 2], scale[2];
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
	auto weights = [&](int t) {
		const Marks& m = marks[t % FLASH_RING];
		if (!see.whole(m, w, t)) hide(s, a.plan, r.p, m, t < w.pages);
		weigh(r, s, scale);
	};
	auto pack = [&] {
#pragma unroll
		for (int k = 0; k < PAGE / 16; k++) {
#pragma unroll
			for (int i = 0; i < 4; i++) p[k][i] = pack_half(s[k * 8 + i * 2], s[k * 8 + i * 2 + 1]);
		}
	};
	copy_wait<FLASH_RING - 2>();
	wide_written();
	__syncthreads();
	multiply_keys(0);
	wide_wait<0>(s);
	weights(0);
	pack();
	int t = 0;
	for (; t + 1 < w.all; t++) {
		copy_wait<FLASH_RING - 3>();
		wide_written();
		__syncthreads();  // tile t+1 is there, and t-1 is no longer in use
		multiply_keys(t + 1);
		multiply_values(t);
		locate(t + FLASH_RING - 1, next);
		wide_wait<1>(s);
		weights(t + 1);
		wide_keep(s);
		bring(t + FLASH_RING - 1, next);
		wide_wait<0>(r.acc);
		if (__any_sync(ALL, scale[0] != 1 || scale[1] != 1)) {
#pragma unroll
			for (int d = 0; d < DIM / 2; d++) r.acc[d] *= scale[d / 2 % 2];
		}
		pack();
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

KERNEL(flash_wide_64, FlashArgs, 256) { flash_wide<64, 2>(a); }
KERNEL(flash_wide_128, FlashArgs, 256) { flash_wide<128, 2>(a); }
KERNEL(flash_one_64, FlashArgs, 128) { flash_wide<64, 1>(a); }
KERNEL(flash_one_128, FlashArgs, 128) { flash_wide<128, 1>(a); }

#else

KERNEL(flash_wide_64, FlashArgs, 256) {}
KERNEL(flash_wide_128, FlashArgs, 256) {}
KERNEL(flash_one_64, FlashArgs, 128) {}
KERNEL(flash_one_128, FlashArgs, 128) {}

#endif
