// Labels that lie beside the pages, and scores by them. Definition: package cpu,
// label.go; package device, label.go, says what labels are.
#include "newest.cuh"

constexpr int MOST_LABEL = 512;  // numbers of a label

// Label is the channels of a vector, in shared memory, rounded to levels. All
// threads of the block call it.
__device__ inline void label_of(float* y, const float* x, int dim, const i32* index, int n, i64 levels) {
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
	u16* labels;       // [pages, sets, n, PAGE]
	const float* x;    // [rows, heads, dim]
	const i32* index;  // [sets, n]
	i64 sets, n, levels, heads;
	float* scores;  // [rows, heads, width], or NULL
	i64 width;
	PagedKV g;
	Plan plan;
};

// store_channels: block (r, s) stores the label of set s of row r.
KERNEL(store_channels, ChannelArgs, 64) {
	SHARED(float, y, MOST_LABEL);
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int page = page_of(a.g, at.slot, at.p / PAGE), dim = (int)a.g.dim;
	if (page < 0) return;
	int set = blockIdx.y, n = (int)a.n, head = set * (int)a.heads / (int)a.sets;
	label_of(y, a.x + ((i64)blockIdx.x * a.heads + head) * dim, dim, a.index + set * a.n, n, a.levels);
	u16* to = a.labels + ((i64)page * a.sets + set) * n * PAGE + at.p % PAGE;
	for (int i = threadIdx.x; i < n; i += blockDim.x) to[i * PAGE] = to_half(y[i]);
}

// middle_scores writes the scores of a row and head: what score gives in the
// plan's middle, -Inf elsewhere. Block (·, ·, z) takes every gridDim.z-th group of
// pages, a thread a position at a time.
template <class Score>
__device__ inline void middle_scores(const PagedKV& g, const Plan& plan, RowPosition at, float* out, i64 width, Score score) {
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

// channel_scores: block (r, h, z).
KERNEL(channel_scores, ChannelArgs, 256) {
	SHARED(float, y, MOST_LABEL);
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int head = blockIdx.y, set = head * (int)a.sets / (int)a.heads, n = (int)a.n, dim = (int)a.g.dim;
	i64 row = (i64)blockIdx.x * a.heads + head;
	label_of(y, a.x + row * dim, dim, a.index + set * a.n, n, a.levels);
	float scale = 1 / sqrtf((float)dim);
	middle_scores(a.g, a.plan, at, a.scores + row * a.width, a.width, [&](int page, int i) {
		const u16* label = a.labels + ((i64)page * a.sets + set) * n * PAGE + i;
		float sum = 0;
		for (int c = 0; c < n; c++) sum += y[c] * from_half(label[c * PAGE]);
		return sum * scale;
	});
}

constexpr int MOST_LAYERS = 4;
constexpr int NET_ROWS = 8;  // vectors that read a weight together

// Net is device.Net.
struct Net {
	const float* weight[MOST_LAYERS];  // [sets, out, in]
	const float* bias[MOST_LAYERS];    // [sets, out]
	i64 out[MOST_LAYERS];
	i64 layers, sets, relu, words;
	i64 widest;  // numbers between layers
};

struct SignArgs {
	i32* signs;      // [pages, keysets, PAGE, words], or of queries [rows, sets, words]
	const float* x;  // [rows, heads, dim]
	Net net;
	i64 rows, heads, stored;  // stored: signs lie beside pages
	PagedKV g;
};

// signs: block (t, s) puts NET_ROWS rows through the network of set s and keeps
// the signs of its results. A warp takes a number of a layer at a time. Dynamic
// shared memory holds what goes into a layer and what comes out.
KERNEL(signs, SignArgs, 256) {
	DYNAMIC_SHARED(float, x);  // [2, NET_ROWS, widest]
	int set = blockIdx.y, first = blockIdx.x * NET_ROWS, dim = (int)a.g.dim, widest = (int)a.net.widest;
	int n = min_of(NET_ROWS, (int)a.rows - first), head = set * (int)a.heads / (int)a.net.sets;
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
			const float* w = a.net.weight[l] + ((i64)set * out + j) * in;
			float sum[NET_ROWS] = {};
			for (int i = lane(); i < in; i += WARP) {
				float v = w[i];
#pragma unroll
				for (int r = 0; r < NET_ROWS; r++) sum[r] += v * x[r * widest + i];
			}
#pragma unroll
			for (int r = 0; r < NET_ROWS; r++) {
				float v = reduce_warp(sum[r], Plus()) + a.net.bias[l][(i64)set * out + j];
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
		i64 to = (i64)(first + r) * a.net.sets + set;
		if (a.stored) {
			int page = page_of(a.g, at.slot, at.p / PAGE);
			if (page < 0) continue;
			to = ((i64)page * a.net.sets + set) * PAGE + at.p % PAGE;
		}
		a.signs[to * a.net.words + w] = (i32)word;
	}
}

struct SignScoresArgs {
	float* dst;        // [rows, heads, width]
	const i32* query;  // [rows, heads, words]
	const i32* signs;  // [pages, sets, PAGE, words]
	i64 heads, sets, width, words, bits;
	PagedKV g;
	Plan plan;
};

// sign_scores: block (r, h, z) counts the signs that agree less those that differ.
KERNEL(sign_scores, SignScoresArgs, 256) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int head = blockIdx.y, set = head * (int)a.sets / (int)a.heads;
	i64 row = (i64)blockIdx.x * a.heads + head;
	const i32* query = a.query + row * a.words;
	middle_scores(a.g, a.plan, at, a.dst + row * a.width, a.width, [&](int page, int i) {
		const i32* key = a.signs + (((i64)page * a.sets + set) * PAGE + i) * a.words;
		int differ = 0;
		for (int w = 0; w < a.words; w++) differ += __popc((u32)(query[w] ^ key[w]));
		return (float)(a.bits - 2 * differ);
	});
}
