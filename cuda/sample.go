//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// drawKeys draws what stands for more than is read.
func (o *ops) drawKeys(c *device.Sample) {
	switch c.Rule {
	case device.ResidualSample:
		o.residualSample(c.List, c.Q, c.KV, c.Plan, c.Residual)
	case device.ValueSample:
		o.valueSample(c.List, c.Q, c.KV, c.Plan, c.Draws)
	case device.QueryFeatureSample:
		o.queryFeatureSample(c.Dst, c.Q, c.KV, c.Features)
	default:
		device.Unknown("cuda", c)
	}
}

// residualSample lists what is fixed in the plan's middle and a sample of the rest.
func (o *ops) residualSample(l device.List, q device.Tensor, kv device.KV, p device.Plan, t device.Residual) {
	const op = "ResidualSample"
	rows, heads, sets := q.Dim(0), q.Dim(1), l.Index.Dim(1)
	checkDim(op, q.Dim(2))
	n := device.RowsPerSlot(op, rows, kv)
	words := kv.Pages.Dim(1)
	size := 16 + words*(3*8+device.PageLen*4*(3+heads/sets))
	o.inPieces(op, rows*sets, size, func(first, items int) {
		call := func(name string, parts, threads int) {
			o.call(name).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(q).work(0).
				int(size, first, sets, l.Index.Dim(2), heads, t.Pilot.Count).float(t.Pilot.Share, t.Eps, t.Z).
				bool(t.Values).bool(t.Finite).bool(t.Fresh).bool(t.Replace).bool(t.Listed).
				draw(t.Draw, t.Requests).pages(kv, n).plan(p).
				run(blocks{items, 1, parts}, threads)
		}
		call("residual_fixed", 1, 512)
		if t.Pilot != (device.Amount{}) {
			call("residual_scores", max(1, min(4*o.d.drv.multiprocessors()/items, parts(kv))), 256)
		}
		call("residual_sample", 1, 512)
	})
}

// queryFeatureSample replaces the queries of each row by estimates.
func (o *ops) queryFeatureSample(dst, q device.Tensor, kv device.KV, f device.QueryFeatures) {
	rows, heads, run := q.Dim(0), q.Dim(1), 1
	if f.Mean {
		run = heads / kv.K.Dim(1)
	}
	o.call("sample_features").tensor(dst).tensor(q).int(heads, run).draw(f.Draw, f.Requests).int(f.Draws).bool(f.Strata).
		pages(kv, device.RowsPerSlot("QueryFeatureSample", rows, kv)).
		run(blocks{rows, heads / run, 1}, 128)
}
