// A kernel for tests on a GPU: a predecessor that writes late. No operation launches it, and
// the emulator, which runs launches one after the other, leaves it out.
#include "args.cuh"

constexpr int LATE_COPIES = 24;   // of a call
constexpr int LATE_TIME = 60000;  // cycles, several times the latency of a launch

struct LateCopy {
	u32* to;
	const u32* from;
	i64 words;
};

struct LateArgs {
	i64 n;
	LateCopy copies[LATE_COPIES];
};

// late_copies triggers its dependents at once, spins, and only then copies what they read: a
// kernel that reads before pdl_wait sees stale data. One block of 1024 threads.
KERNEL(late_copies, LateArgs, 1024) {
	pdl_trigger();
	pdl_wait();
	for (long long start = clock64(); clock64() - start < LATE_TIME;) {
	}
	for (int c = 0; c < a.n; c++) {
		for (i64 i = threadIdx.x; i < a.copies[c].words; i += blockDim.x) a.copies[c].to[i] = a.copies[c].from[i];
	}
}
