// Values drawn in proportion to their weights. Definition: package cpu, value.go;
// package device, value.go, says what is drawn.
#include "draw.cuh"
#include "rank.cuh"
#include "state.cuh"

struct ValueArgs {
	i32 *index, *count;  // [rows, heads, cap], [rows, heads]
	float* weight;       // [rows, heads, cap]
	const float* q;      // [rows, heads, dim]
	u8* work;            // [items, item]
	i64 item;            // bytes
	i64 first;           // number of item 0
	i64 cap, heads;
	u64 seed;
	const i32* of;  // [slots]: their requests; NULL: one for all
	i64 request, layer, samples, sampler, tiles, tile, shared;
	Pages g;
	Plan plan;
};

enum { SYSTEMATIC, STRATIFIED, INDEPENDENT };
enum { ONE_TILE, REMAINDER, EQUAL };

// tile_of is Draws.TileOf.
__device__ inline int tile_of(const ValueArgs& a, int n) {
	if (a.tile > 0) return (int)a.tile;
	return n <= 1536 ? 32 : n <= 3072 ? 64 : 256;
}

// most_of is Draws.Most.
__device__ inline i64 most_of(const ValueArgs& a, int n) {
	i64 most = a.samples;
	if (a.tiles == EQUAL && n > 0) {
		int ms[3] = {smaller(n, 1536), smaller(n, 3072), n};
		for (int m : ms) most = larger(most, (i64)(m + tile_of(a, m) - 1) / tile_of(a, m));
	}
	return larger((i64)1, smaller(most, (i64)n));
}

// Drawn is the scratch of an item: a head of a row. Tiles have at least 32
// positions.
struct Drawn {
	i32* read;     // what the head reads, ascending
	i32* counts;   // how often it was drawn
	double* sums;  // running sum of the softmax, itself included
	i32* samples;  // of each tile
	i32* before;   // of all tiles before
	double* rest;  // part of a tile's share of the samples that it was not given
	int row, head, n, tile, tiles;
	At at;

	__device__ double share(int t) const { return sums[smaller((t + 1) * tile, n) - 1] - (t > 0 ? sums[t * tile - 1] : 0); }
};

__device__ inline bool start(const ValueArgs& a, Drawn& t) {
	i64 item = a.first + blockIdx.x, width = a.g.width * PAGE;
	t.row = (int)(item / a.heads);
	t.head = (int)(item % a.heads);
	t.at = place(a.g, t.row);
	if (t.at.p < 0) return false;
	if (most_of(a, t.at.p + 1) > a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return false;
	}
	int bad = 0;
	for (int b = threadIdx.x; b <= t.at.p / PAGE; b += blockDim.x) bad |= page_of(a.g, t.at.slot, b) < 0;
	if (reduce_block(bad, 0, Top())) return false;
	t.sums = (double*)(a.work + blockIdx.x * a.item);
	t.rest = t.sums + width;
	t.read = (i32*)(t.rest + width / 32);
	t.counts = t.read + width;
	t.samples = t.counts + width;
	t.before = t.samples + width / 32;
	return true;
}

// softmax finds what the head reads, and the running sum of its softmax.
__device__ inline void softmax(const ValueArgs& a, Drawn& t) {
	Entries e = entries(a.plan.list, a.g, t.at, t.head, (int)a.heads);
	Run r = run_of(t.at.p + 1);
	u64 mine = 0, total;
	for (i64 j = r.lo; j < r.hi; j++) mine += weight_of(a.plan, e, t.at.p, (int)j) != 0;
	u64 to = scan_block(mine, total);
	for (i64 j = r.lo; j < r.hi; j++) {
		if (weight_of(a.plan, e, t.at.p, (int)j) != 0) t.read[to++] = (i32)j;
	}
	t.n = (int)total;
	__syncthreads();
	int dim = (int)a.g.dim, kv_head = t.head * (int)a.g.heads / (int)a.heads;
	const float* q = a.q + ((i64)t.row * a.heads + t.head) * dim;
	float unit = 1 / sqrtf((float)dim), top = -infinity();
	for (int i = warp(); i < t.n; i += blockDim.x / WARP) {
		int j = t.read[i], page = a.g.table[(i64)t.at.slot * a.g.width + j / PAGE];
		i64 from = element_of(a.g, page, kv_head, j % PAGE);
		float sum = 0;
		for (int d = lane(); d < dim; d += WARP) sum += q[d] * load(a.g.k, a.g.half, from + d);
		sum = reduce_warp(sum, Plus()) * unit;
		if (e.weight) sum += logf(weight_of(a.plan, e, t.at.p, j));
		if (lane() == 0) met(a.g, sum);
		if (sum != sum) sum = -infinity();
		top = larger(top, sum);
		if (lane() == 0) t.sums[i] = sum;
	}
	top = reduce_block(top, -infinity(), Top());
	r = run_of(t.n);
	double part = 0, all;
	for (i64 i = r.lo; i < r.hi; i++) {
		t.sums[i] = t.sums[i] > -infinity() ? exp(t.sums[i] - (double)top) : 0;
		part += t.sums[i];
		t.counts[i] = 0;
	}
	double sum = scan_block(part, all);
	for (i64 i = r.lo; i < r.hi; i++) {
		sum += t.sums[i];
		t.sums[i] = sum / all;
	}
	__syncthreads();
}

// divide gives each tile its samples.
__device__ inline void divide(const ValueArgs& a, Drawn& t) {
	t.tile = a.tiles == ONE_TILE ? larger(t.n, 1) : tile_of(a, t.n);
	t.tiles = (t.n + t.tile - 1) / t.tile;
	u64 given = 0;
	for (int i = threadIdx.x; i < t.tiles; i += blockDim.x) {
		double want = t.share(i) * (double)a.samples;
		int n = want > 0 ? (int)(want + 1e-9) : 0;
		if (a.tiles == ONE_TILE) n = (int)a.samples;
		if (a.tiles == EQUAL) n = (int)larger((i64)1, a.samples / t.tiles);
		if (a.samples == 0) n = 0;
		t.samples[i] = n;
		t.rest[i] = want - n;
		given += n;
	}
	given = reduce_block(given, (u64)0, Plus());
	i64 left = a.samples - (i64)given;
	auto rest = [&](i64 i, u64& key) {
		key = wide_key_of(t.rest[i]);
		return true;
	};
	bool more = a.tiles == REMAINDER && left > 0;
	Cut<u64> cut = everything<u64>();
	if (more && left < t.tiles)
		cut = select<u64>(t.tiles, (u64)left, [&](i64 i, u64& key) { return (u64)rest(i, key); });
	Picker<u64> in = picker(cut, t.tiles, rest);
	Run r = run_of(t.tiles);
	u64 mine = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (more && in.takes(wide_key_of(t.rest[i]))) t.samples[i]++;
		mine += t.samples[i];
	}
	u64 sum = scan_block(mine, total);
	for (i64 i = r.lo; i < r.hi; i++) {
		t.before[i] = (i32)sum;
		sum += t.samples[i];
	}
	__syncthreads();
}

// first_at is the first position of [lo, hi) whose running sum reaches x, or the
// last one that has any weight.
__device__ inline int first_at(const Drawn& t, int lo, int hi, double x) {
	double base = lo > 0 ? t.sums[lo - 1] : 0;
	int l = lo, h = hi;
	while (l < h) {
		int mid = (l + h) / 2;
		if (t.sums[mid] < x || t.sums[mid] <= base)
			l = mid + 1;
		else
			h = mid;
	}
	if (l < hi) return l;
	// What rounding left over: the first position at the end's sum.
	double end = t.sums[hi - 1];
	for (l = lo, h = hi - 1; l < h;) {
		int mid = (l + h) / 2;
		if (t.sums[mid] < end)
			l = mid + 1;
		else
			h = mid;
	}
	return l;
}

// draw counts, for each draw, the position where the running sum of
// samples·softmax reaches it.
__device__ inline void draw(const ValueArgs& a, Drawn& t) {
	Draw d = {a.seed, a.of ? (u32)a.of[t.at.slot] : (u32)a.request, (u32)a.layer, (u32)t.head, (u32)t.at.p, FOR_VALUE};
	if (a.shared) d.head = (u32)(t.head * a.g.heads / a.heads);
	for (int i = warp(); i < t.tiles; i += blockDim.x / WARP) {
		int lo = i * t.tile, hi = smaller(lo + t.tile, t.n), n = t.samples[i];
		double share = t.share(i), base = lo > 0 ? t.sums[lo - 1] : 0;
		if (!(share > 0)) continue;
		for (int k = lane(); k < n; k += WARP) {
			double u = uniform(d, a.sampler == SYSTEMATIC ? (u32)i : (u32)(t.before[i] + k));
			double at = a.sampler == INDEPENDENT ? n * u : k + u;
			atomicAdd(&t.counts[first_at(t, lo, hi, base + at / n * share)], 1);
		}
	}
	__syncthreads();
}

// sample_values: block i takes a head of a row.
KERNEL(sample_values, ValueArgs, 256) {
	Drawn t;
	if (!start(a, t)) return;
	softmax(a, t);
	divide(a, t);
	draw(a, t);
	Run r = run_of(t.n);
	u64 mine = 0, total;
	for (i64 i = r.lo; i < r.hi; i++) mine += t.counts[i] > 0;
	u64 to = scan_block(mine, total);
	i64 list = (i64)t.row * a.heads + t.head;
	for (i64 i = r.lo; i < r.hi; i++) {
		if (t.counts[i] == 0 || to >= (u64)a.cap) continue;
		int tile = (int)(i / t.tile);
		double each = a.tiles == EQUAL ? t.share(tile) / larger(t.samples[tile], 1) : 1.0 / (double)larger(a.samples, (i64)1);
		a.index[list * a.cap + to] = t.read[i];
		a.weight[list * a.cap + to] = (float)(t.counts[i] * each);
		to++;
	}
	if (threadIdx.x == 0) a.count[list] = (i32)smaller(total, (u64)a.cap);
}
