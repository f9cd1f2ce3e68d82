// Exact scores in decode: q·k/√dim of the newest row of each slot over an f16 cache, on tensor
// cores (keys.cuh), each key read once for the heads of its kv head. Checked against the kernel
// scores of score.cu, which also does what this does not: lists with weights.
#include "keys.cuh"
#include "tiles.cuh"

struct ScoreDecodeArgs {
	float* dst;      // [rows, heads, width]
	const float* q;  // [rows, heads, dim]
	i64 heads, width;
	i64 early;                          // only the newest position of a slot is written by kernels that may still run
	i64 selected_region, sinks_window;  // only the selected region, or only sinks and window, of what the span shows
	PagedKV g;
	Plan plan;  // without a list
};

// row_scores (score): -Inf outside the region. Grid: (part of the pages, kv head, row). Bound by
// reading K once.
template <int DIM>
__device__ __forceinline__ void row_scores(const ScoreDecodeArgs& a) {
	DYNAMIC_SHARED(KeyPair<DIM>, ring);  // [KEY_WARPS, KEY_STAGES]
	pdl_trigger();
	int row = blockIdx.z, kv_head = blockIdx.y, group_heads = (int)(a.heads / a.g.heads), head = lane() / 4;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	WarpPages mine = warp_pages(at.p / PAGE + 1);
	RowMask view = row_mask(a.plan, at.p);
	bool valid = head < group_heads;
	i64 item = (i64)row * a.heads + kv_head * group_heads + (valid ? head : 0);
	auto page = [&](int b) { return view.shows(b) ? page_of(a.g, at.slot, b) : -1; };
	auto put = [&](int b, float (&s)[EIGHTS][2]) {
		float* to = a.dst + item * a.width;
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int p = b * PAGE + i * 8 + lane() % 4 * 2 + j;
				bool border = a.selected_region ? p < view.sink || p >= view.recent : a.sinks_window && !view.in_sinks_or_window(p);
				if (valid && p <= at.p && p < a.width) to[p] = view.spanned(p) && !border ? s[i][j] : -infinity();
			}
		}
	};
	score_pages<DIM>(a.g, ring + warp() * KEY_STAGES, kv_head, a.q + item * DIM, valid, 1 / sqrtf((float)DIM), mine, at.p / PAGE, a.early, page, put);
}

KERNEL_2_PER_SM(score_decode_64, ScoreDecodeArgs, KEY_WARPS * WARP) { row_scores<64>(a); }
KERNEL_2_PER_SM(score_decode_128, ScoreDecodeArgs, KEY_WARPS * WARP) { row_scores<128>(a); }
