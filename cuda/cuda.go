//go:build cuda || cudaemu

package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/gollm/gollm/device"
)

func init() { device.Register("cuda", Open) }

// Open opens GPU number c.Index.
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
		d.counters, err = d.newMemory(4 * maxCounters)
	}
	if err == nil {
		d.operands, err = d.newMemory(operandsSize + librarySize)
	}
	if err == nil {
		err = d.openReads()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: %w", err), d.Close())
	}
	return d, nil
}

// maxCounters is the number of counters of finished blocks that a launch may use.
const maxCounters = 1 << 16

// dev is the device: its memory and its stream.
type dev struct {
	drv        *driver
	ops        *ops
	kernels    map[string]*kernel // loaded so far
	mems       []*memory          // that Close frees
	failures   *memory            // a Failure of args.cuh
	workspace  *memory            // scratch of the launches of a call
	operands   *memory            // f16 operands of a GEMM, then cuBLASLt's workspace
	counters   *memory            // of finished blocks; 0 between launches
	preparing  sync.Once          // starts prepared, with the first weights
	prepared   sync.WaitGroup     // loads cuBLASLt
	marks      []event            // of device.Mark
	reads      pendingReads
	readEvents []event // of reads
	hazards    hazards

	// Of Until; see interrupt.go.
	done      <-chan struct{}
	launched  int
	fences    [2]event
	hasFences bool
	capturing bool

	pastPending bool  // see ops.appends
	err         error // the driver's first error since the last Sync
}

// Info describes the GPU, its free memory, and the batch sizes that suit it. Products of 2048
// rows fill every multiprocessor. Prefill passes of 8192 rows leave multiprocessors idle at the
// tail of few launches, and take 74 KB a row for an 8B model. A captured graph is one launch.
func (d *dev) Info() device.Info {
	info := device.Info{
		Name: "cuda (" + d.drv.describe() + ")", Free: d.drv.available(),
		ProductRows: 2048, PassRows: 8192, Replays: true,
	}
	if d.drv.libraryLoaded() { // loading takes a while, which is too long for a name
		info.Products = d.products()
	}
	if info.Free < 32<<30 {
		info.PassRows = 2048
	}
	return info
}

// Queue is the queue of the device's stream.
func (d *dev) Queue() device.Queue { return d.ops }

// Write queues a copy of src to dst.
func (d *dev) Write(dst device.Tensor, src []byte) {
	if dst.Size() != len(src) {
		device.Check(false, "Write", "%v takes %d bytes, got %d", dst, dst.Size(), len(src))
	}
	d.ops.Flush()
	if len(src) > 0 {
		d.pastPending = false
		d.keep(d.drv.write(d.address(dst), src))
	}
}

// Read waits for the stream and copies src to dst.
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

// Sync waits for the stream and reports the first failure since the last Sync.
func (d *dev) Sync() error {
	d.ops.Flush()
	failed := d.done != nil // then the launch of the read below may be cancelled
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

// keep keeps the first error for Sync.
func (d *dev) keep(err error) {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("cuda: %w", err)
	}
}

// Close frees everything.
func (d *dev) Close() error {
	d.prepared.Wait()
	err := d.freeAll(d.mems)
	d.mems = nil
	if d.hasFences {
		d.marks = append(d.marks, d.fences[:]...)
	}
	for _, e := range append(d.marks, d.readEvents...) {
		err = errors.Join(err, d.drv.freeEvent(e))
	}
	d.marks, d.readEvents = nil, nil
	err = errors.Join(err, d.drv.freeHost(d.reads.memory))
	d.reads = pendingReads{}
	if closing := d.drv.close(); closing != nil {
		err = errors.Join(err, fmt.Errorf("cuda: Close: %w", closing))
	}
	return err
}

// Capture captures the launches of step in a graph, without running them.
func (d *dev) Capture(step func(device.Queue)) (device.Graph, error) {
	d.ops.Flush()
	if err := d.drv.begin(); err != nil {
		return nil, fmt.Errorf("cuda: Capture: %w", err)
	}
	d.capturing, d.pastPending = true, false
	defer d.hazards.forget() // a graph may be launched behind anything
	done := false
	defer func() {
		d.capturing = false
		if !done { // step panicked
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

// graph is captured launches.
type graph struct {
	d *dev
	g *driverGraph
}

// Launch queues the graph.
func (g *graph) Launch() {
	g.d.ops.Flush()
	g.d.keep(g.g.launch())
}

// Close frees the driver's graph.
func (g *graph) Close() error { return g.g.close() }
