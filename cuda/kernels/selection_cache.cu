// The selection cache: a decode step reuses what an earlier step of its block of steps selected,
// when its query is similar, as in CIS (CPE). For head group s and the step at position p:
//
//	reuse   the newest step e of the block of p with min_{h in group} cos(q_p, q_e) > min_cosine
//	        has a selection: read that, widened by neighbours of its best entries and by what
//	        has slid out of the window since
//	select  otherwise: the k best positions of the selected region by q·k/√dim, or by scores of
//	        low-bit keys, a group of several heads by ln Σ_h softmax_h; store them with the query
//	        for later steps
//
// reuse_selection looks, in every block of a kv head, for steps that its head groups reuse, which
// costs little, and scores a part of its keys for those that found none, each key once: where all
// reuse, no key is read. A second launch, reuse_rank (reuse_rank.cu), lists what is reused, or
// selects. reuse_attend.cu is both and the attention in one launch, where there are heads enough. Bound
// by reading the keys where a group selects, by latency where all reuse.
// Reference implementation: package cpu.
#include "keys.cuh"
#include "mirror_decode.cuh"
#include "selection_cache.cuh"

constexpr int EXACT_KEYS = 16;  // bits of a key of the cache, where tensor cores score it
constexpr int ANY_KEYS = 0;     // any cache, any head dimension, and their low-bit keys

// ReuseBlock is what a block of reuse_selection works with: the head groups of a kv head.
struct ReuseBlock {
	CacheStep step;
	VisibleRange scored, selectable;  // what is scored: of a group of several heads all that is visible
	int first, groups, group_heads;   // the first of its head groups, their number, and the heads of one
	float* q;                         // [groups·group_heads, dim]
	i32* records;                     // [groups, number, 3]
	int* found;                       // [groups]: the entry that is reused, or -1

	__device__ __forceinline__ int heads() const { return groups * group_heads; }
	__device__ __forceinline__ bool several() const { return group_heads > 1; }
	__device__ __forceinline__ bool selects(int head) const { return found[head / group_heads] < 0; }
	__device__ __forceinline__ i64 head(const ReuseArgs& a, int i) const { return step.slot * a.cache.heads + first * group_heads + i; }
};

// load_records loads the entries that find_entries looks through, and prefetches their queries.
__device__ inline void load_records(const ReuseArgs& a, const ReuseBlock& b) {
	constexpr int LINE = 32;  // floats of a cache line
	int n = 3 * b.step.number;
	i64 lines = (b.step.number * a.g.dim + LINE - 1) / LINE;
	for (int i = threadIdx.x; i < b.groups * n; i += blockDim.x) b.records[i] = entry_record(a.cache, b.step.slot, b.first + i / n, 0)[i % n];
	for (int i = threadIdx.x; i < b.heads() * lines; i += blockDim.x) prefetch_l2(a.cache.query + b.head(a, i / lines) * a.cache.block * a.g.dim + i % lines * LINE);
}

// load_queries loads the queries of the step, and stores them.
__device__ inline void load_queries(const ReuseArgs& a, const ReuseBlock& b, bool store) {
	int dim = (int)a.g.dim;
	i64 head = b.head(a, 0);
	for (int i = threadIdx.x; i < b.heads() * dim; i += blockDim.x) {
		float x = a.cos_q[head * dim + i];
		b.q[i] = x;
		if (store) a.cache.query[((head + i / dim) * a.cache.block + b.step.number) * dim + i % dim] = x;
	}
	__syncthreads();
}

// store_softmax stores the softmax of a part of the past of a head of the kv head.
__device__ __forceinline__ void store_softmax(const ReuseArgs& a, const ReuseBlock& b, int head, HeadSoftmax s) {
	float* to = a.softmax + (b.head(a, head) * a.parts + blockIdx.x) * 3;
	to[0] = s.max;
	to[1] = s.sum;
	to[2] = s.best;
}

// store_part stores the softmax of heads from to from+n-1, of which each warp has its share in parts
// [WARPS, EACH]. All threads call it.
template <int WARPS, int EACH>
__device__ __forceinline__ void store_part(const ReuseArgs& a, const ReuseBlock& b, int from, int n, const HeadSoftmax* parts) {
	__syncthreads();
	if ((int)threadIdx.x >= n || !b.selects(from + threadIdx.x)) return;
	HeadSoftmax all = empty_softmax();
	for (int w = 0; w < WARPS; w++) all.merge(parts[w * EACH + threadIdx.x]);
	store_softmax(a, b, from + threadIdx.x, all);
}

// put_score stores the score of position j in a row of scores, and adds it to the softmax of a head of
// several.
__device__ __forceinline__ void put_score(const ReuseArgs& a, const ReuseBlock& b, float* row, int j, float score, HeadSoftmax& sum) {
	if (!b.scored.contains(j)) return;
	row[j] = score;
	count_nan(a.g, score);
	if (b.several()) sum.add(score, b.selectable.contains(j));
}

// score_part computes scores [heads, width] of the block's pages for the heads that select, over
// an f16 cache, and the softmax of each.
template <int DIM>
__device__ __forceinline__ void score_part(const ReuseArgs& a, const ReuseBlock& b, KeyPair<DIM>* ring, float* x) {
	SHARED(HeadSoftmax, parts, KEY_WARPS * 8);
	int p = b.step.p, head = lane() / 4;
	bool valid = head < b.heads() && b.selects(head), paired = a.width % 2 == 0;
	float* row = x + (valid ? head : 0) * a.width;
	HeadSoftmax sum = empty_softmax();
	auto page = [&](int i) { return b.scored.shows(i * PAGE, (i + 1) * PAGE) ? a.g.table[(i64)b.step.slot * a.g.width + i] : -1; };
	auto put = [&](int i, float (&s)[EIGHTS][2]) {
		if (!valid) return;
		int at = i * PAGE + lane() % 4 * 2;
		if (paired && b.selectable.has_all(i * PAGE, (i + 1) * PAGE)) {
			float all[2 * EIGHTS];
			bool odd = false;
#pragma unroll
			for (int n = 0; n < EIGHTS; n++) {
				*(Word2*)(row + at + n * 8) = Word2{{__float_as_uint(s[n][0]), __float_as_uint(s[n][1])}};
				all[2 * n] = s[n][0];
				all[2 * n + 1] = s[n][1];
				odd |= s[n][0] != s[n][0] || s[n][1] != s[n][1];
			}
			if (odd) {
				for (int n = 0; n < 2 * EIGHTS; n++) count_nan(a.g, all[n]);
			}
			if (b.several()) sum.add_all(all);
			return;
		}
#pragma unroll
		for (int n = 0; n < EIGHTS; n++) {
			put_score(a, b, row, at + n * 8, s[n][0], sum);
			put_score(a, b, row, at + n * 8 + 1, s[n][1], sum);
		}
	};
	score_pages<DIM>(a.g, ring + warp() * KEY_STAGES, blockIdx.y, a.q + b.head(a, valid ? head : 0) * DIM, valid, 1 / sqrtf((float)DIM), warp_pages(p / PAGE + 1), p / PAGE, false, page, put);
	if (!b.several()) return;
	sum.merge_lane(1);
	sum.merge_lane(2);
	if (lane() % 4 == 0) parts[warp() * 8 + head] = sum;
	store_part<KEY_WARPS, 8>(a, b, 0, b.heads(), parts);
}

// score_part_mirror computes scores as score_part does, of low-bit keys.
template <int BITS, int DIM>
__device__ __forceinline__ void score_part_mirror(const ReuseArgs& a, const ReuseBlock& b, float* x) {
	constexpr int WARPS = REUSE_THREADS / WARP;
	static_assert(REUSE_THREADS == MIRROR_THREADS, "the warps of a block share its part");
	SHARED(HeadSoftmax, parts, WARPS * MIRROR_GROUP);
	ScoredRegion region = scored_region(a.plan, b.step.p, !b.several(), false);
	bool aligned = rows_aligned(a.scores, a.width);
	int c = lane() % 4;
	for (int from = 0; from < b.heads(); from += MIRROR_GROUP) {
		int heads = min_of(MIRROR_GROUP, b.heads() - from);
		HeadSoftmax sum[2] = {empty_softmax(), empty_softmax()};
		bool valid[2];
#pragma unroll
		for (int u = 0; u < 2; u++) valid[u] = 2 * c + u < heads && b.selects(from + 2 * c + u);
		score_mirror_mma<BITS, DIM>(a.mirror, a.g, region, b.step.slot, mirror_units(b.step.p), a.q + b.head(a, from) * DIM, heads, [&](int unit, float (&s)[2][4], bool there) {
			int at = unit * MIRROR_RUN + lane() / 4 * 4;
			bool inside = there && aligned && b.selectable.has_all(unit * MIRROR_RUN, (unit + 1) * MIRROR_RUN);
#pragma unroll
			for (int u = 0; u < 2; u++) {
				float* row = x + (from + 2 * c + u) * a.width;
				if (!valid[u]) continue;
				if (inside && s[u][0] == s[u][0] && s[u][1] == s[u][1] && s[u][2] == s[u][2] && s[u][3] == s[u][3]) {
					store_float4(row + at, s[u]);
					if (b.several()) sum[u].add_all(s[u]);
					continue;
				}
#pragma unroll
				for (int i = 0; i < 4; i++) put_score(a, b, row, at + i, there ? s[u][i] : -infinity(), sum[u]);
			}
		});
		if (!b.several()) continue;
#pragma unroll
		for (int u = 0; u < 2; u++) {
			for (int by = 4; by < WARP; by *= 2) sum[u].merge_lane(by);
			if (lane() < 4) parts[warp() * MIRROR_GROUP + 2 * c + u] = sum[u];
		}
		store_part<WARPS, MIRROR_GROUP>(a, b, from, heads, parts);
		__syncthreads();
	}
}

// Positions lo to hi-1 of a block.
struct PartRange {
	int lo, hi;
};

__device__ __forceinline__ PartRange part_range(int p) {
	int pages = p / PAGE + 1, parts = gridDim.x, part = blockIdx.x;
	PartRange r = {(int)((i64)pages * part / parts) * PAGE, min_of((int)((i64)pages * (part + 1) / parts) * PAGE, p + 1)};
	return r;
}

// score_part_scalar computes scores as score_part does, of any cache and any number of heads, one warp
// for a position.
__device__ inline void score_part_scalar(const ReuseArgs& a, const ReuseBlock& b, float* x) {
	PartRange r = part_range(b.step.p);
	int dim = (int)a.g.dim;
	float unit = 1 / sqrtf((float)dim);
	const float* q = a.q + b.head(a, 0) * dim;
	for (int j = r.lo + warp(); j < r.hi; j += (int)blockDim.x / WARP) {
		if (!b.scored.contains(j)) continue;
		i64 from = key_offset(a.g, b.step.slot, blockIdx.y, j);
		for (int h = 0; h < b.heads(); h++) {
			if (!b.selects(h)) continue;
			float sum = 0;
			for (int d = lane(); d < dim; d += WARP) sum += q[h * dim + d] * load_kv(a.g.k, a.g.half, from + d);
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) x[h * a.width + j] = sum * unit;
		}
	}
	__syncthreads();
}

// score_part_any is score_part_scalar, or the same of low-bit keys; scratch is that of score_mirror.
__device__ inline void score_part_any(const ReuseArgs& a, const ReuseBlock& b, float* scratch, float* x) {
	if (!a.mirror.page) {
		score_part_scalar(a, b, x);
		return;
	}
	PartRange r = part_range(b.step.p);
	score_mirror(a.mirror, a.g, b.step.slot, r.hi - 1, r.lo + threadIdx.x, blockDim.x, a.q + b.head(a, 0) * a.g.dim, b.heads(), scratch,
		[&](int j) { return b.scored.contains(j); }, [&](int h, int j, float score) {
			if (b.selects(h)) x[h * a.width + j] = score;
		});
}

// sum_part counts the NaN among the scores of the block's part and makes the softmax of each head.
__device__ inline void sum_part(const ReuseArgs& a, const ReuseBlock& b, const float* x) {
	SHARED(HeadSoftmax, parts, WARP);
	constexpr int IN_FLIGHT = 8;
	PartRange r = part_range(b.step.p);
	for (int h = 0; h < b.heads(); h++) {
		if (!b.selects(h)) continue;
		HeadSoftmax sum = empty_softmax();
		for (int first = r.lo + threadIdx.x; first < r.hi; first += IN_FLIGHT * blockDim.x) {
			float v[IN_FLIGHT];
#pragma unroll
			for (int i = 0; i < IN_FLIGHT; i++) v[i] = ld_cg(x + h * a.width + min_of(first + i * (int)blockDim.x, r.hi - 1));
#pragma unroll
			for (int i = 0; i < IN_FLIGHT; i++) {
				int j = first + i * blockDim.x;
				if (j >= r.hi || !b.scored.contains(j)) continue;
				count_nan(a.g, v[i]);
				if (b.several()) sum.add(v[i], b.selectable.contains(j));
			}
		}
		if (!b.several()) continue;
		for (int by = 1; by < WARP; by *= 2) sum.merge_lane(by);
		__syncthreads();
		if (lane() == 0) parts[warp()] = sum;
		__syncthreads();
		if (threadIdx.x > 0) continue;
		for (int w = 1; w < (int)blockDim.x / WARP; w++) sum.merge(parts[w]);
		store_softmax(a, b, h, sum);
	}
}

// score_room is the shared memory that scoring takes, in bytes: the pipeline of keys (keys.cuh), or the
// scratch of score_mirror.
template <int BITS, int DIM>
__device__ __forceinline__ i64 score_room(const ReuseArgs& a) {
	if constexpr (BITS == EXACT_KEYS) return KEY_WARPS * KEY_STAGES * sizeof(KeyPair<DIM>);
	return BITS == ANY_KEYS && a.mirror.page ? 4 * MIRROR_HEADS * (a.g.dim + a.g.dim / 4 + 1) : 0;
}

// reuse (select) finds what the head groups of kv head blockIdx.y of slot blockIdx.z reuse, and scores
// part blockIdx.x of its pages for the others. Shared memory: what scoring takes, the queries, what is
// found and the entries.
template <int BITS, int DIM>
__device__ __forceinline__ void reuse(const ReuseArgs& a) {
	DYNAMIC_SHARED(unsigned char, shared);
	ReuseBlock b;
	int part = blockIdx.x, slot = blockIdx.z, p = first_position(a.g, slot), groups = (int)(a.cache.head_groups / a.g.heads);
	bool good = p >= 0 && page_table_valid(a.g, slot, p);
	if (!good || p >= a.width) {
		pdl_wait();
		if (part > 0 || threadIdx.x > 0 || p < 0) return;
		if (good) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		for (int i = 0; i < groups; i++) a.cache.found[slot * a.cache.head_groups + blockIdx.y * groups + i] = -1;  // which reuse_rank reads
		return;
	}
	if (!a.early) pdl_wait();
	b.step = cache_step(a.cache, slot, p);
	b.groups = groups;
	b.group_heads = (int)(a.cache.heads / a.cache.head_groups);
	b.first = (int)blockIdx.y * b.groups;
	b.q = (float*)(shared + score_room<BITS, DIM>(a));
	b.found = (int*)(b.q + b.heads() * a.g.dim);
	b.records = b.found + b.groups;
	load_records(a, b);
	if (a.early) pdl_wait();
	load_queries(a, b, part == 0);
	find_entries(a, b.step, b.first, b.groups, b.q, b.records, b.found);
	if (part == 0 && threadIdx.x == 0) check_budget(a, p);
	bool select = false;
	for (int i = 0; i < b.groups; i++) {
		if (part == 0 && threadIdx.x == 0) a.cache.found[slot * a.cache.head_groups + b.first + i] = b.found[i];
		select |= b.found[i] < 0;
	}
	if (!select) return;
	b.selectable = selectable_range(a.plan, p);
	b.scored = b.several() ? visible_range(a.plan.span, p) : b.selectable;
	float* x = a.scores + b.head(a, 0) * a.width;
	if constexpr (BITS == EXACT_KEYS) {
		score_part<DIM>(a, b, (KeyPair<DIM>*)shared, x);
	} else if constexpr (BITS != ANY_KEYS) {
		score_part_mirror<BITS, DIM>(a, b, x);
	} else {
		score_part_any(a, b, (float*)shared, x);
		sum_part(a, b, x);
	}
}

// Grid of all: (part, kv head, slot). reuse_selection is for any cache.
KERNEL_2_PER_SM(reuse_selection, ReuseArgs, REUSE_THREADS) { reuse<ANY_KEYS, 0>(a); }
KERNEL_2_PER_SM(reuse_selection_64, ReuseArgs, REUSE_THREADS) { reuse<EXACT_KEYS, 64>(a); }
KERNEL_2_PER_SM(reuse_selection_128, ReuseArgs, REUSE_THREADS) { reuse<EXACT_KEYS, 128>(a); }
KERNEL_2_PER_SM(reuse_selection_q4_64, ReuseArgs, REUSE_THREADS) { reuse<4, 64>(a); }
KERNEL_2_PER_SM(reuse_selection_q4_128, ReuseArgs, REUSE_THREADS) { reuse<4, 128>(a); }
KERNEL_2_PER_SM(reuse_selection_q8_64, ReuseArgs, REUSE_THREADS) { reuse<8, 64>(a); }
KERNEL_2_PER_SM(reuse_selection_q8_128, ReuseArgs, REUSE_THREADS) { reuse<8, 128>(a); }
