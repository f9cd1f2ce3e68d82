//go:build cuda || cudaemu

package cuda

import (
	"testing"

	"github.com/gollm/gollm/device"
)

// TestSequencesShareNothing: calls that differ from a sequence in what their operands
// share, or in the blocks that they name, are not taken as the sequence. On a GPU they
// would race, so that what comes of them says nothing.
func TestSequencesShareNothing(t *testing.T) {
	memory := &memory{size: 1 << 20}
	next := 0
	tensor := func(dt device.DType, dims ...int) device.Tensor {
		x := device.NewTensor(memory, next, dt, dims...)
		next += x.Size()
		return x
	}
	rows := func() device.Tensor { return tensor(device.F32, 1, 2, 16) }
	cache := func() device.KV {
		return device.KV{K: tensor(device.F32, 1, 2, device.PageLen, 16), V: tensor(device.F32, 1, 2, device.PageLen, 16),
			Pages: tensor(device.I32, 1, 1), Len: tensor(device.I32, 1)}
	}
	kv, other := cache(), cache()
	pos := tensor(device.I32, 1)
	turn := device.Rotation{Freqs: tensor(device.F32, 8), Scale: 1}
	turned := func(q, k, v device.Tensor) []device.Call {
		return []device.Call{&device.Rope{X: q, Pos: pos, Rotation: turn}, &device.Rope{X: k, Pos: pos, Rotation: turn}, &device.Append{KV: kv, K: k, V: v}}
	}
	sums := func() device.Tensor { return tensor(device.F32, 1, 1, 16) }
	sketches := func() device.Tensor { return tensor(device.F32, 1, 1, 8) }
	basis, pairs := tensor(device.F32, 8, 16), tensor(device.F32, 1, 8)
	summary := func(rule device.SummaryRule, dst, x device.Tensor) *device.Summarize {
		return &device.Summarize{Rule: rule, Dst: dst, X: x, Basis: basis, KV: kv, Rows: 1}
	}
	newest := func(change func(k, q, means, row *device.Summarize, c *device.Score, mean *device.Summarize)) []device.Call {
		k, q := summary(device.SumBlocks, sums(), rows()), summary(device.SumBlocks, sums(), rows())
		means := summary(device.ProjectMeans, sketches(), k.Dst)
		row := summary(device.ProjectRows, sketches(), q.X)
		c := &device.Score{Rule: device.SketchScores, Dst: pairs, Q: row.Dst, Keys: means.Dst, KV: kv, Rows: 1}
		mean := summary(device.ProjectMeans, row.Dst, q.Dst)
		change(k, q, means, row, c, mean)
		return []device.Call{k, q, means, row, c, mean}
	}
	type (
		sum     = *device.Summarize
		compare = *device.Score
	)
	x, y := rows(), rows()
	for name, c := range map[string]struct {
		calls    []device.Call
		sequence func(*matcher) bool
		want     int
	}{
		"turned":                       {turned(x, y, rows()), (*matcher).rotateAppend, 3},
		"turned twice":                 {turned(x, x, y), (*matcher).rotateAppend, 0},
		"keys are values":              {turned(x, y, y), (*matcher).rotateAppend, 0},
		"queries are values":           {turned(x, y, x), (*matcher).rotateAppend, 0},
		"newest":                       {newest(func(k, q, m, r sum, c compare, n sum) {}), (*matcher).sketchNewest, 6},
		"queries of other slots":       {newest(func(k, q, m, r sum, c compare, n sum) { q.KV = other }), (*matcher).sketchNewest, 0},
		"means of other slots":         {newest(func(k, q, m, r sum, c compare, n sum) { m.KV = other }), (*matcher).sketchNewest, 0},
		"rows of other slots":          {newest(func(k, q, m, r sum, c compare, n sum) { r.KV = other }), (*matcher).sketchNewest, 0},
		"comparison of other slots":    {newest(func(k, q, m, r sum, c compare, n sum) { c.KV = other }), (*matcher).sketchNewest, 0},
		"last means of other slots":    {newest(func(k, q, m, r sum, c compare, n sum) { n.KV = other }), (*matcher).sketchNewest, 5},
		"last means by another basis":  {newest(func(k, q, m, r sum, c compare, n sum) { n.Basis = tensor(device.F32, 8, 16) }), (*matcher).sketchNewest, 5},
		"last means of more positions": {newest(func(k, q, m, r sum, c compare, n sum) { n.Rows = 70 }), (*matcher).sketchNewest, 5},
		"one sum":                      {newest(func(k, q, m, r sum, c compare, n sum) { q.Dst = k.Dst }), (*matcher).sketchNewest, 0},
		"sums of two heads":            {newest(func(k, q, m, r sum, c compare, n sum) { q.Dst = tensor(device.F32, 1, 2, 16) }), (*matcher).sketchNewest, 0},
	} {
		var m matcher
		for _, call := range c.calls {
			call.Check()
		}
		if n, _ := m.match(c.calls, c.sequence); n != c.want {
			t.Errorf("%s: %d calls are taken, want %d", name, n, c.want)
		}
	}
}
