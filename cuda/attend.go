//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// Append stores the keys and values of the call's rows at their positions.
func (o *ops) Append(kv device.KV, k, v device.Tensor) {
	const op = "Append"
	device.CheckKV(op, kv)
	device.CheckShape(op, "k", k, device.F32, -1, kv.K.Dim(1), kv.K.Dim(3))
	checkLike(op, "v", v, k)
	perSlot := device.RowsPerSlot(op, k.Dim(0), kv)
	o.call("append").pages(kv, perSlot).tensor(k).tensor(v).run(blocks{k.Dim(0), 1, 1}, 128)
}

// splits is how many parts the past of a decoded row is cut into.
const splits = 32

// mostDim is the longest head.
const mostDim = 512

// Attend computes softmax(q·k/√dim + ln weight)·v over the plan, causal.
func (o *ops) Attend(dst, q device.Tensor, kv device.KV, p device.Plan) {
	const op = "Attend"
	device.CheckAttend(dst, q, kv, p)
	rows, dim := q.Dim(0), q.Dim(2)
	if dim > mostDim {
		device.Check(false, op, "heads of %d, want at most %d", dim, mostDim)
	}
	perSlot := device.RowsPerSlot(op, rows, kv)
	if perSlot >= flashRows && flashes(dim, kv, p) {
		o.flash(dst, q, kv, p)
		return
	}
	o.attend(dst, q, kv, p, perSlot)
}

// attend queues attention for any plan and any shape.
func (o *ops) attend(dst, q device.Tensor, kv device.KV, p device.Plan, perSlot int) {
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	n := 1
	if perSlot == 1 {
		n = max(1, min(splits, workspaceSize/4/max(rows*heads*(dim+2), 1)))
	}
	o.call("attend").tensor(dst).tensor(q).work(0).int(heads, n).pages(kv, perSlot).plan(p).
		run(blocks{rows, heads, n}, 128)
	if n > 1 {
		o.call("attend_merge").tensor(dst).work(0).int(heads, n).bool(p.Mixture).pages(kv, perSlot).
			run(blocks{rows, heads, 1}, 128)
	}
}
