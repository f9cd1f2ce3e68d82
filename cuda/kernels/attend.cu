// Attention over a paged KV cache for every plan, type and shape: append, RoPE with append,
// and attend in f32 on CUDA cores. Reference: package cpu, attend.go. The tensor core kernels
// of common shapes (decode.cuh, flash.cu, flash_wgmma.cu) are tested against attend.
#include "dequant.cuh"
#include "state.cuh"

struct AppendArgs {
	PagedKV g;
	const float *k, *v;  // [rows, heads, dim]
};

// append: stores k and v of row blockIdx.x in the page of its position. Grid (rows).
KERNEL(append, AppendArgs, 128) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int page = page_of(a.g, at.slot, at.p / PAGE);
	if (page < 0) return;
	for (i64 i = threadIdx.x; i < a.g.heads * a.g.dim; i += blockDim.x) {
		i64 to = kv_offset(a.g, page, (int)(i / a.g.dim), at.p % PAGE) + i % a.g.dim;
		i64 from = blockIdx.x * a.g.heads * a.g.dim + i;
		if (a.g.half) {
			((u16*)a.g.k)[to] = to_half(a.k[from]);
			((u16*)a.g.v)[to] = to_half(a.v[from]);
		} else {
			((float*)a.g.k)[to] = a.k[from];
			((float*)a.g.v)[to] = a.v[from];
		}
	}
}

// HeadArgs is what happens to the heads of q, k and v before RoPE: a bias is added, and heads of q
// and k are normalized. NULL: not.
struct HeadArgs {
	const float* bias[3];  // of q, k, v: [heads, dim]
	const float* norm[2];  // of q and k, or of neither: [dim]
	f64 eps;
};

struct RopeAppendArgs {
	PagedKV g;
	float *q, *k, *v;  // [rows, heads, dim], [rows, g.heads, dim] twice
	const i32* pos;    // [rows]
	const float* freqs;  // [pairs]
	f64 scale;
	i64 heads, pairs, interleaved;
	HeadArgs before;
};

constexpr int ROPE_BLOCK_HEADS = 4;  // heads per block of rope_append, one a warp

// rope_append: bias and norm of heads, RoPE of q and k, and append of k and v, fused. Grid (rows,
// heads / 4), over the heads of q, then k, then v. An early launch: positions and page tables are
// written by the host, so sincos in f64 is computed before pdl_wait.
KERNEL(rope_append, RopeAppendArgs, 128) {
	SHARED(float, scales, ROPE_BLOCK_HEADS);  // of the norm of each head
	pdl_trigger();
	int r = blockIdx.x, dim = (int)a.g.dim, heads = (int)a.heads, of = (int)a.g.heads, pairs = (int)a.pairs;
	int lo = blockIdx.y * ROPE_BLOCK_HEADS, hi = min_of(lo + ROPE_BLOCK_HEADS, heads + 2 * of);
	RowPosition at = row_position(a.g, r);
	int page = at.p < 0 || hi <= heads ? -1 : page_of(a.g, at.slot, at.p / PAGE);
	float sine = 0, cosine = 0;
	auto turn = [&](int i) {
		double s, c;
		sincos((double)a.pos[r] * (double)a.freqs[i], &s, &c);
		sine = (float)(s * a.scale);
		cosine = (float)(c * a.scale);
	};
	if ((int)threadIdx.x < pairs && lo < heads + of) turn(threadIdx.x);
	pdl_wait();
	// Head h of the block is head(h) of q, k or v, and its elements are row(h).
	auto role = [&](int h) { return h < heads ? 0 : h < heads + of ? 1 : 2; };
	auto head = [&](int h) { return role(h) == 0 ? h : role(h) == 1 ? h - heads : h - heads - of; };
	auto row = [&](int h) { return (role(h) == 0 ? a.q : role(h) == 1 ? a.k : a.v) + ((i64)r * (role(h) == 0 ? heads : of) + head(h)) * dim; };
	auto biased = [&](int h, int d) {
		const float* bias = a.before.bias[role(h)];
		return row(h)[d] + (bias ? bias[head(h) * dim + d] : 0);
	};
	if (a.before.norm[0]) {
		int h = lo + warp();
		float sum = 0;
		for (int d = lane(); d < dim && h < min_of(hi, heads + of); d += WARP) sum += biased(h, d) * biased(h, d);
		sum = reduce_warp(sum, Plus());
		if (lane() == 0) scales[warp()] = 1 / sqrtf(sum / (float)dim + (float)a.before.eps);
		__syncthreads();
	}
	auto value = [&](int h, int d) {
		float v = biased(h, d);
		return role(h) < 2 && a.before.norm[0] ? v * scales[h - lo] * a.before.norm[role(h)][d] : v;
	};
	auto store = [&](int h, int d, float v) {
		if (role(h) < 2 || a.before.bias[2]) row(h)[d] = v;
		if (role(h) == 0 || page < 0) return;
		void* cache = role(h) == 1 ? a.g.k : a.g.v;
		i64 to = kv_offset(a.g, page, head(h), at.p % PAGE) + d;
		if (a.g.half)
			((u16*)cache)[to] = to_half(v);
		else
			((float*)cache)[to] = v;
	};
	for (int i = threadIdx.x; i < pairs && lo < heads + of; i += blockDim.x) {
		if (i != (int)threadIdx.x) turn(i);
		int one = a.interleaved ? 2 * i : i, two = a.interleaved ? 2 * i + 1 : i + pairs;
		for (int h = lo; h < min_of(hi, heads + of); h++) {
			float u = value(h, one), v = value(h, two);
			store(h, one, u * cosine - v * sine);
			store(h, two, u * sine + v * cosine);
		}
	}
	for (int h = lo; h < hi; h++) {
		for (int d = (role(h) < 2 ? 2 * pairs : 0) + threadIdx.x; d < dim; d += blockDim.x) store(h, d, value(h, d));
	}
}

constexpr int ROPE_ROWS = 4, ROPE_PAIRS = 64;  // per block of rope_append_many

// add_bias adds 4 elements of a bias.
__device__ __forceinline__ void add_bias(float x[4], const float* bias) {
	float b[4];
	load_float4(b, bias);
	for (int e = 0; e < 4; e++) x[e] += b[e];
}

// norm_head normalizes a head of which each of n lanes has 8 elements, at d and at d + next.
__device__ __forceinline__ void norm_head(float lo[4], float hi[4], const float* norm, int d, int next, int n, float eps) {
	float sum = 0, w[4], u[4];
	for (int e = 0; e < 4; e++) sum += lo[e] * lo[e] + hi[e] * hi[e];
	for (int m = n / 2; m > 0; m /= 2) sum += __shfl_xor_sync(FULL_MASK, sum, m);
	float scale = 1 / sqrtf(sum / (float)(8 * n) + eps);
	load_float4(w, norm + d);
	load_float4(u, norm + d + next);
	for (int e = 0; e < 4; e++) {
		lo[e] *= scale * w[e];
		hi[e] *= scale * u[e];
	}
}

// rope_append_many: rope_append for prefill, where the whole head is rotated and the cache is
// f16. Grid (rows / 4); sines and cosines are computed once per row in shared memory, and
// global accesses are 128 bits wide. Bound by memory. With a norm, heads do not share lanes.
KERNEL(rope_append_many, RopeAppendArgs, 256) {
	SHARED(float, sines, ROPE_ROWS * ROPE_PAIRS);
	SHARED(float, cosines, ROPE_ROWS * ROPE_PAIRS);
	int dim = (int)a.g.dim, heads = (int)a.heads, of = (int)a.g.heads, pairs = (int)a.pairs, first = blockIdx.x * ROPE_ROWS;
	int rows = min_of(ROPE_ROWS, (int)(a.g.rows * a.g.slots) - first);
	for (int i = threadIdx.x; i < rows * pairs; i += blockDim.x) {
		double sine, cosine;
		sincos((double)a.pos[first + i / pairs] * (double)a.freqs[i % pairs], &sine, &cosine);
		sines[i] = (float)(sine * a.scale);
		cosines[i] = (float)(cosine * a.scale);
	}
	__syncthreads();
	// 8 elements a thread: 4 pairs of q or k, or 8 elements of v.
	int each = dim / 8, rotated = (heads + of) * each, all = rotated + of * each;
	for (int r = 0; r < rows; r++) {
		RowPosition at = row_position(a.g, first + r);
		int page = at.p < 0 ? -1 : page_of(a.g, at.slot, at.p / PAGE);
		for (int i = threadIdx.x; i < all; i += blockDim.x) {
			int h = i / each, d = i % each * 8, next = 4;
			float lo[4], hi[4];
			if (i >= rotated) {
				h -= heads + of;
				float* from = a.v + ((i64)(first + r) * of + h) * dim + d;
				load_float4(lo, from);
				load_float4(hi, from + 4);
				if (a.before.bias[2]) {
					add_bias(lo, a.before.bias[2] + h * dim + d);
					add_bias(hi, a.before.bias[2] + h * dim + d + 4);
					store_float4(from, lo);
					store_float4(from + 4, hi);
				}
				if (page >= 0) *(Word4*)((u16*)a.g.v + kv_offset(a.g, page, h, at.p % PAGE) + d) = {{pack_half(lo[0], lo[1]), pack_half(lo[2], lo[3]), pack_half(hi[0], hi[1]), pack_half(hi[2], hi[3])}};
				continue;
			}
			const float *s = sines + r * pairs + d / 2, *c = cosines + r * pairs + d / 2;
			if (!a.interleaved) {
				d /= 2;
				next = pairs;
			}
			float* x = (h < heads ? a.q + ((i64)(first + r) * heads + h) * dim : a.k + ((i64)(first + r) * of + h - heads) * dim) + d;
			load_float4(lo, x);
			load_float4(hi, x + next);
			int role = h < heads ? 0 : 1;
			if (a.before.bias[role]) {
				const float* bias = a.before.bias[role] + (h - role * heads) * dim + d;
				add_bias(lo, bias);
				add_bias(hi, bias + next);
			}
			if (a.before.norm[role]) norm_head(lo, hi, a.before.norm[role], d, next, each, (float)a.before.eps);
			bool mixed = a.interleaved;
			float y[4], z[4];
#pragma unroll
			for (int e = 0; e < 4; e++) {
				float u = mixed ? (e < 2 ? lo : hi)[e % 2 * 2] : lo[e], v = mixed ? (e < 2 ? lo : hi)[e % 2 * 2 + 1] : hi[e];
				y[e] = u * c[e] - v * s[e];
				z[e] = u * s[e] + v * c[e];
			}
#pragma unroll
			for (int e = 0; e < 4; e++) {
				lo[e] = mixed ? (e % 2 ? z : y)[e / 2] : y[e];
				hi[e] = mixed ? (e % 2 ? z : y)[e / 2 + 2] : z[e];
			}
			store_float4(x, lo);
			store_float4(x + next, hi);
			if (h < heads || page < 0) continue;
			u16* to = (u16*)a.g.k + kv_offset(a.g, page, h - heads, at.p % PAGE) + d;
			*(u64*)to = pack_half(lo[0], lo[1]) | (u64)pack_half(lo[2], lo[3]) << 32;
			*(u64*)(to + next) = pack_half(hi[0], hi[1]) | (u64)pack_half(hi[2], hi[3]) << 32;
		}
	}
}

struct AttendArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	float* parts;    // [rows, heads, splits, dim + 2]: split-K partial results and their states; unused if splits is 1
	i64 heads, splits;
	i64 keep_whole;  // rows whose list leaves nothing out have their result in dst
	PagedKV g;
	Plan plan;
};

constexpr int ATTEND_WARPS = 4;
constexpr int MAX_DIM = 512;

// RowState is the online softmax of one head of one query row in one warp. A warp adds tiles
// of 64 positions; lane i scores positions i and i+32, and owns every 32nd pair of elements of
// the output.
struct RowState {
	const AttendArgs& a;
	const Plan& plan;
	RowPosition at;
	int kv_head;
	const float* q;  // [dim], times log2(e)/√dim, in shared memory
	float* p;        // [64] of this warp, in shared memory
	i64* where;      // [64] of the warp, in shared memory: elements of the cache, -1 for none
	SoftmaxState s;
	float acc[MAX_DIM / WARP];
};

// dot_key is q·k for the key at element from of the cache.
__device__ inline float dot_key(const PagedKV& g, const float* q, i64 from) {
	int dim = (int)g.dim;
	float sum = 0;
	if (!g.half || dim % 8) {
		for (int i = 0; i < dim; i++) sum += q[i] * load_kv(g.k, g.half, from + i);
		return sum;
	}
#pragma unroll 4
	for (int i = 0; i < dim; i += 8) {
		Word4 k = load16((const u16*)g.k + from + i);
		for (int j = 0; j < 4; j++) sum += q[i + 2 * j] * from_half((u16)k.w[j]) + q[i + 2 * j + 1] * from_half((u16)(k.w[j] >> 16));
	}
	return sum;
}

// Pair is two neighbouring elements of the cache; zero beyond the end of an odd dimension.
struct Pair {
	float x, y;
};

__device__ inline Pair load_pair(const void* cache, i64 half, i64 i, int left, bool odd) {
	if (odd) return {load_kv(cache, half, i), left > 1 ? load_kv(cache, half, i + 1) : 0};
	if (!half) return {((const float*)cache)[i], ((const float*)cache)[i + 1]};
	u32 v = *(const u32*)((const u16*)cache + i);
	return {from_half((u16)v), from_half((u16)(v >> 16))};
}

// add_tile adds 64 positions: lane i passes offsets and weights of positions i and i+32. A
// negative offset is no position.
__device__ inline void add_tile(RowState& r, const i64 place[2], const float weight[2]) {
	const AttendArgs& a = r.a;
	int dim = (int)a.g.dim;
	bool mixture = a.plan.mixture;
	float score[2];
	for (int u = 0; u < 2; u++) {
		score[u] = -infinity();
		if (place[u] < 0 || mixture) continue;
		float sum = dot_key(a.g, r.q, place[u]);
		score[u] = weight[u] == 1 ? sum : sum + log2f(weight[u]);
		if (!(weight[u] > 0)) score[u] = -infinity();
	}
	float scale = 1;
	if (!mixture) {
		float top = reduce_warp(max_of(score[0], score[1]), Max());
		top = max_of(top, r.s.max);
		scale = rescale(r.s.max, top);
		r.s.max = top;
	}
	float sum = 0;
	__syncwarp();
	for (int u = 0; u < 2; u++) {
		float p = mixture ? (place[u] < 0 ? 0 : weight[u]) : exp2f(score[u] - r.s.max);
		r.p[lane() + u * WARP] = p;
		r.where[lane() + u * WARP] = place[u];
		sum += p;
	}
	__syncwarp();
	r.s.sum = r.s.sum * scale + reduce_warp(sum, Plus());
#pragma unroll
	for (int u = 0; u < MAX_DIM / WARP; u += 2) {
		int d = lane() * 2 + u * WARP;
		if (d >= dim) break;
		float x = r.acc[u] * scale, y = r.acc[u + 1] * scale;
#pragma unroll 8
		for (int i = 0; i < PAGE; i++) {
			i64 at = r.where[i];
			if (at < 0) continue;
			Pair v = load_pair(a.g.v, a.g.half, at + d, dim - d, dim % 2);
			x += r.p[i] * v.x;
			y += r.p[i] * v.y;
		}
		r.acc[u] = x;
		r.acc[u + 1] = y;
	}
}

// add_page adds block b of the slot as far as the row sees it; listed is the weight that the
// list gives it.
__device__ inline void add_page(RowState& r, int b, float listed) {
	const AttendArgs& a = r.a;
	int page = page_of(a.g, r.at.slot, b);
	if (page < 0) return;
	i64 where[2];
	float weight[2];
	for (int u = 0; u < 2; u++) {
		int i = lane() + u * WARP, j = b * PAGE + i;
		where[u] = -1;
		weight[u] = 1;
		if (!sees(r.plan.span, r.at.p, j)) continue;
		if (!in_sinks_or_window(r.plan, r.at.p, j)) {
			if (listed == 0) continue;
			weight[u] = listed;
		}
		where[u] = kv_offset(a.g, page, r.kv_head, i);
	}
	if (__any_sync(FULL_MASK, where[0] >= 0 || where[1] >= 0)) add_tile(r, where, weight);
}

// add_entries adds entries lo to lo+63 of a position list.
__device__ inline void add_entries(RowState& r, const Entries& e, int lo) {
	const AttendArgs& a = r.a;
	i64 where[2];
	float weight[2];
	for (int u = 0; u < 2; u++) {
		int i = lo + lane() + u * WARP;
		where[u] = -1;
		weight[u] = 1;
		if (i >= e.n) continue;
		int j = e.index[i];
		if (j < 0 || !sees(r.plan.span, r.at.p, j) || in_sinks_or_window(r.plan, r.at.p, j)) continue;
		int page = page_of(a.g, r.at.slot, j / PAGE);
		if (page < 0) continue;
		if (e.weight) weight[u] = e.weight[i];
		where[u] = kv_offset(a.g, page, r.kv_head, j % PAGE);
	}
	if (__any_sync(FULL_MASK, where[0] >= 0 || where[1] >= 0)) add_tile(r, where, weight);
}

// tiles_per_split is how many of n tiles a split takes: at least one for each warp, so that
// short rows use fewer splits.
__device__ inline int tiles_per_split(int n, int splits) { return splits == 1 ? n : max_of((n + splits - 1) / splits, ATTEND_WARPS); }

// attend: grid (rows, heads, splits), 4 warps. Split-K flash attention of one row and head:
// warps take tiles round-robin, their states are merged in the order of warps, and
// attend_merge merges the splits. Bound by reading K and V, once per query head.
KERNEL(attend, AttendArgs, ATTEND_WARPS * WARP) {
	SHARED(float, q, MAX_DIM);
	SHARED(float, p, ATTEND_WARPS * PAGE);
	SHARED(i64, where, ATTEND_WARPS * PAGE);
	SHARED(SoftmaxState, states, ATTEND_WARPS);
	SHARED(float, accs, ATTEND_WARPS * MAX_DIM);
	int row = blockIdx.x, h = blockIdx.y, split = blockIdx.z, dim = (int)a.g.dim;
	RowPosition at = row_position(a.g, row);
	if (at.p < 0) return;
	i64 index = (i64)row * a.heads + h;
	float unit = 1.4426950408889634f / sqrtf((float)dim);
	for (int i = threadIdx.x; i < dim; i += blockDim.x) q[i] = a.q[index * dim + i] * unit;
	__syncthreads();

	Plan plan = a.plan;
	RowState r = {a, plan, at, h * (int)a.g.heads / (int)a.heads, q, p + warp() * PAGE, where + warp() * PAGE, {EMPTY_MAX, 0}, {}};
	for (int u = 0; u < MAX_DIM / WARP; u++) r.acc[u] = 0;
	Entries e = entries(a.plan.list, a.g, at, h, (int)a.heads);
	if (selects_all(plan, e, at.p)) {
		if (a.keep_whole) return;
		plan.selected = SELECTED_ALL;
	}
	FixedPages edges = fixed_pages(plan, at.p);
	int pages = at.p / PAGE + 1, each = tiles_per_split(pages, (int)a.splits);
	int end = min_of((split + 1) * each, pages);
	for (int b = split * each + warp(); b < end; b += ATTEND_WARPS) {
		float listed = plan.selected == SELECTED_BLOCKS ? weight_of(e, b) : 0;
		if (listed != 0 || b < edges.head || b >= edges.tail) add_page(r, b, listed);
	}
	if (plan.selected == SELECTED_TOKENS) {
		int tiles = (e.n + PAGE - 1) / PAGE;
		each = tiles_per_split(tiles, (int)a.splits);
		end = min_of((split + 1) * each, tiles);
		for (int i = split * each + warp(); i < end; i += ATTEND_WARPS) add_entries(r, e, i * PAGE);
	}

	if (lane() == 0) states[warp()] = r.s;
#pragma unroll
	for (int u = 0; u < MAX_DIM / WARP; u += 2) {
		int d = lane() * 2 + u * WARP;
		if (d >= dim) break;
		accs[warp() * MAX_DIM + d] = r.acc[u];
		accs[warp() * MAX_DIM + d + 1] = r.acc[u + 1];
	}
	__syncthreads();
	bool mixture = a.plan.mixture;
	float top = EMPTY_MAX, sum = 0;
	for (int w = 0; w < ATTEND_WARPS; w++) top = max_of(top, states[w].max);
	for (int w = 0; w < ATTEND_WARPS; w++) sum += states[w].sum * rescale(states[w].max, top);
	float scale = a.splits == 1 ? normalizer(sum, mixture) : 1;
	float* out = a.splits == 1 ? a.dst + index * dim : a.parts + (index * a.splits + split) * (dim + 2);
	for (int d = threadIdx.x; d < dim; d += blockDim.x) {
		float y = 0;
		for (int w = 0; w < ATTEND_WARPS; w++) y += accs[w * MAX_DIM + d] * rescale(states[w].max, top);
		out[d] = y * scale;
	}
	if (a.splits > 1 && threadIdx.x == 0) {
		out[dim] = top;
		out[dim + 1] = sum;
	}
}

struct MergeArgs {
	float* dst;          // [rows, heads, dim]
	const float* parts;  // [rows, heads, splits, dim + 2]
	i64 heads, splits, mixture;
	PagedKV g;
};

// attend_merge: dst = the splits of a row and head, merged in their order. Grid (rows, heads).
KERNEL(attend_merge, MergeArgs, 128) {
	int row = blockIdx.x, h = blockIdx.y, dim = (int)a.g.dim;
	if (row_position(a.g, row).p < 0) return;
	i64 index = (i64)row * a.heads + h;
	const float* parts = a.parts + index * a.splits * (dim + 2);
	float top = EMPTY_MAX, sum = 0;
	for (int s = 0; s < a.splits; s++) top = max_of(top, parts[s * (dim + 2) + dim]);
	for (int s = 0; s < a.splits; s++) sum += parts[s * (dim + 2) + dim + 1] * rescale(parts[s * (dim + 2) + dim], top);
	float scale = normalizer(sum, a.mixture);
	for (int d = threadIdx.x; d < dim; d += blockDim.x) {
		float y = 0;
		for (int s = 0; s < a.splits; s++) y += parts[s * (dim + 2) + d] * rescale(parts[s * (dim + 2) + dim], top);
		a.dst[index * dim + d] = y * scale;
	}
}
