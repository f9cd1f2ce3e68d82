// Products of queries with all keys of a kv head, over a cache in half precision, as
// fast as memory gives the keys: the newest row of each slot, each key read once for
// the heads that share it.
//
// A warp takes a page, 16 keys at a time, and asks for 32 keys ahead. Tensor cores ask four
// neighbouring lanes for numbers of a row, and it does not matter which, as long as the
// queries' lanes have the same ones: so a lane reads 16 bytes of a key at once. Row i of
// a 16 x 16 matrix is head i rounded to half precision and row i+8 what that left, so that
// the two together are good to 22 bits.
#pragma once

#include "dequant.cuh"
#include "newest.cuh"

constexpr int KEY_WARPS = 8;      // of a block
constexpr int EIGHTS = PAGE / 8;  // of a page: 8 keys are one product
constexpr int PAIRS = EIGHTS / 2;
constexpr int KEY_STAGES = 3;
constexpr int KEY_AHEAD = KEY_STAGES - 1;  // pairs that are asked for ahead

// KeyPair is 16 keys, in pieces of 16 bytes. Those of odd keys lie in another order, so
// that lanes which read two keys meet no bank of shared memory twice.
template <int DIM>
struct KeyPair {
	static constexpr int PIECES = DIM / 8;
	Word4 piece[16 * PIECES];

	__device__ __forceinline__ static int at(int key, int i) { return key * PIECES + (i ^ key % 2 * 4); }
};

// Asked is what a lane has of head lane/4: of the product k, four numbers from
// 32·(k/2) + 8·(lane%4) + 4·(k%2) on.
template <int DIM>
struct Asked {
	u32 q[DIM / 16][4];
	float unit;  // what a product of q and a key is multiplied by
};

// ask_head puts a head into the lanes of its row, times a power of two that keeps both
// halves of it within half precision. unit is that of the scores.
template <int DIM>
__device__ __forceinline__ void ask_head(Asked<DIM>& h, const float* q, bool there, float unit) {
	float v[DIM / 16][4], top = 0;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			v[k][i] = there ? q[k / 2 * 32 + lane() % 4 * 8 + k % 2 * 4 + i] : 0;
			top = max_of(top, fabsf(v[k][i]));
		}
	}
	top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 1));
	top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 2));
	int power = min_of(max_of((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased: top becomes 2¹⁰ or more
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

// bring_keys begins to copy pair i of a page; of page -1 it does not.
template <int DIM>
__device__ __forceinline__ void bring_keys(KeyPair<DIM>& to, const PagedKV& g, int page, int kv_head, int i) {
	constexpr int PIECES = KeyPair<DIM>::PIECES;
	if (page >= 0) {
		const u16* from = (const u16*)g.k + kv_offset(g, page, kv_head, i * 16);
#pragma unroll
		for (int n = 0; n < 16 * PIECES; n += WARP) cp_async(&to.piece[KeyPair<DIM>::at((n + lane()) / PIECES, (n + lane()) % PIECES)], from + (n + lane()) * 8);
	}
	cp_async_commit();
}

// OwnPages is the pages of a slot that a warp takes: of part blockIdx.x of gridDim.x every
// KEY_WARPS-th.
struct OwnPages {
	int from, end;
};

__device__ __forceinline__ OwnPages own_pages(int pages) {
	int parts = gridDim.x, part = blockIdx.x;
	OwnPages s = {(int)((i64)pages * part / parts) + warp(), (int)((i64)pages * (part + 1) / parts)};
	return s;
}

// score_pages takes the pages of a share of a kv head, for the head at q, which the lanes
// of its row give; there is false for lanes without one. page(b) is the number of page b,
// or -1 if nobody wants it; it is called ahead, and before the kernels in front of this
// one are done. With early, all pages but newest are there before those are done, and are
// asked for at once. put(b, s) gets the scores of page b: s[i][j] is that of the lane's
// head for key 8·i + 2·(lane%4) + j. Those of page -1, and of keys beyond the row's own, are
// anything, perhaps not numbers. ring is the warp's, [KEY_STAGES].
template <int DIM, class Page, class Put>
__device__ __forceinline__ void score_pages(const PagedKV& g, KeyPair<DIM>* ring, int kv_head, const float* q, bool there, float unit, OwnPages mine, int newest, bool early, Page page, Put put) {
	const int by = KEY_WARPS;
	int now = mine.from < mine.end ? page(mine.from) : -1, next = mine.from + by < mine.end ? page(mine.from + by) : -1;
	early = early && mine.from != newest;
	if (!early) pdl_wait();
#pragma unroll
	for (int i = 0; i < KEY_AHEAD; i++) bring_keys<DIM>(ring[i], g, now, kv_head, i);
	if (early) pdl_wait();
	Asked<DIM> h;
	ask_head(h, q, there, unit);
	int slot = 0;
	for (int b = mine.from; b < mine.end; b += by) {
		int after = b + 2 * by < mine.end ? page(b + 2 * by) : -1;
		float s[EIGHTS][2];
#pragma unroll
		for (int i = 0; i < PAIRS; i++) {
			__syncwarp();  // all have read what the next copies overwrite
			bring_keys<DIM>(ring[slot == 0 ? KEY_STAGES - 1 : slot - 1], g, i + KEY_AHEAD < PAIRS ? now : next, kv_head, (i + KEY_AHEAD) % PAIRS);
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
