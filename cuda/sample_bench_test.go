//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// benchCaches is the KV caches of several layers, n positions each, more than the L2 cache holds.
// Their keys and values repeat.
func benchCaches(b *testing.B, d *dev, n int) []device.KV {
	layers := min(max(2, benchBytes/(4*n*benchKVHeads*benchDim)), 64)
	pages, rng := n/device.PageLen, rand.New(rand.NewPCG(5, 6))
	kv := device.KV{
		K:   benchAlloc(b, d, device.F16, layers*pages, benchKVHeads, device.PageLen, benchDim),
		V:   benchAlloc(b, d, device.F16, layers*pages, benchKVHeads, device.PageLen, benchDim),
		Len: benchAlloc(b, d, device.I32, 1),
	}
	d.Write(kv.Len, words(n))
	for _, x := range []device.Tensor{kv.K, kv.V} {
		some := 32
		d.Write(x.Rows(0, some), randomMatrix(rng, device.F16, some, benchKVHeads*device.PageLen*benchDim))
		for some < layers*pages {
			more := min(some, layers*pages-some)
			device.Do(d.ops, device.Copy{Dst: x.Rows(some, some+more), Src: x.Rows(0, more)})
			some += more
		}
	}
	all := make([]device.KV, layers)
	for l := range all {
		at := rng.Perm(pages)
		for i := range at {
			at[i] += l * pages
		}
		all[l] = kv
		all[l].Pages = benchAlloc(b, d, device.I32, 1, pages)
		d.Write(all[l].Pages, words(at...))
	}
	return all
}

// rowBed is the operands of the parts of a decode step's attention.
type rowBed struct {
	d       *dev
	n, keys int // positions; bytes of their keys
	q, y    device.Tensor
	run     func(name string, bytes int, layer func(kv device.KV))
}

func (r *rowBed) list(b *testing.B, limit int) device.List {
	return device.List{Index: benchAlloc(b, r.d, device.I32, 1, benchHeads, limit), Count: benchAlloc(b, r.d, device.I32, 1, benchHeads), Weight: benchAlloc(b, r.d, device.F32, 1, benchHeads, limit)}
}

// benchRows measures parts of a decode step behind n positions. Dense attention is the
// first of them.
func benchRows(b *testing.B, parts func(r *rowBed)) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, n := range []int{8192, 32768, 131072} {
		free, err := d.Scope(func() error {
			r := &rowBed{d: d, n: n, keys: 2 * n * benchKVHeads * benchDim}
			r.q, r.y = benchAlloc(b, d, device.F32, 1, benchHeads, benchDim), benchAlloc(b, d, device.F32, 1, benchHeads, benchDim)
			d.Write(r.q, normal(rand.New(rand.NewPCG(7, 8)), benchHeads*benchDim))
			caches := benchCaches(b, d, n)
			r.run = func(name string, bytes int, layer func(kv device.KV)) {
				b.Run(fmt.Sprintf("%s/len=%d", name, n), func(b *testing.B) {
					seconds := measure(b, d, func() {
						for _, kv := range caches {
							layer(kv)
						}
					})
					reportRate(b, float64(bytes), seconds/float64(len(caches)), copied)
				})
			}
			r.run("dense", 2*r.keys, func(kv device.KV) { device.Do(d.ops, device.Attend{Dst: r.y, Q: r.q, KV: kv, Plan: device.Plan{}}) })
			parts(r)
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

// BenchmarkSanta is the attention of a decode step with sampled values. Bytes are those of the
// keys, and of a value per sample.
func BenchmarkSanta(b *testing.B) {
	benchRows(b, func(r *rowBed) {
		for _, s := range []struct {
			name string
			device.ValueDraws
		}{
			{"prop", device.ValueDraws{Samples: 128}},
			{"flash", device.ValueDraws{Samples: 2048, Tiles: device.Equal}},
		} {
			l := r.list(b, s.MaxPositions(r.n))
			plan := device.Plan{Selected: device.Tokens, List: l, Mixture: true}
			values := 2 * benchHeads * s.Samples * benchDim
			selects := func(kv device.KV) {
				device.Do(r.d.ops, device.Sample{Rule: device.ValueSample, List: l, Q: r.q, KV: kv, Plan: device.Plan{}, Draws: s.ValueDraws})
			}
			attend := func(kv device.KV) { device.Do(r.d.ops, device.Attend{Dst: r.y, Q: r.q, KV: kv, Plan: plan}) }
			r.run(s.name+"/select", r.keys, selects)
			r.run(s.name+"/attend", values, attend)
			r.run(s.name+"/both", r.keys+values, func(kv device.KV) {
				selects(kv)
				attend(kv)
			})
			r.run(s.name+"/fused", r.keys+values, func(kv device.KV) { devtest.SampleAttend(r.d.ops, r.y, l, r.q, kv, device.Plan{}, s.ValueDraws) })
		}
	})
}

// BenchmarkRanked is the parts of selection by the scores of all keys: topk, and vattention with
// its sample. Bytes are those that selection reads.
func BenchmarkRanked(b *testing.B) {
	benchRows(b, func(r *rowBed) {
		scores := benchAlloc(b, r.d, device.F32, 1, benchHeads, r.n)
		top, list := r.list(b, r.n), r.list(b, r.n)
		plan := device.Plan{Selected: device.Tokens, Sink: 128, Recent: 128, List: device.List{Index: top.Index, Count: top.Count}}
		share := device.Amount{Share: 0.05}
		residual := device.Residual{Pilot: share, Eps: 0.05, Z: 1.96}
		r.run("scores", r.keys, func(kv device.KV) {
			device.Do(r.d.ops, device.Score{Rule: device.ExactScores, Dst: scores, Q: r.q, KV: kv, Plan: plan, Region: device.SelectedRegion})
		})
		r.run("top", 4*benchHeads*r.n, func(kv device.KV) {
			device.Do(r.d.ops, device.Select{Rule: device.TopK, List: plan.List, Scores: scores, KV: kv, K: share})
		})
		r.run("sample", 2*r.n*benchHeads*benchDim/10, func(kv device.KV) {
			device.Do(r.d.ops, device.Sample{Rule: device.ResidualSample, List: list, Q: r.q, KV: kv, Plan: plan, Residual: residual})
		})
	})
}
