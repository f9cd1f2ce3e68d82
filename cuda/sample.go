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

// Of the kernel residual_sample, in which a cluster of thread blocks lists a sample.
const (
	residualThreads = 512
	residualChunk   = 128   // keys whose exponentials have moments together
	residualBatch   = 49152 // bytes of KeyBatch, a block's shared memory for the keys that it scores
	residualMoments = 32    // bytes of ChunkMoments
)

// sampleResidual lists the fixed positions of the selected region and a sample of the rest.
func (o *ops) sampleResidual(c *device.Sample) {
	const op, name = "ResidualSample", "residual_sample"
	l, kv, r := &c.List, c.KV, &c.Residual
	rows, heads, groups := c.Q.Dim(0), c.Q.Dim(1), l.Index.Dim(1)
	checkDim(op, c.Q.Dim(2))
	perSlot := device.RowsPerSlot(op, rows, kv)
	cluster := o.residualCluster(rows*groups, kv.Pages.Dim(1))
	// Scratch of an item: the moments of its chunks, and what bitmaps there is no shared memory for.
	size, shared, global := 0, 0, 0
	if r.Scored() {
		sums := residualMoments
		if r.Values {
			sums += 8 * c.Q.Dim(2)
		}
		size = 2 * ceil(kv.Pages.Dim(1)*device.PageLen, residualChunk) * heads / groups * sums
		shared = residualBatch
	}
	if maps := ceil(kv.Pages.Dim(1)*(8+8+4+4), 16) * 16; shared+maps <= o.room(name) {
		shared += maps
	} else {
		global = maps
		size += cluster * maps
	}
	o.inPieces(op, rows*groups, max(size, 16), func(first, items int) {
		o.launch(name).tensor(l.Index).tensor(l.Count).tensor(l.Weight).tensor(c.Q).work(0).
			int(size, global, first, groups, l.Index.Dim(2), heads, r.Pilot.Count).float(r.Pilot.Share, r.Eps, r.Z).
			bool(r.Values).bool(r.Finite).bool(r.Fresh).bool(r.Replace).bool(r.Listed).
			draw(r.Draw, r.Requests).pages(kv, perSlot).plan(c.Plan).
			pdlEarly().inClusters(cluster).runShared(blocks{items, 1, cluster}, residualThreads, shared)
	})
}

// residualCluster is how many thread blocks share each of a number of lists: as many as are
// resident at once, one per multiprocessor, and have pages.
func (o *ops) residualCluster(lists, pages int) int {
	c := 1
	for 2*c <= o.d.drv.maxCluster() && 2*c*lists <= o.d.drv.multiprocessors() && 2*c <= pages {
		c *= 2
	}
	return c
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
