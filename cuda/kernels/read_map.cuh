// The positions that the heads of a group read for a row, as a bitmap of a word per page with
// counts: position r of them is found by its rank. A thread block builds it for itself from the
// plan, so that neither a barrier with other blocks nor a list in memory is needed.
#pragma once

#include "args.cuh"
#include "radix_select.cuh"
#include "reduce.cuh"

// page_bits are the positions lo to hi-1 as bits of page w.
__device__ __forceinline__ u64 page_bits(int w, int lo, int hi) {
	lo = max_of(lo - w * PAGE, 0);
	hi = min_of(hi - w * PAGE, PAGE);
	return lo < hi ? ~0ull >> (PAGE - (hi - lo)) << lo : 0;
}

// spanned_bits is what of page w the span lets the row at p see, and edge_bits the sinks and
// the window of that.
__device__ __forceinline__ u64 spanned_bits(const Span& s, int p, int w) {
	int back = s.back == 0 ? 0 : max_of(p + 1 - (int)s.back, 0);
	return page_bits(w, back, p + 1) & (page_bits(w, 0, (int)min_of(s.sink, (i64)p + 1)) | page_bits(w, max_of(bound_of(s, p), 0), p + 1));
}
__device__ __forceinline__ u64 edge_bits(const Plan& plan, int p, int w) {
	u64 edges = plan.selected == SELECTED_ALL ? ~0ull : page_bits(w, 0, (int)min_of(plan.sink, (i64)p + 1)) | page_bits(w, max_of(recent_of(plan, p), 0), p + 1);
	return edges & spanned_bits(plan.span, p, w);
}

// set_bits sets bits of page w of a bitmap in shared or global memory.
__device__ __forceinline__ void set_bits(u64* words, int w, u64 bits) { atomicOr((unsigned long long*)words + w, (unsigned long long)bits); }

// nth_bit is the index of set bit r of a word, from 0.
__device__ __forceinline__ int nth_bit(u64 word, int r) {
	int at = 0;
#pragma unroll
	for (int half = PAGE / 2; half > 0; half /= 2) {
		int low = __popcll(word & ((1ull << half) - 1));
		bool up = r >= low;
		r -= up ? low : 0;
		at += up ? half : 0;
		word = up ? word >> half : word;
	}
	return at;
}

// nth_position is position r, from 0, of a bitmap whose page w is bits(w); before[w] is how many
// the pages before it have.
template <class Bits>
__device__ __forceinline__ int nth_position(const u32* before, int words, int r, Bits bits) {
	int lo = 0, hi = words;  // before[lo] <= r < before[hi]
	while (hi - lo > 1) {
		int mid = (lo + hi) / 2;
		if (before[mid] <= (u32)r)
			lo = mid;
		else
			hi = mid;
	}
	return lo * PAGE + nth_bit(bits(lo), r - (int)before[lo]);
}

// ld_cg of an index; see gpu.cuh.
__device__ __forceinline__ i32 ld_cg(const i32* at) { return (i32)__float_as_uint(ld_cg((const float*)at)); }

// load_peer loads what another block of the cluster wrote to global memory before their last
// barrier, from L2, where both meet.
template <class T>
__device__ __forceinline__ T load_peer(const T* at) {
	static_assert(sizeof(T) % sizeof(float) == 0, "words");
	union {
		float words[sizeof(T) / sizeof(float)];
		T v;
	} u;
#pragma unroll
	for (int i = 0; i < (int)(sizeof(T) / sizeof(float)); i++) u.words[i] = ld_cg((const float*)at + i);
	return u.v;
}

// ReadMap is the positions of a head group of a row, sinks and window included.
struct ReadMap {
	u64* read;    // [words]
	u32* before;  // [words]: positions in the pages before
	int words, n;
	int kv_head, head, group_heads;  // head: the first of the group
	RowPosition at;
	int inner, inner_end;  // pages that the span shows whole, without sinks and window

	// place is where position j lies in the cache: its page · PAGE + its index there. offset is that
	// of its key or value, nth position r of the map, from 0.
	__device__ __forceinline__ int place(const PagedKV& g, int j) const { return g.table[(i64)at.slot * g.width + j / PAGE] * PAGE + j % PAGE; }
	__device__ __forceinline__ i64 offset(const PagedKV& g, int place) const { return kv_offset(g, place / PAGE, kv_head, place % PAGE); }
	__device__ __forceinline__ int nth(int r) const {
		return nth_position(before, words, r, [&](int w) { return read[w]; });
	}
};

// find_inner finds the inner pages, and map_spanned and map_edges are spanned_bits and edge_bits of
// the row: a long row has little else, and its bits cost nothing there.
__device__ __forceinline__ void find_inner(ReadMap& m, const Plan& plan) {
	const Span& s = plan.span;
	int p = m.at.p, back = s.back == 0 ? 0 : p + 1 - (int)s.back, lo = max_of(max_of(back, bound_of(s, p)), max_of((int)min_of(plan.sink, (i64)p + 1), 0));
	m.inner = (lo + PAGE - 1) / PAGE;
	m.inner_end = plan.selected == SELECTED_ALL ? 0 : max_of(min_of(recent_of(plan, p), p + 1), 0) / PAGE;
}
__device__ __forceinline__ u64 map_spanned(const ReadMap& m, const Plan& plan, int w) { return w >= m.inner && w < m.inner_end ? ~0ull : spanned_bits(plan.span, m.at.p, w); }
__device__ __forceinline__ u64 map_edges(const ReadMap& m, const Plan& plan, int w) { return w >= m.inner && w < m.inner_end ? 0 : edge_bits(plan, m.at.p, w); }

// group_entries is the selection of head u of a group.
__device__ __forceinline__ Entries group_entries(const ReadMap& m, const Plan& plan, const PagedKV& g, i64 heads, int u) {
	return entries(plan.list, g, m.at, m.head + u, (int)heads);
}

constexpr int ENTRIES_IN_FLIGHT = 4;  // of a thread

// add_entries adds the entries of a list that the span shows.
__device__ inline void add_entries(const ReadMap& m, const Plan& plan, const Entries& e) {
	bool tokens = plan.selected == SELECTED_TOKENS;
	for (int first = threadIdx.x; first < e.n; first += ENTRIES_IN_FLIGHT * blockDim.x) {
		i32 entry[ENTRIES_IN_FLIGHT];
#pragma unroll
		for (int i = 0; i < ENTRIES_IN_FLIGHT; i++) entry[i] = ld_cg(e.index + min_of(first + i * (int)blockDim.x, e.n - 1));
#pragma unroll
		for (int i = 0; i < ENTRIES_IN_FLIGHT; i++) {
			int at = first + i * (int)blockDim.x, j = entry[i], w = tokens ? j / PAGE : j;
			if (at >= e.n || j < 0 || w >= m.words || (e.weight && !(ld_cg(e.weight + at) > 0))) continue;
			u64 bits = (tokens ? 1ull << j % PAGE : ~0ull) & map_spanned(m, plan, w);
			if (bits) set_bits(m.read, w, bits);
		}
	}
}

// read_weight is the weight of a position of the map; weights that several heads of the group
// have for it give the largest.
__device__ inline float read_weight(const ReadMap& m, const Plan& plan, const PagedKV& g, i64 heads, int j) {
	if (!plan.list.weight || plan.selected == SELECTED_NONE || map_edges(m, plan, j / PAGE) >> j % PAGE & 1) return 1;
	float largest = 0;
	for (int u = 0; u < m.group_heads; u++) {
		float x = weight_of(group_entries(m, plan, g, heads, u), plan.selected == SELECTED_TOKENS ? j : j / PAGE);
		if (x > largest) largest = x;
	}
	return largest;
}

// build_map makes the bitmap, without counts. All threads call it.
__device__ inline void build_map(ReadMap& m, const Plan& plan, const PagedKV& g, i64 heads) {
	find_inner(m, plan);
	for (int w = threadIdx.x; w < m.words; w += blockDim.x) m.read[w] = map_edges(m, plan, w);
	__syncthreads();
	const i32* last = nullptr;  // heads may share a list
	for (int u = 0; u < m.group_heads && plan.list.index && plan.selected != SELECTED_NONE; u++) {
		Entries e = group_entries(m, plan, g, heads, u);
		if (e.index == last) continue;
		add_entries(m, plan, e);
		last = e.index;
	}
	__syncthreads();
}

// count_pages makes before the counts of bits(w) in the pages before each, and returns that of
// all. All threads call it.
template <class Bits>
__device__ inline int count_pages(u32* before, int words, Bits bits) {
	ThreadRange r = thread_range(words);
	u32 mine = 0, total;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popcll(bits((int)w));
	u32 to = scan_block(mine, total);
	for (i64 w = r.lo; w < r.hi; w++) {
		before[w] = to;
		to += __popcll(bits((int)w));
	}
	__syncthreads();
	return (int)total;
}
