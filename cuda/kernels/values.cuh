// Importance sampling of values: device.ValueDraws in device code.
#pragma once

#include "philox.cuh"

// Values is device.ValueDraws.
struct Values {
	u64 seed;
	const i32* of;  // [slots]: ids of requests; NULL: request for all
	i64 request, layer, samples, sampler, tiles, tile, shared;
};

enum { SYSTEMATIC, STRATIFIED, INDEPENDENT };
enum { ONE_TILE, REMAINDER, EQUAL };

// tile_of is device.ValueDraws.TileSize.
__device__ inline int tile_of(const Values& v, int n) {
	if (v.tile > 0) return (int)v.tile;
	return n <= 1536 ? 32 : n <= 3072 ? 64 : 256;
}

// most_of is Draws.Most: the most draws of a row.
__device__ inline i64 most_of(const Values& v, int n) {
	i64 most = v.samples;
	if (v.tiles == EQUAL && n > 0) {
		int ms[3] = {min_of(n, 1536), min_of(n, 3072), n};
		for (int m : ms) most = max_of(most, (i64)(m + tile_of(v, m) - 1) / tile_of(v, m));
	}
	return max_of((i64)1, min_of(most, (i64)n));
}

// address_of is the counter of Philox for a head of the row at p of a slot.
__device__ inline Draw address_of(const Values& v, int slot, int p, int head, int heads, int kv_heads) {
	Draw d = {v.seed, v.of ? (u32)v.of[slot] : (u32)v.request, (u32)v.layer, (u32)head, (u32)p, FOR_VALUE};
	if (v.shared) d.head = (u32)(head * kv_heads / heads);
	return d;
}
