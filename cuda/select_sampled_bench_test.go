//go:build cuda && !cudaemu

package cuda

import (
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
)

// BenchmarkSelectSampled is what samples, hashes or evicts in a layer of a decode step of an 8B
// model, alone: the residual of vattention and of random, the index and the collisions of magicpig,
// the eviction and the scores of h2o. Bytes are those of the keys that each call reads at least.
func BenchmarkSelectSampled(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, n := range []int{32 << 10, 128 << 10} {
		for _, lists := range []int{selectKVHeads, selectHeads} {
			free, err := d.Scope(func() error {
				s := newSampledBed(b, d, lists, n)
				for _, c := range s.calls() {
					if c.lists != 0 && c.lists != lists {
						continue
					}
					c.call()
					b.Run(fmt.Sprintf("%s/lists=%d/len=%d", c.name, lists, n), func(b *testing.B) {
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
}

// sampledBed is a layer of a sequence with what these calls read and write.
type sampledBed struct {
	*selectBed
	d         *dev
	top, list device.List
	hash      device.Hash
	mass      device.Tensor
	since     device.Tensor
}

// sampledCall is a call to measure; lists: the lists that it is made for, 0 for any.
type sampledCall struct {
	name         string
	lists, bytes int
	call         func()
}

const lshTables, lshBits = 150, 10

func newSampledBed(b *testing.B, d *dev, lists, n int) *sampledBed {
	s := &sampledBed{selectBed: newSelectBed(b, d, 1, lists, n), d: d}
	i := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.I32, dims...) }
	f := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.F32, dims...) }
	list := func(heads int) device.List { return device.List{Index: i(1, heads, n), Count: i(1, heads)} }
	s.top, s.list = list(lists), list(lists)
	s.list.Weight = f(1, lists, n)
	device.Do(d.ops, device.Select{Rule: device.TopK, List: s.top, Scores: s.scores, KV: s.kv, K: device.Amount{Share: 0.05}})
	s.since = i(1, 1)
	d.Write(s.since, words(n-100))
	if lists == selectHeads {
		planes := lshTables * lshBits
		s.hash = device.Hash{Planes: filled(b, d, device.F32, planes, selectDim), Codes: i(1, selectKVHeads*n/device.PageLen, 2*planes),
			Norm: f(1, selectKVHeads, n), Center: f(1, selectKVHeads, selectDim), Since: s.since, Done: i(1, 1),
			Tables: lshTables, MinCollisions: 2, Mean: true, Sink: 4, Recent: 64}
	} else {
		s.mass = filled(b, d, device.F32, 1, selectKVHeads, n)
	}
	return s
}

func (s *sampledBed) calls() []sampledCall {
	d, tenth, key := s.d, device.Amount{Share: 0.1}, 2*selectDim
	none := device.Plan{Sink: 128, Recent: 128, Selected: device.None}
	topped, kept := none, device.Plan{Recent: 1, Selected: device.Tokens, List: device.List{Index: s.list.Index, Count: s.list.Count}}
	topped.Selected, topped.List = device.Tokens, s.top
	residual := func(plan device.Plan, r device.Residual) func() {
		return func() {
			device.Do(d.ops, device.Sample{Rule: device.ResidualSample, List: s.list, Q: s.q, KV: s.kv, Plan: plan, Residual: r})
		}
	}
	hitters := device.Plan{Recent: 1, Selected: device.Tokens}
	return []sampledCall{
		{"residual", 0, s.lists * s.n * key / 10, residual(topped, device.Residual{Pilot: device.Amount{Share: 0.05}, Eps: 0.05, Z: 1.96})},
		{"random", 0, 8 * s.lists * s.n / 10, residual(none, device.Residual{Pilot: tenth, Eps: 1})},
		{"key-hashes", selectHeads, selectKVHeads * key, func() { device.Do(d.ops, device.Summarize{Rule: device.KeyHashes, Hash: s.hash, KV: s.kv}) }},
		{"collisions", selectHeads, selectKVHeads * s.n * lshTables * lshBits / 8, func() {
			device.Do(d.ops, device.Select{Rule: device.Collisions, List: s.list, Hash: s.hash, Q: s.q, KV: s.kv, Plan: device.Plan{Sink: 4, Recent: 64, Selected: device.None}})
		}},
		{"evict", selectKVHeads, 4 * selectKVHeads * s.n, func() {
			device.Do(d.ops, device.Select{Rule: device.HeavyHitters, List: kept.List, Scores: s.mass, KV: s.kv, Plan: hitters, K: tenth, Recent: tenth, Since: s.since})
		}},
		{"mass", selectKVHeads, selectKVHeads * s.n / 5 * key, func() {
			device.Do(d.ops, device.Summarize{Rule: device.AttentionMass, Dst: s.mass, X: s.q, KV: s.kv, Plan: kept})
		}},
	}
}
