// Ranking of positions: scores, softmax, top-k and top-p. Definitions: package
// cpu, rank.go. Rows of scores are [rows, heads, width]; a row has one number
// for each position of its sequence, and every kernel stops at the row's own.
#include "best.cuh"
#include "state.cuh"

struct ScoresArgs {
	float* dst;      // [rows, heads, width]
	const float* q;  // [rows, heads, dim]
	i64 heads, width, part;
	PagedKV g;
	Plan plan;
};

enum { PART_VISIBLE, PART_MIDDLES, PART_PLANNED };

// part_weight is the weight of position j in a part of what the row at p sees, 0
// outside it.
__device__ inline float part_weight(const Plan& plan, const Entries& e, i64 part, int p, int j) {
	if (part == PART_PLANNED) return weight_of(plan, e, p, j);
	if (!sees(plan.span, p, j)) return 0;
	if (part == PART_MIDDLES && (j < plan.sink || j >= recent_of(plan, p))) return 0;
	return 1;
}

// scores: q·k/√dim + ln weight. Block (r, h, z) takes every gridDim.z-th page of
// row r for head h; a warp takes a position at a time.
KERNEL(scores, ScoresArgs, 256) {
	int row = blockIdx.x, h = blockIdx.y, dim = (int)a.g.dim;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) return;
	i64 index = (i64)row * a.heads + h;
	const float* q = a.q + index * dim;
	float* out = a.dst + index * a.width;
	Entries e = entries(a.plan.list, a.g, at, h, (int)a.heads);
	float unit = 1 / sqrtf((float)dim);
	int kv_head = h * (int)a.g.heads / (int)a.heads;
	for (int b = blockIdx.z; b <= at.p / PAGE; b += gridDim.z) {
		int page = page_of(a.g, at.slot, b);
		for (int i = warp(); i < PAGE; i += blockDim.x / WARP) {
			int j = b * PAGE + i;
			if (j > at.p || j >= a.width) break;
			float w = part_weight(a.plan, e, a.part, at.p, j), sum = 0;
			if (w != 0 && page >= 0) {
				i64 from = kv_offset(a.g, page, kv_head, i);
				for (int d = lane(); d < dim; d += WARP) sum += q[d] * load_kv(a.g.k, a.g.half, from + d);
				sum = reduce_warp(sum, Plus()) * unit;
				if (w != 1) sum += logf(w);
			}
			if (lane() == 0) out[j] = w != 0 && page >= 0 ? sum : -infinity();
		}
	}
}

struct SoftmaxArgs {
	float* dst;      // [rows, heads, width]; may be x
	const float* x;  // [rows, heads, width]
	i64 heads, width;
	PagedKV g;
};

// softmax: -Inf gives 0, a row of only -Inf gives zeros. Block (r, h) takes a row.
KERNEL(softmax, SoftmaxArgs, 512) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	i64 from = ((i64)blockIdx.x * a.heads + blockIdx.y) * a.width;
	float top = -infinity();
	for (int j = threadIdx.x; j <= at.p; j += blockDim.x) top = max_of(top, a.x[from + j]);
	top = reduce_block(top, -infinity(), Max());
	float sum = 0;
	for (int j = threadIdx.x; j <= at.p; j += blockDim.x) {
		float s = a.x[from + j], e = s > -infinity() ? expf(s - top) : 0;
		a.dst[from + j] = e;
		sum += e;
	}
	sum = reduce_block(sum, 0.0f, Plus());
	if (!(sum > 0)) return;
	for (int j = threadIdx.x; j <= at.p; j += blockDim.x) a.dst[from + j] /= sum;
}

struct HeadsArgs {
	float* dst;      // [rows, g.heads, width]
	const float* x;  // [rows, heads, width]
	i64 heads, width, most;  // most: the largest instead of the sum
	PagedKV g;
};

// join_heads adds up the heads of each kv head, or takes the largest. Block
// (r, h, z) takes part z of kv head h of row r.
KERNEL(join_heads, HeadsArgs, 256) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int run = (int)(a.heads / a.g.heads);
	const float* x = a.x + ((i64)blockIdx.x * a.heads + blockIdx.y * run) * a.width;
	float* y = a.dst + ((i64)blockIdx.x * a.g.heads + blockIdx.y) * a.width;
	for (int j = blockIdx.z * blockDim.x + threadIdx.x; j <= at.p; j += gridDim.z * blockDim.x) {
		float v = a.most ? -infinity() : 0;
		for (int h = 0; h < run; h++) {
			float s = x[h * a.width + j];
			v = !a.most ? v + s : s > v ? s : v;
		}
		y[j] = v;
	}
}

struct RankArgs {
	i32 *index, *count;  // [rows, heads, cap], [rows, heads]
	const float* scores;  // [rows, heads, width]
	i64 heads, width, cap;
	i64 k;  // of the row's position plus one, unless share is above 0
	f64 share, mass;  // mass above 0: top-p
	i64 marked;       // shared memory has a bit for each position
	PagedKV g;
};

// mark_best marks the k best of n scores, and reports whether it did: it leaves them to
// others where more than CROWD of them are about as good as the last one.
__device__ inline bool mark_best(u64* marks, const float* x, int n, int k) {
	SHARED(u32, start, BINS);
	SHARED(u64, ranks, CROWD);
	SHARED(int, edge, 1);
	for (int w = threadIdx.x; w <= (n - 1) / PAGE; w += blockDim.x) marks[w] = 0;
	if (threadIdx.x == 0) edge[0] = 0;
	Bins bins;
	auto at = [&](int j, float& s) { return (s = x[j]) > -infinity(); };
	Border border = find_border<0, 1>(0, n, (u32)k, start, bins, at);
	bool some = border.taken > k;  // of the border
	if (some && border.taken - border.above > CROWD) return false;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		float s;
		if (!at(j, s)) continue;
		int bin = bins.of(s);
		if (bin < border.bin || (bin == border.bin && !some))
			mark(marks, j);
		else if (bin == border.bin)
			ranks[atomicAdd(&edge[0], 1)] = rank_of(s, j);
	}
	__syncthreads();
	int wide = some ? border.taken - border.above : 0;
	if ((int)threadIdx.x < wide) {
		int better = 0;
		for (int i = 0; i < wide; i++) better += ranks[i] > ranks[threadIdx.x];
		if (border.above + better < k) mark(marks, place_of(ranks[threadIdx.x]));
	}
	__syncthreads();
	return true;
}

// rank lists the best positions of a row and head, in ascending order: as many
// as asked for, or as hold a share of the row's mass, which is counted in units
// of 2⁻⁴⁴ of the largest. Block (r, h) takes a row.
KERNEL(rank, RankArgs, 1024) {
	DYNAMIC_SHARED(u64, marks);
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int n = at.p + 1;
	i64 row = (i64)blockIdx.x * a.heads + blockIdx.y;
	const float* x = a.scores + row * a.width;
	u32 top = 0;
	u64 total = 0;
	for (int j = threadIdx.x; j < n; j += blockDim.x) {
		count_nan(a.g, x[j]);
		top = max_of(top, key_of(x[j]));
	}
	top = reduce_block(top, 0u, Max());
	float largest = __uint_as_float(top >> 31 ? top & 0x7fffffffu : ~top);
	auto share = [&](float s) { return (u64)(exp((double)s - (double)largest) * 0x1p44); };
	Cut<u32> cut = everything<u32>();
	if (a.mass > 0) {
		for (int j = threadIdx.x; j < n; j += blockDim.x) {
			if (key_of(x[j]) > KEY_LOWEST) total += share(x[j]);
		}
		total = reduce_block(total, (u64)0, Plus());
		cut = select<u32>(n, max_of((u64)(a.mass * (double)total), (u64)1), [&](i64 i, u32& key) {
			key = key_of(x[i]);
			return key > KEY_LOWEST ? share(x[i]) : (u64)0;
		});
	} else {
		i64 k = a.share > 0 ? (i64)floor(a.share * (double)n + 1e-9) : a.k;
		if (k <= 0) {
			if (threadIdx.x == 0) a.count[row] = 0;
			return;
		}
		if (a.marked && mark_best(marks, x, n, (int)min_of(k, (i64)n))) {
			list_marked(marks, (n - 1) / PAGE + 1, a.index + row * a.cap, a.count[row], a.cap, a.g.failure);
			return;
		}
		cut = select<u32, u32>(n, (u64)k, [&](i64 i, u32& key) {
			key = key_of(x[i]);
			return (u32)(key > KEY_LOWEST);
		});
	}
	auto real = [&](i64 i, u32& key) {
		key = key_of(x[i]);
		return key > KEY_LOWEST;
	};
	Picker<u32> start = picker(cut, n, real), in = start;
	Run r = run_of(n);
	u64 mine = 0, all;
	for (i64 i = r.lo; i < r.hi; i++) {
		u32 key;
		if (real(i, key) && in.takes(key)) mine++;
	}
	u64 to = scan_block(mine, all);
	in = start;
	for (i64 i = r.lo; i < r.hi; i++) {
		u32 key;
		if (!real(i, key) || !in.takes(key)) continue;
		if (to < (u64)a.cap) a.index[row * a.cap + to] = (i32)i;
		to++;
	}
	if (threadIdx.x == 0) {
		if (all > (u64)a.cap) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		a.count[row] = (i32)min_of(all, (u64)a.cap);
	}
}
