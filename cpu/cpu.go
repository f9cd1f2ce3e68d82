package cpu

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

func init() { device.Register("cpu", Open) }

// MaxThreads is the maximum number of worker threads of a device. It bounds the scratch memory
// too.
const MaxThreads = 1024

// Open makes a device of c.Threads threads, one for each core if that is 0.
func Open(c device.Config) (device.Device, error) {
	n := c.Threads
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	if n < 0 || n > MaxThreads {
		return nil, fmt.Errorf("cpu: %d threads, want 0 (one for each core) to %d", c.Threads, MaxThreads)
	}
	if c.Index != 0 {
		return nil, fmt.Errorf("cpu: device %d, want 0: there is one cpu", c.Index)
	}
	return open(n, vec.Best()), nil
}

// open makes a device of n threads that uses the vector kernels given.
func open(n int, kernels *vec.Kernels) *dev {
	d := &dev{pool: NewPool(n), free: availableMemory()}
	d.ops = newOps(d, d.pool, kernels)
	return d
}

// dev is the device: it owns memory, threads and the first failure.
type dev struct {
	pool    *Pool
	ops     *ops
	err     error        // the first failure since the last Sync
	failing sync.Mutex   // held while err is set by a worker
	mems    []*memory    // that Close frees
	free    uint64       // bytes that the system had left when the device was opened; 0 if unknown
	used    uint64       // bytes that Alloc has allocated
	nans    atomic.Int64 // see NaNScores
}

// Info is the name and the memory that Alloc may still allocate.
func (d *dev) Info() device.Info { return device.Info{Name: d.name(), Free: d.left()} }

// name is for example "cpu (2 threads, AVX-512 VNNI)".
func (d *dev) name() string {
	n, unit := d.pool.Workers(), "threads"
	if n == 1 {
		unit = "thread"
	}
	return fmt.Sprintf("cpu (%d %s, %s)", n, unit, isaNames[d.ops.vec.ISA])
}

// isaNames are the instruction sets as they are printed.
var isaNames = map[kernel.ISA]string{
	kernel.Portable: "portable Go",
	kernel.AVX2:     "AVX2",
	kernel.AVX512:   "AVX-512 VNNI",
}

// Queue runs calls when they are flushed, and returns when they are done.
func (d *dev) Queue() device.Queue { return d.ops }

// Until cancels calls once done is closed: threads take no further chunks of their items.
func (d *dev) Until(done <-chan struct{}) {
	d.ops.Flush()
	d.pool.Until(done)
}

// Write copies src into dst.
func (d *dev) Write(dst device.Tensor, src []byte) {
	if dst.Size() != len(src) { // the arguments of Check escape to the heap
		device.Check(false, "Write", "%v takes %d bytes, got %d", dst, dst.Size(), len(src))
	}
	d.ops.Flush()
	d.ops.scored.written(dst)
	copy(bytesOf(dst), src)
}

// Read copies src into dst. It returns the failure that the next Sync will report.
func (d *dev) Read(dst []byte, src device.Tensor) error {
	device.Check(src.Size() == len(dst), "Read", "%v takes %d bytes, got %d", src, src.Size(), len(dst))
	d.ops.Flush()
	copy(dst, bytesOf(src))
	return d.err
}

// Sync reports the first failure since the last Sync.
func (d *dev) Sync() error {
	d.ops.Flush()
	d.ops.scored.known = false // calls after it have the bits that they have by themselves
	err := d.err
	d.err = nil
	return err
}

// Close stops the threads and frees all memory of the device.
func (d *dev) Close() error {
	d.ops.Flush()
	d.pool.Close()
	mems := d.mems
	d.mems = nil
	return freeAll(mems)
}

// fail records the first failure for Sync.
func (d *dev) fail(format string, args ...any) {
	d.failing.Lock()
	defer d.failing.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("cpu: "+format, args...)
	}
}
