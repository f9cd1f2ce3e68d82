//go:build cuda && !cudaemu

package cuda

/*
#cgo LDFLAGS: -ldl
#include <cuda.h>
#include <stdint.h>

// shim.c
int gollm_cuda_open(void);
extern char gollm_cuda_why[512];
int gollm_wide_map(uint64_t* words, uint64_t at, uint64_t rows, uint64_t width);

// What gorgonia.org/cu lacks: launches whose argument is one struct, stream
// capture, graph launches, and the driver's own words for its errors. Each call
// makes the context the thread's, because goroutines change threads.

static CUresult wide_map(CUcontext context, uint64_t* words, uint64_t at, uint64_t rows, uint64_t width) {
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : gollm_wide_map(words, at, rows, width);
}

static CUresult launch(CUcontext context, CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, CUstream stream, uint64_t* words) {
	void* arguments[] = {words};
	CUresult r = cuCtxSetCurrent(context);
	return r ? r : cuLaunchKernel(f, x, y, z, threads, 1, 1, shared, stream, arguments, 0);
}

// launch_ahead is launch of a kernel that may start before the one in front of it is
// done, and of which blocks in z run together.
static CUresult launch_ahead(CUcontext context, CUfunction f, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned shared, unsigned together, CUstream stream, uint64_t* words) {
	void* arguments[] = {words};
	CUlaunchAttribute how[2] = {
		{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value = {.programmaticStreamSerializationAllowed = 1}},
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value = {.clusterDim = {1, 1, together}}},
	};
	CUlaunchConfig config = {x, y, z, threads, 1, 1, shared, stream, how, together > 1 ? 2 : 1};
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

// alloc_host takes memory of the host that the device writes to.
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

// record sets an event; captured, it is a node that sets it with each launch.
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

// prefer_shared keeps as much shared memory on a multiprocessor as it has: blocks of
// kernels that prefer another division of its memory cannot be there together.
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
#cgo noescape launch_ahead
#cgo nocallback launch_ahead
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
	shared  int // bytes of shared memory that a block may ask for
	ahead   bool
	hasWide bool

	preferred map[function]bool // kernels that are launched ahead

	capturing bool
}

// cu's handles are structs of one pointer, which no method gives out.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(cu.CUContext{})-unsafe.Sizeof(uintptr(0))]
	_ = [1]struct{}{}[unsafe.Sizeof(cu.Function{})-unsafe.Sizeof(uintptr(0))]
)

func (d *driver) c() C.CUcontext           { return *(*C.CUcontext)(unsafe.Pointer(&d.context)) }
func (d *driver) cStream() C.CUstream      { return C.CUstream(unsafe.Pointer(d.stream.C())) }
func cFunction(f cu.Function) C.CUfunction { return *(*C.CUfunction)(unsafe.Pointer(&f)) }

// start finds the driver once.
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

// result is the driver's words for its error.
func result(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return fmt.Errorf("%s: %s", C.GoString(C.name_of(r)), C.GoString(C.text_of(r)))
}

// inWords is an error of cu in the driver's words: cu has none for newer codes.
func inWords(err error) error {
	if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
		return result(C.CUresult(v.Int()))
	}
	return err
}

// maxSharedPerBlockOptin is an attribute that gorgonia.org/cu has no name for.
const maxSharedPerBlockOptin = cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)

// aheadVersion is the first driver that captures launches ahead.
const aheadVersion = 12030

// minMajor is the oldest compute capability that the kernels are built for.
const minMajor = 8

func openDriver(index int) (*driver, error) {
	if err := start(); err != nil {
		return nil, err
	}
	n, err := cu.NumDevices()
	if err != nil {
		return nil, inWords(err)
	}
	if index < 0 || index >= n {
		there := "there is one, cuda:0"
		if n > 1 {
			there = fmt.Sprintf("there are cuda:0 to cuda:%d", n-1)
		}
		return nil, fmt.Errorf("no GPU %d: %s", index, there)
	}
	d := &driver{preferred: map[function]bool{}}
	if err := d.open(index); err != nil {
		return nil, fmt.Errorf("GPU %d: %w", index, inWords(err))
	}
	return d, nil
}

// open makes the context and loads the kernels.
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
	d.ahead = d.major >= 9 && cu.Version() >= aheadVersion
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
		return fmt.Errorf("the kernels do not load into driver %s: %w; a newer driver is needed, or a build with an older CUDA", version(), inWords(err))
	}
	if d.major == 9 && d.minor == 0 {
		_, missing := d.find("wgmma_probe")
		d.hasWide = missing == nil
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

// do calls functions of cu with the context.
func (d *driver) do(call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cu.SetCurrentContext(d.context); err != nil {
		return inWords(err)
	}
	return inWords(call())
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

// write stages src before it returns: src is memory that can be paged.
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

// hostMemory is memory of the host that the device writes to.
type hostMemory struct {
	bytes  []byte
	device uintptr // its address there
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

// emulated says whether there is no GPU.
const emulated = false

// workspaceSize is the bytes of memory that ops pass results in from one of
// their kernels to the next.
const workspaceSize = 64 << 20

// halvesSize is the bytes of memory for both sides of a product of many rows in
// half precision: 2048 activations and 14336 weights of an 8B model fit.
const halvesSize = 192 << 20

// librarySize is the bytes of memory that cuBLASLt may use besides.
const librarySize = 32 << 20

// What Peaks measures with: bytes of a copy, and rows of a product.
const (
	peakCopy    = 1 << 30
	peakProduct = 8192
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

// staticShared is the bytes of shared memory that a kernel declares.
func (d *driver) staticShared(f function) (int, error) {
	var bytes C.int
	err := result(C.static_shared(d.c(), cFunction(f), &bytes))
	return int(bytes), err
}

// allowShared lets launches of a kernel ask for bytes of dynamic shared memory that with
// what it declares are more than defaultShared.
func (d *driver) allowShared(f function, bytes int) error {
	return result(C.allow_shared(d.c(), cFunction(f), C.int(bytes)))
}

func (d *driver) launch(f function, b blocks, threads, shared, together int, ahead bool, words []uint64) error {
	if ahead && d.ahead {
		if !d.preferred[f] {
			if err := result(C.prefer_shared(d.c(), cFunction(f))); err != nil {
				return err
			}
			d.preferred[f] = true
		}
		return result(C.launch_ahead(d.c(), cFunction(f), C.uint(b.x), C.uint(b.y), C.uint(b.z), C.uint(threads), C.uint(shared), C.uint(together),
			d.cStream(), (*C.uint64_t)(unsafe.SliceData(words))))
	}
	return result(C.launch(d.c(), cFunction(f), C.uint(b.x), C.uint(b.y), C.uint(b.z), C.uint(threads), C.uint(shared),
		d.cStream(), (*C.uint64_t)(unsafe.SliceData(words))))
}

// wideMap is a TensorMap of wgmma.cuh.
func (d *driver) wideMap(at uintptr, rows, width int) (words [16]uint64, err error) {
	err = result(C.wide_map(d.c(), (*C.uint64_t)(&words[0]), C.uint64_t(at), C.uint64_t(rows), C.uint64_t(width)))
	return words, err
}

// multiprocessors is how many the GPU has.
func (d *driver) multiprocessors() int { return d.units }

// sharedMemory is the bytes of shared memory that a block may have, static and dynamic.
func (d *driver) sharedMemory() int { return d.shared }

// maxCluster is how many blocks can run together.
func (d *driver) maxCluster() int {
	if d.ahead {
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

// mark is an event.
type mark = C.CUevent

func (d *driver) newMark() (m mark, err error) {
	err = result(C.new_event(d.c(), &m))
	return m, err
}

func (d *driver) freeMark(m mark) error { return result(C.free_event(d.c(), m)) }

func (d *driver) record(m mark) error {
	captured := C.int(0)
	if d.capturing {
		captured = 1
	}
	return result(C.record(d.c(), m, d.cStream(), captured))
}

// wait waits for a mark that was set; one that never was is none to wait for.
func (d *driver) wait(m mark) error { return result(C.wait_event(d.c(), m)) }

func (d *driver) between(from, to mark) (time.Duration, error) {
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

// driverGraph is captured calls.
type driverGraph struct {
	d    *driver
	exec C.CUgraphExec
}

func (g *driverGraph) launch() error {
	return result(C.launch_graph(g.d.c(), g.exec, g.d.cStream()))
}

func (g *driverGraph) close() error { return result(C.free_graph(g.d.c(), g.exec)) }
