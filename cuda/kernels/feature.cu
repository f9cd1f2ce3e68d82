// Features of queries, drawn in proportion to their sizes. Definition: package
// cpu, feature.go; package device, feature.go, says what is drawn.
#include "args.cuh"
#include "draw.cuh"
#include "reduce.cuh"

struct FeatureArgs {
	float* dst;      // [rows, heads, dim]
	const float* q;  // [rows, heads, dim]
	i64 heads, run;  // run: heads that share their draws
	u64 seed;
	const i32* of;  // [slots]: their requests; NULL: one for all
	i64 request, layer;
	i64 draws, strata;
	PagedKV g;
};

// features: block (r, s) estimates the queries of set s of heads of row r, a
// thread a feature at a time.
KERNEL(features, FeatureArgs, 128) {
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0) return;
	int dim = (int)a.g.dim, run = (int)a.run;
	i64 from = ((i64)blockIdx.x * a.heads + blockIdx.y * run) * dim;
	const float* q = a.q + from;
	auto size = [&](int i) {
		double sum = 0;
		for (int h = 0; h < run; h++) sum += fabs((double)q[h * dim + i]);
		return sum / run;
	};
	double norm = 0;
	for (int i = threadIdx.x; i < dim; i += blockDim.x) norm = max_of(norm, size(i));
	norm = reduce_block(norm, 0.0, Max());
	Draw d = {a.seed, a.of ? (u32)a.of[at.slot] : (u32)a.request, (u32)a.layer, blockIdx.y, (u32)at.p, FOR_FEATURES};
	for (int i = threadIdx.x; i < dim; i += blockDim.x) {
		double mine = size(i), border = mine / norm;  // not a number where the norm is 0
		int hits = 0;
		for (int t = 0; t < a.draws; t++) {
			double x = uniform(d, (u32)(t * dim + i));
			if (a.strata) x = ((double)t + x) / (double)a.draws;
			hits += x < border;
		}
		double estimate = hits > 0 ? norm * (double)hits / (double)a.draws / mine : 0;  // over the size itself
		for (int h = 0; h < run; h++) a.dst[from + h * dim + i] = (float)(estimate * (double)q[h * dim + i]);
	}
}
