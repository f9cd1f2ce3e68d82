// Exact scores of any cache and head dimension, and their pooling over heads. Rows of scores are
// f32 [rows, heads, width], a number for each position of the slot up to the row's own. Reference
// implementation: package cpu.
#include "args.cuh"
#include "reduce.cuh"
#include "scores.cuh"

struct ScoresArgs {
	float* dst;      // [rows, heads, width]
	const float* q;  // [rows, heads, dim]
	i64 heads, width, region;
	PagedKV g;
	Plan plan;
};

enum { REGION_VISIBLE, REGION_SELECTED, REGION_PLANNED };

// region_weight is the weight of position j in a region of what the row at p sees, 0 outside it.
__device__ inline float region_weight(const Plan& plan, const Entries& e, i64 region, int p, int j) {
	if (region == REGION_PLANNED) return weight_of(plan, e, p, j);
	if (!sees(plan.span, p, j)) return 0;
	if (region == REGION_SELECTED && (j < plan.sink || j >= recent_of(plan, p))) return 0;
	return 1;
}

// scores (score): dst = q·k/√dim + ln weight, -Inf outside the region; any cache and head
// dimension. Grid: (row, head, z), block z taking every gridDim.z-th page; one warp per position,
// its lanes over the channels. Bound by reading K once for every head.
KERNEL(scores, ScoresArgs, 256) {
	int row = blockIdx.x, h = blockIdx.y, dim = (int)a.g.dim;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) return;
	i64 index = (i64)row * a.heads + h;
	const float* q = a.q + index * dim;
	float* out = a.dst + index * a.width;
	Entries e = entries(a.plan.list, a.g, at, h, (int)a.heads);
	float unit = 1 / sqrtf((float)dim);
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	for (int b = blockIdx.z; b <= at.p / PAGE; b += gridDim.z) {
		int page = page_of(a.g, at.slot, b);
		for (int i = warp(); i < PAGE; i += blockDim.x / WARP) {
			int j = b * PAGE + i;
			if (j > at.p || j >= a.width) break;
			float w = region_weight(a.plan, e, a.region, at.p, j), sum = 0;
			if (w != 0 && page >= 0) {
				i64 from = kv_offset(a.g, page, kv_head, i);
				for (int d = lane(); d < dim; d += WARP) sum += q[d] * load_kv(a.g.k, a.g.half, from + d);
				sum = reduce_warp(sum, Plus()) * unit;
				if (w != 1) sum += logf(w);
			}
			if (lane() == 0) out[j] = w != 0 && page >= 0 ? sum : -infinity();
		}
	}
}

// listed_scores (score): scores for a plan that reads a position list with weight one and nothing
// else, as rescoring does. Grid: (part of the row, unit, row), a unit being heads of one kv head
// that share a list. A block fills its part of the rows with -Inf, and then scores the listed
// positions that lie in it. Bound by reading the listed keys, once for up to four heads.
KERNEL(listed_scores, ScoresArgs, 256) {
	RowPosition at = row_position(a.g, blockIdx.z);
	if (at.p < 0) return;
	int group = (int)a.heads / (int)gridDim.y, first = blockIdx.y * group, kv_head = first * (int)a.g.heads / (int)a.heads;
	i64 item = blockIdx.z * a.heads + first, n = min_of((i64)at.p + 1, a.width);
	int from = (int)(n * blockIdx.x / gridDim.x), end = (int)(n * (blockIdx.x + 1) / gridDim.x);
	float* out = a.dst + item * a.width;
	for (int h = 0; h < group; h++) {
		for (int j = from + threadIdx.x; j < end; j += blockDim.x) out[h * a.width + j] = -infinity();
	}
	Entries e = entries(a.plan.list, a.g, at, first, (int)a.heads);
	const i32* index = e.index + lower_bound(e, from);
	int listed = lower_bound(e, end) - (int)(index - e.index);
	float unit = 1 / sqrtf((float)a.g.dim);
	__syncthreads();
	for (int h = 0; h < group; h += HEADS_PER_PASS) {
		auto some = [&](int i) { return sees(a.plan.span, at.p, index[i]) && page_of(a.g, at.slot, index[i] / PAGE) >= 0; };
		auto where = [&](int i) { return key_offset(a.g, at.slot, kv_head, index[i]); };
		auto put = [&](int u, int i, float s) {
			if (sees(a.plan.span, at.p, index[i])) out[(h + u) * a.width + index[i]] = s * unit;
		};
		score_any(a.g, listed, a.q + (item + h) * a.g.dim, min_of(HEADS_PER_PASS, group - h), some, where, put);
	}
}

struct GroupMaxArgs {
	float* dst;      // [rows, g.heads, width]
	const float* x;  // [rows, heads, width]
	i64 heads, width;
	PagedKV g;
};

// group_max (score) pools the heads of a kv head by their maximum. Grid: (row, kv head, z), one
// thread per position. Bound by reading the scores.
KERNEL(group_max, GroupMaxArgs, 256) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	if (at.p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
		return;
	}
	int group_heads = (int)(a.heads / a.g.heads);
	const float* x = a.x + ((i64)blockIdx.x * a.heads + blockIdx.y * group_heads) * a.width;
	float* y = a.dst + ((i64)blockIdx.x * a.g.heads + blockIdx.y) * a.width;
	for (int j = blockIdx.z * blockDim.x + threadIdx.x; j <= at.p; j += gridDim.z * blockDim.x) {
		float v = -infinity();
		for (int h = 0; h < group_heads; h++) {
			float s = x[h * a.width + j];
			v = s > v ? s : v;
		}
		y[j] = v;
	}
}
