// Key labels: short vectors, stored beside the pages, that stand in for the keys when positions
// are ranked. Channel labels are a few channels of a key (Double Sparsity), f16 [n, PAGE] in a
// page; sign labels are the sign bits of a small network's outputs (HashAttention), [PAGE, words].
// Reference implementation: package cpu.
#include "region.cuh"

constexpr int MAX_LABEL = 512;  // limit of the numbers of a label

// load_label gathers the channels of a vector into shared memory and rounds them to levels
// between their minimum and maximum (pseudo-quantization). All threads call it.
__device__ inline void load_label(float* y, const float* x, int dim, const i32* index, int n, i64 levels) {
	float low = infinity(), high = -infinity();
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		int c = index[i];
		y[i] = c >= 0 && c < dim ? x[c] : 0;
		low = min_of(low, y[i]);
		high = max_of(high, y[i]);
	}
	if (levels > 1) {
		low = -reduce_block(-low, -infinity(), Max());
		high = reduce_block(high, -infinity(), Max());
	}
	if (levels > 1 && high > low) {
		float step = (high - low) / (float)(levels - 1);
		for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = __fadd_rn(low, __fmul_rn(step, rintf((y[i] - low) / step)));
	}
	__syncthreads();
}

struct ChannelArgs {
	u16* labels;       // f16 [pages, head_groups, n, PAGE]
	const float* x;    // [rows, heads, dim]: keys or queries
	const i32* index;  // [head_groups, n]: the channels
	i64 head_groups, n, levels, heads;
	float* scores;  // [rows, heads, width], or NULL
	i64 width;
	PagedKV g;
	Plan plan;
};

// key_channels (summarize): grid (row, head group) stores the label of an appended key.
KERNEL(key_channels, ChannelArgs, 64) {
	SHARED(float, y, MAX_LABEL);
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int page = page_of(a.g, at.slot, at.p / PAGE), dim = (int)a.g.dim;
	if (page < 0) return;
	int head_group = blockIdx.y, n = (int)a.n, head = head_group * (int)a.heads / (int)a.head_groups;
	load_label(y, a.x + ((i64)blockIdx.x * a.heads + head) * dim, dim, a.index + head_group * a.n, n, a.levels);
	u16* to = a.labels + ((i64)page * a.head_groups + head_group) * n * PAGE + at.p % PAGE;
	for (int i = threadIdx.x; i < n; i += blockDim.x) to[i * PAGE] = to_half(y[i]);
}

constexpr int LABEL_HEADS = 4;  // query heads that share a load of a label
constexpr int LABEL_RUN = 4;    // positions of a thread
constexpr int LABEL_LOADS = 8;  // channels in flight

// channel_products adds the products of LABEL_HEADS queries with LABEL_RUN labels of n channels to
// sum. y is [n, LABEL_HEADS].
__device__ __forceinline__ void channel_products(float (&sum)[LABEL_HEADS][LABEL_RUN], const u16* label, const float* y, int n) {
	for (int c = 0; c < n; c += LABEL_LOADS) {
		Word2 raw[LABEL_LOADS];
#pragma unroll
		for (int t = 0; t < LABEL_LOADS; t++) raw[t] = c + t < n ? *(const Word2*)(label + (c + t) * PAGE) : Word2{{0, 0}};
#pragma unroll
		for (int t = 0; t < LABEL_LOADS; t++) {
			if (c + t >= n) break;
			float q[LABEL_HEADS], k[LABEL_RUN];
#pragma unroll
			for (int j = 0; j < LABEL_RUN; j++) k[j] = from_half((u16)(raw[t].w[j / 2] >> j % 2 * 16));
			load_float4(q, y + (c + t) * LABEL_HEADS);
#pragma unroll
			for (int u = 0; u < LABEL_HEADS; u++) {
#pragma unroll
				for (int j = 0; j < LABEL_RUN; j++) sum[u][j] += q[u] * k[j];
			}
		}
	}
}

// channel_scores (score): Σ_c label(q)_c · label(k)_c / √dim. Grid: (part, label group, row); a
// thread takes LABEL_RUN positions for the query heads of a label group. The label of the query
// stays f32. Bound by reading the labels once, 2·n bytes a position.
KERNEL_4_PER_SM(channel_scores, ChannelArgs, 256) {
	SHARED(float, y, MAX_LABEL);
	DYNAMIC_SHARED(float, q);  // [n, LABEL_HEADS]
	RowPosition at = row_position(a.g, blockIdx.z);
	if (at.p < 0) return;
	if (at.p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
		return;
	}
	int label_group = blockIdx.y, group = (int)(a.heads / a.head_groups), n = (int)a.n, dim = (int)a.g.dim;
	float scale = 1 / sqrtf((float)dim);
	ScoredRegion region = scored_region(a.plan, at.p, true, false);
	bool aligned = rows_aligned(a.scores, a.width);
	for (int h = 0; h < group; h += LABEL_HEADS) {
		int heads = min_of(LABEL_HEADS, group - h);
		i64 item = blockIdx.z * a.heads + label_group * group + h;
		for (int u = 0; u < LABEL_HEADS; u++) {
			if (u < heads) load_label(y, a.x + (item + u) * dim, dim, a.index + label_group * a.n, n, a.levels);
			for (int i = threadIdx.x; i < n; i += blockDim.x) q[i * LABEL_HEADS + u] = u < heads ? y[i] : 0;
			__syncthreads();
		}
		for (int j = (blockIdx.x * blockDim.x + threadIdx.x) * LABEL_RUN; j <= at.p; j += gridDim.x * blockDim.x * LABEL_RUN) {
			int page = region.mask.shows(j / PAGE) ? page_of(a.g, at.slot, j / PAGE) : -1;
			bool inside = page >= 0 && aligned && region.whole(j / PAGE);
			float sum[LABEL_HEADS][LABEL_RUN] = {};
			if (page >= 0) channel_products(sum, a.labels + ((i64)page * a.head_groups + label_group) * n * PAGE + j % PAGE, q, n);
#pragma unroll
			for (int u = 0; u < LABEL_HEADS; u++) {
#pragma unroll
				for (int i = 0; i < LABEL_RUN; i++) sum[u][i] *= scale;
				if (u < heads) region.store4(a.scores + (item + u) * a.width, j, sum[u], page >= 0, inside);
			}
		}
		__syncthreads();
	}
}

constexpr int NET_MAX_LAYERS = 4;
constexpr int NET_ROWS = 8;  // rows that share the loads of a weight

// Net is device.Net: y = act(W·x + b) for each layer but the last, which has no activation.
struct Net {
	const float* weight[NET_MAX_LAYERS];  // [head_groups, out, in]
	const float* bias[NET_MAX_LAYERS];    // [head_groups, out]
	i64 out[NET_MAX_LAYERS];
	i64 layers, head_groups, relu, words;
	i64 widest;  // the widest layer, inputs included
};

struct SignArgs {
	i32* signs;      // [pages, head groups of keys, PAGE, words], or of queries [rows, head_groups, words]
	const float* x;  // [rows, heads, dim]
	Net net;
	i64 rows, heads, stored;  // stored: sign bits are written beside the pages
	PagedKV g;
};

// net_layer computes layer l of the network of a head group for ROWS vectors x of `in` elements:
// y = act(W·x + b). A warp takes OUTS outputs at a time, whose weights are in flight together, each
// read once for all vectors.
template <int ROWS, int OUTS>
__device__ __forceinline__ void net_layer(const Net& net, int l, int head_group, int in, const float* x, float* y) {
	int out = (int)net.out[l], widest = (int)net.widest;
	const float *weight = net.weight[l] + (i64)head_group * out * in, *bias = net.bias[l] + (i64)head_group * out;
	for (int j = warp() * OUTS; j < out; j += blockDim.x / WARP * OUTS) {
		float sum[OUTS][ROWS] = {};
#pragma unroll 4
		for (int i = lane(); i < in; i += WARP) {
			float w[OUTS];
#pragma unroll
			for (int u = 0; u < OUTS; u++) w[u] = weight[(i64)min_of(j + u, out - 1) * in + i];
#pragma unroll
			for (int u = 0; u < OUTS; u++) {
#pragma unroll
				for (int r = 0; r < ROWS; r++) sum[u][r] += w[u] * x[r * widest + i];
			}
		}
#pragma unroll
		for (int u = 0; u < OUTS; u++) {
#pragma unroll
			for (int r = 0; r < ROWS; r++) {
				float v = reduce_warp(sum[u][r], Plus());
				if (lane() != 0 || j + u >= out) continue;
				v += bias[j + u];
				if (l < net.layers - 1) v = net.relu ? max_of(v, 0.0f) : (float)((double)v / (1 + exp(-(double)v)));
				y[r * widest + j + u] = v;
			}
		}
	}
}

// signs_of makes the sign bits of a block's vectors: bit i of word w = (output 32·w + i > 0).
// Activations alternate between two buffers in dynamic shared memory.
template <int ROWS, int OUTS>
__device__ __forceinline__ void signs_of(const SignArgs& a) {
	DYNAMIC_SHARED(float, x);  // [2, ROWS, widest]
	int head_group = blockIdx.y, first = blockIdx.x * ROWS, dim = (int)a.g.dim, widest = (int)a.net.widest;
	int n = min_of(ROWS, (int)a.rows - first), head = head_group * (int)a.heads / (int)a.net.head_groups;
	float* y = x + ROWS * widest;
	for (int i = threadIdx.x; i < ROWS * dim; i += blockDim.x) {
		int r = i / dim;
		x[r * widest + i % dim] = r < n ? a.x[((i64)(first + r) * a.heads + head) * dim + i % dim] : 0;
	}
	int in = dim;
	for (int l = 0; l < a.net.layers; l++) {
		__syncthreads();
		net_layer<ROWS, OUTS>(a.net, l, head_group, in, x, y);
		float* was = x;
		x = y;
		y = was;
		in = (int)a.net.out[l];
	}
	__syncthreads();
	for (int i = threadIdx.x; i < n * a.net.words; i += blockDim.x) {
		int r = i / (int)a.net.words, w = i % (int)a.net.words;
		u32 word = 0;
		for (int b = 0; b < 32 && w * 32 + b < in; b++) word |= (u32)(x[r * widest + w * 32 + b] > 0) << b;
		RowPosition at = row_position(a.g, first + r);
		if (at.p < 0) continue;
		i64 to = (i64)(first + r) * a.net.head_groups + head_group;
		if (a.stored) {
			int page = page_of(a.g, at.slot, at.p / PAGE);
			if (page < 0) continue;
			to = ((i64)page * a.net.head_groups + head_group) * PAGE + at.p % PAGE;
		}
		a.signs[to * a.net.words + w] = (i32)word;
	}
}

// key_signs and row_signs (summarize for keys, score for queries). Grid: (vectors, head group), of
// which a block of key_signs takes NET_ROWS and one of row_signs one: few vectors wait for
// weights and not for their arithmetic. Bound by reading the weights.
KERNEL(key_signs, SignArgs, 256) { signs_of<NET_ROWS, 2>(a); }
KERNEL(row_signs, SignArgs, 256) { signs_of<1, 8>(a); }

struct SignScoresArgs {
	float* dst;        // [rows, heads, width]
	const i32* query;  // [rows, heads, words]
	const i32* signs;  // [pages, head_groups, PAGE, words]
	i64 heads, head_groups, width, words, bits;
	PagedKV g;
	Plan plan;
};

constexpr int SIGN_RUN = 4;  // keys of a thread, in flight at once

// sign_scores (score): bits that agree minus bits that differ, bits - 2·popcount(q xor k). Grid:
// (part, head group of the keys, row); a thread takes a key, four words at a time, for the query
// heads of a head group. Bound by reading the sign bits once, 4·words bytes a position.
KERNEL_2_PER_SM(sign_scores, SignScoresArgs, 256) {
	DYNAMIC_SHARED(u32, query);  // [LABEL_HEADS, words rounded up to 4]
	RowPosition at = row_position(a.g, blockIdx.z);
	if (at.p < 0) return;
	if (at.p >= a.width) {
		if (threadIdx.x == 0) fail(a.g.failure, FAIL_SCORES, at.p, a.width, 0);
		return;
	}
	int key_group = blockIdx.y, group = (int)(a.heads / a.head_groups), words = (int)a.words, row = (words + 3) / 4 * 4;
	bool quads = words % 4 == 0;
	ScoredRegion region = scored_region(a.plan, at.p, true, false);
	for (int h = 0; h < group; h += LABEL_HEADS) {
		int heads = min_of(LABEL_HEADS, group - h);
		i64 item = blockIdx.z * a.heads + key_group * group + h;
		for (int i = threadIdx.x; i < LABEL_HEADS * row; i += blockDim.x) query[i] = i / row < heads && i % row < words ? (u32)a.query[(item + i / row) * words + i % row] : 0;
		__syncthreads();
		for (int first = blockIdx.x * blockDim.x * SIGN_RUN + threadIdx.x; first <= at.p; first += gridDim.x * blockDim.x * SIGN_RUN) {
			const u32* key[SIGN_RUN];
			int differ[SIGN_RUN][LABEL_HEADS] = {};
#pragma unroll
			for (int t = 0; t < SIGN_RUN; t++) {
				int j = first + t * blockDim.x, page = j <= at.p && region.has(j) ? page_of(a.g, at.slot, j / PAGE) : -1;
				key[t] = page >= 0 ? (const u32*)a.signs + (((i64)page * a.head_groups + key_group) * PAGE + j % PAGE) * words : nullptr;
			}
			for (int w = 0; w < words; w += 4) {
				Word4 k[SIGN_RUN];
#pragma unroll
				for (int t = 0; t < SIGN_RUN; t++) {
					k[t] = Word4{{0, 0, 0, 0}};
					if (key[t] && quads) {
						k[t] = load16_stream(key[t] + w);
					} else if (key[t]) {
						for (int i = 0; i < 4 && w + i < words; i++) k[t].w[i] = key[t][w + i];
					}
				}
#pragma unroll
				for (int u = 0; u < LABEL_HEADS; u++) {
					Word4 q = load16(query + u * row + w);
#pragma unroll
					for (int t = 0; t < SIGN_RUN; t++) {
#pragma unroll
						for (int i = 0; i < 4; i++) differ[t][u] += __popc(q.w[i] ^ k[t].w[i]);
					}
				}
			}
#pragma unroll
			for (int t = 0; t < SIGN_RUN; t++) {
				int j = first + t * blockDim.x;
#pragma unroll
				for (int u = 0; u < LABEL_HEADS; u++) {
					if (u < heads && j <= at.p) a.dst[(item + u) * a.width + j] = key[t] ? (float)(a.bits - 2 * differ[t][u]) : -infinity();
				}
			}
		}
		__syncthreads();
	}
}
