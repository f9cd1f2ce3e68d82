//go:build cuda && !cudaemu

package cuda

import (
	"fmt"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// BenchmarkPrefillLayer is a layer of a prompt with dense attention, part by part as
// the model calls them: the milliseconds of each between marks, over all chunks. Their order
// matters: GEMMs bring the power limit, and so the clock that attention runs at.
func BenchmarkPrefillLayer(b *testing.B) {
	d := openBench(b)
	const dim, ff = benchHeads * benchDim, 14336
	for _, s := range []struct {
		n  int
		dt device.DType
	}{{8 << 10, device.F16}, {8 << 10, device.Q4_K}, {32 << 10, device.F16}} {
		free, err := d.Scope(func() error {
			l := newLayerBed(b, d, s.n, benchChunk)
			f := func(dims ...int) device.Tensor { return filled(b, d, device.F32, dims...) }
			w := func(n, k int) device.Tensor { return filled(b, d, s.dt, n, k) }
			x, norm, gate, up := f(benchChunk, dim), f(benchChunk, dim), f(benchChunk, ff), f(benchChunk, ff)
			q, k, y := l.q.Reshape(benchChunk, dim), l.k.Reshape(benchChunk, dim/4), l.y.Reshape(benchChunk, dim)
			v := f(benchChunk, dim/4)
			wq, wk, wv, wo, wg, wu, wd := w(dim, dim), w(dim/4, dim), w(dim/4, dim), w(dim, dim), w(ff, dim), w(ff, dim), w(dim, ff)
			scale := devtest.Norm{W: f(dim), Eps: 1e-5}
			pos, rope := filled(b, d, device.I32, benchChunk), device.Rotation{Freqs: f(benchDim / 2), Scale: 1}
			parts := []struct {
				name string
				run  func()
			}{
				{"qkv", func() {
					devtest.NormProducts(d.ops, []device.Tensor{q, k, v}, x, scale, []device.Tensor{wq, wk, wv}, norm)
				}},
				{"append", func() {
					devtest.RotateAppend(d.ops, l.kv, l.q, l.k, v.Reshape(benchChunk, benchKVHeads, benchDim), pos, rope)
				}},
				{"attention", func() { device.Do(d.ops, device.Attend{Dst: l.y, Q: l.q, KV: l.kv, Plan: device.Plan{}}) }},
				{"o", func() { devtest.AddProduct(d.ops, x, y, wo, norm) }},
				{"feed-forward", func() {
					devtest.Feed(d.ops, []device.Tensor{gate, up}, x, scale, []device.Tensor{wg, wu, wd}, norm)
				}},
			}
			b.Run(fmt.Sprintf("n=%dk/%v", s.n>>10, s.dt), func(b *testing.B) {
				spent := make([]time.Duration, len(parts))
				for i := range b.N + 1 {
					marks := 0
					l.prefill(func(int) {
						device.Do(d.ops, device.Mark{I: marks})
						for p := range parts {
							parts[p].run()
							device.Do(d.ops, device.Mark{I: marks + p + 1})
						}
						marks += len(parts) + 1
					})
					if err := d.Sync(); err != nil {
						b.Fatal(err)
					}
					if i == 0 {
						continue
					}
					for m := 0; m < marks; m += len(parts) + 1 {
						for p := range parts {
							took, err := d.Between(m+p, m+p+1)
							if err != nil {
								b.Fatal(err)
							}
							spent[p] += took
						}
					}
				}
				for p := range parts {
					b.ReportMetric(spent[p].Seconds()*1e3/float64(b.N), parts[p].name+"-ms")
				}
			})
			return nil
		})
		if err == nil {
			err = free()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
