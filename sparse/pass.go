package sparse

import "github.com/gollm/gollm/device"

// Pass is one trip through the layers: a prompt, a chunk of one, or a decode
// step. Its tensors are fixed buffers that the engine refills between passes.
type Pass struct {
	Ops device.Ops
	IDs device.Tensor // i32 [rows]
	Pos device.Tensor // i32 [rows]
	KV  []device.KV   // by layer; one slot in prefill, slot i for row i in decode

	First  int  // prefill: position of the first row
	Prompt int  // prefill: length of the whole prompt, cached part included
	Decode bool // one new position of each slot

	// Layer is called before each layer of an eager pass; false abandons the
	// pass, whose results are then undefined. It may be nil.
	Layer func(layer int) bool
}

// Rows is the number of query rows of the pass.
func (p *Pass) Rows() int { return p.IDs.Dim(0) }
