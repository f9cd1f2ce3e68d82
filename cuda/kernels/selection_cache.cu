// The selection cache: a decode step reuses what an earlier step of its block of steps selected,
// when its query is similar, as in CIS (CPE). For head group s and the step at position p:
//
//	reuse   the newest step e of the block of p with min_{h in group} cos(q_p, q_e) > min_cosine
//	        has a selection: read that, widened by neighbours of its best entries and by what
//	        has slid out of the window since
//	select  otherwise: the k best positions of the selected region by q·k/√dim, a group of
//	        several heads by ln Σ_h softmax_h; store them with the query for later steps
//
// Every block of a head group looks for a step to reuse, which costs little; if there is none, each
// scores a share of the keys. A second launch, reuse_rank, selects for the groups that were scored,
// by a cluster of blocks each (cluster_select.cuh). Where a head group has one block, which is where
// groups fill the GPU, and its scores stay in shared memory, that block selects and there is no
// second launch. Bound by reading the keys where a group selects, by latency where all reuse.
// Reference implementation: package cpu.
#include "cluster_select.cuh"
#include "gathered.cuh"
#include "histogram_select.cuh"
#include "scores.cuh"
#include "state.cuh"

constexpr int REUSE_THREADS = 256;

struct SelectionCache {
	float* query;      // [slots, heads·block, dim]: queries of the block of steps
	i32* entry;        // [slots, head_groups·block, 3]
	i32* index;        // [slots, head_groups·block, max_selected]
	const i32* since;  // [slots]: entries of earlier positions do not count
	i32* found;        // [slots, head_groups]: the entry that is reused, or -1
	u32* counters;     // [slots, head_groups, 4]: steps, selections, and positions scored as 64 bits
	i64 heads, head_groups, block, max_selected, relative, chain;
	f64 min_cosine;
	i64 k;
	f64 share;
};

// selection_budget is how many of n positions are selected.
__device__ inline i64 selection_budget(const SelectionCache& m, i64 n) { return m.share > 0 ? (i64)floor(m.share * (double)n + 1e-9) : m.k; }

// block_origin is where the block of steps of position p starts; number is the step of p in it.
__device__ inline int block_origin(const SelectionCache& m, int slot, int p, int& number) {
	int from = m.relative ? min_of(m.since[slot], p) : 0;
	number = (p - from) % (int)m.block;
	return p - number;
}

// entry_record is entry e of a head group: position + 1, the entry whose selection it uses, and
// how many positions it selected itself.
__device__ inline i32* entry_record(const SelectionCache& m, int slot, int head_group, int e) { return m.entry + ((slot * m.head_groups + head_group) * m.block + e) * 3; }

// entry_selection is the positions that entry e of a head group selected, those that get neighbors
// first.
__device__ inline i32* entry_selection(const SelectionCache& m, int slot, int head_group, int e) { return m.index + ((slot * m.head_groups + head_group) * m.block + e) * m.max_selected; }

// cosine of two vectors, by a warp; -Inf if one is zero, so that it never reuses.
__device__ inline double cosine(const float* a, const float* b, int dim) {
	double ab = 0, aa = 0, bb = 0;
	for (int i = lane(); i < dim; i += WARP) {
		double x = a[i], y = b[i];
		ab += x * y;
		aa += x * x;
		bb += y * y;
	}
	for (int m = WARP / 2; m > 0; m /= 2) {
		ab += __shfl_xor_sync(FULL_MASK, ab, m);
		aa += __shfl_xor_sync(FULL_MASK, aa, m);
		bb += __shfl_xor_sync(FULL_MASK, bb, m);
	}
	return aa == 0 || bb == 0 ? -(double)infinity() : min_of(ab / sqrt(aa * bb), 1.0);
}

// VisibleRange is positions lo to hi-1 without those of [gap, over).
struct VisibleRange {
	int lo, hi, gap, over;

	__device__ __forceinline__ bool contains(int j) const { return j >= lo && j < hi && outside_gap(j); }

	// outside_gap is contains for positions that are in [lo, hi).
	__device__ __forceinline__ bool outside_gap(int j) const { return j < gap || j >= over; }

	__device__ inline int count() const {
		int hole = min_of(over, hi) - max_of(gap, lo);
		return max_of(hi - lo, 0) - (hi > lo ? max_of(hole, 0) : 0);
	}
};

// visible_range is what a span shows the row at p.
__device__ inline VisibleRange visible_range(const Span& s, int p) {
	VisibleRange v = {s.back ? max_of(p + 1 - (int)s.back, 0) : 0, p + 1, (int)s.sink, bound_of(s, p)};
	return v;
}

// selectable_range is the part of it between the plan's sinks and its window.
__device__ inline VisibleRange selectable_range(const Plan& plan, int p) {
	VisibleRange v = visible_range(plan.span, p);
	v.lo = max_of(v.lo, (int)plan.sink);
	v.hi = min_of(v.hi, recent_of(plan, p));
	return v;
}

// range_bits is word w of the bitmap of positions lo to hi-1.
__device__ inline u64 range_bits(int w, int lo, int hi) {
	int from = min_of(max_of(lo - w * PAGE, 0), PAGE), to = min_of(max_of(hi - w * PAGE, 0), PAGE);
	if (from >= to) return 0;
	return (to == PAGE ? ~0ull : (1ull << to) - 1) & ~((1ull << from) - 1);
}

struct ReuseArgs {
	i32 *index, *count;  // [slots, head_groups, cap], [slots, head_groups]
	i64 cap;
	SelectionCache cache;
	float* scores;            // [slots, heads, width]
	const float *cos_q, *q;   // [slots, heads, dim]: what cosines compare, and what keys are scored with
	u64* ranks;               // [slots, head_groups, places] where shared memory has no room for them; else NULL
	i64 width, places, room;  // places: ranks, a power of two; room: scores in shared memory
	i64 ring;                 // 16-byte words of shared memory that stage keys
	i64 widened;
	f64 widened_share;
	i64 neighbors, keep_slid;
	i64 scored;  // scores has those of low-bit keys already
	i64 ranked;  // reuse_rank selects for the groups that are scored; so it does where scored
	i64 staged;  // of reuse_rank: keys of a block in shared memory
	PagedKV g;
	Plan plan;
};

// ReuseState is what a block works with.
struct ReuseState {
	int head_group, slot, p, start, number;
	int group_heads;  // heads of the group
	i64 item;         // slot·head_groups + head_group
	u64* marks;       // [p/PAGE+1]: bitmap of the positions to read
	u32* bins;        // [BINS]; bins and ranks overlay the staged keys
	u64* ranks;       // [places]
	float* local;     // [room]
	float* cos_q;     // [group_heads, dim]
	i32* records;     // [number, 3]: entries of the block of steps so far
	int since;
};

// load_entries loads what find_entry looks through, and stores the queries of the step.
__device__ inline void load_entries(const ReuseArgs& a, const ReuseState& r, bool first) {
	int dim = (int)a.g.dim;
	i64 head = r.slot * a.cache.heads + r.head_group * r.group_heads;
	const i32* records = entry_record(a.cache, r.slot, r.head_group, 0);
	for (int i = threadIdx.x; i < 3 * r.number; i += blockDim.x) r.records[i] = records[i];
	for (int i = threadIdx.x; i < r.group_heads * dim; i += blockDim.x) {
		float x = a.cos_q[head * dim + i];
		r.cos_q[i] = x;
		if (first) a.cache.query[((head + i / dim) * a.cache.block + r.number) * dim + i % dim] = x;
	}
	__syncthreads();
	// The newest selection is the likeliest to be reused.
	if (warp() == (int)blockDim.x / WARP - 1) {
		int at = lane() < r.number ? r.records[3 * lane()] - 1 : -1, n = lane() < r.number ? r.records[3 * lane() + 2] : 0;
		unsigned used = __ballot_sync(FULL_MASK, n > 0 && at == r.start + lane());
		if (!used) return;
		int newest = 31 - __clz((int)used);
		n = min_of(__shfl_sync(FULL_MASK, n, newest), (int)a.cache.max_selected);
		for (int i = lane() * 32; i < n; i += WARP * 32) prefetch_l2(entry_selection(a.cache, r.slot, r.head_group, newest) + i);
	}
}

// find_entry is the entry whose selection the head group reuses, or -1. One warp per entry, from
// the newest down.
__device__ inline int find_entry(const ReuseArgs& a, const ReuseState& r) {
	int dim = (int)a.g.dim, best = -1;
	const float* cached_q = a.cache.query + (r.slot * a.cache.heads + r.head_group * r.group_heads) * a.cache.block * dim;  // [group_heads, block, dim]
	for (int e = r.number - 1 - warp(); e >= 0 && best < 0; e -= (int)blockDim.x / WARP) {
		int at = r.records[3 * e] - 1;
		if (at != r.start + e || at < r.since) continue;
		double similarity = (double)infinity();
		for (int h = 0; h < r.group_heads; h++) similarity = min_of(similarity, cosine(r.cos_q + h * dim, cached_q + (h * a.cache.block + e) * dim, dim));
		if (similarity > a.cache.min_cosine) best = e;
	}
	best = reduce_block(best, -1, Max());
	return best < 0 ? -1 : r.records[3 * best + 1];
}

constexpr int KEY_WORDS = 2 * 4 * WARP;  // 16-byte words of a warp: 16 keys

// score_keys_mma calls put(u, i, q_u·k_i) for the keys that some(i) wants, q being [heads, DIM] of
// up to HEADS_PER_PASS heads, over an f16 cache. A warp takes 16 consecutive keys and prefetches
// its next 16 with cp.async as soon as it has used these. They are operand A of m16n8k16. The
// contraction may take channels in any order that both operands share, so a lane reads 16-byte
// pieces of a key. Queries are operand B: column 2u is query u in f16, scaled by a power of two
// to stay in range, and column 2u+1 the rounding error, 22 bits together. ring is [KEY_WORDS] for
// each warp.
template <int DIM, class Some, class Put>
__device__ inline void score_keys_mma(const PagedKV& g, Keys keys, const float* q, int heads, Word4* ring, Some some, Put put) {
	constexpr int PIECES = DIM / 32, ROWS = 16;  // PIECES: 16-byte pieces of a key that a lane has
	int column = lane() / 4, piece = lane() % 4 * 8, by = (int)blockDim.x / WARP * ROWS;
	Word4* mine = ring + warp() * KEY_WORDS;
	// Where the lane copies to and reads from: the halves of odd keys are swapped, so that
	// neighbouring keys are in different banks.
	int to = lane() ^ lane() / (DIM / 8) % 2 * 4, own_row = column * (DIM / 8), odd = column % 2 * 4;
	auto wanted = [&](int from) { return from < keys.n && (some(from + column) || some(from + column + 8)); };
	auto page_number = [&](int from) { return from < keys.n ? g.table[(i64)keys.slot * g.width + (keys.lo + from) / PAGE] : 0; };
	auto bring = [&](int from, int page) {
		if (__any_sync(FULL_MASK, wanted(from))) {
			const u16* at = (const u16*)g.k + kv_offset(g, page, keys.kv_head, (keys.lo + from) % PAGE) + lane() * 8;
#pragma unroll
			for (int j = 0; j < 2 * PIECES; j++) cp_async(mine + j * WARP + to, at + j * WARP * 8);
		}
		cp_async_commit();
	};
	int from = warp() * ROWS, page = page_number(from), next = page_number(from + by);
	bring(from, page);
	// Read again below, rather than kept in registers over the reduction.
	const float* own = q + min_of(column / 2, heads - 1) * DIM + piece;
	float top = 0;
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
#pragma unroll
		for (int i = 0; i < 8; i++) top = max_of(top, fabsf(own[j * 32 + i]));
	}
	if (column / 2 >= heads) top = 0;
	top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 1));
	top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 2));
	int power = min_of(max_of((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased exponent: the maximum becomes 2¹⁰ or more
	float up = column / 2 < heads ? __uint_as_float((u32)(254 - power) << 23) : 0, down = __uint_as_float((u32)power << 23);
	u32 cos_q[PIECES][4];
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float x = own[j * 32 + 2 * i] * up, y = own[j * 32 + 2 * i + 1] * up;
			u32 both = pack_half(x, y);
			cos_q[j][i] = column % 2 == 0 ? both : pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16)));
		}
	}
	int head = lane() % 4;  // of the lane's accumulators
	float unit = __shfl_sync(FULL_MASK, down, head * 8);
	for (; from < keys.n; from += by) {
		page = next;
		next = page_number(from + 2 * by);
		float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
		cp_async_wait<0>();
		__syncwarp();
#pragma unroll
		for (int j = 0; j < PIECES; j++) {
			const Word4* at = mine + own_row + ((j * 4 + lane() % 4) ^ odd);
			Word4 raw[2] = {at[0], at[DIM]};
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 rows[4] = {raw[0].w[2 * i], raw[1].w[2 * i], raw[0].w[2 * i + 1], raw[1].w[2 * i + 1]};
				mma_f16(c[i], rows, &cos_q[j][2 * i]);
			}
		}
		__syncwarp();  // all lanes have read what the next copies overwrite
		bring(from + by, page);
		int row = from + column;
		if (head < heads && row < keys.n && some(row)) put(head, row, ((c[0][0] + c[1][0]) + (c[0][1] + c[1][1])) * unit);
		if (head < heads && row + 8 < keys.n && some(row + 8)) put(head, row + 8, ((c[0][2] + c[1][2]) + (c[0][3] + c[1][3])) * unit);
	}
	cp_async_wait<0>();
}

// score_keys_scalar is score_keys_mma of any cache, one warp per key.
template <class Some, class Put>
__device__ inline void score_keys_scalar(const PagedKV& g, Keys keys, const float* q, int heads, Some some, Put put) {
	int dim = (int)g.dim;
	for (int i = warp(); i < keys.n; i += (int)blockDim.x / WARP) {
		if (!some(i)) continue;
		i64 from = key_offset(g, keys.slot, keys.kv_head, keys.lo + i);
		for (int u = 0; u < heads; u++) {
			float sum = 0;
			for (int d = lane(); d < dim; d += WARP) sum += q[u * dim + d] * load_kv(g.k, g.half, from + d);
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) put(u, i, sum);
		}
	}
}

// count_scored_nans counts the NaN among scores that another kernel made.
__device__ inline void count_scored_nans(const ReuseArgs& a, const ReuseState& r, const VisibleRange& range, int first, int last, const float* x) {
	for (int h = 0; h < r.group_heads; h++) {
		for (int j = first * PAGE + threadIdx.x; j < min_of(last * PAGE, range.hi); j += blockDim.x) {
			if (range.contains(j)) count_nan(a.g, x[h * a.width + j]);
		}
	}
}

// score_range computes x = q·k/√dim of pages first to last-1, x being [heads of the group, width].
__device__ inline void score_range(const ReuseArgs& a, const ReuseState& r, const VisibleRange& range, int first, int last, float* x) {
	int group_heads = r.group_heads, lo = first * PAGE, n = min_of(last * PAGE, range.hi) - lo;
	float unit = 1 / sqrtf((float)a.g.dim);
	Keys keys = {r.slot, r.head_group * group_heads * (int)a.g.heads / (int)a.cache.heads, lo, n};
	auto some = [&](int i) { return range.contains(lo + i); };
	for (int h = 0; h < group_heads && n > 0; h += HEADS_PER_PASS) {
		const float* q = a.q + (r.slot * a.cache.heads + r.head_group * group_heads + h) * a.g.dim;
		int heads = min_of(HEADS_PER_PASS, group_heads - h);
		auto put = [&](int u, int i, float sum) {
			x[(h + u) * a.width + lo + i] = sum * unit;
			count_nan(a.g, sum);
		};
		if (a.g.half && a.g.dim == 128)
			score_keys_mma<128>(a.g, keys, q, heads, (Word4*)r.bins, some, put);
		else if (a.g.half && a.g.dim == 64)
			score_keys_mma<64>(a.g, keys, q, heads, (Word4*)r.bins, some, put);
		else
			score_keys_scalar(a.g, keys, q, heads, some, put);
	}
}

// select_sorted is select_best by radix select and a bitonic sort, for scores that crowd a bin.
__device__ inline int select_sorted(u64* ranks, u64* marks, VisibleRange range, float* x, i32* index, int want) {
	u32* keys = (u32*)x;
	__syncthreads();
	for (int j = range.lo + threadIdx.x; j < range.hi; j += blockDim.x) {
		u32 key = range.contains(j) ? radix_key(x[j]) : 0;
		keys[j] = key > KEY_NEG_INF ? key : 0;
	}
	__syncthreads();
	int from = range.lo, n = range.hi - from;
	Threshold<u32> cut = radix_select<u32, u32>(n, (u64)want, [&](i64 i, u32& key) {
		key = keys[from + i];
		return (u32)(key > 0);
	});
	n = compact(keys + from, n, cut, [&](int to, int i, u32 key) { ranks[to] = (u64)key << 32 | (u32)~(u32)(from + i); });
	int size = 1;
	while (size < n) size *= 2;
	for (int i = n + threadIdx.x; i < size; i += blockDim.x) ranks[i] = 0;
	bitonic_sort_down(ranks, size);
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		int j = rank_position(ranks[i]);
		index[i] = j;
		set_bit(marks, j);
	}
	__syncthreads();
	return n;
}

// select_best writes the best positions of a range, best first, sets their bits, and returns how
// many they are. Linear bins find the cut; a candidate's place is the start of its bin plus the
// better ones in the bin. Where scores crowd a bin, x is overwritten with keys.
__device__ inline int select_best(const ReuseState& r, const VisibleRange& range, float* x, i32* index, int want) {
	constexpr int SCORES = 8;
	if (want <= 0 || range.hi <= range.lo) return 0;
	auto at = [&](int j, float& s) { return range.outside_gap(j) && (s = x[j]) > -infinity(); };
	LinearBins bins;
	CutBin cut_bin = find_cut_bin<REUSE_THREADS, SCORES>(range.lo, range.hi, (u32)want, r.bins, bins, at);
	if (cut_bin.overfull) return select_sorted(r.ranks, r.marks, range, x, index, want);
	for_each_score<SCORES>(range.lo, range.hi, at, [&](const int* j, const float* s, const bool* there) {
		u32 to[SCORES];
		bool in[SCORES];
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			int bin = there[i] ? bins.of(s[i]) : BINS;
			in[i] = bin <= cut_bin.bin;
			if (in[i]) to[i] = atomicAdd(&r.bins[bin], 1u);
		}
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			if (in[i]) r.ranks[to[i]] = rank_key(s[i], j[i]);
		}
	});
	__syncthreads();  // a bin now has the start of the next one
	for (int i = threadIdx.x; i < cut_bin.taken; i += blockDim.x) {
		u64 rank = r.ranks[i];
		int j = rank_position(rank), bin = bins.of(x[j]);
		int to = bin > 0 ? (int)r.bins[bin - 1] : 0;
		for (int other = to, end = (int)r.bins[bin]; other < end; other++) to += r.ranks[other] > rank;
		if (to >= want) continue;
		index[to] = j;
		set_bit(r.marks, j);
	}
	__syncthreads();
	return min_of(cut_bin.taken, want);
}

// record_selection makes the entry of a step that has selected n of the positions scored. One
// thread calls it.
__device__ inline void record_selection(const ReuseArgs& a, int slot, int head_group, int p, int number, int n, const VisibleRange& scored) {
	i32* rec = entry_record(a.cache, slot, head_group, number);
	rec[0] = p + 1;
	rec[1] = number;
	rec[2] = n;
	u32* counters = a.cache.counters + (slot * a.cache.head_groups + head_group) * 4;
	atomicAdd(&counters[0], 1u);  // red: no result is waited for
	atomicAdd(&counters[1], 1u);
	atomicAdd((unsigned long long*)(counters + 2), (unsigned long long)scored.count());
}

// store_selection selects for a head whose scores are x, and makes the step's entry.
__device__ inline void store_selection(const ReuseArgs& a, const ReuseState& r, const VisibleRange& selectable, float* x) {
	i64 k = selection_budget(a.cache, r.p + 1);
	i32* index = entry_selection(a.cache, r.slot, r.head_group, r.number);
	int n = select_best(r, selectable, x, index, (int)min_of(k, a.cache.max_selected));
	if (threadIdx.x == 0) record_selection(a, r.slot, r.head_group, r.p, r.number, n, selectable);
}

// set_existing sets bits lo to hi-1, those of positions up to the row's page.
__device__ inline void set_existing(u64* marks, int p, int lo, int hi) {
	for (int j = max_of(lo, 0); j < hi && j < (p / PAGE + 1) * PAGE; j++) set_bit(marks, j);
}

// mark_reused sets the bits of what a head group reads that reuses an entry.
__device__ inline void mark_reused(const ReuseArgs& a, const ReuseState& r, const VisibleRange& selectable, int found) {
	int own = r.records[3 * found] - 1, n = min_of(max_of(r.records[3 * found + 2], 0), (int)a.cache.max_selected);
	const i32* list = entry_selection(a.cache, r.slot, r.head_group, found);
	i64 k = selection_budget(a.cache, own + 1), best = a.widened_share > 0 ? (i64)floor(a.widened_share * (double)k + 1e-9) : a.widened;
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		int neighbors = i < best ? (int)a.neighbors : 0;
		set_existing(r.marks, r.p, list[i] - neighbors, list[i] + neighbors + 1);
	}
	__syncthreads();
	int slid = a.keep_slid ? recent_of(a.plan, own) : 0, until = a.keep_slid ? recent_of(a.plan, r.p) : 0;
	for (int w = threadIdx.x; w <= r.p / PAGE; w += blockDim.x) {
		u64 in = range_bits(w, selectable.lo, selectable.hi) & ~range_bits(w, selectable.gap, selectable.over);
		r.marks[w] = (r.marks[w] | range_bits(w, slid, until)) & in;
	}
}

// record_reuse makes the entry of a step that reuses another one.
__device__ inline void record_reuse(const ReuseArgs& a, const ReuseState& r, int found) {
	if (threadIdx.x > 0) return;
	i32* rec = entry_record(a.cache, r.slot, r.head_group, r.number);
	atomicAdd(&a.cache.counters[r.item * 4], 1u);  // red: no result is waited for
	rec[0] = a.cache.chain ? r.p + 1 : 0;
	rec[1] = a.cache.chain ? found : 0;
	rec[2] = 0;
}

// reuse (select) lists what head group blockIdx.y of slot blockIdx.z reads. Grid: (part, head
// group, slot); where the group selects, block `part` scores its share of the pages.
KERNEL_4_PER_SM(reuse_selection, ReuseArgs, REUSE_THREADS) {
	DYNAMIC_SHARED(u64, shared);
	pdl_trigger();
	ReuseState r;
	int part = blockIdx.x;
	r.head_group = blockIdx.y;
	r.slot = blockIdx.z;
	r.p = first_position(a.g, r.slot);
	bool good = r.p >= 0 && page_table_valid(a.g, r.slot, r.p);
	pdl_wait();
	if (!good) return;
	if (r.p >= a.width) {
		if (threadIdx.x == 0 && part == 0) fail(a.g.failure, FAIL_SCORES, r.p, a.width, 0);
		return;
	}
	r.since = a.cache.since[r.slot];
	r.start = block_origin(a.cache, r.slot, r.p, r.number);
	r.group_heads = (int)a.cache.heads / (int)a.cache.head_groups;
	r.item = r.slot * a.cache.head_groups + r.head_group;
	r.bins = (u32*)shared;
	r.ranks = a.ranks ? a.ranks + r.item * a.places : shared + BINS / 2;
	r.marks = shared + max_of(2 * a.ring, BINS / 2 + (a.ranks ? 0 : a.places));
	r.local = (float*)(r.marks + a.g.width);
	r.cos_q = r.local + a.room;
	r.records = (i32*)(r.cos_q + r.group_heads * (int)a.g.dim);
	for (int w = threadIdx.x; w <= r.p / PAGE; w += blockDim.x) r.marks[w] = 0;
	load_entries(a, r, part == 0);
	int found = find_entry(a, r);
	if (part == 0 && threadIdx.x == 0) {
		a.cache.found[r.item] = found;
		if (min_of(selection_budget(a.cache, r.p + 1), (i64)r.p + 1) > a.cache.max_selected) fail(a.g.failure, FAIL_LIST, a.cache.max_selected, 0, 0);
	}
	if (found >= 0 && part > 0) return;
	VisibleRange selectable = selectable_range(a.plan, r.p);
	if (found >= 0) {
		mark_reused(a, r, selectable, found);
		record_reuse(a, r, found);
	} else {
		bool single_head = a.cache.head_groups == a.cache.heads;
		VisibleRange scored = single_head ? selectable : visible_range(a.plan.span, r.p);
		int first = scored.lo / PAGE, pages = max_of((scored.hi + PAGE - 1) / PAGE - first, 0);
		int each = max_of((pages + (int)gridDim.x - 1) / (int)gridDim.x, 1), parts = max_of((pages + each - 1) / each, 1);
		if (part >= parts) return;
		float* x = a.ranked ? a.scores + (r.slot * a.cache.heads + r.head_group * r.group_heads) * a.width : r.local;
		int from = first + part * each, to = first + min_of((part + 1) * each, pages);
		if (a.scored)
			count_scored_nans(a, r, scored, from, to, x);
		else
			score_range(a, r, scored, from, to, x);
		if (a.ranked) return;
		__syncthreads();
		store_selection(a, r, selectable, x);
	}
	__syncthreads();
	bitmap_to_list(r.marks, r.p / PAGE + 1, a.index + r.item * a.cap, a.count[r.item], a.cap, a.g.failure);
}

// HeadSoftmax is the softmax of a head's scores: of a block's part of them, then of all.
struct HeadSoftmax {
	float max, sum, best;  // best: the largest score in the selectable range
	float log;             // what is added to a score to get the logarithm of its softmax, -Inf where there is none
};

// head_softmax is the softmax of the scores x of a head over positions lo to hi-1 of a range, on
// the whole block.
__device__ inline HeadSoftmax head_softmax(const float* x, int lo, int hi, const VisibleRange& range, const VisibleRange& selectable) {
	HeadSoftmax s = {-infinity(), 0, -infinity(), 0};
	for (int first = lo + threadIdx.x; first < hi; first += KEYS_IN_FLIGHT * blockDim.x) {
		float v[KEYS_IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) v[i] = ld_cg(x + min_of(first + i * (int)blockDim.x, hi - 1));
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
			int j = first + i * blockDim.x;
			if (j >= hi || !range.outside_gap(j) || !(v[i] > -infinity())) continue;
			float e = expf(-fabsf(v[i] - s.max));
			s.sum = v[i] > s.max ? s.sum * e + 1 : s.sum + e;
			s.max = max_of(s.max, v[i]);
			if (selectable.contains(j)) s.best = max_of(s.best, v[i]);
		}
	}
	float top = reduce_block(s.max, -infinity(), Max());
	s.sum = reduce_block(s.sum > 0 ? s.sum * expf(s.max - top) : 0, 0.0f, Plus());
	s.best = reduce_block(s.best, -infinity(), Max());
	s.max = top;
	return s;
}

// merge_softmax merges the softmax of a head over the blocks of a cluster.
__device__ inline HeadSoftmax merge_softmax(const ClusterBlock& c, const HeadSoftmax* at) {
	HeadSoftmax all = {-infinity(), 0, -infinity(), -infinity()};
	for (int i = 0; i < c.size; i++) {
		HeadSoftmax s = *at;
		if (c.size > 1) s = {dsmem_load(&at->max, i), dsmem_load(&at->sum, i), dsmem_load(&at->best, i), 0};
		if (s.sum > 0) {
			float top = max_of(all.max, s.max);
			all.sum = (all.sum > 0 ? all.sum * expf(all.max - top) : 0) + s.sum * expf(s.max - top);
			all.max = top;
		}
		all.best = max_of(all.best, s.best);
	}
	if (all.sum > 0) all.log = -(all.max + logf(all.sum));
	return all;
}

// RankedScores are the keys of a head group's selectable range, element 0 being its first position.
// A group of several heads is ranked by ln Σ_h softmax_h up to a constant: the sum itself would be 0
// in f32 for positions far below another position, often the row's own.
struct RankedScores {
	const float* x;  // [group_heads, width], from the range's first position on
	i64 width;
	int group_heads;
	const HeadSoftmax* heads;  // [group_heads]: log is what is added to the head's scores
	VisibleRange range;

	__device__ inline float fetch(int i) const {
		if (group_heads == 1) return ld_cg(x + i);
		float top = EMPTY_MAX, sum = 0;
		for (int first = 0; first < group_heads; first += HEADS_PER_PASS) {
			float v[HEADS_PER_PASS];
#pragma unroll
			for (int h = 0; h < HEADS_PER_PASS; h++) v[h] = ld_cg(x + min_of(first + h, group_heads - 1) * width + i);
#pragma unroll
			for (int h = 0; h < HEADS_PER_PASS; h++) {
				float log = first + h < group_heads ? heads[first + h].log : -infinity();
				float y = v[h] > -infinity() && log > -infinity() ? v[h] + log : -infinity(), e = expf(-fabsf(y - top));
				sum = y > top ? sum * e + 1 : sum + e;
				top = max_of(top, y);
			}
		}
		return sum > 0 ? top + logf(sum) : EMPTY_MAX;  // finite, so that it can still be selected
	}
	__device__ __forceinline__ u32 key(int i, float s, bool) const {
		u32 k = radix_key(s);
		return range.outside_gap(range.lo + i) && k > KEY_NEG_INF ? k : 0;
	}
};

// group_softmax finds the softmax of each head of a group over what its span shows. heads is
// [group_heads] in shared memory. All threads of the cluster call it.
__device__ inline void group_softmax(const ClusterBlock& c, HeadSoftmax* heads, const float* x, i64 width, int group_heads, const VisibleRange& range, const VisibleRange& selectable) {
	SHARED(float, shift, 1);
	int each = (max_of(range.hi - range.lo, 0) + c.size - 1) / c.size, lo = min_of(range.lo + c.rank * each, range.hi), hi = min_of(lo + each, range.hi);
	for (int h = 0; h < group_heads; h++) {
		HeadSoftmax s = head_softmax(x + h * width, lo, hi, range, selectable);
		if (threadIdx.x == 0) heads[h] = s;
	}
	c.sync();
	for (int h = threadIdx.x; h < group_heads; h += blockDim.x) heads[h].log = merge_softmax(c, heads + h).log;
	float best = -infinity();
	for (int h = threadIdx.x; h < group_heads; h += blockDim.x) {
		HeadSoftmax s = merge_softmax(c, heads + h);
		best = max_of(best, s.best + s.log);
	}
	best = reduce_block(best, -infinity(), Max());
	if (threadIdx.x == 0) shift[0] = best > -infinity() ? best : 0;
	__syncthreads();
	for (int h = threadIdx.x; h < group_heads; h += blockDim.x) heads[h].log -= shift[0];
	__syncthreads();
}

// reuse_rank (select) selects for the head groups that reuse_selection has scored, lists what they
// select and makes their entries. Grid: (head group, slot, block of the cluster). A group of several
// heads costs two passes more over its scores in L2, the softmax of each head and their sum. Bound by
// those and by the latency of the cluster's barriers; by its launch where all groups reuse.
KERNEL_2_PER_SM(reuse_rank, ReuseArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	ClusterScratch& s = *scratch;
	int head_group = blockIdx.x, slot = blockIdx.y, p = first_position(a.g, slot), group_heads = (int)(a.cache.heads / a.cache.head_groups), number;
	bool good = p >= 0 && p < a.width && page_table_valid(a.g, slot, p);
	pdl_wait();
	i64 item = slot * a.cache.head_groups + head_group;
	if (!good || (i32)__float_as_uint(ld_cg((const float*)a.cache.found + item)) >= 0) return;
	ClusterBlock c = this_block();
	block_origin(a.cache, slot, p, number);
	VisibleRange selectable = selectable_range(a.plan, p), scored = group_heads == 1 ? selectable : visible_range(a.plan.span, p);
	const float* x = a.scores + (slot * a.cache.heads + head_group * group_heads) * a.width;
	HeadSoftmax* heads = (HeadSoftmax*)((u32*)(scratch + 1) + a.staged);
	if (group_heads > 1) group_softmax(c, heads, x, a.width, group_heads, scored, selectable);
	RankedScores load = {x + selectable.lo, a.width, group_heads, heads, selectable};
	ListPart<RankedScores> part = list_part(c, s, max_of(selectable.hi - selectable.lo, 0), (int)a.staged, load);
	i64 budget = selection_budget(a.cache, p + 1), k = min_of(budget, a.cache.max_selected);
	i64 best = min_of(a.widened_share > 0 ? (i64)floor(a.widened_share * (double)budget + 1e-9) : a.widened, k);
	auto one = [](u32, u32) { return (u64)1; };
	Threshold<u32> cut = select_none(), widened = select_none();
	if (k > 0) cut = cluster_threshold<false>(c, s, part, one, [&](u64) { return (u64)k; });
	i32 *index = entry_selection(a.cache, slot, head_group, number), *list = a.index + item * a.cap;
	i64 first = 0;  // entries that get neighbors
	if (best > 0 && best < k && a.neighbors > 0) {
		c.sync();
		widened = cluster_threshold<false>(c, s, part, one, [&](u64) { return (u64)best; }, false);
		first = cluster_compact(c, s, part, widened, select_none(), OneEntry(), [&](int i, i64 to) { index[to] = selectable.lo + i; }).all;
		c.sync();
	}
	cluster_compact(c, s, part, cut, widened, OneEntry(), [&](int i, i64 to) { index[first + to] = selectable.lo + i; });
	c.sync();
	i64 all = cluster_compact(c, s, part, cut, select_none(), OneEntry(), [&](int i, i64 to) {
		if (to < a.cap) list[to] = selectable.lo + i;
	}).all;
	if (threadIdx.x == 0 && c.rank == 0) {
		if (all > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[item] = (i32)min_of(all, a.cap);
		record_selection(a, slot, head_group, p, number, (int)all, scored);
	}
	c.sync();  // peers have read the counts
}

struct ReuseAttendArgs {
	ReuseArgs r;
	float* dst;                             // [slots, heads, dim]
	i64 early;                              // what earlier steps stored and selected is complete before pdl_wait
	i64 listed;                             // positions of a list in shared memory
	i64 marks, own, local, cos_q, records;  // offsets in shared memory, bytes
};

// saved_state rebuilds the state of a block of reuse_attend from shared memory, where its position,
// step and origin are kept, so that it takes no registers in between.
__device__ __forceinline__ ReuseState saved_state(const ReuseAttendArgs& x, i64 item, unsigned char* shared, const int* saved) {
	ReuseState r;
	r.head_group = blockIdx.y;
	r.slot = blockIdx.z;
	r.group_heads = 1;
	r.item = item;
	r.p = saved[0];
	r.number = saved[1];
	r.start = r.p - r.number;
	r.since = saved[2];
	r.bins = (u32*)shared;
	r.ranks = (u64*)shared + BINS / 2;
	r.marks = (u64*)(shared + x.marks);
	r.local = (float*)(shared + x.local);
	r.cos_q = (float*)(shared + x.cos_q);
	r.records = (i32*)(shared + x.records);
	return r;
}

// mark_always clears the marks and sets the bits of sinks and window in own.
__device__ __forceinline__ void mark_always(const ReuseArgs& a, int p, u64* marks, u64* own) {
	VisibleRange all = visible_range(a.plan.span, p);
	int recent = recent_of(a.plan, p);
	for (int w = threadIdx.x; w <= p / PAGE; w += blockDim.x) {
		marks[w] = 0;
		own[w] = (range_bits(w, 0, (int)a.plan.sink) | range_bits(w, recent, p + 1)) & range_bits(w, all.lo, all.hi) & ~range_bits(w, all.gap, all.over);
	}
}

// guess_entry is the entry whose selection the newest step of the block read, -1 if there is none;
// it loads the entries, prefetches that step's query, and fills saved.
template <int DIM>
__device__ __forceinline__ int guess_entry(const ReuseArgs& a, i64 item, int p, i32* records, int* saved) {
	int number, since = a.cache.since[blockIdx.z], start = block_origin(a.cache, blockIdx.z, p, number), newest = -1;
	if (threadIdx.x == 0) {
		saved[0] = p;
		saved[1] = number;
		saved[2] = since;
	}
	const i32* from = entry_record(a.cache, blockIdx.z, blockIdx.y, 0);
	for (int i = threadIdx.x; i < number; i += blockDim.x) {
		for (int c = 0; c < 3; c++) records[3 * i + c] = from[3 * i + c];
		int at = records[3 * i] - 1;
		if (at == start + i && at >= since) newest = i;
	}
	newest = reduce_block(newest, -1, Max());
	if (newest >= 0 && threadIdx.x < DIM / 8) prefetch_l2(a.cache.query + (item * a.cache.block + newest) * DIM + threadIdx.x * 8);
	return newest < 0 ? -1 : records[3 * newest + 1];
}

// list_rows lists the cache rows of the marked positions and of sinks and window, ascending, up to
// limit of them, and returns their number; saved[3] becomes the number of marked ones.
__device__ __forceinline__ int list_rows(const ReuseArgs& a, const u64* marks, const u64* own, int* where, int limit, int* saved) {
	constexpr int PIECE = 16;  // bits of a thread at a time
	const u16 *pieces = (const u16*)marks, *own_pieces = (const u16*)own;
	ThreadRange r = thread_range((saved[0] / PAGE + 1) * (PAGE / PIECE));
	u64 mine = 0, total;  // marked positions in the low half, all in the high half
	for (int w = (int)r.lo; w < r.hi; w++) mine += (u64)__popc((u32)(pieces[w] | own_pieces[w])) << 32 | (u64)__popc((u32)pieces[w]);
	int to = (int)(scan_block(mine, total) >> 32);
	if (threadIdx.x == 0) saved[3] = (int)(u32)total;
	int n = min_of((int)(total >> 32), limit);
	for (int w = (int)r.lo; w < r.hi; w++) {
		u32 bits = pieces[w] | own_pieces[w];
		if (!bits) continue;
		int page = a.g.table[(i64)blockIdx.z * a.g.width + w / (PAGE / PIECE)];
		int from = (page * (int)a.g.heads + (int)blockIdx.y) * PAGE + w % (PAGE / PIECE) * PIECE;
		for (; bits; bits &= bits - 1, to++) {
			if (to < n) where[to] = from + __ffs((int)bits) - 1;
		}
	}
	__syncthreads();
	return n;
}

// find_reused stores the step's query, finds the entry that it reuses and records that it does.
template <int DIM>
__device__ __forceinline__ int find_reused(const ReuseArgs& a, const ReuseState& r) {
	for (int i = threadIdx.x; i < DIM; i += blockDim.x) {
		float q = a.cos_q[r.item * DIM + i];
		r.cos_q[i] = q;
		a.cache.query[(r.item * a.cache.block + r.number) * DIM + i] = q;
	}
	__syncthreads();
	int found = find_entry(a, r);
	if (threadIdx.x == 0) {
		a.cache.found[r.item] = found;
		if (min_of(selection_budget(a.cache, r.p + 1), (i64)r.p + 1) > a.cache.max_selected) fail(a.g.failure, FAIL_LIST, a.cache.max_selected, 0, 0);
	}
	if (found >= 0) record_reuse(a, r, found);
	return found;
}

// select_alone scores all keys of a head in its only block, and selects.
template <int DIM>
__device__ __forceinline__ void select_alone(const ReuseAttendArgs& x, i64 item, unsigned char* shared, const int* saved) {
	const ReuseArgs& a = x.r;
	{
		VisibleRange selectable = selectable_range(a.plan, saved[0]);
		float* scores = (float*)(shared + x.local);
		int lo = selectable.lo / PAGE * PAGE;
		Keys keys = {(int)blockIdx.z, (int)blockIdx.y, lo, max_of(selectable.hi - lo, 0)};
		auto some = [&](int i) { return selectable.contains(lo + i); };
		auto put = [&](int, int i, float sum) {
			scores[lo + i] = sum * (1 / sqrtf((float)DIM));
			count_nan(a.g, sum);
		};
		score_keys_mma<DIM>(a.g, keys, a.q + item * DIM, 1, (Word4*)shared, some, put);
	}
	__syncthreads();
	ReuseState r = saved_state(x, item, shared, saved);
	VisibleRange selectable = selectable_range(a.plan, r.p);
	store_selection(a, r, selectable, r.local);
}

// reuse_attend is `reuse` and the attention over what it lists, in one launch, for heads that do
// not share keys and fill the GPU with a block each. A block speculates that the step may reuse
// the newest selection: it lists and prefetches that before it has compared the queries, before
// the preceding kernel is done where `early` allows, and starts over where it was wrong. Where the
// list leaves nothing out decode_whole attends. Grid: (1, head, slot). Bound by gathering the
// listed keys and values, or by reading all keys where the head selects.
template <int DIM>
__device__ __forceinline__ void reuse_attend(const ReuseAttendArgs& x) {
	using Lane = Gatherer<DIM>;
	constexpr int PIECES = Lane::PIECES, ROWS = Lane::ROWS, STAGES = GATHER_STAGES, TAKEN = Lane::TAKEN;
	constexpr int WARPS = REUSE_THREADS / WARP, STATES = WARPS * ROWS;
	const ReuseArgs& a = x.r;
	DYNAMIC_SHARED(unsigned char, shared);
	SHARED(SoftmaxState, states, STATES);
	SHARED(int, saved, 5);  // position, step and origin; reloaded where they are needed, to free registers
	int p = first_position(a.g, blockIdx.z);
	if (p < 0 || !page_table_valid(a.g, blockIdx.z, p) || p >= a.width) {
		pdl_wait();
		pdl_trigger();
		if (p >= a.width && threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	u64 *marks = (u64*)(shared + x.marks), *own = (u64*)(shared + x.own);  // [p/PAGE+1]; own: sinks and window
	int* where = (int*)(shared + x.local);                                 // [listed]: rows of the cache
	i64 item = (i64)blockIdx.z * a.cache.head_groups + blockIdx.y;
	auto reload = [&]() { return saved_state(x, item, shared, saved); };
	mark_always(a, p, marks, own);
	if (!x.early) pdl_wait();
	int guess = guess_entry<DIM>(a, item, p, (i32*)(shared + x.records), saved), n = 0;
	auto list_up = [&]() { n = list_rows(a, marks, own, where, (int)x.listed, saved); };
	Gathered* ring = (Gathered*)shared + warp() * STAGES;
	int piece = lane() % PIECES * 8, next = 0, into = 0;
	auto fetch = [&]() {
		if (next < n) {
#pragma unroll
			for (int t = 0; t < GATHER_LOADS; t++) {
				int i = next + t * ROWS + lane() / PIECES;
				i64 place = (i64)(i < n ? where[i] : 0) * DIM + piece;
				cp_async_zfill(&ring[into].k[t][lane()], (const u16*)a.g.k + place, i < n);
				cp_async_zfill(&ring[into].v[t][lane()], (const u16*)a.g.v + place, i < n);
			}
		}
		cp_async_commit();
		next += WARPS * TAKEN;
		if (++into == STAGES) into = 0;
	};
	int prefetched = 0;
	if (guess >= 0) {
		{
			ReuseState r = reload();
			mark_reused(a, r, selectable_range(a.plan, r.p), guess);
		}
		__syncthreads();
		list_up();
		next = warp() * TAKEN;
		// The row's own position, the last of the list, is stored by a preceding kernel.
		prefetched = x.early ? min_of((n - 1) / (WARPS * TAKEN), STAGES) : STAGES;
		for (int i = 0; i < prefetched; i++) fetch();
	}
	if (x.early) pdl_wait();
	pdl_trigger();
	for (int i = prefetched; guess >= 0 && i < STAGES; i++) fetch();
	bool selects;
	{
		ReuseState r = reload();
		int found = find_reused<DIM>(a, r);
		selects = found < 0;
		if (selects || found != guess) {
			cp_async_wait<0>();
			for (int w = threadIdx.x; w <= r.p / PAGE; w += blockDim.x) marks[w] = 0;
			__syncthreads();
			if (found >= 0) mark_reused(a, r, selectable_range(a.plan, r.p), found);
			guess = -1;
		}
	}
	if (selects) select_alone<DIM>(x, item, shared, saved);
	if (guess < 0) {
		__syncthreads();
		list_up();
		next = warp() * TAKEN;
		into = 0;
		for (int i = 0; i < STAGES; i++) fetch();
	}
	if (threadIdx.x == 0) {
		if (saved[3] > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[item] = min_of(saved[3], (int)a.cap);
	}
	if (saved[3] >= selected_region(a.plan, saved[0]).n) {
		cp_async_wait<0>();
		bitmap_to_list(marks, saved[0] / PAGE + 1, a.index + item * a.cap, a.count[item], a.cap, a.g.failure);
		return;
	}
	Lane mine;
	mine.load_query(a.q + item * DIM);
	int stage = 0;
	for (int first = warp() * TAKEN; first < n; first += WARPS * TAKEN) {
		cp_async_wait<STAGES - 1>();
		mine.load_stage(ring[stage]);
		fetch();
		if (++stage == STAGES) stage = 0;
		mine.add(false, [&](int t) { return first + t * ROWS + lane() / PIECES < n ? 0 : -infinity(); });
	}
	cp_async_wait<0>();
	__syncthreads();
	mine.template merge<WARPS>(x.dst + item * DIM, (float*)shared, states, false);
}

KERNEL_4_PER_SM(reuse_attend_64, ReuseAttendArgs, REUSE_THREADS) { reuse_attend<64>(a); }
KERNEL_4_PER_SM(reuse_attend_128, ReuseAttendArgs, REUSE_THREADS) { reuse_attend<128>(a); }
