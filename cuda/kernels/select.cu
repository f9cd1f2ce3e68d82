// Top-k and top-p of rows of scores, f32 [rows, heads, width], a number for each position of the
// slot up to the row's own. Reference implementation: package cpu.
#include "row_scores.cuh"

struct SelectArgs {
	i32 *index, *count;   // [rows, heads, cap], [rows, heads]
	const float* scores;  // [rows, heads, width]
	i64 heads, width, cap;
	i64 k;            // top-k of the row's positions, unless share > 0
	f64 share, mass;  // fraction of the positions; mass > 0: top-p
	i64 part;         // elements of a block, at most
	PagedKV g;
};

// top_positions (select) lists the best positions of a row and head, ascending, ties to the lowest:
// top-k, or top-p, the smallest set that holds a fraction of the row's softmax mass, summed in integer
// units of 2⁻⁴⁴ of the largest probability, so that sums do not depend on the order. A largest score of +Inf leaves no
// softmax: all are listed. -Inf and NaN never are. Grid: (row, head, block of the cluster), a cluster
// for each list; see cluster_select.cuh. Bound by the latency of its steps and barriers; the
// list is read once from L2, for top-p three times.
KERNEL_2_PER_SM(top_positions, SelectArgs, SELECT_THREADS) {
	DYNAMIC_SHARED(ClusterScratch, scratch);
	pdl_trigger();
	RowPosition at = row_position(a.g, blockIdx.x);
	pdl_wait();
	if (at.p < 0) return;
	ClusterBlock c = this_block();
	ClusterScratch& s = *scratch;
	int n = at.p + 1;
	i64 row = (i64)blockIdx.x * a.heads + blockIdx.y;
	if (n > a.width) {
		if (threadIdx.x == 0 && c.rank == 0) {
			fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
			a.count[row] = 0;
		}
		return;
	}
	i64 k = a.mass > 0 ? n : a.share > 0 ? (i64)floor(a.share * (double)n + 1e-9) : a.k;
	if (k <= 0) {
		if (threadIdx.x == 0 && c.rank == 0) a.count[row] = 0;
		return;
	}
	RowScores load = {a.scores + row * a.width, a.g};
	ListPart<RowScores> part = list_part(c, s, n, a.part, load);
	Selected selected;
	if (a.mass > 0) {
		auto mass = [](u32 key, u32 top) { return top == KEY_INF ? (u64)0 : (u64)(exp((double)from_radix_key(key) - (double)from_radix_key(top)) * 0x1p44); };
		auto want = [&](u64 total) { return max_of((u64)(a.mass * (double)total), (u64)1); };
		selected = cluster_select<true>(c, s, part, mass, want);
	} else {
		selected = cluster_select<false>(c, s, part, [](u32, u32) { return (u64)1; }, [&](u64) { return (u64)k; });
	}
	i32* index = a.index + row * a.cap;
	cluster_put(part, selected, [&](int i, i64 to) {
		if (to < a.cap) index[to] = i;
	});
	i64 all = selected.all;
	if (threadIdx.x == 0 && c.rank == c.size - 1) {
		if (all > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[row] = (i32)min_of(all, a.cap);
	}
	c.sync();  // peers have read the counts
}
