// Decode attention over position lists where every query head has a kv head of its own (MHA):
// the n of an mma would be one, so tensor cores are no use, and each of many lists is short.
// decode_each gives each head a block on CUDA cores, four of them per SM.
#include "decode.cuh"
#include "gathered.cuh"

// decode_whole is decode for those lists that select everything, so that they have the bits of
// dense attention; decode_each skips them. Most lists have no capacity for that, which is
// found before anything is read. A block takes WHOLE_HEADS heads one after the other, to keep
// the grid small, and fits on an SM beside three blocks of decode_each.
constexpr int WHOLE_HEADS = 4;
constexpr int WHOLE_STAGES = 2;

template <int DIM>
__device__ __forceinline__ void decode_whole(const DecodeArgs& a) {
	pdl_trigger();
	RowPosition at = row_position(a.g, blockIdx.x);
	if (at.p < 0 || selected_region(a.plan, at.p).n > a.plan.list.cap) {
		pdl_wait();
		return;
	}
	for (int h = blockIdx.y * WHOLE_HEADS; h < min_of((int)(blockIdx.y + 1) * WHOLE_HEADS, (int)a.heads); h++) {
		decode<DIM, 1, WHOLE_STAGES, true>(a, h);
		__syncthreads();
	}
}

KERNEL_2_PER_SM(decode_whole_64, DecodeArgs, RING_WARPS * WARP) { decode_whole<64>(a); }
KERNEL_2_PER_SM(decode_whole_128, DecodeArgs, RING_WARPS * WARP) { decode_whole<128>(a); }

constexpr int DECODE_WARPS = 8;
constexpr int EACH_PLACES = 2048;  // positions whose pages are resolved at a time

// decode_each: grid (rows, heads), 8 warps. Decode attention of one row and head over a
// position list, online softmax in f32, gathered.cuh's cp.async pipeline per warp. Grids that
// fill the GPU need no split-K. Bound by reading K and V of the listed positions.
template <int DIM>
__device__ __forceinline__ void decode_each(const DecodeArgs& a) {
	using Lane = Gatherer<DIM>;
	constexpr int PIECES = Lane::PIECES, ROWS = Lane::ROWS, STAGES = GATHER_STAGES, TAKEN = Lane::TAKEN, STATES = DECODE_WARPS * ROWS;
	DYNAMIC_SHARED(unsigned char, memory);
	SHARED(SoftmaxState, states, STATES);
	pdl_trigger();
	int row = blockIdx.x, h = blockIdx.y, kv_head = h * (int)a.g.heads / (int)a.heads, piece = lane() % PIECES * 8;
	RowPosition at = row_position(a.g, row);  // lengths and page tables are written by the host, not by a kernel
	if (at.p < 0) {
		pdl_wait();
		return;
	}
	Gathered* ring = (Gathered*)memory + warp() * STAGES;
	int* where = (int*)((Gathered*)memory + DECODE_WARPS * STAGES);  // in rows of the cache, -1 for none
	float* biases = (float*)(where + EACH_PLACES);
	bool mixture = a.plan.mixture;
	// Positions of sinks and window come first, then those of the list.
	int sink = min_of((int)a.plan.sink, at.p + 1), recent = min_of(max_of(recent_of(a.plan, at.p), sink), at.p + 1);
	int fixed = sink + at.p + 1 - recent, base = 0, n = min_of(fixed, EACH_PLACES);
	Entries e = {nullptr, nullptr, 0};
	auto resolve = [&](int first) {
		for (int i = first + threadIdx.x; i < n; i += blockDim.x) {
			int from = base + i - fixed, j = from >= 0 ? e.index[from] : base + i < sink ? base + i : base + i - sink + recent;
			float weight = from >= 0 && e.weight ? e.weight[from] : 1;
			bool there = j >= 0 && sees(a.plan.span, at.p, j) && (from < 0 || !in_sinks_or_window(a.plan, at.p, j));
			int page = there ? a.g.table[(i64)at.slot * a.g.width + j / PAGE] : 0;
			if (there && !page_valid(a.g, at.slot, page)) there = false;
			where[i] = there ? (page * (int)a.g.heads + kv_head) * PAGE + j % PAGE : -1;
			biases[i] = !there ? (mixture ? 0 : -infinity()) : mixture ? weight : weight == 1 ? 0 : weight > 0 ? log2f(weight) : -infinity();
		}
	};
	int next = warp() * TAKEN, into = 0;
	auto issue_copies = [&]() {
		if (next < n) {
#pragma unroll
			for (int t = 0; t < GATHER_LOADS; t++) {
				int i = next + t * ROWS + lane() / PIECES, from = i < n ? where[i] : -1;
				i64 place = (i64)max_of(from, 0) * DIM + piece;
				if (!mixture) cp_async_zfill(&ring[into].k[t][lane()], (const u16*)a.g.k + place, from >= 0);
				cp_async_zfill(&ring[into].v[t][lane()], (const u16*)a.g.v + place, from >= 0);
			}
		}
		cp_async_commit();
		next += DECODE_WARPS * TAKEN;
		if (++into == STAGES) into = 0;
	};
	prefetch_page_table(a.g, at);
	resolve(0);
	__syncthreads();
	pdl_wait();
	// Copies of sinks and window are in flight while the list is read.
	int started = min_of(n / (DECODE_WARPS * TAKEN), STAGES), resolved = n;
	for (int i = 0; i < started; i++) issue_copies();
	e = entries(a.plan.list, a.g, at, h, (int)a.heads);
	if (selects_all(a.plan, e, at.p)) {
		cp_async_wait<0>();
		return;
	}
	int all = fixed + e.n;
	n = min_of(all, EACH_PLACES);
	resolve(resolved);
	__syncthreads();
	for (int i = started; i < STAGES; i++) issue_copies();
	Lane mine;
	mine.load_query(a.q + ((i64)row * a.heads + h) * DIM);
	for (int stage = 0;;) {
		for (int first = warp() * TAKEN; first < n; first += DECODE_WARPS * TAKEN) {
			cp_async_wait<STAGES - 1>();
			mine.load_stage(ring[stage]);
			issue_copies();
			if (++stage == STAGES) stage = 0;
			mine.add(mixture, [&](int t) {
				int i = first + t * ROWS + lane() / PIECES;
				return i < n ? biases[i] : mixture ? 0 : -infinity();
			});
		}
		cp_async_wait<0>();
		base += EACH_PLACES;
		if (base >= all) break;
		n = min_of(all - base, EACH_PLACES);
		__syncthreads();
		resolve(0);
		__syncthreads();
		next = warp() * TAKEN;
		into = stage = 0;
		for (int i = 0; i < STAGES; i++) issue_copies();
	}
	__syncthreads();
	mine.template merge<DECODE_WARPS>(a.dst + ((i64)row * a.heads + h) * DIM, (float*)memory, states, mixture);
}

KERNEL_4_PER_SM(decode_each_64, DecodeArgs, DECODE_WARPS * WARP) { decode_each<64>(a); }
KERNEL_4_PER_SM(decode_each_128, DecodeArgs, DECODE_WARPS * WARP) { decode_each<128>(a); }
