// Residual sampling, as in vAttention: attention over a deterministic set I (sinks, window and
// what a selector listed) plus a uniform sample of the residual R, everything else that is
// visible. The size b of the sample bounds the relative error of the softmax denominator by eps
// with the confidence of the normal quantile z. With n = |R| and s_i = q·k_i/√dim:
//
//	pilot   b0 uniform indices of R;  x_i = exp(s_i - max over I and the pilot)
//	D       = Σ_{i in I} w_i·x_i + n·mean(x over the pilot)
//	b       = clamp(⌈(z·n·σ / (eps·D))²⌉, b0, n),  σ² the sample variance of x over the pilot
//	output  I with its weights, and b uniform indices of R with weight n/b
//
// A head group shares I, R and the sample, sized for the head that needs most. Random numbers
// are addressed by (seed, request, layer, group, position): results depend neither on batches
// nor on chunks. Reference implementation: package cpu.
//
// An item is a head group of a row. Three launches: residual_fixed builds R and draws the pilot, one
// block per item; residual_scores scores I and the pilot, many blocks per item, because it reads keys
// at random; residual_sample sizes the sample and draws it.
#include "philox.cuh"
#include "radix_select.cuh"
#include "scores.cuh"
#include "state.cuh"

struct ResidualArgs {
	i32 *index, *count;  // [rows, head_groups, cap], [rows, head_groups]
	float* weight;       // [rows, head_groups, cap]
	const float* q;      // [rows, heads, dim]
	u8* work;            // [items, item]
	i64 item;            // bytes of an item's scratch
	i64 first;           // the item of block 0
	i64 head_groups, cap, heads;
	i64 pilot_count;
	f64 pilot_share, eps, z;
	i64 numerator, fpc, fresh_pilot, replace, pool_selected;
	u64 seed;
	const i32* requests;  // [slots]: their request ids; NULL: one for all
	i64 request, layer;
	PagedKV g;
	Plan plan;
};

// ItemHeader is what residual_fixed passes to the launches after it.
struct ItemHeader {
	i32 n;         // positions of R; -1: the item is skipped
	i32 selected;  // positions of I that were scored
	i32 pilot;
	i32 pad;
};

// Residual is an item and its scratch. Bitmaps are one word a page.
struct Residual {
	ItemHeader* head;
	u64 *always;             // bitmap of sinks and window
	u64 *selected;           // bitmap of I, sinks and window included
	u64 *sampled;            // bitmap of the sample; of what is visible while R is built
	float* selected_weight;  // [positions]: weights of I
	i32* residual;           // [n]: R, ascending
	i32* observed;           // [selected + pilot]: I, then the pilot
	float* scores;           // [heads of the group, positions]: of observed
	i64 width;               // positions that the scratch has room for
	int words, n;            // words of a bitmap; n: positions of R
	int row, head_group, group_heads, kv_head;
	RowPosition at;
};

// IndexSampler maps draw i of an item to an index of R: without replacement by a keyed
// permutation, of which any prefix is a sample, with replacement by independent draws.
struct IndexSampler {
	Draw address;
	Shuffle shuffle;
	u32 n;
	bool replace;

	__device__ u32 at(u32 i) const { return replace ? uniform_below(philox_block(address, i / 4).w[i % 4], n) : shuffle.at(i); }
};

__device__ inline IndexSampler make_sampler(const ResidualArgs& a, const Residual& t, u32 purpose) {
	IndexSampler d;
	d.address = {a.seed, a.requests ? (u32)a.requests[t.at.slot] : (u32)a.request, (u32)a.layer, (u32)t.head_group, (u32)t.at.p, purpose};
	d.n = (u32)t.n;
	d.replace = a.replace;
	if (!d.replace) d.shuffle = shuffle_of(d.address, d.n);
	return d;
}

// add_selected adds the entries of a list that lie in the selected region to I. A position that
// several heads of a group list has the largest of its weights.
__device__ inline void add_selected(const ResidualArgs& a, Residual& t, const Entries& e) {
	bool tokens = a.plan.selected == SELECTED_TOKENS;
	for (int i = threadIdx.x; i < e.n; i += blockDim.x) {
		int j = e.index[i];
		float x = e.weight ? e.weight[i] : 1;
		int lo = tokens ? j : j * PAGE, hi = tokens ? j + 1 : lo + PAGE;
		if (j < 0 || !(x > 0)) continue;
		for (int p = lo; p < hi && p <= t.at.p; p++) {
			if (!sees(a.plan.span, t.at.p, p) || t.always[p / PAGE] >> p % PAGE & 1) continue;
			t.selected_weight[p] = max_of(t.selected_weight[p], x);
			atomicOr((unsigned long long*)&t.selected[p / PAGE], 1ull << p % PAGE);
		}
	}
	__syncthreads();
}

// build_residual finds I and R of an item. R is what the span shows without I (or, with
// pool_selected, as published code has it, without sinks and window only).
__device__ inline void build_residual(const ResidualArgs& a, Residual& t) {
	u32 *seen = (u32*)t.sampled, *always = (u32*)t.always, *selected = (u32*)t.selected;
	for (int j = threadIdx.x; j < t.words * PAGE; j += blockDim.x) {
		bool visible = sees(a.plan.span, t.at.p, j), in = visible && in_sinks_or_window(a.plan, t.at.p, j);
		t.selected_weight[j] = in;
		u32 all = __ballot_sync(FULL_MASK, visible), some = __ballot_sync(FULL_MASK, in);
		if (lane() > 0) continue;
		seen[j / WARP] = all;
		always[j / WARP] = selected[j / WARP] = some;
	}
	__syncthreads();
	if (a.plan.selected != SELECTED_NONE) {
		for (int u = 0; u < t.group_heads; u++) add_selected(a, t, entries(a.plan.list, a.g, t.at, t.head_group * t.group_heads + u, (int)a.heads));
	}
	const u64* out = a.pool_selected ? t.always : t.selected;
	i32* places = t.observed;  // ranks of the first position of each word in R
	ThreadRange r = thread_range(t.words);
	u64 mine = 0, total;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popcll(t.sampled[w] & ~out[w]);
	u64 to = scan_block(mine, total);
	for (i64 w = r.lo; w < r.hi; w++) {
		places[w] = (i32)to;
		to += __popcll(t.sampled[w] & ~out[w]);
	}
	t.n = (int)total;
	__syncthreads();
	for (int w = warp(); w < t.words; w += (int)blockDim.x / WARP) {
		u64 bits = t.sampled[w] & ~out[w];
		for (int i = lane(); i < PAGE; i += WARP) {
			if (bits >> i & 1) t.residual[places[w] + __popcll(bits & ((1ull << i) - 1))] = w * PAGE + i;
		}
	}
	__syncthreads();
	for (int w = threadIdx.x; w < t.words; w += blockDim.x) t.sampled[w] = 0;
	__syncthreads();
}

constexpr int RESIDUAL_MAX_DIM = 512;

// numerator_spread is the numerator's part of the bound: the norm of the estimate of Σ x_i·v_i,
// and the trace of the sample covariance of x_i·v_i over the pilot.
template <class X>
__device__ inline void numerator_spread(const ResidualArgs& a, const Residual& t, X x, double& norm, double& trace) {
	SHARED(double, mean, RESIDUAL_MAX_DIM);
	int dim = (int)a.g.dim, selected = t.head->selected, pilot = t.head->pilot;
	auto value = [&](int i, int e) { return (double)load_kv(a.g.v, a.g.half, key_offset(a.g, t.at.slot, t.kv_head, t.observed[i]) + e); };
	double part = 0;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		double m = 0, s = 0;
		for (int i = 0; i < selected; i++) s += x(i) * value(i, e);
		for (int i = selected; i < selected + pilot; i++) m += x(i) / pilot * value(i, e);
		mean[e] = m;
		double total = s + t.n * m;
		part += total * total;
	}
	norm = sqrt(reduce_block(part, 0.0, Plus()));
	part = 0;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		for (int i = selected; i < selected + pilot; i++) {
			double v = x(i) * value(i, e) - mean[e];
			part += v * v / (pilot - 1);
		}
	}
	trace = reduce_block(part, 0.0, Plus());
}

// required_samples is the b that head u of the group needs, before it is rounded and clamped.
// With numerator, half of eps is for the numerator and half for the denominator, split so that
// both need the same b; with fpc the correction for a finite population, b / (1 + b/n).
__device__ inline double required_samples(const ResidualArgs& a, const Residual& t, int u) {
	const float* scores = t.scores + u * t.width;
	int selected = t.head->selected, pilot = t.head->pilot, observed = selected + pilot;
	float top = -infinity();
	for (int i = threadIdx.x; i < observed; i += blockDim.x) top = max_of(top, scores[i]);
	top = reduce_block(top, -infinity(), Max());
	auto x = [&](int i) {
		double e = scores[i] > -infinity() ? exp((double)scores[i] - (double)top) : 0;
		return i < selected ? e * t.selected_weight[t.observed[i]] : e;
	};
	double sum = 0, mean = 0, variance = 0, n = t.n;
	for (int i = threadIdx.x; i < selected; i += blockDim.x) sum += x(i);
	for (int i = selected + threadIdx.x; i < observed; i += blockDim.x) mean += x(i) / pilot;
	sum = reduce_block(sum, 0.0, Plus());
	mean = reduce_block(mean, 0.0, Plus());
	sum += n * mean;
	for (int i = selected + threadIdx.x; i < observed; i += blockDim.x) {
		double v = x(i) - mean;
		variance += v * v / (pilot - 1);
	}
	variance = reduce_block(variance, 0.0, Plus());
	double spread = n * sqrt(variance) / sum, eps = a.eps;
	if (a.numerator) {
		double norm, trace;
		numerator_spread(a, t, x, norm, trace);
		spread += n * sqrt(trace) / norm;
		eps /= 2;
	}
	if (spread == 0 && eps > 0) return 0;
	double want = a.z * spread / eps;
	want *= want;
	if (a.fpc) want /= 1 + want / n;
	return want;
}

// sample_size is the largest b that a head of the group needs. NaN counts as all of R.
__device__ inline int sample_size(const ResidualArgs& a, const Residual& t) {
	int n = t.n;
	double want = 0;
	for (int u = 0; u < t.group_heads; u++) {
		double x = required_samples(a, t, u);
		if (x > want || x != x) want = x;
	}
	if (a.eps == 0 || !(want < (double)n)) return n;
	return min_of(n, max_of(t.head->pilot, (int)ceil(want)));
}

// locate_item finds an item's scratch; false if its row is skipped. The host reckons the same
// layout.
__device__ inline bool locate_item(const ResidualArgs& a, Residual& t) {
	i64 item = a.first + blockIdx.x;
	t.row = (int)(item / a.head_groups);
	t.head_group = (int)(item % a.head_groups);
	t.group_heads = (int)(a.heads / a.head_groups);
	t.kv_head = t.head_group * t.group_heads * (int)a.g.heads / (int)a.heads;
	t.at = row_position(a.g, t.row);
	t.words = t.at.p / PAGE + 1;
	u8* at = a.work + blockIdx.x * a.item;
	t.width = a.g.width * PAGE;
	t.head = (ItemHeader*)at;
	t.always = (u64*)(at + sizeof(ItemHeader));
	t.selected = t.always + a.g.width;
	t.sampled = t.selected + a.g.width;
	t.selected_weight = (float*)(t.sampled + a.g.width);
	t.residual = (i32*)(t.selected_weight + t.width);
	t.observed = t.residual + t.width;
	t.scores = (float*)(t.observed + t.width);
	return t.at.p >= 0;
}

// check_item reports whether the list has room for the row and its page table is good.
__device__ inline bool check_item(const ResidualArgs& a, const Residual& t) {
	if (t.at.p >= a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return false;
	}
	int bad = 0;
	for (int b = threadIdx.x; b < t.words; b += blockDim.x) bad |= page_of(a.g, t.at.slot, b) < 0;
	return !reduce_block(bad, 0, Max());
}

// residual_fixed (sample, 1 of 3): block i builds I and R of item first + i and draws the pilot.
// With a pilot that is reused the sample continues the pilot's permutation, so that its keys are
// read once; with fresh_pilot it has a permutation of its own. Bound by three passes over the
// bitmaps and by writing R, 4 bytes a position.
KERNEL(residual_fixed, ResidualArgs, 512) {
	Residual t;
	if (!locate_item(a, t)) return;
	ItemHeader head = {-1, 0, 0, 0};
	if (check_item(a, t)) {
		build_residual(a, t);
		head.n = t.n;
	}
	if (head.n >= 2 && (a.pilot_count > 0 || a.pilot_share > 0)) {
		int pilot = (int)(a.pilot_share > 0 ? floor(a.pilot_share * (double)t.n + 1e-9) : (double)a.pilot_count);
		head.pilot = min_of(t.n, max_of(2, pilot));
		ThreadRange r = thread_range(t.words);
		u64 mine = 0, total;
		for (i64 w = r.lo; w < r.hi; w++) mine += __popcll(t.selected[w]);
		u64 to = scan_block(mine, total);
		for (i64 w = r.lo; w < r.hi; w++) {
			for (u64 bits = t.selected[w]; bits; bits &= bits - 1) t.observed[to++] = (i32)(w * PAGE) + __ffsll((long long)bits) - 1;
		}
		head.selected = (i32)total;
		IndexSampler d = make_sampler(a, t, a.fresh_pilot ? FOR_PILOT : FOR_KEYS);
		for (int i = threadIdx.x; i < head.pilot; i += blockDim.x) t.observed[head.selected + i] = t.residual[d.at(i)];
	}
	if (threadIdx.x == 0) *t.head = head;
}

// residual_scores (sample, 2 of 3): block (i, z) scores part z of I and the pilot of item first + i,
// for HEADS_PER_PASS heads of the group at a time. Bound by reading |I| + b0 keys, of which those
// of the pilot lie at random.
KERNEL(residual_scores, ResidualArgs, 256) {
	Residual t;
	if (!locate_item(a, t)) return;
	int observed = t.head->selected + t.head->pilot, each = (observed + (int)gridDim.z - 1) / (int)gridDim.z, lo = (int)blockIdx.z * each;
	float unit = 1 / sqrtf((float)a.g.dim);
	for (int h = 0; h < t.group_heads; h += HEADS_PER_PASS) {
		const float* q = a.q + ((i64)t.row * a.heads + t.head_group * t.group_heads + h) * a.g.dim;
		auto where = [&](int i) { return key_offset(a.g, t.at.slot, t.kv_head, t.observed[lo + i]); };
		auto put = [&](int u, int i, float sum) {
			sum *= unit;
			count_nan(a.g, sum);
			t.scores[(h + u) * t.width + lo + i] = sum;
		};
		score_any(a.g, min_of(each, observed - lo), q, min_of(HEADS_PER_PASS, t.group_heads - h), [](int) { return true; }, where, put);
	}
}

// write_list lists I between sinks and window with its weights and the sample with weight n/b,
// ascending. A position in both keeps its own weight.
__device__ inline void write_list(const ResidualArgs& a, const Residual& t, float each) {
	i64 list = (i64)t.row * a.head_groups + t.head_group;
	ThreadRange r = thread_range(t.words);
	u64 mine = 0, total;
	for (i64 w = r.lo; w < r.hi; w++) mine += __popcll((t.selected[w] & ~t.always[w]) | t.sampled[w]);
	u64 to = list * a.cap + scan_block(mine, total);
	for (i64 w = r.lo; w < r.hi; w++) {
		u64 selected = t.selected[w] & ~t.always[w];
		for (u64 bits = selected | t.sampled[w]; bits; bits &= bits - 1, to++) {
			int i = __ffsll((long long)bits) - 1;
			a.index[to] = (i32)(w * PAGE + i);
			a.weight[to] = selected >> i & 1 ? t.selected_weight[w * PAGE + i] : each;
		}
	}
	if (threadIdx.x == 0) a.count[list] = (i32)total;
}

// residual_sample (sample, 3 of 3): block i sizes and draws the sample of item first + i. Without a
// pilot there is no sample; where b reaches n without replacement R is listed whole.
KERNEL(residual_sample, ResidualArgs, 512) {
	Residual t;
	if (!locate_item(a, t) || t.head->n < 0) return;
	int n = t.n = t.head->n, b = n;
	if (a.pilot_count == 0 && a.pilot_share == 0)
		b = 0;
	else if (n >= 2)
		b = sample_size(a, t);
	if (b == n && (n < 2 || !a.replace)) {
		for (int i = threadIdx.x; i < n; i += blockDim.x) atomicOr((unsigned long long*)&t.sampled[t.residual[i] / PAGE], 1ull << t.residual[i] % PAGE);
	} else if (b > 0) {
		IndexSampler d = make_sampler(a, t, FOR_KEYS);
		for (int i = threadIdx.x; i < b; i += blockDim.x) {
			int j = t.residual[d.at(i)];
			atomicOr((unsigned long long*)&t.sampled[j / PAGE], 1ull << j % PAGE);
		}
	}
	__syncthreads();
	write_list(a, t, (float)((double)n / max_of(b, 1)));
}
