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
	if o.samplesParts(c) {
		o.sampleParts(c)
		return
	}
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
		o.launch(name).residual(c, size, global, first).inClusters(cluster).runShared(blocks{items, 1, cluster}, residualThreads, shared)
	})
}

// residual appends the ResidualArgs of a piece, of which an item has so many bytes of scratch, global of
// them for a block's bitmaps.
func (l *launch) residual(c *device.Sample, size, global, first int) *launch {
	r := &c.Residual
	return l.tensor(c.List.Index).tensor(c.List.Count).tensor(c.List.Weight).tensor(c.Q).work(0).
		int(size, global, first, c.List.Index.Dim(1), c.List.Index.Dim(2), c.Q.Dim(1), r.Pilot.Count).float(r.Pilot.Share, r.Eps, r.Z).
		bool(r.Values).bool(r.Finite).bool(r.Fresh).bool(r.Replace).bool(r.Listed).
		draw(r.Draw, r.Requests).pages(c.KV, device.RowsPerSlot("ResidualSample", c.Q.Dim(0), c.KV)).plan(c.Plan).pdlEarly()
}

// Of the kernels residual_sample_64 and top_sample_64 and those for 128, in which each block of a cluster has
// consecutive pages of the row.
const (
	partThreads  = 512
	partHeads    = 8                 // of a head group
	partList     = 8 * 256           // bytes of WarpKeys
	partPage     = 8 + 8 + 8 + 4 + 4 // bytes of a page's bitmaps, counts and keys
	partChunks   = 1024              // of a row of up to 4,096 pages, at most; of a longer one, one for partChunkOf
	partChunkOf  = 4                 // pages
	partMoments  = 32                // bytes of KeyMoments
	partCounters = 4 * 8             // bytes of what each block lists
)

// samplesParts reports whether they do what a call asks for. It depends on the call's settings and on the
// length of its sequences, and not on how many there are: what is sampled does not change with the batch.
func (o *ops) samplesParts(c *device.Sample) bool {
	r, k, heads := &c.Residual, c.KV.K, c.Q.Dim(1)/c.List.Index.Dim(1)
	plain := !r.Values && !r.Fresh && !r.Replace && !r.Listed && c.Plan.List.Weight.Absent()
	keys := !r.Scored() || k.DType == device.F16 && (k.Dim(3) == 64 || k.Dim(3) == 128) && heads <= partHeads
	return plain && keys && partShared(c.KV.Pages.Dim(1), 1) <= o.room(partName("residual_sample", c))
}

// partName is the kernel for a call. Where no key is read, it is any of them.
func partName(name string, c *device.Sample) string {
	if c.KV.K.Dim(3) == 64 {
		return name + "_64"
	}
	return name + "_128"
}

// partShared is the shared memory of a block, of which a cluster has so many for each list.
func partShared(pages, cluster int) int {
	return partThreads/32*partList + partPage*(ceil(pages, cluster)+2*partChunkOf) + 16
}

// sampleParts lists what the plan lists and a sample of the rest.
func (o *ops) sampleParts(c *device.Sample) {
	o.inParts(c, func(size, first int) *launch {
		return o.launch(partName("residual_sample", c)).residual(c, size, 0, first)
	}, 0)
}

// sampleTop does so for the best positions by scores instead of a list; false if its kernels do not
// take the calls.
func (o *ops) sampleTop(top *device.Select, c *device.Sample) bool {
	rows, groups, pages := c.Q.Dim(0), c.List.Index.Dim(1), c.KV.Pages.Dim(1)
	ownList := top.Scores.Dim(1) == groups && max(top.List.Group, 1) == 1 && (c.KV.Len.Dim(0) == 1 || c.KV.Len.Dim(0) == rows)
	if !ownList || !o.samplesParts(c) || selectScratch+partShared(pages, 1) > o.room(partName("top_sample", c)) {
		return false
	}
	rest := *c
	rest.Plan.List = device.List{}
	o.inParts(&rest, func(size, first int) *launch {
		return o.launch(partName("top_sample", c)).residual(&rest, size, 0, first).tensor(top.Scores).int(top.Scores.Dim(2), top.K.Count).float(top.K.Share)
	}, selectScratch)
	return true
}

// inParts queues launches of a call's items, which begin makes; more is bytes of shared memory besides.
func (o *ops) inParts(c *device.Sample, begin func(size, first int) *launch, more int) {
	pages, items := c.KV.Pages.Dim(1), c.Q.Dim(0)*c.List.Index.Dim(1)
	cluster := o.residualCluster(items, pages)
	size := partMoments*c.Q.Dim(1)/c.List.Index.Dim(1)*max(partChunks, ceil(pages, partChunkOf)) + partCounters
	o.inPieces("ResidualSample", items, size, func(first, n int) {
		begin(size, first).inClusters(cluster).runShared(blocks{n, 1, cluster}, partThreads, more+partShared(pages, cluster))
	})
}

// residualCluster is how many thread blocks share each of a number of lists: as many as are
// resident at once, one per multiprocessor, and have pages. A cluster lies within a GPC, so that some
// tenth of the multiprocessors is left without: an H200 has room for 30 clusters of four.
func (o *ops) residualCluster(lists, pages int) int {
	c := 1
	for 2*c <= o.d.drv.maxCluster() && 2*c*lists <= o.d.drv.multiprocessors()*9/10 && 2*c <= pages {
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
