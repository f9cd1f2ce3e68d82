//go:build cuda && !cudaemu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// BenchmarkHeavyHitters is a layer of a decode step of h2o for an 8B model, beside dense attention:
// the eviction, the masses, the attention to what stays, the last two in one call of the keys, and
// all of them. Layers differ, so that L2 holds nothing of the next one.
func BenchmarkHeavyHitters(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, n := range []int{32 << 10, 128 << 10} {
		free, err := d.Scope(func() error {
			s := newHittersBed(b, d, n)
			for _, share := range []float64{0.1, 0.05} { // the second evicts more
				s.share = device.Amount{Share: share}
				s.each(s.evict)()
				for _, c := range s.calls() {
					b.Run(fmt.Sprintf("%s/hh=%v/len=%d", c.name, share, n), func(b *testing.B) {
						reportRate(b, float64(c.bytes), measure(b, d, c.call)/hittersLayers, copied)
					})
				}
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

const hittersLayers = 4

// hittersBed is layers of a sequence that h2o decodes.
type hittersBed struct {
	d      *dev
	n      int
	share  device.Amount // heavy hitters and newest positions that stay
	since  device.Tensor
	q, dst device.Tensor
	kv     [hittersLayers]device.KV
	mass   [hittersLayers]device.Tensor
	list   [hittersLayers]device.List
}

func newHittersBed(b *testing.B, d *dev, n int) *hittersBed {
	pages := n / device.PageLen
	s := &hittersBed{d: d, n: n, since: benchAlloc(b, d, device.I32, 1, 1),
		q: filled(b, d, device.F32, 1, selectHeads, selectDim), dst: benchAlloc(b, d, device.F32, 1, selectHeads, selectDim)}
	d.Write(s.since, words(n-100))
	rng, mass := rand.New(rand.NewPCG(7, 8)), []byte{}
	for range selectKVHeads * n {
		mass = binary.LittleEndian.AppendUint32(mass, math.Float32bits(rng.Float32()))
	}
	kv := device.KV{Pages: benchAlloc(b, d, device.I32, 1, pages), Len: benchAlloc(b, d, device.I32, 1)}
	table := make([]int, pages)
	for i := range table {
		table[i] = (i*97 + 31) % pages
	}
	d.Write(kv.Pages, words(table...))
	d.Write(kv.Len, words(n))
	for l := range s.kv {
		s.kv[l] = kv
		s.kv[l].K, s.kv[l].V = filled(b, d, device.F16, pages, selectKVHeads, device.PageLen, selectDim), filled(b, d, device.F16, pages, selectKVHeads, device.PageLen, selectDim)
		s.mass[l] = benchAlloc(b, d, device.F32, 1, selectKVHeads, n)
		d.Write(s.mass[l], mass)
		s.list[l] = device.List{Index: benchAlloc(b, d, device.I32, 1, selectKVHeads, n), Count: benchAlloc(b, d, device.I32, 1, selectKVHeads)}
	}
	return s
}

// each calls something for every layer.
func (s *hittersBed) each(call func(l int)) func() {
	return func() {
		for l := range hittersLayers {
			call(l)
		}
	}
}

func (s *hittersBed) plan(l int) device.Plan {
	return device.Plan{Recent: 1, Selected: device.Tokens, List: s.list[l]}
}

func (s *hittersBed) evict(l int) {
	device.Do(s.d.ops, device.Select{Rule: device.HeavyHitters, List: s.list[l], Scores: s.mass[l], KV: s.kv[l], Plan: device.Plan{Recent: 1, Selected: device.Tokens},
		K: s.share, Recent: s.share, Since: s.since})
}

func (s *hittersBed) sum(l int) {
	device.Do(s.d.ops, device.Summarize{Rule: device.AttentionMass, Dst: s.mass[l], X: s.q, KV: s.kv[l], Plan: s.plan(l)})
}

func (s *hittersBed) attend(l int, plan device.Plan) {
	device.Do(s.d.ops, device.Attend{Dst: s.dst, Q: s.q, KV: s.kv[l], Plan: plan})
}

func (s *hittersBed) calls() []selectCall {
	keys := int(2*s.share.Share*float64(s.n)) * selectKVHeads * 2 * selectDim
	return []selectCall{
		{"evict", 4 * selectKVHeads * s.n, s.each(s.evict)},
		{"mass", keys, s.each(func(l int) { s.sum(l); s.d.ops.Flush() })},
		{"attend", 2 * keys, s.each(func(l int) { s.attend(l, s.plan(l)) })},
		{"mass and attend", 2 * keys, s.each(func(l int) { s.sum(l); s.attend(l, s.plan(l)) })},
		{"h2o", 2*keys + 4*selectKVHeads*s.n, s.each(func(l int) { s.evict(l); s.sum(l); s.attend(l, s.plan(l)) })},
		{"dense", 2 * selectKVHeads * s.n * 2 * selectDim, s.each(func(l int) { s.attend(l, device.Plan{}) })},
	}
}
