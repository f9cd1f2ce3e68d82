// A kernel of the tests on a GPU: inputs that come late. No operation calls it, and the
// emulator, where calls follow one another, lacks it.
#include "args.cuh"

constexpr int LATE_COPIES = 24;   // of a call
constexpr int LATE_TIME = 60000;  // in cycles, several times what a launch takes

struct LateCopy {
	u32* to;
	const u32* from;
	i64 words;
};

struct LateArgs {
	i64 n;
	LateCopy copies[LATE_COPIES];
};

// late_copies lets the next launch start and then takes its time to copy what that one
// reads: a kernel that reads it before wait_before reads what was there.
KERNEL(late_copies, LateArgs, 1024) {
	pdl_trigger();
	pdl_wait();
	for (long long start = clock64(); clock64() - start < LATE_TIME;) {
	}
	for (int c = 0; c < a.n; c++) {
		for (i64 i = threadIdx.x; i < a.copies[c].words; i += blockDim.x) a.copies[c].to[i] = a.copies[c].from[i];
	}
}
