//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// sample draws what stands for more than is read.
func (o *ops) sample(c *device.Sample) {
	switch c.Rule {
	case device.ResidualSample:
		o.sampleResidual(c)
	case device.ValueSample:
		o.sampleValues(c)
	case device.QueryFeatureSample:
		o.sampleFeatures(c)
	default:
		device.Unknown("cuda", c)
	}
}

// sampleResidual lists the fixed positions of the selected region and a sample of the rest.
func (o *ops) sampleResidual(c *device.Sample) {
	const op = "ResidualSample"
	l, kv, r := &c.List, c.KV, &c.Residual
	rows, heads, groups := c.Q.Dim(0), c.Q.Dim(1), l.Index.Dim(1)
	checkDim(op, c.Q.Dim(2))
	perSlot := device.RowsPerSlot(op, rows, kv)
	size := 16 + kv.Pages.Dim(1)*(3*8+device.PageLen*4*(3+heads/groups))
	o.inPieces(op, rows*groups, size, func(first, items int) {
		queue := func(name string, parts, threads int) {
			o.launch(name).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(c.Q).work(0).
				int(size, first, groups, l.Index.Dim(2), heads, r.Pilot.Count).float(r.Pilot.Share, r.Eps, r.Z).
				bool(r.Values).bool(r.Finite).bool(r.Fresh).bool(r.Replace).bool(r.Listed).
				draw(r.Draw, r.Requests).pages(kv, perSlot).plan(c.Plan).
				run(blocks{items, 1, parts}, threads)
		}
		queue("residual_fixed", 1, 512)
		if r.Pilot != (device.Amount{}) {
			queue("residual_scores", max(1, min(4*o.d.drv.multiprocessors()/items, pastBlocks(kv))), 256)
		}
		queue("residual_sample", 1, 512)
	})
}

// sampleFeatures replaces the queries of each row by sampled estimates.
func (o *ops) sampleFeatures(c *device.Sample) {
	f := &c.Features
	rows, heads, group := c.Q.Dim(0), c.Q.Dim(1), 1
	if f.Mean {
		group = heads / c.KV.K.Dim(1)
	}
	o.launch("sample_features").tensor(c.Dst).tensor(c.Q).int(heads, group).draw(f.Draw, f.Requests).int(f.Draws).bool(f.Strata).
		pages(c.KV, device.RowsPerSlot("QueryFeatureSample", rows, c.KV)).
		run(blocks{rows, heads / group, 1}, 128)
}
