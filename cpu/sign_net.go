package cpu

import (
	"math"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// signNet is a device.Net, the small network whose outputs HashAttention takes the signs of,
// with its tensors looked up.
type signNet struct {
	device.Net
	weight, bias   [device.MaxLayers][]float32
	groups, layers int
	words          int
	maxWidth       int // of inputs and of all layers
	scratch        []signNetScratch
}

// signNetScratch is what one worker needs.
type signNetScratch struct {
	x, y   []float32 // [vec.Tile, maxWidth]: input and output of a layer
	tile   []float32 // [vec.Tile, vec.Tile]
	weight []float32 // [vec.Tile, maxWidth]: rows that do not fill a tile, padded
}

// signNet looks up a network; was is that of the last call, whose scratch is reused.
func (o *ops) signNet(n device.Net, was signNet) signNet {
	t := signNet{Net: n, groups: n.Weight[0].Dim(0), layers: n.Layers(), words: n.Words(), maxWidth: n.Weight[0].Dim(2), scratch: was.scratch}
	for i := range t.layers {
		t.weight[i], t.bias[i] = f32s(n.Weight[i]), f32s(n.Bias[i])
		t.maxWidth = max(t.maxWidth, n.Weight[i].Dim(1))
	}
	t.scratch = perWorker(o.pool, t.scratch)
	for i := range t.scratch {
		s := &t.scratch[i]
		s.x, s.y, s.weight = grown(&s.x, vec.Tile*t.maxWidth), grown(&s.y, vec.Tile*t.maxWidth), grown(&s.weight, vec.Tile*t.maxWidth)
		s.tile = grown(&s.tile, vec.Tile*vec.Tile)
	}
	return t
}

// run applies the network of a head group to n vectors, the rows of s.x, and returns its
// outputs [n, width].
func (t *signNet) run(o *ops, s *signNetScratch, group, n int) (out []float32, width int) {
	for l := range t.layers {
		w := t.Weight[l]
		rows, in := w.Dim(1), w.Dim(2)
		t.product(o, s, t.weight[l][group*rows*in:(group+1)*rows*in], n, rows, in)
		bias := row(t.bias[l], group, rows)
		for i := range n {
			y := row(s.y, i, rows)
			for j := range y {
				y[j] += bias[j]
			}
			if l < t.layers-1 {
				t.activate(y)
			}
		}
		s.x, s.y, width = s.y, s.x, rows
	}
	return s.x, width
}

// activate applies the activation function between layers: ReLU or SiLU.
func (t *signNet) activate(y []float32) {
	for j, v := range y {
		if t.Relu {
			y[j] = max(v, 0)
		} else {
			y[j] = float32(float64(v) / (1 + math.Exp(-float64(v))))
		}
	}
}

// product sets s.y [n, rows] to s.x·wᵀ. The kernel reads full tiles of rows.
func (t *signNet) product(o *ops, s *signNetScratch, w []float32, n, rows, in int) {
	kernel := o.vec.Scores
	if in%vec.Multiple != 0 {
		kernel = vec.Go.Scores
	}
	for first := 0; first < rows; first += vec.Tile {
		m := min(vec.Tile, rows-first)
		some := w[first*in : (first+m)*in]
		if m < vec.Tile {
			copy(s.weight, some)
			some = s.weight[:vec.Tile*in]
		}
		kernel(s.tile, s.x, vec.Rows{Full: some}, vec.Rows{}, n, m, in)
		for i := range n {
			copy(row(s.y, i, rows)[first:first+m], row(s.tile, i, vec.Tile))
		}
	}
}

// signsOf packs the signs of a network output: bit i%32 of word i/32 is y[i] > 0.
func signsOf(dst []int32, y []float32) {
	clear(dst)
	for i, v := range y {
		if v > 0 {
			dst[i/32] |= 1 << (i % 32)
		}
	}
}
