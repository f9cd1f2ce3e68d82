//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// selectList makes the list of what each row reads.
func (o *ops) selectList(c *device.Select) {
	switch c.Rule {
	case device.TopK:
		o.topPositions("TopK", c, c.K, 0)
	case device.TopP:
		o.topPositions("TopP", c, device.Amount{}, c.Mass)
	case device.TopBlocks:
		o.topBlocks(c)
	case device.TopParts:
		o.topSubPages(c)
	case device.TopLines:
		o.topLines(c)
	case device.HeavyHitters:
		o.heavyHitters(c)
	case device.WithinMargin:
		o.withinMargin(c)
	case device.Collisions:
		o.collisions(c)
	case device.ExpandLines:
		o.expandLines(c)
	case device.ExpandBlocks:
		o.expandBlocks(c)
	default:
		device.Unknown("cuda", c)
	}
}

// Of the kernels of cluster_select.cuh, in which a cluster of thread blocks selects for a list.
const (
	selectScratch  = 10576   // bytes of ClusterScratch
	selectList     = 8 * 256 // bytes of a warp's list
	selectThreads  = 512
	selectResident = 2    // blocks per multiprocessor
	minListPart    = 1024 // elements of a list per block, at least
)

// selectCluster is how many blocks select for each of a number of lists of up to n elements: as
// many as are resident at once, and have work. A cluster lies within a GPC, so that clusters of eight
// leave some tenth of the multiprocessors without work.
func (o *ops) selectCluster(lists, n int) int {
	c := 1
	for 2*c <= o.d.drv.maxCluster() && 2*c*lists <= selectResident*o.d.drv.multiprocessors()*9/10 && n >= 2*c*minListPart {
		c *= 2
	}
	return c
}

// listPart is the elements of a block, at most, of a list of up to n.
func listPart(n, cluster int) int { return ceil(ceil(n, cluster), 32) * 32 }

// selectLists queues a kernel of cluster_select.cuh for rows x heads lists of up to n elements, with
// so many bitmaps. Its argument part is the result of listPart. more is bytes of shared memory behind.
func (c *launch) selectLists(rows, heads, n, cluster, bitmaps, more int) {
	c.pdlEarly().inClusters(cluster).runShared(blocks{rows, heads, cluster}, listThreads(n, cluster), selectShared(n, cluster, bitmaps, more))
}

// listThreads is the threads of a block, and selectShared its bytes of shared memory.
func listThreads(n, cluster int) int {
	threads := 64
	for threads < selectThreads && 8*threads*cluster < n {
		threads *= 2
	}
	return threads
}

func selectShared(n, cluster, bitmaps, more int) int {
	return selectScratch + bitmaps*listPart(n, cluster)/8 + listThreads(n, cluster)/32*selectList + more
}

// topPositions selects the top-k positions of each row and head, or by top-p where mass is
// above 0.
func (o *ops) topPositions(op string, c *device.Select, k device.Amount, mass float64) {
	rows, heads, width := c.Scores.Dim(0), c.Scores.Dim(1), c.Scores.Dim(2)
	cluster := o.selectCluster(rows*heads, width)
	o.launch("top_positions").tensor(c.List.Index).tensor(c.List.Count).tensor(c.Scores).int(heads, width, c.List.Index.Dim(2), k.Count).
		float(k.Share, mass).int(listPart(width, cluster)).pages(c.KV, device.RowsPerSlot(op, rows, c.KV)).
		selectLists(rows, heads, width, cluster, 1, 0)
}

// topBlocks selects the blocks with the largest elements of a walk's rows.
func (o *ops) topBlocks(c *device.Select) {
	o.launch("top_blocks").topBlocks(c, c.Scores).run(blocks{tailBlocks(c.Rows), 1, c.KV.Len.Dim(0)}, 512)
}

// topBlocks appends the SelectBlocksArgs of a walk's rows. They and the list may be absent.
func (c *launch) topBlocks(s *device.Select, walks device.Tensor) *launch {
	groups, limit, rows, width := 0, 0, 0, 0
	if !s.List.Index.Absent() {
		groups, limit = s.List.Index.Dim(0), s.List.Index.Dim(2)
	}
	if !walks.Absent() {
		rows, width = walks.Dim(0), walkWidth(walks)
	}
	b := &s.Blocks
	return c.tensor(s.List.Index).tensor(s.List.Count).tensor(walks).int(groups, limit, rows, width).
		bool(walks.DType == device.I32).int(s.KV.Len.Dim(0), b.Count).float(b.Share).bool(b.Free).
		int(b.First.Count, b.Last.Count).float(b.First.Share, b.Last.Share).int(b.Dense).span(b.Span).pages(s.KV, s.Rows)
}

// topSubPages selects the row's own sub-page and the best of the others.
func (o *ops) topSubPages(c *device.Select) {
	slots, groups, width := c.Scores.Dim(0), c.Scores.Dim(1), c.Scores.Dim(2)
	cluster := o.selectCluster(slots*groups, width)
	o.launch("top_subpages").tensor(c.List.Index).tensor(c.List.Count).tensor(c.Scores).int(groups, width, c.List.Index.Dim(2), c.PerPage).
		int(c.K.Count).float(c.K.Share).int(c.Min).span(c.Plan.Span).int(listPart(width, cluster)).pages(c.KV, 1).
		selectLists(slots, groups, width, cluster, 1, 0)
}

// heavyHitters selects the positions before the newest of each slot that stay, and evicts the
// others.
func (o *ops) heavyHitters(c *device.Select) {
	slots, heads, width := c.KV.Len.Dim(0), c.KV.K.Dim(1), c.Scores.Dim(2)
	cluster := o.selectCluster(slots*heads, width)
	o.launch("evict").tensor(c.List.Index).tensor(c.List.Count).tensor(c.Scores).tensor(c.Since).int(c.List.Index.Dim(2), width).
		int(c.K.Count).float(c.K.Share).int(c.Recent.Count).float(c.Recent.Share).span(c.Plan.Span).int(listPart(width, cluster)).pages(c.KV, 1).
		selectLists(heads, slots, width, cluster, 1, 0)
}

// Of the kernels lsh_collisions.
const (
	lshHeads      = 4                   // query heads of a thread block
	lshWarps      = 8                   // of a block
	lshRing       = lshWarps * 4 * 2560 // bytes of its warps' stages
	lshStagedBits = 10                  // of a table, at most, where codes are staged
)

// collisions selects the positions whose LSH codes collide with those of the row's queries.
func (o *ops) collisions(c *device.Select) {
	const op = "Collisions"
	checkDim(op, c.Q.Dim(2))
	slots, heads, kvHeads, planes := c.Q.Dim(0), c.Q.Dim(1), c.KV.K.Dim(1), c.Hash.Planes.Dim(0)
	sides := 8 * slots * heads * c.KV.Pages.Dim(1)
	if !o.fits(op, sides+slots*heads*planes) {
		return
	}
	at := func(name string) *launch {
		return o.launch(name).hash(c.Hash, kvHeads).tensor(c.List.Index).tensor(c.List.Count).tensor(c.List.Weight).tensor(c.Q).work(0).work(sides).
			int(heads, c.List.Index.Dim(2)).pages(c.KV, 1).plan(c.Plan).pdlEarly()
	}
	at("lsh_sides").runShared(o.projectGrid(c.Hash, slots, heads), 256, 4*32*c.Q.Dim(2))
	name, shared := "lsh_collisions", planes
	if bits := c.Hash.Bits(); bits%2 == 0 && bits <= lshStagedBits && lshRing+planes <= o.room("lsh_collisions_staged") {
		name, shared = "lsh_collisions_staged", lshRing+planes
	}
	groups := kvHeads * ceil(heads/kvHeads, lshHeads)
	parts := max(1, min(2*o.d.drv.multiprocessors()/(groups*slots), ceil(c.KV.Pages.Dim(1), lshWarps)))
	at(name).runShared(blocks{parts, groups, slots}, 32*lshWarps, shared)
	if c.Hash.Bucketed() {
		at("lsh_buckets").run(blocks{heads, slots, ceil(c.Hash.Norm.Dim(2), device.HashRun)}, 512)
	}
	cluster := o.selectCluster(slots*heads, c.KV.Pages.Dim(1)*device.PageLen)
	at("lsh_list").inClusters(cluster).runShared(blocks{heads, slots, cluster}, 256, 4*c.Q.Dim(2))
}
