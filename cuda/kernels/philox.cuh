// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3") with the address of a draw as its counter and the seed as its key, as package device
// defines it. No state, and the same numbers for any batch, chunking or grid.
#pragma once

#include "gpu.cuh"

// What random numbers are for: part of the address. Numbered as in package device.
enum { FOR_TOKEN = 1, FOR_PILOT, FOR_KEYS, FOR_VALUE, FOR_SIGNS, FOR_FEATURES };

struct PhiloxWords {
	u32 w[4];
};

// philox is Philox4x32-10.
__device__ inline PhiloxWords philox(PhiloxWords ctr, u32 k0, u32 k1) {
	for (int i = 0; i < 10; i++) {
		u32 hi0 = __umulhi(0xD2511F53u, ctr.w[0]), lo0 = 0xD2511F53u * ctr.w[0];
		u32 hi1 = __umulhi(0xCD9E8D57u, ctr.w[2]), lo1 = 0xCD9E8D57u * ctr.w[2];
		ctr = {{hi1 ^ ctr.w[1] ^ k0, lo1, hi0 ^ ctr.w[3] ^ k1, lo0}};
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return ctr;
}

// Draw is rng.Address of the Go side.
struct Draw {
	u64 seed;
	u32 request, layer, head, pos, purpose;
};

// philox_block is block i of the address: 4 random words.
__device__ inline PhiloxWords philox_block(const Draw& d, u32 i) {
	PhiloxWords ctr = {{i, d.pos, d.request << 8 | (d.purpose & 0xff), d.layer << 12 | (d.head & 0xfff)}};
	return philox(ctr, (u32)d.seed, (u32)(d.seed >> 32));
}

// uniform is number i of the address, in [0, 1), with 24 bits.
__device__ inline float uniform(const Draw& d, u32 i) { return (float)(philox_block(d, i / 4).w[i % 4] >> 8) * 0x1p-24f; }

// uniform_below maps a random word to [0, n), Lemire's multiplication without rejection.
__device__ inline u32 uniform_below(u32 word, u32 n) { return __umulhi(word, n); }

// Shuffle is rng.Shuffle: a keyed permutation of [0, n), six rounds of an unbalanced Feistel
// network over the next power of two with cycle walking, and a rotation. It is evaluated
// element by element: a prefix of it is a sample without replacement, and needs no memory.
struct Shuffle {
	u32 n, left, right;
	u32 keys[6];
	u32 rotation;

	// mix is a multiplicative hash whose high bits are used.
	__device__ static u32 mix(u32 x, u32 key) {
		x = (x ^ key) * 0x9E3779B1u;
		return (x ^ x >> 15) * 0x85EBCA77u;
	}

	__device__ u32 at(u32 x) const {
		do {
			u32 l = x >> right, r = x & ((1u << right) - 1);
#pragma unroll  // keys stay in registers
			for (int i = 0; i < 6; i += 2) {
				l ^= mix(r, keys[i]) >> (32 - left);
				r ^= mix(l, keys[i + 1]) >> (32 - right);
			}
			x = l << right | r;
		} while (x >= n);
		x += rotation;
		return x >= n ? x - n : x;
	}
};

// shuffle_of keys the permutation of n elements, 1 to 2^31, by an address.
__device__ inline Shuffle shuffle_of(const Draw& d, u32 n) {
	Shuffle s;
	int bits = max_of(8, 32 - __clz(n - 1));
	s.n = n;
	s.left = bits / 2;
	s.right = bits - bits / 2;
	PhiloxWords a = philox_block(d, 0), b = philox_block(d, 1);
	for (int i = 0; i < 4; i++) s.keys[i] = a.w[i];
	s.keys[4] = b.w[0];
	s.keys[5] = b.w[1];
	s.rotation = uniform_below(b.w[2], n);
	return s;
}
