// Exact scores in decode: q·k/√dim of the newest row of each slot over an f16 cache, on tensor
// cores (keys.cuh), each key read once for the heads of its kv head. Checked against the kernel
// scores of score.cu, which also does what this does not: lists with weights.
#include "keys.cuh"
#include "region.cuh"

struct ScoreDecodeArgs {
	float* dst;      // [rows, heads, width], or [rows, kvheads, width]
	const float* q;  // [rows, heads, dim]
	i64 heads, width;
	i64 pooled;                         // dst has the largest score of the heads of a kv head; NaN does not count
	i64 early;                          // only the newest position of a slot is written by kernels that may still run
	i64 selected_region, sinks_window;  // only the selected region, or only sinks and window, of what the span shows
	PagedKV g;
	Plan plan;  // without a list
};

// max_of_rows gives all lanes the largest scores of the heads that are valid.
__device__ __forceinline__ void max_of_rows(float (&s)[EIGHTS][2], bool valid) {
#pragma unroll
	for (int i = 0; i < EIGHTS; i++) {
#pragma unroll
		for (int j = 0; j < 2; j++) {
			float v = valid && s[i][j] > -infinity() ? s[i][j] : -infinity();
#pragma unroll
			for (int m = 4; m < WARP; m *= 2) v = max_of(v, __shfl_xor_sync(FULL_MASK, v, m));
			s[i][j] = v;
		}
	}
}

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
	ScoredRegion region = scored_region(a.plan, at.p, a.selected_region, a.sinks_window);
	PageAhead pages = {a.g, region, at.slot, 1, mine.from, mine.end, KEY_WARPS};
	bool valid = head < group_heads;
	i64 item = (i64)row * a.heads + kv_head * group_heads + (valid ? head : 0);
	float* to = a.dst + (a.pooled ? (i64)row * a.g.heads + kv_head : item) * a.width;
	bool stores = a.pooled ? head == 0 : valid;
	auto put = [&](int b, float (&s)[EIGHTS][2]) {
		if (a.pooled) max_of_rows(s, valid);
		bool whole = region.whole(b) && (b + 1) * PAGE <= a.width && ((u64)to & 7) == 0;
#pragma unroll
		for (int i = 0; i < EIGHTS; i++) {
			int p = b * PAGE + i * 8 + lane() % 4 * 2;
			if (whole) {
				if (stores) *(Word2*)(to + p) = Word2{{__float_as_uint(s[i][0]), __float_as_uint(s[i][1])}};
				continue;
			}
#pragma unroll
			for (int j = 0; j < 2; j++) {
				if (stores && p + j <= at.p && p + j < a.width) to[p + j] = region.has(p + j) ? s[i][j] : -infinity();
			}
		}
	};
	score_pages<DIM>(a.g, ring + warp() * KEY_STAGES, kv_head, a.q + item * DIM, valid, 1 / sqrtf((float)DIM), mine, at.p / PAGE, a.early, [&](int) { return pages.next(); }, put);
}

KERNEL_2_PER_SM(score_decode_64, ScoreDecodeArgs, KEY_WARPS * WARP) { row_scores<64>(a); }
KERNEL_2_PER_SM(score_decode_128, ScoreDecodeArgs, KEY_WARPS * WARP) { row_scores<128>(a); }
