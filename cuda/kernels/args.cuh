// Arguments that several kernels share: package device's KV, Span, Plan and List as structs of
// 8-byte fields. The host fills them word by word, in the order of the fields; see launch.go.
#pragma once

#include "gpu.cuh"

constexpr int PAGE = 64;  // positions (tokens) of a page

// Failure is the first failure of a device since its last Sync: a code of failures.go and the
// numbers of its message; code 0 is none. nans counts the NaN scores that selection has met
// since the device was opened.
struct Failure {
	int code;
	int pad;
	i64 a, b, c;
	unsigned long long nans;
};

// fail records a failure, unless there is one already.
__device__ inline void fail(Failure* f, int code, i64 a, i64 b, i64 c) {
	if (atomicCAS(&f->code, 0, code) == 0) {
		f->a = a;
		f->b = b;
		f->c = c;
	}
}

// Codes of failures; failures.go has their messages.
enum { FAIL_ID = 1, FAIL_ROW, FAIL_TABLE, FAIL_PAGE, FAIL_LENGTH, FAIL_GROUP, FAIL_COUNT, FAIL_LIST, FAIL_BLOCK, FAIL_SCORES };

// PagedKV is device.KV: a paged KV cache with a page table for each slot.
struct PagedKV {
	void *k, *v;       // f16 or f32 [count, heads, PAGE, dim]
	const i32* table;  // [slots, width]
	const i32* len;    // [slots]
	i64 half, count, heads, dim, slots, width;
	i64 rows;  // query rows of the call per slot
	Failure* failure;
};

// first_position is the position of the first query row of a slot, -1 if the slot is idle: the
// last of its rows is at its length less one.
__device__ inline int first_position(const PagedKV& g, int slot) {
	int n = g.len[slot];
	if (n == 0) return -1;
	if (n < g.rows || n > g.width * PAGE) {
		if (threadIdx.x == 0) fail(g.failure, FAIL_LENGTH, slot, n, g.rows);
		return -1;
	}
	return n - (int)g.rows;
}

// count_nan counts a NaN among scores that positions are selected by.
__device__ inline void count_nan(const PagedKV& g, double score) {
	if (score != score) atomicAdd(&g.failure->nans, 1ull);
}

// RowPosition is the place of a query row of the call.
struct RowPosition {
	int slot, first, p;  // p: position in the sequence, -1 for a row of an idle slot
};

__device__ inline RowPosition row_position(const PagedKV& g, int row) {
	RowPosition at;
	at.slot = row / (int)g.rows;
	at.first = first_position(g, at.slot);
	at.p = at.first < 0 ? -1 : at.first + row % (int)g.rows;
	return at;
}

// page_entry is the page table's entry for block b of a slot, page_valid whether it is a page
// of the cache; -1 and false record a failure.
__device__ inline int page_entry(const PagedKV& g, int slot, int b) {
	if (b >= 0 && b < g.width) return g.table[(i64)slot * g.width + b];
	fail(g.failure, FAIL_TABLE, slot, b, g.width);
	return -1;
}
__device__ inline bool page_valid(const PagedKV& g, int slot, int page) {
	if (page >= 0 && page < g.count) return true;
	fail(g.failure, FAIL_PAGE, slot, page, g.count);
	return false;
}

// page_of is both: the page of block b of a slot, -1 after a failure.
__device__ inline int page_of(const PagedKV& g, int slot, int b) {
	int page = page_entry(g, slot, b);
	return page_valid(g, slot, page) ? page : -1;
}

// kv_offset is the element where position i of a page starts for a kv head: pages are
// [heads, PAGE, dim].
__device__ inline i64 kv_offset(const PagedKV& g, int page, int head, int i) { return (((i64)page * g.heads + head) * PAGE + i) * g.dim; }

// load_kv loads element i of a cache of f16 or f32 as f32.
__device__ inline float load_kv(const void* cache, i64 half, i64 i) { return half ? from_half(((const u16*)cache)[i]) : ((const float*)cache)[i]; }

// Span is device.Span.
struct Span {
	i64 back, sink;
	f64 drop;
	i64 recent;
};

// bound_of is Span.Bound: the first position that drop leaves visible to the row at p.
__device__ inline int bound_of(const Span& s, int p) {
	if (s.drop == 0) return 0;
	return min_of((int)floor(s.drop * (double)(p + 1) + 1e-9) - 1, p + 1 - (int)s.recent);
}

// sees is Span.Sees: whether the span lets the row at p see position j. Causal.
__device__ inline bool sees(const Span& s, int p, int j) {
	return j <= p && (s.back == 0 || j > p - s.back) && (j < s.sink || j >= bound_of(s, p));
}

// List is device.List.
struct List {
	const i32* index;  // [groups, heads, cap]
	const i32* count;
	const float* weight;  // NULL: all one
	i64 groups, heads, cap, group;
};

// Entries is the selection of one head group of one group of rows.
struct Entries {
	const i32* index;  // ascending
	const float* weight;
	int n;
};

// entries finds the selection of a row and a head.
__device__ inline Entries entries(const List& l, const PagedKV& g, RowPosition at, int head, int heads) {
	Entries e = {nullptr, nullptr, 0};
	if (!l.index) return e;
	int n = (int)l.group, group = at.slot + at.p / n - at.first / n;
	if (group >= l.groups) {
		fail(g.failure, FAIL_GROUP, group, l.groups, 0);
		return e;
	}
	i64 i = group * l.heads + (i64)head * l.heads / heads;
	e.n = l.count[i];
	if (e.n < 0 || e.n > l.cap) {
		fail(g.failure, FAIL_COUNT, e.n, l.cap, 0);
		e.n = min_of(max_of(e.n, 0), (int)l.cap);
	}
	e.index = l.index + i * l.cap;
	if (l.weight) e.weight = l.weight + i * l.cap;
	return e;
}

// lower_bound is the number of entries less than j.
__device__ inline int lower_bound(const Entries& e, int j) {
	int lo = 0, hi = e.n;
	while (lo < hi) {
		int mid = (lo + hi) / 2;
		if (e.index[mid] < j)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

// find is the index of the entry j, -1 if it is not selected.
__device__ inline int find(const Entries& e, int j) {
	int at = lower_bound(e, j);
	return at < e.n && e.index[at] == j ? at : -1;
}

// weight_of is the weight of entry j, 0 if it is not selected.
__device__ inline float weight_of(const Entries& e, int j) {
	int i = find(e, j);
	return i < 0 ? 0 : e.weight ? e.weight[i] : 1;
}

enum { SELECTED_ALL, SELECTED_NONE, SELECTED_BLOCKS, SELECTED_TOKENS };

// Plan is device.Plan: what attention of a row reads, namely sinks, a recent window, and of
// the positions between them all, none, listed blocks or listed positions.
struct Plan {
	Span span;
	i64 sink, recent, align, selected, mixture;
	List list;
};

// recent_of is the first position of the row's window.
__device__ inline int recent_of(const Plan& plan, int p) {
	if (plan.align > 0) return (int)(p / plan.align * plan.align - plan.recent);
	return p + 1 - (int)plan.recent;
}

// in_sinks_or_window reports whether position j is read regardless of the list.
__device__ inline bool in_sinks_or_window(const Plan& plan, int p, int j) {
	return plan.selected == SELECTED_ALL || j < plan.sink || j >= recent_of(plan, p);
}

// weight_of is the weight of position j for the row at p, 0 if it is masked or not selected.
__device__ inline float weight_of(const Plan& plan, const Entries& e, int p, int j) {
	if (!sees(plan.span, p, j)) return 0;
	if (in_sinks_or_window(plan, p, j)) return 1;
	if (plan.selected == SELECTED_BLOCKS) return weight_of(e, j / PAGE);
	if (plan.selected == SELECTED_TOKENS) return weight_of(e, j);
	return 0;
}

// FixedPages are the pages of sinks and window of a tile of rows: those before head and those
// from tail on. They are read regardless of the list.
struct FixedPages {
	int head, tail;
};

// fixed_pages finds them for rows whose first is at p. The window of a later row starts no
// earlier than that of the first.
__device__ inline FixedPages fixed_pages(const Plan& plan, int p) {
	int head = 0, tail = 0;  // in positions
	if (plan.selected != SELECTED_ALL) {
		head = (int)plan.sink;
		tail = recent_of(plan, p);
	}
	const Span& s = plan.span;
	int b = bound_of(s, p);
	if (b > tail) {
		head = max_of(head, (int)s.sink);
		tail = b;
	}
	if (s.back > 0) tail = max_of(tail, p + 1 - (int)s.back);
	FixedPages e = {(head + PAGE - 1) / PAGE, max_of(tail, 0) / PAGE};
	return e;
}
