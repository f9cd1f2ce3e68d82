//go:build cudaemu

package cuda

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// TestClustersSelectTheSame: what a kernel samples, lists or adds up depends neither on how many
// thread blocks share a list nor on whether their bitmaps fit in shared memory, to the bit. So a
// sequence reads the same alone and in a batch.
func TestClustersSelectTheSame(t *testing.T) {
	hopper := Card{Major: 9, Shared: 227 << 10, Multiprocessors: 132, Memory: 1 << 30}
	lone, small := hopper, hopper
	lone.Multiprocessors = 1
	small.Shared = residualBatch + 3<<10 // no room for the bitmaps of residual_sample
	want := clusteredSelection(t, lone)
	for name, card := range map[string]Card{"clusters": hopper, "little shared memory": small} {
		for call, got := range clusteredSelection(t, card) {
			if !bytes.Equal(got, want[call]) {
				t.Errorf("%s: results with %s differ from those of a thread block for each list", call, name)
			}
		}
	}
}

// clusteredSelection is the results of calls whose kernels work in clusters, on a GPU.
func clusteredSelection(t *testing.T, card Card) map[string][]byte {
	t.Helper()
	d := openCard(t, card)
	b := &attentionBed{t, d, rand.New(rand.NewPCG(5, 6))}
	const heads, kvHeads, dim, n = 4, 2, 64, 4200
	kv, one, o, all := filledCache(t, d, b.rng, n, kvHeads, dim), b.f(1, heads, dim), d.ops, map[string][]byte{}
	keep := func(name string, results ...device.Tensor) {
		for _, x := range results {
			raw := make([]byte, x.Size())
			if err := d.Read(raw, x); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[name] = append(all[name], raw...)
		}
	}
	plan := device.Plan{Selected: device.None, Sink: 3, Recent: 9}
	weighted := plan
	for _, c := range []struct {
		name string
		device.Residual
	}{
		{"random", device.Residual{Pilot: device.Amount{Share: .1}, Eps: 1}},
		{"sample", device.Residual{Pilot: device.Amount{Share: .05}, Eps: .05, Z: 1}},
		{"sample for the output", device.Residual{Pilot: device.Amount{Share: .05}, Eps: .3, Z: 1, Values: true}},
		{"fresh sample with replacement", device.Residual{Pilot: device.Amount{Count: 100}, Eps: .05, Z: 1, Fresh: true, Replace: true, Listed: true}},
		{"all", device.Residual{Pilot: device.Amount{Count: 9}, Z: 1}},
	} {
		for _, groups := range []int{heads, kvHeads} {
			l := b.list(1, groups, n)
			device.Do(o, device.Sample{Rule: device.ResidualSample, List: l, Q: one, KV: kv, Plan: weighted, Residual: c.Residual})
			keep(c.name, l.Index, l.Count, l.Weight)
			if c.name == "random" && groups == kvHeads {
				weighted.Selected, weighted.List = device.Tokens, l // what the others find selected
			}
		}
	}

	sum, since, stay := b.f(1, kvHeads, n), b.i(1, 1), b.list(1, kvHeads, n)
	device.Do(o, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: b.f(20, heads, dim), KV: kv, Plan: device.Plan{}})
	device.Do(o, device.Select{Rule: device.HeavyHitters, List: stay, Scores: sum, KV: kv, Plan: plan, K: device.Amount{Count: 300}, Recent: device.Amount{Count: 80}, Since: since})
	device.Do(o, device.Select{Rule: device.HeavyHitters, List: stay, Scores: sum, KV: kv, Plan: plan, K: device.Amount{Count: 299}, Recent: device.Amount{Count: 80}, Since: since})
	keep("heavy hitters", sum, stay.Index, stay.Count)

	for _, groups := range []int{heads, kvHeads} {
		m := device.SelectionCache{Query: b.f(1, heads*8, dim), Entry: b.i(1, groups*8, 3), Index: b.i(1, groups*8, n/10), Since: b.i(1, 1),
			Found: b.i(1, groups), Counters: b.i(1, groups, 4), Block: 8, MinCosine: .9, K: device.Amount{Share: .1}}
		call := device.ReuseSelection{List: b.list(1, groups, n), Cache: m, Scores: b.f(1, heads, n), Compared: one, Q: one, KV: kv, Plan: plan,
			Neighbors: device.Neighbors{Best: device.Amount{Share: 1. / 3}, Each: 1, KeepSlid: true}}
		call.List.Weight = device.Tensor{}
		for _, length := range []uint32{n - 1, n} { // selected, then reused
			d.Write(kv.Len, binary.LittleEndian.AppendUint32(nil, length))
			device.Do(o, call)
			keep("selection cache", call.List.Index, call.List.Count, m.Found, m.Entry, m.Index)
		}
	}

	pages := kv.K.Dim(0)
	for _, bits := range []int{3, 2} { // codes go through a pipeline where a table has an even number of bits
		h := device.Hash{Planes: b.f(24*bits, dim), Codes: b.i(1, kvHeads*pages, 48*bits), Norm: b.f(1, kvHeads, n), Center: b.f(1, kvHeads, dim),
			Since: b.i(1, 1), Done: b.i(1, 1), Tables: 24, MinCollisions: 2, Mean: true, Sink: 3, Recent: 9}
		d.Write(h.Since, binary.LittleEndian.AppendUint32(nil, n-1))
		met := b.list(1, heads, n)
		device.Do(o, device.Summarize{Rule: device.KeyHashes, Hash: h, KV: kv})
		device.Do(o, device.Select{Rule: device.Collisions, List: met, Hash: h, Q: one, KV: kv, Plan: plan})
		keep("collisions", met.Index, met.Count, met.Weight)
	}
	return all
}
