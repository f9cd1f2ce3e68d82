package engine

import (
	"errors"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// Channels accumulates the importance of each channel of a head over prompts, the
// calibration of Double Sparsity: |q_c·k_c| of a position's query and its own key, both
// after RoPE. Its runner has to be dense, with a cache of F32.
type Channels struct {
	dev   device.Device
	shape sparse.Shape
	pair  bool // RoPE pairs are interleaved

	sums []float64 // [layers, heads, dim]
	rows int       // positions accumulated, in each layer
	err  error     // the first failure
}

// Channels begins to accumulate; [Channels.Rank] is the ranking.
func (r *Runner) Channels() *Channels {
	s := r.shape
	c := &Channels{dev: r.dev, shape: s, pair: r.model.Rotation().Interleaved, sums: make([]float64, s.Layers*s.Heads*s.HeadDim)}
	r.watch(c)
	return c
}

// Begin does nothing.
func (*Channels) Begin(*sparse.Pass, int, device.Tensor, device.Tensor) {}

// Planned does nothing.
func (*Channels) Planned(*sparse.Pass, int, device.Plan) {}

// Attended accumulates the rows of a prefill pass.
func (c *Channels) Attended(p *sparse.Pass, layer int, _, q device.Tensor, _ device.Plan) {
	if p.Decode || c.err != nil {
		return
	}
	s, n := c.shape, q.Dim(0)
	queries := make([]float32, q.Len())
	c.err = read(c.dev, queries, q)
	keys := make([]float32, s.KVHeads*device.PageLen*s.HeadDim) // a page
	kv := p.KV(layer)
	table := make([]int32, kv.Pages.Len())
	c.err = errors.Join(c.err, read(c.dev, table, kv.Pages))
	loaded := -1 // the block in keys
	for i := 0; i < n && c.err == nil; i++ {
		at := p.First + i
		if block := at / device.PageLen; block != loaded {
			loaded = block
			c.err = read(c.dev, keys, kv.K.At(int(table[block])))
		}
		for h := range s.Heads {
			sum := c.sums[(layer*s.Heads+h)*s.HeadDim:][:s.HeadDim]
			query := queries[(i*s.Heads+h)*s.HeadDim:][:s.HeadDim]
			key := keys[(h/s.Group()*device.PageLen+at%device.PageLen)*s.HeadDim:][:s.HeadDim]
			for d := range sum {
				sum[d] += math.Abs(float64(query[d]) * float64(key[d]))
			}
		}
	}
	if layer == 0 {
		c.rows += n
	}
}

// Rank is the channels of each layer and query head by descending importance, [layers,
// heads, dim], in the order of Hugging Face models, where the two channels of a RoPE pair
// are half a head apart.
func (c *Channels) Rank() ([]float32, error) {
	dim := c.shape.HeadDim
	ranks := make([]float32, 0, len(c.sums))
	order, stored := make([]int, dim), make([]int, dim)
	for h := 0; h < len(c.sums) && c.err == nil; h += dim {
		for i := range order {
			order[i], stored[i] = i, i
			if c.pair && dim%2 == 0 {
				stored[i] = i%(dim/2)*2 + i/(dim/2)
			}
		}
		slices.SortStableFunc(order, func(a, b int) int {
			x, y := c.sums[h+stored[a]], c.sums[h+stored[b]]
			switch {
			case x > y:
				return -1
			case x < y:
				return 1
			}
			return 0
		})
		for _, i := range order {
			ranks = append(ranks, float32(i))
		}
	}
	if c.err == nil && c.rows == 0 {
		c.err = errors.New("engine: channels of a text of no tokens")
	}
	return ranks, c.err
}

// Rows is the number of positions accumulated.
func (c *Channels) Rows() int { return c.rows }
