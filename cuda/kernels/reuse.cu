// What a later step reads of what an earlier one chose. Definitions: package cpu,
// reuse.go, choose.go and widen.go; package device, reuse.go, says what a memo is.
//
// All of it is one launch. Blocks of a set look for an entry; without one, each
// scores a part of the keys, and the last of them to finish chooses. Where a set has
// one block, which is where sets fill the GPU, scores never leave its own memory.
#include "best.cuh"
#include "gathered.cuh"
#include "scores.cuh"
#include "state.cuh"

constexpr int REUSE_THREADS = 256;

struct Memo {
	float* query;        // [slots, heads·block, dim]
	i32* entry;          // [slots, sets·block, 3]
	i32* index;          // [slots, sets·block, most]
	const i32* since;    // [slots]
	i32* found;          // [slots, sets]
	u32* tally;          // [slots, sets, 4]
	i64 heads, sets, block, most, relative, chain;
	f64 above;
	i64 k;
	f64 share;
};

// k_of is Memo.K of n positions.
__device__ inline i64 k_of(const Memo& m, i64 n) { return m.share > 0 ? (i64)floor(m.share * (double)n + 1e-9) : m.k; }

// origin is Memo.Origin: where the block of position p starts, and the number of
// p in it.
__device__ inline int origin(const Memo& m, int slot, int p, int& number) {
	int from = m.relative ? min_of(m.since[slot], p) : 0;
	number = (p - from) % (int)m.block;
	return p - number;
}

// record is entry e of a set: position plus one, source, count.
__device__ inline i32* record(const Memo& m, int slot, int set, int e) { return m.entry + ((slot * m.sets + set) * m.block + e) * 3; }

// chosen is where entry e of a set has what it chose, best first.
__device__ inline i32* chosen(const Memo& m, int slot, int set, int e) { return m.index + ((slot * m.sets + set) * m.block + e) * m.most; }

// cosine of two vectors, by a warp; less than any for one of length zero.
__device__ inline double cosine(const float* a, const float* b, int dim) {
	double ab = 0, aa = 0, bb = 0;
	for (int i = lane(); i < dim; i += WARP) {
		double x = a[i], y = b[i];
		ab += x * y;
		aa += x * x;
		bb += y * y;
	}
	for (int m = WARP / 2; m > 0; m /= 2) {
		ab += __shfl_xor_sync(FULL_MASK, ab, m);
		aa += __shfl_xor_sync(FULL_MASK, aa, m);
		bb += __shfl_xor_sync(FULL_MASK, bb, m);
	}
	return aa == 0 || bb == 0 ? -(double)infinity() : min_of(ab / sqrt(aa * bb), 1.0);
}

// Scope is positions lo to hi-1 but for those of a gap.
struct Scope {
	int lo, hi, gap, over;

	__device__ __forceinline__ bool has(int j) const { return j >= lo && j < hi && within(j); }

	// within is has of positions lo to hi-1.
	__device__ __forceinline__ bool within(int j) const { return j < gap || j >= over; }

	__device__ inline int count() const {
		int hole = min_of(over, hi) - max_of(gap, lo);
		return max_of(hi - lo, 0) - (hi > lo ? max_of(hole, 0) : 0);
	}
};

// seen is what a span lets the row at p see.
__device__ inline Scope seen(const Span& s, int p) {
	Scope v = {s.back ? max_of(p + 1 - (int)s.back, 0) : 0, p + 1, (int)s.sink, bound_of(s, p)};
	return v;
}

// middle_of is what of it lies between the plan's sinks and its recent window.
__device__ inline Scope middle_of(const Plan& plan, int p) {
	Scope v = seen(plan.span, p);
	v.lo = max_of(v.lo, (int)plan.sink);
	v.hi = min_of(v.hi, recent_of(plan, p));
	return v;
}

// bits_of has a bit for each position of lo to hi-1 in word w.
__device__ inline u64 bits_of(int w, int lo, int hi) {
	int from = min_of(max_of(lo - w * PAGE, 0), PAGE), to = min_of(max_of(hi - w * PAGE, 0), PAGE);
	if (from >= to) return 0;
	return (to == PAGE ? ~0ull : (1ull << to) - 1) & ~((1ull << from) - 1);
}

struct ReuseArgs {
	i32 *index, *count;      // [slots, sets, cap], [slots, sets]
	i64 cap;
	Memo m;
	float* scores;           // [slots, heads, width]
	const float *asked, *q;  // [slots, heads, dim]
	u64* ranks;              // [slots, sets, places], where shared memory has no room for them; else NULL
	i32* finished;           // [slots, sets]: blocks that are done; 0 between launches
	i64 width, places, room;  // places: most + CROWD or more, a power of two; room: scores in shared memory
	i64 ring;  // pieces of 16 bytes of shared memory for keys
	i64 best;
	f64 best_share;
	i64 near, slid;
	PagedKV g;
	Plan plan;
};

// Reuse is what a block works with.
struct Reuse {
	int set, slot, p, start, number;
	int run;      // heads of the set
	i64 item;     // slot·sets + set
	u64* marks;   // [p/PAGE+1]: the positions that are read
	u32* bins;    // [BINS], and ranks: in the place of the ring of keys
	u64* ranks;   // [places]
	float* local; // [room]
	float* asked; // [run, dim]
	i32* records; // [number, 3]: of the block's entries so far
	int since;
};

// remember brings what recall looks through, and notes the queries of the row.
__device__ inline void remember(const ReuseArgs& a, const Reuse& r, bool first) {
	int dim = (int)a.g.dim;
	i64 head = r.slot * a.m.heads + r.set * r.run;
	const i32* records = record(a.m, r.slot, r.set, 0);
	for (int i = threadIdx.x; i < 3 * r.number; i += blockDim.x) r.records[i] = records[i];
	for (int i = threadIdx.x; i < r.run * dim; i += blockDim.x) {
		float x = a.asked[head * dim + i];
		r.asked[i] = x;
		if (first) a.m.query[((head + i / dim) * a.m.block + r.number) * dim + i % dim] = x;
	}
	__syncthreads();
	// The newest choice is the likeliest to be used.
	if (warp() == (int)blockDim.x / WARP - 1) {
		int at = lane() < r.number ? r.records[3 * lane()] - 1 : -1, n = lane() < r.number ? r.records[3 * lane() + 2] : 0;
		unsigned used = __ballot_sync(FULL_MASK, n > 0 && at == r.start + lane());
		if (!used) return;
		int newest = 31 - __clz((int)used);
		n = min_of(__shfl_sync(FULL_MASK, n, newest), (int)a.m.most);
		for (int i = lane() * 32; i < n; i += WARP * 32) prefetch_l2(chosen(a.m, r.slot, r.set, newest) + i);
	}
}

// recall finds the entry that a set uses, -1 for none. A warp takes an entry at a time.
__device__ inline int recall(const ReuseArgs& a, const Reuse& r) {
	int dim = (int)a.g.dim, best = -1;
	const float* noted = a.m.query + (r.slot * a.m.heads + r.set * r.run) * a.m.block * dim;  // [run, block, dim]
	for (int e = r.number - 1 - warp(); e >= 0 && best < 0; e -= (int)blockDim.x / WARP) {
		int at = r.records[3 * e] - 1;
		if (at != r.start + e || at < r.since) continue;
		double alike = (double)infinity();
		for (int h = 0; h < r.run; h++) alike = min_of(alike, cosine(r.asked + h * dim, noted + (h * a.m.block + e) * dim, dim));
		if (alike > a.m.above) best = e;
	}
	best = reduce_block(best, -1, Max());
	return best < 0 ? -1 : r.records[3 * best + 1];
}

constexpr int ASKED_WORDS = 2 * 4 * WARP;  // of 16 bytes: 16 keys, for a warp

// score_together gives put(u, i, product of query u and key i) for keys that some(i)
// asks for, with q [heads, DIM] of up to TOGETHER heads. A warp takes 16 keys, which follow
// each other in memory, and asks for the next ones at once when it has taken those. Tensor
// cores ask four neighbouring lanes for numbers of a key, and it does not matter which, as
// long as they have the same ones of the queries. Column 2·u of those is query u rounded to
// half precision, times a power of two that keeps it there, and column 2·u+1 what that
// left: good to 22 bits. ring is the block's, [ASKED_WORDS] for each warp.
template <int DIM, class Some, class Put>
__device__ inline void score_together(const PagedKV& g, Keys keys, const float* q, int heads, Word4* ring, Some some, Put put) {
	constexpr int PIECES = DIM / 32, ROWS = 16;  // pieces of 16 bytes of a key that a lane has
	int column = lane() / 4, piece = lane() % 4 * 8, by = (int)blockDim.x / WARP * ROWS;
	Word4* mine = ring + warp() * ASKED_WORDS;
	// Where the lane copies to; and where it reads: halves of odd rows are exchanged, so that
	// neighbouring rows lie in other banks.
	int to = lane() ^ lane() / (DIM / 8) % 2 * 4, own_row = column * (DIM / 8), odd = column % 2 * 4;
	auto wanted = [&](int from) { return from < keys.n && (some(from + column) || some(from + column + 8)); };
	auto number_of = [&](int from) { return from < keys.n ? g.table[(i64)keys.slot * g.width + (keys.lo + from) / PAGE] : 0; };
	auto bring = [&](int from, int page) {
		if (__any_sync(FULL_MASK, wanted(from))) {
			const u16* at = (const u16*)g.k + kv_offset(g, page, keys.kv_head, (keys.lo + from) % PAGE) + lane() * 8;
#pragma unroll
			for (int j = 0; j < 2 * PIECES; j++) cp_async(mine + j * WARP + to, at + j * WARP * 8);
		}
		cp_async_commit();
	};
	int from = warp() * ROWS, page = number_of(from), next = number_of(from + by);
	bring(from, page);
	// Read twice, so that they do not stay in registers meanwhile.
	const float* own = q + min_of(column / 2, heads - 1) * DIM + piece;
	float top = 0;
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
#pragma unroll
		for (int i = 0; i < 8; i++) top = max_of(top, fabsf(own[j * 32 + i]));
	}
	if (column / 2 >= heads) top = 0;
	top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 1));
	top = max_of(top, __shfl_xor_sync(FULL_MASK, top, 2));
	int power = min_of(max_of((int)(__float_as_uint(top) >> 23), 24), 240) - 10;  // biased: top becomes 2¹⁰ or more
	float up = column / 2 < heads ? __uint_as_float((u32)(254 - power) << 23) : 0, down = __uint_as_float((u32)power << 23);
	u32 asked[PIECES][4];
#pragma unroll
	for (int j = 0; j < PIECES; j++) {
#pragma unroll
		for (int i = 0; i < 4; i++) {
			float x = own[j * 32 + 2 * i] * up, y = own[j * 32 + 2 * i + 1] * up;
			u32 both = pack_half(x, y);
			asked[j][i] = column % 2 == 0 ? both : pack_half(x - from_half((u16)both), y - from_half((u16)(both >> 16)));
		}
	}
	int head = lane() % 4;  // of the products that the lane gets
	float unit = __shfl_sync(FULL_MASK, down, head * 8);
	for (; from < keys.n; from += by) {
		page = next;
		next = number_of(from + 2 * by);
		float c[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
		cp_async_wait<0>();
		__syncwarp();
#pragma unroll
		for (int j = 0; j < PIECES; j++) {
			const Word4* at = mine + own_row + ((j * 4 + lane() % 4) ^ odd);
			Word4 raw[2] = {at[0], at[DIM]};
#pragma unroll
			for (int i = 0; i < 2; i++) {
				u32 rows[4] = {raw[0].w[2 * i], raw[1].w[2 * i], raw[0].w[2 * i + 1], raw[1].w[2 * i + 1]};
				mma_f16(c[i], rows, &asked[j][2 * i]);
			}
		}
		__syncwarp();  // all have read what the next keys overwrite
		bring(from + by, page);
		int row = from + column;
		if (head < heads && row < keys.n && some(row)) put(head, row, ((c[0][0] + c[1][0]) + (c[0][1] + c[1][1])) * unit);
		if (head < heads && row + 8 < keys.n && some(row + 8)) put(head, row + 8, ((c[0][2] + c[1][2]) + (c[0][3] + c[1][3])) * unit);
	}
	cp_async_wait<0>();
}

// score_any is score_together of any cache.
template <class Some, class Put>
__device__ inline void score_any(const PagedKV& g, Keys keys, const float* q, int heads, Some some, Put put) {
	int dim = (int)g.dim;
	for (int i = warp(); i < keys.n; i += (int)blockDim.x / WARP) {
		if (!some(i)) continue;
		i64 from = key_offset(g, keys.slot, keys.kv_head, keys.lo + i);
		for (int u = 0; u < heads; u++) {
			float sum = 0;
			for (int d = lane(); d < dim; d += WARP) sum += q[u * dim + d] * load_kv(g.k, g.half, from + d);
			sum = reduce_warp(sum, Plus());
			if (lane() == 0) put(u, i, sum);
		}
	}
}

// score puts q·k/√dim of pages first to last-1 into x, [heads of the set, width].
__device__ inline void score(const ReuseArgs& a, const Reuse& r, const Scope& scope, int first, int last, float* x) {
	int run = r.run, lo = first * PAGE, n = min_of(last * PAGE, scope.hi) - lo;
	float unit = 1 / sqrtf((float)a.g.dim);
	Keys keys = {r.slot, r.set * run * (int)a.g.heads / (int)a.m.heads, lo, n};
	auto some = [&](int i) { return scope.has(lo + i); };
	for (int h = 0; h < run && n > 0; h += HEADS_PER_PASS) {
		const float* q = a.q + (r.slot * a.m.heads + r.set * run + h) * a.g.dim;
		int heads = min_of(HEADS_PER_PASS, run - h);
		auto put = [&](int u, int i, float sum) {
			x[(h + u) * a.width + lo + i] = sum * unit;
			count_nan(a.g, sum);
		};
		if (a.g.half && a.g.dim == 128)
			score_together<128>(a.g, keys, q, heads, (Word4*)r.bins, some, put);
		else if (a.g.half && a.g.dim == 64)
			score_together<64>(a.g, keys, q, heads, (Word4*)r.bins, some, put);
		else
			score_any(a.g, keys, q, heads, some, put);
	}
}

// log_share is what makes scores of a head the logarithms of their softmax over a scope:
// -ln Σ exp(score), -Inf where there is none. best becomes the largest such logarithm of
// the middle.
__device__ inline float log_share(const float* x, const Scope& scope, const Scope& middle, float& best) {
	float top = -infinity(), chosen = -infinity(), sum = 0;
	for (int j = scope.lo + threadIdx.x; j < scope.hi; j += blockDim.x) {
		if (!scope.has(j)) continue;
		top = max_of(top, x[j]);
		if (middle.has(j)) chosen = max_of(chosen, x[j]);
	}
	top = reduce_block(top, -infinity(), Max());
	chosen = reduce_block(chosen, -infinity(), Max());
	for (int j = scope.lo + threadIdx.x; j < scope.hi; j += blockDim.x) {
		if (scope.has(j) && x[j] > -infinity()) sum += expf(x[j] - top);
	}
	sum = reduce_block(sum, 0.0f, Plus());
	if (!(sum > 0)) return -infinity();
	float log = -(top + logf(sum));
	best = max_of(best, chosen + log);
	return log;
}

// weigh makes the first head's row of a set what the set is ranked by: the logarithm of
// the sum of its heads' softmax, up to a constant. The sum itself is no number where it is
// far below the share of another position, often the row's own. For each head of run two
// passes over the scope, one exponential each; then one over the middle with an exponential
// for each head and a logarithm.
__device__ inline void weigh(const ReuseArgs& a, const Reuse& r, const Scope& scope, const Scope& middle, float* first) {
	float *shift = r.asked, best = -infinity();  // [run], in the place of what nobody asks any more
	for (int h = 0; h < r.run; h++) {
		float log = log_share(first + h * a.width, scope, middle, best);
		if (threadIdx.x == 0) shift[h] = log;
	}
	if (!(best > -infinity())) best = 0;
	__syncthreads();
	for (int j = middle.lo + threadIdx.x; j < middle.hi; j += blockDim.x) {
		if (!middle.within(j)) continue;
		float top = EMPTY_MAX, sum = 0;
		for (int h = 0; h < r.run; h++) {
			float x = first[h * a.width + j], log = shift[h];
			x = x > -infinity() && log > -infinity() ? x + (log - best) : -infinity();
			float e = expf(-fabsf(x - top));
			sum = x > top ? sum * e + 1 : sum + e;
			top = max_of(top, x);
		}
		first[j] = sum > 0 ? top + logf(sum) : EMPTY_MAX;  // which still may be chosen
	}
	__syncthreads();
}

// sort_best is pick_best of any scores, which is seldom.
__device__ inline int sort_best(u64* ranks, u64* marks, Scope scope, float* x, i32* index, int want) {
	u32* keys = (u32*)x;
	__syncthreads();
	for (int j = scope.lo + threadIdx.x; j < scope.hi; j += blockDim.x) {
		u32 key = scope.has(j) ? key_of(x[j]) : 0;
		keys[j] = key > KEY_LOWEST ? key : 0;
	}
	__syncthreads();
	int from = scope.lo, n = scope.hi - from;
	Cut<u32> cut = select<u32, u32>(n, (u64)want, [&](i64 i, u32& key) {
		key = keys[from + i];
		return (u32)(key > 0);
	});
	n = compact(keys + from, n, cut, [&](int to, int i, u32 key) { ranks[to] = (u64)key << 32 | (u32)~(u32)(from + i); });
	int whole = 1;
	while (whole < n) whole *= 2;
	for (int i = n + threadIdx.x; i < whole; i += blockDim.x) ranks[i] = 0;
	sort_down(ranks, whole);
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		int j = place_of(ranks[i]);
		index[i] = j;
		mark(marks, j);
	}
	__syncthreads();
	return n;
}

// pick_best writes the best positions of a scope, best first, marks them, and returns
// how many they are. A score's bin, and those of its bin that are better, make its
// place. x is keys afterwards where scores crowd a bin.
__device__ inline int pick_best(const Reuse& r, const Scope& scope, float* x, i32* index, int want) {
	constexpr int SCORES = 8;
	if (want <= 0 || scope.hi <= scope.lo) return 0;
	auto at = [&](int j, float& s) { return scope.within(j) && (s = x[j]) > -infinity(); };
	Bins bins;
	Border border = find_border<REUSE_THREADS, SCORES>(scope.lo, scope.hi, (u32)want, r.bins, bins, at);
	if (border.crowded) return sort_best(r.ranks, r.marks, scope, x, index, want);
	each_score<SCORES>(scope.lo, scope.hi, at, [&](const int* j, const float* s, const bool* there) {
		u32 to[SCORES];
		bool in[SCORES];
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			int bin = there[i] ? bins.of(s[i]) : BINS;
			in[i] = bin <= border.bin;
			if (in[i]) to[i] = atomicAdd(&r.bins[bin], 1u);
		}
#pragma unroll
		for (int i = 0; i < SCORES; i++) {
			if (in[i]) r.ranks[to[i]] = rank_of(s[i], j[i]);
		}
	});
	__syncthreads();  // a bin is now where the next one starts
	for (int i = threadIdx.x; i < border.taken; i += blockDim.x) {
		u64 rank = r.ranks[i];
		int j = place_of(rank), bin = bins.of(x[j]);
		int to = bin > 0 ? (int)r.bins[bin - 1] : 0;
		for (int other = to, end = (int)r.bins[bin]; other < end; other++) to += r.ranks[other] > rank;
		if (to >= want) continue;
		index[to] = j;
		mark(r.marks, j);
	}
	__syncthreads();
	return min_of(border.taken, want);
}

// enter chooses for a set, whose scores are x, and makes its entry.
__device__ inline void enter(const ReuseArgs& a, const Reuse& r, const Scope& scored, const Scope& middle, float* x) {
	i64 k = k_of(a.m, r.p + 1);
	i32* index = chosen(a.m, r.slot, r.set, r.number);
	int n = pick_best(r, middle, x, index, (int)min_of(k, a.m.most));
	if (threadIdx.x > 0) return;
	i32* rec = record(a.m, r.slot, r.set, r.number);
	rec[0] = r.p + 1;
	rec[1] = r.number;
	rec[2] = n;
	u32* tally = a.m.tally + r.item * 4;
	atomicAdd(&tally[0], 1u);  // which waits for nothing
	atomicAdd(&tally[1], 1u);
	atomicAdd((unsigned long long*)(tally + 2), (unsigned long long)scored.count());
}

// set_bits marks positions lo to hi-1 as far as they exist.
__device__ inline void set_bits(u64* marks, int p, int lo, int hi) {
	for (int j = max_of(lo, 0); j < hi && j < (p / PAGE + 1) * PAGE; j++) mark(marks, j);
}

// share marks what a set reads that found an entry.
__device__ inline void share(const ReuseArgs& a, const Reuse& r, const Scope& middle, int found) {
	int own = r.records[3 * found] - 1, n = min_of(max_of(r.records[3 * found + 2], 0), (int)a.m.most);
	const i32* list = chosen(a.m, r.slot, r.set, found);
	i64 k = k_of(a.m, own + 1), best = a.best_share > 0 ? (i64)floor(a.best_share * (double)k + 1e-9) : a.best;
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		int near = i < best ? (int)a.near : 0;
		set_bits(r.marks, r.p, list[i] - near, list[i] + near + 1);
	}
	__syncthreads();
	int slid = a.slid ? recent_of(a.plan, own) : 0, until = a.slid ? recent_of(a.plan, r.p) : 0;
	for (int w = threadIdx.x; w <= r.p / PAGE; w += blockDim.x) {
		u64 in = bits_of(w, middle.lo, middle.hi) & ~bits_of(w, middle.gap, middle.over);
		r.marks[w] = (r.marks[w] | bits_of(w, slid, until)) & in;
	}
}

// note_shared notes that a set uses an entry.
__device__ inline void note_shared(const ReuseArgs& a, const Reuse& r, int found) {
	if (threadIdx.x > 0) return;
	i32* rec = record(a.m, r.slot, r.set, r.number);
	atomicAdd(&a.m.tally[r.item * 4], 1u);  // which waits for nothing
	rec[0] = a.m.chain ? r.p + 1 : 0;
	rec[1] = a.m.chain ? found : 0;
	rec[2] = 0;
}

// reuse lists what set blockIdx.y of slot blockIdx.z reads. Block part of it scores
// pages of its own.
KERNEL_4_PER_SM(reuse, ReuseArgs, REUSE_THREADS) {
	DYNAMIC_SHARED(u64, shared);
	SHARED(int, last, 1);
	pdl_trigger();
	Reuse r;
	int part = blockIdx.x;
	r.set = blockIdx.y;
	r.slot = blockIdx.z;
	r.p = first_position(a.g, r.slot);
	bool good = r.p >= 0 && page_table_valid(a.g, r.slot, r.p);
	pdl_wait();
	if (!good) return;
	if (r.p >= a.width) {
		if (threadIdx.x == 0 && part == 0) fail(a.g.failure, FAIL_SCORES, r.p, a.width, 0);
		return;
	}
	r.since = a.m.since[r.slot];
	r.start = origin(a.m, r.slot, r.p, r.number);
	r.run = (int)a.m.heads / (int)a.m.sets;
	r.item = r.slot * a.m.sets + r.set;
	r.bins = (u32*)shared;
	r.ranks = a.ranks ? a.ranks + r.item * a.places : shared + BINS / 2;
	r.marks = shared + max_of(2 * a.ring, BINS / 2 + (a.ranks ? 0 : a.places));
	r.local = (float*)(r.marks + a.g.width);
	r.asked = r.local + a.room;
	r.records = (i32*)(r.asked + r.run * (int)a.g.dim);
	for (int w = threadIdx.x; w <= r.p / PAGE; w += blockDim.x) r.marks[w] = 0;
	remember(a, r, part == 0);
	int found = recall(a, r);
	if (part == 0 && threadIdx.x == 0) {
		a.m.found[r.item] = found;
		if (min_of(k_of(a.m, r.p + 1), (i64)r.p + 1) > a.m.most) fail(a.g.failure, FAIL_LIST, a.m.most, 0, 0);
	}
	if (found >= 0 && part > 0) return;
	Scope middle = middle_of(a.plan, r.p);
	if (found >= 0) {
		share(a, r, middle, found);
		note_shared(a, r, found);
	} else {
		bool alone = a.m.sets == a.m.heads;
		Scope scored = alone ? middle : seen(a.plan.span, r.p);
		int first = scored.lo / PAGE, pages = max_of((scored.hi + PAGE - 1) / PAGE - first, 0);
		int each = max_of((pages + (int)gridDim.x - 1) / (int)gridDim.x, 1), parts = max_of((pages + each - 1) / each, 1);
		if (part >= parts) return;
		bool local = alone && parts == 1 && r.p < a.room;
		float* x = local ? r.local : a.scores + (r.slot * a.m.heads + r.set * r.run) * a.width;
		score(a, r, scored, first + part * each, first + min_of((part + 1) * each, pages), x);
		__syncthreads();
		if (parts > 1) {
			if (threadIdx.x == 0) {
				// One fence passes on what the block has written, and one lets it see what others have.
				__threadfence();
				last[0] = atomicAdd(&a.finished[r.item], 1) == parts - 1;
				__threadfence();
				if (last[0]) a.finished[r.item] = 0;
			}
			__syncthreads();
			if (!last[0]) return;
		}
		if (!alone) weigh(a, r, scored, middle, x);
		enter(a, r, scored, middle, x);
	}
	__syncthreads();
	list_marked(r.marks, r.p / PAGE + 1, a.index + r.item * a.cap, a.count[r.item], a.cap, a.g.failure);
}

struct ReuseAttendArgs {
	ReuseArgs r;
	float* dst;    // [slots, heads, dim]
	i64 early;     // what earlier steps stored and chose is there before the kernels before are done
	i64 listed;    // positions that a block has room for
	i64 marks, own, local, asked, records;  // where these start in shared memory, in bytes
};

// reuse_attend is reuse and the attention of what it lists, for heads that share no keys with
// others, where a block of each fills the GPU. A block takes what the newest choice leaves for
// granted, and is on its way through it while it asks whether the row may use that. Where the
// list leaves nothing out decode_whole attends.
template <int DIM>
__device__ __forceinline__ void reuse_attend(const ReuseAttendArgs& x) {
	using Lane = Gatherer<DIM>;
	constexpr int PIECES = Lane::PIECES, ROWS = Lane::ROWS, STAGES = GATHER_STAGES, TAKEN = Lane::TAKEN;
	constexpr int WARPS = REUSE_THREADS / WARP, STATES = WARPS * ROWS;
	const ReuseArgs& a = x.r;
	DYNAMIC_SHARED(unsigned char, shared);
	SHARED(SoftmaxState, states, STATES);
	SHARED(int, kept, 5);  // where the row is: read again where it is needed, so that registers are free between
	int p = first_position(a.g, blockIdx.z);
	if (p < 0 || !page_table_valid(a.g, blockIdx.z, p) || p >= a.width) {
		pdl_wait();
		pdl_trigger();
		if (p >= a.width && threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, p, a.width, 0);
		return;
	}
	u64 *marks = (u64*)(shared + x.marks), *own = (u64*)(shared + x.own);  // [p/PAGE+1]; own: the plan's own positions
	int* where = (int*)(shared + x.local);                                 // [listed], in positions of the cache
	i64 item = (i64)blockIdx.z * a.m.sets + blockIdx.y;
	auto again = [&]() {
		Reuse r;
		r.set = blockIdx.y;
		r.slot = blockIdx.z;
		r.run = 1;
		r.item = item;
		r.p = kept[0];
		r.number = kept[1];
		r.start = r.p - r.number;
		r.since = kept[2];
		r.bins = (u32*)shared;
		r.ranks = (u64*)shared + BINS / 2;
		r.marks = marks;
		r.local = (float*)(shared + x.local);
		r.asked = (float*)(shared + x.asked);
		r.records = (i32*)(shared + x.records);
		return r;
	};
	{
		Scope all = seen(a.plan.span, p);
		int recent = recent_of(a.plan, p);
		for (int w = threadIdx.x; w <= p / PAGE; w += blockDim.x) {
			marks[w] = 0;
			own[w] = (bits_of(w, 0, (int)a.plan.sink) | bits_of(w, recent, p + 1)) & bits_of(w, all.lo, all.hi) & ~bits_of(w, all.gap, all.over);
		}
	}
	if (!x.early) pdl_wait();
	int guess, n = 0;
	{
		int number, since = a.m.since[blockIdx.z], start = origin(a.m, blockIdx.z, p, number), newest = -1;
		if (threadIdx.x == 0) {
			kept[0] = p;
			kept[1] = number;
			kept[2] = since;
		}
		const i32* from = record(a.m, blockIdx.z, blockIdx.y, 0);
		i32* records = (i32*)(shared + x.records);
		for (int i = threadIdx.x; i < number; i += blockDim.x) {
			for (int c = 0; c < 3; c++) records[3 * i + c] = from[3 * i + c];
			int at = records[3 * i] - 1;
			if (at == start + i && at >= since) newest = i;
		}
		newest = reduce_block(newest, -1, Max());
		guess = newest < 0 ? -1 : records[3 * newest + 1];
		if (newest >= 0 && threadIdx.x < DIM / 8) prefetch_l2(a.m.query + (item * a.m.block + newest) * DIM + threadIdx.x * 8);
	}

	// list_up finds where what is marked lies, and the plan's own.
	const u16 *pieces = (const u16*)marks, *own_pieces = (const u16*)own;
	constexpr int PIECE = 16;
	auto list_up = [&]() {
		Run run = run_of((kept[0] / PAGE + 1) * (PAGE / PIECE));
		u64 mine = 0, total;  // the marked ones in the lower half, all in the upper
		for (int w = (int)run.lo; w < run.hi; w++) mine += (u64)__popc((u32)(pieces[w] | own_pieces[w])) << 32 | (u64)__popc((u32)pieces[w]);
		int to = (int)(scan_block(mine, total) >> 32);
		if (threadIdx.x == 0) kept[3] = (int)(u32)total;
		n = min_of((int)(total >> 32), (int)x.listed);
		for (int w = (int)run.lo; w < run.hi; w++) {
			u32 bits = pieces[w] | own_pieces[w];
			if (!bits) continue;
			int page = a.g.table[(i64)blockIdx.z * a.g.width + w / (PAGE / PIECE)];
			int from = (page * (int)a.g.heads + (int)blockIdx.y) * PAGE + w % (PAGE / PIECE) * PIECE;
			for (; bits; bits &= bits - 1, to++) {
				if (to < n) where[to] = from + __ffs((int)bits) - 1;
			}
		}
		__syncthreads();
	};
	Gathered* ring = (Gathered*)shared + warp() * STAGES;
	int piece = lane() % PIECES * 8, next = 0, into = 0;
	auto fetch = [&]() {
		if (next < n) {
#pragma unroll
			for (int t = 0; t < GATHER_LOADS; t++) {
				int i = next + t * ROWS + lane() / PIECES;
				i64 place = (i64)(i < n ? where[i] : 0) * DIM + piece;
				cp_async_zfill(&ring[into].k[t][lane()], (const u16*)a.g.k + place, i < n);
				cp_async_zfill(&ring[into].v[t][lane()], (const u16*)a.g.v + place, i < n);
			}
		}
		cp_async_commit();
		next += WARPS * TAKEN;
		if (++into == STAGES) into = 0;
	};
	int begun = 0;
	if (guess >= 0) {
		{
			Reuse r = again();
			share(a, r, middle_of(a.plan, r.p), guess);
		}
		__syncthreads();
		list_up();
		next = warp() * TAKEN;
		// The row's own position, which is the last, is stored by a kernel before.
		begun = x.early ? min_of((n - 1) / (WARPS * TAKEN), STAGES) : STAGES;
		for (int i = 0; i < begun; i++) fetch();
	}
	if (x.early) pdl_wait();
	pdl_trigger();
	for (int i = begun; guess >= 0 && i < STAGES; i++) fetch();
	bool chooses;
	{
		Reuse r = again();
		for (int i = threadIdx.x; i < DIM; i += blockDim.x) {
			float q = a.asked[item * DIM + i];
			r.asked[i] = q;
			a.m.query[(item * a.m.block + r.number) * DIM + i] = q;
		}
		__syncthreads();
		int found = recall(a, r);
		if (threadIdx.x == 0) {
			a.m.found[item] = found;
			if (min_of(k_of(a.m, r.p + 1), (i64)r.p + 1) > a.m.most) fail(a.g.failure, FAIL_LIST, a.m.most, 0, 0);
		}
		if (found >= 0) note_shared(a, r, found);
		chooses = found < 0;
		if (chooses || found != guess) {
			cp_async_wait<0>();
			for (int w = threadIdx.x; w <= r.p / PAGE; w += blockDim.x) marks[w] = 0;
			__syncthreads();
			if (found >= 0) share(a, r, middle_of(a.plan, r.p), found);
			guess = -1;
		}
	}
	if (chooses) {
		{
			Scope middle = middle_of(a.plan, kept[0]);
			float* scores = (float*)(shared + x.local);
			int lo = middle.lo / PAGE * PAGE;
			Keys keys = {(int)blockIdx.z, (int)blockIdx.y, lo, max_of(middle.hi - lo, 0)};
			auto some = [&](int i) { return middle.has(lo + i); };
			auto put = [&](int, int i, float sum) {
				scores[lo + i] = sum * (1 / sqrtf((float)DIM));
				count_nan(a.g, sum);
			};
			score_together<DIM>(a.g, keys, a.q + item * DIM, 1, (Word4*)shared, some, put);
		}
		__syncthreads();
		Reuse r = again();
		Scope middle = middle_of(a.plan, r.p);
		enter(a, r, middle, middle, r.local);
	}
	if (guess < 0) {
		__syncthreads();
		list_up();
		next = warp() * TAKEN;
		into = 0;
		for (int i = 0; i < STAGES; i++) fetch();
	}
	if (threadIdx.x == 0) {
		if (kept[3] > a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[item] = min_of(kept[3], (int)a.cap);
	}
	if (kept[3] >= selected_region(a.plan, kept[0]).n) {
		cp_async_wait<0>();
		list_marked(marks, kept[0] / PAGE + 1, a.index + item * a.cap, a.count[item], a.cap, a.g.failure);
		return;
	}
	Lane mine;
	mine.load_query(a.q + item * DIM);
	int turn = 0;
	for (int first = warp() * TAKEN; first < n; first += WARPS * TAKEN) {
		cp_async_wait<STAGES - 1>();
		mine.load_stage(ring[turn]);
		fetch();
		if (++turn == STAGES) turn = 0;
		mine.add(false, [&](int t) { return first + t * ROWS + lane() / PIECES < n ? 0 : -infinity(); });
	}
	cp_async_wait<0>();
	__syncthreads();
	mine.template merge<WARPS>(x.dst + item * DIM, (float*)shared, states, false);
}

KERNEL_4_PER_SM(reuse_attend_64, ReuseAttendArgs, REUSE_THREADS) { reuse_attend<64>(a); }
KERNEL_4_PER_SM(reuse_attend_128, ReuseAttendArgs, REUSE_THREADS) { reuse_attend<128>(a); }
