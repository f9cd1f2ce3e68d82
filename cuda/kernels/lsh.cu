// LSH sampling, as in MagicPIG: sign random projections of stored keys in tables of bits planes
// each. A key and a query collide in a table when none of its planes separates them, with
// probability p = (1 - angle/π)^bits. Positions that collide in at least min_tables (1 or 2) of
// the tables are listed with importance weight 1/probability, so that the weighted sum of exp(q·k)
// estimates the softmax denominator. Reference implementation: package cpu.
//
// Codes are bit-sliced: a word has one plane's bit for the 64 keys of a page, so that a table of
// a page is compared by `bits` logical operations instead of 64 comparisons.
#include "newest.cuh"
#include "radix_select.cuh"

struct LshIndex {
	const float* planes;  // [n, dim], n = tables · bits
	u64* codes;           // [slots, kvheads, blocks, n]: bit i is 1 for key i of the page above the plane
	float* norm;          // [slots, kvheads, width]: ‖key - center‖
	float* center;        // [slots, kvheads, dim]
	i32 *since, *coded;   // [slots]: where decoding began; positions that have codes
	i64 n, tables, min_tables, blocks, width;
	i64 centered, center_queries, sink, recent;
};

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
	int head = blockIdx.x, slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0 || (a.h.coded[slot] != 0 && p >= a.h.since[slot])) return;
	int lo = (int)a.h.sink, hi = min_of(a.h.since[slot], p) - (int)a.h.recent;
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
// positions that have no codes yet. Grid: (kv head, slot, z), block z taking every gridDim.z-th
// page. A tile of LSH_KEYS keys is in shared memory; each thread takes a plane for all of them,
// so that a plane is read once a tile. Compute-bound in a prefill: n·dim multiply-adds a key; a
// decode step reads the planes once for one key.
KERNEL(hash_codes, LshArgs, 256) {
	SHARED(float, x, LSH_KEYS* LSH_MAX_DIM);
	int head = blockIdx.x, slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0) return;
	int done = p < a.h.since[slot] ? 0 : a.h.coded[slot], from = min_of(done, p);
	const float* center = a.h.center + ((i64)slot * a.g.heads + head) * dim;
	float* norm = a.h.norm + ((i64)slot * a.g.heads + head) * a.h.width;
	for (int b = from / PAGE + blockIdx.z; b <= p / PAGE; b += gridDim.z) {
		u64* code = codes_at(a.h, a.g, slot, head, b);
		int end = min_of(p + 1, (b + 1) * PAGE);
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

// hash_done (summarize) records how many positions have codes. It is a separate launch, because
// blocks of hash_codes read the old count.
KERNEL(hash_done, LshArgs, 32) {
	int slot = blockIdx.x, p = lsh_position(a.h, a.g, slot);
	if (p < 0 || threadIdx.x > 0) return;
	a.h.since[slot] = min_of(a.h.since[slot], p);
	a.h.coded[slot] = p + 1;
}

struct CollisionArgs {
	LshIndex h;
	i32 *index, *count;  // [slots, heads, cap], [slots, heads]
	float* weight;       // [slots, heads, cap]
	const float* q;      // [slots, heads, dim]
	u64* marks;          // [slots, heads, pages]: bitmap of collisions
	i64 heads, cap;
	PagedKV g;
	Plan plan;
};

// CollisionBits is the positions of a page that collide in at least one table, and in two.
struct CollisionBits {
	u64 once, twice;

	__device__ void add(CollisionBits m) {
		twice |= m.twice | (once & m.once);
		once |= m.once;
	}
};

// lsh_query loads the query into x, centered like the keys with center_queries.
__device__ inline void lsh_query(const CollisionArgs& a, float* x, int slot, int head, const float* center) {
	int dim = (int)a.g.dim;
	const float* q = a.q + ((i64)slot * a.heads + head) * dim;
	for (int d = threadIdx.x; d < dim; d += blockDim.x) x[d] = a.h.center_queries ? q[d] - center[d] : q[d];
	__syncthreads();
}

// collide (score and select) marks the positions of the selected region that collide with the
// query. Grid: (head, z, slot), block z taking every gridDim.y-th page; one warp per page, its
// lanes over the tables, and the lanes merge what they have. The sides of the query are computed
// once a block into dynamic shared memory. Bound by reading the codes, n/8 bytes a key.
KERNEL(lsh_collisions, CollisionArgs, 256) {
	SHARED(float, x, LSH_MAX_DIM);
	DYNAMIC_SHARED(u8, above);  // [n]: whether the query is above the plane
	int head = blockIdx.x, slot = blockIdx.z, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0) return;
	int kv_head = head * (int)a.g.heads / (int)a.heads, bits = (int)(a.h.n / a.h.tables);
	i64 vectors = (i64)slot * a.g.heads + kv_head;
	lsh_query(a, x, slot, head, a.h.center + vectors * dim);
	for (int c = threadIdx.x; c < a.h.n; c += blockDim.x) {
		float sum = 0;
		for (int d = 0; d < dim; d++) sum += a.h.planes[(i64)c * dim + d] * x[d];
		above[c] = sum > 0;
	}
	__syncthreads();
	const float* norm = a.h.norm + vectors * a.h.width;
	u64* marks = a.marks + ((i64)slot * a.heads + head) * a.g.width;
	for (int b = blockIdx.y * blockDim.x / WARP + warp(); b <= p / PAGE; b += gridDim.y * blockDim.x / WARP) {
		u64 candidates = 0;
		for (int half = 0; half < 2; half++) {
			int j = b * PAGE + half * WARP + lane();
			bool in = j <= p && in_selected_region(a.plan, p, j);
			if (in) in = norm[j] <= 3.4028235e38f;
			candidates |= (u64)__ballot_sync(FULL_MASK, in) << half * WARP;
		}
		const u64* code = codes_at(a.h, a.g, slot, kv_head, b);
		CollisionBits found = {0, 0};
		for (int t = lane(); t < a.h.tables && candidates; t += WARP) {
			u64 same = candidates;
			for (int c = t * bits; c < (t + 1) * bits; c++) same &= above[c] ? code[c] : ~code[c];
			found.add({same, 0});
		}
		for (int m = WARP / 2; m > 0; m /= 2) {
			CollisionBits other = {__shfl_xor_sync(FULL_MASK, (unsigned long long)found.once, m), __shfl_xor_sync(FULL_MASK, (unsigned long long)found.twice, m)};
			found.add(other);
		}
		if (lane() == 0) marks[b] = a.h.min_tables == 1 ? found.once : found.twice;
	}
}

// collision_probability is the probability that vectors with a cosine collide in at least
// min_tables tables: 1 - (1-p)^L, or 1 - (1-p)^(L-1)·(L·p + 1 - p) for two.
__device__ inline double collision_probability(const LshIndex& h, double cosine) {
	double angle = acos(max_of(-1.0, min_of(1.0, cosine))), tables = (double)h.tables;
	double one = pow(1 - angle / 3.14159265358979323846, (double)(h.n / h.tables));
	if (h.min_tables == 1) return 1 - pow(1 - one, tables);
	return 1 - pow(1 - one, tables - 1) * (tables * one + 1 - one);
}

// lsh_list (select) lists the marked positions, ascending, with weight 1/(probability + 1e-4);
// the 1e-4 bounds the weight of unlikely positions. Grid: (head, slot). One warp per
// entry: the cosine comes from q·k, which is computed exactly, the norms and q·center. Bound by
// reading the listed keys.
KERNEL(lsh_list, CollisionArgs, 512) {
	SHARED(float, x, LSH_MAX_DIM);
	int head = blockIdx.x, slot = blockIdx.y, p = lsh_position(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0) return;
	int kv_head = head * (int)a.g.heads / (int)a.heads;
	i64 list = (i64)slot * a.heads + head, vectors = (i64)slot * a.g.heads + kv_head;
	const float *center = a.h.center + vectors * dim, *norm = a.h.norm + vectors * a.h.width;
	lsh_query(a, x, slot, head, center);
	const u64* marks = a.marks + list * a.g.width;
	i32* index = a.index + list * a.cap;
	u64 total = bitmap_to_list(marks, p / PAGE + 1, index, a.count[list], a.cap, a.g.failure);
	double square = 0, inner = 0;
	for (int d = lane(); d < dim; d += WARP) {
		square += (double)x[d] * (double)x[d];
		inner += (double)x[d] * (double)center[d];
	}
	double length = sqrt(reduce_warp(square, Plus())), to_center = reduce_warp(inner, Plus());
	__syncthreads();
	for (i64 i = warp(); i < (i64)min_of(total, (u64)a.cap); i += blockDim.x / WARP) {
		int j = index[i];
		i64 from = key_offset(a.g, slot, kv_head, j);
		float sum = 0;
		for (int d = lane(); d < dim; d += WARP) sum += x[d] * load_kv(a.g.k, a.g.half, from + d);
		sum = reduce_warp(sum, Plus());
		double product = length * (double)norm[j], cosine = product > 0 ? ((double)sum - to_center) / product : 0;
		if (lane() == 0) a.weight[list * a.cap + i] = (float)(1 / (collision_probability(a.h, cosine) + 1e-4));
	}
}
