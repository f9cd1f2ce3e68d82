// Randomness by address: the counterpart of package device's draw.go.
#pragma once

#include "gpu.cuh"

// The purposes of random numbers, numbered as package device does.
enum { FOR_TOKEN = 1, FOR_PILOT, FOR_KEYS, FOR_VALUE, FOR_SIGNS, FOR_FEATURES };

struct Words {
	u32 w[4];
};

// philox is Philox4x32-10.
__device__ inline Words philox(Words ctr, u32 k0, u32 k1) {
	for (int i = 0; i < 10; i++) {
		u32 hi0 = __umulhi(0xD2511F53u, ctr.w[0]), lo0 = 0xD2511F53u * ctr.w[0];
		u32 hi1 = __umulhi(0xCD9E8D57u, ctr.w[2]), lo1 = 0xCD9E8D57u * ctr.w[2];
		ctr = {{hi1 ^ ctr.w[1] ^ k0, lo1, hi0 ^ ctr.w[3] ^ k1, lo0}};
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
	return ctr;
}

// Draw is device.Draw.
struct Draw {
	u64 seed;
	u32 request, layer, head, pos, purpose;
};

// words_of is block i of the address.
__device__ inline Words words_of(const Draw& d, u32 i) {
	Words ctr = {{i, d.pos, d.request << 8 | (d.purpose & 0xff), d.layer << 12 | (d.head & 0xfff)}};
	return philox(ctr, (u32)d.seed, (u32)(d.seed >> 32));
}

// uniform is number i of the address, in [0, 1) with 24 bits.
__device__ inline float uniform(const Draw& d, u32 i) { return (float)(words_of(d, i / 4).w[i % 4] >> 8) * 0x1p-24f; }

// below maps a random word to 0 to n-1.
__device__ inline u32 below(u32 word, u32 n) { return __umulhi(word, n); }

// Shuffle is device.Shuffle: a permutation of n elements of which single ones can
// be asked for.
struct Shuffle {
	u32 n, left, right;
	u32 keys[6];
	u32 turn;

	// mix scatters x, whose upper bits count.
	__device__ static u32 mix(u32 x, u32 key) {
		x = (x ^ key) * 0x9E3779B1u;
		return (x ^ x >> 15) * 0x85EBCA77u;
	}

	__device__ u32 at(u32 x) const {
		do {
			u32 l = x >> right, r = x & ((1u << right) - 1);
			for (int i = 0; i < 6; i += 2) {
				l ^= mix(r, keys[i]) >> (32 - left);
				r ^= mix(l, keys[i + 1]) >> (32 - right);
			}
			x = l << right | r;
		} while (x >= n);
		x += turn;
		return x >= n ? x - n : x;
	}
};

// shuffle_of is the permutation of n elements, 1 to 2^31, of an address.
__device__ inline Shuffle shuffle_of(const Draw& d, u32 n) {
	Shuffle s;
	int bits = max_of(8, 32 - __clz(n - 1));
	s.n = n;
	s.left = bits / 2;
	s.right = bits - bits / 2;
	Words a = words_of(d, 0), b = words_of(d, 1);
	for (int i = 0; i < 4; i++) s.keys[i] = a.w[i];
	s.keys[4] = b.w[0];
	s.keys[5] = b.w[1];
	s.turn = below(b.w[2], n);
	return s;
}
