//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// flashRows is how many rows of a slot are computed in half precision.
const flashRows = 256

// flashKernels are the kernels for many rows, by the length of a head: of all
// GPUs, and of those with the instructions of wgmma.cuh one and two groups of warps.
var flashKernels = map[int]struct{ any, one, wide string }{
	64:  {"flash_64", "flash_wgmma_1wg_64", "flash_wgmma_64"},
	128: {"flash_128", "flash_wgmma_1wg_128", "flash_wgmma_128"},
}

// flashes reports whether a call suits the kernels for many rows: they take
// blocks of a page of rows, which must share a list.
func flashes(dim int, kv device.KV, p device.Plan) bool {
	_, ok := flashKernels[dim]
	return ok && kv.K.DType == device.F16 && !p.Mixture && (!lists(p) || max(p.List.Group, 1)%device.PageLen == 0)
}

// lists reports whether a plan has a list.
func lists(p device.Plan) bool { return p.Selected == device.Blocks || p.Selected == device.Tokens }

// flash queues the attention of the rows of one slot on tensor cores.
func (o *ops) flash(dst, q device.Tensor, kv device.KV, p device.Plan) {
	if o.d.drv.wide() {
		o.flashWide(dst, q, kv, p)
	} else {
		o.flashAny(dst, q, kv, p)
	}
}

// flashAny is flash for all GPUs.
func (o *ops) flashAny(dst, q device.Tensor, kv device.KV, p device.Plan) {
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	stage := 2*2*device.PageLen*(dim+8) + device.PageLen*(4+4) // Stage of flash.cu, of which there are two
	o.call(flashKernels[dim].any).tensor(dst).tensor(q).int(heads).bool(false).pages(kv, rows).plan(p).
		runShared(blocks{touched(rows), heads, 1}, 128, 2*stage)
}

// flashWide is flash with the instructions of wgmma.cuh. Two groups of warps share
// tiles where heads of a kv head or neighbouring rows share what they read.
func (o *ops) flashWide(dst, q device.Tensor, kv device.KV, p device.Plan) {
	heads, dim := q.Dim(1), q.Dim(2)
	pairs := heads/kv.K.Dim(1)%2 == 0 && (!lists(p) || heads/p.List.Index.Dim(1)%2 == 0)
	switch {
	case pairs, !lists(p) || p.List.Group%(2*device.PageLen) == 0:
		o.wide(flashKernels[dim].wide, dst, q, kv, p, pairs, 2)
	default:
		o.wide(flashKernels[dim].one, dst, q, kv, p, false, 1)
	}
}

// wide queues a kernel of flash_wgmma.cu whose blocks have one or two groups of warps,
// which take heads in pairs or neighbouring rows.
func (o *ops) wide(name string, dst, q device.Tensor, kv device.KV, p device.Plan, pairs bool, groups int) {
	rows, heads, dim := q.Dim(0), q.Dim(1), q.Dim(2)
	at := blocks{(touched(rows) + 2*groups - 2) / groups, heads, 1}
	if pairs {
		at = blocks{touched(rows), heads / 2, 1}
	}
	const ring, step = 3, 2 * device.PageLen // of flash_wgmma.cu: keys, values, marks and gates of steps
	o.call(name).tensor(dst).tensor(q).int(heads).bool(pairs).pages(kv, rows).plan(p).matrix(kv.K).matrix(kv.V).
		runShared(at, 128*(groups+1), ring*(2*2*step*dim+step*(4+4)+4*8)+256)
}
