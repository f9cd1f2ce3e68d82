//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// blocks is the grid of a launch, in thread blocks. y and z are at most 65535.
type blocks struct{ x, y, z int }

// launch is a kernel launch in the making: the kernel's argument struct, word by word in the
// order of its fields, and the attributes of the launch. Its methods append arguments and set
// attributes; run queues it.
type launch struct {
	d       *dev
	name    string
	words   [128]uint64
	n       int
	early   bool // programmatic dependent launch (PDL): it may start before the kernel in front ends
	hold    bool // the kernel triggers its dependents only after it has waited itself
	cluster int  // thread blocks in z per cluster; 0 is 1
	invalid bool // an argument could not be made, and the error is kept
}

// launch starts a launch of the kernel called name. There is one at a time.
func (o *ops) launch(name string) *launch {
	c := &o.launching
	c.d, c.name, c.n, c.early, c.hold, c.cluster, c.invalid = o.d, name, 0, false, false, 0, false
	return c
}

func (c *launch) word(w uint64) *launch {
	c.words[c.n] = w
	c.n++
	return c
}

// tensor appends the address of t, 0 if it is absent.
func (c *launch) tensor(t device.Tensor) *launch { return c.word(uint64(c.d.address(t))) }

// work appends the address of a byte of the workspace.
func (c *launch) work(offset int) *launch { return c.word(uint64(c.d.workspace.at) + uint64(offset)) }

// counters appends the address of the counters of finished blocks.
func (c *launch) counters() *launch { return c.word(uint64(c.d.counters.at)) }

func (c *launch) int(v ...int) *launch {
	for _, n := range v {
		c.word(uint64(n))
	}
	return c
}

func (c *launch) bool(v bool) *launch {
	if v {
		return c.word(1)
	}
	return c.word(0)
}

func (c *launch) float(v ...float64) *launch {
	for _, x := range v {
		c.word(math.Float64bits(x))
	}
	return c
}

// failures appends the address of the device's Failure (args.cuh).
func (c *launch) failures() *launch { return c.word(uint64(c.d.failures.at)) }

// pages appends a PagedKV with the number of query rows per slot.
func (c *launch) pages(kv device.KV, rows int) *launch {
	return c.tensor(kv.K).tensor(kv.V).tensor(kv.Pages).tensor(kv.Len).bool(kv.K.DType == device.F16).
		int(kv.K.Dim(0), kv.K.Dim(1), kv.K.Dim(3), kv.Pages.Dim(0), kv.Pages.Dim(1), rows).failures()
}

// matrix appends a TMA descriptor of t as a matrix whose rows are its last dimension.
func (c *launch) matrix(t device.Tensor) *launch {
	width := t.Dim(3)
	words, err := c.d.drv.tensorMap(c.d.address(t), t.Len()/width, width)
	if err != nil {
		c.d.keep(fmt.Errorf("kernel %s: %w", c.name, err))
		c.invalid = true
	}
	for _, w := range words {
		c.word(w)
	}
	return c
}

// list appends a List.
func (c *launch) list(l device.List) *launch {
	c.tensor(l.Index).tensor(l.Count).tensor(l.Weight)
	if l.Index.Absent() {
		return c.int(0, 0, 0, 1)
	}
	return c.int(l.Index.Dim(0), l.Index.Dim(1), l.Index.Dim(2), max(l.Group, 1))
}

// span appends a Span.
func (c *launch) span(s device.Span) *launch {
	return c.int(s.Back, s.Sink).float(s.Drop).int(s.Recent)
}

// plan appends a Plan.
func (c *launch) plan(p device.Plan) *launch {
	return c.span(p.Span).int(p.Sink, p.Recent, p.Align, int(p.Selected)).bool(p.Mixture).list(p.List)
}

// draw appends the part of a random number's address that all rows of a slot share; requests
// may be absent.
func (c *launch) draw(d rng.Address, requests device.Tensor) *launch {
	return c.word(d.Seed).tensor(requests).int(int(d.Request), int(d.Layer))
}

// pdlEarly makes this a programmatic dependent launch: the kernel may start before the one
// in front of it ends, and calls pdl_wait before it reads what that one writes.
func (c *launch) pdlEarly() *launch {
	c.early = true
	return c
}

// pdlHold says of an early launch that its kernel calls pdl_trigger only behind pdl_wait, so
// that its dependents start when all kernels before it have completed.
func (c *launch) pdlHold(yes bool) *launch {
	c.hold = yes
	return c
}

// inClusters groups n consecutive blocks in z into thread-block clusters, which are scheduled
// together and access each other's distributed shared memory. n divides the blocks in z.
func (c *launch) inClusters(n int) *launch {
	c.cluster = n
	return c
}

// run queues the launch. An empty grid launches nothing.
func (c *launch) run(b blocks, threads int) { c.runShared(b, threads, 0) }

// runShared is run with bytes of dynamic shared memory per block, on top of the kernel's static
// shared memory.
func (c *launch) runShared(b blocks, threads, shared int) {
	if b.x == 0 || b.y == 0 || b.z == 0 || c.invalid || c.d.cancelled() {
		return
	}
	k, err := c.d.kernel(c.name)
	if err != nil {
		c.d.keep(err)
		return
	}
	c.d.hazards.launched(c.early, c.hold)
	if err = c.d.allow(k, shared); err == nil {
		err = c.d.drv.launch(k.function, b, threads, shared, c.cluster, c.early, c.words[:c.n])
	}
	if err != nil {
		c.d.keep(fmt.Errorf("kernel %s: %w", c.name, err))
	}
}
