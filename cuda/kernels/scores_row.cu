// Scores of the newest row of each slot, over a cache in half precision: bound by reading
// the keys once. Checked as the kernel scores of select.cu is, which does what does not
// suit this: weights of lists.
#include "keys.cuh"
#include "tiles.cuh"

struct RowScoresArgs {
	float* dst;      // [rows, heads, width]
	const float* q;  // [rows, heads, dim]
	i64 heads, width;
	i64 early;       // as RowArgs has it
	i64 middles, edges;  // only what is between the plan's edges, or only these, of what the span shows
	PagedKV g;
	Plan plan;  // without a list
};

// row_scores: q·k/√dim, -Inf of what the part leaves out. Block (i, y, r) takes part i of
// the pages of row r for the heads of kv head y.
template <int DIM>
__device__ __forceinline__ void row_scores(const RowScoresArgs& a) {
	DYNAMIC_SHARED(KeyPair<DIM>, ring);  // [KEY_WARPS, KEY_STAGES]
	pdl_trigger();
	int row = blockIdx.z, kv_head = blockIdx.y, run = (int)(a.heads / a.g.heads), head = lane() / 4;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	WarpPages mine = warp_pages(at.p / PAGE + 1);
	RowMask sight = row_mask(a.plan, at.p);
	bool there = head < run;
	i64 item = (i64)row * a.heads + kv_head * run + (there ? head : 0);
	auto page = [&](int b) { return sight.shows(b) ? page_of(a.g, at.slot, b) : -1; };
	auto put = [&](int b, float (&s)[EIGHTS][2]) {
		float* to = a.dst + item * a.width;
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int p = b * PAGE + i * 8 + lane() % 4 * 2 + j;
				bool border = a.middles ? p < sight.sink || p >= sight.recent : a.edges && !sight.in_sinks_or_window(p);
				if (there && p <= at.p && p < a.width) to[p] = sight.spanned(p) && !border ? s[i][j] : -infinity();
			}
		}
	};
	score_pages<DIM>(a.g, ring + warp() * KEY_STAGES, kv_head, a.q + item * DIM, there, 1 / sqrtf((float)DIM), mine, at.p / PAGE, a.early, page, put);
}

KERNEL_2_PER_SM(row_scores_64, RowScoresArgs, KEY_WARPS * WARP) { row_scores<64>(a); }
KERNEL_2_PER_SM(row_scores_128, RowScoresArgs, KEY_WARPS * WARP) { row_scores<128>(a); }
