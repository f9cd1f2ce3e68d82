//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// append stores the keys and values of the call's rows at their positions.
func (o *ops) append(c *device.Append) {
	kv, k, v := c.KV, c.K, c.V
	const op = "Append"
	perSlot := device.RowsPerSlot(op, k.Dim(0), kv)
	o.stores(perSlot)
	o.call("append").pages(kv, perSlot).tensor(k).tensor(v).run(blocks{k.Dim(0), 1, 1}, 128)
}

// stores notes that rows of each slot are stored in a cache. Steps store one, the newest
// of its slot, and read the others of earlier steps, which are done: the host has written
// lengths since, and what it writes waits for all launches before it.
func (o *ops) stores(perSlot int) {
	if perSlot > 1 {
		o.d.stored = true
	}
}

// appendHeads is how many heads a block of the kernel rope_append takes.
const appendHeads = 4

// rotateAppend rotates the heads of q and k, and appends k and v.
func (o *ops) rotateAppend(kv device.KV, q, k, v, pos device.Tensor, r device.Rotation) bool {
	const op = "RopeAppend"
	rows, heads := q.Dim(0), q.Dim(1)
	perSlot := device.RowsPerSlot(op, rows, kv)
	o.stores(perSlot)
	call := func(name string) *call {
		return o.call(name).pages(kv, perSlot).tensor(q).tensor(k).tensor(v).tensor(pos).
			tensor(r.Freqs).float(float64(r.Scale)).int(heads, r.Freqs.Dim(0)).bool(r.Interleaved)
	}
	if o.turnsMany(kv, q, k, v, r) {
		call("rope_append_many").run(blocks{ceil(rows, turnRows), 1, 1}, 256)
		return true
	}
	call("rope_append").pdlEarly().run(blocks{rows, ceil(heads+2*kv.K.Dim(1), appendHeads), 1}, 128)
	return true
}

// Of the kernel rope_append_many: the rows that are worth it, those of a block, and the
// most pairs of a head.
const (
	turnMany  = 256
	turnRows  = 4
	turnPairs = 64
)

// turnsMany reports whether that kernel turns and appends the heads.
func (o *ops) turnsMany(kv device.KV, q, k, v device.Tensor, r device.Rotation) bool {
	dim, pairs := kv.K.Dim(3), r.Freqs.Dim(0)
	for _, t := range []device.Tensor{q, k, v, kv.K, kv.V} {
		if o.d.address(t)%16 != 0 {
			return false
		}
	}
	return q.Dim(0) >= turnMany && kv.K.DType == device.F16 && 2*pairs == dim && dim%16 == 0 && pairs <= turnPairs
}
