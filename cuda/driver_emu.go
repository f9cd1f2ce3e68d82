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

	shared int // bytes of shared memory that a block may ask for
}

// emulatedMemory is the bytes that the emulator has.
const emulatedMemory = 8 << 30

// Shuffle makes devices that are opened later run the threads and blocks of
// every launch in a random order; 0 is their own order.
func Shuffle(seed uint64) { shuffle.Store(seed) }

var shuffle atomic.Uint64

// emulated says whether there is no GPU.
const emulated = true

// workspaceSize is the bytes of memory that ops pass results in from one of
// their kernels to the next.
const workspaceSize = 16 << 20

// halvesSize is the bytes of memory for both sides of a product of many rows in
// half precision, librarySize those for cuBLASLt, which is not emulated.
const (
	halvesSize  = 1 << 20
	librarySize = 0
)

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
	return &driver{used: map[uintptr]int{}, seed: shuffle.Load(), shared: 227 << 10}, nil
}

func (d *driver) describe() string { return "emulated on the CPU" }

// multiprocessors is how many multiprocessors there are: few, so that a block has several parts
// of small work.
func (d *driver) multiprocessors() int { return 6 }

// sharedMemory is the most that a block may ask for.
func (d *driver) sharedMemory() int { return d.shared }

func (d *driver) available() uint64 { return emulatedMemory - d.taken }

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
	return k, nil
}

func (d *driver) launch(f function, b blocks, threads, shared, together int, _ bool, words []uint64) error {
	words = slices.Clone(words)
	return d.do(func() error {
		seed := d.seed
		if seed != 0 { // another order for each launch
			d.seed = d.seed*6364136223846793005 + 1442695040888963407 | 1
		}
		return f.Launch([3]int{b.x, b.y, b.z}, threads, shared, together, seed, words)
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

func (d *driver) prepare() {}

func (d *driver) libraryVersion() string { return "" }

func (d *driver) multiply(uintptr, uintptr, uintptr, int, int, int, int, bool, uintptr) error {
	return errors.New("cuBLASLt is not emulated")
}

func (d *driver) multiplyBrains(uintptr, uintptr, uintptr, int, uintptr) error {
	return errors.New("cuBLASLt is not emulated")
}

// mostTogether is how many blocks can run together.
func (d *driver) mostTogether() int { return 8 }

// wide reports that there are the instructions of wide.cuh.
func (d *driver) wide() bool { return true }

// wideMap is a WideMap of emu/wide.h.
func (d *driver) wideMap(at uintptr, rows, width int) (words [16]uint64, err error) {
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
