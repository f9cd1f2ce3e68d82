//go:build cuda || cudaemu

package cuda

import (
	"testing"

	"github.com/gollm/gollm/device"
)

// TestSequencesShareNothing: calls whose operands overlap, or that are of other blocks, do not
// match a pattern. A test of the results would say nothing: on a GPU they race.
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
	rotation := device.Rotation{Freqs: tensor(device.F32, 8), Scale: 1}
	rotated := func(q, k, v device.Tensor) []device.Call {
		return []device.Call{&device.Rope{X: q, Pos: pos, Rotation: rotation}, &device.Rope{X: k, Pos: pos, Rotation: rotation}, &device.Append{KV: kv, K: k, V: v}}
	}
	flat := func(x device.Tensor) device.Tensor { return x.Reshape(1, 32) }
	biased := func(q, k, v device.Tensor, biases ...device.Tensor) (calls []device.Call) {
		for i, bias := range biases {
			calls = append(calls, &device.Add{Dst: flat([]device.Tensor{q, k, v}[i]), X: bias})
		}
		return append(calls, rotated(q, k, v)...)
	}
	heads := func(x device.Tensor) device.Tensor { return x.Reshape(2, 16) }
	normed := func(q, k, v device.Tensor, change func(q, k *device.RMSNorm)) []device.Call {
		w := tensor(device.F32, 16)
		nq, nk := &device.RMSNorm{Dst: heads(q), X: heads(q), W: w, Eps: 1}, &device.RMSNorm{Dst: heads(k), X: heads(k), W: w, Eps: 1}
		change(nq, nk)
		return append([]device.Call{nq, nk}, rotated(q, k, v)...)
	}
	b := tensor(device.F32, 32)
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
	list := func() device.List {
		return device.List{Index: tensor(device.I32, 1, 2, 64), Count: tensor(device.I32, 1, 2)}
	}
	sampled := func(change func(top *device.Select, c *device.Sample, d *device.Discard)) []device.Call {
		l, result := list(), list()
		result.Weight = tensor(device.F32, 1, 2, 64)
		top := &device.Select{Rule: device.TopK, List: l, Scores: tensor(device.F32, 1, 2, 64), KV: kv, K: device.Amount{Count: 3}}
		c := &device.Sample{Rule: device.ResidualSample, List: result, Q: rows(), KV: kv, Plan: device.Plan{Selected: device.Tokens, List: l}}
		d := &device.Discard{List: l}
		change(top, c, d)
		return []device.Call{top, c, d}
	}
	type (
		best    = *device.Select
		sample  = *device.Sample
		discard = *device.Discard
		sum     = *device.Summarize
		compare = *device.Score
	)
	x, y, z := rows(), rows(), rows()
	for name, c := range map[string]struct {
		calls    []device.Call
		sequence func(*matcher) bool
		want     int
	}{
		"rotated":                      {rotated(x, y, rows()), (*matcher).ropeAppend, 3},
		"rotated twice":                {rotated(x, x, y), (*matcher).ropeAppend, 0},
		"keys are values":              {rotated(x, y, y), (*matcher).ropeAppend, 0},
		"queries are values":           {rotated(x, y, x), (*matcher).ropeAppend, 0},
		"biased":                       {biased(x, y, rows(), b, b, b), (*matcher).ropeAppend, 6},
		"two are biased":               {biased(x, y, rows(), b, b), (*matcher).ropeAppend, 0},
		"biased by the queries":        {biased(x, y, rows(), b, x.Reshape(32), b), (*matcher).ropeAppend, 0},
		"a sum of rows":                {biased(x, y, rows(), b, flat(rows()), b), (*matcher).ropeAppend, 0},
		"bias of others":               {append(biased(rows(), rows(), rows(), b, b, b)[:3:3], rotated(x, y, rows())...), (*matcher).ropeAppend, 0},
		"normed":                       {normed(x, y, rows(), func(q, k *device.RMSNorm) {}), (*matcher).ropeAppend, 5},
		"normed elsewhere":             {normed(x, y, rows(), func(q, k *device.RMSNorm) { k.Dst = heads(rows()) }), (*matcher).ropeAppend, 0},
		"normed by two epsilons":       {normed(x, y, rows(), func(q, k *device.RMSNorm) { k.Eps = 2 }), (*matcher).ropeAppend, 0},
		"norm of others":               {normed(x, y, rows(), func(q, k *device.RMSNorm) { k.Dst = heads(rows()); k.X = k.Dst }), (*matcher).ropeAppend, 0},
		"norm of whole rows":           {normed(x, y, rows(), func(q, k *device.RMSNorm) { q.Dst, q.W = flat(x), b; q.X = q.Dst }), (*matcher).ropeAppend, 0},
		"norm by the keys":             {normed(x, y, rows(), func(q, k *device.RMSNorm) { q.W = y.Reshape(32).Rows(0, 16) }), (*matcher).ropeAppend, 0},
		"biased and normed":            {append(biased(x, y, z, b, b, b)[:3:3], normed(x, y, z, func(q, k *device.RMSNorm) {})...), (*matcher).ropeAppend, 8},
		"tail sketch":                  {newest(func(k, q, m, r sum, c compare, n sum) {}), (*matcher).tailSketch, 6},
		"queries of other slots":       {newest(func(k, q, m, r sum, c compare, n sum) { q.KV = other }), (*matcher).tailSketch, 0},
		"means of other slots":         {newest(func(k, q, m, r sum, c compare, n sum) { m.KV = other }), (*matcher).tailSketch, 0},
		"rows of other slots":          {newest(func(k, q, m, r sum, c compare, n sum) { r.KV = other }), (*matcher).tailSketch, 0},
		"comparison of other slots":    {newest(func(k, q, m, r sum, c compare, n sum) { c.KV = other }), (*matcher).tailSketch, 0},
		"last means of other slots":    {newest(func(k, q, m, r sum, c compare, n sum) { n.KV = other }), (*matcher).tailSketch, 5},
		"last means by another basis":  {newest(func(k, q, m, r sum, c compare, n sum) { n.Basis = tensor(device.F32, 8, 16) }), (*matcher).tailSketch, 5},
		"last means of more positions": {newest(func(k, q, m, r sum, c compare, n sum) { n.Rows = 70 }), (*matcher).tailSketch, 5},
		"one sum":                      {newest(func(k, q, m, r sum, c compare, n sum) { q.Dst = k.Dst }), (*matcher).tailSketch, 0},
		"top-k and a sample":           {sampled(func(b best, s sample, d discard) {}), (*matcher).topSample, 3},
		"top-p and a sample":           {sampled(func(b best, s sample, d discard) { b.Rule, b.Mass = device.TopP, .5 }), (*matcher).topSample, 0},
		"a sample of other slots":      {sampled(func(b best, s sample, d discard) { s.KV = other }), (*matcher).topSample, 0},
		"a sample of another list":     {sampled(func(b best, s sample, d discard) { s.Plan.List = list() }), (*matcher).topSample, 0},
		"a sample of listed blocks":    {sampled(func(b best, s sample, d discard) { s.Plan.Selected = device.Blocks }), (*matcher).topSample, 0},
		"a list that is read again":    {sampled(func(b best, s sample, d discard) { d.List = list() }), (*matcher).topSample, 0},
		"scores where the sample goes": {sampled(func(b best, s sample, d discard) { s.List.Weight = b.Scores }), (*matcher).topSample, 0},
		"sums of two heads":            {newest(func(k, q, m, r sum, c compare, n sum) { q.Dst = tensor(device.F32, 1, 2, 16) }), (*matcher).tailSketch, 0},
	} {
		var m matcher
		for _, call := range c.calls {
			call.Check()
		}
		if n, _ := m.match(c.calls, c.sequence); n != c.want {
			t.Errorf("%s: the pattern takes %d calls, want %d", name, n, c.want)
		}
	}
}
