package cpu

import (
	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
)

// multiply computes products of the same activations, which are prepared once.
func (o *ops) multiply(calls []device.Call) bool {
	o.products = o.products[:0]
	for _, c := range calls {
		o.products = append(o.products, product(c.(*device.MatMul)))
	}
	x := calls[0].(*device.MatMul).X
	o.matmul.Run(floats(x), x.Dim(0), o.products...)
	return true
}

// product is a call as the kernels take it.
func product(c *device.MatMul) kernel.Product {
	return kernel.Product{Dst: floats(c.Dst), W: kernel.NewMatrix(c.W.DType, c.W.Dim(0), c.W.Dim(1), bytesOf(c.W))}
}

// floats is an F32 matrix as the kernels take it.
func floats(t device.Tensor) kernel.Floats {
	return kernel.Floats{Data: f32s(t), Stride: t.RowLen()}
}
