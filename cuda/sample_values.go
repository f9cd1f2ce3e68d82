//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// scoreChunk is the positions that a block scores, CHUNK of scores.cuh.
const scoreChunk = 256

// values gives a Values.
func (c *call) values(d device.ValueDraws) *call {
	return c.draw(d.Draw, d.Requests).int(d.Samples, int(d.Sampler), int(d.Tiles), d.Tile).bool(d.Shared)
}

// valueSample lists what is drawn of the softmax over what the plan reads.
func (o *ops) valueSample(l device.List, q device.Tensor, kv device.KV, p device.Plan, d device.ValueDraws) {
	const op = "ValueSample"
	rows, heads, groups := q.Dim(0), q.Dim(1), kv.K.Dim(1)
	n := device.RowsPerSlot(op, rows, kv)
	if n == 1 && o.drawRows(l, device.Tensor{}, q, kv, p, d) {
		return
	}
	chunks := ceil(kv.Pages.Dim(1)*device.PageLen, scoreChunk)
	positions, shared := chunks*scoreChunk, 20*chunks+16
	size := positions*(8+4+1) + positions/32*(8+4+4+4) + chunks*16
	if most := o.room("sample_values"); shared > most {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of shared memory, there are %d", op, shared, most))
		return
	}
	o.inPieces(op, rows*groups, size*heads/groups, func(first, items int) {
		call := func(name string, b blocks, threads, shared int) {
			o.call(name).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(q).work(0).
				int(size, first, l.Index.Dim(2), heads).values(d).pages(kv, n).plan(p).
				runShared(b, threads, shared)
		}
		call("value_scores", blocks{chunks, items, 1}, 128, 0)
		call("sample_values", blocks{items * heads / groups, 1, 1}, 256, shared)
	})
}

// maxDrawn is the most draws of a head that sample_values_decode.cu is for.
const maxDrawn = 8 << 10

// drawRows queues the kernels of sample_values_decode.cu, which draw for one row of each slot, if the
// call suits them: those that list what is drawn, or, with dst, attend to it.
func (o *ops) drawRows(l device.List, dst, q device.Tensor, kv device.KV, p device.Plan, d device.ValueDraws) bool {
	rows, heads, dim, width := q.Dim(0), q.Dim(1), q.Dim(2), kv.Pages.Dim(1)
	shares, ok := o.keyed(shareKernels, q, kv)
	if !ok || lists(p) || d.Sampler == device.Independent || d.Tiles == device.Remainder {
		return false
	}
	if d.Tiles == device.Equal && (p.Selected != device.All || p.Span != device.Span{}) {
		return false // tiles are cut from what the row reads
	}
	items, most := rows*heads, max(d.Samples, d.MaxPositions(width*device.PageLen))
	const threads = 512
	parts := max(1, min(ceil(most, threads/4), 2*o.d.drv.multiprocessors()/items))
	sums := 4 * items * width * device.PageLen // of shares
	outs := sums + 32*items*width              // and of PageSum
	end := outs + 4*items*parts*dim
	shared := max(8*(3*width+1)+4*(width+3*most), threads*8*4)
	name, out, limit := "sample_attend", dst, dim
	if dst.Absent() {
		name, out, limit, parts = "sample_decode", l.Weight, l.Index.Dim(2), 1
	}
	if end > workspaceSize || most > maxDrawn || items > decodeCounts || shared > o.room(name) {
		return false
	}
	call := func(name string, b blocks, threads, shared int) {
		o.call(name).tensor(l.Index).tensor(l.Count).tensor(out).tensor(q).work(0).work(sums).work(outs).
			word(uint64(o.d.counts.at)).int(limit, heads, most).bool(!o.d.stored).values(d).pages(kv, 1).plan(p).pdlEarly().
			runShared(b, threads, shared)
	}
	call(shares, o.keyBlocks(rows, kv.K.Dim(1)), keyWarps*32, keyShared(dim))
	call(name, blocks{items, parts, 1}, threads, shared)
	return true
}
