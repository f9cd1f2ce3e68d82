// Heavy hitters (H2O): the sum of the softmax weights that each position has received, per kv
// head, and the eviction of all but the largest and the newest. Reference implementation: package
// cpu.
#include "radix_select.cuh"
#include "shares.cuh"

// states (score): the softmax state (max, Σ exp2) of each vector (a row and head), in splits of
// the pages. Grid: (tile of VECTORS · splits + split, head group, slot); a thread takes a key of
// the page against EACH vectors and merges at the end in a fixed order. Bound by its
// multiply-adds, dim for each pair of a vector and a position.
KERNEL(softmax_states, StatesArgs, 256) {
	DYNAMIC_SHARED(float, shared);
	SHARED(Entries, lists, VECTORS);
	SHARED(SoftmaxState, parts, VECTORS* PAGE);
	int slot = blockIdx.z, head_group = (int)a.group + blockIdx.y, first = first_position(a.g, slot), splits = (int)a.splits, split = blockIdx.x % splits;
	if (first < 0) return;
	Vectors x = vectors_of(a.g, a.q, slot, first, head_group, a.heads, a.run);
	KeyTile t = key_tile(shared, lists, a.g.dim);
	load_vectors(t, x, a.g, a.plan, blockIdx.x / splits * VECTORS);
	SoftmaxState mine[EACH];
	for (int u = 0; u < EACH; u++) mine[u] = {EMPTY_MAX, 0};
	int last = x.position(min_of(t.from + VECTORS, x.n) - 1);
	for (int b = split; b <= last / PAGE; b += splits) {
		int page = page_of(a.g, slot, b);
		if (page < 0) return;
		if (a.plan.selected != SELECTED_ALL && !any_reads(t, x, a.plan, b)) continue;
		load_keys(t, a.g, page, x.kv_head, min_of(PAGE, last + 1 - b * PAGE));
		float s[EACH];
		score_tile(s, t, x, a.g, a.plan, b);
		for (int u = 0; u < EACH; u++) {
			float top = max_of(mine[u].max, s[u]);
			if (top == EMPTY_MAX) continue;
			mine[u].sum = mine[u].sum * rescale(mine[u].max, top) + exp2f(s[u] - top);
			mine[u].max = top;
		}
	}
	for (int u = 0; u < EACH; u++) parts[((int)threadIdx.x / PAGE * EACH + u) * PAGE + threadIdx.x % PAGE] = mine[u];
	__syncthreads();
	for (int v = threadIdx.x; v < VECTORS && t.from + v < x.n; v += blockDim.x) {
		SoftmaxState all = {EMPTY_MAX, 0};
		for (int i = 0; i < PAGE; i++) all.max = max_of(all.max, parts[v * PAGE + i].max);
		for (int i = 0; i < PAGE; i++) all.sum += parts[v * PAGE + i].sum * rescale(parts[v * PAGE + i].max, all.max);
		a.states[(((i64)slot * gridDim.y + blockIdx.y) * x.n + t.from + v) * splits + split] = all;
	}
}

// merge_states merges the splits of the vectors in shared memory: their max, and 1 / their sum.
__device__ inline void merge_states(SoftmaxState* to, const SoftmaxState* states, const KeyTile& t, int n, i64 splits) {
	for (int v = threadIdx.x; v < VECTORS && t.from + v < n; v += blockDim.x) {
		const SoftmaxState* of = states + (t.from + v) * splits;
		SoftmaxState all = {EMPTY_MAX, 0};
		for (int i = 0; i < splits; i++) all.max = max_of(all.max, of[i].max);
		for (int i = 0; i < splits; i++) all.sum += of[i].sum * rescale(of[i].max, all.max);
		all.sum = normalizer(all.sum, false);
		to[v] = all;
	}
	__syncthreads();
}

struct AddWeightsArgs {
	float* sum;      // [slots, kvheads, width], as hold_share has it
	const float* q;  // [rows, heads, dim]
	const SoftmaxState* states;
	i64 heads, splits, width;
	PagedKV g;
	Plan plan;
};

// attention_mass (summarize) adds to the sum of each position what the appended rows gave it,
// Σ softmax over rows and heads of the kv head; scores are computed a second time instead of
// stored. Grid: (page, kv head, slot); threads as in states. -Inf marks an evicted position.
KERNEL(attention_mass, AddWeightsArgs, 256) {
	DYNAMIC_SHARED(float, shared);
	SHARED(Entries, lists, VECTORS);
	SHARED(SoftmaxState, tops, VECTORS);
	SHARED(float, sums, 256);
	SHARED(double, faint, 256);
	int slot = blockIdx.z, head_group = blockIdx.y, b = blockIdx.x, first = first_position(a.g, slot), last = first + (int)a.g.rows - 1;
	if (first < 0 || b * PAGE > last) return;
	if (last >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, last, a.width, 0);
		return;
	}
	int page = page_of(a.g, slot, b);
	if (page < 0) return;
	Vectors x = vectors_of(a.g, a.q, slot, first, head_group, a.heads, a.heads / a.g.heads);
	KeyTile t = key_tile(shared, lists, a.g.dim);
	load_keys(t, a.g, page, x.kv_head, min_of(PAGE, last + 1 - b * PAGE));
	const SoftmaxState* states = a.states + ((i64)slot * gridDim.y + head_group) * x.n * a.splits;
	float mine = 0;
	double tiny = 0;  // weights below TINY_SHARE
	for (int from = max_of(b * PAGE - first, 0) * x.run / VECTORS * VECTORS; from < x.n; from += VECTORS) {
		load_vectors(t, x, a.g, a.plan, from);
		if (a.plan.selected != SELECTED_ALL && !any_reads(t, x, a.plan, b)) continue;
		merge_states(tops, states, t, x.n, a.splits);
		float s[EACH];
		score_tile(s, t, x, a.g, a.plan, b);
		for (int u = 0; u < EACH; u++) {
			SoftmaxState top = tops[(int)threadIdx.x / PAGE * EACH + u];
			if (!(s[u] > EMPTY_MAX)) continue;
			float w = exp2f(s[u] - top.max) * top.sum;
			if (w < TINY_SHARE)
				tiny += exp2((double)(s[u] - top.max)) * (double)top.sum;
			else
				mine += w;
		}
	}
	sums[threadIdx.x] = mine;
	faint[threadIdx.x] = tiny;
	__syncthreads();
	int j = b * PAGE + threadIdx.x;
	if (threadIdx.x >= PAGE || j > last) return;
	float* sum = a.sum + ((i64)slot * a.g.heads + head_group) * a.width + j;
	float all = j < first ? *sum : 0;
	if (all == -infinity()) return;
	tiny = 0;
	if (all < 0) {
		tiny = share_of(all);
		all = 0;
	}
	for (int i = 0; i < 256; i += PAGE) {
		all += sums[i + threadIdx.x];
		tiny += faint[i + threadIdx.x];
	}
	*sum = hold_share((double)all + tiny);
}

struct EvictArgs {
	i32 *index, *count;  // [slots, kvheads, cap], [slots, kvheads]
	float* sum;          // [slots, kvheads, width]
	const i32* since;    // [slots]: the length that shares are of; 0: the row's position
	i64 cap, width;
	i64 heavy;
	f64 heavy_share;
	i64 recent;
	f64 recent_share;
	Span span;
	PagedKV g;
};

// evict (select and evict) lists the heavy hitters and the newest of the positions before the
// row's own, and evicts the others for good: their sum becomes -Inf. Grid: (kv head, slot); radix
// select and a stable compaction.
KERNEL(evict, EvictArgs, 1024) {
	int slot = blockIdx.y, p = first_position(a.g, slot);
	if (p < 0) return;
	if (p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	i64 list = (i64)slot * a.g.heads + blockIdx.x;
	float* sum = a.sum + list * a.width;
	int since = a.since[slot] == 0 ? p : a.since[slot];
	auto of = [&](f64 share, i64 count) { return min_of(share > 0 ? (i64)floor(share * (double)since + 1e-9) : count, (i64)p); };
	i64 heavy = of(a.heavy_share, a.heavy), recent = of(a.recent_share, a.recent);
	auto stays = [&](i64 j) { return sum[j] > -infinity() && sees(a.span, p, (int)j); };
	auto old = [&](i64 j, u32& key) {
		key = radix_key(sum[j]);
		return j < p - recent && stays(j);
	};
	Threshold<u32> cut = {~0u, 0};  // selects nothing
	if (heavy > 0) cut = radix_select<u32>(p, (u64)heavy, [&](i64 j, u32& key) { return (u64)old(j, key); });
	Selector<u32> start = make_selector(cut, p, old), in = start;
	auto takes = [&](i64 j) {
		u32 key;
		return old(j, key) ? in.takes(key) : j >= p - recent && stays(j);
	};
	ThreadRange r = thread_range(p);
	u64 mine = 0, total;
	for (i64 j = r.lo; j < r.hi; j++) mine += takes(j);
	u64 to = scan_block(mine, total);
	in = start;
	for (i64 j = r.lo; j < r.hi; j++) {
		if (!takes(j)) {
			sum[j] = -infinity();
			continue;
		}
		if (to < (u64)a.cap) a.index[list * a.cap + to] = (i32)j;
		to++;
	}
	if (threadIdx.x == 0) {
		if (total > (u64)a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[list] = (i32)min_of(total, (u64)a.cap);
	}
}
