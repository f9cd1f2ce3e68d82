//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// blocks is how many blocks a launch has in each dimension. y and z are at most
// 65535.
type blocks struct{ x, y, z int }

// call is a kernel with the arguments it is being given, word by word in the
// order of its struct.
type call struct {
	d       *dev
	name    string
	words   [128]uint64
	n       int
	early   bool // programmatic dependent launch: may start before the kernel in front ends
	hold    bool // triggers its dependents only when all before it are done
	cluster int  // blocks in z of a thread-block cluster; 0 is one
	lacks   bool // a word, which could not be made
}

// call begins a call of the kernel called name. One call is being made at a time.
func (o *ops) call(name string) *call {
	c := &o.making
	c.d, c.name, c.n, c.early, c.hold, c.cluster, c.lacks = o.d, name, 0, false, false, 0, false
	return c
}

func (c *call) word(w uint64) *call {
	c.words[c.n] = w
	c.n++
	return c
}

// tensor gives the address of t, 0 if it is absent.
func (c *call) tensor(t device.Tensor) *call { return c.word(uint64(c.d.address(t))) }

// work gives the address of byte at of the workspace.
func (c *call) work(at int) *call { return c.word(uint64(c.d.workspace.at) + uint64(at)) }

func (c *call) int(v ...int) *call {
	for _, n := range v {
		c.word(uint64(n))
	}
	return c
}

func (c *call) bool(v bool) *call {
	if v {
		return c.word(1)
	}
	return c.word(0)
}

func (c *call) float(v ...float64) *call {
	for _, x := range v {
		c.word(math.Float64bits(x))
	}
	return c
}

// failures gives the address of the device's Failure.
func (c *call) failures() *call { return c.word(uint64(c.d.failures.at)) }

// pages gives a Pages of rows rows of each slot.
func (c *call) pages(kv device.KV, rows int) *call {
	return c.tensor(kv.K).tensor(kv.V).tensor(kv.Pages).tensor(kv.Len).bool(kv.K.DType == device.F16).
		int(kv.K.Dim(0), kv.K.Dim(1), kv.K.Dim(3), kv.Pages.Dim(0), kv.Pages.Dim(1), rows).failures()
}

// matrix gives a TensorMap of a tensor as a matrix with rows of its last dimension.
func (c *call) matrix(t device.Tensor) *call {
	width := t.Dim(3)
	words, err := c.d.drv.wideMap(c.d.address(t), t.Len()/width, width)
	if err != nil {
		c.d.keep(fmt.Errorf("kernel %s: %w", c.name, err))
		c.lacks = true
	}
	for _, w := range words {
		c.word(w)
	}
	return c
}

// list gives a List.
func (c *call) list(l device.List) *call {
	c.tensor(l.Index).tensor(l.Count).tensor(l.Weight)
	if l.Index.Absent() {
		return c.int(0, 0, 0, 1)
	}
	return c.int(l.Index.Dim(0), l.Index.Dim(1), l.Index.Dim(2), max(l.Group, 1))
}

// span gives a Span.
func (c *call) span(s device.Span) *call { return c.int(s.Back, s.Sink).float(s.Drop).int(s.Recent) }

// plan gives a Plan.
func (c *call) plan(p device.Plan) *call {
	return c.span(p.Span).int(p.Sink, p.Recent, p.Align, int(p.Selected)).bool(p.Mixture).list(p.List)
}

// draw gives the address of random numbers as far as it is that of all rows of a
// slot, whose requests of may name.
func (c *call) draw(d rng.Address, of device.Tensor) *call {
	return c.word(d.Seed).tensor(of).int(int(d.Request), int(d.Layer))
}

// pdlEarly makes this a programmatic dependent launch: the kernel may start before the one
// in front of it ends, and calls pdl_wait before it reads what that one writes.
func (c *call) pdlEarly() *call {
	c.early = true
	return c
}

// pdlHold says of an early launch that its kernel calls pdl_trigger only behind pdl_wait, so
// that its dependents start when all before it are done.
func (c *call) pdlHold(yes bool) *call {
	c.hold = yes
	return c
}

// inClusters groups n neighbouring blocks in z into thread-block clusters, which run at the
// same time and read each other's shared memory. n divides the blocks in z.
func (c *call) inClusters(n int) *call {
	c.cluster = n
	return c
}

// run queues the call. A launch without blocks is none.
func (c *call) run(b blocks, threads int) { c.runShared(b, threads, 0) }

// runShared is run with bytes of dynamic shared memory, besides what the kernel declares.
func (c *call) runShared(b blocks, threads, shared int) {
	if b.x == 0 || b.y == 0 || b.z == 0 || c.lacks || c.d.drops() {
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
