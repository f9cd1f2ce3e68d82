// Scores of low-bit keys on tensor cores, for head dimensions that have kernels: products of bytes by mma.m16n8k32, 16 keys times up to eight query heads. Integers are
// exact, so scores have the bits of the kernel mirror_scores (mirror.cu), which takes the rest.
//
// A word of a mirror's page is eight or four elements of a key, and the words of neighbouring keys
// are neighbours. Lane 4r + c of a warp loads words c, c + 4, … of keys 4r to 4r + 3, 16 bytes at a
// time. These are A operands as they are: the operands of mma only have to agree on the order of
// k, and rows may be keys in any order. A lane gets the scores of four consecutive keys.
#pragma once

#include "dequant.cuh"
#include "mirror.cuh"
#include "region.cuh"

constexpr int MIRROR_GROUP = 8;  // query heads of a pass over the keys: the n of an mma
constexpr int MIRROR_RUN = 32;   // keys whose words a warp loads at once
constexpr int MIRROR_THREADS = 256;

// MirrorWords is a lane's words of MIRROR_RUN keys of a page, and their scales.
template <int BITS, int DIM>
struct MirrorWords {
	static constexpr int MMAS = DIM / 32, EACH = DIM * BITS / 128;
	Word4 word[EACH], scale;

	// load starts the loads of the keys from first on of a page's head, at k.
	__device__ __forceinline__ void load(const u32* k, int first) {
		k += first + lane() / 4 * 4;
#pragma unroll
		for (int i = 0; i < EACH; i++) word[i] = load16_stream(k + (i * 4 + lane() % 4) * PAGE);
		scale = load16_stream(k + EACH * 4 * PAGE);
	}

	// products adds to sum the products of keys 4r + 2·pair and 4r + 2·pair + 1 with the heads 2c
	// and 2c + 1, in this order.
	__device__ __forceinline__ void products(int sum[4], const u32 (*q)[2], int pair) const {
		constexpr u32 LOW = 0x0f0f0f0f;
#pragma unroll
		for (int i = 0; i < MMAS; i++) {
			u32 k[4];
#pragma unroll
			for (int j = 0; j < 2; j++) {
				int key = 2 * pair + j;
				if constexpr (BITS == 4) {
					k[j] = word[i].w[key] & LOW;
					k[2 + j] = word[i].w[key] >> 4 & LOW;
				} else {
					k[j] = word[2 * i].w[key];
					k[2 + j] = word[2 * i + 1].w[key];
				}
			}
			mma_u8s8(sum, k, q[i]);
		}
	}
};

// round_query is mirror_queries for the head of a warp, in registers: a lane has DIM/32 neighbouring
// elements, whose transform starts in the lane and goes on between lanes.
template <int BITS, int DIM>
__device__ __forceinline__ void round_query(float unit_of_scores, const float* q, i32* to, float* unit) {
	constexpr int EACH = DIM / WARP;
	float x[EACH];
	u32 largest = 0;
#pragma unroll
	for (int e = 0; e < EACH; e++) x[e] = q[lane() * EACH + e];
#pragma unroll
	for (int h = 1; h < EACH; h *= 2) {
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			if (e & h) continue;
			float lo = x[e], hi = x[e + h];
			x[e] = lo + hi;
			x[e + h] = lo - hi;
		}
	}
#pragma unroll
	for (int h = 1; h < WARP; h *= 2) {
#pragma unroll
		for (int e = 0; e < EACH; e++) {
			float peer = __shfl_xor_sync(FULL_MASK, x[e], h);
			x[e] = lane() & h ? peer - x[e] : x[e] + peer;
		}
	}
#pragma unroll
	for (int e = 0; e < EACH; e++) largest = max_of(largest, __float_as_uint(x[e]) & 0x7fffffff);
	MirrorScale s = scale_of_largest(warp_max(largest), 127);
	u32 word = 0;
	int sum = 0;
#pragma unroll
	for (int e = 0; e < EACH; e++) {
		int v = mirror_int(x[e], s);
		sum += v;
		word |= (u32)(v & 255) << (lane() * EACH + e) % 4 * 8;
	}
	if (EACH == 2) word |= __shfl_xor_sync(FULL_MASK, word, 1);
	to[lane() * EACH / 4] = (i32)word;
	sum = reduce_warp(sum, Plus());
	if (lane() == 0) {
		to[DIM / 4] = -sum * (1 << (BITS - 1));
		*unit = s.scale * unit_of_scores;
	}
}

// MirrorHeads is a lane's part of the queries: words of head lane/4, and what scores of the heads
// 2c and 2c + 1 take.
template <int BITS, int DIM>
struct MirrorHeads {
	u32 q[DIM / 32][2];
	int offset[2];
	float unit[2];

	// load takes what round_query made of heads.
	__device__ __forceinline__ void load(const i32* from, const float* units, int heads) {
		constexpr int ROW = DIM / 4 + 1;
		int head = lane() / 4, c = lane() % 4;
#pragma unroll
		for (int i = 0; i < DIM / 32; i++) {
#pragma unroll
			for (int j = 0; j < 2; j++) q[i][j] = head < heads ? (u32)from[head * ROW + (BITS == 4 ? 2 * (4 * i + c) + j : 4 * (2 * i + j) + c)] : 0;
		}
#pragma unroll
		for (int j = 0; j < 2; j++) {
			bool there = 2 * c + j < heads;
			offset[j] = there ? from[(2 * c + j) * ROW + DIM / 4] : 0;
			unit[j] = there ? units[2 * c + j] : 0;
		}
	}
};

constexpr int MIRROR_RUNS = PAGE / MIRROR_RUN;  // of a page

// MirrorUnits are a warp's runs of keys: every MIRROR_THREADS/WARP-th of part blockIdx.x of gridDim.x of
// those up to position p.
struct MirrorUnits {
	int from, end;
};

__device__ __forceinline__ MirrorUnits mirror_units(int p) {
	int n = p / MIRROR_RUN + 1, parts = gridDim.x, part = blockIdx.x;
	MirrorUnits u = {(int)((i64)n * part / parts) + warp(), (int)((i64)n * (part + 1) / parts)};
	return u;
}

// score_mirror_mma scores a warp's runs for up to MIRROR_GROUP heads of kv head blockIdx.y, whose queries
// are q [heads, DIM]. put(unit, s, there) receives what lane 4r + c has: s[i][j] is the score of head
// 2c + i for key 4r + j of the run; there is false for a page that the region does not have. All threads
// call it; it waits for the preceding grids behind what the host has written.
template <int BITS, int DIM, class Put>
__device__ __forceinline__ void score_mirror_mma(const MirrorKeys& keys, const PagedKV& g, const ScoredRegion& region, int slot, MirrorUnits mine, const float* q, int heads, Put put) {
	using Words = MirrorWords<BITS, DIM>;
	constexpr int STAGES = Words::EACH <= 4 ? 3 : 2, BY = MIRROR_THREADS / WARP;  // STAGES: of a warp's pipeline, in registers
	SHARED(i32, queries, MIRROR_GROUP * (DIM / 4 + 1));
	SHARED(float, units, MIRROR_GROUP);
	PageAhead pages = {g, region, slot, MIRROR_RUNS, mine.from, mine.end, BY};
	Words k[STAGES];
	bool known[STAGES];
	auto load = [&](int stage, int page, int unit) {
		known[stage] = page >= 0;
		if (page >= 0) k[stage].load(keys.page + ((i64)page * g.heads + blockIdx.y) * (Words::EACH * 4 + 1) * PAGE, unit % MIRROR_RUNS * MIRROR_RUN);
	};
	int first = pages.next();  // page tables are written by the host
	pdl_wait();
#pragma unroll
	for (int i = 0; i < STAGES - 1; i++) load(i, i == 0 ? first : pages.next(), mine.from + i * BY);
	if (warp() < heads) round_query<BITS, DIM>((float)keys.unit, q + warp() * DIM, queries + warp() * (DIM / 4 + 1), units + warp());
	__syncthreads();
	MirrorHeads<BITS, DIM> rounded;
	rounded.load(queries, units, heads);
	auto step = [&](int stage, int unit) {
		load((stage + STAGES - 1) % STAGES, pages.next(), unit + (STAGES - 1) * BY);
		float s[2][4] = {};
		bool there = known[stage];
		if (there) {
#pragma unroll
			for (int pair = 0; pair < 2; pair++) {
				int sum[4] = {rounded.offset[0], rounded.offset[1], rounded.offset[0], rounded.offset[1]};
				k[stage].products(sum, rounded.q, pair);
#pragma unroll
				for (int i = 0; i < 4; i++) s[i % 2][2 * pair + i / 2] = (float)sum[i] * __uint_as_float(k[stage].scale.w[2 * pair + i / 2]) * rounded.unit[i % 2];
			}
		}
		put(unit, s, there);
	};
	for (int unit = mine.from; unit < mine.end; unit += STAGES * BY) {
#pragma unroll
		for (int i = 0; i < STAGES; i++) {
			if (unit + i * BY < mine.end) step(i, unit + i * BY);
		}
	}
	__syncthreads();
}
