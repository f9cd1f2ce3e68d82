//go:build cuda && !cudaemu

// Loads the driver library, libcuda, at run time: every driver function that the program
// calls is defined here as a jump through a pointer, and gollm_cuda_open loads the library and
// sets the pointers. So the program starts on machines without a driver, and on others it
// costs nothing until a GPU is opened. Until then every function returns
// CUDA_ERROR_NO_DEVICE, except cuInit, which gorgonia.org/cu calls in its package
// initialization and which must succeed there.

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define FUNCTIONS(X) \
	X(cuArray3DCreate_v2) X(cuArray3DGetDescriptor_v2) X(cuArrayCreate_v2) X(cuArrayDestroy) \
	X(cuArrayGetDescriptor_v2) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuCtxDisablePeerAccess) \
	X(cuCtxEnablePeerAccess) X(cuCtxGetApiVersion) X(cuCtxGetCacheConfig) X(cuCtxGetCurrent) X(cuCtxGetDevice) \
	X(cuCtxGetFlags) X(cuCtxGetLimit) X(cuCtxGetSharedMemConfig) X(cuCtxGetStreamPriorityRange) \
	X(cuCtxPopCurrent_v2) X(cuCtxPushCurrent_v2) X(cuCtxResetPersistingL2Cache) X(cuCtxSetCacheConfig) \
	X(cuCtxSetCurrent) X(cuCtxSetLimit) X(cuCtxSetSharedMemConfig) X(cuCtxSynchronize) X(cuDeviceCanAccessPeer) \
	X(cuDeviceGet) X(cuDeviceGetAttribute) X(cuDeviceGetCount) X(cuDeviceGetName) \
	X(cuDeviceGetP2PAttribute) X(cuDeviceGetUuid) X(cuDevicePrimaryCtxGetState) X(cuDevicePrimaryCtxRelease_v2) \
	X(cuDevicePrimaryCtxReset_v2) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxSetFlags_v2) \
	X(cuDeviceTotalMem_v2) X(cuDriverGetVersion) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventElapsedTime) \
	X(cuEventElapsedTime_v2) X(cuEventQuery) X(cuEventRecord) X(cuEventRecordWithFlags) X(cuEventSynchronize) X(cuFuncGetAttribute) \
	X(cuFuncSetAttribute) X(cuFuncSetCacheConfig) X(cuFuncSetSharedMemConfig) X(cuGetErrorName) \
	X(cuGetErrorString) X(cuGraphAddChildGraphNode) X(cuGraphAddDependencies) X(cuGraphAddEmptyNode) \
	X(cuGraphAddHostNode) X(cuGraphAddKernelNode) X(cuGraphAddKernelNode_v2) X(cuGraphAddMemcpyNode) \
	X(cuGraphAddMemsetNode) X(cuGraphClone) X(cuGraphCreate) X(cuGraphDestroy) X(cuGraphDestroyNode) \
	X(cuGraphExecDestroy) X(cuGraphGetEdges) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch) X(cuLaunchKernel) X(cuLaunchKernelEx) \
	X(cuLinkAddData_v2) X(cuLinkAddFile_v2) X(cuLinkComplete) X(cuLinkCreate_v2) X(cuLinkDestroy) X(cuMemAdvise) \
	X(cuMemAllocManaged) X(cuMemAllocPitch_v2) X(cuMemAlloc_v2) X(cuMemFreeHost) X(cuMemFree_v2) \
	X(cuMemGetAddressRange_v2) X(cuMemGetInfo_v2) X(cuMemHostAlloc) X(cuMemHostGetDevicePointer_v2) \
	X(cuMemPrefetchAsync) X(cuMemcpy) X(cuMemcpy2DAsync_v2) X(cuMemcpy2DUnaligned_v2) X(cuMemcpy2D_v2) \
	X(cuMemcpy3DAsync_v2) X(cuMemcpy3DPeer) X(cuMemcpy3DPeerAsync) X(cuMemcpy3D_v2) X(cuMemcpyAsync) \
	X(cuMemcpyAtoA_v2) X(cuMemcpyAtoD_v2) X(cuMemcpyAtoHAsync_v2) X(cuMemcpyAtoH_v2) X(cuMemcpyDtoA_v2) \
	X(cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoD_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoH_v2) \
	X(cuMemcpyHtoAAsync_v2) X(cuMemcpyHtoA_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyHtoD_v2) X(cuMemcpyPeer) \
	X(cuMemcpyPeerAsync) X(cuMemsetD16Async) X(cuMemsetD16_v2) X(cuMemsetD2D16Async) X(cuMemsetD2D16_v2) \
	X(cuMemsetD2D32Async) X(cuMemsetD2D32_v2) X(cuMemsetD2D8Async) X(cuMemsetD2D8_v2) X(cuMemsetD32Async) \
	X(cuMemsetD32_v2) X(cuMemsetD8Async) X(cuMemsetD8_v2) X(cuModuleGetFunction) X(cuModuleGetGlobal_v2) \
	X(cuModuleGetSurfRef) X(cuModuleGetTexRef) X(cuModuleLoad) X(cuModuleLoadData) X(cuModuleLoadDataEx) \
	X(cuModuleLoadFatBinary) X(cuModuleUnload) X(cuOccupancyMaxActiveBlocksPerMultiprocessor) \
	X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) X(cuPointerGetAttribute) X(cuPointerSetAttribute) \
	X(cuStreamAttachMemAsync) X(cuStreamBeginCapture_v2) X(cuStreamCreate) X(cuStreamCreateWithPriority) \
	X(cuStreamDestroy_v2) X(cuStreamEndCapture) X(cuStreamGetFlags) X(cuStreamGetPriority) X(cuStreamQuery) \
	X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamWaitValue32_v2) X(cuStreamWriteValue32_v2) \
	X(cuSurfRefGetArray) X(cuSurfRefSetArray) X(cuTexRefGetAddressMode) X(cuTexRefGetAddress_v2) \
	X(cuTexRefGetArray) X(cuTexRefGetBorderColor) X(cuTexRefGetFilterMode) X(cuTexRefGetFlags) \
	X(cuTexRefGetFormat) X(cuTexRefGetMaxAnisotropy) X(cuTexRefSetAddress2D_v3) X(cuTexRefSetAddressMode) \
	X(cuTexRefSetAddress_v2) X(cuTexRefSetArray) X(cuTexRefSetBorderColor) X(cuTexRefSetFilterMode) \
	X(cuTexRefSetFlags) X(cuTexRefSetFormat) X(cuTexRefSetMaxAnisotropy) X(cuTexRefSetMipmapFilterMode) \
	X(cuTexRefSetMipmapLevelBias) X(cuTexRefSetMipmapLevelClamp) \
	X(cuTensorMapEncodeTiled)

static int no_device(void) { return 100; }
static int not_found(void) { return 500; } // a function that the driver lacks

#if defined(__x86_64__)
#define JUMP(name) "\tjmp *gollm_at_" #name "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP(name) "\tadrp x16, gollm_at_" #name "\n\tldr x16, [x16, :lo12:gollm_at_" #name "]\n\tbr x16\n"
#endif

#define DEFINE(name) \
	__attribute__((visibility("hidden"), used)) void* gollm_at_##name = (void*)no_device; \
	__asm__(".text\n.globl " #name "\n.type " #name ", %function\n" #name ":\n" JUMP(name) ".size " #name ", .-" #name "\n");

FUNCTIONS(DEFINE)

int cuInit(unsigned flags) {
	(void)flags;
	return 0;
}

// gollm_cuda_why is the loader's error where a driver library exists but does not load.
char gollm_cuda_why[512];

// gollm_cuda_open loads the driver and initializes it. It returns the driver's code, or -1
// if there is no driver.
int gollm_cuda_open(void) {
	static const char* names[] = {"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/usr/local/nvidia/lib64/libcuda.so.1"};
	void* lib = NULL;
	for (size_t i = 0; !lib && i < sizeof names / sizeof *names; i++) {
		lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		const char* why = lib ? NULL : dlerror();
		if (why && !strstr(why, "No such file") && !*gollm_cuda_why) snprintf(gollm_cuda_why, sizeof gollm_cuda_why, "%s", why);
	}
	if (!lib) return -1;
	void* at;
#define LOAD(name) \
	gollm_at_##name = (at = dlsym(lib, #name)) ? at : (void*)not_found;
	FUNCTIONS(LOAD)
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	return init ? init(0) : -1;
}

// cuTensorMapEncodeTiled is not in the headers of CUDA 11.
extern int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* at, const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
	const uint32_t* steps, int interleave, int swizzle, int promotion, int fill);

// gollm_tensor_map encodes the TMA descriptor of an f16 matrix in boxes of 64 rows by 64
// columns, with the swizzle of kernels/wgmma.cuh.
int gollm_tensor_map(uint64_t* words, uint64_t at, uint64_t rows, uint64_t width) {
	enum { FLOAT16 = 6, NOT_INTERLEAVED = 0, SWIZZLE_128B = 3, PROMOTE_256B = 3, ZEROS = 0 };
	_Alignas(64) uint64_t map[16];
	uint64_t dims[2] = {width, rows}, strides[1] = {width * 2};
	uint32_t box[2] = {64, 64}, steps[2] = {1, 1};
	int r = cuTensorMapEncodeTiled(map, FLOAT16, 2, (void*)at, dims, strides, box, steps, NOT_INTERLEAVED, SWIZZLE_128B, PROMOTE_256B, ZEROS);
	for (int i = 0; i < 16; i++) words[i] = map[i];
	return r;
}
