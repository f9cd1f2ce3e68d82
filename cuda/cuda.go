//go:build cuda || cudaemu

package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gollm/gollm/device"
)

func init() { device.Register("cuda", Open) }

// Open makes a device of GPU number c.Index.
func Open(c device.Config) (device.Device, error) {
	drv, err := openDriver(c.Index)
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	d := &dev{drv: drv, kernels: map[string]*kernel{}}
	d.ops = &ops{d: d}
	d.ops.Open(d.ops.run, d.ops.patterns()...)
	if d.failures, err = d.newMemory(failureSize + 8); err == nil {
		d.workspace, err = d.newMemory(workspaceSize)
	}
	if err == nil {
		d.counts, err = d.newMemory(4 * decodeCounts)
	}
	if err == nil {
		d.halves, err = d.newMemory(halvesSize + librarySize)
	}
	if err == nil {
		err = d.openDeliveries()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: %w", err), d.Close())
	}
	return d, nil
}

// dev is the device: memory and order.
type dev struct {
	drv       *driver
	ops       *ops
	kernels   map[string]*kernel
	mems      []*memory // everything that Close frees
	failures  *memory   // the first failure of a kernel
	workspace *memory
	halves    *memory        // of products of many rows
	counts    *memory        // zeros that kernels count finished blocks in, and leave as zeros
	preparing sync.Once      // with the first weights
	prepared  sync.WaitGroup // for products of them
	marks     []mark
	marked    []mark       // of deliveries
	reads     pendingReads // to the host
	hazards   hazards

	// Of Until: see interrupt.go.
	done      <-chan struct{}
	launched  int
	turns     [2]mark // of the launches before, in turn
	turning   bool    // turns are there
	capturing bool
	stored    bool  // positions besides the newest of a slot, since Write or Capture
	err       error // the first failure of the driver since the last Sync
}

// Info is what the card is, what is free of its memory, and what suits it. Products of
// 2048 rows fill every multiprocessor; passes of 8192 rows have few launches whose last
// blocks leave multiprocessors idle, and a row of an 8B model takes 74 KB. A captured graph
// is one launch.
func (d *dev) Info() device.Info {
	info := device.Info{
		Name: "cuda (" + d.drv.describe() + ")", Free: d.drv.available(),
		ProductRows: 2048, PassRows: 8192, Replays: true,
	}
	if d.drv.looked() { // to look takes a while, and is not for who asks for a name
		info.Products = d.products()
	}
	if info.Free < 32<<30 {
		info.PassRows = 2048
	}
	return info
}

// Queue runs calls, in order.
func (d *dev) Queue() device.Queue { return d.ops }

// Write queues a copy of src into dst.
func (d *dev) Write(dst device.Tensor, src []byte) {
	if dst.Size() != len(src) {
		device.Check(false, "Write", "%v takes %d bytes, got %d", dst, dst.Size(), len(src))
	}
	d.ops.Flush()
	if len(src) > 0 {
		d.stored = false
		d.keep(d.drv.write(d.address(dst), src))
	}
}

// Read waits for queued work and copies src into dst.
func (d *dev) Read(dst []byte, src device.Tensor) error {
	if src.Size() != len(dst) {
		device.Check(false, "Read", "%v takes %d bytes, got %d", src, src.Size(), len(dst))
	}
	d.ops.Flush()
	if len(dst) > 0 {
		d.keep(d.drv.read(dst, d.address(src)))
	}
	return d.err
}

// Sync waits, and reports the first failure since the last Sync.
func (d *dev) Sync() error {
	d.ops.Flush()
	failed := d.done != nil // then what follows may not be launched
	if !failed {
		last := &d.reads.all[device.MaxPendingReads]
		last.queue()
		d.keep(d.drv.sync())
		failed = d.err != nil || last.failed()
	}
	if failed {
		d.keep(d.drv.sync())
		found, err := d.failure()
		d.keep(err)
		d.keep(found)
	}
	err := d.err
	d.err = nil
	return err
}

// keep remembers the first failure for Sync.
func (d *dev) keep(err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("cuda: %w", err)
	}
}

// Close frees all memory of the device.
func (d *dev) Close() error {
	d.prepared.Wait()
	err := d.freeAll(d.mems)
	d.mems = nil
	if d.turning {
		d.marks = append(d.marks, d.turns[:]...)
	}
	for _, m := range append(d.marks, d.marked...) {
		err = errors.Join(err, d.drv.freeMark(m))
	}
	d.marks, d.marked = nil, nil
	err = errors.Join(err, d.drv.freeHost(d.reads.memory))
	d.reads = pendingReads{}
	if closing := d.drv.close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("cuda: Close: %w", closing))
	}
	return err
}

// Capture records the calls of step without running them.
func (d *dev) Capture(step func(device.Queue)) (device.Graph, error) {
	d.ops.Flush()
	if err := d.drv.begin(); err != nil {
		return nil, fmt.Errorf("cuda: Capture: %w", err)
	}
	d.capturing, d.stored = true, false
	defer d.hazards.forget() // they have not run
	done := false
	defer func() {
		d.capturing = false
		if !done { // step panics
			d.ops.Drop()
			if g, err := d.drv.end(); err == nil {
				_ = g.close()
			}
		}
	}()
	step(d.ops)
	d.ops.Flush()
	done = true
	g, err := d.drv.end()
	if err != nil {
		return nil, fmt.Errorf("cuda: Capture: %w", err)
	}
	return &graph{d: d, g: g}, nil
}

// graph is captured calls.
type graph struct {
	d *dev
	g *driverGraph
}

// Launch queues the calls.
func (g *graph) Launch() {
	g.d.ops.Flush()
	g.d.keep(g.g.launch())
}

// Close frees what the driver keeps of the calls.
func (g *graph) Close() error { return g.g.close() }
