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

// MaxThreads is the most worker threads of a device; it bounds the scratch
// memory too.
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

// dev is the device: memory and order. All work is done when a call returns.
type dev struct {
	pool    *Pool
	ops     *ops
	err     error        // the first failure since the last Sync
	failing sync.Mutex   // held while err is set by a worker
	mems    []*memory    // everything that Close frees, nil where a scope has
	free    uint64       // bytes that the system could give when the device was opened; 0 if unknown
	used    uint64       // bytes that Alloc has given
	nans    atomic.Int64 // see NaNScores
}

// Info is the name, the memory that Alloc may still give, and no preferences.
func (d *dev) Info() device.Info { return device.Info{Name: d.name(), Free: d.left()} }

// name is for example "cpu (2 threads, AVX-512 VNNI)".
func (d *dev) name() string {
	n, unit := d.pool.Workers(), "threads"
	if n == 1 {
		unit = "thread"
	}
	return fmt.Sprintf("cpu (%d %s, %s)", n, unit, isaNames[d.ops.vec.ISA])
}

// isaNames are the instruction sets in words.
var isaNames = map[kernel.ISA]string{
	kernel.Portable: "portable Go",
	kernel.AVX2:     "AVX2",
	kernel.AVX512:   "AVX-512 VNNI",
}

// Queue runs calls; each has finished when it is flushed.
func (d *dev) Queue() device.Queue { return d.ops }

// Until makes ops end early once done is closed, at the next item of their work
// that a thread would take.
func (d *dev) Until(done <-chan struct{}) {
	d.ops.Flush()
	d.pool.Until(done)
}

// Write copies src into dst.
func (d *dev) Write(dst device.Tensor, src []byte) {
	if dst.Size() != len(src) { // a call of Check allocates its arguments
		device.Check(false, "Write", "%v takes %d bytes, got %d", dst, dst.Size(), len(src))
	}
	d.ops.Flush()
	copy(bytesOf(dst), src)
}

// Read copies src into dst. It reports a failure that Sync has yet to report.
func (d *dev) Read(dst []byte, src device.Tensor) error {
	device.Check(src.Size() == len(dst), "Read", "%v takes %d bytes, got %d", src, src.Size(), len(dst))
	d.ops.Flush()
	copy(dst, bytesOf(src))
	return d.err
}

// Sync reports the first failure since the last Sync.
func (d *dev) Sync() error {
	d.ops.Flush()
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

// fail keeps the first failure for Sync.
func (d *dev) fail(format string, args ...any) {
	d.failing.Lock()
	defer d.failing.Unlock()
	if d.err == nil {
		d.err = fmt.Errorf("cpu: "+format, args...)
	}
}
