// Values drawn in proportion to their weights. Definition: package cpu, value.go;
// package device, value.go, says what is drawn.
//
// value_scores takes the keys: a block takes 256 positions of a kv head, for all heads
// that share it, so that a row is spread over the multiprocessors and each key is read
// once. sample_values then has a block for each head, which looks at sums of 256
// positions and at few others.
#include "rank.cuh"
#include "scores.cuh"
#include "state.cuh"
#include "values.cuh"

struct ValueArgs {
	i32 *index, *count;  // [rows, heads, cap], [rows, heads]
	float* weight;       // [rows, heads, cap]
	const float* q;      // [rows, heads, dim]
	u8* work;            // [items, item]: an item is a head of a row
	i64 item;            // bytes
	i64 first;           // number of the first item's kv head, counted through the rows
	i64 cap, heads;
	Values v;
	PagedKV g;
	Plan plan;
};

// Chunk is what a head reads of CHUNK positions.
struct Chunk {
	double sum;  // of exp(score - top)
	float top;
	i32 n;
};

// Item is the scratch of a head of a row. What the head reads of a chunk stands at
// the chunk's start, in order.
struct Item {
	double* sums;    // [positions]: of exp(score - top) from the chunk's start on, itself included
	double* rest;    // [tiles]: part of a tile's share of the samples that it was not given
	Chunk* chunks;   // [chunks]
	i32* counts;     // [positions]: how often it was drawn
	i32* samples;    // [tiles]
	i32* before;     // [tiles]: samples of all tiles before
	u32* drawn;      // [positions / 32]: bits of those that were drawn
	u8* at;          // [positions]: which one of its chunk
};

// item_of is item i of the launch; the host reckons its bytes. Tiles have at least
// 32 positions.
__device__ inline Item item_of(const ValueArgs& a, i64 i) {
	i64 n = (a.g.width * PAGE + CHUNK - 1) / CHUNK * CHUNK;
	Item t;
	t.sums = (double*)(a.work + i * a.item);
	t.rest = t.sums + n;
	t.chunks = (Chunk*)(t.rest + n / 32);
	t.counts = (i32*)(t.chunks + n / CHUNK);
	t.samples = t.counts + n;
	t.before = t.samples + n / 32;
	t.drawn = (u32*)(t.before + n / 32);
	t.at = (u8*)(t.drawn + n / 32);
	return t;
}

// sum_chunk packs what a head reads of a chunk, with running sums; a warp does it.
__device__ inline void sum_chunk(const Item& t, const float* s, int chunk) {
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
	if (lane() < CHUNK / 32) t.drawn[chunk * (CHUNK / 32) + lane()] = 0;
	if (lane() == 0) t.chunks[chunk] = Chunk{sum, top, n};
}

// value_scores: block (i, y) takes chunk i of kv head y of the launch, which counts
// through the rows.
KERNEL(value_scores, ValueArgs, 128) {
	SHARED(float, scores, HEADS_PER_PASS * CHUNK);  // [TOGETHER, CHUNK], NaN where a head does not read
	SHARED(u8, some, CHUNK);                  // whether any of the heads reads
	i64 pair = a.first + blockIdx.y;
	int row = (int)(pair / a.g.heads), kv_head = (int)(pair % a.g.heads), run = (int)(a.heads / a.g.heads);
	RowPosition at = row_position(a.g, row);
	int lo = blockIdx.x * CHUNK, dim = (int)a.g.dim;
	if (at.p < lo) return;
	int n = min_of(CHUNK, at.p + 1 - lo), bad = 0;
	for (int i = threadIdx.x; i < (n + PAGE - 1) / PAGE; i += blockDim.x) bad |= page_of(a.g, at.slot, lo / PAGE + i) < 0;
	if (reduce_block(bad, 0, Max())) return;
	float unit = 1 / sqrtf((float)dim);
	for (int h = 0; h < run; h += HEADS_PER_PASS) {
		int heads = min_of(HEADS_PER_PASS, run - h), first = kv_head * run + h;
		for (int i = threadIdx.x; i < CHUNK; i += blockDim.x) {
			Entries e = {nullptr, nullptr, 0}, last = e;
			float w = 0;
			some[i] = 0;
			for (int u = 0; u < HEADS_PER_PASS; u++) {
				float bias = __uint_as_float(0x7fffffffu);
				if (i < n && u < heads) {
					e = entries(a.plan.list, a.g, at, first + u, (int)a.heads);
					if (u == 0 || e.index != last.index) w = weight_of(a.plan, e, at.p, lo + i);
					last = e;
					if (w != 0) {
						some[i] = 1;
						bias = e.weight ? logf(w) : 0;
						if (bias != bias) bias = -infinity();
					}
				}
				scores[u * CHUNK + i] = bias;
			}
		}
		__syncthreads();
		const float* q = a.q + ((i64)row * a.heads + first) * dim;
		auto reads = [&](int i) { return some[i] != 0; };
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
			sum_chunk(item_of(a, (i64)blockIdx.y * run + h + u), scores + u * CHUNK, blockIdx.x);
		__syncthreads();
	}
}

// Drawn is what a head draws from. Ranks count what it reads.
struct Drawn {
	Item of;
	double *reach, *scale;  // [chunks]: the softmax before a chunk, and what its sums are multiplied by
	int* first;             // [chunks + 1]: rank of its first position
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

	// slot is where a rank of a chunk stands.
	__device__ i64 slot(int chunk, int rank) const { return (i64)chunk * CHUNK + rank - first[chunk]; }

	// upto is the running sum of the softmax up to a rank of a chunk, itself included.
	__device__ double upto(int chunk, int rank) const { return reach[chunk] + of.sums[slot(chunk, rank)] * scale[chunk]; }
	__device__ double upto(int rank) const { return rank < 0 ? 0 : upto(chunk_of(rank), rank); }

	__device__ double share(int t) const { return upto(min_of((t + 1) * tile, n) - 1) - upto(t * tile - 1); }
};

__device__ inline bool start(const ValueArgs& a, Drawn& t, double* shared) {
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
	t.of = item_of(a, blockIdx.x);
	t.chunks = t.at.p / CHUNK + 1;
	t.reach = shared;
	t.scale = t.reach + t.chunks + 1;
	t.first = (int*)(t.scale + t.chunks);
	return true;
}

// join adds the chunks up.
__device__ inline void join(Drawn& t) {
	float top = -infinity();
	for (int i = threadIdx.x; i < t.chunks; i += blockDim.x) top = max_of(top, t.of.chunks[i].top);
	top = reduce_block(top, -infinity(), Max());
	Run r = run_of(t.chunks);
	int mine = 0, total;
	double part = 0, all;
	for (i64 i = r.lo; i < r.hi; i++) {
		Chunk c = t.of.chunks[i];
		t.scale[i] = c.top > -infinity() ? exp((double)c.top - (double)top) : 0;
		mine += c.n;
		part += c.sum * t.scale[i];
	}
	int n = scan_block(mine, total);
	double sum = scan_block(part, all);
	for (i64 i = r.lo; i < r.hi; i++) {
		Chunk c = t.of.chunks[i];
		t.reach[i] = sum / all;
		sum += c.sum * t.scale[i];
		t.scale[i] /= all;
		t.first[i] = n;
		n += c.n;
	}
	if (threadIdx.x == 0) {
		t.reach[t.chunks] = all / all;
		t.first[t.chunks] = total;
	}
	t.n = total;
	__syncthreads();
}

// divide gives each tile its samples, and returns how many there are.
__device__ inline int divide(const ValueArgs& a, Drawn& t) {
	t.tile = a.v.tiles == ONE_TILE ? max_of(t.n, 1) : tile_of(a.v, t.n);
	t.tiles = (t.n + t.tile - 1) / t.tile;
	u64 given = 0;
	for (int i = threadIdx.x; i < t.tiles; i += blockDim.x) {
		double want = t.share(i) * (double)a.v.samples;
		int n = want > 0 ? (int)(want + 1e-9) : 0;
		if (a.v.tiles == ONE_TILE) n = (int)a.v.samples;
		if (a.v.tiles == EQUAL) n = (int)max_of((i64)1, a.v.samples / t.tiles);
		if (a.v.samples == 0) n = 0;
		t.of.samples[i] = n;
		t.of.rest[i] = want - n;
		given += n;
	}
	given = reduce_block(given, (u64)0, Plus());
	i64 left = a.v.samples - (i64)given;
	auto rest = [&](i64 i, u64& key) {
		key = wide_key_of(t.of.rest[i]);
		return true;
	};
	bool more = a.v.tiles == REMAINDER && left > 0;
	Cut<u64> cut = everything<u64>();
	if (more && left < t.tiles)
		cut = select<u64, u32>(t.tiles, (u64)left, [&](i64 i, u64& key) { return (u32)rest(i, key); });
	Picker<u64> in = picker(cut, t.tiles, rest);
	Run r = run_of(t.tiles);
	u64 mine = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (more && in.takes(wide_key_of(t.of.rest[i]))) t.of.samples[i]++;
		mine += t.of.samples[i];
	}
	u64 sum = scan_block(mine, total);
	for (i64 i = r.lo; i < r.hi; i++) {
		t.of.before[i] = (i32)sum;
		sum += t.of.samples[i];
	}
	__syncthreads();
	return (int)total;
}

// first_at is the first rank of [lo, hi), of chunk, whose running sum reaches x and is
// above that before the tile, or the last one that has any weight.
__device__ inline int first_at(const Drawn& t, int lo, int hi, double x, int& chunk) {
	double base = t.upto(lo - 1);
	int l = t.chunk_of(lo), h = t.chunk_of(hi - 1);
	while (l < h) {
		int mid = (l + h) / 2;
		double end = t.reach[mid + 1];
		if (end < x || end <= base)
			l = mid + 1;
		else
			h = mid;
	}
	while (t.first[l] == t.first[l + 1]) l--;  // which rounding alone can find
	chunk = l;
	lo = max_of(lo, t.first[chunk]);
	hi = min_of(hi, t.first[chunk + 1]);
	x = min_of(x, t.upto(chunk, hi - 1));  // what rounding left over
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

// draw counts, for each of the draws, the position where the running sum of
// samples·softmax reaches it.
__device__ inline void draw(const ValueArgs& a, Drawn& t, int draws) {
	Draw d = address_of(a.v, t.at.slot, t.at.p, t.head, (int)a.heads, (int)a.g.heads);
	for (int i = threadIdx.x; i < draws; i += blockDim.x) {
		int tile = 0, end = t.tiles;  // the last one with at most i draws before it
		while (end - tile > 1) {
			int mid = (tile + end) / 2;
			if (t.of.before[mid] <= i)
				tile = mid;
			else
				end = mid;
		}
		int lo = tile * t.tile, hi = min_of(lo + t.tile, t.n), n = t.of.samples[tile], k = i - t.of.before[tile], chunk;
		double share = t.share(tile);
		if (!(share > 0)) continue;
		double u = uniform(d, a.v.sampler == SYSTEMATIC ? (u32)tile : (u32)i);
		double at = a.v.sampler == INDEPENDENT ? n * u : k + u;
		int rank = first_at(t, lo, hi, t.upto(lo - 1) + at / n * share, chunk);
		i64 slot = t.slot(chunk, rank);
		atomicAdd(&t.of.counts[slot], 1);
		atomicOr(&t.of.drawn[slot / 32], 1u << slot % 32);
	}
	__syncthreads();
}

// sample_values: block i takes a head of a row.
KERNEL(sample_values, ValueArgs, 256) {
	DYNAMIC_SHARED(double, shared);
	Drawn t;
	if (!start(a, t, shared)) return;
	join(t);
	draw(a, t, divide(a, t));
	Run r = run_of((i64)t.chunks * (CHUNK / 32));
	u64 mine = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) mine += __popc(t.of.drawn[i]);
	u64 to = scan_block(mine, total);
	i64 list = (i64)t.row * a.heads + t.head;
	for (i64 i = r.lo; i < r.hi; i++) {
		for (u32 bits = t.of.drawn[i]; bits && to < (u64)a.cap; bits &= bits - 1, to++) {
			i64 slot = i * 32 + __ffs((int)bits) - 1;
			int chunk = (int)(slot / CHUNK), tile = (t.first[chunk] + (int)(slot % CHUNK)) / t.tile;
			double each = a.v.tiles == EQUAL ? t.share(tile) / max_of(t.of.samples[tile], 1) : 1.0 / (double)max_of(a.v.samples, (i64)1);
			a.index[list * a.cap + to] = chunk * CHUNK + t.of.at[slot];
			a.weight[list * a.cap + to] = (float)(t.of.counts[slot] * each);
		}
	}
	if (threadIdx.x == 0) a.count[list] = (i32)min_of(total, (u64)a.cap);
}
