// A libcuda that computes nothing, for tests of how the program calls one. A thread
// without a current context gets CUDA_ERROR_INVALID_CONTEXT from what needs one, and
// DRIVER_FAILS="cuMemAlloc_v2=2 ..." makes functions fail with a code.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_CONTEXT = 201 };

static __thread void* current;
static int some; // what handles point to

// hold counts contexts and memory that are taken and given back; DRIVER_COUNTS=1 prints
// how many there are.
static void hold(int more) {
	static int held;
	held += more;
	if (getenv("DRIVER_COUNTS")) fprintf(stderr, "held: %d\n", held);
}

// told is the code that a function is told to fail with.
static int told(const char* name) {
	const char* at = getenv("DRIVER_FAILS");
	size_t n = strlen(name);
	for (; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
		if (!strncmp(at, name, n) && at[n] == '=') return atoi(at + n + 1);
	return OK;
}

#define ANYWHERE(name, parameters, does) \
	int name parameters { \
		int r = told(#name); \
		if (r) return r; \
		does; \
		return OK; \
	}
#define ANSWERS(name, parameters, does) \
	int name parameters { \
		int r = current ? told(#name) : INVALID_CONTEXT; \
		return r ? r : (does); \
	}
#define INSIDE(name, parameters, does) \
	int name parameters { \
		int r = current ? told(#name) : INVALID_CONTEXT; \
		if (r) return r; \
		does; \
		return OK; \
	}

// number is that of an environment variable.
static int number(const char* name, int otherwise) {
	const char* text = getenv(name);
	return text ? atoi(text) : otherwise;
}

// A kernel declares DRIVER_STATIC bytes of shared memory. Launches may ask for what is left
// of 48 KB, or for what an attribute has allowed.
enum { INVALID_VALUE = 1, SHARED_SIZE_BYTES = 1, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, DEFAULT_SHARED = 48 << 10, MOST_SHARED = 232448 };
static int allowed = -1;

static int function_attribute(int which) { return which == SHARED_SIZE_BYTES ? number("DRIVER_STATIC", 0) : 0; }

// set_attribute says what is allowed where DRIVER_STATIC is set.
static int set_attribute(int which, int value) {
	if (which != MAX_DYNAMIC_SHARED_SIZE_BYTES) return OK;
	if (value < 0 || value + number("DRIVER_STATIC", 0) > MOST_SHARED) return INVALID_VALUE;
	allowed = value;
	if (getenv("DRIVER_STATIC")) fprintf(stderr, "allowed: %d\n", value);
	return OK;
}

static int launched(unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared) {
	int may = allowed < 0 ? DEFAULT_SHARED - number("DRIVER_STATIC", 0) : allowed;
	return !x || !y || !z || y > 65535 || z > 65535 || !threads || threads > 1024 || (int)shared > may ? INVALID_VALUE : OK;
}

// attribute is of an H200, but for its memory.
static int attribute(int which) {
	switch (which) {
	case 75: return number("DRIVER_MAJOR", 9); // compute capability
	case 76: return 0;
	case 16: return 132; // multiprocessors
	case 97: return MOST_SHARED;
	}
	return 0;
}

ANYWHERE(cuInit, (unsigned flags), (void)flags)
ANYWHERE(cuDriverGetVersion, (int* version), *version = 13000)
ANYWHERE(cuDeviceGetCount, (int* n), *n = 1)
ANYWHERE(cuDeviceGet, (int* device, int i), *device = i)
ANYWHERE(cuDeviceGetName, (char* name, int n, int device), ((void)device, snprintf(name, n, "a card")))
ANYWHERE(cuDeviceGetAttribute, (int* value, int which, int device), ((void)device, *value = attribute(which)))
ANYWHERE(cuDevicePrimaryCtxRetain, (void** context, int device), ((void)device, *context = &some, hold(1)))
ANYWHERE(cuDevicePrimaryCtxRelease_v2, (int device), ((void)device, hold(-1)))
ANYWHERE(cuCtxSetCurrent, (void* context), current = context)
ANYWHERE(cuGetErrorName, (int code, const char** text), *text = code == 1 ? "CUDA_ERROR_INVALID_VALUE" : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR")
ANYWHERE(cuGetErrorString, (int code, const char** text), ((void)code, *text = "words"))

INSIDE(cuModuleLoadData, (void** module, const void* image), ((void)image, *module = &some))

// DRIVER_LACKS is a kernel that is not in the module.
int cuModuleGetFunction(void** function, void* module, const char* name) {
	const char* lacks = getenv("DRIVER_LACKS");
	(void)module, *function = &some;
	return !current ? INVALID_CONTEXT : lacks && !strcmp(lacks, name) ? 500 : told("cuModuleGetFunction");
}


INSIDE(cuModuleUnload, (void* module), (void)module)
INSIDE(cuStreamCreate, (void** stream, unsigned flags), ((void)flags, *stream = &some))
INSIDE(cuStreamDestroy_v2, (void* stream), (void)stream)
INSIDE(cuStreamSynchronize, (void* stream), (void)stream)
INSIDE(cuMemGetInfo_v2, (size_t* left, size_t* all), *left = *all = (size_t)80 << 30)
INSIDE(cuMemAlloc_v2, (uint64_t* at, size_t size), ((void)size, *at = 1 << 20, hold(1)))
INSIDE(cuMemFree_v2, (uint64_t at), ((void)at, hold(-1)))
INSIDE(cuMemsetD8Async, (uint64_t at, unsigned char value, size_t n, void* stream), ((void)at, (void)value, (void)n, (void)stream))
INSIDE(cuMemcpyHtoDAsync_v2, (uint64_t to, const void* from, size_t n, void* stream), ((void)to, (void)from, (void)n, (void)stream))
INSIDE(cuMemcpyDtoHAsync_v2, (void* to, uint64_t from, size_t n, void* stream), ((void)from, (void)stream, memset(to, 0, n)))
INSIDE(cuMemcpyDtoDAsync_v2, (uint64_t to, uint64_t from, size_t n, void* stream), ((void)to, (void)from, (void)n, (void)stream))
INSIDE(cuMemHostAlloc, (void** at, size_t n, unsigned flags), ((void)flags, *at = calloc(1, n), hold(1)))
INSIDE(cuMemHostGetDevicePointer_v2, (uint64_t* at, void* host, unsigned flags), ((void)flags, *at = (uint64_t)host))
INSIDE(cuMemFreeHost, (void* at), (free(at), hold(-1)))
INSIDE(cuFuncGetAttribute, (int* value, int which, void* function), ((void)function, *value = function_attribute(which)))
ANSWERS(cuFuncSetAttribute, (void* function, int which, int value), ((void)function, set_attribute(which, value)))
ANSWERS(cuLaunchKernel,
	(void* function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared, void* stream, void** arguments, void** more),
	((void)function, (void)stream, (void)arguments, (void)more, launched(x, y, z, tx * ty * tz, shared)))
struct attribute { // CUlaunchAttribute
	int id, pad;
	union {
		unsigned cluster[3];
		char all[64];
	} value;
};
struct config { // CUlaunchConfig
	unsigned x, y, z, tx, ty, tz, shared;
	void* stream;
	const struct attribute* how;
	unsigned n;
};

// clusters says the blocks of a cluster of a launch in z, if it is to.
static int clusters(const struct config* c) {
	for (unsigned i = 0; i < c->n && getenv("DRIVER_CLUSTERS"); i++) {
		if (c->how[i].id == 4) fprintf(stderr, "cluster: %u\n", c->how[i].value.cluster[2]);
	}
	return 0;
}
ANSWERS(cuLaunchKernelEx, (const struct config* c, void* function, void** arguments, void** more),
	((void)function, (void)arguments, (void)more, clusters(c), launched(c->x, c->y, c->z, c->tx * c->ty * c->tz, c->shared)))
INSIDE(cuStreamBeginCapture_v2, (void* stream, int mode), ((void)stream, (void)mode))
INSIDE(cuStreamEndCapture, (void* stream, void** graph), ((void)stream, *graph = &some))
INSIDE(cuGraphInstantiateWithFlags, (void** exec, void* graph, unsigned long long flags), ((void)graph, (void)flags, *exec = &some))
INSIDE(cuGraphDestroy, (void* graph), (void)graph)
INSIDE(cuGraphExecDestroy, (void* exec), (void)exec)
INSIDE(cuGraphLaunch, (void* exec, void* stream), ((void)exec, (void)stream))
INSIDE(cuEventCreate, (void** event, unsigned flags), ((void)flags, *event = &some))
INSIDE(cuEventDestroy_v2, (void* event), (void)event)
INSIDE(cuEventRecord, (void* event, void* stream), ((void)event, (void)stream))
INSIDE(cuEventRecordWithFlags, (void* event, void* stream, unsigned flags), ((void)event, (void)stream, (void)flags))
INSIDE(cuEventSynchronize, (void* event), (void)event)
INSIDE(cuEventElapsedTime, (float* ms, void* from, void* to), ((void)from, (void)to, *ms = 1))
INSIDE(cuTensorMapEncodeTiled,
	(void* map, int type, uint32_t rank, void* at, const uint64_t* dims, const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,
		int swizzle, int promotion, int fill),
	((void)map, (void)type, (void)rank, (void)at, (void)dims, (void)strides, (void)box, (void)steps, (void)interleave, (void)swizzle, (void)promotion, (void)fill))
