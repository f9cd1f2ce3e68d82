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
// An item is a head group of a row, and a thread-block cluster lists its positions in one launch
// (cluster_select.cuh says why clusters). I is a bitmap, which every block builds for itself: an
// element of R is found by its index from counts of each page, so R is never written. I and the
// pilot are scored in chunks of CHUNK_KEYS whatever the number of blocks, each chunk gives
// the moments of its exponentials, and these are merged in the order of chunks as Chan et al.
// merge variances. Blocks meet three times: for the moments, the sample, and the counts of what
// each writes.
#include "sample_residual.cuh"
#include "scores.cuh"

constexpr int RESIDUAL_THREADS = 512;
constexpr int CHUNK_KEYS = 128;                   // keys whose exponentials have moments together
constexpr int BATCH_KEYS = RESIDUAL_THREADS * 4;  // keys of a block at a time

// KeyBatch is a block's shared memory for the keys that it scores.
struct KeyBatch {
	i32 place[BATCH_KEYS];  // page of the cache · PAGE + position in it, -1 for none
	float weight[BATCH_KEYS];
	float scores[HEADS_PER_PASS][BATCH_KEYS];
};
static_assert(sizeof(KeyBatch) == 49152, "the host reckons with it");

// ChunkMoments is the moments of x·weight of a chunk for one head, where x is exp(score - top). With
// numerator, vectors [dim] follow those of all chunks: Σ x·weight·v.
struct ChunkMoments {
	f64 top;      // the largest score
	f64 sum;
	f64 squares;  // squared distances from the mean; of the pilot only
	f64 trace;    // the same of x·v, over its elements; with numerator
};

// Residual is an item, and what a block knows of it.
struct Residual {
	ReadMap i;         // I
	u64* sampled;      // [words]: bitmap of the block's part of the sample
	u32* pool_before;  // [words]: positions of R in the pages before
	u8* work;
	int n, pilot;  // positions of R, and of the pilot
	int row, head_group;

	__device__ __forceinline__ int fixed_chunks() const { return (i.n + CHUNK_KEYS - 1) / CHUNK_KEYS; }
	__device__ __forceinline__ int chunks() const { return fixed_chunks() + (pilot + CHUNK_KEYS - 1) / CHUNK_KEYS; }
	__device__ __forceinline__ ChunkMoments* moments(int head) const { return (ChunkMoments*)work + (i64)head * chunks(); }
	__device__ __forceinline__ f64* vector(i64 dim, int head, int chunk) const { return (f64*)moments(i.group_heads) + ((i64)head * chunks() + chunk) * dim; }
};

// pool_bits is page w of R: what the span shows without I (or, with pool_selected, as published
// code has it, without sinks and window only).
__device__ __forceinline__ u64 pool_bits(const ResidualArgs& a, const Residual& t, int w) {
	return map_spanned(t.i, a.plan, w) & ~(a.pool_selected ? map_edges(t.i, a.plan, w) : t.i.read[w]);
}

__device__ __forceinline__ int pool_position(const ResidualArgs& a, const Residual& t, int r) {
	return nth_position(t.pool_before, t.i.words, r, [&](int w) { return pool_bits(a, t, w); });
}

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
	d.address = sampler_address(a, t.i.at, t.head_group, purpose);
	d.n = (u32)t.n;
	d.replace = a.replace;
	if (!d.replace) d.shuffle = shuffle_of(d.address, d.n);
	return d;
}

// build_residual finds I and R of an item. All threads call it.
__device__ inline void build_residual(const ResidualArgs& a, Residual& t) {
	for (int w = threadIdx.x; w < t.i.words; w += blockDim.x) t.sampled[w] = 0;
	build_map(t.i, a.plan, a.g, a.heads);
	t.i.n = count_pages(t.i.before, t.i.words, [&](int w) { return t.i.read[w]; });
	t.n = count_pages(t.pool_before, t.i.words, [&](int w) { return pool_bits(a, t, w); });
}

// place_keys finds the keys of a batch: those of `count` chunks from chunk `first` on. Without
// fresh_pilot those of the pilot are sampled, too, so that they are read once. All threads call it.
__device__ inline void place_keys(const ResidualArgs& a, const Residual& t, KeyBatch& batch, const IndexSampler& d, int first, int count) {
	int fixed_chunks = t.fixed_chunks();
	for (int i = threadIdx.x; i < count * CHUNK_KEYS; i += blockDim.x) {
		int k = first * CHUNK_KEYS + i, j = -1;
		bool fixed = k < fixed_chunks * CHUNK_KEYS;
		if (!fixed) k -= fixed_chunks * CHUNK_KEYS;
		if (fixed && k < t.i.n) j = t.i.nth(k);
		if (!fixed && k < t.pilot) j = pool_position(a, t, (int)d.at((u32)k));
		if (!fixed && j >= 0 && !a.fresh_pilot) set_bits(t.sampled, j / PAGE, 1ull << j % PAGE);
		batch.place[i] = j < 0 ? -1 : t.i.place(a.g, j);
		batch.weight[i] = fixed && j >= 0 ? read_weight(t.i, a.plan, a.g, a.heads, j) : 1;
	}
	__syncthreads();
}

// sum_chunk makes the moments of chunk c of a batch for its head u. All lanes of a warp call it.
__device__ inline ChunkMoments sum_chunk(const KeyBatch& batch, int c, int u, bool pilot) {
	constexpr int EACH_LANE = CHUNK_KEYS / WARP;
	const float* scores = batch.scores[u];
	double x[EACH_LANE], sum = 0, squares = 0;
	float top = -infinity();
	int there = 0;
	for (int i = 0; i < EACH_LANE; i++) {
		int k = c * CHUNK_KEYS + i * WARP + lane();
		if (batch.place[k] >= 0) top = max_of(top, scores[k]);
		there += batch.place[k] >= 0;
	}
	top = reduce_warp(top, Max());
	for (int i = 0; i < EACH_LANE; i++) {
		int k = c * CHUNK_KEYS + i * WARP + lane();
		x[i] = batch.place[k] >= 0 && scores[k] > -infinity() ? (double)(expf(scores[k] - top) * batch.weight[k]) : 0;
		sum += x[i];
	}
	sum = reduce_warp(sum, Plus());
	if (pilot) {
		double mean = sum / reduce_warp(there, Plus());
		for (int i = 0; i < EACH_LANE; i++) {
			bool in = batch.place[c * CHUNK_KEYS + i * WARP + lane()] >= 0;
			squares += in ? (x[i] - mean) * (x[i] - mean) : 0;
		}
		squares = reduce_warp(squares, Plus());
	}
	ChunkMoments sums = {(double)top, sum, squares, 0};
	return sums;
}

// sum_values makes the numerator's moments of chunk c of a batch for its head u. All lanes of a
// warp call it.
__device__ inline void sum_values(const ResidualArgs& a, const Residual& t, const KeyBatch& batch, int c, int u, float top, bool pilot, f64* vector, f64* trace) {
	int dim = (int)a.g.dim, keys = 0;
	auto x = [&](int k) { return batch.scores[u][k] > -infinity() ? (double)(expf(batch.scores[u][k] - top) * batch.weight[k]) : 0; };
	auto each = [&](int e, auto take) {
		for (int k = c * CHUNK_KEYS; k < (c + 1) * CHUNK_KEYS && batch.place[k] >= 0; k++) take(x(k) * (double)load_kv(a.g.v, a.g.half, t.i.offset(a.g, batch.place[k]) + e));
	};
	double distances = 0;
	for (int e = lane(); e < dim; e += WARP) {
		double sum = 0;
		keys = 0;
		each(e, [&](double v) {
			sum += v;
			keys++;
		});
		vector[e] = sum;
		if (pilot) each(e, [&](double v) { distances += (v - sum / keys) * (v - sum / keys); });
	}
	distances = reduce_warp(distances, Plus());
	if (lane() == 0) *trace = distances;
}

// score_chunks writes the moments of the block's chunks, for HEADS_PER_PASS heads at a time. Bound
// by reading |I| + b0 keys, of which those of the pilot lie at random.
__device__ inline void score_chunks(const ResidualArgs& a, const Residual& t, KeyBatch& batch, const ClusterBlock& c) {
	int all = t.chunks(), each = (all + c.size - 1) / c.size, lo = min_of(c.rank * each, all), hi = min_of(lo + each, all);
	float unit = 1 / sqrtf((float)a.g.dim);
	IndexSampler d = make_sampler(a, t, a.fresh_pilot ? FOR_PILOT : FOR_KEYS);
	for (int first = lo; first < hi; first += BATCH_KEYS / CHUNK_KEYS) {
		int count = min_of(hi - first, BATCH_KEYS / CHUNK_KEYS);
		place_keys(a, t, batch, d, first, count);
		for (int h = 0; h < t.i.group_heads; h += HEADS_PER_PASS) {
			int heads = min_of(HEADS_PER_PASS, t.i.group_heads - h);
			const float* q = a.q + ((i64)t.row * a.heads + t.head_group * t.i.group_heads + h) * a.g.dim;
			auto put = [&](int u, int i, float sum) {
				if (batch.place[i] < 0) return;
				sum *= unit;
				count_nan(a.g, sum);
				batch.scores[u][i] = sum;
			};
			score_any(a.g, count * CHUNK_KEYS, q, heads, [&](int i) { return batch.place[i] >= 0; }, [&](int i) { return t.i.offset(a.g, batch.place[i]); }, put);
			__syncthreads();
			for (int i = warp(); i < count * heads; i += (int)blockDim.x / WARP) {
				int chunk = first + i / heads, u = i % heads;
				bool pilot = chunk >= t.fixed_chunks();
				ChunkMoments sums = sum_chunk(batch, i / heads, u, pilot);
				ChunkMoments* to = t.moments(h + u) + chunk;
				if (lane() == 0) *to = sums;
				__syncwarp();
				if (a.numerator) sum_values(a, t, batch, i / heads, u, (float)sums.top, pilot, t.vector(a.g.dim, h + u, chunk), &to->trace);
			}
			__syncthreads();
		}
	}
}

// chunk_scale is what a chunk's moments are multiplied by where the largest score is top, and
// pilot_keys the keys of the pilot in a chunk.
__device__ __forceinline__ double chunk_scale(double chunk_top, double top) { return chunk_top > -(double)infinity() ? exp(chunk_top - top) : 0; }
__device__ __forceinline__ int pilot_keys(const Residual& t, int chunk) { return min_of(CHUNK_KEYS, t.pilot - (chunk - t.fixed_chunks()) * CHUNK_KEYS); }

// numerator_spread is the numerator's part of the bound: the norm of the estimate of Σ x_i·v_i,
// and the trace of the sample covariance of x_i·v_i over the pilot. All threads call it.
__device__ inline void numerator_spread(const ResidualArgs& a, const Residual& t, int u, double top, double& norm, double& trace) {
	const ChunkMoments* sums = t.moments(u);
	int dim = (int)a.g.dim, fixed_chunks = t.fixed_chunks(), chunks = t.chunks();
	auto scale = [&](int c) { return chunk_scale(load_peer(&sums[c].top), top); };
	norm = trace = 0;
	for (int e = threadIdx.x; e < dim; e += blockDim.x) {
		double mean = 0, total = 0;
		for (int c = 0; c < chunks; c++) (c < fixed_chunks ? total : mean) += scale(c) * load_peer(t.vector(dim, u, c) + e);
		mean /= t.pilot;
		for (int c = fixed_chunks; c < chunks; c++) {
			double distance = scale(c) * load_peer(t.vector(dim, u, c) + e) / pilot_keys(t, c) - mean;
			trace += pilot_keys(t, c) * distance * distance;
		}
		total += t.n * mean;
		norm += total * total;
	}
	for (int c = fixed_chunks + threadIdx.x; c < chunks; c += blockDim.x) trace += scale(c) * scale(c) * load_peer(&sums[c].trace);
	norm = sqrt(reduce_block(norm, 0.0, Plus()));
	trace = reduce_block(trace, 0.0, Plus()) / (t.pilot - 1);
}

// relative_spread is n·σ/D of head u, top its largest score. All lanes of a warp call it.
__device__ inline double relative_spread(const Residual& t, int u, double& top) {
	const ChunkMoments* sums = t.moments(u);
	int fixed_chunks = t.fixed_chunks(), chunks = t.chunks();
	double sum = 0, mean = 0, variance = 0;
	top = -(double)infinity();
	for (int c = lane(); c < chunks; c += WARP) top = max_of(top, load_peer(&sums[c].top));
	top = reduce_warp(top, Max());
	for (int c = lane(); c < chunks; c += WARP) {
		ChunkMoments of = load_peer(&sums[c]);
		(c < fixed_chunks ? sum : mean) += chunk_scale(of.top, top) * of.sum;
	}
	mean = reduce_warp(mean, Plus()) / t.pilot;
	sum = reduce_warp(sum, Plus()) + t.n * mean;
	for (int c = fixed_chunks + lane(); c < chunks; c += WARP) {
		ChunkMoments of = load_peer(&sums[c]);
		double scale = chunk_scale(of.top, top), distance = scale * of.sum / pilot_keys(t, c) - mean;
		variance += scale * scale * of.squares + pilot_keys(t, c) * distance * distance;
	}
	variance = reduce_warp(variance, Plus()) / (t.pilot - 1);
	return t.n * sqrt(variance) / sum;
}

// sample_size is the largest b that a head of the group needs, NaN counting as all of R. All
// threads call it.
__device__ inline int sample_size(const ResidualArgs& a, const Residual& t) {
	double want = 0;
	for (int first = 0; first < t.i.group_heads; first += WARP) {
		SHARED(double, spreads, WARP);
		SHARED(double, tops, WARP);
		int heads = min_of(WARP, t.i.group_heads - first);
		__syncthreads();
		for (int u = warp(); u < heads; u += (int)blockDim.x / WARP) {
			double top, spread = relative_spread(t, first + u, top);
			if (lane() > 0) continue;
			spreads[u] = spread;
			tops[u] = top;
		}
		__syncthreads();
		for (int u = 0; u < heads; u++) {
			double spread = spreads[u];
			if (a.numerator) {
				double norm, trace;
				numerator_spread(a, t, first + u, tops[u], norm, trace);
				spread += t.n * sqrt(trace) / norm;
			}
			double x = required_samples(a, t.n, spread);
			if (x > want || x != x) want = x;
		}
	}
	return budget(want, t.n, t.pilot);
}

// locate_item finds an item and the memory of its bitmaps; false if its row is skipped. The host
// reckons the same layout.
__device__ inline bool locate_item(const ResidualArgs& a, Residual& t, const ClusterBlock& c, void* shared) {
	i64 item = a.first + blockIdx.x;
	t.row = (int)(item / a.head_groups);
	t.head_group = (int)(item % a.head_groups);
	int group_heads = (int)(a.heads / a.head_groups);
	t.i.group_heads = group_heads;
	t.i.head = t.head_group * group_heads;
	t.i.kv_head = t.i.head * (int)a.g.heads / (int)a.heads;
	t.i.at = row_position(a.g, t.row);
	t.i.words = t.i.at.p / PAGE + 1;
	t.i.n = t.n = t.pilot = 0;
	t.work = a.work + blockIdx.x * a.item;
	u8* maps = a.maps > 0 ? t.work + c.rank * a.maps : (u8*)shared;
	if (a.maps > 0) t.work += c.size * a.maps;
	t.i.read = (u64*)maps;
	t.sampled = t.i.read + a.g.width;
	t.i.before = (u32*)(t.sampled + a.g.width);
	t.pool_before = t.i.before + a.g.width;
	return t.i.at.p >= 0;
}

// merge_sample makes the words lo to hi-1 of the block's bitmap the sample of all blocks.
__device__ inline void merge_sample(const ResidualArgs& a, const Residual& t, const ClusterBlock& c, int lo, int hi) {
	u32* mine = (u32*)t.sampled;
	for (int i = 2 * lo + threadIdx.x; i < 2 * hi; i += blockDim.x) {
		u32 all = 0;
		if (a.maps > 0) {
			for (int r = 0; r < c.size; r++) all |= load_peer((const u32*)((u8*)(mine + i) + (r - c.rank) * a.maps));
		} else {
			u32 v[MAX_CLUSTER];
			c.peers(v, mine + i);
			for (int r = 0; r < MAX_CLUSTER; r++) all |= v[r];
		}
		mine[i] = all;
	}
	__syncthreads();
}

// write_list lists I between sinks and window with its weights and the sample with weight `each`,
// ascending. A position in both keeps its own weight. The block lists pages lo to hi-1.
__device__ inline void write_list(const ResidualArgs& a, const Residual& t, const ClusterBlock& c, int lo, int hi, float each) {
	SHARED(u32, listed, 1);
	constexpr int HALF = PAGE / 2;
	i64 list = (i64)t.row * a.head_groups + t.head_group;
	auto fixed = [&](int half) { return (u32)((t.i.read[half / 2] & ~map_edges(t.i, a.plan, half / 2)) >> half % 2 * HALF); };
	const u32* sampled = (const u32*)t.sampled;
	ThreadRange r = thread_range(2 * (hi - lo));
	u32 mine = 0, total;
	for (int h = 2 * lo + (int)r.lo; h < 2 * lo + (int)r.hi; h++) mine += __popc(fixed(h) | sampled[h]);
	u32 before = scan_block(mine, total);
	if (threadIdx.x == 0) listed[0] = total;
	c.sync();
	i64 to = list * a.cap + c.before(listed) + before;
	for (int h = 2 * lo + (int)r.lo; h < 2 * lo + (int)r.hi; h++) {
		u32 own = fixed(h);
		for (u32 bits = own | sampled[h]; bits; bits &= bits - 1, to++) {
			int i = __ffs((int)bits) - 1, j = h * HALF + i;
			a.index[to] = j;
			a.weight[to] = own >> i & 1 ? read_weight(t.i, a.plan, a.g, a.heads, j) : each;
		}
	}
	if (threadIdx.x == 0 && c.rank == 0) a.count[list] = (i32)c.sum(listed);
	c.sync();  // peers have read the count
}

// residual_sample (sample) lists what a head group of a row reads. Without a pilot there is no
// sample; where b reaches n without replacement, and with eps 0, R is listed whole. With z 0 the
// sample is the pilot, and no key is read. Grid: (item, 1, block of the cluster). Bound by reading
// the keys of I and the pilot, and the latency of four barriers.
KERNEL_1_PER_SM(residual_sample, ResidualArgs, RESIDUAL_THREADS) {
	DYNAMIC_SHARED(KeyBatch, shared);
	pdl_trigger();
	Residual t;
	ClusterBlock c = this_block();
	bool sampling = a.pilot_count > 0 || a.pilot_share > 0, scoring = sampling && a.eps > 0 && a.z > 0;
	bool there = locate_item(a, t, c, scoring ? shared + 1 : shared);
	pdl_wait();
	if (!there) return;
	if (t.i.at.p >= a.cap) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_LIST, a.cap, 0, 0);
		return;
	}
	if (!page_table_valid(a.g, t.i.at.slot, t.i.at.p)) return;
	build_residual(a, t);
	int b = 0, drawn = 0;
	if (sampling && t.n < 2) b = t.n;
	if (sampling && t.n >= 2) {
		b = t.pilot = pilot_size(a, t.n);
		if (!(a.eps > 0)) b = t.n;
	}
	if (scoring && t.n >= 2) {
		score_chunks(a, t, *shared, c);
		c.sync();
		b = sample_size(a, t);
		if (!a.fresh_pilot) drawn = t.pilot;
	}
	int each = (t.i.words + c.size - 1) / c.size, lo = min_of(c.rank * each, t.i.words), hi = min_of(lo + each, t.i.words);
	if (b == t.n && (t.n < 2 || !a.replace)) {
		for (int w = lo + threadIdx.x; w < hi; w += blockDim.x) t.sampled[w] = pool_bits(a, t, w);
	} else if (b > drawn) {
		IndexSampler d = make_sampler(a, t, FOR_KEYS);
		for (int i = drawn + c.rank * (int)blockDim.x + threadIdx.x; i < b; i += c.size * (int)blockDim.x) {
			int j = pool_position(a, t, (int)d.at((u32)i));
			set_bits(t.sampled, j / PAGE, 1ull << j % PAGE);
		}
	}
	c.sync();
	merge_sample(a, t, c, lo, hi);
	write_list(a, t, c, lo, hi, (float)((double)t.n / max_of(b, 1)));
}
