//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// The kernels that keep the scores of a decoded row, by head dimension: beside its attention and
// alone, for up to mmaHeads query heads per kv head and for more. See mass_decode.cu.
var (
	attendMassKernels     = map[int]string{64: "decode_mass_64", 128: "decode_mass_128"}
	attendMassMoreKernels = map[int]string{64: "decode_mass_more_64", 128: "decode_mass_more_128"}
	massKernels           = map[int]string{64: "mass_64", 128: "mass_128"}
	massMoreKernels       = map[int]string{64: "mass_more_64", 128: "mass_more_128"}
)

// massKernel is the kernel for a head dimension and the query heads of a kv head, if there is one.
func massKernel(dim, group int, attends bool) (name string, ok bool) {
	kernels := massKernels
	switch {
	case attends && group > mmaHeads:
		kernels = attendMassMoreKernels
	case attends:
		kernels = attendMassKernels
	case group > mmaHeads:
		kernels = massMoreKernels
	}
	name, ok = kernels[dim]
	return name, ok
}

// massWords is the words of the scores of a tile of 16 positions (score_words), and maxMassTiles how
// many tiles a row has, at most: pages, of which a list begins and ends others.
func massWords(group int) int { return 16 * (1 + 4*ceil(group, mmaHeads)) }

func maxMassTiles(kv device.KV) int { return 4*kv.Pages.Dim(1) + 16 }

// decodeMass is AttentionMass of one row per slot over an f16 cache, by the kernels of decode
// attention, if they take the call. Where dst is not absent it gets the attention of the same rows
// and plan. As many slots are computed at a time as the workspace has room for.
func (o *ops) decodeMass(c *device.Summarize, dst device.Tensor) bool {
	slots, heads, dim, kvHeads := c.X.Dim(0), c.X.Dim(1), c.X.Dim(2), c.KV.K.Dim(1)
	group, attends := heads/kvHeads, !dst.Absent()
	name, ok := massKernel(dim, group, attends)
	if !ok || c.KV.K.DType != device.F16 || group > maxDecodeGroup || slots*heads > maxCounters ||
		hasList(c.Plan) && kvHeads%c.Plan.List.Index.Dim(1) != 0 || ringWarps*ringStages*kvTileSize(dim) > o.room(name) {
		return false
	}
	splits, cluster := o.decodeSplits(&device.Attend{Q: c.X, KV: c.KV, Plan: c.Plan})
	if !attends {
		cluster = 1
	}
	size := massSize(c, splits, attends)
	if size > workspaceSize {
		return false
	}
	o.inPieces("AttentionMass", slots, size, func(first, n int) {
		o.massPiece(name, sliceSlots(*c, first, n), rowsOf(dst, first, n), splits, cluster)
	})
	return true
}

// massSize is the scratch of a slot, in bytes.
func massSize(c *device.Summarize, splits int, attends bool) int {
	heads, kvHeads := c.X.Dim(1), c.KV.K.Dim(1)
	size := 16 + 8*heads*splits + 4*kvHeads*maxMassTiles(c.KV)*massWords(heads/kvHeads)
	if attends {
		size += 4 * heads * splits * c.X.Dim(2)
	}
	return size
}

// sliceSlots is the call for n of its slots, of which each has one row.
func sliceSlots(c device.Summarize, first, n int) device.Summarize {
	for _, t := range []*device.Tensor{&c.X, &c.Dst, &c.KV.Pages, &c.KV.Len, &c.Plan.List.Index, &c.Plan.List.Count, &c.Plan.List.Weight} {
		*t = rowsOf(*t, first, n)
	}
	return c
}

// rowsOf is n elements of the first dimension of a tensor, from first on; of an absent one it is absent.
func rowsOf(t device.Tensor, first, n int) device.Tensor {
	if t.Absent() || first == 0 && n >= t.Dim(0) {
		return t
	}
	return t.Rows(min(first, t.Dim(0)), min(first+n, t.Dim(0)))
}

// massPiece queues the kernel that makes the scores and the one that adds the masses.
func (o *ops) massPiece(name string, c device.Summarize, dst device.Tensor, splits, cluster int) {
	slots, heads, dim, kvHeads := c.X.Dim(0), c.X.Dim(1), c.X.Dim(2), c.KV.K.Dim(1)
	group, parts := heads/kvHeads, 0
	if !dst.Absent() {
		parts = slots * heads * splits * dim * 4
	}
	scores, tiles := parts+ceil(slots*heads*splits*8, 16)*16, maxMassTiles(c.KV)
	at := func(name string) *launch {
		return o.launch(name).tensor(dst).tensor(c.X).work(0).work(parts).counters().int(heads, splits, group, cluster).bool(o.pastComplete()).
			pages(c.KV, 1).plan(c.Plan).work(scores).int(tiles).tensor(c.Dst).int(c.Dst.Dim(2)).pdlEarly().pdlHold(true)
	}
	at(name).inClusters(cluster).runShared(blocks{slots, kvHeads, splits}, ringWarps*32, ringWarps*ringStages*kvTileSize(dim))
	const threads = 256
	adders, shared := max(1, min(2*o.d.drv.multiprocessors()/(slots*kvHeads), ceil(16*tiles, threads))), 0
	if !dst.Absent() { // one more merges the partial results
		adders++
		shared = 4 * group * (splits + 1)
	}
	at("add_mass").runShared(blocks{slots, kvHeads, adders}, threads, shared)
}

// fuseMassAttend attends to the positions whose masses it adds up.
func (o *ops) fuseMassAttend() bool {
	return device.RowsPerSlot("AttentionMass", o.matched.mass.X.Dim(0), o.matched.mass.KV) == 1 && o.decodeMass(o.matched.mass, o.matched.attend.Dst)
}
