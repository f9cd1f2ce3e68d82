//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// scoreChunk is the positions per block of the kernel value_scores: CHUNK of scores.cuh.
const scoreChunk = 256

// valueDraws appends a Values.
func (c *launch) valueDraws(d *device.ValueDraws) *launch {
	return c.draw(d.Draw, d.Requests).int(d.Samples, int(d.Sampler), int(d.Tiles), d.Tile).bool(d.Shared)
}

// sampleValues lists positions that are sampled by the softmax over what the plan reads.
func (o *ops) sampleValues(c *device.Sample) {
	const op = "ValueSample"
	l, kv, rows, heads, kvHeads := &c.List, c.KV, c.Q.Dim(0), c.Q.Dim(1), c.KV.K.Dim(1)
	perSlot := device.RowsPerSlot(op, rows, kv)
	if perSlot == 1 && o.sampleDecode(c, device.Tensor{}) {
		return
	}
	chunks := ceil(kv.Pages.Dim(1)*device.PageLen, scoreChunk)
	positions, shared := chunks*scoreChunk, 20*chunks+16
	size := positions*(8+4+1) + positions/32*(8+4+4+4) + chunks*16
	if limit := o.room("sample_values"); shared > limit {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of shared memory, there are %d", op, shared, limit))
		return
	}
	o.inPieces(op, rows*kvHeads, size*heads/kvHeads, func(first, items int) {
		queue := func(name string, b blocks, threads, shared int) {
			o.launch(name).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(c.Q).work(0).
				int(size, first, l.Index.Dim(2), heads).valueDraws(&c.Draws).pages(kv, perSlot).plan(c.Plan).
				runShared(b, threads, shared)
		}
		queue("value_scores", blocks{chunks, items, 1}, 128, 0)
		queue("sample_values", blocks{items * heads / kvHeads, 1, 1}, 256, shared)
	})
}

// maxDecodeDraws is the limit of the draws per head of the kernels of sample_values_decode.cu.
const maxDecodeDraws = 8 << 10

// suitsSampleDecode reports whether those kernels take the rule.
func suitsSampleDecode(c *device.Sample) bool {
	d := &c.Draws
	if hasList(c.Plan) || d.Sampler == device.Independent || d.Tiles == device.Remainder {
		return false
	}
	// Equal tiles are cut from what the row reads, which must be all of the past.
	return d.Tiles != device.Equal || c.Plan.Selected == device.All && c.Plan.Span == device.Span{}
}

// sampleDecode is sampleValues of one row per slot by those kernels, if they take the call:
// with dst they attend to what is sampled, without they list it.
func (o *ops) sampleDecode(c *device.Sample, dst device.Tensor) bool {
	l, kv, d := &c.List, c.KV, &c.Draws
	rows, heads, dim, pages := c.Q.Dim(0), c.Q.Dim(1), c.Q.Dim(2), c.KV.Pages.Dim(1)
	softmax, ok := o.keysKernel(softmaxDecodeKernels, c.Q, kv)
	if !ok || !suitsSampleDecode(c) {
		return false
	}
	items, draws := rows*heads, max(d.Samples, d.MaxPositions(pages*device.PageLen))
	const threads = 512
	parts := max(1, min(ceil(draws, threads/4), 2*o.d.drv.multiprocessors()/items))
	// In the workspace: exponentials of all positions, a PageSum per page, partial outputs.
	sums := 4 * items * pages * device.PageLen
	outputs := sums + 32*items*pages
	end := outputs + 4*items*parts*dim
	name, out, limit := "sample_attend", dst, dim
	if dst.Absent() {
		name, out, limit, parts = "sample_decode", l.Weight, l.Index.Dim(2), 1
	}
	shared := max(8*(3*pages+1)+4*(pages+3*draws), threads*8*4)
	if end > workspaceSize || draws > maxDecodeDraws || items > maxCounters || shared > o.room(name) {
		return false
	}
	queue := func(name string, b blocks, threads, shared int) {
		o.launch(name).tensor(l.Index).tensor(l.Count).tensor(out).tensor(c.Q).work(0).work(sums).work(outputs).counters().
			int(limit, heads, draws).bool(o.pastComplete()).valueDraws(d).pages(kv, 1).plan(c.Plan).pdlEarly().
			runShared(b, threads, shared)
	}
	queue(softmax, o.keysGrid(rows, kv.K.Dim(1)), keysWarps*32, keysShared(dim))
	queue(name, blocks{items, parts, 1}, threads, shared)
	return true
}
