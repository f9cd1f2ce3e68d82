// LSH sampling, as in MagicPIG: sign random projections of stored keys in tables of bits planes
// each. A key and a query collide in a table when none of its planes separates them, with
// probability p = (1 - angle/π)^bits. Positions that collide in at least min_tables (1 or 2) of
// the tables are listed with importance weight 1/probability, so that the weighted sum of exp(q·k)
// estimates the softmax denominator. Reference implementation: package cpu.
//
// Codes are bit-sliced: a word has one plane's bit for the 64 keys of a page, so that a table of
// a page is compared by `bits` logical operations instead of 64 comparisons.
//
// A decode step computes the sides of its vectors, the new keys and the queries, a plane per warp,
// so that planes are read once; reads the query's bucket of each table, of the positions that are
// sorted into buckets, and compares the codes of the others with the query heads of a kv head at
// once; and lists the collisions of a head by a thread-block cluster. Without buckets all codes are
// compared.
#include "cluster_select.cuh"
#include "scores.cuh"

struct LshIndex {
	const float* planes;  // [n, dim], n = tables · bits
	u64* codes;           // [slots, kvheads, blocks, n]: bit i is 1 for key i of the page above the plane
	float* norm;          // [slots, kvheads, width]: ‖key - center‖
	float* center;        // [slots, kvheads, dim]
	i32 *since, *coded;   // [slots]: where decoding began; positions that have codes
	i64 n, tables, min_tables, blocks, width;
	i64 centered, center_queries, sink, recent;
	i32* sorted;             // [slots]: positions before this are sorted into buckets
	u16 *buckets, *members;  // [slots, kvheads, runs, tables, 2, 2^bits], [slots, kvheads, tables, stride]; NULL without
	i64 stride;

	__device__ __forceinline__ int bits() const { return (int)(n / tables); }
};

// These load from L2 what a kernel in front, which may still have run when this one started, has
// read and another one written; see ld_cg.
__device__ __forceinline__ int ld_state(const i32* at) { return (int)__float_as_uint(ld_cg((const float*)at)); }
__device__ __forceinline__ u64 ld_code(const u64* at) {
	u32 low = __float_as_uint(ld_cg((const float*)at)), high = __float_as_uint(ld_cg((const float*)at + 1));
	return (u64)high << 32 | low;
}

constexpr int HASH_RUN = 1 << 15;       // positions of a run of buckets
constexpr int RUN_PAGES = HASH_RUN / PAGE;
constexpr int LSH_NEVER_SORTED = 64;    // newest positions, so that truncating by a few costs nothing
constexpr int LSH_MIN_UNSORTED = 64;    // positions, and
constexpr int LSH_UNSORTED_SHARE = 8;   // one in so many of the sorted ones, before more are sorted

// SortedRange is what a call of KeyHashes does about buckets: positions before `kept` stay sorted,
// and those before `end` are when it is done. Runs that have any of the others are sorted anew.
struct SortedRange {
	int kept, end;
};

// sorted_range is that of a slot whose newest position is p, before hash_newest has run.
__device__ inline SortedRange sorted_range(const LshIndex& h, int slot, int p) {
	int have = p < ld_state(h.since + slot) ? 0 : min_of(ld_state(h.coded + slot), p), sorted = ld_state(h.sorted + slot);
	SortedRange r = {sorted, sorted};
	if (have == 0 || have < sorted) r.kept = r.end = have / HASH_RUN * HASH_RUN;
	int n = max_of(p + 1 - LSH_NEVER_SORTED, 0) / PAGE * PAGE;
	if (n - r.kept >= max_of(LSH_MIN_UNSORTED, r.kept / LSH_UNSORTED_SHARE)) r.end = n;
	return r;
}

// bucket_ends is where the buckets of a table end among the members of a run, and run_members these.
__device__ __forceinline__ u16* bucket_ends(const LshIndex& h, i64 kv_head, int run, int table) {
	i64 runs = (h.width + HASH_RUN - 1) / HASH_RUN;
	return h.buckets + (((kv_head * runs + run) * h.tables + table) * 2 << h.bits());
}
__device__ __forceinline__ u16* run_members(const LshIndex& h, i64 kv_head, int run, int table) {
	return h.members + (kv_head * h.tables + table) * h.stride + (i64)run * HASH_RUN;
}

constexpr int LSH_MAX_DIM = 512;  // limit of the head dimension

// lsh_position is the newest position of a slot, -1 where it has none or the index no room.
__device__ inline int lsh_position(const LshIndex& h, const PagedKV& g, int slot) {
	int p = newest_position(g, slot);
	i64 room = min_of(h.width, h.blocks * PAGE);
	if (p < room) return p;
	if (threadIdx.x == 0) fail(g.failure, FAIL_SCORES, p, room, 0);
	return -1;
}

// codes_at is the codes of a page of a kv head.
__device__ inline u64* codes_at(const LshIndex& h, const PagedKV& g, int slot, int kv_head, int b) {
	return h.codes + (((i64)slot * g.heads + kv_head) * h.blocks + b) * h.n;
}

struct LshArgs {
	LshIndex h;
	PagedKV g;
};

// hash_center (summarize): center = mean of the keys of the prompt between sinks and window, 0
// without `centered`, computed once per sequence, and again when the slot is reused. Grid: (kv
// head, slot). Groups of dim threads add every groups-th page in f64, and group 0 adds their sums
// in their order. Bound by reading the prompt's keys once.
KERNEL(hash_center, LshArgs, 1024) {
	SHARED(double, sums, 1024);
	pdl_trigger();
	int head = blockIdx.x, slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	pdl_wait();
	int since = ld_state(a.h.since + slot);
	if (p < 0 || (ld_state(a.h.coded + slot) != 0 && p >= since)) return;
	int lo = (int)a.h.sink, hi = min_of(since, p) - (int)a.h.recent;
	float* center = a.h.center + ((i64)slot * a.g.heads + head) * dim;
	int groups = (int)blockDim.x / dim, group = threadIdx.x / dim, d = threadIdx.x % dim;
	double sum = 0;
	if (group < groups && a.h.centered) {
		for (int b = lo / PAGE + group; b * PAGE < hi; b += groups) {
			i64 key = key_offset(a.g, slot, head, b * PAGE);
			for (int j = max_of(lo, b * PAGE); j < min_of(hi, (b + 1) * PAGE); j++) sum += (double)load_kv(a.g.k, a.g.half, key + (j % PAGE) * dim + d);
		}
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (group > 0) return;
	for (int i = 1; i < groups; i++) sum += sums[i * dim + d];
	center[d] = a.h.centered && hi > lo ? (float)(sum / (hi - lo)) : 0;
}

constexpr int LSH_KEYS = 16;  // keys of a tile

// hash_codes (summarize): bit of key j and plane c = (plane_c · (k_j - center) > 0), for the
// positions before the newest that have no codes yet; in most decode steps there are none. Grid:
// (kv head, slot, z), block z taking every gridDim.z-th page. A tile of LSH_KEYS keys is in shared
// memory; each thread takes a plane for all of them, so that a plane is read once a tile.
// Compute-bound: n·dim multiply-adds a key.
KERNEL(hash_codes, LshArgs, 256) {
	SHARED(float, x, LSH_KEYS* LSH_MAX_DIM);
	pdl_trigger();
	int head = blockIdx.x, slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	pdl_wait();
	if (p < 0) return;
	int done = p < ld_state(a.h.since + slot) ? 0 : ld_state(a.h.coded + slot), from = min_of(done, p);
	if (from == p) return;
	const float* center = a.h.center + ((i64)slot * a.g.heads + head) * dim;
	float* norm = a.h.norm + ((i64)slot * a.g.heads + head) * a.h.width;
	for (int b = from / PAGE + blockIdx.z; b * PAGE < p; b += gridDim.z) {
		u64* code = codes_at(a.h, a.g, slot, head, b);
		int end = min_of(p, (b + 1) * PAGE);
		for (int j = max_of(from, b * PAGE); j < end; j += LSH_KEYS) {
			int n = min_of(LSH_KEYS, end - j);
			__syncthreads();
			for (int i = threadIdx.x; i < LSH_KEYS * dim; i += blockDim.x) {
				int k = i / dim, d = i % dim;
				x[i] = k < n ? load_kv(a.g.k, a.g.half, key_offset(a.g, slot, head, j + k) + d) - center[d] : 0;
			}
			__syncthreads();
			for (int k = warp(); k < n; k += blockDim.x / WARP) {
				double sum = 0;
				for (int d = lane(); d < dim; d += WARP) sum += (double)x[k * dim + d] * (double)x[k * dim + d];
				sum = reduce_warp(sum, Plus());
				if (lane() == 0) norm[j + k] = (float)sqrt(sum);
			}
			for (int c = threadIdx.x; c < a.h.n; c += blockDim.x) {
				const float* plane = a.h.planes + (i64)c * dim;
				float above[LSH_KEYS] = {};
				for (int d = 0; d < dim; d++) {
					float w = plane[d];
#pragma unroll
					for (int k = 0; k < LSH_KEYS; k++) above[k] += w * x[k * dim + d];
				}
				u64 word = code[c];
				for (int k = 0; k < n; k++) {
					u64 bit = 1ull << (j + k) % PAGE;
					word = above[k] > 0 ? word | bit : word & ~bit;
				}
				code[c] = word;
			}
		}
	}
}

constexpr int LSH_SORTERS = 8;  // warps of a block of hash_sort

// PageBuckets is the buckets of half a page in a table, a position for each lane.
struct PageBuckets {
	u32 bucket;
	unsigned same;  // the lanes whose position is in the lane's bucket
};

__device__ __forceinline__ PageBuckets page_buckets(const u64* code, int bits, int half, unsigned there) {
	PageBuckets b = {0, there};
	for (int c = 0; c < bits; c++) {
		u32 word = (u32)(ld_code(code + c) >> half * WARP), above = word >> lane() & 1;
		b.bucket |= above << c;
		b.same &= above ? word : ~word;
	}
	return b;
}

// hash_sort (summarize) sorts the runs that have positions to sort by bucket, for each table: a stable
// counting sort, each warp with counts of its own for a stretch of the run. In most decode steps
// there are none. Grid: (block of any number, slot). Bound by reading the codes twice, in pieces as
// long as a table's.
KERNEL(hash_sort, LshArgs, LSH_SORTERS* WARP) {
	DYNAMIC_SHARED(u16, counts);  // [LSH_SORTERS, 2^bits]
	pdl_trigger();
	int slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), bits = a.h.bits(), buckets = 1 << bits;
	pdl_wait();
	if (p < 0) return;
	SortedRange r = sorted_range(a.h, slot, p);
	if (r.end <= r.kept) return;
	int run = r.kept / HASH_RUN, tables = (int)a.h.tables, lists = (int)a.g.heads * tables, all = ((r.end - 1) / HASH_RUN + 1 - run) * lists;
	u16* own = counts + (warp() << bits);
	for (int item = blockIdx.x; item < all; item += gridDim.x) {
		int at = run + item / lists, head = item % lists / tables, table = item % tables;
		i64 kv_head = (i64)slot * a.g.heads + head;
		int n = min_of(r.end - at * HASH_RUN, HASH_RUN), each = ((n + PAGE - 1) / PAGE + LSH_SORTERS - 1) / LSH_SORTERS, first = warp() * each;
		u16 *ends = bucket_ends(a.h, kv_head, at, table), *members = run_members(a.h, kv_head, at, table);
		// each_half calls take(i, there, b) for the positions of the warp, 32 at a time, by all lanes.
		auto each_half = [&](auto take) {
			for (int i = first * PAGE; i < min_of((first + each) * PAGE, n); i += WARP) {
				unsigned there = n - i < WARP ? (1u << (n - i)) - 1 : FULL_MASK;
				PageBuckets b = page_buckets(codes_at(a.h, a.g, slot, head, at * RUN_PAGES + i / PAGE) + (i64)table * bits, bits, i / WARP % 2, there);
				take(i + lane(), there >> lane() & 1, b);
				__syncwarp();
			}
		};
		__syncthreads();
		for (int i = threadIdx.x; i < LSH_SORTERS << bits; i += blockDim.x) counts[i] = 0;
		__syncthreads();
		each_half([&](int, bool there, PageBuckets b) {
			if (there && __ffs((int)b.same) - 1 == lane()) own[b.bucket] += (u16)__popc(b.same);
		});
		__syncthreads();
		ThreadRange mine = thread_range(buckets);
		u32 sum = 0, total;
		for (i64 b = mine.lo; b < mine.hi; b++) {
			for (int w = 0; w < LSH_SORTERS; w++) sum += counts[(w << bits) + b];
		}
		u32 to = scan_block(sum, total);
		for (i64 b = mine.lo; b < mine.hi; b++) {
			for (int w = 0; w < LSH_SORTERS; w++) {
				u32 some = counts[(w << bits) + b];
				counts[(w << bits) + b] = (u16)to;
				to += some;
			}
			ends[b] = (u16)to;
		}
		__syncthreads();
		each_half([&](int i, bool there, PageBuckets b) {
			u32 before = own[b.bucket] + __popc(b.same & ((1u << lane()) - 1));
			__syncwarp();
			if (!there) return;
			members[before] = (u16)i;
			if (WARP - 1 - __clz((int)b.same) == lane()) own[b.bucket] = (u16)(before + 1);
		});
	}
}

constexpr int PLANE_PIECES = 4;  // elements of a plane that a lane has in registers

// load_plane loads a plane's elements from `from` on, one of WARP for each lane.
__device__ __forceinline__ void load_plane(float piece[PLANE_PIECES], const LshIndex& h, int c, int dim, int from) {
#pragma unroll
	for (int i = 0; i < PLANE_PIECES; i++) {
		int d = from + i * WARP + lane();
		piece[i] = c < h.n && d < dim ? h.planes[(i64)c * dim + d] : 0;
	}
}

// first_plane is the plane that a warp begins with.
__device__ __forceinline__ int first_plane() { return (int)blockIdx.x * ((int)blockDim.x / WARP) + warp(); }

// project calls put(c, sum) with the product of plane c and the lane's vector, for the planes of
// a warp: every warp of the grid's x takes one at a time, and has loaded of the first what `piece` has.
// x [dim, WARP] is the vectors in shared memory, of any size.
template <class Put>
__device__ __forceinline__ void project(const LshIndex& h, float piece[PLANE_PIECES], const float* x, int dim, Put put) {
	int by = (int)gridDim.x * ((int)blockDim.x / WARP);
	for (int c = first_plane(); c < h.n; c += by) {
		float sum = 0;
		for (int from = 0; from < dim; from += PLANE_PIECES * WARP) {
			if (from > 0) load_plane(piece, h, c, dim, from);
#pragma unroll
			for (int i = 0; i < PLANE_PIECES; i++) {
				int n = min_of(dim - from - i * WARP, WARP);
				if (n == WARP) {
#pragma unroll
					for (int d = 0; d < WARP; d++) sum += __shfl_sync(FULL_MASK, piece[i], d) * x[(from + i * WARP + d) * WARP + lane()];
				} else {
					for (int d = 0; d < n; d++) sum += __shfl_sync(FULL_MASK, piece[i], d) * x[(from + i * WARP + d) * WARP + lane()];
				}
			}
		}
		put(c, sum);
		load_plane(piece, h, c + by, dim, 0);
	}
}

// hash_newest (summarize) makes the codes of the newest position of a slot, and records that there
// are codes up to it, and what hash_sort has sorted. Grid: (part of the planes, slot, WARP kv heads).
KERNEL(hash_newest, LshArgs, 256) {
	DYNAMIC_SHARED(float, x);  // [dim, WARP]
	pdl_trigger();
	int slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim, first = (int)blockIdx.z * WARP;
	pdl_wait();
	if (p < 0) return;
	float piece[PLANE_PIECES];
	load_plane(piece, a.h, first_plane(), dim, 0);
	for (int i = threadIdx.x; i < dim * WARP; i += blockDim.x) {
		int head = first + i / dim, d = i % dim;
		x[d * WARP + i / dim] = head < a.g.heads ? load_kv(a.g.k, a.g.half, key_offset(a.g, slot, head, p) + d) - a.h.center[((i64)slot * a.g.heads + head) * dim + d] : 0;
	}
	__syncthreads();
	int head = first + lane();
	bool there = head < a.g.heads;
	u64 *code = codes_at(a.h, a.g, slot, there ? head : 0, p / PAGE), bit = 1ull << p % PAGE;
	project(a.h, piece, x, dim, [&](int c, float sum) {
		if (there) code[c] = sum > 0 ? ld_code(code + c) | bit : ld_code(code + c) & ~bit;
	});
	if (blockIdx.x > 0 || warp() > 0) return;
	double square = 0;
	for (int d = 0; d < dim; d++) square += (double)x[d * WARP + lane()] * (double)x[d * WARP + lane()];
	if (there) a.h.norm[((i64)slot * a.g.heads + head) * a.h.width + p] = (float)sqrt(square);
	if (blockIdx.z > 0 || lane() > 0) return;
	if (a.h.sorted) a.h.sorted[slot] = sorted_range(a.h, slot, p).end;
	a.h.since[slot] = min_of(ld_state(a.h.since + slot), p);
	a.h.coded[slot] = p + 1;
}

struct CollisionArgs {
	LshIndex h;
	i32 *index, *count;  // [slots, heads, cap], [slots, heads]
	float* weight;       // [slots, heads, cap]
	const float* q;      // [slots, heads, dim]
	u64* marks;          // [slots, heads, pages]: bitmap of collisions
	u8* above;           // [slots, heads, n]: whether the query is above the plane
	i64 heads, cap;
	PagedKV g;
	Plan plan;
};

// lsh_query is element d of the query, centered like the keys with center_queries.
__device__ __forceinline__ float lsh_query(const CollisionArgs& a, int slot, int head, int kv_head, int d) {
	float q = a.q[((i64)slot * a.heads + head) * a.g.dim + d];
	return a.h.center_queries ? q - a.h.center[((i64)slot * a.g.heads + kv_head) * a.g.dim + d] : q;
}

// lsh_sides (score) finds the sides of the queries. Grid: (part of the planes, slot, WARP heads).
KERNEL(lsh_sides, CollisionArgs, 256) {
	DYNAMIC_SHARED(float, x);  // [dim, WARP]
	pdl_trigger();
	int slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim, first = (int)blockIdx.z * WARP;
	pdl_wait();
	if (p < 0) return;
	float piece[PLANE_PIECES];
	load_plane(piece, a.h, first_plane(), dim, 0);
	for (int i = threadIdx.x; i < dim * WARP; i += blockDim.x) {
		int head = first + i / dim, d = i % dim;
		x[d * WARP + i / dim] = head < a.heads ? lsh_query(a, slot, head, head * (int)a.g.heads / (int)a.heads, d) : 0;
	}
	__syncthreads();
	int head = first + lane();
	u8* above = a.above + ((i64)slot * a.heads + head) * a.h.n;
	project(a.h, piece, x, dim, [&](int c, float sum) {
		if (head < a.heads) above[c] = sum > 0;
	});
}

// CollisionBits is the positions of a page that collide in at least one table, and in two.
struct CollisionBits {
	u64 once, twice;

	__device__ __forceinline__ void add(CollisionBits m) {
		twice |= m.twice | (once & m.once);
		once |= m.once;
	}
};

// warp_collisions is the union of what the lanes have.
__device__ __forceinline__ CollisionBits warp_collisions(CollisionBits found) {
	for (int m = WARP / 2; m > 0; m /= 2) {
		CollisionBits other = {__shfl_xor_sync(FULL_MASK, (unsigned long long)found.once, m), __shfl_xor_sync(FULL_MASK, (unsigned long long)found.twice, m)};
		found.add(other);
	}
	return found;
}

// page_candidates is the positions of page b that may be listed.
__device__ inline u64 page_candidates(const CollisionArgs& a, const float* norm, int p, int b) {
	u64 candidates = 0;
	for (int half = 0; half < 2; half++) {
		int j = b * PAGE + half * WARP + lane();
		bool in = j <= p && in_selected_region(a.plan, p, j);
		if (in) in = norm[j] <= 3.4028235e38f;
		candidates |= (u64)__ballot_sync(FULL_MASK, in) << half * WARP;
	}
	return candidates;
}

constexpr int LSH_HEADS = 4;        // query heads that are compared with a code at a time
constexpr int LSH_WARPS = 8;        // of a block
constexpr int LSH_STAGES = 4;       // of a warp's pipeline
constexpr int LSH_STAGED_BITS = 10; // of a table, at most, where codes are staged

// CodeStage is the codes of WARP tables of a page.
struct CodeStage {
	u64 words[WARP * LSH_STAGED_BITS];
};
static_assert(sizeof(CodeStage) == 2560, "the host reckons with it");

// CodeStream is a warp's codes in the order of reading: of each of its pages, WARP tables at a time.
struct CodeStream {
	const LshIndex& h;
	const PagedKV& g;
	CodeStage* ring;  // [LSH_STAGES]
	int slot, kv_head, by, pages, bits, groups;
	int page, group;  // of the next copy

	__device__ __forceinline__ CodeStream(const LshIndex& h, const PagedKV& g, CodeStage* ring, int slot, int kv_head, int first, int by, int pages)
		: h(h), g(g), ring(ring), slot(slot), kv_head(kv_head), by(by), pages(pages), bits((int)(h.n / h.tables)), groups(((int)h.tables + WARP - 1) / WARP), page(first), group(0) {}

	// next starts the next copy into a stage.
	__device__ __forceinline__ void next(int stage) {
		if (page < pages) {
			const u64* from = codes_at(h, g, slot, kv_head, page) + group * WARP * bits;
			int words = min_of(WARP, (int)h.tables - group * WARP) * bits;
			for (int i = 2 * lane(); i < words; i += 2 * WARP) cp_async(&ring[stage].words[i], from + i);
			if (++group == groups) {
				group = 0;
				page += by;
			}
		}
		cp_async_commit();
	}
};

// lsh_collisions (select) marks the positions of the selected region that collide with the queries of
// LSH_HEADS heads, but for those that are sorted into buckets. Grid: (part of the pages, kv head and LSH_HEADS of its heads, slot). A warp takes
// a page, its lanes over the tables, and the lanes merge what they have. The sides of the queries are
// in dynamic shared memory, a bit for each head. With STAGED, tables of an even number of up to
// LSH_STAGED_BITS bits go through a pipeline. Bound by reading the codes, n/8 bytes a key.
template <bool STAGED>
__device__ __forceinline__ void mark_collisions(const CollisionArgs& a) {
	DYNAMIC_SHARED(CodeStage, rings);  // [LSH_WARPS, LSH_STAGES], if STAGED
	u8* sides = (u8*)(rings + (STAGED ? LSH_WARPS * LSH_STAGES : 0));  // [n]
	pdl_trigger();
	int group_heads = (int)(a.heads / a.g.heads), parts = (group_heads + LSH_HEADS - 1) / LSH_HEADS;
	int kv_head = (int)blockIdx.y / parts, slot = blockIdx.z, p = lsh_position(a.h, a.g, slot), bits = a.h.bits();
	pdl_wait();
	if (p < 0) return;
	int from = (int)blockIdx.y % parts * LSH_HEADS, heads = min_of(LSH_HEADS, group_heads - from);
	i64 head = (i64)slot * a.heads + kv_head * group_heads + from;
	for (int c = threadIdx.x; c < a.h.n; c += blockDim.x) {
		u32 side = 0;
		for (int u = 0; u < heads; u++) side |= (u32)a.above[(head + u) * a.h.n + c] << u;
		sides[c] = (u8)side;
	}
	__syncthreads();
	const float* norm = a.h.norm + ((i64)slot * a.g.heads + kv_head) * a.h.width;
	int pages = p / PAGE + 1, first = (a.h.sorted ? ld_state(a.h.sorted + slot) / PAGE : 0) + (int)blockIdx.x * LSH_WARPS + warp(), by = (int)gridDim.x * LSH_WARPS;
	CodeStream stream(a.h, a.g, rings + (STAGED ? warp() * LSH_STAGES : 0), slot, kv_head, first, by, pages);
	int stage = 0;
	for (int i = 0; STAGED && i < LSH_STAGES - 1; i++) stream.next(i);
	for (int b = first; b < pages; b += by) {
		u64 candidates = page_candidates(a, norm, p, b);
		CollisionBits found[LSH_HEADS] = {};
		for (int group = 0; group * WARP < a.h.tables; group++) {
			const u64* code = codes_at(a.h, a.g, slot, kv_head, b) + group * WARP * bits;
			if constexpr (STAGED) {
				__syncwarp();  // the stage about to be overwritten has been read
				stream.next((stage + LSH_STAGES - 1) % LSH_STAGES);
				cp_async_wait<LSH_STAGES - 1>();
				__syncwarp();
				code = stream.ring[stage].words;
				stage = (stage + 1) % LSH_STAGES;
			}
			int t = group * WARP + lane();
			if (t >= a.h.tables || !candidates) continue;
			u64 same[LSH_HEADS];
			for (int u = 0; u < LSH_HEADS; u++) same[u] = candidates;
			for (int c = 0; c < bits; c++) {
				u64 word = ~(STAGED ? code[lane() * bits + c] : ld_code(code + lane() * bits + c));
				u32 side = sides[t * bits + c];
#pragma unroll
				for (int u = 0; u < LSH_HEADS; u++) {
					u32 flip = (side >> u & 1) - 1;  // 0 where the query is above the plane
					same[u] &= ~(word ^ ((u64)flip << 32 | flip));
				}
			}
#pragma unroll
			for (int u = 0; u < LSH_HEADS; u++) found[u].add({same[u], 0});
		}
#pragma unroll
		for (int u = 0; u < LSH_HEADS; u++) {
			CollisionBits all = warp_collisions(found[u]);
			if (lane() == 0 && u < heads) a.marks[(head + u) * a.g.width + b] = a.h.min_tables == 1 ? all.once : all.twice;
		}
	}
	if constexpr (STAGED) cp_async_wait<0>();
}

// BucketRanges is the query's buckets of so many tables at a time.
constexpr int BUCKET_TABLES = 512;
constexpr int BUCKETS_IN_FLIGHT = 4;  // of a warp
constexpr int BUCKET_COST = 4;        // words of codes that are compared as fast as one member is marked
constexpr int FEW_MEMBERS = 4096;     // are marked in any case

struct BucketRange {
	u16 lo, hi;
};

// query_buckets finds where the query's buckets lie in a run, for tables from first on, and returns
// their members. above is the sides of the query. All threads of the block call it.
__device__ inline u32 query_buckets(BucketRange* ranges, const LshIndex& h, i64 kv_head, int run, const u8* above, int first) {
	int bits = h.bits(), n = min_of(BUCKET_TABLES, (int)h.tables - first);
	u32 mine = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		u32 bucket = 0;
		for (int c = 0; c < bits; c++) bucket |= (u32)above[(i64)(first + i) * bits + c] << c;
		const u16* ends = bucket_ends(h, kv_head, run, first + i);
		BucketRange r = {bucket > 0 ? ends[bucket - 1] : (u16)0, ends[bucket]};
		ranges[i] = r;
		mine += (u32)(r.hi - r.lo);
	}
	return reduce_block(mine, 0u, Plus());
}

// mark_buckets marks the members of the query's buckets in bitmaps of a run: in one table, and in two.
__device__ inline void mark_buckets(u32* once, u32* twice, const BucketRange* ranges, const LshIndex& h, i64 kv_head, int run, int first) {
	int n = min_of(BUCKET_TABLES, (int)h.tables - first), warps = (int)blockDim.x / WARP;
	auto mark = [&](u32 j) {
		u32 bit = 1u << j % WARP, old = atomicOr(&once[j / WARP], bit);
		if (old & bit) atomicOr(&twice[j / WARP], bit);
	};
	for (int t = warp(); t < n; t += BUCKETS_IN_FLIGHT * warps) {
		u32 member[BUCKETS_IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < BUCKETS_IN_FLIGHT; i++) {
			int at = t + i * warps;
			member[i] = HASH_RUN;
			if (at < n && ranges[at].lo + lane() < ranges[at].hi) member[i] = run_members(h, kv_head, run, first + at)[ranges[at].lo + lane()];
		}
#pragma unroll
		for (int i = 0; i < BUCKETS_IN_FLIGHT; i++) {
			if (member[i] < HASH_RUN) mark(member[i]);
			int at = t + i * warps;
			if (at >= n) continue;
			const u16* members = run_members(h, kv_head, run, first + at);
			for (int k = ranges[at].lo + WARP + lane(); k < ranges[at].hi; k += WARP) mark(members[k]);
		}
	}
}

// page_collisions is the positions of a page that collide with a query, whose sides are above. All
// lanes call it.
__device__ inline u64 page_collisions(const LshIndex& h, const u64* code, const u8* above) {
	int bits = h.bits();
	CollisionBits found = {0, 0};
	for (int t = lane(); t < h.tables; t += WARP) {
		u64 same = ~0ull;
		for (int c = t * bits; c < (t + 1) * bits; c++) same &= above[c] ? ld_code(code + c) : ~ld_code(code + c);
		found.add({same, 0});
	}
	found = warp_collisions(found);
	return h.min_tables == 1 ? found.once : found.twice;
}

// lsh_buckets (select) marks the positions of a run of buckets that collide with the query of a head.
// Where the query's buckets are so full that comparing codes is faster, it does that. Grid: (head,
// slot, run). The bitmaps are in shared memory. Bound by the latency of three loads, one behind the
// other.
KERNEL(lsh_buckets, CollisionArgs, 512) {
	SHARED(u32, once, HASH_RUN / WARP);
	SHARED(u32, twice, HASH_RUN / WARP);
	SHARED(BucketRange, ranges, BUCKET_TABLES);
	pdl_trigger();
	int head = blockIdx.x, slot = blockIdx.y, run = blockIdx.z, p = lsh_position(a.h, a.g, slot);
	for (int i = threadIdx.x; i < HASH_RUN / WARP; i += blockDim.x) once[i] = twice[i] = 0;
	pdl_wait();
	if (p < 0) return;
	int pages = min_of(ld_state(a.h.sorted + slot) / PAGE - run * RUN_PAGES, RUN_PAGES), kv_head = head * (int)a.g.heads / (int)a.heads;
	if (pages <= 0) return;
	i64 vectors = (i64)slot * a.g.heads + kv_head, list = (i64)slot * a.heads + head;
	const u8* above = a.above + list * a.h.n;
	u64 limit = max_of((u64)pages * a.h.n / BUCKET_COST, (u64)FEW_MEMBERS), all = 0;
	for (int first = 0; first < a.h.tables && all <= limit; first += BUCKET_TABLES) {
		__syncthreads();
		all += query_buckets(ranges, a.h, vectors, run, above, first);
		if (all <= limit) mark_buckets(once, twice, ranges, a.h, vectors, run, first);
	}
	__syncthreads();
	const float* norm = a.h.norm + vectors * a.h.width;
	const u32* found = a.h.min_tables == 1 ? once : twice;
	for (int b = warp(); b < pages; b += (int)blockDim.x / WARP) {
		int page = run * RUN_PAGES + b;
		u64 marks = all <= limit ? (u64)found[2 * b + 1] << WARP | found[2 * b] : page_collisions(a.h, codes_at(a.h, a.g, slot, kv_head, page), above);
		if (marks) marks &= page_candidates(a, norm, p, page);
		if (lane() == 0) a.marks[list * a.g.width + page] = marks;
	}
}

KERNEL_2_PER_SM(lsh_collisions, CollisionArgs, LSH_WARPS* WARP) { mark_collisions<false>(a); }
KERNEL_2_PER_SM(lsh_collisions_staged, CollisionArgs, LSH_WARPS* WARP) { mark_collisions<true>(a); }

// chance_power is x to the n.
__device__ inline double chance_power(double x, i64 n) {
	double y = 1;
	for (; n > 0; n >>= 1, x *= x) y *= n & 1 ? x : 1;
	return y;
}

// collision_probability is the probability that vectors with a cosine collide in at least
// min_tables tables: 1 - (1-p)^L, or 1 - (1-p)^(L-1)·(L·p + 1 - p) for two.
__device__ inline double collision_probability(const LshIndex& h, double cosine) {
	double angle = acos(max_of(-1.0, min_of(1.0, cosine))), tables = (double)h.tables;
	double one = chance_power(1 - angle / 3.14159265358979323846, h.n / h.tables);
	if (h.min_tables == 1) return 1 - chance_power(1 - one, h.tables);
	return 1 - chance_power(1 - one, h.tables - 1) * (tables * one + 1 - one);
}

constexpr int LSH_LISTED = 1024;  // entries of a block at a time

// lsh_list (select) lists the marked positions, ascending, with weight 1/(probability + 1e-4);
// the 1e-4 bounds the weight of unlikely positions. Grid: (head, slot, block of the cluster). The
// cosine comes from q·k, which is computed exactly, the norms and q·center. Bound by reading the
// listed keys.
KERNEL(lsh_list, CollisionArgs, 256) {
	DYNAMIC_SHARED(float, x);  // [dim]: the query
	SHARED(u32, listed, 1);
	SHARED(float, scores, LSH_LISTED);
	pdl_trigger();
	int head = blockIdx.x, slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	pdl_wait();
	if (p < 0) return;
	ClusterBlock c = this_block();
	int kv_head = head * (int)a.g.heads / (int)a.heads, pages = p / PAGE + 1, each = (pages + c.size - 1) / c.size;
	i64 list = (i64)slot * a.heads + head, vectors = (i64)slot * a.g.heads + kv_head;
	const float *center = a.h.center + vectors * dim, *norm = a.h.norm + vectors * a.h.width;
	for (int d = threadIdx.x; d < dim; d += blockDim.x) x[d] = lsh_query(a, slot, head, kv_head, d);
	const u64* marks = a.marks + list * a.g.width + min_of(c.rank * each, pages);
	ThreadRange r = thread_range(min_of((c.rank + 1) * each, pages) - min_of(c.rank * each, pages));
	u32 mine = 0, own;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popcll(marks[w]);
	u32 place = scan_block(mine, own);
	if (threadIdx.x == 0) listed[0] = own;
	c.sync();
	i64 first = c.before(listed), all = c.sum(listed), cap = a.cap;
	i32* index = a.index + list * cap;
	for (i64 w = r.lo; w < r.hi; w++) {
		for (u64 word = marks[w]; word; word &= word - 1, place++) {
			if (first + place < cap) index[first + place] = (i32)((c.rank * each + w) * PAGE) + __ffsll((long long)word) - 1;
		}
	}
	if (threadIdx.x == 0 && c.rank == 0) {
		if (all > cap) fail(a.g.failure, FAIL_LIST, cap, 0, 0);
		a.count[list] = (i32)min_of(all, cap);
	}
	c.sync();  // peers have read the count, and the block's entries are written
	double square = 0, inner = 0;
	for (int d = lane(); d < dim; d += WARP) {
		square += (double)x[d] * (double)x[d];
		inner += (double)x[d] * (double)center[d];
	}
	double length = sqrt(reduce_warp(square, Plus())), to_center = reduce_warp(inner, Plus());
	i64 end = min_of(first + (i64)own, cap);
	for (i64 from = first; from < end; from += LSH_LISTED) {
		int n = (int)min_of((i64)LSH_LISTED, end - from);
		__syncthreads();
		score_any(a.g, n, x, 1, [](int) { return true; }, [&](int i) { return key_offset(a.g, slot, kv_head, index[from + i]); }, [&](int, int i, float sum) { scores[i] = sum; });
		__syncthreads();
		for (int i = threadIdx.x; i < n; i += blockDim.x) {
			double product = length * (double)norm[index[from + i]], cosine = product > 0 ? ((double)scores[i] - to_center) / product : 0;
			a.weight[list * cap + from + i] = (float)(1 / (collision_probability(a.h, cosine) + 1e-4));
		}
	}
}
