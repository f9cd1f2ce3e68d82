// Attention mass of the newest row of each slot (H2O) by the kernels of decode attention: they keep
// the scores of what the row reads, and a second launch, which knows the softmax state of all
// splits, adds the weights. Where attention of the same row follows, both read each key once.
// Reference implementation: package cpu.
#include "decode.cuh"

struct MassDecodeArgs {
	DecodeArgs d;
	TileScores scores;
	float* sum;  // [slots, kvheads, width], as hold_share has it
	i64 width;
};

// decode_mass_ is decode with scores; mass_ computes scores alone.
KERNEL_2_PER_SM(decode_mass_64, MassDecodeArgs, RING_WARPS* WARP) { decode<64, 1, RING_STAGES, false, ATTENTION_AND_SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(decode_mass_128, MassDecodeArgs, RING_WARPS* WARP) { decode<128, 1, RING_STAGES, false, ATTENTION_AND_SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(decode_mass_more_64, MassDecodeArgs, RING_WARPS* WARP) { decode<64, 2, RING_STAGES, false, ATTENTION_AND_SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(decode_mass_more_128, MassDecodeArgs, RING_WARPS* WARP) { decode<128, 2, RING_STAGES, false, ATTENTION_AND_SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(mass_64, MassDecodeArgs, RING_WARPS* WARP) { decode<64, 1, RING_STAGES, false, SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(mass_128, MassDecodeArgs, RING_WARPS* WARP) { decode<128, 1, RING_STAGES, false, SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(mass_more_64, MassDecodeArgs, RING_WARPS* WARP) { decode<64, 2, RING_STAGES, false, SCORES>(a.d, blockIdx.y, a.scores); }
KERNEL_2_PER_SM(mass_more_128, MassDecodeArgs, RING_WARPS* WARP) { decode<128, 2, RING_STAGES, false, SCORES>(a.d, blockIdx.y, a.scores); }

// ScoredRow is the scores of a row for a kv head.
struct ScoredRow {
	const u32* words;
	int positions;  // of its tiles
	int sets;

	__device__ __forceinline__ const u32* tile(int i) const { return words + (i64)(i / TILE_ROWS) * score_words(sets); }
	__device__ __forceinline__ int position(int i) const { return (int)__float_as_uint(ld_cg((const float*)tile(i) + i % TILE_ROWS)); }

	// scores makes s the scores of position i for the heads of a set.
	__device__ __forceinline__ void scores(float s[4], int i, int set) const { ld_cg4(s, (const float*)(tile(i) + TILE_ROWS * (1 + 4 * set) + i % TILE_ROWS * 4)); }
};

// state_of_head is the max of a head's scores and 1 / the sum of their exponentials. All lanes call it.
__device__ inline SoftmaxState state_of_head(const SoftmaxState* parts, int n, const ScoredRow& row, int head) {
	SoftmaxState all = {EMPTY_MAX, 0};
	for (int i = lane(); i < n; i += WARP) all.max = max_of(all.max, ld_cg(&parts[i].max));
	all.max = reduce_warp(all.max, Max());
	for (int i = lane(); i < n; i += WARP) all.sum += ld_cg(&parts[i].sum) * rescale(ld_cg(&parts[i].max), all.max);
	all.sum = reduce_warp(all.sum, Plus());
	if (all.sum != all.sum) {  // NaN counts as masked here, but not in attention
		float sum = 0, s[4];
		for (int i = lane(); i < row.positions; i += WARP) {
			row.scores(s, i, head / 4);
			if (s[head % 4] > EMPTY_MAX) sum += exp2f(s[head % 4] - all.max);
		}
		all.sum = reduce_warp(sum, Plus());
	}
	all.sum = normalizer(all.sum, false);
	return all;
}

// RowMass is what a block of add_mass knows of its row and kv head.
struct RowMass {
	ScoredRow scored;
	const SoftmaxState* tops;  // of the heads: the max, and 1 / the sum
	float* sum;
	int group, p;

	// before is the sum of a position before the row, 0 of the row's own.
	__device__ __forceinline__ float before(int j) const { return j >= 0 && j < p ? ld_cg(sum + j) : 0; }

	// add adds to the sum of position j, which is entry i and was `all`; s are the scores of its first heads.
	__device__ __forceinline__ void add(int i, int j, float all, float s[4]) const {
		if (j < 0 || all == -infinity()) return;
		float mine = 0;
		double tiny = 0;  // weights below TINY_SHARE
		for (int h = 0; h < group; h++) {
			if (h % 4 == 0 && h > 0) scored.scores(s, i, h / 4);
			float x = h % 4 == 0 ? s[0] : h % 4 == 1 ? s[1] : h % 4 == 2 ? s[2] : s[3];
			if (!(x > EMPTY_MAX)) continue;
			float w = exp2f(x - tops[h].max) * tops[h].sum;
			if (w < TINY_SHARE)
				tiny += exp2((double)(x - tops[h].max)) * (double)tops[h].sum;
			else
				mine += w;
		}
		if (all < 0) {
			tiny += share_of(all);
			all = 0;
		}
		sum[j] = hold_share((double)(all + mine) + tiny);
	}
};

// add_mass adds to the sum of each position what the row gave it, Σ softmax over the heads of the kv
// head; -Inf marks an evicted position. Behind decode_mass_ one block of each list merges the partial
// results of attention. Grid: (rows, kv heads, parts of the positions, and one for attention). Bound by
// the latency of its loads, of which those that need no count are issued before it is known.
KERNEL(add_mass, MassDecodeArgs, 256) {
	DYNAMIC_SHARED(float, scales);  // [group, splits + 1], for attention
	SHARED(SoftmaxState, tops, 8);
	const PagedKV& g = a.d.g;
	int row = blockIdx.x, group = (int)a.d.group, first = blockIdx.y * group, sets = (group + 3) / 4, parts = (int)gridDim.z - (a.d.dst ? 1 : 0);
	RowPosition at = row_position(g, row);
	pdl_wait();
	pdl_trigger();
	if (at.p < 0) return;
	if (at.p >= a.width) {
		if (threadIdx.x == 0) fail(g.failure, FAIL_SCORES, at.p, a.width, 0);
		return;
	}
	i64 list = (i64)row * gridDim.y + blockIdx.y;
	RowMass m = {{a.scores.words + list * a.scores.tiles * score_words(sets), (int)a.scores.tiles * TILE_ROWS, sets}, tops,
		a.sum + ((i64)at.slot * g.heads + blockIdx.y) * a.width, group, at.p};
	int i = blockIdx.z * blockDim.x + threadIdx.x, j = -1, by = parts * blockDim.x;
	float s[4] = {0, 0, 0, 0};
	if (i < m.scored.positions) {
		j = m.scored.position(i);
		m.scored.scores(s, i, 0);
	}
	float all = m.before(j);
	TileSequence r = tile_sequence(a.d, at, first);
	if (r.tiles > a.scores.tiles) return;
	m.scored.positions = (r.plain ? r.p / TILE_ROWS + 1 : r.tiles) * TILE_ROWS;
	int partials = splits_of(a.d, r.tiles).partials;
	if ((int)blockIdx.z == parts) {
		if (g.dim == 64)
			merge_splits<64>(a.d, (i64)row * a.d.heads + first, partials, scales, false);
		else
			merge_splits<128>(a.d, (i64)row * a.d.heads + first, partials, scales, false);
		return;
	}
	for (int h = warp(); h < group; h += (int)blockDim.x / WARP) {
		SoftmaxState top = state_of_head(a.d.states + ((i64)row * a.d.heads + first + h) * a.d.splits, partials, m.scored, h);
		if (lane() == 0) tops[h] = top;
	}
	if (threadIdx.x == 0 && blockIdx.z == 0 && !(weight_of(a.d.plan, r.e, at.p, at.p) > 0)) m.sum[at.p] = hold_share(0);
	__syncthreads();
	while (i < m.scored.positions) {
		m.add(i, j, all, s);
		i += by;
		if (i >= m.scored.positions) break;
		j = m.scored.position(i);
		m.scored.scores(s, i, 0);
		all = m.before(j);
	}
}
