// Key labels: short vectors, stored beside the pages, that stand in for the keys when positions
// are ranked. Channel labels are a few channels of a key (Double Sparsity), f16 [n, PAGE] in a
// page; sign labels are the sign bits of a small network's outputs (HashAttention), [PAGE, words].
// Reference implementation: package cpu.
#include "newest.cuh"

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
	low = -reduce_block(-low, -infinity(), Max());
	high = reduce_block(high, -infinity(), Max());
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

// score_selected_region writes a row of scores: score(page, index) in the selected region, -Inf
// elsewhere up to the row's position. blockIdx.z takes every gridDim.z-th 256 positions, one
// thread per position. Labels are channel-major in a page, so that a warp reads consecutive
// halves.
template <class Score>
__device__ inline void score_selected_region(const PagedKV& g, const Plan& plan, RowPosition at, float* out, i64 width, Score score) {
	if (at.p >= width) {
		if (threadIdx.x == 0) fail(g.failure, FAIL_SCORES, at.p, width, 0);
		return;
	}
	for (int j = blockIdx.z * blockDim.x + threadIdx.x; j <= at.p; j += gridDim.z * blockDim.x) {
		float s = -infinity();
		if (in_selected_region(plan, at.p, j)) {
			int page = page_of(g, at.slot, j / PAGE);
			if (page >= 0) s = score(page, j % PAGE);
		}
		out[j] = s;
	}
}

// channel_scores (score): Σ_c label(q)_c · label(k)_c / √dim. Grid: (row, head, z). The label of
// the query stays f32. Bound by reading the labels, 2·n bytes a position.
KERNEL(channel_scores, ChannelArgs, 256) {
	SHARED(float, y, MAX_LABEL);
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int head = blockIdx.y, head_group = head * (int)a.head_groups / (int)a.heads, n = (int)a.n, dim = (int)a.g.dim;
	i64 row = (i64)blockIdx.x * a.heads + head;
	load_label(y, a.x + row * dim, dim, a.index + head_group * a.n, n, a.levels);
	float scale = 1 / sqrtf((float)dim);
	score_selected_region(a.g, a.plan, at, a.scores + row * a.width, a.width, [&](int page, int i) {
		const u16* label = a.labels + ((i64)page * a.head_groups + head_group) * n * PAGE + i;
		float sum = 0;
		for (int c = 0; c < n; c++) sum += y[c] * from_half(label[c * PAGE]);
		return sum * scale;
	});
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

// key_signs (summarize for keys, score for queries): bit i of word w = (output 32·w + i > 0). Grid:
// (NET_ROWS rows, head group). One warp per output of a layer, for all rows, so that each weight
// is read once for NET_ROWS rows; activations alternate between two buffers in dynamic shared
// memory. Bound by reading the weights.
KERNEL(key_signs, SignArgs, 256) {
	DYNAMIC_SHARED(float, x);  // [2, NET_ROWS, widest]
	int head_group = blockIdx.y, first = blockIdx.x * NET_ROWS, dim = (int)a.g.dim, widest = (int)a.net.widest;
	int n = min_of(NET_ROWS, (int)a.rows - first), head = head_group * (int)a.heads / (int)a.net.head_groups;
	float* y = x + NET_ROWS * widest;
	for (int i = threadIdx.x; i < NET_ROWS * dim; i += blockDim.x) {
		int r = i / dim;
		x[r * widest + i % dim] = r < n ? a.x[((i64)(first + r) * a.heads + head) * dim + i % dim] : 0;
	}
	int in = dim;
	for (int l = 0; l < a.net.layers; l++) {
		int out = (int)a.net.out[l];
		__syncthreads();
		for (int j = warp(); j < out; j += blockDim.x / WARP) {
			const float* w = a.net.weight[l] + ((i64)head_group * out + j) * in;
			float sum[NET_ROWS] = {};
			for (int i = lane(); i < in; i += WARP) {
				float v = w[i];
#pragma unroll
				for (int r = 0; r < NET_ROWS; r++) sum[r] += v * x[r * widest + i];
			}
#pragma unroll
			for (int r = 0; r < NET_ROWS; r++) {
				float v = reduce_warp(sum[r], Plus()) + a.net.bias[l][(i64)head_group * out + j];
				if (l < a.net.layers - 1) v = a.net.relu ? max_of(v, 0.0f) : (float)((double)v / (1 + exp(-(double)v)));
				if (lane() == 0) y[r * widest + j] = v;
			}
		}
		float* was = x;
		x = y;
		y = was;
		in = out;
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

struct SignScoresArgs {
	float* dst;        // [rows, heads, width]
	const i32* query;  // [rows, heads, words]
	const i32* signs;  // [pages, head_groups, PAGE, words]
	i64 heads, head_groups, width, words, bits;
	PagedKV g;
	Plan plan;
};

// sign_scores (score): bits that agree minus bits that differ, bits - 2·popcount(q xor k). Grid:
// (row, head, z). Bound by reading the sign bits, 4·words bytes a position.
KERNEL(sign_scores, SignScoresArgs, 256) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int head = blockIdx.y, head_group = head * (int)a.head_groups / (int)a.heads;
	i64 row = (i64)blockIdx.x * a.heads + head;
	const i32* query = a.query + row * a.words;
	score_selected_region(a.g, a.plan, at, a.dst + row * a.width, a.width, [&](int page, int i) {
		const i32* key = a.signs + (((i64)page * a.head_groups + head_group) * PAGE + i) * a.words;
		int differ = 0;
		for (int w = 0; w < a.words; w++) differ += __popc((u32)(query[w] ^ key[w]));
		return (float)(a.bits - 2 * differ);
	});
}
