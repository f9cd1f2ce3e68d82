// Random samples of positions that were not selected. Definition: package cpu,
// estimate.go; package device, estimate.go, says what a sample is.
//
// A set has a block that lists what the spread of its tail is computed from, several that
// score it, and one that draws.
#include "draw.cuh"
#include "rank.cuh"
#include "scores.cuh"
#include "state.cuh"

struct TailArgs {
	i32 *index, *count;  // [rows, sets, cap], [rows, sets]
	float* weight;       // [rows, sets, cap]
	const float* q;      // [rows, heads, dim]
	u8* work;            // [items, item]
	i64 item;            // bytes
	i64 first;           // number of item 0
	i64 sets, cap, heads;
	i64 pilot_count;
	f64 pilot_share, eps, z;
	i64 values, finite, fresh, replace, listed;
	u64 seed;
	const i32* of;  // [slots]: their requests; NULL: one for all
	i64 request, layer;
	PagedKV g;
	Plan plan;
};

// Head is what is known of an item when its positions are listed.
struct Head {
	i32 n;      // of the tail; -1: nothing is done for it
	i32 fixed;  // positions that are read whatever the sample says
	i32 pilot;
	i32 pad;
};

// Tail is the scratch of an item. Sets of positions are words, one for each page.
struct Tail {
	Head* head;
	u64 *edge;      // read at the plan's edges
	u64 *fixed;     // read whatever the sample says, edge included
	u64 *drawn;     // the sample
	float* known;   // weight of fixed positions
	i32* tail;      // what can be drawn, ascending
	i32* reads;     // what a spread is computed from: the fixed positions, and then the pilot
	float* scores;  // [heads of the set, positions]: of reads
	i64 width;      // positions
	int words, n;   // of the row; of the tail
	int row, set, members, kv_head;
	RowPosition at;
};

// draws gives index i of what a set of a row draws.
struct Draws {
	Draw address;
	Shuffle shuffle;
	u32 n;
	bool replace;

	__device__ u32 at(u32 i) const { return replace ? below(words_of(address, i / 4).w[i % 4], n) : shuffle.at(i); }
};

__device__ inline Draws draws_of(const TailArgs& a, const Tail& t, u32 purpose) {
	Draws d;
	d.address = {a.seed, a.of ? (u32)a.of[t.at.slot] : (u32)a.request, (u32)a.layer, (u32)t.set, (u32)t.at.p, purpose};
	d.n = (u32)t.n;
	d.replace = a.replace;
	if (!d.replace) d.shuffle = shuffle_of(d.address, d.n);
	return d;
}

// fix adds what a list holds in the plan's middle to what is fixed.
__device__ inline void fix(const TailArgs& a, Tail& t, const Entries& e) {
	bool tokens = a.plan.middle == MIDDLE_TOKENS;
	for (int i = threadIdx.x; i < e.n; i += blockDim.x) {
		int j = e.index[i];
		float x = e.weight ? e.weight[i] : 1;
		int lo = tokens ? j : j * PAGE, hi = tokens ? j + 1 : lo + PAGE;
		if (j < 0 || !(x > 0)) continue;
		for (int p = lo; p < hi && p <= t.at.p; p++) {
			if (!sees(a.plan.span, t.at.p, p) || t.edge[p / PAGE] >> p % PAGE & 1) continue;
			t.known[p] = max_of(t.known[p], x);
			atomicOr((unsigned long long*)&t.fixed[p / PAGE], 1ull << p % PAGE);
		}
	}
	__syncthreads();
}

// split finds what is fixed for a set of a row, and the tail.
__device__ inline void split(const TailArgs& a, Tail& t) {
	u32 *seen = (u32*)t.drawn, *edges = (u32*)t.edge, *fixed = (u32*)t.fixed;
	for (int j = threadIdx.x; j < t.words * PAGE; j += blockDim.x) {
		bool sight = sees(a.plan.span, t.at.p, j), in = sight && in_sinks_or_window(a.plan, t.at.p, j);
		t.known[j] = in;
		u32 all = __ballot_sync(FULL_MASK, sight), some = __ballot_sync(FULL_MASK, in);
		if (lane() > 0) continue;
		seen[j / WARP] = all;
		edges[j / WARP] = fixed[j / WARP] = some;
	}
	__syncthreads();
	if (a.plan.middle != MIDDLE_NONE) {
		for (int u = 0; u < t.members; u++) fix(a, t, entries(a.plan.list, a.g, t.at, t.set * t.members + u, (int)a.heads));
	}
	const u64* out = a.listed ? t.edge : t.fixed;
	i32* places = t.reads;  // of the tail's part of a word
	Run r = run_of(t.words);
	u64 mine = 0, total;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popcll(t.drawn[w] & ~out[w]);
	u64 to = scan_block(mine, total);
	for (i64 w = r.lo; w < r.hi; w++) {
		places[w] = (i32)to;
		to += __popcll(t.drawn[w] & ~out[w]);
	}
	t.n = (int)total;
	__syncthreads();
	for (int w = warp(); w < t.words; w += (int)blockDim.x / WARP) {
		u64 bits = t.drawn[w] & ~out[w];
		for (int i = lane(); i < PAGE; i += WARP) {
			if (bits >> i & 1) t.tail[places[w] + __popcll(bits & ((1ull << i) - 1))] = w * PAGE + i;
		}
	}
	__syncthreads();
	for (int w = threadIdx.x; w < t.words; w += blockDim.x) t.drawn[w] = 0;
	__syncthreads();
}

constexpr int MOST_VALUE = 512;

// spread_values is the norm of the estimate of the sum of weighted values, and
// the trace of the variance of those of the tail.
template <class X>
__device__ inline void spread_values(const TailArgs& a, const Tail& t, X x, double& norm, double& trace) {
	SHARED(double, mean, MOST_VALUE);
	int dim = (int)a.g.dim, fixed = t.head->fixed, pilot = t.head->pilot;
	auto value = [&](int i, int e) { return (double)load_kv(a.g.v, a.g.half, key_offset(a.g, t.at.slot, t.kv_head, t.reads[i]) + e); };
	double part = 0;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		double m = 0, s = 0;
		for (int i = 0; i < fixed; i++) s += x(i) * value(i, e);
		for (int i = fixed; i < fixed + pilot; i++) m += x(i) / pilot * value(i, e);
		mean[e] = m;
		double total = s + t.n * m;
		part += total * total;
	}
	norm = sqrt(reduce_block(part, 0.0, Plus()));
	part = 0;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		for (int i = fixed; i < fixed + pilot; i++) {
			double v = x(i) * value(i, e) - mean[e];
			part += v * v / (pilot - 1);
		}
	}
	trace = reduce_block(part, 0.0, Plus());
}

// need is Tail.Need for head u of the set.
__device__ inline double need(const TailArgs& a, const Tail& t, int u) {
	const float* scores = t.scores + u * t.width;
	int fixed = t.head->fixed, pilot = t.head->pilot, reads = fixed + pilot;
	float top = -infinity();
	for (int i = threadIdx.x; i < reads; i += blockDim.x) top = max_of(top, scores[i]);
	top = reduce_block(top, -infinity(), Max());
	auto x = [&](int i) {
		double e = scores[i] > -infinity() ? exp((double)scores[i] - (double)top) : 0;
		return i < fixed ? e * t.known[t.reads[i]] : e;
	};
	double sum = 0, mean = 0, variance = 0, n = t.n;
	for (int i = threadIdx.x; i < fixed; i += blockDim.x) sum += x(i);
	for (int i = fixed + threadIdx.x; i < reads; i += blockDim.x) mean += x(i) / pilot;
	sum = reduce_block(sum, 0.0, Plus());
	mean = reduce_block(mean, 0.0, Plus());
	sum += n * mean;
	for (int i = fixed + threadIdx.x; i < reads; i += blockDim.x) {
		double v = x(i) - mean;
		variance += v * v / (pilot - 1);
	}
	variance = reduce_block(variance, 0.0, Plus());
	double spread = n * sqrt(variance) / sum, eps = a.eps;
	if (a.values) {
		double norm, trace;
		spread_values(a, t, x, norm, trace);
		spread += n * sqrt(trace) / norm;
		eps /= 2;
	}
	if (spread == 0 && eps > 0) return 0;
	double want = a.z * spread / eps;
	want *= want;
	if (a.finite) want /= 1 + want / n;
	return want;
}

// budget is the size of the sample of a set: the largest that one of its heads
// needs.
__device__ inline int budget(const TailArgs& a, const Tail& t) {
	int n = t.n;
	double want = 0;
	for (int u = 0; u < t.members; u++) {
		double x = need(a, t, u);
		if (x > want || x != x) want = x;
	}
	if (a.eps == 0 || !(want < (double)n)) return n;
	return min_of(n, max_of(t.head->pilot, (int)ceil(want)));
}

// start finds the scratch of an item; false if its row is skipped.
__device__ inline bool start(const TailArgs& a, Tail& t) {
	i64 item = a.first + blockIdx.x;
	t.row = (int)(item / a.sets);
	t.set = (int)(item % a.sets);
	t.members = (int)(a.heads / a.sets);
	t.kv_head = t.set * t.members * (int)a.g.heads / (int)a.heads;
	t.at = row_position(a.g, t.row);
	t.words = t.at.p / PAGE + 1;
	u8* at = a.work + blockIdx.x * a.item;
	t.width = a.g.width * PAGE;
	t.head = (Head*)at;
	t.edge = (u64*)(at + sizeof(Head));
	t.fixed = t.edge + a.g.width;
	t.drawn = t.fixed + a.g.width;
	t.known = (float*)(t.drawn + a.g.width);
	t.tail = (i32*)(t.known + t.width);
	t.reads = t.tail + t.width;
	t.scores = (float*)(t.reads + t.width);
	return t.at.p >= 0;
}

// sound reports whether the list has room for the row and its pages are there.
__device__ inline bool page_table_valid(const TailArgs& a, const Tail& t) {
	if (t.at.p >= a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return false;
	}
	int bad = 0;
	for (int b = threadIdx.x; b < t.words; b += blockDim.x) bad |= page_of(a.g, t.at.slot, b) < 0;
	return !reduce_block(bad, 0, Max());
}

// tail_reads: block i splits what a set of a row sees, and lists what the spread of the
// tail is computed from.
KERNEL(tail_reads, TailArgs, 512) {
	Tail t;
	if (!start(a, t)) return;
	Head head = {-1, 0, 0, 0};
	if (page_table_valid(a, t)) {
		split(a, t);
		head.n = t.n;
	}
	if (head.n >= 2 && (a.pilot_count > 0 || a.pilot_share > 0)) {
		int pilot = (int)(a.pilot_share > 0 ? floor(a.pilot_share * (double)t.n + 1e-9) : (double)a.pilot_count);
		head.pilot = min_of(t.n, max_of(2, pilot));
		Run r = run_of(t.words);
		u64 mine = 0, total;
		for (i64 w = r.lo; w < r.hi; w++) mine += __popcll(t.fixed[w]);
		u64 to = scan_block(mine, total);
		for (i64 w = r.lo; w < r.hi; w++) {
			for (u64 bits = t.fixed[w]; bits; bits &= bits - 1) t.reads[to++] = (i32)(w * PAGE) + __ffsll((long long)bits) - 1;
		}
		head.fixed = (i32)total;
		Draws d = draws_of(a, t, a.fresh ? FOR_PILOT : FOR_KEYS);
		for (int i = threadIdx.x; i < head.pilot; i += blockDim.x) t.reads[head.fixed + i] = t.tail[d.at(i)];
	}
	if (threadIdx.x == 0) *t.head = head;
}

// tail_scores: block (i, z) scores part z of what is listed for item i.
KERNEL(tail_scores, TailArgs, 256) {
	Tail t;
	if (!start(a, t)) return;
	int reads = t.head->fixed + t.head->pilot, each = (reads + (int)gridDim.z - 1) / (int)gridDim.z, lo = (int)blockIdx.z * each;
	float unit = 1 / sqrtf((float)a.g.dim);
	for (int h = 0; h < t.members; h += HEADS_PER_PASS) {
		const float* q = a.q + ((i64)t.row * a.heads + t.set * t.members + h) * a.g.dim;
		auto where = [&](int i) { return key_offset(a.g, t.at.slot, t.kv_head, t.reads[lo + i]); };
		auto put = [&](int u, int i, float sum) {
			sum *= unit;
			count_nan(a.g, sum);
			t.scores[(h + u) * t.width + lo + i] = sum;
		};
		score_any(a.g, min_of(each, reads - lo), q, min_of(HEADS_PER_PASS, t.members - h), [](int) { return true; }, where, put);
	}
}

// write lists what is fixed between the plan's edges, and the sample with weight
// each.
__device__ inline void write(const TailArgs& a, const Tail& t, float each) {
	i64 list = (i64)t.row * a.sets + t.set;
	Run r = run_of(t.words);
	u64 mine = 0, total;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popcll((t.fixed[w] & ~t.edge[w]) | t.drawn[w]);
	u64 to = list * a.cap + scan_block(mine, total);
	for (i64 w = r.lo; w < r.hi; w++) {
		u64 fixed = t.fixed[w] & ~t.edge[w];
		for (u64 bits = fixed | t.drawn[w]; bits; bits &= bits - 1, to++) {
			int i = __ffsll((long long)bits) - 1;
			a.index[to] = (i32)(w * PAGE + i);
			a.weight[to] = fixed >> i & 1 ? t.known[w * PAGE + i] : each;
		}
	}
	if (threadIdx.x == 0) a.count[list] = (i32)total;
}

// sample_tail: block i takes a set of a row.
KERNEL(sample_tail, TailArgs, 512) {
	Tail t;
	if (!start(a, t) || t.head->n < 0) return;
	int n = t.n = t.head->n, b = n;
	if (a.pilot_count == 0 && a.pilot_share == 0)
		b = 0;
	else if (n >= 2)
		b = budget(a, t);
	if (b == n && (n < 2 || !a.replace)) {
		for (int i = threadIdx.x; i < n; i += blockDim.x) atomicOr((unsigned long long*)&t.drawn[t.tail[i] / PAGE], 1ull << t.tail[i] % PAGE);
	} else if (b > 0) {
		Draws d = draws_of(a, t, FOR_KEYS);
		for (int i = threadIdx.x; i < b; i += blockDim.x) {
			int j = t.tail[d.at(i)];
			atomicOr((unsigned long long*)&t.drawn[j / PAGE], 1ull << j % PAGE);
		}
	}
	__syncthreads();
	write(a, t, (float)((double)n / max_of(b, 1)));
}
