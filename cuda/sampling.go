//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// inPieces calls f with numbers of items, in order, such that the scratch of as
// many items of size bytes each fits into the workspace.
func (o *ops) inPieces(op string, items, size int, f func(first, n int)) {
	at := workspaceSize / size
	if at == 0 {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, size, workspaceSize))
		return
	}
	for first := 0; first < items; first += at {
		f(first, min(at, items-first))
	}
}

// SampleTail lists what is fixed in the plan's middle and a sample of the rest.
func (o *ops) SampleTail(l device.List, q device.Tensor, kv device.KV, p device.Plan, t device.Tail) {
	const op = "SampleTail"
	device.CheckTail(l, q, kv, p, t)
	rows, heads, sets := q.Dim(0), q.Dim(1), l.Index.Dim(1)
	checkDim(op, q.Dim(2))
	n := device.RowsPerSlot(op, rows, kv)
	words := kv.Pages.Dim(1)
	size := words * (3*8 + device.PageLen*4*(2+heads/sets))
	o.inPieces(op, rows*sets, size, func(first, items int) {
		o.call("sample_tail").tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(q).work(0).
			int(size, first, sets, l.Index.Dim(2), heads, t.Pilot.Count).float(t.Pilot.Share, t.Eps, t.Z).
			bool(t.Values).bool(t.Finite).bool(t.Fresh).bool(t.Replace).bool(t.Listed).
			draw(t.Draw, t.Of).pages(kv, n).plan(p).
			run(blocks{items, 1, 1}, 256)
	})
}

// scoreChunk is the positions that a block scores, CHUNK of scores.cuh.
const scoreChunk = 256

// SampleValues lists what is drawn of the softmax over what the plan reads.
func (o *ops) SampleValues(l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.Draws) {
	const op = "SampleValues"
	device.CheckDraws(l, q, kv, p, d)
	rows, heads, groups := q.Dim(0), q.Dim(1), kv.K.Dim(1)
	n := device.RowsPerSlot(op, rows, kv)
	chunks := ceil(kv.Pages.Dim(1)*device.PageLen, scoreChunk)
	positions, shared := chunks*scoreChunk, 20*chunks+16
	size := positions*(8+4+1) + positions/32*(8+4+4+4) + chunks*16
	if most := o.d.drv.sharedMemory() - 4096; shared > most { // 4096: what the kernel declares
		o.d.keep(fmt.Errorf("%s: needs %d bytes of shared memory, there are %d", op, shared, most))
		return
	}
	o.inPieces(op, rows*groups, size*heads/groups, func(first, items int) {
		call := func(name string, b blocks, threads, shared int) {
			o.call(name).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(q).work(0).
				int(size, first, l.Index.Dim(2), heads).draw(d.Draw, d.Of).
				int(d.Samples, int(d.Sampler), int(d.Tiles), d.Tile).bool(d.Shared).pages(kv, n).plan(p).
				runShared(b, threads, shared)
		}
		call("value_scores", blocks{chunks, items, 1}, 128, 0)
		call("sample_values", blocks{items * heads / groups, 1, 1}, 256, shared)
	})
}
