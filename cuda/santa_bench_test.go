//go:build cuda

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// benchCaches is the caches of several layers, n positions each, so many that what a
// step reads is not in a cache of the GPU. Their keys and values repeat.
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
			d.ops.Copy(x.Rows(some, some+more), x.Rows(0, more))
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

// BenchmarkSanta is the attention of a decode step that draws its values, and dense
// attention beside it. Bytes are those of the keys, and of a value for every draw.
func BenchmarkSanta(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, n := range []int{8192, 32768, 131072} {
		free, err := d.Scope(func() error {
			rng := rand.New(rand.NewPCG(7, 8))
			q, y := benchAlloc(b, d, device.F32, 1, benchHeads, benchDim), benchAlloc(b, d, device.F32, 1, benchHeads, benchDim)
			d.Write(q, normal(rng, benchHeads*benchDim))
			caches := benchCaches(b, d, n)
			run := func(name string, bytes int, layer func(kv device.KV)) {
				b.Run(fmt.Sprintf("%s/len=%d", name, n), func(b *testing.B) {
					seconds := measure(b, d, func() {
						for _, kv := range caches {
							layer(kv)
						}
					})
					reportRate(b, float64(bytes), seconds/float64(len(caches)), copied)
				})
			}
			keys := 2 * n * benchKVHeads * benchDim
			run("dense", 2*keys, func(kv device.KV) { d.ops.Attend(y, q, kv, device.Plan{}) })
			for _, s := range []struct {
				name string
				device.Draws
			}{
				{"prop", device.Draws{Samples: 128}},
				{"flash", device.Draws{Samples: 2048, Tiles: device.Equal}},
			} {
				most := s.Most(n)
				l := device.List{Index: benchAlloc(b, d, device.I32, 1, benchHeads, most), Count: benchAlloc(b, d, device.I32, 1, benchHeads), Weight: benchAlloc(b, d, device.F32, 1, benchHeads, most)}
				plan := device.Plan{Middle: device.Tokens, List: l, Mixture: true}
				values := 2 * benchHeads * s.Samples * benchDim
				choose := func(kv device.KV) { d.ops.SampleValues(l, q, kv, device.Plan{}, s.Draws) }
				read := func(kv device.KV) { d.ops.Attend(y, q, kv, plan) }
				run(s.name+"/choose", keys, choose)
				run(s.name+"/read", values, read)
				run(s.name+"/both", keys+values, func(kv device.KV) {
					choose(kv)
					read(kv)
				})
			}
			scores := benchAlloc(b, d, device.F32, 1, benchHeads, n)
			run("scores", keys, func(kv device.KV) { d.ops.Scores(scores, q, kv, device.Plan{}, device.Visible) })
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
