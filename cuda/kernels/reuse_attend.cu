// A step of the selection cache and its attention in one launch, for heads that do not share keys and
// fill the GPU with a block each: see selection_cache.cu.
#include "gathered.cuh"
#include "histogram_select.cuh"
#include "scores.cuh"
#include "selection_cache.cuh"
#include "state.cuh"

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
// better ones in the bin. Where scores crowd a bin, x is overwritten with keys. histogram is [BINS].
__device__ inline int select_best(u32* histogram, u64* ranks, u64* marks, const VisibleRange& range, float* x, i32* index, int want) {
	constexpr int SCORES = 8;
	if (want <= 0 || range.hi <= range.lo) return 0;
	auto at = [&](int j, float& s) { return range.outside_gap(j) && (s = x[j]) > -infinity(); };
	LinearBins bins;
	CutBin cut_bin = find_cut_bin<REUSE_THREADS, SCORES>(range.lo, range.hi, (u32)want, histogram, bins, at);
	if (cut_bin.overfull) return select_sorted(ranks, marks, range, x, index, want);
	for_each_score<SCORES>(range.lo, range.hi, at, [&](const int* j, const float* s, const bool* there) {
		u32 to[SCORES];
		bool in[SCORES];
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			int bin = there[i] ? bins.of(s[i]) : BINS;
			in[i] = bin <= cut_bin.bin;
			if (in[i]) to[i] = atomicAdd(&histogram[bin], 1u);
		}
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			if (in[i]) ranks[to[i]] = rank_key(s[i], j[i]);
		}
	});
	__syncthreads();  // a bin now has the start of the next one
	for (int i = threadIdx.x; i < cut_bin.taken; i += blockDim.x) {
		u64 rank = ranks[i];
		int j = rank_position(rank), bin = bins.of(x[j]);
		int to = bin > 0 ? (int)histogram[bin - 1] : 0;
		for (int other = to, end = (int)histogram[bin]; other < end; other++) to += ranks[other] > rank;
		if (to >= want) continue;
		index[to] = j;
		set_bit(marks, j);
	}
	__syncthreads();
	return min_of(cut_bin.taken, want);
}

struct ReuseAttendArgs {
	ReuseArgs r;
	float* dst;                             // [slots, heads, dim]
	i64 early;                              // what earlier steps stored and selected is complete before pdl_wait
	i64 listed;                             // positions of a list in shared memory
	i64 marks, own, local, cos_q, records;  // offsets in shared memory, bytes
};

// saved_step rebuilds the step of a block from shared memory, where it is kept, so that it takes no
// registers in between.
__device__ __forceinline__ CacheStep saved_step(const int* saved) {
	CacheStep t = {(int)blockIdx.z, saved[0], saved[0] - saved[1], saved[1], saved[2]};
	return t;
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
// found is a word of shared memory.
template <int DIM>
__device__ __forceinline__ int find_reused(const ReuseAttendArgs& x, i64 item, unsigned char* shared, const int* saved, int* found) {
	const ReuseArgs& a = x.r;
	float* query = (float*)(shared + x.cos_q);
	CacheStep t = saved_step(saved);
	for (int i = threadIdx.x; i < DIM; i += blockDim.x) {
		float q = a.cos_q[item * DIM + i];
		query[i] = q;
		a.cache.query[(item * a.cache.block + t.number) * DIM + i] = q;
	}
	find_entries(a, t, blockIdx.y, 1, query, (const i32*)(shared + x.records), found);
	if (threadIdx.x == 0) {
		a.cache.found[item] = *found;
		check_budget(a, t.p);
		if (*found >= 0) record_reuse(a, t, blockIdx.y, *found);
	}
	return *found;
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
	CacheStep t = saved_step(saved);
	VisibleRange selectable = selectable_range(a.plan, t.p);
	i64 k = min_of(selection_budget(a.cache, t.p + 1), a.cache.max_selected);
	i32* index = entry_selection(a.cache, t.slot, blockIdx.y, t.number);
	int n = select_best((u32*)shared, (u64*)shared + BINS / 2, (u64*)(shared + x.marks), selectable, (float*)(shared + x.local), index, (int)k);
	if (threadIdx.x == 0) record_selection(a, t.slot, blockIdx.y, t.p, t.number, n, selectable);
}

// reuse_attend lists what a head reads, and attends to that. A block speculates that the step may reuse
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
	SHARED(int, saved, 5);  // position, step, origin, positions listed, and the entry found; reloaded where they are needed, to free registers
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
			CacheStep t = saved_step(saved);
			mark_reused(a, t, blockIdx.y, (const i32*)(shared + x.records), selectable_range(a.plan, t.p), guess, marks);
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
		int found = find_reused<DIM>(x, item, shared, saved, saved + 4);
		CacheStep t = saved_step(saved);
		selects = found < 0;
		if (selects || found != guess) {
			cp_async_wait<0>();
			for (int w = threadIdx.x; w <= t.p / PAGE; w += blockDim.x) marks[w] = 0;
			__syncthreads();
			if (found >= 0) mark_reused(a, t, blockIdx.y, (const i32*)(shared + x.records), selectable_range(a.plan, t.p), found, marks);
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
