//go:build cudaemu

package cuda

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/gollm/gollm/cuda/kernels"
)

// driver is the emulator: its memory is the process's, and launch returns when the kernel has run.
type driver struct {
	used  map[uintptr]int // bytes by address
	taken uint64          // bytes in all
	calls *[]func() error // of the graph that is being captured, or nil
	seed  uint64          // of a random order of threads; 0: in their own order

	card    Card
	shared  int              // limit of a block's shared memory, in bytes
	sizes   map[string]size  // by kernel
	allowed map[function]int // limits of dynamic shared memory that were raised
}

// Card is the GPU that the emulator stands for.
type Card struct {
	Major, Minor    int // compute capability
	Shared          int // limit of a block's shared memory, in bytes
	Multiprocessors int
	Memory          uint64 // bytes
	Idle            bool   // launches are checked and not run
	// Launched, unless it is nil, is told of each launch when it is made or captured.
	Launched func(kernel string)
}

// emulatedCard has few multiprocessors, so that persistent blocks loop even over small work.
var emulatedCard = Card{Major: 9, Shared: 227 << 10, Multiprocessors: 6, Memory: 8 << 30}

// Emulate makes devices that are opened later emulate a GPU; nil ends that.
func Emulate(c *Card) { emulate.Store(c) }

var emulate atomic.Pointer[Card]

// Shuffle makes devices that are opened later run the threads and blocks of every launch in a
// random order; 0 ends that.
func Shuffle(seed uint64) { shuffle.Store(seed) }

var shuffle atomic.Uint64

// emulated reports whether kernels run on the CPU.
const emulated = true

// workspaceSize and operandsSize are as on a GPU where launches are not run, and otherwise so
// small that small work is cut into pieces. The device that was opened last decides.
var workspaceSize, operandsSize int

// librarySize is the bytes of the workspace of cuBLASLt, which is not emulated.
const librarySize = 0

// What Roofline measures with: bytes of a copy, and rows of a square GEMM.
const (
	rooflineCopy = 16 << 20
	rooflineGEMM = 128
)

// function is a kernel.
type function = kernels.Kernel

func openDriver(index int) (*driver, error) {
	if index != 0 {
		return nil, fmt.Errorf("no GPU %d: there is one, cuda:0, and it is emulated", index)
	}
	card := emulatedCard
	if c := emulate.Load(); c != nil {
		card = *c
	}
	workspaceSize, operandsSize = 16<<20, 1<<20
	if card.Idle {
		workspaceSize, operandsSize = 64<<20, 192<<20
	}
	sizes, err := readSizes(card.Major, card.Minor)
	return &driver{used: map[uintptr]int{}, seed: shuffle.Load(), card: card, shared: card.Shared, sizes: sizes, allowed: map[function]int{}}, err
}

func (d *driver) describe() string { return "emulated on the CPU" }

// multiprocessors is the number of multiprocessors.
func (d *driver) multiprocessors() int { return d.card.Multiprocessors }

// sharedMemory is the limit of a block's shared memory in bytes, static and dynamic.
func (d *driver) sharedMemory() int { return d.shared }

func (d *driver) available() uint64 { return d.card.Memory - d.taken }

func (d *driver) alloc(size int) (uintptr, error) {
	at := kernels.Alloc(size)
	if at == nil {
		return 0, errors.New("the system has no more")
	}
	d.used[uintptr(at)] = size
	d.taken += uint64(size)
	return uintptr(at), nil
}

func (d *driver) free(at uintptr) error {
	d.taken -= uint64(d.used[at])
	delete(d.used, at)
	kernels.Free(pointer(at))
	return nil
}

func (d *driver) write(dst uintptr, src []byte) error {
	copy(bytesAt(dst, len(src)), src)
	return nil
}

func (d *driver) read(dst []byte, src uintptr) error {
	copy(dst, bytesAt(src, len(dst)))
	return nil
}

func (d *driver) copy(dst, src uintptr, n int) error {
	return d.do(func() error {
		copy(bytesAt(dst, n), bytesAt(src, n))
		return nil
	})
}

func (d *driver) find(name string) (function, error) {
	k, ok := kernels.Find(name)
	if !ok {
		return k, fmt.Errorf("kernel %s is not in this build", name)
	}
	if _, ok := d.sizes[name]; !ok {
		return k, fmt.Errorf("kernel %s has no line in cuda/kernels/sizes.txt: make test-driver says how it gets one", name)
	}
	return k, nil
}

// staticShared is the bytes of a kernel's static shared memory.
func (d *driver) staticShared(f function) (int, error) { return d.sizes[f.Name()].static, nil }

func (d *driver) launch(f function, b blocks, threads, shared, cluster int, _ bool, words []uint64) error {
	if err := d.refused(f, b, threads, shared, cluster); err != nil {
		return err
	}
	if d.card.Launched != nil {
		d.card.Launched(f.Name())
	}
	if d.card.Idle {
		return nil
	}
	words = slices.Clone(words)
	return d.do(func() error {
		seed := d.seed
		if seed != 0 { // another order for each launch
			d.seed = d.seed*6364136223846793005 + 1442695040888963407 | 1
		}
		return f.Launch([3]int{b.x, b.y, b.z}, threads, shared, d.sizes[f.Name()].static, cluster, seed, words)
	})
}

// do runs a function, or captures it.
func (d *driver) do(call func() error) error {
	if d.calls != nil {
		*d.calls = append(*d.calls, call)
		return nil
	}
	return call()
}

// hostMemory is host memory that the device writes to.
type hostMemory struct {
	bytes  []byte
	device uintptr // device address
}

func (d *driver) allocHost(size int) (hostMemory, error) {
	at := kernels.Alloc(size)
	if at == nil {
		return hostMemory{}, errors.New("the system has no more")
	}
	return hostMemory{bytesAt(uintptr(at), size), uintptr(at)}, nil
}

func (d *driver) freeHost(m hostMemory) error {
	if m.bytes != nil {
		kernels.Free(pointer(m.device))
	}
	return nil
}

func (d *driver) sync() error { return nil }

func (d *driver) begin() error {
	d.calls = new([]func() error)
	return nil
}

func (d *driver) end() (*driverGraph, error) {
	g := &driverGraph{*d.calls}
	d.calls = nil
	return g, nil
}

// event is the time when it was recorded.
type event = *time.Time

func (d *driver) newEvent() (event, error) { return new(time.Time), nil }

func (d *driver) freeEvent(event) error { return nil }

func (d *driver) record(e event) error {
	return d.do(func() error {
		*e = time.Now()
		return nil
	})
}

func (d *driver) wait(event) error { return nil }

func (d *driver) elapsed(from, to event) (time.Duration, error) { return to.Sub(*from), nil }

func (d *driver) close() error { return nil }

func (d *driver) hasLibrary() bool { return false }

func (d *driver) libraryLoaded() bool { return true }

func (d *driver) prepare() {}

func (d *driver) libraryVersion() string { return "" }

func (d *driver) multiply(uintptr, uintptr, uintptr, int, int, int, int, bool, uintptr) error {
	return errors.New("cuBLASLt is not emulated")
}

func (d *driver) multiplyBF16(uintptr, uintptr, uintptr, int, uintptr) error {
	return errors.New("cuBLASLt is not emulated")
}

// maxCluster is the maximum of blocks per thread-block cluster.
func (d *driver) maxCluster() int {
	if d.card.Major >= 9 {
		return portableCluster
	}
	return 1
}

// hasWGMMA reports whether the GPU has wgmma.
func (d *driver) hasWGMMA() bool { return d.card.Major == 9 }

// tensorMap encodes a TensorMap of emu/wgmma.h.
func (d *driver) tensorMap(at uintptr, rows, width int) (words [16]uint64, err error) {
	if at%16 != 0 || 2*width%16 != 0 || rows < 1 || int64(rows) > 1<<32 {
		return words, fmt.Errorf("%w: a tensor map of %d rows of %d f16 at %#x", errValue, rows, width, at)
	}
	return [16]uint64{uint64(at), uint64(rows), uint64(width)}, nil
}

// driverGraph is captured functions.
type driverGraph struct{ calls []func() error }

func (g *driverGraph) launch() error {
	for _, call := range g.calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}

func (g *driverGraph) close() error { return nil }

// pointer is a pointer to memory that Go did not allocate.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// bytesAt is memory as a slice. If it is inlined, a copy of a constant size from it is an internal
// error of the compiler of Go 1.26.8.
//
//go:noinline
func bytesAt(at uintptr, n int) []byte { return unsafe.Slice((*byte)(pointer(at)), n) }
