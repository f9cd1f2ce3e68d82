//go:build cuda && !cudaemu

package cuda

/*
#cgo LDFLAGS: -ldl
#include <cuda.h>
#include <stdint.h>

// shim.c
int gollm_cuda_open(void);
extern char gollm_cuda_why[512];
int gollm_tensor_map(uint64_t* words, uint64_t at, uint64_t rows, uint64_t width);

// What gorgonia.org/cu lacks: launches with one struct as argument, launch attributes, stream
// capture, graph launches, and the driver's error texts. Each call sets the thread's current
// context, because goroutines move between threads.

static CUresult tensor_map(CUcontext context, uint64_t* words, uint64_t at, uint64_t rows, uint64_t width) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : gollm_tensor_map(words, at, rows, width);
}

static CUresult launch(CUcontext context, CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, CUstream stream, uint64_t* words) {
	void* arguments[] = {words};
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuLaunchKernel(f, x, y, z, threads, 1, 1, shared, stream, arguments, 0);
}

// launch_with is a launch with thread-block clusters in z, programmatic dependent or not.
static CUresult launch_with(CUcontext context, CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, unsigned cluster, int pdl, CUstream stream, uint64_t* words) {
	void* arguments[] = {words};
	CUlaunchAttribute how[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value = {.programmaticStreamSerializationAllowed = pdl}},
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {1, 1, cluster}}},
	};
	CUlaunchConfig config = {x, y, z, threads, 1, 1, shared, stream, how, cluster > 1 ? 2 : 1};
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuLaunchKernelEx(&config, f, arguments, 0);
}

static CUresult begin_capture(CUcontext context, CUstream stream) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult end_capture(CUcontext context, CUstream stream, CUgraphExec* exec) {
	CUgraph graph = 0;
	CUresult r = cuCtxSetCurrent(context);
	if (!r) r = cuStreamEndCapture(stream, &graph);
	if (!r) r = cuGraphInstantiateWithFlags(exec, graph, 0);
	if (graph) cuGraphDestroy(graph);
	return r;
}

static CUresult launch_graph(CUcontext context, CUgraphExec exec, CUstream stream) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuGraphLaunch(exec, stream);
}

// alloc_host allocates pinned host memory that is mapped on the device.
static CUresult alloc_host(CUcontext context, size_t size, void** host, CUdeviceptr* device) {
	CUresult r = cuCtxSetCurrent(context);
	if (!r) r = cuMemHostAlloc(host, size, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
	if (r) return r;
	if ((r = cuMemHostGetDevicePointer(device, *host, 0))) cuMemFreeHost(*host);
	return r;
}

static CUresult free_host(CUcontext context, void* host) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuMemFreeHost(host);
}

static CUresult static_shared(CUcontext context, CUfunction f, int* bytes) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuFuncGetAttribute(bytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, f);
}

static CUresult allow_shared(CUcontext context, CUfunction f, int bytes) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
}

// record records an event; in a capture, by a node of the graph.
static CUresult record(CUcontext context, CUevent event, CUstream stream, int captured) {
	CUresult r = cuCtxSetCurrent(context);
	if (r) return r;
	return captured ? cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL) : cuEventRecord(event, stream);
}

static CUresult new_event(CUcontext context, CUevent* event) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuEventCreate(event, CU_EVENT_DEFAULT);
}

static CUresult wait_event(CUcontext context, CUevent event) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuEventSynchronize(event);
}

static CUresult free_event(CUcontext context, CUevent event) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuEventDestroy(event);
}

static CUresult free_graph(CUcontext context, CUgraphExec exec) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuGraphExecDestroy(exec);
}

static CUresult elapsed(CUcontext context, float* ms, CUevent from, CUevent to) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuEventElapsedTime(ms, from, to);
}

// prefer_shared sets a kernel's carveout to the maximum of shared memory: blocks of kernels with
// different carveouts cannot be resident on a multiprocessor at the same time.
static CUresult prefer_shared(CUcontext context, CUfunction f) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuFuncSetAttribute(f, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, CU_SHAREDMEM_CARVEOUT_MAX_SHARED);
}

static const char* name_of(CUresult r) {
	const char* text = 0;
	return cuGetErrorName(r, &text) || !text ? "an unknown error" : text;
}

static const char* text_of(CUresult r) {
	const char* text = 0;
	return cuGetErrorString(r, &text) || !text ? "no description" : text;
}

#cgo noescape launch
#cgo nocallback launch
#cgo noescape launch_with
#cgo nocallback launch_with
*/
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/gollm/gollm/cuda/kernels"
)

// driver is a GPU: its context, the module of all kernels and one stream.
type driver struct {
	device  cu.Device
	context cu.CUContext
	module  cu.Module
	stream  cu.Stream
	name    string
	major   int // compute capability
	minor   int
	units   int // multiprocessors
	library library
	shared  int // limit of a block's shared memory, in bytes
	pdl     bool
	wgmma   bool

	carveout map[function]bool // kernels that prefer shared memory

	capturing bool
}

// cu's handles are structs of one unexported pointer.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(cu.CUContext{})-unsafe.Sizeof(uintptr(0))]
	_ = [1]struct{}{}[unsafe.Sizeof(cu.Function{})-unsafe.Sizeof(uintptr(0))]
)

func (d *driver) c() C.CUcontext           { return *(*C.CUcontext)(unsafe.Pointer(&d.context)) }
func (d *driver) cStream() C.CUstream      { return C.CUstream(unsafe.Pointer(d.stream.C())) }
func cFunction(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

// start loads the driver once.
var start = sync.OnceValue(func() error {
	switch code := C.gollm_cuda_open(); code {
	case 0:
		return nil
	case -1:
		if why := C.GoString(&C.gollm_cuda_why[0]); why != "" {
			return fmt.Errorf("the NVIDIA driver does not load: %s", why)
		}
		return errors.New("this machine has no NVIDIA driver (libcuda.so.1 is not there)")
	case C.CUDA_ERROR_NO_DEVICE:
		return errors.New("the NVIDIA driver finds no GPU")
	default:
		return fmt.Errorf("the NVIDIA driver does not start: %w", result(C.CUresult(code)))
	}
})

// result is an error of the driver with its name and text.
func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %s", C.GoString(C.name_of(r)), C.GoString(C.text_of(r)))
}

// driverError is result of cu's error: cu has no text for newer codes.
func driverError(err error) error {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return result(C.CUresult(v.Int()))
	}
	return err
}

// maxSharedPerBlockOptin is an attribute that gorgonia.org/cu has no name for.
const maxSharedPerBlockOptin = cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)

// pdlVersion is the first driver that captures programmatic dependent launches.
const pdlVersion = 12030

// minMajor is the oldest compute capability that the kernels are built for.
const minMajor = 8

func openDriver(index int) (*driver, error) {
	if err := start(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, driverError(err)
	}
	if index < 0 || index >= n {
		there := "there is one, cuda:0"
		if n > 1 {
			there = fmt.Sprintf("there are cuda:0 to cuda:%d", n-1)
		}
		return nil, fmt.Errorf("no GPU %d: %s", index, there)
	}
	d := &driver{carveout: map[function]bool{}}
	if err := d.open(index); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", index, driverError(err))
	}
	return d, nil
}

// open makes the context and the stream, and loads the kernels.
func (d *driver) open(index int) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if d.device, err = cu.GetDevice(index); err != nil {
		return err
	}
	if d.name, err = d.device.Name(); err != nil {
		return err
	}
	for at, attribute := range map[*int]cu.DeviceAttribute{
		&d.major: cu.ComputeCapabilityMajor, &d.minor: cu.ComputeCapabilityMinor, &d.units: cu.MultiprocessorCount,
		&d.shared: maxSharedPerBlockOptin,
	} {
		if *at, err = d.device.Attribute(attribute); err != nil {
			return err
		}
	}
	if d.major < minMajor {
		return fmt.Errorf("%s has compute capability %d.%d, want %d.0 or more", d.name, d.major, d.minor, minMajor)
	}
	d.pdl = d.major >= 9 && cu.Version() >= pdlVersion
	if d.context, err = d.device.RetainPrimaryCtx(); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = d.device.ReleasePrimaryCtx()
		}
	}()
	if err = cu.SetCurrentContext(d.context); err != nil {
		return err
	}
	if d.module, err = cu.LoadData(kernels.Image); err != nil {
		return fmt.Errorf("the kernels do not load into driver %s: %w; a newer driver is needed, or a build with an older CUDA", version(), driverError(err))
	}
	if d.major == 9 && d.minor == 0 {
		_, missing := d.find("wgmma_probe")
		d.wgmma = missing == nil
	}
	d.stream, err = cu.MakeStream(cu.NonBlocking)
	return err
}

// version is the newest CUDA that the driver knows, for example "13.0".
func version() string {
	v := cu.Version()
	return fmt.Sprintf("%d.%d", v/1000, v%1000/10)
}

func (d *driver) describe() string {
	return fmt.Sprintf("%s, compute capability %d.%d, %d multiprocessors, driver %s", d.name, d.major, d.minor, d.units, version())
}

// do calls functions of cu in the context.
func (d *driver) do(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return driverError(err)
	}
	return driverError(call())
}

func (d *driver) available() (free uint64) {
	_ = d.do(func() error {
		n, _, err := cu.MemInfo()
		free = uint64(n)
		return err
	})
	return free
}

func (d *driver) alloc(size int) (at uintptr, err error) {
	err = d.do(func() error {
		p, err := cu.MemAlloc(int64(size))
		if err != nil {
			return err
		}
		if err := cu.MemsetD8Async(p, 0, int64(size), d.stream); err != nil {
			_ = cu.MemFree(p)
			return err
		}
		at = uintptr(p)
		return nil
	})
	return at, err
}

func (d *driver) free(at uintptr) error {
	return d.do(func() error { return cu.MemFree(cu.DevicePtr(at)) })
}

// write returns when src, which is pageable memory, has been staged.
func (d *driver) write(dst uintptr, src []byte) error {
	return d.do(func() error {
		return cu.MemcpyHtoDAsync(cu.DevicePtr(dst), unsafe.Pointer(&src[0]), int64(len(src)), d.stream)
	})
}

func (d *driver) read(dst []byte, src uintptr) error {
	return d.do(func() error {
		if err := cu.MemcpyDtoHAsync(unsafe.Pointer(&dst[0]), cu.DevicePtr(src), int64(len(dst)), d.stream); err != nil {
			return err
		}
		return d.stream.Synchronize()
	})
}

func (d *driver) copy(dst, src uintptr, n int) error {
	return d.do(func() error {
		return cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), int64(n), d.stream)
	})
}

// hostMemory is pinned host memory that is mapped on the device.
type hostMemory struct {
	bytes  []byte
	device uintptr // device address
}

func (d *driver) allocHost(size int) (hostMemory, error) {
	var host unsafe.Pointer
	var at C.CUdeviceptr
	if err := result(C.alloc_host(d.c(), C.size_t(size), &host, &at)); err != nil {
		return hostMemory{}, err
	}
	return hostMemory{unsafe.Slice((*byte)(host), size), uintptr(at)}, nil
}

func (d *driver) freeHost(m hostMemory) error {
	if m.bytes == nil {
		return nil
	}
	return result(C.free_host(d.c(), unsafe.Pointer(&m.bytes[0])))
}

// emulated reports whether kernels run on the CPU.
const emulated = false

// workspaceSize is the bytes of the workspace, for what the kernels of a call pass to each other.
const workspaceSize = 64 << 20

// operandsSize is the bytes for the f16 operands of a GEMM: 2048 rows of activations and the
// 14336 of a matrix of an 8B model fit.
const operandsSize = 192 << 20

// librarySize is the bytes of cuBLASLt's workspace.
const librarySize = 32 << 20

// What Roofline measures with: bytes of a copy, and rows of a square GEMM.
const (
	rooflineCopy = 1 << 30
	rooflineGEMM = 8192
)

// function is a kernel.
type function = cu.Function

func (d *driver) find(name string) (f function, err error) {
	err = d.do(func() (err error) {
		f, err = d.module.Function("gollm_" + name)
		return err
	})
	if err != nil {
		return f, fmt.Errorf("kernel %s: %w", name, err)
	}
	return f, nil
}

// staticShared is the bytes of a kernel's static shared memory.
func (d *driver) staticShared(f function) (int, error) {
	var bytes C.int
	err := result(C.static_shared(d.c(), cFunction(f), &bytes))
	return int(bytes), err
}

// allowShared raises the limit of a kernel's dynamic shared memory.
func (d *driver) allowShared(f function, bytes int) error {
	return result(C.allow_shared(d.c(), cFunction(f), C.int(bytes)))
}

func (d *driver) launch(f function, b blocks, threads, shared, cluster int, pdl bool, words []uint64) error {
	if d.pdl && (pdl || cluster > 1) {
		if pdl && !d.carveout[f] {
			if err := result(C.prefer_shared(d.c(), cFunction(f))); err != nil {
				return err
			}
			d.carveout[f] = true
		}
		allowed := C.int(0)
		if pdl {
			allowed = 1
		}
		return result(C.launch_with(d.c(), cFunction(f), C.uint(b.x), C.uint(b.y), C.uint(b.z), C.uint(threads), C.uint(shared), C.uint(cluster), allowed,
			d.cStream(), (*C.uint64_t)(unsafe.SliceData(words))))
	}
	return result(C.launch(d.c(), cFunction(f), C.uint(b.x), C.uint(b.y), C.uint(b.z), C.uint(threads), C.uint(shared),
		d.cStream(), (*C.uint64_t)(unsafe.SliceData(words))))
}

// tensorMap encodes a TMA descriptor, a TensorMap of wgmma.cuh.
func (d *driver) tensorMap(at uintptr, rows, width int) (words [16]uint64, err error) {
	err = result(C.tensor_map(d.c(), (*C.uint64_t)(&words[0]), C.uint64_t(at), C.uint64_t(rows), C.uint64_t(width)))
	return words, err
}

// multiprocessors is the number of multiprocessors.
func (d *driver) multiprocessors() int { return d.units }

// sharedMemory is the limit of a block's shared memory in bytes, static and dynamic.
func (d *driver) sharedMemory() int { return d.shared }

// maxCluster is the maximum of blocks per thread-block cluster.
func (d *driver) maxCluster() int {
	if d.pdl {
		return 8
	}
	return 1
}

func (d *driver) sync() error { return d.do(d.stream.Synchronize) }

func (d *driver) begin() error {
	err := result(C.begin_capture(d.c(), d.cStream()))
	d.capturing = err == nil
	return err
}

func (d *driver) end() (*driverGraph, error) {
	d.capturing = false
	var exec C.CUgraphExec
	if err := result(C.end_capture(d.c(), d.cStream(), &exec)); err != nil {
		return nil, err
	}
	return &driverGraph{d, exec}, nil
}

// event is a point on the stream.
type event = C.CUevent

func (d *driver) newEvent() (e event, err error) {
	err = result(C.new_event(d.c(), &e))
	return e, err
}

func (d *driver) freeEvent(e event) error { return result(C.free_event(d.c(), e)) }

func (d *driver) record(e event) error {
	captured := C.int(0)
	if d.capturing {
		captured = 1
	}
	return result(C.record(d.c(), e, d.cStream(), captured))
}

// wait waits for an event; it returns at once for one that was never recorded.
func (d *driver) wait(e event) error { return result(C.wait_event(d.c(), e)) }

func (d *driver) elapsed(from, to event) (time.Duration, error) {
	var ms C.float
	err := result(C.elapsed(d.c(), &ms, from, to))
	return time.Duration(float64(ms) * float64(time.Millisecond)), err
}

func (d *driver) close() error {
	return d.do(func() error {
		d.closeLibrary()
		return errors.Join(d.stream.Destroy(), d.module.Unload(), d.device.ReleasePrimaryCtx())
	})
}

// driverGraph is an instantiated graph.
type driverGraph struct {
	d    *driver
	exec C.CUgraphExec
}

func (g *driverGraph) launch() error {
	return result(C.launch_graph(g.d.c(), g.exec, g.d.cStream()))
}

func (g *driverGraph) close() error { return result(C.free_graph(g.d.c(), g.exec)) }
