// Element-wise and row-wise operations on activations: embed, gather, add, rmsnorm, rope,
// swiglu, fill. References: package cpu, math.go and rope.go. All are bound by memory: each
// element is read and written once.
#include "args.cuh"
#include "quants.cuh"
#include "reduce.cuh"

struct EmbedArgs {
	float* dst;  // [rows, dim]
	const u8* table;  // [vocab, dim], of type
	const i32* ids;   // [rows]
	i64 type, vocab, dim, row;  // row: bytes from a row of the table to the next
	Failure* failure;
};

// embed: dst[r] = dequantize(table[ids[r]]); an id outside the table is a failure and gives
// zeros. Grid (rows, parts of a row).
KERNEL(embed, EmbedArgs, 256) {
	int r = blockIdx.x, id = a.ids[r];
	bool ok = id >= 0 && id < a.vocab;
	if (!ok && threadIdx.x == 0) fail(a.failure, FAIL_ID, id, r, a.vocab);
	for (i64 i = blockIdx.y * blockDim.x + threadIdx.x; i < a.dim; i += gridDim.y * blockDim.x)
		a.dst[r * a.dim + i] = ok ? element((int)a.type, a.table + id * a.row, i) : 0;
}

struct GatherArgs {
	float* dst;        // [rows, dim]
	const float* src;  // [n, dim]
	const i32* rows;   // [rows]
	i64 n, dim;
	Failure* failure;
};

// gather: dst[r] = src[rows[r]]. Grid (rows, parts of a row).
KERNEL(gather, GatherArgs, 256) {
	int r = blockIdx.x, from = a.rows[r];
	bool ok = from >= 0 && from < a.n;
	if (!ok && threadIdx.x == 0) fail(a.failure, FAIL_ROW, from, a.n, 0);
	for (i64 i = blockIdx.y * blockDim.x + threadIdx.x; i < a.dim; i += gridDim.y * blockDim.x)
		a.dst[r * a.dim + i] = ok ? a.src[from * a.dim + i] : 0;
}

struct AddArgs {
	float* dst;      // [n]
	const float* x;  // [width]
	i64 n, width;
};

// add: dst += x, which repeats every width elements.
KERNEL(add, AddArgs, 256) {
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x)
		a.dst[i] += a.x[a.width == a.n ? i : i % a.width];
}

struct NormArgs {
	float* dst;  // [rows, dim]; may be x
	const float* x;
	const float* w;  // [dim]
	i64 dim;
	f64 eps;
};

// rmsnorm: dst = x / sqrt(mean(x²) + eps) · w. One block per row.
KERNEL(rmsnorm, NormArgs, 1024) {
	const float* x = a.x + (i64)blockIdx.x * a.dim;
	float* y = a.dst + (i64)blockIdx.x * a.dim;
	float sum = 0;
	for (i64 i = threadIdx.x; i < a.dim; i += blockDim.x) sum += x[i] * x[i];
	sum = reduce_block(sum, 0.0f, Plus());
	float scale = 1 / sqrtf(sum / (float)a.dim + (float)a.eps);
	for (i64 i = threadIdx.x; i < a.dim; i += blockDim.x) y[i] = x[i] * scale * a.w[i];
}

struct RopeArgs {
	float* x;          // [rows, heads, dim]
	const i32* pos;    // [rows]
	const float* freqs;  // [pairs]
	f64 scale;
	i64 heads, dim, pairs, interleaved;
};

// rope rotates pair i of each head by pos·freqs[i]. The angle is computed in f64: at position
// 1,000,000 an f32 angle would be off by 0.03 rad. Grid (rows, parts of the heads); a thread
// takes one pair of all heads of its part, so that sincos is computed once.
KERNEL(rope, RopeArgs, 128) {
	int r = blockIdx.x;
	for (int i = threadIdx.x; i < a.pairs; i += blockDim.x) {
		double sine, cosine;
		sincos((double)a.pos[r] * (double)a.freqs[i], &sine, &cosine);
		float s = (float)(sine * a.scale), c = (float)(cosine * a.scale);
		i64 lo = a.interleaved ? 2 * i : i, hi = a.interleaved ? 2 * i + 1 : i + a.pairs;
		for (i64 h = blockIdx.y; h < a.heads; h += gridDim.y) {
			float* x = a.x + (r * a.heads + h) * a.dim;
			float u = x[lo], v = x[hi];
			x[lo] = u * c - v * s;
			x[hi] = u * s + v * c;
		}
	}
}

struct SwiGLUArgs {
	float* dst;  // [n]; may be gate
	const float *gate, *up;
	i64 n;
};

// swiglu: dst = silu(gate)·up, silu(g) = g / (1 + exp(-g)).
KERNEL(swiglu, SwiGLUArgs, 256) {
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x) {
		float g = a.gate[i];
		a.dst[i] = g / (1 + expf(-g)) * a.up[i];
	}
}

struct FillArgs {
	u32* dst;  // [n]
	i64 word, n;
};

// fill sets words.
KERNEL(fill, FillArgs, 256) {
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < a.n; i += (i64)gridDim.x * blockDim.x) a.dst[i] = (u32)a.word;
}

struct MaskTokensArgs {
	float* logits;       // [rows, vocab]
	const i32* allowed;  // [rows, words]: a bit for each token
	i64 vocab, words;
};

// mask_tokens: logits = -inf where the bit is 0; others are not touched. Grid (rows, parts of the
// vocabulary).
KERNEL(mask_tokens, MaskTokensArgs, 256) {
	float* logits = a.logits + (i64)blockIdx.x * a.vocab;
	const i32* allowed = a.allowed + (i64)blockIdx.x * a.words;
	for (i64 i = blockIdx.y * blockDim.x + threadIdx.x; i < a.vocab; i += gridDim.y * blockDim.x)
		if (!((u32)allowed[i / 32] >> (i % 32) & 1)) logits[i] = -infinity();
}
