//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// run queues a call that no pattern takes.
func (o *ops) run(c device.Call) {
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
	case *device.Sample:
		o.sample(c)
	case *device.Append:
		o.append(c)
	case *device.Attend:
		o.attention(c)
	case *device.BlockSum:
		o.blockSum(c)
	case *device.SketchMeans:
		o.sketchMeans(c)
	case *device.SketchRows:
		o.sketchRows(c)
	case *device.CompareBlocks:
		o.compareBlocks(c)
	case *device.Walk:
		o.walk(c)
	case *device.TopBlocks:
		o.topBlocks(c)
	case *device.Discard: // memory stays
	default:
		device.Unknown("cuda", c)
	}
}
