//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// splits is how many parts the past of a decoded row is cut into.
const splits = 32

// maxDim is the longest head.
const maxDim = 512

// checkDim panics for heads that no kernel has room for.
func checkDim(op string, dim int) {
	if dim > maxDim {
		device.Check(false, op, "heads of %d, want at most %d", dim, maxDim)
	}
}

// attention computes softmax(q·k/√dim + ln weight)·v over the plan, causal.
func (o *ops) attention(c *device.Attend) {
	dst, q, kv, p := c.Dst, c.Q, c.KV, c.Plan
	const op = "Attend"
	rows, dim := q.Dim(0), q.Dim(2)
	if dim > maxDim {
		device.Check(false, op, "heads of %d, want at most %d", dim, maxDim)
	}
	perSlot := device.RowsPerSlot(op, rows, kv)
	if perSlot >= flashRows && flashes(dim, kv, p) {
		o.flash(dst, q, kv, p)
		return
	}
	if perSlot == 1 && o.decode(dst, q, kv, p) {
		return
	}
	o.attend(dst, q, kv, p, perSlot)
}

const (
	decodeWarps  = 8 // of a block of decode_each
	ringWarps    = 4 // of a block of decode
	ringStages   = 3
	decodeGroup  = 8       // the most heads of a block
	decodeSet    = 4       // those of a set of decode.cuh
	decodeCounts = 1 << 16 // groups of heads of rows that a call may have
	wholeHeads   = 4       // of a block of decode_whole
	wholeStages  = 2

	// Of decode_each.
	eachStages = 2
	eachTurn   = 2 * 2 * 512 // bytes
	eachPlaces = 2048
)

// decodeKernels are the kernels for one row of each slot, by the length of a head,
// decodeMoreKernels those for more than four heads that share keys, decodeEachKernels those
// for lists of positions of heads that share no keys, and decodeWholeKernels those for such
// lists that leave nothing out.
var (
	decodeKernels      = map[int]string{64: "decode_64", 128: "decode_128"}
	decodeMoreKernels  = map[int]string{64: "decode_more_64", 128: "decode_more_128"}
	decodeEachKernels  = map[int]string{64: "decode_each_64", 128: "decode_each_128"}
	decodeWholeKernels = map[int]string{64: "decode_whole_64", 128: "decode_whole_128"}
)

// decode queues the attention of one row of each slot if it suits the kernels for that.
func (o *ops) decode(dst, q device.Tensor, kv device.KV, p device.Plan) bool {
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	kvHeads := kv.K.Dim(1)
	group := heads / kvHeads
	name, ok := decodeKernels[dim]
	if !ok || kv.K.DType != device.F16 || group > decodeGroup || rows*heads > decodeCounts {
		return false
	}
	// Heads of a block read the same; so that a list which leaves nothing out has the
	// bits of dense attention, the shares do not depend on that.
	splits := max(1, o.d.drv.multiprocessors()/max(rows*kvHeads, 1))
	if lists := p.Selected == device.Blocks || p.Selected == device.Tokens; lists && kvHeads%p.List.Index.Dim(1) != 0 {
		group = 1
	}
	if group > decodeSet {
		name = decodeMoreKernels[dim]
	}
	if p.Mixture && p.Span == (device.Span{}) && p.Align == 0 {
		tiles := (ceil(p.Sink, device.PageLen) + ceil(p.Recent, device.PageLen) + 1) * 4
		splits = max(1, min(splits, ceil(tiles+ceil(p.List.Index.Dim(2), 16), ringWarps)))
	}
	if heads == kvHeads && p.Selected == device.Tokens && rows*heads >= 2*o.d.drv.multiprocessors() {
		o.decodeEach(dst, q, kv, p)
		o.decodeWhole(dst, q, kv, p)
		return true
	}
	cluster := 1 // blocks that merge their shares in shared memory
	if kv.Short {
		// On a long past they would be in each other's way: a group of multiprocessors
		// has room for few such blocks.
		for 2*cluster <= min(splits, o.d.drv.maxCluster()) {
			cluster *= 2
		}
		if cluster > 1 {
			splits = cluster
		}
	}
	shared := ringWarps * ringStages * decodeTile(dim)
	parts := rows * heads * splits * dim * 4
	if parts+rows*heads*splits*8 > workspaceSize || shared > o.room(name) {
		return false
	}
	o.call(name).tensor(dst).tensor(q).work(0).work(parts).word(uint64(o.d.counts.at)).int(heads, splits, group, cluster).
		bool(!o.d.stored).pages(kv, 1).plan(p).pdlEarly().pdlHold(p.Selected == device.Blocks || p.Selected == device.Tokens).
		inClusters(cluster).runShared(blocks{rows, heads / group, splits}, ringWarps*32, shared)
	return true
}

// decodeTile is the bytes of a Tile of decode.cuh.
func decodeTile(dim int) int { return 2*2*16*(dim+8) + 16*4 }

// decodeEach queues the attention of one row of each slot over lists of positions that
// leave something out, with a block for each head.
func (o *ops) decodeEach(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads := q.Dim(0), q.Dim(1)
	o.call(decodeEachKernels[q.Dim(2)]).tensor(dst).tensor(q).int(0, 0, 0).int(heads, 1, 1, 1, 0).
		pages(kv, 1).plan(p).pdlEarly().runShared(blocks{rows, heads, 1}, decodeWarps*32, decodeWarps*eachStages*eachTurn+8*eachPlaces)
}

// decodeWhole queues that over the lists that leave nothing out.
func (o *ops) decodeWhole(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	o.call(decodeWholeKernels[dim]).tensor(dst).tensor(q).int(0, 0, 0).int(heads, 1, 1, 1, 0).
		pages(kv, 1).plan(p).pdlEarly().runShared(blocks{rows, ceil(heads, wholeHeads), 1}, ringWarps*32, ringWarps*wholeStages*decodeTile(dim))
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
