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

func (o *ops) SampleFeatures(_, _ device.Tensor, _ device.KV, _ device.Features) {
	o.absent("SampleFeatures")
}

func (o *ops) KeyBounds(device.Tensor, device.Newest)         { o.absent("KeyBounds") }
func (o *ops) BoundScores(_, _, _ device.Tensor, _ device.KV) { o.absent("BoundScores") }
func (o *ops) TopParts(device.List, device.Tensor, device.KV, int, device.Parts) {
	o.absent("TopParts")
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

func (o *ops) HashKeys(device.Hash, device.KV) { o.absent("HashKeys") }
func (o *ops) ListCollisions(device.List, device.Hash, device.Tensor, device.KV, device.Plan) {
	o.absent("ListCollisions")
}

func (o *ops) StoreChannels(_, _ device.Tensor, _ device.Channels, _ device.KV) {
	o.absent("StoreChannels")
}
func (o *ops) ChannelScores(_, _, _ device.Tensor, _ device.Channels, _ device.KV, _ device.Plan) {
	o.absent("ChannelScores")
}
func (o *ops) StoreSigns(_, _ device.Tensor, _ device.Net, _ device.KV) { o.absent("StoreSigns") }
func (o *ops) SignScores(_, _, _ device.Tensor, _ device.Net, _ device.KV, _ device.Plan) {
	o.absent("SignScores")
}
