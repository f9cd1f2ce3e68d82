// Scores of low-bit keys on tensor cores (device.MirrorScores): see mirror_decode.cuh.
#include "mirror_decode.cuh"

// pool_heads gives all lanes of a key the largest scores of the heads that are there; NaN does not
// count.
__device__ __forceinline__ void pool_heads(float (&s)[2][4], bool first, bool second) {
#pragma unroll
	for (int i = 0; i < 4; i++) {
		float v = first && s[0][i] > -infinity() ? s[0][i] : -infinity();
		if (second && s[1][i] > v) v = s[1][i];
		v = max_of(v, __shfl_xor_sync(FULL_MASK, v, 1));
		s[0][i] = max_of(v, __shfl_xor_sync(FULL_MASK, v, 2));
	}
}

// mirror_decode (score): mirror_scores on tensor cores. Grid: (part of the pages, kv head, row).
// Bound by reading the copies once.
template <int BITS, int DIM>
__device__ __forceinline__ void mirror_decode(const MirrorScoresArgs& a) {
	pdl_trigger();
	RowPosition at = row_position(a.g, blockIdx.z);
	if (at.p < 0 || at.p >= a.width) {
		if (at.p >= 0 && threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
		pdl_wait();
		return;
	}
	ScoredRegion region = scored_region(a.plan, at.p, a.selected, false);
	int c = lane() % 4, group = (int)(a.heads / a.g.heads);
	bool aligned = rows_aligned(a.dst, a.width);
	for (int h = 0; h < group; h += MIRROR_GROUP) {
		int heads = min_of(MIRROR_GROUP, group - h), mine = a.pooled ? c == 0 : min_of(max_of(heads - 2 * c, 0), 2);  // rows that the lane stores
		i64 item = blockIdx.z * a.heads + blockIdx.y * group + h;
		float* to = a.dst + (a.pooled ? blockIdx.z * a.g.heads + blockIdx.y : item + 2 * c) * a.width;
		score_mirror_mma<BITS, DIM>(a.keys, a.g, region, at.slot, mirror_units(at.p), a.q + item * DIM, heads, [&](int unit, float (&s)[2][4], bool there) {
			if (a.pooled) pool_heads(s, 2 * c < heads, 2 * c + 1 < heads);
			bool inside = there && aligned && region.whole(unit / MIRROR_RUNS);
#pragma unroll
			for (int u = 0; u < 2; u++) {
				if (u < mine) region.store4(to + u * a.width, unit * MIRROR_RUN + lane() / 4 * 4, s[u], there, inside);
			}
		});
	}
}

KERNEL_2_PER_SM(mirror_decode_q4_64, MirrorScoresArgs, MIRROR_THREADS) { mirror_decode<4, 64>(a); }
KERNEL_2_PER_SM(mirror_decode_q4_128, MirrorScoresArgs, MIRROR_THREADS) { mirror_decode<4, 128>(a); }
KERNEL_2_PER_SM(mirror_decode_q8_64, MirrorScoresArgs, MIRROR_THREADS) { mirror_decode<8, 64>(a); }
KERNEL_2_PER_SM(mirror_decode_q8_128, MirrorScoresArgs, MIRROR_THREADS) { mirror_decode<8, 128>(a); }
