// Codes of stored keys: on which side of planes they lie, and the keys whose codes
// meet a query's. Definition: package cpu, hash.go; package device, hash.go, says
// what a code is.
#include "newest.cuh"
#include "rank.cuh"

struct Hash {
	const float* planes;  // [n, dim]
	u64* codes;           // [slots, kvheads, blocks, n]
	float* norm;          // [slots, kvheads, width]
	float* center;        // [slots, kvheads, dim]
	i32 *since, *done;    // [slots]
	i64 n, tables, least, blocks, width;
	i64 mean, queries, sink, recent;
};

constexpr int MOST_HASHED = 512;  // numbers of a key

// coded is the newest position of a slot, -1 where it has none or no room.
__device__ inline int coded(const Hash& h, const PagedKV& g, int slot) {
	int p = newest_position(g, slot);
	i64 room = min_of(h.width, h.blocks * PAGE);
	if (p < room) return p;
	if (threadIdx.x == 0) fail(g.failure, FAIL_SCORES, p, room, 0);
	return -1;
}

// codes_of is the codes of a block of a kv head.
__device__ inline u64* codes_of(const Hash& h, const PagedKV& g, int slot, int kv_head, int b) {
	return h.codes + (((i64)slot * g.heads + kv_head) * h.blocks + b) * h.n;
}

struct HashArgs {
	Hash h;
	PagedKV g;
};

// hash_center: block (h, slot) makes the center of kv head h of a slot that has no
// codes or starts again. Groups of threads add up every so many-th page.
KERNEL(hash_center, HashArgs, 1024) {
	SHARED(double, sums, 1024);
	int head = blockIdx.x, slot = blockIdx.y, p = coded(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0 || (a.h.done[slot] != 0 && p >= a.h.since[slot])) return;
	int lo = (int)a.h.sink, hi = min_of(a.h.since[slot], p) - (int)a.h.recent;
	float* center = a.h.center + ((i64)slot * a.g.heads + head) * dim;
	int groups = (int)blockDim.x / dim, group = threadIdx.x / dim, d = threadIdx.x % dim;
	double sum = 0;
	if (group < groups && a.h.mean) {
		for (int b = lo / PAGE + group; b * PAGE < hi; b += groups) {
			i64 key = key_offset(a.g, slot, head, b * PAGE);
			for (int j = max_of(lo, b * PAGE); j < min_of(hi, (b + 1) * PAGE); j++) sum += (double)load_kv(a.g.k, a.g.half, key + (j % PAGE) * dim + d);
		}
	}
	sums[threadIdx.x] = sum;
	__syncthreads();
	if (group > 0) return;
	for (int i = 1; i < groups; i++) sum += sums[i * dim + d];
	center[d] = a.h.mean && hi > lo ? (float)(sum / (hi - lo)) : 0;
}

constexpr int CODED = 16;  // keys in hand

// hash_codes: block (h, slot, z) makes the codes of kv head h of every
// gridDim.z-th page that has positions without. A thread takes a plane at a time.
KERNEL(hash_codes, HashArgs, 256) {
	SHARED(float, x, CODED* MOST_HASHED);
	int head = blockIdx.x, slot = blockIdx.y, p = coded(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0) return;
	int done = p < a.h.since[slot] ? 0 : a.h.done[slot], from = min_of(done, p);
	const float* center = a.h.center + ((i64)slot * a.g.heads + head) * dim;
	float* norm = a.h.norm + ((i64)slot * a.g.heads + head) * a.h.width;
	for (int b = from / PAGE + blockIdx.z; b <= p / PAGE; b += gridDim.z) {
		u64* code = codes_of(a.h, a.g, slot, head, b);
		int end = min_of(p + 1, (b + 1) * PAGE);
		for (int j = max_of(from, b * PAGE); j < end; j += CODED) {
			int n = min_of(CODED, end - j);
			__syncthreads();
			for (int i = threadIdx.x; i < CODED * dim; i += blockDim.x) {
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
				float side[CODED] = {};
				for (int d = 0; d < dim; d++) {
					float w = plane[d];
#pragma unroll
					for (int k = 0; k < CODED; k++) side[k] += w * x[k * dim + d];
				}
				u64 word = code[c];
				for (int k = 0; k < n; k++) {
					u64 bit = 1ull << (j + k) % PAGE;
					word = side[k] > 0 ? word | bit : word & ~bit;
				}
				code[c] = word;
			}
		}
	}
}

// hash_done: block slot notes what has codes now.
KERNEL(hash_done, HashArgs, 32) {
	int slot = blockIdx.x, p = coded(a.h, a.g, slot);
	if (p < 0 || threadIdx.x > 0) return;
	a.h.since[slot] = min_of(a.h.since[slot], p);
	a.h.done[slot] = p + 1;
}

struct CollideArgs {
	Hash h;
	i32 *index, *count;  // [slots, heads, cap], [slots, heads]
	float* weight;       // [slots, heads, cap]
	const float* q;      // [slots, heads, dim]
	u64* marks;          // [slots, heads, pages]
	i64 heads, cap;
	PagedKV g;
	Plan plan;
};

// Met is the positions of a page that collide in one table, and in two.
struct Met {
	u64 once, twice;

	__device__ void add(Met m) {
		twice |= m.twice | (once & m.once);
		once |= m.once;
	}
};

// asked sets x to the query that is compared: from the center where that is wanted.
__device__ inline void asked(const CollideArgs& a, float* x, int slot, int head, const float* center) {
	int dim = (int)a.g.dim;
	const float* q = a.q + ((i64)slot * a.heads + head) * dim;
	for (int d = threadIdx.x; d < dim; d += blockDim.x) x[d] = a.h.queries ? q[d] - center[d] : q[d];
	__syncthreads();
}

// collide marks the positions of the plan's middle that collide with a query.
// Block (h, z, slot) takes every gridDim.y-th page; a warp takes a page at a time,
// a lane a table. Dynamic shared memory holds on which side the query is.
KERNEL(collide, CollideArgs, 256) {
	SHARED(float, x, MOST_HASHED);
	DYNAMIC_SHARED(u8, side);  // [planes]
	int head = blockIdx.x, slot = blockIdx.z, p = coded(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0) return;
	int kv_head = head * (int)a.g.heads / (int)a.heads, bits = (int)(a.h.n / a.h.tables);
	i64 vectors = (i64)slot * a.g.heads + kv_head;
	asked(a, x, slot, head, a.h.center + vectors * dim);
	for (int c = threadIdx.x; c < a.h.n; c += blockDim.x) {
		float sum = 0;
		for (int d = 0; d < dim; d++) sum += a.h.planes[(i64)c * dim + d] * x[d];
		side[c] = sum > 0;
	}
	__syncthreads();
	const float* norm = a.h.norm + vectors * a.h.width;
	u64* marks = a.marks + ((i64)slot * a.heads + head) * a.g.width;
	for (int b = blockIdx.y * blockDim.x / WARP + warp(); b <= p / PAGE; b += gridDim.y * blockDim.x / WARP) {
		u64 among = 0;
		for (int half = 0; half < 2; half++) {
			int j = b * PAGE + half * WARP + lane();
			bool in = j <= p && in_selected_region(a.plan, p, j);
			if (in) in = norm[j] <= 3.4028235e38f;
			among |= (u64)__ballot_sync(FULL_MASK, in) << half * WARP;
		}
		const u64* code = codes_of(a.h, a.g, slot, kv_head, b);
		Met met = {0, 0};
		for (int t = lane(); t < a.h.tables && among; t += WARP) {
			u64 same = among;
			for (int c = t * bits; c < (t + 1) * bits; c++) same &= side[c] ? code[c] : ~code[c];
			met.add({same, 0});
		}
		for (int m = WARP / 2; m > 0; m /= 2) {
			Met other = {__shfl_xor_sync(FULL_MASK, (unsigned long long)met.once, m), __shfl_xor_sync(FULL_MASK, (unsigned long long)met.twice, m)};
			met.add(other);
		}
		if (lane() == 0) marks[b] = a.h.least == 1 ? met.once : met.twice;
	}
}

// chance_of is Hash.Chance.
__device__ inline double chance_of(const Hash& h, double cosine) {
	double angle = acos(max_of(-1.0, min_of(1.0, cosine))), tables = (double)h.tables;
	double one = pow(1 - angle / 3.14159265358979323846, (double)(h.n / h.tables));
	if (h.least == 1) return 1 - pow(1 - one, tables);
	return 1 - pow(1 - one, tables - 1) * (tables * one + 1 - one);
}

// collide_list lists what was marked, and weighs it: a warp takes an entry at a
// time. Block (h, slot) takes a list.
KERNEL(collide_list, CollideArgs, 512) {
	SHARED(float, x, MOST_HASHED);
	int head = blockIdx.x, slot = blockIdx.y, p = coded(a.h, a.g, slot), dim = (int)a.g.dim;
	if (p < 0) return;
	int kv_head = head * (int)a.g.heads / (int)a.heads;
	i64 list = (i64)slot * a.heads + head, vectors = (i64)slot * a.g.heads + kv_head;
	const float *center = a.h.center + vectors * dim, *norm = a.h.norm + vectors * a.h.width;
	asked(a, x, slot, head, center);
	const u64* marks = a.marks + list * a.g.width;
	i32* index = a.index + list * a.cap;
	u64 total = list_marked(marks, p / PAGE + 1, index, a.count[list], a.cap, a.g.failure);
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
		if (lane() == 0) a.weight[list * a.cap + i] = (float)(1 / (chance_of(a.h, cosine) + 1e-4));
	}
}
