//go:build cuda && !cudaemu

package cuda

import (
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
)

// selectBed is a layer of an 8B model whose sequences select positions in a decode step.
type selectBed struct {
	slots, lists, n int // lists of a slot: kv heads, or heads
	q, scores       device.Tensor
	perHead         device.Tensor // scores of query heads, which scores pools
	parts, bounds   device.Tensor // scores of sub-pages, and bounds
	mirrors         map[int]device.Tensor
	labels, signs   device.Tensor
	channels        device.Channels
	net             device.Net
	kv              device.KV
	list            device.List
	cache           device.SelectionCache // of lists head groups
	all             device.Tensor         // scores of all heads
}

const (
	selectHeads, selectKVHeads, selectDim = 32, 8, 128
	selectSubPages                        = 4 // of a page
	selectChannels, selectBits            = 16, 128
	selectStep                            = 16 // steps of a block of the selection cache
)

func newSelectBed(b *testing.B, d *dev, slots, lists, n int) *selectBed {
	pages := n / device.PageLen
	s := &selectBed{slots: slots, lists: lists, n: n}
	s.q = filled(b, d, device.F32, slots, selectHeads, selectDim)
	s.scores = filled(b, d, device.F32, slots, lists, n)
	s.parts = filled(b, d, device.F32, slots, lists, pages*selectSubPages)
	s.bounds = filled(b, d, device.F16, pages, selectKVHeads, selectSubPages, 2*selectDim)
	s.perHead = filled(b, d, device.F32, slots, selectHeads, n)
	s.mirrors = map[int]device.Tensor{}
	for _, bits := range []int{8, 4} {
		s.mirrors[bits] = filled(b, d, device.I32, pages, selectKVHeads, device.MirrorWords(selectDim, bits), device.PageLen)
	}
	s.labels = filled(b, d, device.F16, pages, selectKVHeads, selectChannels, device.PageLen)
	s.signs = filled(b, d, device.I32, pages, selectKVHeads, device.PageLen, selectBits/32)
	s.channels.Index = benchAlloc(b, d, device.I32, selectKVHeads, selectChannels)
	channels := make([]int, selectKVHeads*selectChannels)
	for i := range channels {
		channels[i] = i % selectChannels * 7
	}
	d.Write(s.channels.Index, words(channels...))
	s.net.Weight[0], s.net.Bias[0] = filled(b, d, device.F32, selectHeads, selectBits, selectDim), filled(b, d, device.F32, selectHeads, selectBits)
	k := filled(b, d, device.F16, pages, selectKVHeads, device.PageLen, selectDim)
	s.kv = device.KV{K: k, V: k, Pages: benchAlloc(b, d, device.I32, slots, pages), Len: benchAlloc(b, d, device.I32, slots)}
	table := make([]int, slots*pages)
	for i := range table {
		table[i] = (i*97 + 31) % pages
	}
	d.Write(s.kv.Pages, words(table...))
	s.list = device.List{Index: benchAlloc(b, d, device.I32, slots, lists, n), Count: benchAlloc(b, d, device.I32, slots, lists)}
	i := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.I32, dims...) }
	s.all = benchAlloc(b, d, device.F32, slots, selectHeads, n)
	s.cache = device.SelectionCache{
		Query: benchAlloc(b, d, device.F32, slots, selectHeads*selectStep, selectDim), Entry: i(slots, lists*selectStep, 3),
		Index: i(slots, lists*selectStep, n/10), Since: i(slots, 1), Counters: i(slots, lists, 4), Found: i(slots, lists),
		Block: selectStep, K: device.Amount{Share: 0.1},
	}
	s.at(d, n-1)
	s.reuse(d, device.Tensor{}, 2)
	s.at(d, n)
	return s
}

// at makes every sequence n long.
func (s *selectBed) at(d *dev, n int) {
	lens := make([]int, s.slots)
	for i := range lens {
		lens[i] = n
	}
	d.Write(s.kv.Len, words(lens...))
}

// reuse queues a ReuseSelection by keys, or those of the cache where they are absent: all groups select
// anew where minCosine is above 1, and none below -1.
func (s *selectBed) reuse(d *dev, keys device.Tensor, minCosine float64) {
	s.cache.MinCosine = minCosine
	device.Do(d.ops, device.ReuseSelection{List: s.list, Cache: s.cache, Scores: s.all, Compared: s.q, Q: s.q, Keys: keys, KV: s.kv,
		Plan: device.Plan{Sink: 16, Recent: 64, Selected: device.Tokens}, Neighbors: device.Neighbors{Best: device.Amount{Share: 1.0 / 3}, Each: 1, KeepSlid: true}})
}

// scoring is the calls that score what is stored for all positions of a layer, by name, and the bytes
// of it that they read.
func (s *selectBed) scoring(d *dev) []selectCall {
	plan := device.Plan{Sink: 16, Recent: 64, Selected: device.None}
	score := func(dst device.Tensor, rule device.ScoreRule, keys device.Tensor) device.Score {
		return device.Score{Rule: rule, Dst: dst, Q: s.q, Keys: keys, KV: s.kv, Plan: plan, Region: device.SelectedRegion, Channels: s.channels, Net: s.net}
	}
	calls := []selectCall{{"bounds", s.slots * s.bounds.Size(), func() { device.Do(d.ops, score(s.parts, device.BoundScores, s.bounds)) }}}
	if s.lists != selectHeads {
		pool := func(rule device.ScoreRule, keys device.Tensor) func() {
			return func() {
				device.Do(d.ops, score(s.perHead, rule, keys))
				device.Do(d.ops, device.Score{Rule: device.GroupMax, Dst: s.scores, Q: s.perHead, KV: s.kv})
				device.Do(d.ops, device.Discard{T: s.perHead})
			}
		}
		return append(calls,
			selectCall{"exact-pooled", s.slots * s.kv.K.Size(), pool(device.ExactScores, device.Tensor{})},
			selectCall{"q4-pooled", s.slots * s.mirrors[4].Size(), pool(device.MirrorScores, s.mirrors[4])})
	}
	return append(calls,
		selectCall{"exact", s.slots * s.kv.K.Size(), func() { device.Do(d.ops, score(s.scores, device.ExactScores, device.Tensor{})) }},
		selectCall{"q8", s.slots * s.mirrors[8].Size(), func() { device.Do(d.ops, score(s.scores, device.MirrorScores, s.mirrors[8])) }},
		selectCall{"q4", s.slots * s.mirrors[4].Size(), func() { device.Do(d.ops, score(s.scores, device.MirrorScores, s.mirrors[4])) }},
		selectCall{"channels", s.slots * s.labels.Size(), func() { device.Do(d.ops, score(s.scores, device.ChannelScores, s.labels)) }},
		selectCall{"sign-bits", s.slots * s.signs.Size(), func() { device.Do(d.ops, score(s.scores, device.SignScores, s.signs)) }})
}

// selectCall is calls of a benchmark, and the bytes that they have to read.
type selectCall struct {
	name  string
	bytes int
	call  func()
}

// BenchmarkSelect is the kernels that select in a layer of a decode step, alone: microseconds, and
// the rate at which they read their scores, or an index of the keys, also as part of the rate of a
// kernel that only reads memory. An index that fits in L2 stays there between the calls. Batches
// share the keys of one sequence.
func BenchmarkSelect(b *testing.B) {
	d := openBench(b)
	copied, limit := copyRate(b, d), readRate(b, d)
	for _, at := range []struct{ slots, lists, n int }{
		{1, selectKVHeads, 32 << 10}, {1, selectKVHeads, 128 << 10}, {1, selectHeads, 32 << 10}, {1, selectHeads, 128 << 10},
		{16, selectKVHeads, 128 << 10}, {16, selectHeads, 32 << 10},
	} {
		free, err := d.Scope(func() error {
			s := newSelectBed(b, d, at.slots, at.lists, at.n)
			tenth := device.Amount{Share: 0.1}
			scores := s.scores.Size()
			for _, c := range append(s.scoring(d), []selectCall{
				{"top-k", scores, func() {
					device.Do(d.ops, device.Select{Rule: device.TopK, List: s.list, Scores: s.scores, KV: s.kv, K: tenth})
				}},
				{"top-p=0.9", scores, func() {
					device.Do(d.ops, device.Select{Rule: device.TopP, List: s.list, Scores: s.scores, KV: s.kv, Mass: 0.9})
				}},
				{"top-parts", s.parts.Size(), func() {
					device.Do(d.ops, device.Select{Rule: device.TopParts, List: s.list, Scores: s.parts, KV: s.kv, K: tenth, PerPage: selectSubPages})
				}},
				{"cis/new", at.slots * s.kv.K.Size(), func() { s.reuse(d, device.Tensor{}, 2) }},
				{"cis/new/q8", at.slots * s.mirrors[8].Size(), func() { s.reuse(d, s.mirrors[8], 2) }},
				{"cis/new/q4", at.slots * s.mirrors[4].Size(), func() { s.reuse(d, s.mirrors[4], 2) }},
				{"cis/reused", s.list.Count.Size(), func() { s.reuse(d, device.Tensor{}, -2) }},
				{"cis/reused/q4", s.list.Count.Size(), func() { s.reuse(d, s.mirrors[4], -2) }},
			}...) {
				b.Run(fmt.Sprintf("%s/slots=%d/lists=%d/len=%d", c.name, at.slots, at.lists, at.n), func(b *testing.B) {
					const times = 20
					seconds := measure(b, d, func() {
						for range times {
							c.call()
						}
					}) / times
					reportRate(b, float64(c.bytes), seconds, copied)
					b.ReportMetric(100*float64(c.bytes)/seconds/limit, "%-of-read")
				})
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		if err := free(); err != nil {
			b.Fatal(err)
		}
	}
}

// readRate is the bytes per second that memory gives to a kernel that only reads.
func readRate(b *testing.B, d *dev) (rate float64) {
	free, err := d.Scope(func() error {
		rate, _ = d.memoryRate()
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := free(); err != nil {
		b.Fatal(err)
	}
	return rate
}
