// Scores q·k of the newest row of each slot with all keys of a kv head, over an f16 cache:
// the first pass of selection in a decode step. Bound by reading the keys once; the query
// heads of a group share each key that is loaded.
//
// A warp takes a page, 16 keys at a time, with 32 keys in flight by cp.async. The operands of
// mma only have to agree on the order of k, so k is permuted such that each lane loads 16
// contiguous bytes of a key instead of going through ldmatrix. The queries are split into f16
// high and low parts, rows i and i+8 of the A operand, which is 22 bits of precision at the
// cost of one mma.
#pragma once

#include "dequant.cuh"
#include "newest.cuh"

constexpr int KEY_WARPS = 8;      // per block
constexpr int EIGHTS = PAGE / 8;  // of a page: 8 keys are the n of one mma
constexpr int PAIRS = EIGHTS / 2;
constexpr int KEY_STAGES = 3;
constexpr int KEY_AHEAD = KEY_STAGES - 1;  // pairs in flight

// KeyPair is a stage of the pipeline: 16 keys in pieces of 16 bytes. Pieces of odd keys are
// swizzled, so that lanes that read two keys have no bank conflict.
template <int DIM>
struct KeyPair {
	static constexpr int PIECES = DIM / 8;
	Word4 piece[16 * PIECES];

	__device__ __forceinline__ static int at(int key, int i) { return key * PIECES + (i ^ key % 2 * 4); }
};

// QueryFragment is a lane's part of head lane/4: for mma k, four elements from
// 32·(k/2) + 8·(lane%4) + 4·(k%2) on.
template <int DIM>
struct QueryFragment {
	u32 q[DIM / 16][4];
	float unit;  // scale of a score: undoes the power of two, times that of the caller
};

// load_query loads a head into the four lanes of its row, scaled by a power of two that keeps
// both f16 parts in range. unit is the scale of the scores.
template <int DIM>
__device__ __forceinline__ void load_query(QueryFragment<DIM>& h, const float* q, bool there, float unit) {
	float v[DIM / 16][4], largest = 0;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			v[k][i] = there ? q[k / 2 * 32 + lane() % 4 * 8 + k % 2 * 4 + i] : 0;
			largest = max_of(largest, fabsf(v[k][i]));
		}
	}
	largest = max_of(largest, __shfl_xor_sync(FULL_MASK, largest, 1));
	largest = max_of(largest, __shfl_xor_sync(FULL_MASK, largest, 2));
	int power = min_of(max_of((int)(__float_as_uint(largest) >> 23), 24), 240) - 10;  // biased exponent: the largest element becomes 2¹⁰ or more
	float up = __uint_as_float((u32)(254 - power) << 23), down = __uint_as_float((u32)power << 23);
	h.unit = down * unit;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int i = 0; i < 2; i++) {
			float x = v[k][2 * i] * up, y = v[k][2 * i + 1] * up;
			u32 both = pack_half(x, y);
			h.q[k][2 * i] = both;
			h.q[k][2 * i + 1] = pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16)));
		}
	}
}

// load_keys_async starts the copy of pair i of a page; page -1 is an empty group. The scores that are
// written meanwhile stay in L2 instead of keys, which are not read again soon.
template <int DIM>
__device__ __forceinline__ void load_keys_async(KeyPair<DIM>& to, const PagedKV& g, int page, int kv_head, int i) {
	constexpr int PIECES = KeyPair<DIM>::PIECES;
	if (page >= 0) {
		const u16* from = (const u16*)g.k + kv_offset(g, page, kv_head, i * 16);
#pragma unroll
		for (int n = 0; n < 16 * PIECES; n += WARP) cp_async_stream(&to.piece[KeyPair<DIM>::at((n + lane()) / PIECES, (n + lane()) % PIECES)], from + (n + lane()) * 8);
	}
	cp_async_commit();
}

// WarpPages are the pages of a warp: every KEY_WARPS-th of split blockIdx.x of gridDim.x.
struct WarpPages {
	int from, end;
};

__device__ __forceinline__ WarpPages warp_pages(int pages) {
	int parts = gridDim.x, part = blockIdx.x;
	WarpPages s = {(int)((i64)pages * part / parts) + warp(), (int)((i64)pages * (part + 1) / parts)};
	return s;
}

// score_pages scores the pages of a warp for the head at q, which the lanes of its row pass;
// there is false for lanes without a head. page(b) is the page of block b, or -1 to skip it;
// it is called ahead of use and before pdl_wait. With early, all pages but that of block
// newest were written before the preceding grids started, so their copies start before
// pdl_wait. put(b, s) receives the scores of block b: s[i][j] is that of the lane's head for
// key 8·i + 2·(lane%4) + j; those of skipped pages and of masked keys are undefined, maybe
// NaN. ring is the warp's pipeline, [KEY_STAGES].
template <int DIM, class Page, class Put>
__device__ __forceinline__ void score_pages(const PagedKV& g, KeyPair<DIM>* ring, int kv_head, const float* q, bool there, float unit, WarpPages mine, int newest, bool early, Page page, Put put) {
	const int by = KEY_WARPS;
	int now = mine.from < mine.end ? page(mine.from) : -1, next = mine.from + by < mine.end ? page(mine.from + by) : -1;
	early = early && mine.from != newest;
	if (!early) pdl_wait();
#pragma unroll
	for (int i = 0; i < KEY_AHEAD; i++) load_keys_async<DIM>(ring[i], g, now, kv_head, i);
	if (early) pdl_wait();
	QueryFragment<DIM> h;
	load_query(h, q, there, unit);
	int slot = 0;
	for (int b = mine.from; b < mine.end; b += by) {
		int after = b + 2 * by < mine.end ? page(b + 2 * by) : -1;
		float s[EIGHTS][2];
#pragma unroll
		for (int i = 0; i < PAIRS; i++) {
			__syncwarp();  // the stage about to be overwritten has been read
			load_keys_async<DIM>(ring[slot == 0 ? KEY_STAGES - 1 : slot - 1], g, i + KEY_AHEAD < PAIRS ? now : next, kv_head, (i + KEY_AHEAD) % PAIRS);
			cp_async_wait<KEY_AHEAD>();
			__syncwarp();
			const KeyPair<DIM>& keys = ring[slot];
			float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
			for (int j = 0; j < DIM / 32; j++) {
#pragma unroll
				for (int n = 0; n < 2; n++) {
					Word4 raw = keys.piece[KeyPair<DIM>::at(n * 8 + lane() / 4, j * 4 + lane() % 4)];
					mma_f16(c[n], h.q[2 * j], raw.w);
					mma_f16(c[n], h.q[2 * j + 1], raw.w + 2);
				}
			}
#pragma unroll
			for (int n = 0; n < 2; n++) {
				s[2 * i + n][0] = (c[n][0] + c[n][2]) * h.unit;
				s[2 * i + n][1] = (c[n][1] + c[n][3]) * h.unit;
			}
			if (++slot == KEY_STAGES) slot = 0;
		}
		put(b, s);
		now = next;
		next = after;
	}
	cp_async_wait<0>();
}
