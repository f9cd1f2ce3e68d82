//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

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
