//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// ops queues operations, in order.
type ops struct {
	fusion.Window
	d      *dev
	making call

	one   [3]device.Tensor // what a call gives as slices
	alone [1]device.Call

	rotation rotation // of inHeads
	matched  matcher
}

// run queues a call that no pattern takes.
func (o *ops) run(c device.Call) {
	o.alone[0] = c
	o.d.hazards.begin(o.alone[:]...)
	defer o.d.hazards.end()
	switch c := c.(type) {
	case *device.Embed:
		o.embed(c)
	case *device.Gather:
		o.gather(c)
	case *device.Copy:
		o.copyAll(c)
	case *device.Add:
		o.add(c)
	case *device.RMSNorm:
		o.rmsNorm(c)
	case *device.Rope:
		o.rope(c)
	case *device.SwiGLU:
		o.swiGLU(c)
	case *device.SampleTokens:
		o.sampleTokens(c)
	case *device.Append:
		o.append(c)
	case *device.Attend:
		o.attention(c)
	case *device.Summarize:
		o.summarize(c)
	case *device.Score:
		o.scoreKeys(c)
	case *device.Walk:
		o.walk(c)
	case *device.Select:
		o.selectKeys(c)
	case *device.ReuseSelection:
		o.reuseSelection(c)
	case *device.Sample:
		o.drawKeys(c)
	case *device.Mark:
		o.d.mark(c.I)
	case *device.Discard: // memory stays
	default:
		device.Unknown("cuda", c)
	}
}

// ceil is how many parts of size each n elements make.
func ceil(n, each int) int { return (n + each - 1) / each }

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
