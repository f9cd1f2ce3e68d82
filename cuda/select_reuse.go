//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gollm/gollm/device"
)

// Of the kernels of selection_cache.cu and reuse_attend.cu.
const (
	reuseBins      = 2048           // of a histogram
	reuseBinTies   = 32             // scores that may share the bin of the last position selected
	maxReuseScores = 8 << 10        // scores in shared memory; several blocks fit on a multiprocessor
	maxReuseRanks  = 2 << 10        // candidates in shared memory
	reuseBlocks    = 2              // per multiprocessor
	reusePages     = 2              // the minimum per block
	reusePipeline  = 8 * 2 * 4 * 32 // words of 16 bytes of keys
)

// selectionCache appends a SelectionCache of heads query heads.
func (c *launch) selectionCache(m *device.SelectionCache, heads int) *launch {
	return c.tensor(m.Query).tensor(m.Entry).tensor(m.Index).tensor(m.Since).tensor(m.Found).tensor(m.Counters).
		int(heads, m.Found.Dim(1), m.Block, m.Index.Dim(2)).bool(m.Relative).bool(m.Chain).float(m.MinCosine).
		int(m.K.Count).float(m.K.Share)
}

// These kernels score on tensor cores: keys, by head dimension, and low-bit keys, by bits too.
var (
	reuseKernels       = map[int]string{64: "reuse_selection_64", 128: "reuse_selection_128"}
	reuseMirrorKernels = map[[2]int]string{
		{4, 64}: "reuse_selection_q4_64", {4, 128}: "reuse_selection_q4_128",
		{8, 64}: "reuse_selection_q8_64", {8, 128}: "reuse_selection_q8_128",
	}
)

// nestedScratch is the bytes of NestedScratch.
const nestedScratch = 4688

// reuseSelection lists what each head group reads in the selected region: an earlier
// selection, or a new one.
func (o *ops) reuseSelection(r *device.ReuseSelection) {
	slots, groups, kvHeads, heads, dim := r.KV.Len.Dim(0), r.Cache.Found.Dim(1), r.KV.K.Dim(1), r.Q.Dim(1), r.Q.Dim(2)
	pages, width := r.KV.Pages.Dim(1), r.Scores.Dim(2)
	parts := max(1, min(reuseBlocks*o.d.drv.multiprocessors()/max(slots*kvHeads, 1), pages/reusePages))
	if !o.fits("ReuseSelection", 12*slots*heads*parts) {
		return
	}
	name, shared := o.reuseKernel(r, 4*heads/kvHeads*dim+4*groups/kvHeads*(1+3*r.Cache.Block))
	if limit := o.room(name); shared > limit {
		o.d.keep(fmt.Errorf("ReuseSelection: needs %d bytes of shared memory, there are %d", shared, limit))
		return
	}
	cluster := o.selectCluster(slots*groups, width)
	more, bitmaps := 8*heads/groups, 2
	both := nestedScratch + listThreads(width, cluster)/32*selectList // a second list for each warp
	nested := selectShared(width, cluster, bitmaps, more+both) <= o.room("reuse_rank")
	if nested {
		more += both
	}
	part := listPart(width, cluster)
	o.reuse(name, r, parts, part, nested).pdlEarly().runShared(blocks{parts, kvHeads, slots}, 256, shared)
	o.reuse("reuse_rank", r, parts, part, nested).inClusters(cluster).
		runShared(blocks{groups, slots, cluster}, listThreads(width, cluster), selectShared(width, cluster, bitmaps, more))
}

// reuseKernel is the kernel that finds entries and scores, and the bytes of shared memory that it
// needs with those of the entries.
func (o *ops) reuseKernel(r *device.ReuseSelection, entries int) (name string, shared int) {
	dim := r.Q.Dim(2)
	if !r.Keys.Absent() {
		if name, ok := reuseMirrorKernels[[2]int{device.MirrorBits(dim, r.Keys.Dim(2)), dim}]; ok && o.aligned(r.Keys) {
			return name, entries
		}
		return "reuse_selection", entries + mirrorScratch(dim)
	}
	if name, ok := o.keysKernel(reuseKernels, r.Q, r.KV); ok && keysShared(dim)+entries <= o.room(name) {
		return name, keysShared(dim) + entries // beside the entries, a pipeline of keys may be more than a GPU has
	}
	return "reuse_selection", entries
}

// reuse starts a launch with a ReuseArgs.
func (o *ops) reuse(name string, r *device.ReuseSelection, parts, part int, nested bool) *launch {
	l, w := &r.List, &r.Neighbors
	return o.launch(name).tensor(l.Index).tensor(l.Count).int(l.Index.Dim(2)).selectionCache(&r.Cache, r.Q.Dim(1)).
		tensor(r.Scores).tensor(r.Compared).tensor(r.Q).work(0).int(r.Scores.Dim(2), parts).
		int(w.Best.Count).float(w.Best.Share).int(w.Each).bool(w.KeepSlid).mirror(r.Keys, r.Q.Dim(2)).int(part).bool(nested).
		bool(o.d.hazards.complete(r.Cache.Entry, r.Cache.Query, r.Cache.Since)).
		pages(r.KV, 1).plan(r.Plan)
}

// reuseAttendKernels attend to the selection too, by head dimension.
var reuseAttendKernels = map[int]string{64: "reuse_attend_64", 128: "reuse_attend_128"}

// maxReuseListed is the limit of the positions that their blocks read.
const maxReuseListed = 4 << 10

// suitsReuseAttend reports whether they take a call: every query head has a kv head of its own,
// and heads fill the GPU.
func (o *ops) suitsReuseAttend(r *device.ReuseSelection, listed int) bool {
	heads, kv := r.Q.Dim(1), &r.KV
	return reuseAttendKernels[r.Q.Dim(2)] != "" && kv.K.DType == device.F16 && kv.K.Dim(1) == heads && r.Cache.Found.Dim(1) == heads &&
		!r.Plan.Mixture && r.Keys.Absent() && r.List.Weight.Absent() &&
		kv.Len.Dim(0)*heads >= 2*o.d.drv.multiprocessors() && listed <= maxReuseListed
}

// reuseAttend is reuseSelection, and attention to its list.
func (o *ops) reuseAttend(dst device.Tensor, r *device.ReuseSelection) bool {
	dim, p, m := r.Q.Dim(2), &r.Plan, &r.Cache
	listed := r.List.Index.Dim(2) + p.Sink + p.Recent + p.Align
	if !o.suitsReuseAttend(r, listed) {
		return false
	}
	candidates := 1 << bits.Len(uint(m.Index.Dim(2)+reuseBinTies-1))
	scores := min(ceil(r.Scores.Dim(2), 2)*2, maxReuseScores)
	if candidates > maxReuseRanks || r.Scores.Dim(2) > scores {
		return false
	}
	// Offsets in shared memory: keys, or histogram and candidates; bitmaps of what is selected and of
	// sinks and window; scores or the list; the query; the cache's entries.
	selected := max(16*reusePipeline, 4*reuseBins+8*candidates)
	fixed := selected + 8*r.KV.Pages.Dim(1)
	local := fixed + 8*r.KV.Pages.Dim(1)
	query := local + 4*max(scores, ceil(listed, 2)*2)
	entries := query + 4*dim
	shared := entries + 12*m.Block
	name := reuseAttendKernels[dim]
	if shared > o.room(name) {
		return false
	}
	early := o.pastComplete() && o.d.hazards.complete(m.Entry, m.Query, m.Index, m.Since)
	o.reuse(name, r, 0, 0, false).tensor(dst).bool(early).int(listed, selected, fixed, local, query, entries).pdlEarly().pdlHold(true).
		runShared(blocks{1, r.Q.Dim(1), r.KV.Len.Dim(0)}, 256, shared)
	o.decodeWhole(&device.Attend{Dst: dst, Q: r.Q, KV: r.KV, Plan: r.Plan})
	return true
}
