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
	parts, bounds   device.Tensor // scores of sub-pages, and bounds
	kv              device.KV
	list            device.List
}

const (
	selectHeads, selectKVHeads, selectDim = 32, 8, 128
	selectSubPages                        = 4 // of a page
)

func newSelectBed(b *testing.B, d *dev, slots, lists, n int) *selectBed {
	pages := n / device.PageLen
	s := &selectBed{slots: slots, lists: lists, n: n}
	s.q = filled(b, d, device.F32, slots, selectHeads, selectDim)
	s.scores = filled(b, d, device.F32, slots, lists, n)
	s.parts = filled(b, d, device.F32, slots, lists, pages*selectSubPages)
	s.bounds = filled(b, d, device.F16, pages, selectKVHeads, selectSubPages, 2*selectDim)
	k := filled(b, d, device.F16, pages, selectKVHeads, device.PageLen, selectDim)
	s.kv = device.KV{K: k, V: k, Pages: benchAlloc(b, d, device.I32, slots, pages), Len: benchAlloc(b, d, device.I32, slots)}
	table, lens := make([]int, slots*pages), make([]int, slots)
	for i := range table {
		table[i] = (i*97 + 31) % pages
	}
	for i := range lens {
		lens[i] = n
	}
	d.Write(s.kv.Pages, words(table...))
	d.Write(s.kv.Len, words(lens...))
	s.list = device.List{Index: benchAlloc(b, d, device.I32, slots, lists, n), Count: benchAlloc(b, d, device.I32, slots, lists)}
	return s
}

// BenchmarkSelect is the kernels that select in a layer of a decode step, alone: microseconds, and
// the rate at which they read their scores, or keys. Batches share the keys of one sequence.
func BenchmarkSelect(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, at := range []struct{ slots, lists, n int }{
		{1, selectKVHeads, 32 << 10}, {1, selectKVHeads, 128 << 10}, {1, selectHeads, 32 << 10}, {1, selectHeads, 128 << 10},
		{16, selectKVHeads, 128 << 10}, {16, selectHeads, 32 << 10},
	} {
		free, err := d.Scope(func() error {
			s := newSelectBed(b, d, at.slots, at.lists, at.n)
			tenth := device.Amount{Share: 0.1}
			scores := s.scores.Size()
			for _, c := range []struct {
				name  string
				bytes int
				call  func()
			}{
				{"top-k", scores, func() {
					device.Do(d.ops, device.Select{Rule: device.TopK, List: s.list, Scores: s.scores, KV: s.kv, K: tenth})
				}},
				{"top-p=0.9", scores, func() {
					device.Do(d.ops, device.Select{Rule: device.TopP, List: s.list, Scores: s.scores, KV: s.kv, Mass: 0.9})
				}},
				{"top-parts", s.parts.Size(), func() {
					device.Do(d.ops, device.Select{Rule: device.TopParts, List: s.list, Scores: s.parts, KV: s.kv, K: tenth, PerPage: selectSubPages})
				}},
				{"bounds", at.slots * s.bounds.Size(), func() {
					device.Do(d.ops, device.Score{Rule: device.BoundScores, Dst: s.parts, Q: s.q, Keys: s.bounds, KV: s.kv})
				}},
				{"exact", at.slots * s.kv.K.Size(), func() { device.Do(d.ops, device.Score{Rule: device.ExactScores, Dst: s.scores, Q: s.q, KV: s.kv}) }},
			} {
				if c.name == "exact" && at.lists != selectHeads {
					continue
				}
				b.Run(fmt.Sprintf("%s/slots=%d/lists=%d/len=%d", c.name, at.slots, at.lists, at.n), func(b *testing.B) {
					const times = 20
					reportRate(b, float64(c.bytes), measure(b, d, func() {
						for range times {
							c.call()
						}
					})/times, copied)
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
