// Runs of positions by the most that a key among them can score. Definitions:
// package cpu, bound.go; package device, bound.go, says what bounds are.
#include "newest.cuh"
#include "rank.cuh"

struct BoundsArgs {
	void* bounds;  // of the cache's type [pages, kvheads, parts, 2·dim]
	i64 parts;
	PagedKV g;  // rows: the newest positions
};

// key_bounds: block (b, h, slot) makes the bounds of kv head h of the b-th page
// that the newest positions lie in, a thread a dimension of a part at a time.
KERNEL(key_bounds, BoundsArgs, 256) {
	int slot = blockIdx.z, first = first_position(a.g, slot), dim = (int)a.g.dim, size = PAGE / (int)a.parts;
	if (first < 0) return;
	int b = first / PAGE + blockIdx.x, n = min_of(first + (int)a.g.rows - b * PAGE, PAGE);
	if (n <= 0) return;
	int page = page_of(a.g, slot, b);
	if (page < 0) return;
	int from = max_of(first - b * PAGE, 0) / size;
	for (int i = from * dim + threadIdx.x; i < (n + size - 1) / size * dim; i += blockDim.x) {
		int part = i / dim, d = i % dim;
		float least = infinity(), most = -infinity();
		for (int j = part * size; j < min_of((part + 1) * size, n); j++) {
			float x = load_kv(a.g.k, a.g.half, kv_offset(a.g, page, blockIdx.y, j) + d);
			if (x < least) least = x;
			if (x > most) most = x;
		}
		i64 to = (((i64)page * a.g.heads + blockIdx.y) * a.parts + part) * 2 * dim + d;
		if (a.g.half) {
			((u16*)a.bounds)[to] = to_half(least);
			((u16*)a.bounds)[to + dim] = to_half(most);
		} else {
			((float*)a.bounds)[to] = least;
			((float*)a.bounds)[to + dim] = most;
		}
	}
}

struct BoundScoresArgs {
	float* dst;         // [slots, sets, width]
	const float* q;     // [slots, heads, dim]
	const void* bounds;
	i64 heads, sets, width, parts;
	PagedKV g;
};

// bound_scores: block (slot, s, z) takes every gridDim.z-th page of set s; a warp
// takes a part at a time.
KERNEL(bound_scores, BoundScoresArgs, 256) {
	int slot = blockIdx.x, set = blockIdx.y, p = first_position(a.g, slot), dim = (int)a.g.dim, size = PAGE / (int)a.parts;
	if (p < 0) return;
	int run = (int)(a.heads / a.sets), kv_head = set * (int)a.g.heads / (int)a.sets;
	const float* q = a.q + ((i64)slot * a.heads + set * run) * dim;
	float* out = a.dst + ((i64)slot * a.sets + set) * a.width;
	for (int b = blockIdx.z; b <= p / PAGE; b += gridDim.z) {
		int page = page_of(a.g, slot, b);
		if (page < 0) return;
		for (int i = warp(); i < a.parts && b * PAGE + i * size <= p; i += blockDim.x / WARP) {
			i64 from = (((i64)page * a.g.heads + kv_head) * a.parts + i) * 2 * dim;
			float sum = 0;
			for (int d = lane(); d < run * dim; d += WARP) {
				float x = q[d];
				sum += x * load_kv(a.bounds, a.g.half, from + d % dim + (x < 0 ? 0 : dim));
			}
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) out[b * a.parts + i] = sum;
		}
	}
}

struct PartsArgs {
	i32 *index, *count;   // [slots, sets, cap], [slots, sets]
	const float* scores;  // [slots, sets, width]
	i64 sets, width, cap, parts;
	i64 keep;  // positions, unless share is above 0
	f64 share;
	i64 least;
	Span span;
	PagedKV g;
};

// top_parts: block (slot, s) lists the row's own part and the best of the others.
KERNEL(top_parts, PartsArgs, 256) {
	int slot = blockIdx.x, p = first_position(a.g, slot), size = PAGE / (int)a.parts;
	if (p < 0) return;
	i64 set = (i64)slot * a.sets + blockIdx.y;
	const float* x = a.scores + set * a.width;
	int own = p / size;
	i64 keep = a.share > 0 ? (i64)floor(a.share * (double)(p + 1) + 1e-9) : a.keep;
	i64 k = keep > p ? own : max_of(max_of(a.least, (i64)1), keep / size) - 1;  // besides its own
	bool open = a.span.back == 0 && a.span.drop == 0;
	auto seen = [&](i64 part, u32& key) {
		key = key_of(x[part]);
		bool in = open;
		for (int j = (int)part * size; j < (part + 1) * size && !in; j++) in = sees(a.span, p, j);
		return in;
	};
	// what the row sees of a part, as entries: positions, or the page
	auto each = [&](i64 part, auto f) {
		if (size == PAGE) return f((i32)part);
		for (int j = (int)part * size; j < (part + 1) * size && j <= p; j++) {
			if (sees(a.span, p, j)) f(j);
		}
	};
	Cut<u32> cut = {~0u, 0};  // nothing
	if (k > 0) cut = select<u32>(own, (u64)k, [&](i64 part, u32& key) { return (u64)seen(part, key); });
	Picker<u32> start = picker(cut, own, seen), in = start;
	Run r = run_of(own);
	u64 mine = 0, total;
	u32 key;
	for (i64 part = r.lo; part < r.hi; part++) {
		if (seen(part, key) && in.takes(key)) each(part, [&](i32) { mine++; });
	}
	u64 to = scan_block(mine, total);
	i32* index = a.index + set * a.cap;
	auto add = [&](i32 j) {
		if (to < (u64)a.cap) index[to] = j;
		to++;
	};
	in = start;
	for (i64 part = r.lo; part < r.hi; part++) {
		if (seen(part, key) && in.takes(key)) each(part, add);
	}
	if (threadIdx.x > 0) return;
	to = total;
	each(own, add);
	if (to > (u64)a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
	a.count[set] = (i32)min_of(to, (u64)a.cap);
}
