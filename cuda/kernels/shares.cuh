// Attention probabilities of many rows, summed per key: the query vectors of a head group against
// one page of keys at a time. A block has 256 threads; thread t takes key t%64 and four
// neighbouring vectors, so that the reads of a vector are broadcasts within a warp.
#pragma once

#include "newest.cuh"
#include "state.cuh"

constexpr int VECTORS = 16;  // query vectors in shared memory at a time
constexpr int EACH = 4;      // vectors of a thread

// Vectors is the queries of one head group of a slot: vector v is head head + v % run of row
// v / run.
struct Vectors {
	const float* q;  // of the slot's first row [rows, heads, dim]
	int slot, first, kv_head;
	int heads, head, run, n;

	__device__ int position(int v) const { return first + v / run; }
};

__device__ inline Vectors vectors_of(const PagedKV& g, const float* q, int slot, int first, int group, i64 heads, i64 run) {
	Vectors x = {q + slot * g.rows * heads * g.dim, slot, first, group * (int)run * (int)g.heads / (int)heads, (int)heads, group * (int)run, (int)run, (int)(g.rows * run)};
	return x;
}

// KeyTile is shared memory for a tile: VECTORS queries and a page of keys.
struct KeyTile {
	float* keys;       // [PAGE, dim + 1]
	float* q;          // [VECTORS, dim]
	Entries* entries;  // [VECTORS]
	int from;          // index of the first vector
};

// key_tile lays it out in dynamic shared memory; the host computes the same size.
__device__ inline KeyTile key_tile(float* shared, Entries* entries, i64 dim) {
	KeyTile t = {shared, shared + PAGE * (dim + 1), entries, 0};
	return t;
}

// load_vectors loads the vectors from index from on, and the selections of their rows.
__device__ inline void load_vectors(KeyTile& t, const Vectors& x, const PagedKV& g, const Plan& plan, int from) {
	int dim = (int)g.dim;
	t.from = from;
	__syncthreads();
	for (int i = threadIdx.x; i < VECTORS * dim; i += blockDim.x) {
		int v = from + i / dim;
		t.q[i] = v < x.n ? x.q[((i64)(v / x.run) * x.heads + x.head + v % x.run) * dim + i % dim] : 0;
	}
	for (int i = threadIdx.x; i < VECTORS && from + i < x.n; i += blockDim.x) {
		RowPosition at = {x.slot, x.first, x.position(from + i)};
		t.entries[i] = entries(plan.list, g, at, x.head + (from + i) % x.run, x.heads);
	}
	__syncthreads();
}

// load_keys loads the first n keys of a page and zero-fills the rest.
__device__ inline void load_keys(const KeyTile& t, const PagedKV& g, int page, int kv_head, int n) {
	int dim = (int)g.dim;
	i64 from = kv_offset(g, page, kv_head, 0);
	__syncthreads();
	for (int i = threadIdx.x; i < PAGE * dim; i += blockDim.x) t.keys[i / dim * (dim + 1) + i % dim] = i / dim < n ? load_kv(g.k, g.half, from + i) : 0;
	__syncthreads();
}

// reads_page reports whether the row at p may read anything of block b.
__device__ inline bool reads_page(const Plan& plan, const Entries& e, int p, int b) {
	if (b * PAGE > p) return false;
	FixedPages edges = fixed_pages(plan, p);
	if (b < edges.head || b >= edges.tail) return true;
	if (plan.selected == SELECTED_BLOCKS) return find(e, b) >= 0;
	if (plan.selected != SELECTED_TOKENS) return false;
	int lo = 0, hi = e.n;  // binary search of the first entry in or after the block
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (e.index[mid] < b * PAGE)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < e.n && e.index[lo] < (b + 1) * PAGE;
}

// any_reads reports whether any vector of the tile may read anything of block b; called by all
// threads.
__device__ inline bool any_reads(const KeyTile& t, const Vectors& x, const Plan& plan, int b) {
	int i = threadIdx.x, any = 0;
	if (i < VECTORS && t.from + i < x.n) any = reads_page(plan, t.entries[i], x.position(t.from + i), b);
	return reduce_block(any, 0, Max());
}

// score_tile computes the base-2 scores of the thread's key for its vectors, EMPTY_MAX where
// one does not read it.
__device__ inline void score_tile(float s[EACH], const KeyTile& t, const Vectors& x, const PagedKV& g, const Plan& plan, int b) {
	int dim = (int)g.dim, i = threadIdx.x % PAGE, first = (int)threadIdx.x / PAGE * EACH, j = b * PAGE + i;
	const float *key = t.keys + i * (dim + 1), *q = t.q + first * dim;
	for (int u = 0; u < EACH; u++) s[u] = 0;
	for (int d = 0; d < dim; d++) {
		float k = key[d];
#pragma unroll
		for (int u = 0; u < EACH; u++) s[u] += q[u * dim + d] * k;
	}
	float unit = 1.4426950408889634f / sqrtf((float)dim);
	for (int u = 0; u < EACH; u++) {
		int v = t.from + first + u;
		float w = v < x.n ? weight_of(plan, t.entries[first + u], x.position(v), j) : 0, y = s[u] * unit;
		if (w != 1) y = w > 0 ? y + log2f(w) : EMPTY_MAX;
		s[u] = y > EMPTY_MAX ? y : EMPTY_MAX;  // NaN counts as masked
	}
}

struct StatesArgs {
	const float* q;  // [rows, heads, dim]
	SoftmaxState* states;   // [slots, sets, vectors, splits]
	i64 heads, run, splits, group;  // group: the head group of blockIdx.y 0
	PagedKV g;
	Plan plan;
};
