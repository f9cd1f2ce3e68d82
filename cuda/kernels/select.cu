// Top-k and top-p of rows of scores, f32 [rows, heads, width], a number for each position of the
// slot up to the row's own. Reference implementation: package cpu.
#include "histogram_select.cuh"

struct SelectArgs {
	i32 *index, *count;   // [rows, heads, cap], [rows, heads]
	const float* scores;  // [rows, heads, width]
	i64 heads, width, cap;
	i64 k;            // top-k of the row's positions, unless share > 0
	f64 share, mass;  // fraction of the positions; mass > 0: top-p
	i64 use_bitmap;   // shared memory has room for a bitmap of positions
	PagedKV g;
};

// select_bitmap sets the bits of the k best of n scores by linear bins. It returns false, having
// selected nothing, where more than MAX_BIN_TIES scores share the bin of the last one.
__device__ inline bool select_bitmap(u64* marks, const float* x, int n, int k) {
	SHARED(u32, start, BINS);
	SHARED(u64, ranks, MAX_BIN_TIES);
	SHARED(int, tied, 1);
	for (int w = threadIdx.x; w <= (n - 1) / PAGE; w += blockDim.x) marks[w] = 0;
	if (threadIdx.x == 0) tied[0] = 0;
	LinearBins bins;
	auto at = [&](int j, float& s) { return (s = x[j]) > -infinity(); };
	CutBin cut_bin = find_cut_bin<0, 1>(0, n, (u32)k, start, bins, at);
	bool partial = cut_bin.taken > k;  // of the scores in the cut bin
	if (partial && cut_bin.taken - cut_bin.above > MAX_BIN_TIES) return false;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		float s;
		if (!at(j, s)) continue;
		int bin = bins.of(s);
		if (bin < cut_bin.bin || (bin == cut_bin.bin && !partial))
			set_bit(marks, j);
		else if (bin == cut_bin.bin)
			ranks[atomicAdd(&tied[0], 1)] = rank_key(s, j);
	}
	__syncthreads();
	int ties = partial ? cut_bin.taken - cut_bin.above : 0;
	if ((int)threadIdx.x < ties) {
		int better = 0;
		for (int i = 0; i < ties; i++) better += ranks[i] > ranks[threadIdx.x];
		if (cut_bin.above + better < k) set_bit(marks, rank_position(ranks[threadIdx.x]));
	}
	__syncthreads();
	return true;
}

// top_positions (select) lists the best positions of a row and head, ascending, ties to the lowest:
// top-k, or top-p, the smallest set that holds a fraction of the row's softmax mass. Mass is summed
// in integer units of 2⁻⁴⁴ of the largest probability, so that sums do not depend on the order. -Inf
// and NaN are never listed. Grid: (row, head), one block a row. Top-k by linear bins, two passes;
// by radix select, four passes, where too many scores share a bin, and for top-p. Bound by the latency of the passes over a row in L2.
KERNEL(top_positions, SelectArgs, 1024) {
	DYNAMIC_SHARED(u64, marks);
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int n = at.p + 1;
	i64 row = (i64)blockIdx.x * a.heads + blockIdx.y;
	const float* x = a.scores + row * a.width;
	u32 top = 0;
	u64 total = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		count_nan(a.g, x[j]);
		top = max_of(top, radix_key(x[j]));
	}
	top = reduce_block(top, 0u, Max());
	float largest = __uint_as_float(top >> 31 ? top & 0x7fffffffu : ~top);
	auto share = [&](float s) { return (u64)(exp((double)s - (double)largest) * 0x1p44); };
	Threshold<u32> cut = select_all<u32>();
	if (a.mass > 0) {
		for (int j = threadIdx.x; j < n; j += blockDim.x) {
			if (radix_key(x[j]) > KEY_NEG_INF) total += share(x[j]);
		}
		total = reduce_block(total, (u64)0, Plus());
		cut = radix_select<u32>(n, max_of((u64)(a.mass * (double)total), (u64)1), [&](i64 i, u32& key) {
			key = radix_key(x[i]);
			return key > KEY_NEG_INF ? share(x[i]) : (u64)0;
		});
	} else {
		i64 k = a.share > 0 ? (i64)floor(a.share * (double)n + 1e-9) : a.k;
		if (k <= 0) {
			if (threadIdx.x == 0) a.count[row] = 0;
			return;
		}
		if (a.use_bitmap && select_bitmap(marks, x, n, (int)min_of(k, (i64)n))) {
			bitmap_to_list(marks, (n - 1) / PAGE + 1, a.index + row * a.cap, a.count[row], a.cap, a.g.failure);
			return;
		}
		cut = radix_select<u32, u32>(n, (u64)k, [&](i64 i, u32& key) {
			key = radix_key(x[i]);
			return (u32)(key > KEY_NEG_INF);
		});
	}
	auto real = [&](i64 i, u32& key) {
		key = radix_key(x[i]);
		return key > KEY_NEG_INF;
	};
	Selector<u32> start = make_selector(cut, n, real), in = start;
	ThreadRange r = thread_range(n);
	u64 mine = 0, all;
	for (i64 i = r.lo; i < r.hi; i++) {
		u32 key;
		if (real(i, key) && in.takes(key)) mine++;
	}
	u64 to = scan_block(mine, all);
	in = start;
	for (i64 i = r.lo; i < r.hi; i++) {
		u32 key;
		if (!real(i, key) || !in.takes(key)) continue;
		if (to < (u64)a.cap) a.index[row * a.cap + to] = (i32)i;
		to++;
	}
	if (threadIdx.x == 0) {
		if (all > (u64)a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[row] = (i32)min_of(all, (u64)a.cap);
	}
}
