// Residual sampling on tensor cores, over an f16 cache, for the plain call: lists without weights, a
// sample of what they leave without replacement, sized for the softmax denominator. sample_residual.cu
// defines what is listed, and does what this does not.
//
// A cluster lists an item, and each block has consecutive pages of it, with the bitmap of I in them and
// the number of elements of R: no block builds what another has. Draws are indices of R. A block
// makes its share of them and sets their bits in the shared memory of the blocks whose pages have them;
// the bits of a page are then spread over its positions of R in one step, so that no position is
// searched for.
//
// A chunk of up to four pages belongs to a warp, which lists the keys of I and of the pilot in it and scores
// them 8 at a time (keys.cuh): a lane loads 16 bytes of a key to registers, so that keys may lie anywhere.
// Scores go through shared memory to the lanes that sum their exponentials. Chunks depend on the
// length of the row only, and their moments are merged in one order: what is sampled does not depend on
// the number of blocks, to the bit. Blocks meet three times, for the sizes of their parts, the pilot and
// the moments, and twice more where a larger sample is needed.
#include "keys.cuh"
#include "row_scores.cuh"
#include "sample_residual.cuh"

constexpr int REST_THREADS = 512;
constexpr int REST_HEADS = 8;                // of a group: rows of the mma, twice
constexpr int REST_CHUNK = 4;                // pages of a chunk, at most
constexpr int REST_CHUNKS = 512;             // of a row that has so many pages, at least
constexpr int REST_AHEAD = 3;                // tiles of 8 keys that a warp has in flight
constexpr int REST_BATCH = 8 * REST_AHEAD;   // keys whose exponentials are summed at a time
constexpr u32 BAD_PAGES = 1u << 31;          // in place of the size of a part

// WarpKeys is a warp's shared memory for the keys of a chunk.
struct WarpKeys {
	u16 list[REST_CHUNK * PAGE];  // positions from the chunk's first on
	float scores[REST_HEADS][REST_BATCH];
	u32 unused[192];  // the lists of a selection before have this room, too
};
static_assert(sizeof(WarpKeys) == 2 * WARP_LIST * sizeof(u32), "the host reckons with it");

// KeyMoments are sums over keys of exp(score - top): of I, of the pilot, and of its squares.
struct KeyMoments {
	float top, unused;  // the largest score
	f64 fixed, pilot, squares;
};
static_assert(sizeof(KeyMoments) == 32, "the host reckons with it");

// rescale_moments makes them relative to a score that is not less than top.
__device__ __forceinline__ void rescale_moments(KeyMoments& m, float top) {
	double scale = m.top > -infinity() ? (double)expf(m.top - top) : 0;
	m.top = top;
	m.fixed *= scale;
	m.pilot *= scale;
	m.squares *= scale * scale;
}

__device__ __forceinline__ void merge_moments(KeyMoments& m, KeyMoments other) {
	float top = max_of(m.top, other.top);
	rescale_moments(m, top);
	rescale_moments(other, top);
	m.fixed += other.fixed;
	m.pilot += other.pilot;
	m.squares += other.squares;
}

// merge_lanes merges the moments of lanes whose numbers differ in a bit.
__device__ __forceinline__ void merge_lanes(KeyMoments& m, int bit) {
	KeyMoments other = {__shfl_xor_sync(FULL_MASK, m.top, bit), 0, __shfl_xor_sync(FULL_MASK, m.fixed, bit), __shfl_xor_sync(FULL_MASK, m.pilot, bit), __shfl_xor_sync(FULL_MASK, m.squares, bit)};
	merge_moments(m, other);
}

__device__ __forceinline__ KeyMoments no_moments() {
	KeyMoments m = {-infinity(), 0, 0, 0, 0};
	return m;
}

// Rest is an item, and the block's part of it. Pages of the part are counted from lo on.
struct Rest {
	ReadMap i;            // of which the row, the heads and the inner pages are used
	u64* fixed;           // [part]: I
	u64* sampled;         // [part]: the sample
	u32* drawn;           // [2·part + 2]: bit r is set where index start[rank] + r of R is drawn
	u32* before;          // [part]: positions of R in the part's pages before
	u32* keys;            // [part]: where a page's keys of the kv head lie in the cache, in runs of PAGE keys
	WarpKeys* own;        // of the warp
	u32* next;            // how many of the block's chunks are taken
	u32* start;           // [MAX_CLUSTER + 1]: the first index of R of each block; behind the last, n
	KeyMoments* moments;  // [heads of the group, chunks]
	u32* counts;          // [MAX_CLUSTER]: what each block lists
	int row, head_group, n, pilot;
	int lo, hi, part;  // pages of the block; part: of any block, at most
	int chunk_pages, chunks;
};

__device__ __forceinline__ u64 rest_bits(const ResidualArgs& a, const Rest& t, int i) { return map_spanned(t.i, a.plan, t.lo + i) & ~t.fixed[i]; }
__device__ __forceinline__ u64 listed_bits(const ResidualArgs& a, const Rest& t, int i) { return (t.fixed[i] & ~map_edges(t.i, a.plan, t.lo + i)) | t.sampled[i]; }

// locate_rest finds an item and the block's part of it; false if its row is skipped.
__device__ inline bool locate_rest(const ResidualArgs& a, Rest& t, const ClusterBlock& c) {
	i64 item = a.first + blockIdx.x;
	t.row = (int)(item / a.head_groups);
	t.head_group = (int)(item % a.head_groups);
	t.i.group_heads = (int)(a.heads / a.head_groups);
	t.i.head = t.head_group * t.i.group_heads;
	t.i.kv_head = t.i.head * (int)a.g.heads / (int)a.heads;
	t.i.at = row_position(a.g, t.row);
	if (t.i.at.p < 0) return false;
	t.i.words = t.i.at.p / PAGE + 1;
	t.n = t.pilot = 0;
	t.chunk_pages = 1 << min_of(31 - __clz(max_of(t.i.words / REST_CHUNKS, 1)), 2);
	t.chunks = (t.i.words + t.chunk_pages - 1) / t.chunk_pages;
	t.part = (t.chunks + c.size - 1) / c.size * t.chunk_pages;
	t.lo = min_of(c.rank * t.part, t.i.words);
	t.hi = min_of(t.lo + t.part, t.i.words);
	t.moments = (KeyMoments*)(a.work + blockIdx.x * a.item);
	t.counts = (u32*)(t.moments + t.i.group_heads * t.chunks);
	find_inner(t.i, a.plan);
	return true;
}

// lay_out places the block's bitmaps and lists in shared memory. The host reckons the same layout.
__device__ inline void lay_out(Rest& t, u8* shared) {
	t.fixed = (u64*)shared;
	WarpKeys* warps = (WarpKeys*)(t.fixed + t.part);
	t.own = warps + warp();
	t.sampled = (u64*)(warps + blockDim.x / WARP);
	t.drawn = (u32*)(t.sampled + t.part);
	t.before = t.drawn + 2 * t.part + 2;
	t.keys = t.before + t.part;
}

// fix_entries sets the bits of a list's entries in the block's part, as add_entries of read_map.cuh.
__device__ inline void fix_entries(const ResidualArgs& a, const Rest& t, const Entries& e) {
	constexpr int IN_FLIGHT = 16;
	bool tokens = a.plan.selected == SELECTED_TOKENS;
	for (int first = threadIdx.x; first < e.n; first += IN_FLIGHT * blockDim.x) {
		i32 entry[IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) entry[i] = ld_cg(e.index + min_of(first + i * (int)blockDim.x, e.n - 1));
#pragma unroll
		for (int i = 0; i < IN_FLIGHT; i++) {
			int j = entry[i], w = tokens ? j / PAGE : j;
			if (first + i * (int)blockDim.x >= e.n || j < 0 || w < t.lo || w >= t.hi) continue;
			u64 bits = (tokens ? 1ull << j % PAGE : ~0ull) & map_spanned(t.i, a.plan, w);
			if (bits) set_bits(t.fixed, w - t.lo, bits);
		}
	}
}

// fix_listed makes the bitmap of I in the block's part. All threads call it.
__device__ inline void fix_listed(const ResidualArgs& a, const Rest& t) {
	for (int i = threadIdx.x; i < t.hi - t.lo; i += blockDim.x) t.fixed[i] = map_edges(t.i, a.plan, t.lo + i);
	__syncthreads();
	const i32* last = nullptr;  // heads may share a list
	for (int u = 0; u < t.i.group_heads && a.plan.list.index && a.plan.selected != SELECTED_NONE; u++) {
		Entries e = group_entries(t.i, a.plan, a.g, a.heads, u);
		if (e.index == last) continue;
		fix_entries(a, t, e);
		last = e.index;
	}
	__syncthreads();
}

// count_part counts the positions of R in the block's part: how many, or BAD_PAGES. All threads call it.
__device__ inline u32 count_part(const ResidualArgs& a, const Rest& t) {
	int pages = t.hi - t.lo;
	bool bad = false;
	for (int i = threadIdx.x; i < pages; i += blockDim.x) {
		int page = page_of(a.g, t.i.at.slot, t.lo + i);
		bad |= page < 0;
		t.keys[i] = (u32)(page * (int)a.g.heads + t.i.kv_head);
	}
	for (int i = threadIdx.x; i < 2 * pages + 2; i += blockDim.x) t.drawn[i] = 0;
	int n = count_pages(t.before, pages, [&](int i) { return rest_bits(a, t, i); });
	return reduce_block((int)bad, 0, Max()) ? BAD_PAGES : (u32)n;
}

// exchange_sizes gives every block the sizes of all parts; false if a page table is invalid. All
// threads call it.
__device__ inline bool exchange_sizes(Rest& t, const ClusterBlock& c, const u32* size) {
	if (warp() == 0) {
		u32 own = c.of_lane(size), upto = own;
		for (int by = 1; by < WARP; by *= 2) {
			u32 left = __shfl_up_sync(FULL_MASK, upto, by);
			if (lane() >= by) upto += left;
		}
		bool bad = __ballot_sync(FULL_MASK, own == BAD_PAGES) != 0;
		if (lane() <= MAX_CLUSTER) t.start[lane()] = bad ? BAD_PAGES : upto - own;
	}
	__syncthreads();
	t.n = (int)t.start[MAX_CLUSTER];
	return t.start[0] != BAD_PAGES;
}

// draw_indices draws numbers from to until-1 of the sample.
__device__ inline void draw_indices(const ResidualArgs& a, const Rest& t, const ClusterBlock& c, int from, int until) {
	Shuffle shuffle = shuffle_of(sampler_address(a, t.i.at, t.head_group, FOR_KEYS), (u32)t.n);
	for (int i = from + c.rank * (int)blockDim.x + (int)threadIdx.x; i < until; i += c.size * (int)blockDim.x) {
		u32 r = shuffle.at((u32)i);
		int owner = 0;
#pragma unroll
		for (int b = 1; b < MAX_CLUSTER; b++) owner += b < c.size && t.start[b] <= r;
		r -= t.start[owner];
		if (c.size > 1)
			dsmem_or(t.drawn + r / 32, 1u << r % 32, owner);
		else
			atomicOr(t.drawn + r / 32, 1u << r % 32);
	}
}

// spread_bits moves the low bits of x to the set bits of a mask, in order.
__device__ __forceinline__ u64 spread_bits(u64 x, u64 mask) {
	for (u64 gaps = ~mask; gaps; gaps &= gaps - 1) {
		u64 below = (gaps & (~gaps + 1)) - 1;
		x = (x & below) | (x & ~below) << 1;
	}
	return x;
}

// place_sample finds the positions of what was drawn, or of all of R, in the block's part, and
// returns how many positions the block lists. All threads call it.
__device__ inline u32 place_sample(const ResidualArgs& a, const Rest& t, bool all) {
	u32 listed = 0;
	for (int i = threadIdx.x; i < t.hi - t.lo; i += blockDim.x) {
		u64 rest = rest_bits(a, t, i), bits = rest;
		if (!all && rest) {
			u32 at = t.before[i], by = at % 32;
			const u32* from = t.drawn + at / 32;
			bits = ((u64)from[1] << 32 | from[0]) >> by;
			if (by > 0) bits |= (u64)from[2] << (64 - by);
			bits = spread_bits(bits, rest);
		}
		t.sampled[i] = bits;
		listed += __popcll(listed_bits(a, t, i));
	}
	listed = reduce_block(listed, 0u, Plus());
	return listed;
}

// ChunkKeys are the keys of a chunk: so many of I, then those of the pilot.
struct ChunkKeys {
	int fixed, all;
};

// list_chunk lists the keys of a chunk. All lanes of a warp call it.
__device__ __forceinline__ ChunkKeys list_chunk(const Rest& t, int chunk) {
	int half = 2 * (chunk * t.chunk_pages - t.lo) + lane();  // 32 positions
	bool there = lane() < 2 * t.chunk_pages && half < 2 * (t.hi - t.lo);
	u32 fixed = there ? ((const u32*)t.fixed)[half] : 0, pilot = there ? ((const u32*)t.sampled)[half] : 0;
	u32 own = __popc(fixed) | __popc(pilot) << 16, upto = own;
	for (int by = 1; by < WARP; by *= 2) {
		u32 left = __shfl_up_sync(FULL_MASK, upto, by);
		if (lane() >= by) upto += left;
	}
	u32 all = __shfl_sync(FULL_MASK, upto, WARP - 1);
	ChunkKeys keys = {(int)(all & 0xffff), (int)((all & 0xffff) + (all >> 16))};
	upto -= own;
	int to = (int)(upto & 0xffff);
	for (; fixed; fixed &= fixed - 1) t.own->list[to++] = (u16)(lane() * 32 + __ffs((int)fixed) - 1);
	to = keys.fixed + (int)(upto >> 16);
	for (; pilot; pilot &= pilot - 1) t.own->list[to++] = (u16)(lane() * 32 + __ffs((int)pilot) - 1);
	__syncwarp();
	return keys;
}

// HeadLanes are the lanes that sum the exponentials of a head: so many, of which this is number
// `place`. The last lanes may have none.
struct HeadLanes {
	int head, place, lanes;
};

__device__ __forceinline__ HeadLanes head_lanes(int heads) {
	int lanes = WARP;
	while (lanes * heads > WARP) lanes /= 2;
	HeadLanes h = {lane() / lanes, lane() % lanes, lanes};
	return h;
}

// add_batch adds the scores of a batch of keys, from number `base` of the chunk on, to the moments of the
// lane's head.
__device__ __forceinline__ void add_batch(const PagedKV& g, KeyMoments& m, const float* scores, const HeadLanes& h, int base, const ChunkKeys& keys) {
	float top = m.top;
	int n = min_of(keys.all - base, REST_BATCH), nans = 0;
	for (int i = h.place; i < n; i += h.lanes) {
		top = max_of(top, scores[i]);
		nans += scores[i] != scores[i];
	}
	if (nans > 0) atomicAdd(&g.failure->nans, (unsigned long long)nans);
	if (top > m.top) rescale_moments(m, top);
	for (int i = h.place; i < n; i += h.lanes) {
		double x = scores[i] > -infinity() ? (double)expf(scores[i] - top) : 0;
		if (base + i < keys.fixed) {
			m.fixed += x;
		} else {
			m.pilot += x;
			m.squares += x * x;
		}
	}
}

// score_part writes the moments of the block's chunks, of which a warp takes one after the other, first
// the last, which has the window. Keys of the next are on their way when those of one are
// summed. query is [heads of the group, DIM]. Bound by reading keys that lie at random.
template <int DIM>
__device__ __forceinline__ void score_part(const ResidualArgs& a, const Rest& t, const float* query) {
	QueryFragment<DIM> q;
	bool valid = lane() / 4 < t.i.group_heads;
	load_query(q, query + (valid ? lane() / 4 : 0) * DIM, valid, 1 / sqrtf((float)DIM));
	Word4 raw[REST_AHEAD][DIM / 32];
	int first = t.lo / t.chunk_pages, chunks = (t.hi - t.lo + t.chunk_pages - 1) / t.chunk_pages, chunk;
	ChunkKeys next;
	auto load = [&](Word4 (&to)[DIM / 32], int key) {
		int at = t.own->list[min_of(key + lane() / 4, next.all - 1)];
		const u16* from = (const u16*)a.g.k + ((i64)t.keys[(chunk - first) * t.chunk_pages + at / PAGE] * PAGE + at % PAGE) * DIM + lane() % 4 * 8;
#pragma unroll
		for (int j = 0; j < DIM / 32; j++) ld_cg4((float*)to[j].w, (const float*)(from + j * 32));
	};
	auto begin = [&]() {
		u32 taken = lane() == 0 ? atomicAdd(t.next, 1u) : 0;
		taken = __shfl_sync(FULL_MASK, taken, 0);
		chunk = first + (taken == 0 ? chunks : (int)taken) - 1;
		next.all = -1;
		if (taken >= (u32)chunks) return;
		next = list_chunk(t, chunk);
#pragma unroll
		for (int i = 0; i < REST_AHEAD; i++) {
			if (i * 8 < next.all) load(raw[i], i * 8);
		}
	};
	HeadLanes h = head_lanes(t.i.group_heads);
	begin();
	while (next.all >= 0) {
		ChunkKeys keys = next;
		KeyMoments m = no_moments();
		KeyMoments* to = t.moments + h.head * t.chunks + chunk;
		for (int base = 0; base == 0 || base < keys.all; base += REST_BATCH) {
#pragma unroll
			for (int i = 0; i < REST_AHEAD; i++) {
				if (base + i * 8 >= keys.all) break;
				float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
				for (int j = 0; j < DIM / 32; j++) {
					mma_f16(c[0], q.q[2 * j], raw[i][j].w);
					mma_f16(c[1], q.q[2 * j + 1], raw[i][j].w + 2);
				}
				if (base + REST_BATCH + i * 8 < keys.all) load(raw[i], base + REST_BATCH + i * 8);
				float* s = t.own->scores[lane() / 4] + i * 8 + lane() % 4 * 2;
				s[0] = (c[0][0] + c[1][0] + c[0][2] + c[1][2]) * q.unit;
				s[1] = (c[0][1] + c[1][1] + c[0][3] + c[1][3]) * q.unit;
			}
			__syncwarp();
			if (base + REST_BATCH >= keys.all) begin();
			if (h.head < t.i.group_heads) add_batch(a.g, m, t.own->scores[h.head], h, base, keys);
			__syncwarp();  // scores have been read
		}
		for (int bit = 1; bit < h.lanes; bit *= 2) merge_lanes(m, bit);
		if (h.head < t.i.group_heads && h.place == 0) *to = m;
	}
}

// load_moments is load_peer of moments.
__device__ __forceinline__ KeyMoments load_moments(const KeyMoments* at) {
	union {
		float words[8];
		KeyMoments m;
	} u;
	ld_cg4(u.words, (const float*)at);
	ld_cg4(u.words + 4, (const float*)at + 4);
	return u.m;
}

// rest_size is the largest sample that a head of the group needs; every block finds the same. Several
// warps share the chunks of a head. All threads call it.
__device__ inline int rest_size(const ResidualArgs& a, const Rest& t) {
	SHARED(float, tops, REST_THREADS / WARP);
	SHARED(double, sums, REST_THREADS / WARP * 3);
	int heads = t.i.group_heads, warps = REST_THREADS / WARP / heads, u = min_of(warp() / warps, heads - 1);
	KeyMoments m = no_moments();
	int every = warps * WARP;
	for (int first = (int)threadIdx.x - u * every; first < t.chunks && warp() < heads * warps; first += 4 * every) {
		KeyMoments of[4];
#pragma unroll
		for (int i = 0; i < 4; i++) of[i] = load_moments(t.moments + u * t.chunks + min_of(first + i * every, t.chunks - 1));
#pragma unroll
		for (int i = 0; i < 4; i++) {
			if (first + i * every < t.chunks) merge_moments(m, of[i]);
		}
	}
	float top = reduce_warp(m.top, Max());
	if (lane() == 0) tops[warp()] = top;
	__syncthreads();
	for (int i = 0; i < warps; i++) top = max_of(top, tops[u * warps + i]);
	rescale_moments(m, top);
	m.fixed = reduce_warp(m.fixed, Plus());
	m.pilot = reduce_warp(m.pilot, Plus());
	m.squares = reduce_warp(m.squares, Plus());
	if (lane() == 0) {
		sums[3 * warp()] = m.fixed;
		sums[3 * warp() + 1] = m.pilot;
		sums[3 * warp() + 2] = m.squares;
	}
	__syncthreads();
	double want = 0;
	for (int first = 0; first < heads * warps; first += warps) {
		double fixed = 0, pilot = 0, squares = 0;
		for (int i = first; i < first + warps; i++) {
			fixed += sums[3 * i];
			pilot += sums[3 * i + 1];
			squares += sums[3 * i + 2];
		}
		double mean = pilot / t.pilot, variance = max_of(squares - pilot * mean, 0.0) / (t.pilot - 1);
		double needed = required_samples(a, t.n, t.n * sqrt(variance) / (fixed + t.n * mean));
		if (needed > want || needed != needed) want = needed;
	}
	return budget(want, t.n, t.pilot);
}

// write_part lists the block's part behind those of the blocks before, ascending: I between sinks and
// window with weight 1, and the sample with weight `each`.
__device__ inline void write_part(const ResidualArgs& a, const Rest& t, const ClusterBlock& c, float each) {
	i64 list = (i64)t.row * a.head_groups + t.head_group;
	u32 count = lane() < c.size ? (u32)ld_cg((const i32*)t.counts + lane()) : 0, before = warp_add(lane() < c.rank ? count : 0), all = warp_add(count), total;
	if (threadIdx.x == 0 && c.rank == 0) a.count[list] = (i32)all;
	ThreadRange r = thread_range(2 * (t.hi - t.lo));
	auto half_of = [](u64 bits, int half) { return (u32)(bits >> half % 2 * 32); };
	u32 mine = 0;
	for (int h = (int)r.lo; h < (int)r.hi; h++) mine += __popc(half_of(listed_bits(a, t, h / 2), h));
	i64 to = list * a.cap + before + scan_block(mine, total);
	for (int h = (int)r.lo; h < (int)r.hi; h++) {
		u32 own = ((const u32*)t.fixed)[h];
		for (u32 bits = half_of(listed_bits(a, t, h / 2), h); bits; bits &= bits - 1, to++) {
			int i = __ffs((int)bits) - 1;
			a.index[to] = t.lo * PAGE + h * 32 + i;
			a.weight[to] = own >> i & 1 ? 1 : each;
		}
	}
}

// sample_rest samples what the bitmap of I in the block's part leaves, and lists both: see
// sample_residual.cu. All threads of the cluster call it. Bound by reading the keys of I and the pilot,
// and the latency of three barriers.
template <int DIM>
__device__ __forceinline__ void sample_rest(const ResidualArgs& a, Rest& t, const ClusterBlock& c) {
	SHARED(u32, start, MAX_CLUSTER + 1);
	SHARED(u32, size, 1);
	SHARED(u32, next, 1);
	SHARED(float, query, REST_HEADS * DIM);
	t.start = start;
	t.next = next;
	bool sampling = a.pilot_count > 0 || a.pilot_share > 0, scoring = sampling && a.eps > 0 && a.z > 0;
	const float* q = a.q + ((i64)t.row * a.heads + t.i.head) * DIM;
	for (int i = threadIdx.x; scoring && i < t.i.group_heads * DIM; i += blockDim.x) query[i] = q[i];
	u32 own = count_part(a, t);
	if (threadIdx.x == 0) {
		size[0] = own;
		next[0] = 0;
	}
	c.sync();
	bool valid = exchange_sizes(t, c, size);
	int b = 0;
	if (valid && sampling && t.n < 2) b = t.n;
	if (valid && sampling && t.n >= 2) {
		t.pilot = pilot_size(a, t.n);
		b = a.eps > 0 ? t.pilot : t.n;
		if (b < t.n) draw_indices(a, t, c, 0, b);
	}
	c.sync();
	if (!valid) return;
	u32 listed = place_sample(a, t, b == t.n);
	if (threadIdx.x == 0) t.counts[c.rank] = listed;
	scoring = scoring && t.n >= 2;
	if (scoring) score_part<DIM>(a, t, query);
	c.sync();
	if (scoring) b = rest_size(a, t);
	if (scoring && b > t.pilot) {
		if (b < t.n) draw_indices(a, t, c, t.pilot, b);
		c.sync();
		listed = place_sample(a, t, b == t.n);
		if (threadIdx.x == 0) t.counts[c.rank] = listed;
		c.sync();
	}
	write_part(a, t, c, (float)((double)t.n / max_of(b, 1)));
}

// listed_rest (sample) does so for a plan's list. Grid: (item, 1, block of the cluster).
template <int DIM>
__device__ __forceinline__ void listed_rest(const ResidualArgs& a) {
	DYNAMIC_SHARED(u8, shared);
	pdl_trigger();
	Rest t;
	ClusterBlock c = this_block();
	bool there = locate_rest(a, t, c);
	pdl_wait();
	if (!there) return;
	if (t.i.at.p >= a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return;
	}
	lay_out(t, shared);
	fix_listed(a, t);
	sample_rest<DIM>(a, t, c);
}

KERNEL_1_PER_SM(residual_sample_64, ResidualArgs, REST_THREADS) { listed_rest<64>(a); }
KERNEL_1_PER_SM(residual_sample_128, ResidualArgs, REST_THREADS) { listed_rest<128>(a); }

struct TopSampleArgs {
	ResidualArgs rest;    // whose plan has no list
	const float* scores;  // [rows, head_groups, width]
	i64 width;
	i64 k;  // top-k of the row's positions, unless share > 0
	f64 share;
};

// fix_top makes the bitmap of I, sinks and window with the best scores; false if there are fewer
// scores than positions. All threads of the cluster call it.
__device__ inline bool fix_top(const TopSampleArgs& a, Rest& t, const ClusterBlock& c, ClusterScratch& s) {
	int n = t.i.at.p + 1;
	if (n > a.width) {
		if (threadIdx.x == 0 && c.rank == 0) fail(a.rest.g.failure, FAIL_SCORES, t.i.at.p, a.width, 0);
		return false;
	}
	i64 k = a.share > 0 ? (i64)floor(a.share * (double)n + 1e-9) : a.k;
	RowScores load = {a.scores + ((i64)t.row * a.rest.head_groups + t.head_group) * a.width, a.rest.g};
	ListPart<RowScores> part = list_part(c, s, n, (i64)t.part * PAGE, load);
	part.lo = min_of(t.lo * PAGE, n);
	part.hi = min_of(t.hi * PAGE, n);
	int warps = (int)blockDim.x / WARP, own = (part.hi - part.lo + warps * WARP - 1) / (warps * WARP) * WARP;
	part.from = warp() * own;
	part.until = min_of(part.from + own, part.hi - part.lo);
	if (k > 0) cluster_select<false>(c, s, part, [](u32, u32) { return (u64)1; }, [&](u64) { return (u64)k; });
	__syncthreads();
	for (int i = threadIdx.x; i < t.hi - t.lo; i += blockDim.x) {
		int w = t.lo + i;
		t.fixed[i] = map_edges(t.i, a.rest.plan, w) | (k > 0 ? t.fixed[i] & map_spanned(t.i, a.rest.plan, w) : 0);
	}
	__syncthreads();
	return true;
}

// top_rest (select, sample) is top_positions and listed_rest for its list, which is not written: what a
// block has selected is the bitmap that it goes on with. Grid: (item, 1, block of the cluster).
template <int DIM>
__device__ __forceinline__ void top_rest(const TopSampleArgs& a) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	Rest t;
	ClusterBlock c = this_block();
	bool there = locate_rest(a.rest, t, c);
	pdl_wait();
	if (!there) return;
	if (t.i.at.p >= a.rest.cap) {
		if (threadIdx.x == 0) fail(a.rest.g.failure, FAIL_LIST, a.rest.cap, 0, 0);
		return;
	}
	lay_out(t, (u8*)(scratch + 1));
	if (fix_top(a, t, c, *scratch)) sample_rest<DIM>(a.rest, t, c);
}

KERNEL_1_PER_SM(top_sample_64, TopSampleArgs, REST_THREADS) { top_rest<64>(a); }
KERNEL_1_PER_SM(top_sample_128, TopSampleArgs, REST_THREADS) { top_rest<128>(a); }
