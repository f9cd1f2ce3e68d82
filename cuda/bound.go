//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// keyBounds makes the bounds of the parts that hold the newest positions.
func (o *ops) keyBounds(bounds device.Tensor, at newest) {
	n := bounds.Dim(2)
	o.call("key_bounds").tensor(bounds).int(n).pages(at.KV, at.N).
		run(blocks{touched(at.N), at.KV.K.Dim(1), at.KV.Len.Dim(0)}, 256)
}

// boundScores is the most that a key of each part can score.
func (o *ops) boundScores(dst, q, bounds device.Tensor, kv device.KV) {
	n := bounds.Dim(2)
	slots, sets := dst.Dim(0), dst.Dim(1)
	o.call("bound_scores").tensor(dst).tensor(q).tensor(bounds).int(q.Dim(1), sets, dst.Dim(2), n).pages(kv, 1).
		run(blocks{slots, sets, parts(kv)}, 256)
}

// topParts lists the row's own part and the best of the others.
func (o *ops) topParts(c *device.Select) {
	l, scores := &c.List, c.Scores
	slots, sets := scores.Dim(0), scores.Dim(1)
	o.call("top_subpages").tensor(l.Index).tensor(l.Count).tensor(scores).int(sets, scores.Dim(2), l.Index.Dim(2), c.PerPage).
		int(c.K.Count).float(c.K.Share).int(c.Min).span(c.Plan.Span).pages(c.KV, 1).
		run(blocks{slots, sets, 1}, 256)
}
