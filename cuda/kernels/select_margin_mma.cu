// Anchor max and selection within a margin on tensor cores, m16n8k16, for the rows of one slot
// over an f16 cache; checked against select_margin.cu. A selection depends on every bit of a
// score, so queries enter as a sum of two halves, 22 bits.
#include "select_margin.cuh"
#include "tiles.cuh"

// KeyTile16 is a page of keys of one kv head in shared memory, rows padded by 8 halves against
// bank conflicts.
template <int DIM>
struct alignas(16) KeyTile16 {
	u16 k[PAGE * (DIM + 8)];

	// copy starts copying block b of the slot, as far as position last; -1 copies zeros.
	__device__ void copy(const PagedKV& g, int kv_head, int b, int last) {
		constexpr int PIECES = DIM / 8;
		int page = b >= 0 ? page_of(g, 0, b) : -1;
		for (int i = threadIdx.x; i < PAGE * PIECES; i += blockDim.x) {
			int r = i / PIECES, c = i % PIECES * 8;
			bool there = page >= 0 && b * PAGE + r <= last;
			cp_async_zfill(k + r * (DIM + 8) + c, (const u16*)g.k + (there ? kv_offset(g, page, kv_head, r) + c : 0), there);
		}
		cp_async_commit();
	}
};

// score_page multiplies 16 queries with a page of keys.
template <int DIM>
__device__ __forceinline__ void score_page(float (&s)[PAGE / 8][4], const u32 (&high)[DIM / 16][4], const u32 (&low)[DIM / 16][4], const KeyTile16<DIM>& page) {
#pragma unroll
	for (int n = 0; n < PAGE / 8; n++) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int n = 0; n < PAGE / 16; n++) {
			u32 b[4];
			ldmatrix_x4(b, page.k + (n * 16 + lane() % 8 + lane() / 16 * 8) * (DIM + 8) + k * 16 + lane() / 8 % 2 * 8);
			mma_f16(s[2 * n], high[k], b);
			mma_f16(s[2 * n + 1], high[k], b + 2);
			mma_f16(s[2 * n], low[k], b);
			mma_f16(s[2 * n + 1], low[k], b + 2);
		}
	}
}

// anchor_max_mma (score): grid (64 positions, head), a warp taking 16 rows. Pages of keys are
// double-buffered with cp.async. Bound by tensor throughput, two products a page for the halves.
template <int DIM>
__device__ __forceinline__ void anchor_max_mma(const AnchorMaxArgs& a) {
	SHARED(KeyTile16<DIM>, keys, 2);
	int first = first_position(a.g, 0), rows = (int)a.g.rows, h = blockIdx.y;
	if (first < 0) return;
	int tile = first / PAGE + blockIdx.x, lo = max_of(tile * PAGE, first), last = min_of((tile + 1) * PAGE, first + rows) - 1;
	if (lo > last) return;
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	Plan plan = a.plan;
	plan.selected = SELECTED_NONE;
	Entries none = {nullptr, nullptr, 0};
	Tiles w = tiles_of(plan, none, lo, last);
	if (w.all > 0) keys[0].copy(a.g, kv_head, w.page(0), last);

	u32 high[DIM / 16][4], low[DIM / 16][4];
	int p[2];
	float top[2] = {-infinity(), -infinity()};
	for (int u = 0; u < 2; u++) p[u] = tile * PAGE + warp() * 16 + lane() / 4 + u * 8;
	auto there = [&](int u) { return p[u] >= lo && p[u] <= last; };
	load_queries<DIM>(high, low, [&](int u) { return there(u) ? a.q + ((i64)(p[u] - first) * a.heads + h) * DIM : nullptr; });
	RowMask see[2] = {row_mask(plan, p[0]), row_mask(plan, p[1])};
	for (int t = 0; t < w.all; t++) {
		if (t + 1 < w.all)
			keys[(t + 1) % 2].copy(a.g, kv_head, w.page(t + 1), last);
		else
			cp_async_commit();
		cp_async_wait<1>();
		__syncthreads();
		float s[PAGE / 8][4];
		score_page<DIM>(s, high, low, keys[t % 2]);
		int from = w.page(t) * PAGE + lane() % 4 * 2;
#pragma unroll
		for (int n = 0; n < PAGE / 8; n++) {
#pragma unroll
			for (int i = 0; i < 4; i++) {
				int j = from + n * 8 + i % 2;
				if (!see[i / 2].spanned(j) || !see[i / 2].in_sinks_or_window(j)) continue;
				top[i / 2] = fmaxf(top[i / 2], s[n][i]);
				if (there(i / 2)) count_nan(a.g, s[n][i]);
			}
		}
		__syncthreads();
	}
	for (int u = 0; u < 2; u++) {
		top[u] = fmaxf(top[u], __shfl_xor_sync(FULL_MASK, top[u], 1));
		top[u] = fmaxf(top[u], __shfl_xor_sync(FULL_MASK, top[u], 2));
		if (there(u) && lane() % 4 == 0) a.dst[(i64)(p[u] - first) * a.heads + h] = top[u] * (1 / sqrtf((float)DIM));
	}
}

KERNEL(anchor_max_64, AnchorMaxArgs, 128) { anchor_max_mma<64>(a); }
KERNEL(anchor_max_128, AnchorMaxArgs, 128) { anchor_max_mma<128>(a); }

constexpr int MARGIN_WARPS = 4;

// select_margin_mma (score and select): grid (group · kv heads + kv head, z), block z taking every
// gridDim.y-th page for all heads of the kv head, so that a page is read once for them; a warp
// takes a head, 16 of the group's blocks of rows at a time. Bound by reading K once a group.
template <int DIM>
__device__ __forceinline__ void select_margin_mma(const MarginArgs& a) {
	SHARED(KeyTile16<DIM>, keys, 2);
	int kv_head = blockIdx.x % (int)a.g.heads, group_heads = (int)(a.heads / a.g.heads);
	RowGroup r;
	if (!row_group(a, blockIdx.x / (int)a.g.heads, r)) return;
	int lo = (int)a.plan.sink, hi = min_of(recent_of(a.plan, r.from), r.from + 1);
	float unit = 1 / sqrtf((float)DIM), margin = (float)a.margin;
	auto in_region = [&](int b) { return b < a.words && b * PAGE < hi && (b + 1) * PAGE > lo; };
	for (int member = warp(); member < (group_heads + MARGIN_WARPS - 1) / MARGIN_WARPS * MARGIN_WARPS; member += MARGIN_WARPS) {
		int h = kv_head * group_heads + min_of(member, group_heads - 1);
		u32 high[DIM / 16][4], low[DIM / 16][4];
		float top[2];
		auto load = [&](int at) {
			auto there = [&](int u) { return at + lane() / 4 + 8 * u < r.blocks; };
			auto row = [&](int u) { return (i64)(r.block + at + lane() / 4 + 8 * u) * a.heads + h; };
			load_queries<DIM>(high, low, [&](int u) { return there(u) ? a.q + row(u) * DIM : nullptr; });
			for (int u = 0; u < 2; u++) top[u] = there(u) ? a.top[row(u)] : infinity();
		};
		load(0);
		keys[0].copy(a.g, kv_head, in_region((int)blockIdx.y) ? (int)blockIdx.y : -1, r.from);
		for (int b = blockIdx.y, stage = 0; b < a.words; b += gridDim.y, stage ^= 1) {
			keys[stage ^ 1].copy(a.g, kv_head, in_region(b + (int)gridDim.y) ? b + (int)gridDim.y : -1, r.from);
			cp_async_wait<1>();
			__syncthreads();
			u32 bits = 0, has_nan = 0;  // bit 2n + i is column 8n + 2·(lane%4) + i
			for (int at = 0; at < r.blocks && in_region(b); at += 16) {
				if (r.blocks > 16) load(at);
				float s[PAGE / 8][4];
				score_page<DIM>(s, high, low, keys[stage]);
#pragma unroll
				for (int n = 0; n < PAGE / 8; n++) {
#pragma unroll
					for (int i = 0; i < 4; i++) {
						bits |= (u32)(top[i / 2] - s[n][i] * unit <= margin) << (n * 2 + i % 2);
						has_nan |= (u32)(s[n][i] != s[n][i]);
					}
				}
				if (!has_nan) continue;
				for (int i = 0; i < PAGE / 2; i++) {
					int j = b * PAGE + i / 4 * 8 + lane() % 4 * 2 + i % 2;
					bool counts = member < group_heads && at + lane() / 4 + i / 2 % 2 * 8 < r.blocks && j >= lo && j < hi && sees(a.plan.span, r.from, j);
#pragma unroll
					for (int n = 0; n < PAGE / 8; n++) {
						if (counts && n == i / 4) count_nan(a.g, s[n][i % 4]);
					}
				}
			}
			for (int m = 4; m < WARP; m *= 2) bits |= __shfl_xor_sync(FULL_MASK, bits, m);
			u64 within = 0;
			for (int l = 0; l < 4; l++) {
				u32 of = __shfl_sync(FULL_MASK, bits, l);
				for (int n = 0; n < PAGE / 8; n++) within |= (u64)(of >> n * 2 & 3) << (n * 8 + l * 2);
			}
			u64 listed = 0, found = 0;
			for (int u = 0; u < 2; u++) {
				int i = lane() + u * WARP, j = b * PAGE + i;
				bool in = j >= lo && j < hi && sees(a.plan.span, r.from, j), is = in && (within >> i & 1);
				listed |= (u64)__ballot_sync(FULL_MASK, is || (in && j < a.double_before)) << u * WARP;
				found |= (u64)__ballot_sync(FULL_MASK, is) << u * WARP;
			}
			if (lane() == 0 && member < group_heads) {
				u64* marks = a.marks + ((r.list + h) * a.words + b) * 2;
				marks[0] = listed;
				marks[1] = found;
			}
			__syncthreads();
		}
		cp_async_wait<0>();
		__syncthreads();
	}
}

KERNEL(within_margin_64, MarginArgs, 128) { select_margin_mma<64>(a); }
KERNEL(within_margin_128, MarginArgs, 128) { select_margin_mma<128>(a); }
