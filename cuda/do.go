//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// ops is the device's queue: it turns calls into launches, in order.
type ops struct {
	fusion.Window
	d         *dev
	launching launch
	single    [1]device.Call // that run computes
	matched   matcher
}

// run queues a call that no pattern fuses.
func (o *ops) run(c device.Call) {
	o.single[0] = c
	o.d.hazards.begin(o.single[:]...)
	defer o.d.hazards.end()
	switch c := c.(type) {
	case *device.Embed:
		o.embed(c)
	case *device.Gather:
		o.gather(c)
	case *device.Copy:
		o.copyTensor(c)
	case *device.Add:
		o.add(c)
	case *device.RMSNorm:
		o.rmsNorm(c)
	case *device.Rope:
		o.rope(c)
	case *device.SwiGLU:
		o.swiGLU(c)
	case *device.MaskTokens:
		o.maskTokens(c)
	case *device.SampleTokens:
		o.sampleTokens(c)
	case *device.Append:
		o.append(c)
	case *device.Attend:
		o.attention(c)
	case *device.Summarize:
		o.summarize(c)
	case *device.Score:
		o.score(c)
	case *device.Select:
		o.selectList(c)
	case *device.ReuseSelection:
		o.reuseSelection(c)
	case *device.Sample:
		o.sample(c)
	case *device.Walk:
		o.walk(c)
	case *device.Mark:
		o.d.mark(c.I)
	case *device.Discard: // the memory stays allocated
	default:
		device.Unknown("cuda", c)
	}
}

// fits reports whether size bytes of scratch fit in the workspace; if not, op fails.
func (o *ops) fits(op string, size int) bool {
	if size > workspaceSize {
		o.d.keep(fmt.Errorf("%s: needs %d bytes of workspace, there are %d", op, size, workspaceSize))
	}
	return size <= workspaceSize
}

// inPieces calls f with consecutive ranges of items, such that size bytes of scratch for each
// item of a range fit in the workspace.
func (o *ops) inPieces(op string, items, size int, f func(first, n int)) {
	if !o.fits(op, size) {
		return
	}
	each := workspaceSize / size
	for first := 0; first < items; first += each {
		f(first, min(each, items-first))
	}
}

// ceil is n / each, rounded up.
func ceil(n, each int) int { return (n + each - 1) / each }
