// Heavy hitters (H2O): the sum of the softmax weights that each position has received, per kv
// head, and the eviction of all but the largest and the newest. Reference implementation: package
// cpu.
#include "cluster_select.cuh"
#include "read_map.cuh"
#include "scores.cuh"
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

constexpr int MASS_KEYS = 1024;  // keys of a block at a time
constexpr int MASS_CHUNK = 128;  // keys whose softmax state is merged as one

struct NewestMassArgs {
	float* sum;      // [slots, kvheads, width], as hold_share has it
	const float* q;  // [slots, heads, dim]
	u8* work;        // [slots, kvheads, item]
	i64 item;        // bytes of the scratch of a kv head
	i64 maps;        // of them, a block's bitmap and counts; 0: they are in shared memory
	i64 heads, width;
	PagedKV g;
	Plan plan;  // the heads of a kv head read the same, with weight 1
};

// MassItem is a kv head of a slot, and what a block knows of it. Its scratch has the state of each
// chunk for each head, and then the base-2 scores of the positions that are read.
struct MassItem {
	ReadMap m;
	u8* work;
	int chunks, first, end;  // of them those of the block

	__device__ __forceinline__ SoftmaxState* states(int head) const { return (SoftmaxState*)work + (i64)head * chunks; }
	__device__ __forceinline__ float* scores(int head) const { return (float*)states(m.group_heads) + (i64)head * chunks * MASS_CHUNK; }
};

// score_newest scores the block's positions and makes the states of its chunks.
__device__ inline void score_newest(const NewestMassArgs& a, const MassItem& t) {
	SHARED(i32, places, MASS_KEYS);
	float unit = 1.4426950408889634f / sqrtf((float)a.g.dim);
	for (int from = t.first * MASS_CHUNK, end = min_of(t.end * MASS_CHUNK, t.m.n); from < end; from += MASS_KEYS) {
		int n = min_of(MASS_KEYS, end - from);
		for (int i = threadIdx.x; i < n; i += blockDim.x) places[i] = t.m.place(a.g, t.m.nth(from + i));
		__syncthreads();
		for (int h = 0; h < t.m.group_heads; h += HEADS_PER_PASS) {
			int heads = min_of(HEADS_PER_PASS, t.m.group_heads - h);
			const float* q = a.q + ((i64)t.m.at.slot * a.heads + t.m.head + h) * a.g.dim;
			auto put = [&](int u, int i, float sum) {
				sum *= unit;
				t.scores(h + u)[from + i] = sum > EMPTY_MAX ? sum : EMPTY_MAX;  // NaN counts as masked
			};
			score_any(a.g, n, q, heads, [](int) { return true; }, [&](int i) { return t.m.offset(a.g, places[i]); }, put);
		}
		__syncthreads();
		int chunks = (n + MASS_CHUNK - 1) / MASS_CHUNK;
		for (int i = warp(); i < chunks * t.m.group_heads; i += (int)blockDim.x / WARP) {
			int head = i / chunks, lo = from + i % chunks * MASS_CHUNK, hi = min_of(lo + MASS_CHUNK, from + n);
			const float* scores = t.scores(head);
			SoftmaxState all = {EMPTY_MAX, 0};
			for (int k = lo + lane(); k < hi; k += WARP) all.max = max_of(all.max, scores[k]);
			all.max = reduce_warp(all.max, Max());
			for (int k = lo + lane(); k < hi; k += WARP) all.sum += scores[k] > EMPTY_MAX ? exp2f(scores[k] - all.max) : 0;
			all.sum = reduce_warp(all.sum, Plus());
			if (lane() == 0) t.states(head)[lo / MASS_CHUNK] = all;
		}
		__syncthreads();
	}
}

// add_newest adds to the sums of the block's positions what their row gave them. tops are the max of
// each head, and 1 / its sum.
__device__ inline void add_newest(const NewestMassArgs& a, const MassItem& t, const SoftmaxState* tops, int head, int heads) {
	float* sums = a.sum + ((i64)t.m.at.slot * a.g.heads + t.m.kv_head) * a.width;
	for (int i = t.first * MASS_CHUNK + threadIdx.x; i < min_of(t.end * MASS_CHUNK, t.m.n); i += blockDim.x) {
		int j = t.m.nth(i);
		float mine = 0, all = j < t.m.at.p || head > 0 ? sums[j] : 0;
		double tiny = 0;  // weights below TINY_SHARE
		if (all == -infinity()) continue;
		for (int u = 0; u < heads; u++) {
			float s = t.scores(head + u)[i];
			if (!(s > EMPTY_MAX)) continue;
			float w = exp2f(s - tops[u].max) * tops[u].sum;
			if (w < TINY_SHARE)
				tiny += exp2((double)(s - tops[u].max)) * (double)tops[u].sum;
			else
				mine += w;
		}
		if (all < 0) {
			tiny += share_of(all);
			all = 0;
		}
		sums[j] = hold_share((double)(all + mine) + tiny);
	}
}

// newest_mass (summarize) is attention_mass for the newest row of each slot and a list per kv head:
// what is not read is not looked at. Grid: (kv head, slot, block of the cluster). Bound by reading
// the keys of the list.
KERNEL_1_PER_SM(newest_mass, NewestMassArgs, 512) {
	DYNAMIC_SHARED(u8, shared);
	SHARED(SoftmaxState, tops, WARP);
	ClusterBlock c = this_block();
	MassItem t;
	t.m.kv_head = blockIdx.x;
	t.m.group_heads = (int)(a.heads / a.g.heads);
	t.m.head = (int)blockIdx.x * t.m.group_heads;
	t.m.at = row_position(a.g, blockIdx.y);
	int p = t.m.at.p;
	if (p < 0) return;
	if (p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	if (!page_table_valid(a.g, t.m.at.slot, p)) return;
	t.work = a.work + ((i64)blockIdx.y * gridDim.x + blockIdx.x) * a.item;
	u8* maps = a.maps > 0 ? t.work + c.rank * a.maps : shared;
	if (a.maps > 0) t.work += c.size * a.maps;
	t.m.read = (u64*)maps;
	t.m.before = (u32*)(t.m.read + a.g.width);
	t.m.words = p / PAGE + 1;
	build_map(t.m, a.plan, a.g, a.heads);
	t.m.n = count_pages(t.m.before, t.m.words, [&](int w) { return t.m.read[w]; });
	t.chunks = (t.m.n + MASS_CHUNK - 1) / MASS_CHUNK;
	int each = (t.chunks + c.size - 1) / c.size;
	t.first = min_of(c.rank * each, t.chunks);
	t.end = min_of(t.first + each, t.chunks);
	if (threadIdx.x == 0 && c.rank == 0 && !(t.m.read[p / PAGE] >> p % PAGE & 1)) a.sum[((i64)t.m.at.slot * a.g.heads + t.m.kv_head) * a.width + p] = hold_share(0);
	score_newest(a, t);
	c.sync();
	for (int h = 0; h < t.m.group_heads; h += WARP) {
		int heads = min_of(WARP, t.m.group_heads - h);
		__syncthreads();
		for (int u = warp(); u < heads; u += (int)blockDim.x / WARP) {
			const SoftmaxState* of = t.states(h + u);
			SoftmaxState all = {EMPTY_MAX, 0};
			for (int i = lane(); i < t.chunks; i += WARP) all.max = max_of(all.max, load_peer(&of[i].max));
			all.max = reduce_warp(all.max, Max());
			for (int i = lane(); i < t.chunks; i += WARP) all.sum += load_peer(&of[i].sum) * rescale(load_peer(&of[i].max), all.max);
			all.sum = normalizer(reduce_warp(all.sum, Plus()), false);
			if (lane() == 0) tops[u] = all;
		}
		__syncthreads();
		add_newest(a, t, tops, h, heads);
	}
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
	i64 part;  // elements of a block, at most
	PagedKV g;
};

// HeldSums are the keys of a kv head's sums: of positions before `newest` that are not evicted.
struct HeldSums {
	const EvictArgs& a;
	const float* sum;
	int p, newest;

	__device__ __forceinline__ float fetch(int j) const { return ld_cg(sum + j); }
	__device__ __forceinline__ bool held(int j, float x) const { return x > -infinity() && sees(a.span, p, j); }
	__device__ __forceinline__ u32 key(int j, float x, bool) const { return j < newest && held(j, x) ? radix_key(x) : 0; }
};

// evict (select and evict) lists the heavy hitters and the newest of the positions before the
// row's own, and evicts the others for good: their sum becomes -Inf. Grid: (kv head, slot, block
// of the cluster), a cluster for each list; see cluster_select.cuh. Bound by the latency of its
// barriers.
KERNEL_2_PER_SM(evict, EvictArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	int slot = blockIdx.y, p = first_position(a.g, slot);
	pdl_wait();
	if (p < 0) return;
	if (p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	ClusterBlock c = this_block();
	ClusterScratch& s = *scratch;
	i64 list = (i64)slot * a.g.heads + blockIdx.x;
	float* sum = a.sum + list * a.width;
	int since = a.since[slot] == 0 ? p : a.since[slot];
	auto of = [&](f64 share, i64 count) { return min_of(share > 0 ? (i64)floor(share * (double)since + 1e-9) : count, (i64)p); };
	i64 heavy = of(a.heavy_share, a.heavy), recent = of(a.recent_share, a.recent);
	HeldSums load = {a, sum, p, p - (int)recent};
	ListPart<HeldSums> part = list_part(c, s, p, a.part, load);
	if (heavy > 0) {
		cluster_select<false>(c, s, part, [](u32, u32) { return (u64)1; }, [&](u64) { return (u64)heavy; });
	} else {
		for (int w = part.from / WARP + lane(); w * WARP < part.until; w += WARP) part.bits[w] = 0;
	}
	__syncwarp();
	for (int i = max_of(part.from, load.newest - part.lo) + lane(); i < part.until; i += WARP) {
		if (load.held(part.lo + i, load.fetch(part.lo + i))) mark(part, (u32)i);
	}
	__syncwarp();
	u32 n[1] = {0}, all[1];
	for (int w = part.from / WARP + lane(); w * WARP < part.until; w += WARP) n[0] += __popc(part.bits[w]);
	n[0] = warp_add(n[0]);
	sum_before(c, &s.entries, s.warps, n, all);
	i32* index = a.index + list * a.cap;
	Selected selected = {n[0], all[0]};
	cluster_put(part, selected, [&](int j, i64 to) {
		if (to < a.cap) index[to] = j;
	});
	for (int i = part.from + lane(); i < part.until; i += WARP) {
		bool stays = part.bits[i / WARP] >> i % WARP & 1;
		if (!stays && load.fetch(part.lo + i) != -infinity()) sum[part.lo + i] = -infinity();
	}
	if (threadIdx.x == 0 && c.rank == 0) {
		if (all[0] > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[list] = (i32)min_of((i64)all[0], a.cap);
	}
	c.sync();  // peers have read the counts
}
