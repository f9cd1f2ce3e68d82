//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// append stores the keys and values of the call's rows in their pages.
func (o *ops) append(c *device.Append) {
	rows := c.K.Dim(0)
	perSlot := device.RowsPerSlot("Append", rows, c.KV)
	o.appends(perSlot)
	o.launch("append").pages(c.KV, perSlot).tensor(c.K).tensor(c.V).run(blocks{rows, 1, 1}, 128)
}

// appends notes that rows are appended to each slot. A decode step appends one, the newest
// position of its slot. All earlier positions are complete then, whatever was launched early:
// the host has written the lengths since, and a Write waits for all launches before it.
// Kernels of decode read them before pdl_wait. With more rows per slot that does not hold
// until the next Write.
func (o *ops) appends(perSlot int) {
	if perSlot > 1 {
		o.d.pastPending = true
	}
}

// pastComplete reports whether K and V of all positions but the newest of a slot are complete
// when the next launch starts.
func (o *ops) pastComplete() bool { return !o.d.pastPending }

// appendHeads is the heads per block of the kernel rope_append.
const appendHeads = 4

// ropeAppend adds biases to q, k and v and normalizes the heads of q and k where there are any,
// rotates q and k, and appends k and v.
func (o *ops) ropeAppend(m *matcher) {
	q, kv, r := m.q.X, m.stored.KV, &m.q.Rotation
	rows, heads := q.Dim(0), q.Dim(1)
	perSlot := device.RowsPerSlot("RopeAppend", rows, kv)
	o.appends(perSlot)
	many := o.suitsRopeMany(m)
	name := "rope_append"
	if many {
		name = "rope_append_many"
	}
	c := o.launch(name).pages(kv, perSlot).tensor(q).tensor(m.stored.K).tensor(m.stored.V).tensor(m.q.Pos).
		tensor(r.Freqs).float(float64(r.Scale)).int(heads, r.Freqs.Dim(0)).bool(r.Interleaved)
	for i := range 3 {
		c.tensor(m.bias(i))
	}
	c.tensor(m.headNorm(0)).tensor(m.headNorm(1)).float(float64(m.headEps()))
	if many {
		c.run(blocks{ceil(rows, ropeManyRows), 1, 1}, 256)
	} else {
		c.pdlEarly().run(blocks{rows, ceil(heads+2*kv.K.Dim(1), appendHeads), 1}, 128)
	}
}

// Limits of the kernel rope_append_many.
const (
	ropeManyMinRows  = 256 // of a call
	ropeManyRows     = 4   // per block
	ropeManyMaxPairs = 64  // per head
)

// suitsRopeMany reports whether it takes the calls.
func (o *ops) suitsRopeMany(m *matcher) bool {
	kv := &m.stored.KV
	dim, pairs := kv.K.Dim(3), m.q.Freqs.Dim(0)
	if m.norms[0] != nil {
		// The lanes of a head exchange sums, so they are a power of two, and no warp has both
		// such heads and others.
		lanes := dim / 8
		if lanes&(lanes-1) != 0 || lanes > 32 || (m.q.X.Dim(1)+kv.K.Dim(1))*lanes%32 != 0 {
			return false
		}
	}
	return m.q.X.Dim(0) >= ropeManyMinRows && kv.K.DType == device.F16 && 2*pairs == dim && dim%16 == 0 && pairs <= ropeManyMaxPairs &&
		o.aligned(m.q.X, m.stored.K, m.stored.V, kv.K, kv.V, m.bias(0), m.bias(1), m.bias(2), m.headNorm(0), m.headNorm(1))
}

// aligned reports whether tensors start on 16 bytes; absent ones do.
func (o *ops) aligned(tensors ...device.Tensor) bool {
	for _, t := range tensors {
		if o.d.address(t)%16 != 0 {
			return false
		}
	}
	return true
}
