// The choice of the next token. Definition: package cpu, sample.go. A block takes
// a row of logits. Shares that are compared with a mass are counted in units of
// 2⁻⁴⁴, so that their sums do not depend on an order.
#include "args.cuh"
#include "draw.cuh"
#include "few.cuh"
#include "rank.cuh"

struct SampleArgs {
	i32* next;        // [rows]
	float* logits;    // [rows, vocab]
	i32* history;     // [rows, window]
	const i32* pos;   // [rows]
	i64 vocab, window;
	f64 temperature, top_p, min_p, penalty;
	i64 top_k;
	u64 seed;
};

// penalize makes each token of history less likely, once however often it is there.
__device__ inline void penalize(const SampleArgs& a, float* logits, const i32* history) {
	if (a.penalty == 0 || a.penalty == 1) return;
	for (i64 i = threadIdx.x; i < a.window; i += blockDim.x) {
		int id = history[i];
		bool first = id >= 0 && id < a.vocab;
		for (i64 j = 0; j < i && first; j++) first = history[j] != id;
		if (first) logits[id] = logits[id] > 0 ? logits[id] / (float)a.penalty : logits[id] * (float)a.penalty;
	}
	__syncthreads();
}

// best is the largest logit and the lowest id among equals: the key in the upper
// half, the complement of the id in the lower.
__device__ inline u64 best(const float* logits, i64 vocab) {
	u64 top = 0;
	auto see = [&](i64 i, float logit) { top = larger(top, (u64)key_of(logit) << 32 | (u32)~(u32)i); };
	i64 fours = (u64)logits % 16 ? 0 : vocab / 4;
#pragma unroll 8
	for (i64 i = threadIdx.x; i < fours; i += blockDim.x) {
		Word4 v = load16(logits + 4 * i);
		for (int j = 0; j < 4; j++) see(4 * i + j, __uint_as_float(v.w[j]));
	}
	for (i64 i = 4 * fours + threadIdx.x; i < vocab; i += blockDim.x) see(i, logits[i]);
	return reduce_block(top, (u64)0, Top());
}

// Odds is the weight of a logit: exp((logit - top)/temperature).
struct Odds {
	double top, temperature;

	__device__ double operator()(float logit) const {
		if (logit != logit) logit = -infinity();
		double p = exp(((double)logit - top) / temperature);
		return p != p ? 1 : p;  // both infinite
	}
};

// sample chooses the token that follows row blockIdx.x.
KERNEL(sample, SampleArgs, 1024) {
	int row = blockIdx.x, at = a.pos[row];
	float* l = a.logits + row * a.vocab;
	i32* history = a.history + row * a.window;
	penalize(a, l, history);
	u64 top = best(l, a.vocab);
	int id = (int)~(u32)top;
	if (a.temperature > 0) {
		float largest = l[id];
		if (largest != largest) largest = -infinity();
		Odds odds = {largest, a.temperature};
		auto all = [&](i64 i, u32& key) {
			key = key_of(l[i]);
			return true;
		};
		Cut<u32> first = everything<u32>();
		if (a.top_k > 0 && a.top_k < a.vocab)
			first = select<u32>(a.vocab, (u64)a.top_k, [&](i64 i, u32& key) {
				key = key_of(l[i]);
				return (u64)1;
			});
		Picker<u32> start = picker(first, a.vocab, all);
		Run r = run_of(a.vocab);

		double sum = 0;
		Picker<u32> in = start;
		for (i64 i = r.lo; i < r.hi; i++) {
			if (in.takes(key_of(l[i]))) sum += odds(l[i]);
		}
		sum = reduce_block(sum, 0.0, Plus());

		Cut<u32> second = everything<u32>();
		if (a.top_p > 0 && a.top_p < 1) {
			// What is equal to the first cut's key and not selected weighs nothing
			// here, because a cut within those equal keeps the lowest ids of both.
			second = select<u32>(a.vocab, larger((u64)(a.top_p * 0x1p44), (u64)1), [&](i64 i, u32& key) {
				key = key_of(l[i]);
				return key < first.key ? (u64)0 : (u64)(odds(l[i]) / sum * 0x1p44);
			});
		}
		Picker<u32> then = picker(second, a.vocab, all);

		double limit = a.min_p / sum, part = 0, total;
		in = start;
		Picker<u32> also = then;
		auto takes = [&](i64 i) {
			u32 key = key_of(l[i]);
			bool ok = in.takes(key);
			ok = also.takes(key) && ok;
			return ok && odds(l[i]) / sum >= limit;
		};
		for (i64 i = r.lo; i < r.hi; i++) {
			if (takes(i)) part += odds(l[i]);
		}
		double before = scan_block(part, total);

		Draw d = {a.seed, 0, 0, 0, (u32)at, FOR_TOKEN};
		double u = (double)uniform(d, 0) * total;
		i64 found = a.vocab, last = -1;
		in = start;
		also = then;
		for (i64 i = r.lo; i < r.hi && found == a.vocab; i++) {
			if (!takes(i)) continue;
			double p = odds(l[i]);
			if (p > 0) last = i;
			before += p;
			if (before > u) found = i;
		}
		found = -reduce_block(-found, -a.vocab, Top());
		last = reduce_block(last, (i64)-1, Top());
		id = (int)(found < a.vocab ? found : last < 0 ? 0 : last);
	}
	if (threadIdx.x == 0) {
		a.next[row] = id;
		if (a.window > 0) history[(u32)(at + 1) % (u32)a.window] = id;
	}
}
