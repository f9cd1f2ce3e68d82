// Value sampling (SANTA): positions drawn in proportion to their softmax, so that the mean of
// their values estimates attention and only the drawn rows of V are read. With F the cumulative
// softmax of what a head reads, draw k of S is the first position whose F reaches t_k:
//
//	systematic   t_k = (k + u)/S, one u for all k    stratified   t_k = (k + u_k)/S
//	independent  t_k = u_k
//
// Positions may be cut into tiles with draws of their own: S·mass of a tile rounded down and one
// more for the largest remainders (exec=prop), or S/tiles each, weighted by the tile's mass
// (exec=flash). Reference implementation: package cpu.
//
// value_scores (score) is spread over all multiprocessors: a block takes CHUNK positions of a kv
// head for all its heads, so that each key is read once. sample_values (sample) then has a block
// for each head, which does a binary search for every draw, first over chunks.
#include "radix_select.cuh"
#include "scores.cuh"
#include "state.cuh"
#include "values.cuh"

struct ValueArgs {
	i32 *index, *count;  // [rows, heads, cap], [rows, heads]
	float* weight;       // [rows, heads, cap]
	const float* q;      // [rows, heads, dim]
	u8* work;            // [items, item]: an item is a head of a row
	i64 item;            // bytes of an item's scratch
	i64 first;           // flat index row · kvheads + kv head of blockIdx.y 0
	i64 cap, heads;
	Values v;
	PagedKV g;
	Plan plan;
};

// ChunkSums is the softmax of what a head reads of CHUNK positions, relative to its maximum.
struct ChunkSums {
	double sum;  // Σ exp(score - top)
	float top;
	i32 n;
};

// ValueScratch is the scratch of an item. What a head reads of a chunk is packed at the chunk's
// start, in order.
struct ValueScratch {
	double* sums;       // [positions]: Σ exp(score - top) from the chunk's start, inclusive
	double* remainder;  // [tiles]: S·mass less the samples allotted
	ChunkSums* chunks;  // [chunks]
	i32* counts;        // [positions]: draws of it
	i32* samples;       // [tiles]
	i32* before;        // [tiles]: samples of the tiles before
	u32* drawn_bits;    // [positions / 32]: bitmap of what was drawn
	u8* at;             // [positions]: index in its chunk
};

// scratch_of is the scratch of item i of the launch; the host computes the same size. A tile has
// at least 32 positions.
__device__ inline ValueScratch scratch_of(const ValueArgs& a, i64 i) {
	i64 n = (a.g.width * PAGE + CHUNK - 1) / CHUNK * CHUNK;
	ValueScratch t;
	t.sums = (double*)(a.work + i * a.item);
	t.remainder = t.sums + n;
	t.chunks = (ChunkSums*)(t.remainder + n / 32);
	t.counts = (i32*)(t.chunks + n / CHUNK);
	t.samples = t.counts + n;
	t.before = t.samples + n / 32;
	t.drawn_bits = (u32*)(t.before + n / 32);
	t.at = (u8*)(t.drawn_bits + n / 32);
	return t;
}

// scan_chunk packs what a head reads of a chunk with the inclusive scan of its exponentials, in
// f64. A warp calls it.
__device__ inline void scan_chunk(const ValueScratch& t, const float* s, int chunk) {
	float top = -infinity();
	for (int i = lane(); i < CHUNK; i += WARP) {
		if (s[i] == s[i]) top = max_of(top, s[i]);
	}
	top = reduce_warp(top, Max());
	double sum = 0;
	int n = 0;
	for (int i = lane(); i < CHUNK; i += WARP) {
		bool reads = s[i] == s[i];
		u32 who = __ballot_sync(FULL_MASK, reads);
		double part = reads && s[i] > -infinity() ? (double)expf(s[i] - top) : 0;
		for (int by = 1; by < WARP; by *= 2) {
			double left = __shfl_up_sync(FULL_MASK, part, by);
			if (lane() >= by) part += left;
		}
		i64 to = (i64)chunk * CHUNK + n + __popc(who & ((1u << lane()) - 1));
		if (reads) {
			t.sums[to] = sum + part;
			t.counts[to] = 0;
			t.at[to] = (u8)i;
		}
		sum += __shfl_sync(FULL_MASK, part, WARP - 1);
		n += __popc(who);
	}
	if (lane() < CHUNK / 32) t.drawn_bits[chunk * (CHUNK / 32) + lane()] = 0;
	if (lane() == 0) t.chunks[chunk] = ChunkSums{sum, top, n};
}

// value_scores: scores s_j = q·k_j/√dim + ln w_j and their scans. Grid: (chunk, row ·
// kvheads + kv head). HEADS_PER_PASS heads at a time take a key. Bound by reading K once, and by
// writing 13 bytes for each head and position.
KERNEL(value_scores, ValueArgs, 128) {
	SHARED(float, scores, HEADS_PER_PASS * CHUNK);  // [HEADS_PER_PASS, CHUNK]: NaN where the head does not read
	SHARED(u8, wanted, CHUNK);                      // whether any of the heads reads
	i64 pair = a.first + blockIdx.y;
	int row = (int)(pair / a.g.heads), kv_head = (int)(pair % a.g.heads), group_heads = (int)(a.heads / a.g.heads);
	RowPosition at = row_position(a.g, row);
	int lo = blockIdx.x * CHUNK, dim = (int)a.g.dim;
	if (at.p < lo) return;
	int n = min_of(CHUNK, at.p + 1 - lo), bad = 0;
	for (int i = threadIdx.x; i < (n + PAGE - 1) / PAGE; i += blockDim.x) bad |= page_of(a.g, at.slot, lo / PAGE + i) < 0;
	if (reduce_block(bad, 0, Max())) return;
	float unit = 1 / sqrtf((float)dim);
	for (int h = 0; h < group_heads; h += HEADS_PER_PASS) {
		int heads = min_of(HEADS_PER_PASS, group_heads - h), first = kv_head * group_heads + h;
		for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
			Entries e = {nullptr, nullptr, 0}, last = e;
			float w = 0;
			wanted[i] = 0;
			for (int u = 0; u < HEADS_PER_PASS; u++) {
				float bias = __uint_as_float(0x7fffffffu);
				if (i < n && u < heads) {
					e = entries(a.plan.list, a.g, at, first + u, (int)a.heads);
					if (u == 0 || e.index != last.index) w = weight_of(a.plan, e, at.p, lo + i);
					last = e;
					if (w != 0) {
						wanted[i] = 1;
						bias = e.weight ? logf(w) : 0;
						if (bias != bias) bias = -infinity();
					}
				}
				scores[u * CHUNK + i] = bias;
			}
		}
		__syncthreads();
		const float* q = a.q + ((i64)row * a.heads + first) * dim;
		auto reads = [&](int i) { return wanted[i] != 0; };
		auto put = [&](int u, int i, float sum) {
			float& s = scores[u * CHUNK + i];
			if (s != s) return;
			sum = sum * unit + s;
			count_nan(a.g, sum);
			s = sum == sum ? sum : -infinity();
		};
		score_keys(a.g, Keys{at.slot, kv_head, lo, n}, q, heads, reads, put);
		__syncthreads();
		for (int u = warp(); u < heads; u += (int)blockDim.x / WARP)
			scan_chunk(scratch_of(a, (i64)blockIdx.y * group_heads + h + u), scores + u * CHUNK, blockIdx.x);
		__syncthreads();
	}
}

// ChunkedCdf is the cumulative softmax of a head in two levels, chunks in shared memory. A rank
// is the index of a position among those that the head reads.
struct ChunkedCdf {
	ValueScratch scratch;
	double *before_chunk, *scale;  // [chunks]: mass before a chunk, and the factor of its sums
	int* first;                    // [chunks + 1]: rank of its first position
	int row, head, n, chunks, tile, tiles;
	RowPosition at;

	// chunk_of is the chunk of a rank.
	__device__ int chunk_of(int rank) const {
		int lo = 0, hi = chunks;
		while (hi - lo > 1) {
			int mid = (lo + hi) / 2;
			if (first[mid] <= rank)
				lo = mid;
			else
				hi = mid;
		}
		return lo;
	}

	// slot is where a rank of a chunk is packed.
	__device__ i64 slot(int chunk, int rank) const { return (i64)chunk * CHUNK + rank - first[chunk]; }

	// upto is the cumulative softmax at a rank, inclusive.
	__device__ double upto(int chunk, int rank) const { return before_chunk[chunk] + scratch.sums[slot(chunk, rank)] * scale[chunk]; }
	__device__ double upto(int rank) const { return rank < 0 ? 0 : upto(chunk_of(rank), rank); }

	__device__ double share(int t) const { return upto(min_of((t + 1) * tile, n) - 1) - upto(t * tile - 1); }
};

__device__ inline bool start_row(const ValueArgs& a, ChunkedCdf& t, double* shared) {
	i64 item = a.first * (a.heads / a.g.heads) + blockIdx.x;
	t.row = (int)(item / a.heads);
	t.head = (int)(item % a.heads);
	t.at = row_position(a.g, t.row);
	if (t.at.p < 0) return false;
	if (most_of(a.v, t.at.p + 1) > a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return false;
	}
	int bad = 0;
	for (int b = threadIdx.x; b <= t.at.p / PAGE; b += blockDim.x) bad |= page_of(a.g, t.at.slot, b) < 0;
	if (reduce_block(bad, 0, Max())) return false;
	t.scratch = scratch_of(a, blockIdx.x);
	t.chunks = t.at.p / CHUNK + 1;
	t.before_chunk = shared;
	t.scale = t.before_chunk + t.chunks + 1;
	t.first = (int*)(t.scale + t.chunks);
	return true;
}

// build_cdf scans the chunks' sums. All threads call it.
__device__ inline void build_cdf(ChunkedCdf& t) {
	float top = -infinity();
	for (int i = threadIdx.x; i < t.chunks; i += blockDim.x) top = max_of(top, t.scratch.chunks[i].top);
	top = reduce_block(top, -infinity(), Max());
	ThreadRange r = thread_range(t.chunks);
	int mine = 0, total;
	double part = 0, all;
	for (i64 i = r.lo; i < r.hi; i++) {
		ChunkSums c = t.scratch.chunks[i];
		t.scale[i] = c.top > -infinity() ? exp((double)c.top - (double)top) : 0;
		mine += c.n;
		part += c.sum * t.scale[i];
	}
	int n = scan_block(mine, total);
	double sum = scan_block(part, all);
	for (i64 i = r.lo; i < r.hi; i++) {
		ChunkSums c = t.scratch.chunks[i];
		t.before_chunk[i] = sum / all;
		sum += c.sum * t.scale[i];
		t.scale[i] /= all;
		t.first[i] = n;
		n += c.n;
	}
	if (threadIdx.x == 0) {
		t.before_chunk[t.chunks] = all / all;
		t.first[t.chunks] = total;
	}
	t.n = total;
	__syncthreads();
}

// allot_samples gives each tile its samples and returns their number.
__device__ inline int allot_samples(const ValueArgs& a, ChunkedCdf& t) {
	t.tile = a.v.tiles == ONE_TILE ? max_of(t.n, 1) : tile_of(a.v, t.n);
	t.tiles = (t.n + t.tile - 1) / t.tile;
	u64 given = 0;
	for (int i = threadIdx.x; i < t.tiles; i += blockDim.x) {
		double want = t.share(i) * (double)a.v.samples;
		int n = want > 0 ? (int)(want + 1e-9) : 0;
		if (a.v.tiles == ONE_TILE) n = (int)a.v.samples;
		if (a.v.tiles == EQUAL) n = (int)max_of((i64)1, a.v.samples / t.tiles);
		if (a.v.samples == 0) n = 0;
		t.scratch.samples[i] = n;
		t.scratch.remainder[i] = want - n;
		given += n;
	}
	given = reduce_block(given, (u64)0, Plus());
	i64 left = a.v.samples - (i64)given;
	auto remainder = [&](i64 i, u64& key) {
		key = radix_key64(t.scratch.remainder[i]);
		return true;
	};
	bool more = a.v.tiles == REMAINDER && left > 0;
	Threshold<u64> cut = select_all<u64>();
	if (more && left < t.tiles)
		cut = radix_select<u64, u32>(t.tiles, (u64)left, [&](i64 i, u64& key) { return (u32)remainder(i, key); });
	Selector<u64> in = make_selector(cut, t.tiles, remainder);
	ThreadRange r = thread_range(t.tiles);
	u64 mine = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (more && in.takes(radix_key64(t.scratch.remainder[i]))) t.scratch.samples[i]++;
		mine += t.scratch.samples[i];
	}
	u64 sum = scan_block(mine, total);
	for (i64 i = r.lo; i < r.hi; i++) {
		t.scratch.before[i] = (i32)sum;
		sum += t.scratch.samples[i];
	}
	__syncthreads();
	return (int)total;
}

// search_cdf is the first rank of [lo, hi) whose cumulative softmax reaches x and exceeds that
// before the tile, or the last one with any mass. chunk becomes its chunk.
__device__ inline int search_cdf(const ChunkedCdf& t, int lo, int hi, double x, int& chunk) {
	double base = t.upto(lo - 1);
	int l = t.chunk_of(lo), h = t.chunk_of(hi - 1);
	while (l < h) {
		int mid = (l + h) / 2;
		double end = t.before_chunk[mid + 1];
		if (end < x || end <= base)
			l = mid + 1;
		else
			h = mid;
	}
	while (t.first[l] == t.first[l + 1]) l--;  // only rounding leads to an empty chunk
	chunk = l;
	lo = max_of(lo, t.first[chunk]);
	hi = min_of(hi, t.first[chunk + 1]);
	x = min_of(x, t.upto(chunk, hi - 1));  // rounding may leave x above the total
	for (l = lo, h = hi - 1; l < h;) {
		int mid = (l + h) / 2;
		double end = t.upto(chunk, mid);
		if (end < x || end <= base)
			l = mid + 1;
		else
			h = mid;
	}
	return l;
}

// draw_samples counts, for each draw, the position where the cumulative softmax reaches it.
__device__ inline void draw_samples(const ValueArgs& a, ChunkedCdf& t, int draws) {
	Draw d = address_of(a.v, t.at.slot, t.at.p, t.head, (int)a.heads, (int)a.g.heads);
	for (int i = threadIdx.x; i < draws; i += blockDim.x) {
		int tile = 0, end = t.tiles;  // the last tile with at most i draws before it
		while (end - tile > 1) {
			int mid = (tile + end) / 2;
			if (t.scratch.before[mid] <= i)
				tile = mid;
			else
				end = mid;
		}
		int lo = tile * t.tile, hi = min_of(lo + t.tile, t.n), n = t.scratch.samples[tile], k = i - t.scratch.before[tile], chunk;
		double share = t.share(tile);
		if (!(share > 0)) continue;
		double u = uniform(d, a.v.sampler == SYSTEMATIC ? (u32)tile : (u32)i);
		double at = a.v.sampler == INDEPENDENT ? n * u : k + u;
		int rank = search_cdf(t, lo, hi, t.upto(lo - 1) + at / n * share, chunk);
		i64 slot = t.slot(chunk, rank);
		atomicAdd(&t.scratch.counts[slot], 1);
		atomicOr(&t.scratch.drawn_bits[slot / 32], 1u << slot % 32);
	}
	__syncthreads();
}

// sample_values: block i draws for a head of a row and lists what was drawn, ascending, with
// weight draws/S (equal tiles: draws · mass / samples of the tile). Bound by latency: binary
// searches in shared memory and L2.
KERNEL(sample_values, ValueArgs, 256) {
	DYNAMIC_SHARED(double, shared);
	ChunkedCdf t;
	if (!start_row(a, t, shared)) return;
	build_cdf(t);
	draw_samples(a, t, allot_samples(a, t));
	ThreadRange r = thread_range((i64)t.chunks * (CHUNK / 32));
	u64 mine = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) mine += __popc(t.scratch.drawn_bits[i]);
	u64 to = scan_block(mine, total);
	i64 list = (i64)t.row * a.heads + t.head;
	for (i64 i = r.lo; i < r.hi; i++) {
		for (u32 bits = t.scratch.drawn_bits[i]; bits && to < (u64)a.cap; bits &= bits - 1, to++) {
			i64 slot = i * 32 + __ffs((int)bits) - 1;
			int chunk = (int)(slot / CHUNK), tile = (t.first[chunk] + (int)(slot % CHUNK)) / t.tile;
			double each = a.v.tiles == EQUAL ? t.share(tile) / max_of(t.scratch.samples[tile], 1) : 1.0 / (double)max_of(a.v.samples, (i64)1);
			a.index[list * a.cap + to] = chunk * CHUNK + t.scratch.at[slot];
			a.weight[list * a.cap + to] = (float)(t.scratch.counts[slot] * each);
		}
	}
	if (threadIdx.x == 0) a.count[list] = (i32)min_of(total, (u64)a.cap);
}
