// How much attention positions get, and which of them stay. Definitions: package
// cpu, usage.go.
#include "rank.cuh"
#include "shares.cuh"

// states: block (t·splits + s, set, slot) finds the state of split s of what each
// vector of tile t reads.
KERNEL(states, StatesArgs, 256) {
	DYNAMIC_SHARED(float, shared);
	SHARED(Entries, lists, VECTORS);
	SHARED(SoftmaxState, parts, VECTORS* PAGE);
	int slot = blockIdx.z, set = (int)a.set + blockIdx.y, first = first_position(a.g, slot), splits = (int)a.splits, split = blockIdx.x % splits;
	if (first < 0) return;
	Vectors x = vectors_of(a.g, a.q, slot, first, set, a.heads, a.run);
	KeyTile t = key_tile(shared, lists, a.g.dim);
	load_vectors(t, x, a.g, a.plan, blockIdx.x / splits * VECTORS);
	SoftmaxState mine[EACH];
	for (int u = 0; u < EACH; u++) mine[u] = {EMPTY_MAX, 0};
	int last = x.position(min_of(t.from + VECTORS, x.n) - 1);
	for (int b = split; b <= last / PAGE; b += splits) {
		int page = page_of(a.g, slot, b);
		if (page < 0) return;
		if (a.plan.middle != MIDDLE_ALL && !any_reads(t, x, a.plan, b)) continue;
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

// take_states merges the splits of the vectors in hand: their top, and one over
// their sum.
__device__ inline void take_states(SoftmaxState* to, const SoftmaxState* states, const KeyTile& t, int n, i64 splits) {
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

struct UsageArgs {
	float* sum;      // [slots, kvheads, width]
	const float* q;  // [rows, heads, dim]
	const SoftmaxState* states;
	i64 heads, splits, width;
	PagedKV g;
	Plan plan;
};

// add_weights: block (b, h, slot) adds to the sums of the positions of page b for
// kv head h what each row reads of them.
KERNEL(add_weights, UsageArgs, 256) {
	DYNAMIC_SHARED(float, shared);
	SHARED(Entries, lists, VECTORS);
	SHARED(SoftmaxState, tops, VECTORS);
	SHARED(float, sums, 256);
	SHARED(double, faint, 256);
	int slot = blockIdx.z, set = blockIdx.y, b = blockIdx.x, first = first_position(a.g, slot), last = first + (int)a.g.rows - 1;
	if (first < 0 || b * PAGE > last) return;
	if (last >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, last, a.width, 0);
		return;
	}
	int page = page_of(a.g, slot, b);
	if (page < 0) return;
	Vectors x = vectors_of(a.g, a.q, slot, first, set, a.heads, a.heads / a.g.heads);
	KeyTile t = key_tile(shared, lists, a.g.dim);
	load_keys(t, a.g, page, x.kv_head, min_of(PAGE, last + 1 - b * PAGE));
	const SoftmaxState* states = a.states + ((i64)slot * gridDim.y + set) * x.n * a.splits;
	float mine = 0;
	double tiny = 0;  // what is below TINY_SHARE
	for (int from = max_of(b * PAGE - first, 0) * x.run / VECTORS * VECTORS; from < x.n; from += VECTORS) {
		load_vectors(t, x, a.g, a.plan, from);
		if (a.plan.middle != MIDDLE_ALL && !any_reads(t, x, a.plan, b)) continue;
		take_states(tops, states, t, x.n, a.splits);
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
	float* sum = a.sum + ((i64)slot * a.g.heads + set) * a.width + j;
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

struct KeepArgs {
	i32 *index, *count;  // [slots, kvheads, cap], [slots, kvheads]
	float* sum;          // [slots, kvheads, width]
	const i32* since;    // [slots]
	i64 cap, width;
	i64 best;
	f64 best_share;
	i64 newest;
	f64 newest_share;
	Span span;
	PagedKV g;
};

// keep_best: block (h, slot) lists what stays of the positions before the newest
// one, and drops the others.
KERNEL(keep_best, KeepArgs, 1024) {
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
	i64 best = of(a.best_share, a.best), newest = of(a.newest_share, a.newest);
	auto stays = [&](i64 j) { return sum[j] > -infinity() && sees(a.span, p, (int)j); };
	auto old = [&](i64 j, u32& key) {
		key = key_of(sum[j]);
		return j < p - newest && stays(j);
	};
	Cut<u32> cut = {~0u, 0};  // nothing
	if (best > 0) cut = select<u32>(p, (u64)best, [&](i64 j, u32& key) { return (u64)old(j, key); });
	Picker<u32> start = picker(cut, p, old), in = start;
	auto takes = [&](i64 j) {
		u32 key;
		return old(j, key) ? in.takes(key) : j >= p - newest && stays(j);
	};
	Run r = run_of(p);
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
