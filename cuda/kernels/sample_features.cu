// Bernoulli sampling of query features, the score stage of SANTA: feature i of a query is hit by
// a draw with probability |q_i|/‖q‖∞ and becomes ‖q‖∞·sign(q_i)·hits/draws, an unbiased estimate
// of q_i. A feature that no draw hits is 0, and its channel of K need not be read. Reference
// implementation: package cpu, equal to the bit: magnitudes and counts are f64.
#include "args.cuh"
#include "philox.cuh"
#include "reduce.cuh"

struct FeatureArgs {
	float* dst;              // [rows, heads, dim]
	const float* q;          // [rows, heads, dim]
	i64 heads, group_heads;  // group_heads: heads that share their draws
	u64 seed;
	const i32* requests;  // [slots]: their request ids; NULL: one for all
	i64 request, layer;
	i64 draws, strata;
	PagedKV g;
};

// features (sample): grid (row, head group), one thread per feature. A group of several heads
// draws by the mean of their |q_i|, and each head scales its own q_i by the estimate over that
// mean. With strata draw t uses (t + u)/draws, which lowers the variance from 1/draws to 1/draws².
// Bound by the generator: dim·draws Philox blocks for each group.
KERNEL(sample_features, FeatureArgs, 128) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int dim = (int)a.g.dim, group_heads = (int)a.group_heads;
	i64 from = ((i64)blockIdx.x * a.heads + blockIdx.y * group_heads) * dim;
	const float* q = a.q + from;
	auto magnitude = [&](int i) {
		double sum = 0;
		for (int h = 0; h < group_heads; h++) sum += fabs((double)q[h * dim + i]);
		return sum / group_heads;
	};
	double norm = 0;
	for (int i = threadIdx.x; i < dim; i += blockDim.x) norm = max_of(norm, magnitude(i));
	norm = reduce_block(norm, 0.0, Max());
	Draw d = {a.seed, a.requests ? (u32)a.requests[at.slot] : (u32)a.request, (u32)a.layer, blockIdx.y, (u32)at.p, FOR_FEATURES};
	for (int i = threadIdx.x; i < dim; i += blockDim.x) {
		double own = magnitude(i), probability = own / norm;  // NaN where the norm is 0: no hits
		int hits = 0;
		for (int t = 0; t < a.draws; t++) {
			double x = uniform(d, (u32)(t * dim + i));
			if (a.strata) x = ((double)t + x) / (double)a.draws;
			hits += x < probability;
		}
		double estimate = hits > 0 ? norm * (double)hits / (double)a.draws / own : 0;  // relative to the magnitude
		for (int h = 0; h < group_heads; h++) a.dst[from + h * dim + i] = (float)(estimate * (double)q[h * dim + i]);
	}
}
