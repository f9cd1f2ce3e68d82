package sparse

import "github.com/gollm/gollm/device"

// Pass is one forward pass: a prefill chunk or a decode step. Its tensors are fixed
// buffers that the engine refills between passes.
type Pass struct {
	Queue device.Queue
	IDs   device.Tensor // i32 [rows]
	Pos   device.Tensor // i32 [rows]
	End   device.Tensor // i32 [rows]: Pos + 1

	Cache []device.KV // by layer; one slot in prefill, slot i for row i in decode

	// Requests i32 [slots of the pass] is the request of each slot, which is part of the
	// address of its random numbers.
	Requests device.Tensor

	Slot   int  // prefill: slot of the prompt
	First  int  // prefill: position of the first row
	Prompt int  // prefill: length of the whole prompt, cached part included
	Decode bool // one new position of each slot

	// Layer is called before each layer of an eager pass; false abandons the
	// pass, whose results are then undefined. It may be nil.
	Layer func(layer int) bool

	tile bool // a tile of a pass: the cache holds rows behind it already
}

// Rows is the number of query rows of the pass.
func (p *Pass) Rows() int { return p.IDs.Dim(0) }

// NewRows is how many rows of each slot the pass has.
func (p *Pass) NewRows() int {
	if p.Decode {
		return 1
	}
	return p.Rows()
}

// KV is one layer of the cache as the rows of this pass see it.
func (p *Pass) KV(layer int) device.KV {
	kv := p.Cache[layer]
	if p.tile {
		kv.Len = p.End.Rows(p.Rows()-1, p.Rows())
	}
	return kv
}

// Tile is rows [lo, hi) of a prefill pass as a pass of their own, whose KV ends with
// its last row. Methods that plan row by row plan a tile at a time, which bounds the
// memory of their scores and lists.
func (p *Pass) Tile(lo, hi int) Pass {
	t := *p
	t.IDs, t.Pos, t.End = p.IDs.Rows(lo, hi), p.Pos.Rows(lo, hi), p.End.Rows(lo, hi)
	t.First = p.First + lo
	t.tile = true
	return t
}

// State is the part of a tensor of [Env.State] that this pass uses: the layer's rows of
// its slots, [slots, dims...].
func (p *Pass) State(t device.Tensor, layer int) device.Tensor {
	if p.Decode {
		return t.At(layer).Rows(0, p.Rows())
	}
	return t.At(layer).Rows(p.Slot, p.Slot+1)
}
