// Products of one row with matrices, dst = x·wᵀ: what a decode step does for one
// sequence, bound by reading the matrices once. Checked against matmul.cu.
//
// A block for each multiprocessor takes rows that lie one behind the other. The rows are
// cut into chunks; each warp has one chunk, the same of every row that it takes, and so
// it holds what meets it of x in registers: as it is, or with 8 bits where the weights
// are quantized. The weights come by through a ring in shared memory that the warp has
// for itself. The sums of several rows are added over the lanes at once, and those of
// the chunks of a row in the order of k at the end, where a norm's scale is multiplied
// in. The rings are filled with the first chunks before x is there: weights do not wait
// for the kernels before, so that memory is busy between launches too.
#include "args.cuh"
#include "few.cuh"
#include "reduce.cuh"

struct SingleArgs {
	const float* x;     // [k]
	const float* norm;  // [k]: x is normalized and multiplied by it; NULL: x as it is
	f64 eps;
	float* dst[3];      // [n]
	const u8* w[3];     // [n, k], of the type
	i64 n[3];
	i64 k, row;  // row: bytes of a row of w
	i64 mode;
	i64 fixed;  // no kernel writes w
	i64 slots;  // warps that have a row together
};

// TurnArgs are of products that are queries, keys and values, which are turned and
// appended as by rope_append. Pairs of elements that turn are neighbours.
struct TurnArgs {
	SingleArgs s;
	i64 role[3];  // of dst: 0 queries, 1 keys, 2 values
	Pages g;
	const i32* pos;      // [1]
	const float* freqs;  // [pairs]
	f64 scale;
	i64 pairs;
};

constexpr int SINGLE_THREADS = 512;

// Piece is how a type is cut: WEIGHTS of a row in BYTES, STAGES of them in a ring.
template <int TYPE>
struct Piece {
	static constexpr bool QUANTIZED = TYPE >= Q4_0;
	static constexpr int WEIGHTS = QUANTIZED ? 2048 : TYPE == F32 ? 512 : 1024;
	static constexpr int BYTES = TYPE == Q4_0 || TYPE == Q4_K ? 1152 : TYPE == Q8_0 ? 2176 : TYPE == Q5_K ? 1408 : TYPE == Q6_K ? 1680 : 2048;
	static constexpr int STAGES = BYTES == 1152 ? 4 : 3;
	static constexpr int X = QUANTIZED ? 3072 : 0;  // bytes of shared memory for the part of x that meets a chunk
};

// A lane takes 64 of the 2048 weights of a chunk of a quantized type: of one block
// of 256, 16 of each 32 in a half. With Share it finds them; they are dealt to
// lanes such that 8 neighbours read other banks.
struct Share {
	int block, half, part;
};

__device__ __forceinline__ Share share_of_lane(int lane) {
	int q = lane / 4;
	return {(q & 4) | (q & 1) << 1 | (q >> 1 & 1), lane / 2 % 2, lane % 2};
}

__device__ __forceinline__ int lane_of(int block, int half, int part) {
	return ((block & 4) | (block & 1) << 1 | (block >> 1 & 1)) * 4 + half * 2 + part;
}

// x that meets a chunk of a quantized type, for each lane: 4 times 16 integers,
// [4][32][16] bytes; their 4 scales, f32 [32][4]; and the sums of the numbers that the
// integers stand for, f32 [32][4].
constexpr int X_SCALES = 2048, X_SUMS = 2560;

// put stores numbers 4i to 4i+3 of x for quantized weights. All lanes of a warp call it.
template <int TYPE>
__device__ __forceinline__ void put(u8* x, int i, const float v[4]) {
	float top = larger(larger(fabsf(v[0]), fabsf(v[1])), larger(fabsf(v[2]), fabsf(v[3])));
	for (int m = 1; m < 8; m *= 2) top = larger(top, __shfl_xor_sync(ALL, top, m));
	float d = top * (1 / 127.0f), per = top > 1e-36f ? 127 / top : 0;
	u32 word = 0;
	int sum = 0;
	for (int j = 0; j < 4; j++) {
		int q = (int)rintf(v[j] * per);
		word |= (u32)(q & 255) << 8 * j;
		sum += q;
	}
	for (int m = 1; m < 4; m *= 2) sum += __shfl_xor_sync(ALL, sum, m);
	int e = i * 4, piece = e / 32 % 4, of = lane_of(e / 256 % 8, e / 128 % 2, e / 16 % 2);
	u8* tile = x + e / 2048 * Piece<TYPE>::X;
	*(u32*)(tile + piece * 512 + of * 16 + e % 16) = word;
	if (e % 16) return;
	((float*)(tile + X_SCALES))[of * 4 + piece] = d;
	((float*)(tile + X_SUMS))[of * 4 + piece] = d * (float)sum;
}

// prepare makes x ready in shared memory, multiplied by the weights of a norm. It gives a
// thread's part of the sum of the squares of x.
template <int TYPE>
__device__ __forceinline__ float prepare(const SingleArgs& a, u8* x) {
	float squares = 0;
	for (int i = threadIdx.x; i < (int)a.k / 4; i += blockDim.x) {
		Word4 word = load16(a.x + 4 * i), norm = {{0, 0, 0, 0}};
		if (a.norm) norm = load16(a.norm + 4 * i);
		float v[4];
		for (int u = 0; u < 4; u++) {
			v[u] = __uint_as_float(word.w[u]);
			squares += v[u] * v[u];
			if (a.norm) v[u] *= __uint_as_float(norm.w[u]);
		}
		put<TYPE>(x, i, v);
	}
	return squares;
}

// Taken is what a lane holds of x: what meets its weights of a chunk.
template <int TYPE, bool = Piece<TYPE>::QUANTIZED>
struct Taken {
	Word4 v[4];          // integers
	Word4 scales, sums;  // of 16 of them each
};
template <int TYPE>
struct Taken<TYPE, false> {
	float v[Piece<TYPE>::WEIGHTS / WARP];
};

// take reads what meets a chunk of a quantized type.
template <int TYPE>
__device__ __forceinline__ Taken<TYPE> take(const u8* x, int chunk) {
	Taken<TYPE> t;
	const u8* mine = x + chunk * Piece<TYPE>::X + lane() * 16;
#pragma unroll
	for (int i = 0; i < 4; i++) t.v[i] = load16(mine + i * 512);
	t.scales = load16(mine + X_SCALES);
	t.sums = load16(mine + X_SUMS);
	return t;
}

// Slice is what meets a lane's weights of a chunk of a plain type, of which it has every
// 32nd 16 bytes: of a vector at, with left numbers from there on.
template <int TYPE>
struct Slice {
	const float* at;
	int left;

	__device__ __forceinline__ Slice(const float* v, i64 k, int chunk) {
		int first = chunk * Piece<TYPE>::WEIGHTS + lane() * (TYPE == F32 ? 4 : 8);
		at = v + first;
		left = (int)k - first;
	}
	// four is what meets weights i to i+3 of the lane; zeros where there are none.
	__device__ __forceinline__ Word4 four(int i) const {
		int to = TYPE == F32 ? i * WARP : i / 8 * 8 * WARP + i % 8;
		if (to < left) return load16(at + to);
		return {{0, 0, 0, 0}};
	}
};

// take_norm takes the weights of a norm for a chunk of a plain type, or ones.
template <int TYPE>
__device__ __forceinline__ void take_norm(Taken<TYPE>& t, const SingleArgs& a, int chunk) {
	Slice<TYPE> norm(a.norm, a.norm ? a.k : 0, chunk);
#pragma unroll
	for (int i = 0; i < Piece<TYPE>::WEIGHTS / WARP; i += 4) {
		Word4 w = norm.four(i);
#pragma unroll
		for (int j = 0; j < 4; j++) t.v[i + j] = a.norm ? __uint_as_float(w.w[j]) : 1;
	}
}

// take_plain multiplies x into what take_norm took, and adds its squares to square.
template <int TYPE>
__device__ __forceinline__ void take_plain(Taken<TYPE>& t, float& square, const SingleArgs& a, int chunk) {
	constexpr int AT_ONCE = 16;  // that registers are free for
	Slice<TYPE> x(a.x, a.k, chunk);
#pragma unroll
	for (int base = 0; base < Piece<TYPE>::WEIGHTS / WARP; base += AT_ONCE) {
		Word4 w[AT_ONCE / 4];
#pragma unroll
		for (int i = 0; i < AT_ONCE; i += 4) w[i / 4] = x.four(base + i);
#pragma unroll
		for (int i = 0; i < AT_ONCE; i++) {
			float v = __uint_as_float(w[i / 4].w[i % 4]);
			square += v * v;
			t.v[base + i] *= v;
		}
	}
}

// odd16 is 16 bytes at an address that is 2 past a multiple of 4.
__device__ __forceinline__ Word4 odd16(const u8* at) {
	const u32* p = (const u32*)(at - 2);
	u32 w[5] = {p[0], p[1], p[2], p[3], p[4]};
	return {{__byte_perm(w[0], w[1], 0x5432), __byte_perm(w[1], w[2], 0x5432), __byte_perm(w[2], w[3], 0x5432), __byte_perm(w[3], w[4], 0x5432)}};
}

// even16 is 16 bytes at a multiple of 4.
__device__ __forceinline__ Word4 even16(const u8* at) {
	const u32* p = (const u32*)at;
	return {{p[0], p[1], p[2], p[3]}};
}

__device__ __forceinline__ float half_of(const u8* at) { return from_half(*(const u16*)at); }

// dot16 is the sum of 16 products of bytes.
__device__ __forceinline__ int dot16(const u32 v[4], const Word4& x) {
	int s = 0;
#pragma unroll
	for (int i = 0; i < 4; i++) s = __dp4a((int)v[i], (int)x.w[i], s);
	return s;
}

// byte_of is byte t of a word: the lowest of the fraction of 2²³.
__device__ __forceinline__ float byte_of(u32 word, int t) { return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650 + t)) - 8388608; }

// dot is a lane's part of the product of a chunk of a quantized type at w with what meets
// it.
template <int TYPE>
__device__ __forceinline__ float dot(const u8* w, const Taken<TYPE, true>& x) {
	Share g = share_of_lane(lane());
	const Word4 &d4 = x.scales, &s4 = x.sums;
	float sum = 0;
	if (TYPE == Q8_0 || TYPE == Q4_0) {
		constexpr int SIZE = TYPE == Q8_0 ? 34 : 18;
		const u8* b = w + (g.block * 8 + g.half * 4) * SIZE;
#pragma unroll
		for (int t = 0; t < 4; t++, b += SIZE) {
			const u8* q = b + 2 + (TYPE == Q8_0 ? g.part * 16 : 0);
			Word4 v = t % 2 ? even16(q) : odd16(q);
			if (TYPE == Q4_0) {
				for (int i = 0; i < 4; i++) v.w[i] = v.w[i] >> (g.part * 4) & 0x0f0f0f0fu;
			}
			float y = __uint_as_float(d4.w[t]) * (float)dot16(v.w, x.v[t]);
			if (TYPE == Q4_0) y -= 8 * __uint_as_float(s4.w[t]);
			sum += half_of(b) * y;
		}
	}
	if (TYPE == Q4_K || TYPE == Q5_K) {
		const u8* b = w + g.block * (TYPE == Q4_K ? 144 : 176);
		Word4 head = load16(b), high;
		u32 scale = head.w[1] & 0x3f3f3f3fu, least = head.w[2] & 0x3f3f3f3fu;
		if (g.half) {
			scale = (head.w[3] & 0x0f0f0f0fu) | (head.w[1] >> 2 & 0x30303030u);
			least = (head.w[3] >> 4 & 0x0f0f0f0fu) | (head.w[2] >> 2 & 0x30303030u);
		}
		if (TYPE == Q5_K) {
			high = load16(b + 16 + g.part * 16);
			for (int i = 0; i < 4; i++) high.w[i] >>= g.half * 4;
		}
		const u8* q = b + (TYPE == Q4_K ? 16 : 48) + g.half * 64 + g.part * 16;
		float plus = 0, minus = 0;
#pragma unroll
		for (int t = 0; t < 4; t++) {
			Word4 v = load16(q + t / 2 * 32);
			for (int i = 0; i < 4; i++) {
				v.w[i] = v.w[i] >> (t % 2 * 4) & 0x0f0f0f0fu;
				if (TYPE == Q5_K) v.w[i] |= (high.w[i] >> t & 0x01010101u) << 4;
			}
			float d = __uint_as_float(d4.w[t]);
			plus += d * (float)(dot16(v.w, x.v[t]) * (int)(scale >> 8 * t & 255));
			minus += __uint_as_float(s4.w[t]) * byte_of(least, t);
		}
		sum = from_half((u16)head.w[0]) * plus - from_half((u16)(head.w[0] >> 16)) * minus;
	}
	if (TYPE == Q6_K) {
		const u8 *b = w + g.block * 210, *q = b + g.half * 64 + g.part * 16;
		bool odd = g.block % 2;  // then b is 2 past a multiple of 4
		u32 pick = odd ? 0x5432 : 0x3210;
		Word4 low[2], high;
		auto read = [&](Word4& v, const u8* at) {
			const u32* p = (const u32*)(odd ? at - 2 : at);
			u32 next[5] = {p[0], p[1], p[2], p[3], p[4]};
			for (int i = 0; i < 4; i++) v.w[i] = __byte_perm(next[i], next[i + 1], pick);
		};
		read(low[0], q);
		read(low[1], q + 32);
		read(high, b + 128 + g.half * 32 + g.part * 16);
		const signed char* scale = (const signed char*)b + 192 + g.half * 8 + g.part;
#pragma unroll
		for (int t = 0; t < 4; t++) {
			u32 v[4];
			for (int i = 0; i < 4; i++) v[i] = (low[t % 2].w[i] >> (t / 2 * 4) & 0x0f0f0f0fu) | (high.w[i] >> (2 * t) & 0x03030303u) << 4;
			float y = __uint_as_float(d4.w[t]) * (float)dot16(v, x.v[t]) - 32 * __uint_as_float(s4.w[t]);
			sum += y * (float)scale[2 * t];
		}
		sum *= half_of(b + 208);
	}
	return sum;
}

// dot is that of a type without blocks.
template <int TYPE>
__device__ __forceinline__ float dot(const u8* w, const Taken<TYPE, false>& x) {
	constexpr int EACH = TYPE == F32 ? 4 : 8;  // weights in 16 bytes
	float sums[4] = {0, 0, 0, 0};
#pragma unroll
	for (int u = 0; u < Piece<TYPE>::BYTES / 16 / WARP; u++) {
		Word4 v = load16(w + (u * WARP + lane()) * 16);
#pragma unroll
		for (int j = 0; j < EACH; j++) {
			float weight;
			if (TYPE == F32) {
				weight = __uint_as_float(v.w[j]);
			} else {
				u16 bits = (u16)(v.w[j / 2] >> j % 2 * 16);
				weight = TYPE == F16 ? from_half(bits) : from_bfloat(bits);
			}
			sums[j % 4] += weight * x.v[u * EACH + j];
		}
	}
	return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// fold adds a over pairs of lanes, whose numbers differ in bit m, and b too: the lower of
// the two gets the sum of a, the other one that of b.
__device__ __forceinline__ float fold(float a, float b, int m) {
	bool upper = lane() & m;
	return (upper ? b : a) + __shfl_xor_sync(ALL, upper ? a : b, m);
}

// single is a product, or with HEADS those that heads are of.
template <int TYPE, bool HEADS>
__device__ __forceinline__ void single(const SingleArgs& a, const TurnArgs* heads) {
	typedef Piece<TYPE> C;
	constexpr int ROWS = 4;  // whose sums are added over the lanes together
	DYNAMIC(u8, x);
	SHARED(float, squares, SINGLE_THREADS / WARP);  // of x: a warp's part of their sum
	let_next();
	// The block takes items lo to hi-1: rows of the matrices one after the other, or
	// of GATE, rows of w[0] and then the same of w[1].
	int items = (int)a.n[0] + (a.mode == GATE ? 0 : (int)a.n[1] + (int)a.n[2]);
	constexpr int WHOLE = HEADS ? 2 : 1;  // items that a block has all of
	int lo = (int)((i64)(items / WHOLE) * blockIdx.x / gridDim.x) * WHOLE, hi = (int)((i64)(items / WHOLE) * (blockIdx.x + 1) / gridDim.x) * WHOLE;
	int chunks = ((int)a.k + C::WEIGHTS - 1) / C::WEIGHTS, slots = (int)a.slots, warps = blockDim.x / WARP;
	int rows = a.mode == GATE ? 2 * (hi - lo) : hi - lo;
	// Which row of which matrix row v of the block is.
	int end0 = a.mode == GATE ? hi - lo : (int)a.n[0] - lo, end1 = a.mode == GATE ? rows : (int)(a.n[0] + a.n[1]) - lo;
	auto matrix = [&](int v) { return v < end0 ? 0 : v < end1 ? 1 : 2; };
	auto row_of = [&](int v, int m) { return m == 0 || a.mode == GATE ? lo + v - m * (hi - lo) : m == 1 ? v - end0 : v - end1; };

	float *parts = (float*)(x + chunks * C::X), *turns = parts + rows * chunks;  // [rows, chunks]; with HEADS [rows]: cosine and sine of each pair
	u8* ring = x + chunks * C::X + (rows * (chunks + (HEADS ? 1 : 0)) * 4 + 15) / 16 * 16 + warp() * C::STAGES * C::BYTES;
	// The warp takes every groups-th row from first on, and of these chunk chunk. Where warps
	// are too few for all chunks, it takes one after the other.
	int first = warp() / slots, groups = warps / slots, chunk = warp() % slots;

	int load, border, size;  // row to bring, that where its matrix ends, bytes of the chunk
	const u8* from;
	u8* slot;  // of the ring, that is the next to be used
	auto bring = [&]() {
		if (load < rows) {
			if (load >= border) {
				int m = matrix(load);
				border = m == 0 ? end0 : m == 1 ? end1 : rows;
				from = a.w[m] + row_of(load, m) * a.row + chunk * C::BYTES + lane() * 16;
			}
			u8* to = slot + lane() * 16;
#pragma unroll
			for (int at = 0; at < C::BYTES; at += WARP * 16) {
				if (lane() * 16 < size - at) copy_async(to + at, from + at);
			}
			load += groups;
			from += groups * a.row;
		}
		copy_commit();
		slot = slot == ring + (C::STAGES - 1) * C::BYTES ? ring : slot + C::BYTES;
	};
	// begin fills the ring.
	auto begin = [&]() {
		size = smaller((int)a.row - chunk * C::BYTES, C::BYTES);
		load = first, border = 0, slot = ring;
		if (!C::QUANTIZED && size < C::BYTES) {
			for (int at = lane() * 16; at < C::STAGES * C::BYTES; at += WARP * 16) {
				if (at % C::BYTES >= size) *(Word4*)(ring + at) = {{0, 0, 0, 0}};
			}
		}
#pragma unroll 1
		for (int i = 0; i < C::STAGES; i++) bring();
	};
	if (!a.fixed) wait_before();
	begin();
	if (HEADS) {
		// The host writes positions, and so they are there before the kernels before are done.
		for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
			int m = matrix(v), pair = row_of(v, m) % (int)heads->g.dim / 2;
			if (heads->role[m] == 2 || pair >= heads->pairs) continue;
			double sine, cosine;
			sincos((double)heads->pos[0] * (double)heads->freqs[pair], &sine, &cosine);
			turns[v] = (float)(cosine * heads->scale);
			turns[v + 1] = (float)(sine * heads->scale);
		}
	}
	Taken<TYPE> mine;
	if constexpr (!C::QUANTIZED) take_norm<TYPE>(mine, a, chunk);
	if (a.fixed) wait_before();
	float square = 0;
	if constexpr (C::QUANTIZED) {
		square = prepare<TYPE>(a, x);
		__syncthreads();
	}
	while (chunk < chunks) {
		int there = (int)a.k - chunk * C::WEIGHTS;
		if constexpr (C::QUANTIZED) {
			mine = take<TYPE>(x, chunk);
		} else {
			take_plain<TYPE>(mine, square, a, chunk);
		}
		for (int v = first; v < rows; v += ROWS * groups) {
			float sums[ROWS];
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				copy_wait<C::STAGES - 1>();
				// Of a plain type a lane reads what it has brought itself. Rows that are not
				// there give sums that nobody reads.
				if constexpr (C::QUANTIZED) {
					__syncwarp();
					sums[r] = 0;
					if (v + r * groups < rows && share_of_lane(lane()).block * 256 < there) sums[r] = dot<TYPE>(slot, mine);
					__syncwarp();
				} else {
					sums[r] = dot<TYPE>(slot, mine);
				}
				bring();
			}
			float sum = fold(fold(sums[0], sums[1], 16), fold(sums[2], sums[3], 16), 8);
			for (int m = 4; m > 0; m /= 2) sum += __shfl_xor_sync(ALL, sum, m);
			int row = v + (lane() / 16 + lane() / 8 % 2 * 2) * groups;
			if (lane() % 8 == 0 && row < rows) parts[row * chunks + chunk] = sum;
		}
		chunk += slots;
		if (chunk >= chunks) break;
		begin();
		if constexpr (!C::QUANTIZED) take_norm<TYPE>(mine, a, chunk);
	}
	int givers = C::QUANTIZED ? warps : slots;  // warps that have parts of the squares
	if (a.norm) {
		square = reduce_warp(square, Plus());
		if (lane() == 0 && warp() < givers) squares[warp()] = square;
	}
	__syncthreads();
	float scale = 1;
	if (a.norm) {
		float sum = 0;
		for (int i = 0; i < givers; i++) sum += squares[i];
		scale = 1 / sqrtf(sum / (float)a.k + (float)a.eps);
	}
	auto total = [&](int v) {
		float sum = 0;
		for (int c = 0; c < chunks; c++) sum += parts[v * chunks + c];
		return sum * scale;
	};
	if (HEADS) {
		const Pages& g = heads->g;
		At at = place(g, 0);
		for (int v = threadIdx.x * 2; v < rows; v += blockDim.x * 2) {
			int m = matrix(v), row = row_of(v, m), role = (int)heads->role[m], d = row % (int)g.dim;
			float one = total(v), two = total(v + 1);
			if (role < 2 && d / 2 < heads->pairs) {
				float u = one, cosine = turns[v], sine = turns[v + 1];
				one = u * cosine - two * sine;
				two = u * sine + two * cosine;
			}
			a.dst[m][row] = one;
			a.dst[m][row + 1] = two;
			int page = role == 0 || at.p < 0 ? -1 : page_of(g, at.slot, at.p / PAGE);
			if (page < 0) continue;
			void* cache = role == 1 ? g.k : g.v;
			i64 to = element_of(g, page, row / (int)g.dim, at.p % PAGE) + d;
			if (g.half) {
				((u16*)cache)[to] = to_half(one);
				((u16*)cache)[to + 1] = to_half(two);
			} else {
				((float*)cache)[to] = one;
				((float*)cache)[to + 1] = two;
			}
		}
		return;
	}
	for (int v = threadIdx.x; v < hi - lo; v += blockDim.x) {
		float sum = total(v);
		if (a.mode == GATE) {
			a.dst[0][lo + v] = sum / (1 + expf(-sum)) * total(hi - lo + v);
			continue;
		}
		int m = matrix(v);
		float* to = a.dst[m] + row_of(v, m);
		*to = a.mode == ADD ? *to + sum : sum;
	}
}

KERNEL_TWICE(single_f32, SingleArgs, SINGLE_THREADS) { single<F32, false>(a, nullptr); }
KERNEL_TWICE(single_f16, SingleArgs, SINGLE_THREADS) { single<F16, false>(a, nullptr); }
KERNEL_TWICE(single_bf16, SingleArgs, SINGLE_THREADS) { single<BF16, false>(a, nullptr); }
KERNEL_TWICE(single_q4_0, SingleArgs, SINGLE_THREADS) { single<Q4_0, false>(a, nullptr); }
KERNEL_TWICE(single_q8_0, SingleArgs, SINGLE_THREADS) { single<Q8_0, false>(a, nullptr); }
KERNEL_TWICE(single_q4_k, SingleArgs, SINGLE_THREADS) { single<Q4_K, false>(a, nullptr); }
KERNEL_TWICE(single_q5_k, SingleArgs, SINGLE_THREADS) { single<Q5_K, false>(a, nullptr); }
KERNEL_TWICE(single_q6_k, SingleArgs, SINGLE_THREADS) { single<Q6_K, false>(a, nullptr); }

KERNEL_TWICE(single_f32_heads, TurnArgs, SINGLE_THREADS) { single<F32, true>(a.s, &a); }
KERNEL_TWICE(single_f16_heads, TurnArgs, SINGLE_THREADS) { single<F16, true>(a.s, &a); }
KERNEL_TWICE(single_bf16_heads, TurnArgs, SINGLE_THREADS) { single<BF16, true>(a.s, &a); }
KERNEL_TWICE(single_q4_0_heads, TurnArgs, SINGLE_THREADS) { single<Q4_0, true>(a.s, &a); }
KERNEL_TWICE(single_q8_0_heads, TurnArgs, SINGLE_THREADS) { single<Q8_0, true>(a.s, &a); }
KERNEL_TWICE(single_q4_k_heads, TurnArgs, SINGLE_THREADS) { single<Q4_K, true>(a.s, &a); }
KERNEL_TWICE(single_q5_k_heads, TurnArgs, SINGLE_THREADS) { single<Q5_K, true>(a.s, &a); }
KERNEL_TWICE(single_q6_k_heads, TurnArgs, SINGLE_THREADS) { single<Q6_K, true>(a.s, &a); }
