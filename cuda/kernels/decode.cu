// Attention of a decode step, one row of each slot, over a cache in half precision:
// bound by reading the keys and values that the plan asks for once. Checked against
// attend.cu, with the bound of f32.
//
// A block takes the query heads that share a kv head, up to 8, and a share of what
// they read, cut into 16 positions at a time: quarters of pages, then entries of a
// list of positions. Each warp has a ring of them in shared memory. Products are on
// tensor cores: row i of a 16 x 16 matrix is head i rounded to half precision and row
// i+8 is what that left, so that the two together are good to 22 bits; the weights
// of values likewise. The last block of a group of heads to finish merges the shares
// in their order. Heads that share no keys leave tensor cores idle, and of many lists
// each reads little: decode_each gives each a block of which four fit.
#include "few.cuh"
#include "state.cuh"

struct DecodeArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	float* parts;    // [rows, heads, splits, dim]
	State* states;   // [rows, heads, splits]
	i32* finished;   // [rows, heads / group]: shares that are done; 0 between launches
	i64 heads, splits, group;
	Pages g;  // f16
	Plan plan;
};

constexpr int TAKE = 16;   // positions that a warp takes at a time
constexpr int DECODE_WARPS = 8;
constexpr int DECODE_STAGES = 3;
constexpr int QUARTERS = PAGE / TAKE;

// Tile is 16 positions.
template <int DIM>
struct Tile {
	u16 k[TAKE * (DIM + 8)], v[TAKE * (DIM + 8)];
	float bias[TAKE];  // log2 of the weight; of a mixture the weight; -infinity or 0 for none
};

// Reads is what a row and head read, as a sequence of tiles.
struct Reads {
	Plan plan;
	Entries e;
	At at;
	int head, tail;    // pages before and from which on all are looked at
	int listed, pages;  // pages of the list, and all
	int tiles;

	__device__ __forceinline__ int cut() const { return pages * QUARTERS; }  // tiles of pages
};

// reads_of is what the row at a place and a head read.
__device__ __forceinline__ Reads reads_of(const DecodeArgs& a, At at, int head) {
	Reads r;
	r.plan = a.plan;
	r.at = at;
	r.e = entries(a.plan.list, a.g, at, head, (int)a.heads);
	if (whole(a.plan, r.e, at.p)) r.plan.middle = MIDDLE_ALL;
	Edges edges = edge_pages(r.plan, at.p);
	int all = at.p / PAGE + 1;
	r.head = smaller(edges.head, all);
	r.tail = smaller(larger(edges.tail, r.head), all);
	r.listed = r.plan.middle == MIDDLE_BLOCKS ? r.e.n : 0;
	r.pages = r.head + r.listed + all - r.tail;
	r.tiles = r.cut() + (r.plan.middle == MIDDLE_TOKENS ? (r.e.n + TAKE - 1) / TAKE : 0);
	return r;
}

// Raw is what a lane knows of its position of a tile before the list has arrived.
struct Raw {
	int at;  // a block, or a position of a list; -1 for none
	float weight;
};

__device__ __forceinline__ Raw raw_of(const Reads& r, int tile) {
	Raw raw = {-1, 1};
	if (tile >= r.tiles) return raw;
	if (tile >= r.cut()) {
		int i = (tile - r.cut()) * TAKE + lane() % TAKE;
		if (i >= r.e.n) return raw;
		raw.at = r.e.index[i];
		if (r.e.weight) raw.weight = r.e.weight[i];
		return raw;
	}
	int page = tile / QUARTERS;
	if (page >= r.head && page < r.head + r.listed) {
		int i = page - r.head;
		raw.at = r.e.index[i];
		if (r.e.weight) raw.weight = r.e.weight[i];
		return raw;
	}
	raw.at = page < r.head ? page : page - r.head - r.listed + r.tail;
	raw.weight = r.plan.middle == MIDDLE_BLOCKS ? weight_of(r.e, raw.at) : 0;
	return raw;
}

// Spot is where a lane's position lies.
struct Spot {
	int page, in;  // the page's number, before it is checked, and the position there; page -1 for none
	float weight;
};

__device__ __forceinline__ Spot spot_of(const Reads& r, const Pages& g, int tile, Raw raw) {
	Spot s = {-1, 0, 1};
	int j = raw.at;
	if (j < 0) return s;
	if (tile >= r.cut()) {
		if (!sees(r.plan.span, r.at.p, j) || edge(r.plan, r.at.p, j)) return s;
		s.weight = raw.weight;
	} else {
		int page = tile / QUARTERS;
		bool listed = page >= r.head && page < r.head + r.listed;
		if (listed && (j < r.head || j >= r.tail)) return s;  // among the others
		j = j * PAGE + tile % QUARTERS * TAKE + lane() % TAKE;
		if (!sees(r.plan.span, r.at.p, j)) return s;
		if (!edge(r.plan, r.at.p, j)) {
			if (raw.weight == 0) return s;
			s.weight = raw.weight;
		}
	}
	s.in = j % PAGE;
	s.page = g.table[(i64)r.at.slot * g.width + j / PAGE];
	if (s.page < 0) s.page = (int)g.count;  // which is no page either
	return s;
}

// bring begins to copy a tile.
template <int DIM>
__device__ __forceinline__ void bring(Tile<DIM>& t, const Pages& g, const Reads& r, int kv_head, Spot s) {
	constexpr int PIECES = DIM / 8, ROWS = WARP / PIECES;  // of 16 bytes of a row; rows of a turn
	bool there = s.page >= 0;
	if (there && s.page >= g.count) {
		fail(g.failure, FAIL_PAGE, r.at.slot, s.page, g.count);
		there = false;
	}
	i64 place = there ? element_of(g, s.page, kv_head, s.in) : -1;
	if (lane() < TAKE) {
		bool mixture = r.plan.mixture;
		if (!there)
			t.bias[lane()] = mixture ? 0 : -infinity();
		else
			t.bias[lane()] = mixture ? s.weight : s.weight == 1 ? 0 : s.weight > 0 ? log2f(s.weight) : -infinity();
	}
#pragma unroll
	for (int i = 0; i < TAKE / ROWS; i++) {
		int row = i * ROWS + lane() / PIECES, piece = lane() % PIECES * 8;
		i64 from = __shfl_sync(ALL, place, row);
		bool in = from >= 0;
		if (!in) from = 0;
		if (!r.plan.mixture) copy_async_if(t.k + row * (DIM + 8) + piece, (const u16*)g.k + from + piece, in);
		copy_async_if(t.v + row * (DIM + 8) + piece, (const u16*)g.v + from + piece, in);
	}
}

// Heads is what a lane has of head lane/4 of its warp's.
template <int DIM>
struct Heads {
	u32 q[DIM / 16][4];
	float unit;  // what a product of q and a key is multiplied by
	float acc[DIM / 8][4];
	State s;  // sum is the lane's own part
};

// ask puts a head into the lanes of its row, times a power of two that keeps both
// halves of it within half precision.
template <int DIM>
__device__ __forceinline__ void ask(Heads<DIM>& h, const float* q, bool there) {
	float v[DIM / 16][4], top = 0;
#pragma unroll
	for (int k = 0; k < DIM / 16; k++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			v[k][i] = there ? q[k * 16 + lane() % 4 * 2 + i % 2 + i / 2 * 8] : 0;
			top = larger(top, fabsf(v[k][i]));
		}
	}
	top = larger(top, __shfl_xor_sync(ALL, top, 1));
	top = larger(top, __shfl_xor_sync(ALL, top, 2));
	int power = smaller(larger((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased: top becomes 2¹⁰ or more
	float up = __uint_as_float((u32)(254 - power) << 23), down = __uint_as_float((u32)power << 23);
	h.unit = down * (1.4426950408889634f / sqrtf((float)DIM));
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

// add_tile adds the positions of a tile.
template <int DIM>
__device__ __forceinline__ void add_tile(Heads<DIM>& h, const Tile<DIM>& t, bool mixture) {
	float p[2][2];
	const float* bias = t.bias + lane() % 4 * 2;
	if (mixture) {
		for (int n = 0; n < 2; n++) {
			for (int i = 0; i < 2; i++) p[n][i] = bias[n * 8 + i];
		}
	} else {
		float s[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
#pragma unroll
		for (int k = 0; k < DIM / 16; k++) {
			u32 b[4];
			load_matrices(b, t.k + (lane() % 8 + lane() / 16 * 8) * (DIM + 8) + k * 16 + lane() / 8 % 2 * 8);
			multiply_add(s[0], h.q[k], b);
			multiply_add(s[1], h.q[k], b + 2);
		}
		float top = h.s.top;
#pragma unroll
		for (int n = 0; n < 2; n++) {
#pragma unroll
			for (int i = 0; i < 2; i++) {
				p[n][i] = bias[n * 8 + i] == -infinity() ? -infinity() : (s[n][i] + s[n][i + 2]) * h.unit + bias[n * 8 + i];
				top = larger(top, p[n][i]);
			}
		}
		top = larger(top, __shfl_xor_sync(ALL, top, 1));
		top = larger(top, __shfl_xor_sync(ALL, top, 2));
		float scale = scale_to(h.s.top, top);
		if (__any_sync(ALL, scale != 1)) {
			h.s.sum *= scale;
#pragma unroll
			for (int d = 0; d < DIM / 8; d++) {
#pragma unroll
				for (int i = 0; i < 4; i++) h.acc[d][i] *= scale;
			}
		}
		h.s.top = top;
#pragma unroll
		for (int n = 0; n < 2; n++) {
#pragma unroll
			for (int i = 0; i < 2; i++) p[n][i] = exp2f(p[n][i] - top);
		}
	}
	u32 w[4];
#pragma unroll
	for (int n = 0; n < 2; n++) {
		h.s.sum += p[n][0] + p[n][1];
		w[2 * n] = pack_half(p[n][0], p[n][1]);
		w[2 * n + 1] = pack_half(p[n][0] - from_half((u16)w[2 * n]), p[n][1] - from_half((u16)(w[2 * n] >> 16)));
	}
#pragma unroll
	for (int d = 0; d < DIM / 16; d++) {
		u32 b[4];
		load_transposed(b, t.v + lane() % 16 * (DIM + 8) + d * 16 + lane() / 16 * 8);
		multiply_add(h.acc[2 * d], w, b);
		multiply_add(h.acc[2 * d + 1], w, b + 2);
	}
}

// merge adds up the shares of a group's heads in their order. A thread asks for its
// part of the first of them before it knows what to multiply them by.
template <int DIM>
__device__ __forceinline__ void merge(const DecodeArgs& a, i64 index, int shares, float* scales) {
	constexpr int AHEAD = 16;
	int group = (int)a.group, splits = (int)a.splits;
	const State* states = a.states + index * splits;
	const float* parts = a.parts + index * splits * DIM;
	float2 v[AHEAD];
	int own = (int)threadIdx.x * 2;
	const float* mine = parts + (i64)(own / DIM) * splits * DIM + own % DIM;
#pragma unroll
	for (int s = 0; s < AHEAD; s++) {
		v[s] = {0, 0};
		if (s < shares && own < group * DIM) v[s] = *(const float2*)(mine + s * DIM);
	}
	for (int h = warp(); h < group; h += (int)blockDim.x / WARP) {
		float top = NOTHING, sum = 0;
		for (int s = lane(); s < shares; s += WARP) top = larger(top, states[h * splits + s].top);
		top = reduce_warp(top, Top());
		for (int s = lane(); s < shares; s += WARP) {
			float scale = scale_to(states[h * splits + s].top, top);
			scales[h * shares + s] = scale;
			sum += states[h * splits + s].sum * scale;
		}
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) scales[group * shares + h] = finish(sum, a.plan.mixture);
	}
	__syncthreads();
	for (int i = own; i < group * DIM; i += (int)blockDim.x * 2) {
		int h = i / DIM;
		const float* more = parts + (i64)h * splits * DIM + i % DIM;
		float x = 0, y = 0;
#pragma unroll
		for (int s = 0; s < AHEAD; s++) {
			if (s >= shares) break;
			float2 part = i == own ? v[s] : *(const float2*)(more + s * DIM);
			x += part.x * scales[h * shares + s];
			y += part.y * scales[h * shares + s];
		}
#pragma unroll 8
		for (int s = AHEAD; s < shares; s++) {
			float2 part = *(const float2*)(more + s * DIM);
			x += part.x * scales[h * shares + s];
			y += part.y * scales[h * shares + s];
		}
		a.dst[index * DIM + i] = x * scales[group * shares + h];
		a.dst[index * DIM + i + 1] = y * scales[group * shares + h];
	}
}

// decode: block (r, y, s) adds up share s of what row r reads for heads
// y·group to y·group + group-1.
template <int DIM, int STAGES, bool WHOLE>
__device__ __forceinline__ void decode(const DecodeArgs& a) {
	DYNAMIC(Tile<DIM>, ring);
	SHARED(int, last, 1);
	// What the host writes, lengths and pages, is there already; lists are not. The kernels
	// after one that reads lists may rely on those before it being done.
	bool lists = a.plan.middle == MIDDLE_BLOCKS || a.plan.middle == MIDDLE_TOKENS;
	if (!lists) let_next();
	int row = blockIdx.x, group = (int)a.group, split = blockIdx.z, warps = blockDim.x / WARP;
	At at = place(a.g, row);
	if (at.p < 0) {
		wait_before();
		return;
	}
	int first = blockIdx.y * group, kv_head = first * (int)a.g.heads / (int)a.heads;
	i64 index = (i64)row * a.heads + first;

	if (lists) {
		// The list names pages that will be looked up.
		for (int b = threadIdx.x * WARP; b <= at.p / PAGE; b += blockDim.x * WARP) prefetch(a.g.table + (i64)at.slot * a.g.width + b);
		wait_before();
		let_next();
	}
	Reads r = reads_of(a, at, first);
	if (WHOLE && r.plan.middle != MIDDLE_ALL) return;
	int each = larger((r.tiles + (int)a.splits - 1) / (int)a.splits, DECODE_WARPS);
	int shares = larger((r.tiles + each - 1) / each, 1);
	if (split >= shares) return;  // share 0 waits for the kernels before
	int end = smaller((split + 1) * each, r.tiles), tile = split * each + warp();

	// A tile is copied two turns before it is added; its page is looked up a turn
	// earlier, and the list that names the page one more.
	Tile<DIM>* mine = ring + warp() * STAGES;
	auto raw = [&](int t) { return t < end ? raw_of(r, t) : Raw{-1, 1}; };
	int next = tile;
	Raw ahead = raw(next);
	Spot spot = spot_of(r, a.g, next, ahead);
	ahead = raw(next + warps);
	if (!lists) wait_before();
	int slot = 0;
	auto fetch = [&]() {
		if (next < end) bring<DIM>(mine[slot], a.g, r, kv_head, spot);
		copy_commit();
		next += warps;
		spot = spot_of(r, a.g, next, ahead);
		ahead = raw(next + warps);
		if (++slot == STAGES) slot = 0;
	};
	for (int i = 1; i < STAGES; i++) fetch();
	Heads<DIM> h;
	bool there = lane() / 4 < group;
	ask(h, a.q + (index + (there ? lane() / 4 : 0)) * DIM, there);
	h.s = {NOTHING, 0};
#pragma unroll
	for (int d = 0; d < DIM / 8; d++) h.acc[d][0] = h.acc[d][1] = h.acc[d][2] = h.acc[d][3] = 0;
	for (int turn = 0; tile < end; tile += warps) {
		__syncwarp();  // all have read what the next tile overwrites
		fetch();
		copy_wait<STAGES - 1>();
		__syncwarp();
		add_tile(h, mine[turn], r.plan.mixture);
		if (++turn == STAGES) turn = 0;
	}
	copy_wait<0>();
	__syncthreads();

	// The warps of the block, in their order.
	float* accs = (float*)ring;                             // [warps, 8, DIM]
	float *tops = accs + warps * 8 * DIM, *sums = tops + warps * 8;  // [warps, 8]
	float sum = h.s.sum;
	sum += __shfl_xor_sync(ALL, sum, 1);
	sum += __shfl_xor_sync(ALL, sum, 2);
	int head = warp() * 8 + lane() / 4;
	if (lane() % 4 == 0) {
		tops[head] = h.s.top;
		sums[head] = sum;
	}
#pragma unroll
	for (int d = 0; d < DIM / 8; d++) {
		float* to = accs + head * DIM + d * 8 + lane() % 4 * 2;
		to[0] = h.acc[d][0] + h.acc[d][2];
		to[1] = h.acc[d][1] + h.acc[d][3];
	}
	__syncthreads();
	for (int i = threadIdx.x; i < group * DIM; i += blockDim.x) {
		int g = i / DIM, d = i % DIM;
		float top = NOTHING, total = 0, y = 0;
		for (int w = 0; w < warps; w++) top = larger(top, tops[w * 8 + g]);
		for (int w = 0; w < warps; w++) {
			float scale = scale_to(tops[w * 8 + g], top);
			total += sums[w * 8 + g] * scale;
			y += accs[(w * 8 + g) * DIM + d] * scale;
		}
		if (shares == 1) {
			a.dst[index * DIM + i] = y * finish(total, a.plan.mixture);
			continue;
		}
		i64 part = (index + g) * a.splits + split;
		a.parts[part * DIM + d] = y;
		if (d == 0) a.states[part] = {top, total};
	}
	if (shares == 1) return;
	__syncthreads();
	if (threadIdx.x == 0) {
		// One fence passes on what the block has written, and one lets it see what others have.
		i32* finished = a.finished + (i64)row * gridDim.y + blockIdx.y;
		__threadfence();
		last[0] = atomicAdd(finished, 1) == shares - 1;
		__threadfence();
		if (last[0]) *finished = 0;
	}
	__syncthreads();
	if (!last[0]) return;
	merge<DIM>(a, index, shares, accs);
}

KERNEL(decode_64, DecodeArgs, DECODE_WARPS * WARP) { decode<64, DECODE_STAGES, false>(a); }
KERNEL(decode_128, DecodeArgs, DECODE_WARPS * WARP) { decode<128, DECODE_STAGES, false>(a); }

// decode_whole_ is decode of the lists that leave nothing out, in the same bits; two of
// its blocks fit on a multiprocessor, which mostly have nothing to do.
KERNEL_TWICE(decode_whole_64, DecodeArgs, DECODE_WARPS * WARP) { decode<64, 1, true>(a); }
KERNEL_TWICE(decode_whole_128, DecodeArgs, DECODE_WARPS * WARP) { decode<128, 1, true>(a); }

// decode_each: block (r, h) is decode of a list of positions of a head that shares its keys
// with no other, where such blocks fill the GPU; decode_whole has the lists that leave
// nothing out. PIECES lanes take a position, each 8 numbers of its key and of its value;
// a warp loads TURNS times before it computes.
template <int DIM>
__device__ __forceinline__ void decode_each(const DecodeArgs& a) {
	constexpr int PIECES = DIM / 8, ROWS = WARP / PIECES, TURNS = 2, STATES = DECODE_WARPS * ROWS;
	SHARED(float, accs, STATES * DIM);
	SHARED(State, states, STATES);
	let_next();
	int row = blockIdx.x, h = blockIdx.y, kv_head = h * (int)a.g.heads / (int)a.heads, piece = lane() % PIECES * 8;
	At at = place(a.g, row);  // lengths are there already
	wait_before();
	if (at.p < 0) return;
	Reads r = reads_of(a, at, h);
	if (r.plan.middle == MIDDLE_ALL) return;
	auto raw = [&](int t) { return t < r.tiles ? raw_of(r, t) : Raw{-1, 1}; };
	int tile = warp();
	Raw ahead = raw(tile);
	Spot spot = spot_of(r, a.g, tile, ahead);
	ahead = raw(tile + DECODE_WARPS);
	const float* q = a.q + ((i64)row * a.heads + h) * DIM + piece;
	float mine[8], acc[8], unit = 1.4426950408889634f / sqrtf((float)DIM);
#pragma unroll
	for (int d = 0; d < 8; d++) {
		mine[d] = q[d] * unit;
		acc[d] = 0;
	}
	State state = {NOTHING, 0};
	bool mixture = a.plan.mixture;
	for (; tile < r.tiles; tile += DECODE_WARPS) {
		int where = -1;  // in positions of the cache
		if (spot.page >= a.g.count)
			fail(a.g.failure, FAIL_PAGE, at.slot, spot.page, a.g.count);
		else if (spot.page >= 0)
			where = (spot.page * (int)a.g.heads + kv_head) * PAGE + spot.in;
		float bias = mixture ? 0 : -infinity();
		if (where >= 0) bias = mixture ? spot.weight : spot.weight == 1 ? 0 : spot.weight > 0 ? log2f(spot.weight) : -infinity();
		spot = spot_of(r, a.g, tile + DECODE_WARPS, ahead);
		ahead = raw(tile + 2 * DECODE_WARPS);
		if (!__any_sync(ALL, where >= 0)) continue;
#pragma unroll
		for (int first = 0; first < TAKE; first += ROWS * TURNS) {
			Word4 k[TURNS], v[TURNS];
			float s[TURNS];
#pragma unroll
			for (int t = 0; t < TURNS; t++) {
				int from = __shfl_sync(ALL, where, first + t * ROWS + lane() / PIECES);
				k[t] = v[t] = Word4{{0, 0, 0, 0}};
				if (from >= 0 && !mixture) k[t] = load16((const u16*)a.g.k + (i64)from * DIM + piece);
				if (from >= 0) v[t] = load16((const u16*)a.g.v + (i64)from * DIM + piece);
			}
			float top = state.top;
#pragma unroll
			for (int t = 0; t < TURNS; t++) {
				float b = __shfl_sync(ALL, bias, first + t * ROWS + lane() / PIECES), sum = 0;
#pragma unroll
				for (int w = 0; w < 4; w++) sum += mine[2 * w] * from_half((u16)k[t].w[w]) + mine[2 * w + 1] * from_half((u16)(k[t].w[w] >> 16));
#pragma unroll
				for (int m = PIECES / 2; m > 0; m /= 2) sum += __shfl_xor_sync(ALL, sum, m);
				s[t] = b == -infinity() || mixture ? b : sum + b;
				top = larger(top, s[t]);
			}
			if (!mixture) {
				float scale = scale_to(state.top, top);
				state.top = top;
				state.sum *= scale;
#pragma unroll
				for (int d = 0; d < 8; d++) acc[d] *= scale;
			}
#pragma unroll
			for (int t = 0; t < TURNS; t++) {
				float p = mixture ? s[t] : exp2f(s[t] - top);
				state.sum += p;
#pragma unroll
				for (int w = 0; w < 4; w++) {
					acc[2 * w] += p * from_half((u16)v[t].w[w]);
					acc[2 * w + 1] += p * from_half((u16)(v[t].w[w] >> 16));
				}
			}
		}
	}
	int group = warp() * ROWS + lane() / PIECES;
#pragma unroll
	for (int d = 0; d < 8; d++) accs[group * DIM + piece + d] = acc[d];
	if (piece == 0) states[group] = state;
	__syncthreads();
	if (threadIdx.x >= DIM) return;
	float top = NOTHING, total = 0, y = 0;
	for (int i = 0; i < STATES; i++) top = larger(top, states[i].top);
	for (int i = 0; i < STATES; i++) {
		float scale = scale_to(states[i].top, top);
		total += states[i].sum * scale;
		y += accs[i * DIM + threadIdx.x] * scale;
	}
	a.dst[((i64)row * a.heads + h) * DIM + threadIdx.x] = y * finish(total, mixture);
}

KERNEL_FOUR(decode_each_64, DecodeArgs, DECODE_WARPS * WARP) { decode_each<64>(a); }
KERNEL_FOUR(decode_each_128, DecodeArgs, DECODE_WARPS * WARP) { decode_each<128>(a); }
