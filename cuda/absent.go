//go:build cuda || cudaemu

package cuda

import (
	"fmt"

	"github.com/gollm/gollm/device"
)

// Operations that have no kernels yet: a call is a failure, which Sync reports.

// absent keeps the failure of a call of op.
func (o *ops) absent(op string) {
	o.d.keep(fmt.Errorf("%s does not run on a GPU yet; use --device cpu", op))
}

func (o *ops) LineSums(_, _, _ device.Tensor, _ device.KV, _ device.First) { o.absent("LineSums") }
func (o *ops) ListLines(_, _, _ device.List, _ device.KV, _ int)           { o.absent("ListLines") }
func (o *ops) MeanKeys(device.Tensor, device.KV, int)                      { o.absent("MeanKeys") }
func (o *ops) Agree(_ device.Means, _, _ device.Tensor, _ device.KV, _ float64) {
	o.absent("Agree")
}
func (o *ops) TopLines(device.List, device.Tensor, device.KV, device.Cover, device.Tensor) {
	o.absent("TopLines")
}
func (o *ops) ListBlocks(_, _, _ device.List, _ device.KV, _ device.Means) { o.absent("ListBlocks") }

func (o *ops) AddWeights(_, _ device.Tensor, _ device.KV, _ device.Plan) { o.absent("AddWeights") }
func (o *ops) KeepBest(device.List, device.Tensor, device.KV, device.Plan, device.Keep) {
	o.absent("KeepBest")
}

