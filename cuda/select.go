//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// parts is how many blocks share a row that is as long as its sequence can get.
func parts(kv device.KV) int { return min(max(kv.Pages.Dim(1), 1), 64) }

// maxMarks is the bytes of a bit for each position that a choice keeps in shared memory
// at most.
const maxMarks = 32 << 10

// exactScores computes q·k/√dim over a part of what each row sees, -Inf elsewhere.
func (o *ops) exactScores(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Region) {
	const op = "Scores"
	rows, heads := q.Dim(0), q.Dim(1)
	if device.RowsPerSlot(op, rows, kv) == 1 && o.scoreRows(dst, q, kv, p, part) {
		return
	}
	o.call("scores").tensor(dst).tensor(q).int(heads, dst.Dim(2), int(part)).
		pages(kv, device.RowsPerSlot(op, rows, kv)).plan(p).
		run(blocks{rows, heads, parts(kv)}, 256)
}

const (
	keysGroup = 8 // heads of a kv head that keys.cuh takes at a time
	keyWarps  = 8 // of a block
	keyStages = 3 // of a warp, of 16 keys
)

// keyShared is the bytes of shared memory of a block that scores keys with keys.cuh.
func keyShared(dim int) int { return keyWarps * keyStages * 16 * 2 * dim }

// The kernels that score keys with keys.cuh, by the length of a head.
var (
	scoreKernels = map[int]string{64: "score_decode_64", 128: "score_decode_128"}
	shareKernels = map[int]string{64: "softmax_decode_64", 128: "softmax_decode_128"}
)

// keyed is the one of such kernels that suits the newest row of each slot, if one does.
func (o *ops) keyed(kernels map[int]string, q device.Tensor, kv device.KV) (name string, ok bool) {
	dim := q.Dim(2)
	name, ok = kernels[dim]
	return name, ok && kv.K.DType == device.F16 && q.Dim(1)/kv.K.Dim(1) <= keysGroup && keyShared(dim) <= o.room(name)
}

// keyBlocks is the blocks of a kernel that scores keys with keys.cuh: parts of the past,
// kv heads, and rows.
func (o *ops) keyBlocks(rows, kvHeads int) blocks {
	return blocks{max(1, o.d.drv.multiprocessors()/max(rows*kvHeads, 1)), kvHeads, rows}
}

// scoreRows is Scores of one row of each slot if keys.cuh suits it.
func (o *ops) scoreRows(dst, q device.Tensor, kv device.KV, p device.Plan, part device.Region) bool {
	name, ok := o.keyed(scoreKernels, q, kv)
	if !ok || part == device.Planned && lists(p) {
		return false
	}
	o.call(name).tensor(dst).tensor(q).int(q.Dim(1), dst.Dim(2)).
		bool(!o.d.stored).bool(part == device.SelectedRegion).bool(part == device.Planned).pages(kv, 1).plan(p).pdlEarly().
		runShared(o.keyBlocks(q.Dim(0), kv.K.Dim(1)), keyWarps*32, keyShared(q.Dim(2)))
	return true
}

// groupMax is the largest of the heads of each kv head.
func (o *ops) groupMax(dst, x device.Tensor, kv device.KV) {
	rows, heads, width := x.Dim(0), x.Dim(1), x.Dim(2)
	o.call("group_max").tensor(dst).tensor(x).int(heads, width).pages(kv, device.RowsPerSlot("GroupMax", rows, kv)).
		run(blocks{rows, kv.K.Dim(1), parts(kv)}, 256)
}

// topK lists the k best positions of each row and head.
func (o *ops) topK(l device.List, scores device.Tensor, kv device.KV, k device.Amount) {
	o.rank("TopK", l, scores, kv, k, 0)
}

// topP lists the best positions of each row and head until they hold a share of
// the row's mass.
func (o *ops) topP(l device.List, scores device.Tensor, kv device.KV, share float64) {
	o.rank("TopP", l, scores, kv, device.Amount{}, share)
}

func (o *ops) rank(op string, l device.List, scores device.Tensor, kv device.KV, k device.Amount, mass float64) {
	rows, heads, width := scores.Dim(0), scores.Dim(1), scores.Dim(2)
	shared := 8 * kv.Pages.Dim(1)
	marked := shared <= maxMarks
	if !marked {
		shared = 0
	}
	o.call("top_positions").tensor(l.Index).tensor(l.Count).tensor(scores).int(heads, width, l.Index.Dim(2), k.Count).
		float(k.Share, mass).bool(marked).pages(kv, device.RowsPerSlot(op, rows, kv)).
		runShared(blocks{rows, heads, 1}, threadsFor(width, 1024), shared)
}
