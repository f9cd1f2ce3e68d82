//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/bits"

	"github.com/gollm/gollm/device"
)

// Of the kernels of selection_cache.cu.
const (
	reuseBins      = 2048           // of its histogram
	reuseBinTies   = 32             // scores that may share the bin of the last position selected
	maxReuseScores = 8 << 10        // scores in shared memory; several blocks fit on a multiprocessor
	maxReuseRanks  = 2 << 10        // candidates in shared memory
	reuseBlocks    = 4              // per multiprocessor
	reusePages     = 2              // the least per block
	reusePipeline  = 8 * 2 * 4 * 32 // words of 16 bytes of keys
)

// selectionCache appends a SelectionCache of heads query heads.
func (c *launch) selectionCache(m *device.SelectionCache, heads int) *launch {
	return c.tensor(m.Query).tensor(m.Entry).tensor(m.Index).tensor(m.Since).tensor(m.Found).tensor(m.Counters).
		int(heads, m.Found.Dim(1), m.Block, m.Index.Dim(2)).bool(m.Relative).bool(m.Chain).float(m.MinCosine).
		int(m.K.Count).float(m.K.Share)
}

// reuseSelection lists what each head group reads in the selected region: an earlier
// selection, or a new one.
func (o *ops) reuseSelection(r *device.ReuseSelection) {
	b, ok := o.reuseBuffers(r)
	if !ok {
		return
	}
	if !r.Keys.Absent() { // for every head, also of groups that reuse
		o.mirrorScores(&device.Score{Rule: device.MirrorScores, Dst: r.Scores, Q: r.Q, Keys: r.Keys, KV: r.KV, Plan: r.Plan})
	}
	slots, groups, pages := r.KV.Len.Dim(0), r.Cache.Found.Dim(1), r.KV.Pages.Dim(1)
	shared := b.shared(pages, r)
	if limit := o.room("reuse_selection"); shared > limit {
		o.d.keep(fmt.Errorf("ReuseSelection: needs %d bytes of shared memory, there are %d", shared, limit))
		return
	}
	parts := max(1, min(reuseBlocks*o.d.drv.multiprocessors()/max(slots*groups, 1), pages/reusePages))
	ranked := parts > 1 || groups < r.Q.Dim(1) || r.Scores.Dim(2) > b.scores || !r.Keys.Absent()
	cluster, width := o.selectCluster(slots*groups, r.Scores.Dim(2)), r.Scores.Dim(2)
	staged := stagedKeys(width, cluster)
	o.reuse("reuse_selection", b, r, ranked, staged).runShared(blocks{parts, groups, slots}, 256, shared)
	if ranked {
		o.reuse("reuse_rank", b, r, ranked, staged).selectLists(groups, slots, width, cluster, 16*r.Q.Dim(1)/groups)
	}
}

// reuseBuffers is what a block of a selection keeps.
type reuseBuffers struct {
	candidates int // for the positions selected
	scores     int // in shared memory
}

// reuseBuffers sizes them for a call; if they do not fit, it fails.
func (o *ops) reuseBuffers(r *device.ReuseSelection) (reuseBuffers, bool) {
	b := reuseBuffers{candidates: 1 << bits.Len(uint(r.Cache.Index.Dim(2)+reuseBinTies-1)), scores: min(ceil(r.Scores.Dim(2), 2)*2, maxReuseScores)}
	return b, b.candidates <= maxReuseRanks || o.fits("ReuseSelection", 8*r.KV.Len.Dim(0)*r.Cache.Found.Dim(1)*b.candidates)
}

// pipelineSize is the bytes of shared memory of keys, and then of the histogram and candidates.
func (b reuseBuffers) pipelineSize() int {
	ranking := 4 * reuseBins
	if b.candidates <= maxReuseRanks {
		ranking += 8 * b.candidates
	}
	return max(16*reusePipeline, ranking)
}

// shared is the bytes of shared memory of a block of reuse_selection.
func (b reuseBuffers) shared(pages int, r *device.ReuseSelection) int {
	m := &r.Cache
	return b.pipelineSize() + 8*pages + 4*b.scores + 4*r.Q.Dim(1)/m.Found.Dim(1)*m.Query.Dim(2) + 12*m.Block
}

// reuse starts a launch with a ReuseArgs.
func (o *ops) reuse(name string, b reuseBuffers, r *device.ReuseSelection, ranked bool, staged int) *launch {
	l, w := &r.List, &r.Neighbors
	c := o.launch(name).tensor(l.Index).tensor(l.Count).int(l.Index.Dim(2)).selectionCache(&r.Cache, r.Q.Dim(1)).
		tensor(r.Scores).tensor(r.Compared).tensor(r.Q)
	if b.candidates <= maxReuseRanks {
		c.word(0)
	} else {
		c.work(0)
	}
	return c.int(r.Scores.Dim(2), b.candidates, b.scores, reusePipeline).
		int(w.Best.Count).float(w.Best.Share).int(w.Each).bool(w.KeepSlid).bool(!r.Keys.Absent()).bool(ranked).int(staged).
		pages(r.KV, 1).plan(r.Plan).pdlEarly()
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
	b, ok := o.reuseBuffers(r)
	if !ok {
		return true
	}
	if b.candidates > maxReuseRanks || r.Scores.Dim(2) > b.scores {
		return false
	}
	// Offsets in shared memory: bitmaps of what is selected and of sinks and window, scores or
	// the list, the query, and the cache's entries.
	selected := b.pipelineSize()
	fixed := selected + 8*r.KV.Pages.Dim(1)
	scores := fixed + 8*r.KV.Pages.Dim(1)
	query := scores + 4*max(b.scores, ceil(listed, 2)*2)
	entries := query + 4*dim
	shared := entries + 12*m.Block
	name := reuseAttendKernels[dim]
	if shared > o.room(name) {
		return false
	}
	early := o.pastComplete() && o.d.hazards.complete(m.Entry, m.Query, m.Index, m.Since)
	o.reuse(name, b, r, false, 0).tensor(dst).bool(early).int(listed, selected, fixed, scores, query, entries).pdlHold(true).
		runShared(blocks{1, r.Q.Dim(1), r.KV.Len.Dim(0)}, 256, shared)
	o.decodeWhole(&device.Attend{Dst: dst, Q: r.Q, KV: r.KV, Plan: r.Plan})
	return true
}
