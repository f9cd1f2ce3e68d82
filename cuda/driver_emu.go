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

// driver is the emulator: memory of the process, and kernels that have run when
// launch returns.
type driver struct {
	used  map[uintptr]int // bytes by address
	taken uint64
	calls *[]func() error // of the graph that is being captured, nil for none
	seed  uint64          // of the order of threads; 0 is their own

	card    Card
	shared  int              // bytes of shared memory that a block may ask for
	sizes   map[string]size  // by kernel
	allowed map[function]int // bytes of dynamic shared memory, where that was asked for
}

// Card is the GPU that the emulator stands for.
type Card struct {
	Major, Minor    int // compute capability
	Shared          int // bytes of shared memory that a block may ask for
	Multiprocessors int
	Memory          uint64 // bytes
	Idle            bool   // launches are looked at, and refused or not, and do nothing
	// Launched, where it is set, is told of each launch, when it is made or captured.
	Launched func(kernel string)
}

// emulatedCard has few multiprocessors, so that a block has several parts of small work.
var emulatedCard = Card{Major: 9, Shared: 227 << 10, Multiprocessors: 6, Memory: 8 << 30}

// Emulate makes devices that are opened later stand for a GPU, until it is called without one.
func Emulate(c *Card) { emulate.Store(c) }

var emulate atomic.Pointer[Card]

// Shuffle makes devices that are opened later run the threads and blocks of
// every launch in a random order; 0 is their own order.
func Shuffle(seed uint64) { shuffle.Store(seed) }

var shuffle atomic.Uint64

// emulated says whether there is no GPU.
const emulated = true

// workspaceSize is the bytes of memory that ops pass results in from one of their kernels
// to the next, halvesSize those for both sides of a product of many rows in half precision:
// little, so that small work is done in pieces, and where nothing is computed what a GPU
// has. The device that was opened last decides.
var workspaceSize, halvesSize int

// librarySize is the bytes of memory of cuBLASLt, which is not emulated.
const librarySize = 0

// What Peaks measures with: bytes of a copy, and rows of a product.
const (
	peakCopy    = 16 << 20
	peakProduct = 128
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
	workspaceSize, halvesSize = 16<<20, 1<<20
	if card.Idle {
		workspaceSize, halvesSize = 64<<20, 192<<20
	}
	sizes, err := readSizes(card.Major, card.Minor)
	return &driver{used: map[uintptr]int{}, seed: shuffle.Load(), card: card, shared: card.Shared, sizes: sizes, allowed: map[function]int{}}, err
}

func (d *driver) describe() string { return "emulated on the CPU" }

// multiprocessors is how many multiprocessors there are.
func (d *driver) multiprocessors() int { return d.card.Multiprocessors }

// sharedMemory is the bytes of shared memory that a block may have, static and dynamic.
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

// staticShared is the bytes of shared memory that a kernel declares.
func (d *driver) staticShared(f function) (int, error) { return d.sizes[f.Name()].static, nil }

func (d *driver) launch(f function, b blocks, threads, shared, together int, _ bool, words []uint64) error {
	if err := d.refused(f, b, threads, shared, together); err != nil {
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
		return f.Launch([3]int{b.x, b.y, b.z}, threads, shared, d.sizes[f.Name()].static, together, seed, words)
	})
}

// do runs a call, or keeps it for a graph.
func (d *driver) do(call func() error) error {
	if d.calls != nil {
		*d.calls = append(*d.calls, call)
		return nil
	}
	return call()
}

// hostMemory is memory of the host that the device writes to.
type hostMemory struct {
	bytes  []byte
	device uintptr // its address there
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

// mark is a time.
type mark = *time.Time

func (d *driver) newMark() (mark, error) { return new(time.Time), nil }

func (d *driver) freeMark(mark) error { return nil }

func (d *driver) record(m mark) error {
	return d.do(func() error {
		*m = time.Now()
		return nil
	})
}

func (d *driver) wait(mark) error { return nil }

func (d *driver) between(from, to mark) (time.Duration, error) { return to.Sub(*from), nil }

func (d *driver) close() error { return nil }

func (d *driver) hasLibrary() bool { return false }

func (d *driver) looked() bool { return true }

func (d *driver) prepare() {}

func (d *driver) libraryVersion() string { return "" }

func (d *driver) multiply(uintptr, uintptr, uintptr, int, int, int, int, bool, uintptr) error {
	return errors.New("cuBLASLt is not emulated")
}

func (d *driver) multiplyBrains(uintptr, uintptr, uintptr, int, uintptr) error {
	return errors.New("cuBLASLt is not emulated")
}

// maxCluster is how many blocks can run together.
func (d *driver) maxCluster() int {
	if d.card.Major >= 9 {
		return portableCluster
	}
	return 1
}

// wide reports that there are the instructions of wgmma.cuh.
func (d *driver) wide() bool { return d.card.Major == 9 }

// wideMap is a TensorMap of emu/wide.h.
func (d *driver) wideMap(at uintptr, rows, width int) (words [16]uint64, err error) {
	if at%16 != 0 || 2*width%16 != 0 || rows < 1 || int64(rows) > 1<<32 {
		return words, fmt.Errorf("%w: a tensor map of %d rows of %d halves at %#x", errValue, rows, width, at)
	}
	return [16]uint64{uint64(at), uint64(rows), uint64(width)}, nil
}

// driverGraph is captured calls.
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

// pointer is an address of memory that Go did not allocate.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// bytesAt is memory as a slice. Inlined, a copy of a constant size from it stops
// the compiler of Go 1.26.8 with an internal error.
//
//go:noinline
func bytesAt(at uintptr, n int) []byte { return unsafe.Slice((*byte)(pointer(at)), n) }
