// Heavy hitters (H2O): the sum of the softmax weights that each position has received, per kv
// head, and the eviction of all but the largest and the newest. Reference implementation: package
// cpu.
#include "cluster_select.cuh"
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
	i64 part;  // elements of a block, at most
	PagedKV g;
};

// HeldSums are the keys of a kv head's sums: of positions before `newest` that are not evicted.
struct HeldSums {
	const EvictArgs& a;
	const float* sum;
	int p, newest;
	bool whole;  // the span shows all

	__device__ __forceinline__ float fetch(int j) const { return ld_cg(sum + j); }
	__device__ __forceinline__ bool held(int j, float x) const { return x > -infinity() && (whole || sees(a.span, p, j)); }

	// old is those of 32 positions from j on that are before `newest`.
	__device__ __forceinline__ unsigned old(int j) const { return newest - j >= WARP ? FULL_MASK : newest > j ? (1u << (newest - j)) - 1 : 0; }
	__device__ __forceinline__ u32 key(int j, float x, bool) const { return j < newest && held(j, x) ? radix_key(x) : 0; }
};

// HeldTally is what some elements have of a kv head's sums: how many are held, and of those before
// `newest` how many, the smallest key and the last position that has it.
struct HeldTally {
	u32 held, old, smallest, at;

	// warp makes it that of the warp's lanes, whose smallest and at it has, and total that of the words
	// of several, of which each lane has one.
	__device__ __forceinline__ void warp() {
		u32 key = ~warp_max(~smallest);
		at = warp_max(smallest == key ? at : 0);
		smallest = key;
	}
	__device__ __forceinline__ void total() {
		held = warp_add(held);
		old = warp_add(old);
		warp();
	}
};
static_assert(sizeof(HeldTally) == 4 * sizeof(u32), "words");

// mark_held marks the warp's elements that are held, and evicts the others.
template <class Part>
__device__ inline HeldTally mark_held(const Part& part, float* sum) {
	HeldTally t = {0, 0, ~0u, 0};
	float smallest = infinity();
	for (int base = part.from; base < part.until; base += KEYS_IN_FLIGHT * WARP) {
		float x[KEYS_IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) x[i] = part.load.fetch(part.lo + min_of(base + i * WARP + lane(), part.until - 1));
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
			int j = base + i * WARP;
			if (j >= part.until) break;
			int at = part.lo + j + lane();
			bool in = j + lane() < part.until, held = in && part.load.held(at, x[i]);
			unsigned who = __ballot_sync(FULL_MASK, held);
			if (lane() == 0) part.bits[j / WARP] = who;
			t.held += __popc(who);
			t.old += __popc(who & part.load.old(part.lo + j));
			if (held && at < part.load.newest && x[i] <= smallest) {
				smallest = x[i];
				t.at = (u32)at;
			}
			if (in && !held && x[i] != -infinity()) sum[at] = -infinity();
		}
	}
	t.smallest = radix_key(smallest);
	t.warp();
	__syncwarp();
	return t;
}

// mark_newest marks, besides the heavy hitters, what is held of the newest, and evicts the others. It
// returns how many of the warp are marked.
template <class Part>
__device__ inline u32 mark_newest(const Part& part, float* sum) {
	u32 n = 0;
	for (int base = part.from; base < part.until; base += KEYS_IN_FLIGHT * WARP) {
		float x[KEYS_IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) x[i] = part.load.fetch(part.lo + min_of(base + i * WARP + lane(), part.until - 1));
#pragma unroll
		for (int i = 0; i < KEYS_IN_FLIGHT; i++) {
			int j = base + i * WARP;
			if (j >= part.until) break;
			int at = part.lo + j + lane();
			bool held = j + lane() < part.until && part.load.held(at, x[i]);
			u32 heavy = part.bits[j / WARP];
			bool stays = held && (at >= part.load.newest || heavy >> lane() & 1);
			unsigned who = __ballot_sync(FULL_MASK, stays);
			if (lane() == 0) part.bits[j / WARP] = who;
			n += __popc(who);
			if (held && !stays) sum[at] = -infinity();
		}
	}
	__syncwarp();
	return n;
}

// evict (select and evict) lists the heavy hitters and the newest of the positions before the
// row's own, and evicts the others for good: their sum becomes -Inf. Grid: (kv head, slot, block
// of the cluster), a cluster for each list; see cluster_select.cuh. Where one more is held than
// stays, as in every step that follows another, one pass finds the smallest, and nothing is ranked.
// Bound by the latency of that pass and of its barriers.
KERNEL_2_PER_SM(evict, EvictArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	SHARED(u32, tallies, 4 * WARP);
	SHARED(u32, own, 4);
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
	HeldSums load = {a, sum, p, p - (int)recent, a.span.back == 0 && a.span.drop == 0};
	ListPart<HeldSums> part = list_part(c, s, p, a.part, load);
	HeldTally mine = mark_held(part, sum);
	if (lane() == 0) ((HeldTally*)tallies)[warp()] = mine;
	__syncthreads();
	HeldTally none = {0, 0, ~0u, 0}, block = lane() < (int)blockDim.x / WARP ? ((HeldTally*)tallies)[lane()] : none;
	u32 before = warp_add(lane() < warp() ? block.held : 0);
	block.total();
	if (threadIdx.x == 0) *(HeldTally*)own = block;
	c.sync();
	HeldTally all = {c.of_lane(&own[0]), c.of_lane(&own[1]), lane() < c.size ? c.of_lane(&own[2]) : ~0u, c.of_lane(&own[3])};
	before += warp_add(lane() < c.rank ? all.held : 0);
	all.total();
	Selected selected = {before, all.held};
	if (all.old > heavy + 1) {
		if (heavy > 0)
			cluster_select<false>(c, s, part, [](u32, u32) { return (u64)1; }, [&](u64) { return (u64)heavy; });
		else
			for (int w = part.from / WARP + lane(); w * WARP < part.until; w += WARP) part.bits[w] = 0;
		__syncwarp();
		u32 n[1] = {mark_newest(part, sum)}, total[1];
		sum_before(c, &s.entries, s.warps, n, total);
		selected = {n[0], total[0]};
	} else if (all.old > heavy) {  // the smallest goes, of equal ones the last
		int at = (int)all.at - part.lo;
		if (at >= part.from && at < part.until && lane() == 0) {
			part.bits[at / WARP] &= ~(1u << at % WARP);
			sum[all.at] = -infinity();
		}
		__syncwarp();
		selected.before -= at < part.from;
		selected.all--;
	}
	i32* index = a.index + list * a.cap;
	cluster_put(part, selected, [&](int j, i64 to) {
		if (to < a.cap) index[to] = j;
	});
	if (threadIdx.x == 0 && c.rank == 0) {
		if (selected.all > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[list] = (i32)min_of((i64)selected.all, a.cap);
	}
	c.sync();  // peers have read the counts
}
