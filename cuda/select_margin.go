//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// withinMargin lists what is near the largest scores of the blocks of each group.
func (o *ops) withinMargin(c *device.Select) {
	const op = "WithinMargin"
	l, q, kv := &c.List, c.Q, c.KV
	heads, words := q.Dim(1), kv.Pages.Dim(1)
	if need := 16 * l.Index.Dim(0) * heads * words; need > workspaceSize {
		o.d.keep(fmt.Errorf("%s: %d lists of up to %d pages need %d bytes of workspace, there are %d", op, l.Index.Dim(0)*heads, words, need, workspaceSize))
		return
	}
	many, ok := nearKernels[q.Dim(2)]
	if !ok || !stripesMany(c.Rows, kv) {
		many = ""
	}
	o.near(many, c)
}

// near is WithinMargin by a kernel on tensor cores, or by that for any shape when its
// name is empty.
func (o *ops) near(many string, c *device.Select) {
	l, q, kv := &c.List, c.Q, c.KV
	heads, words, group := q.Dim(1), kv.Pages.Dim(1), max(l.Group, 1)
	call := func(name string, x, y, threads int) {
		o.call(name).tensor(q).tensor(c.Scores).work(0).int(heads, q.Dim(0), c.Block, words).float(float64(c.Below)).int(c.Twice).
			tensor(l.Index).tensor(l.Count).tensor(l.Weight).int(l.Index.Dim(0), l.Index.Dim(2), group).pages(kv, c.Rows).plan(c.Plan).
			run(blocks{groups(c.Rows, group) * x, y, kv.Len.Dim(0)}, threads)
	}
	if many == "" {
		call("within_margin", heads, min(words, 256), 256)
	} else {
		call(many, kv.K.Dim(1), min(words, 64), 128)
	}
	call("margin_list", heads, 1, 256)
}
