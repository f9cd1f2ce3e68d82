//go:build cuda || cudaemu

package cuda

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// reuseBed is 16 sequences of Llama-2-7B's shape, of which an eighth is read.
type reuseBed struct {
	d      *dev
	n      int
	q, y   device.Tensor
	kv     device.KV
	tables []device.Tensor // of each layer
	caches []device.SelectionCache
	scores device.Tensor
	plan   device.Plan
}

const (
	reuseSlots, reuseHeads, reuseDim = 16, 32, 128
	reuseLayers, reuseStep           = 4, 16
)

func newReuseBed(b *testing.B, d *dev, n int, share device.Amount) *reuseBed {
	rng := rand.New(rand.NewPCG(11, 12))
	pages := n / device.PageLen
	limit := share.Of(n)
	i := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.I32, dims...) }
	f := func(dims ...int) device.Tensor { return benchAlloc(b, d, device.F32, dims...) }
	r := &reuseBed{d: d, n: n, q: f(reuseSlots, reuseHeads, reuseDim), y: f(reuseSlots, reuseHeads, reuseDim), scores: f(reuseSlots, reuseHeads, n)}
	d.Write(r.q, normal(rng, r.q.Len()))
	all := reuseLayers * reuseSlots * pages
	r.kv = device.KV{K: benchAlloc(b, d, device.F16, all, reuseHeads, device.PageLen, reuseDim),
		V: benchAlloc(b, d, device.F16, all, reuseHeads, device.PageLen, reuseDim), Len: i(reuseSlots)}
	// Rows repeat after a prime number of them, so that those of a head differ.
	const some = 65521
	random := randomMatrix(rng, device.F16, some, reuseDim)
	for _, cache := range []device.Tensor{r.kv.K, r.kv.V} {
		rows := cache.Reshape(all*reuseHeads*device.PageLen, reuseDim)
		d.Write(rows.Rows(0, some), random)
		for have := some; have < rows.Dim(0); {
			more := min(have, rows.Dim(0)-have)
			device.Do(d.ops, device.Copy{Dst: rows.Rows(have, have+more), Src: rows.Rows(0, more)})
			have += more
		}
	}
	at := rng.Perm(all)
	for l := range reuseLayers {
		r.tables = append(r.tables, i(reuseSlots, pages))
		d.Write(r.tables[l], words(at[l*reuseSlots*pages:(l+1)*reuseSlots*pages]...))
		r.caches = append(r.caches, device.SelectionCache{
			Query: f(reuseSlots, reuseHeads*reuseStep, reuseDim), Entry: i(reuseSlots, reuseHeads*reuseStep, 3),
			Index: i(reuseSlots, reuseHeads*reuseStep, limit), Since: i(reuseSlots, 1), Counters: i(reuseSlots, reuseHeads, 4),
			Found: i(reuseSlots, reuseHeads), Block: reuseStep, K: share,
		})
	}
	r.plan = device.Plan{Sink: 16, Recent: 64, Selected: device.Tokens, List: device.List{
		Index: i(reuseSlots, reuseHeads, limit+2*(limit/3)+reuseStep), Count: i(reuseSlots, reuseHeads)}}
	return r
}

// at makes every sequence n long.
func (r *reuseBed) at(n int) {
	lens := make([]int, reuseSlots)
	for i := range lens {
		lens[i] = n
	}
	r.d.Write(r.kv.Len, words(lens...))
}

// queue queues a step's calls in each layer.
func (r *reuseBed) queue(selects, attend bool, minCosine float64) {
	for l, m := range r.caches {
		kv := r.kv
		kv.Pages, m.MinCosine = r.tables[l], minCosine
		neighbors := device.Neighbors{Best: device.Amount{Share: 1.0 / 3}, Each: 1, KeepSlid: true}
		if selects && attend {
			devtest.ReuseAttend(r.d.ops, r.y, device.ReuseSelection{List: r.plan.List, Cache: m, Scores: r.scores, Compared: r.q, Q: r.q, KV: kv, Plan: r.plan, Neighbors: neighbors})
			continue
		}
		if selects {
			device.Do(r.d.ops, device.ReuseSelection{List: r.plan.List, Cache: m, Scores: r.scores, Compared: r.q, Q: r.q, KV: kv, Plan: r.plan, Neighbors: neighbors})
		}
		if attend {
			device.Do(r.d.ops, device.Attend{Dst: r.y, Q: r.q, KV: kv, Plan: r.plan})
		}
	}
}

// BenchmarkReuse is attention of a decode step whose heads select an eighth of the past, or reuse
// the selection of the first position of their block; or so much less that they read an eighth
// in all when they reuse.
func BenchmarkReuse(b *testing.B) {
	d := openBench(b)
	copied := copyRate(b, d)
	for _, at := range []struct {
		n     int
		share device.Amount
	}{{2048, device.Amount{Share: 0.125}}, {4096, device.Amount{Share: 0.125}}, {2048, device.Amount{Count: 107}}, {4096, device.Amount{Count: 269}}} {
		n := at.n
		free, err := d.Scope(func() error {
			r := newReuseBed(b, d, n, at.share)
			row := 2 * reuseSlots * reuseHeads * reuseDim // bytes of a position's keys
			report := func(name string, bytes int, step func()) {
				b.Run(fmt.Sprintf("%s/len=%d/k=%d", name, n, at.share.Of(n)), func(b *testing.B) {
					reportRate(b, float64(bytes), measure(b, d, step)/reuseLayers, copied)
				})
			}
			r.at(n)
			report("dense", 2*n*row, func() {
				for l := range reuseLayers {
					kv := r.kv
					kv.Pages = r.tables[l]
					device.Do(d.ops, device.Attend{Dst: r.y, Q: r.q, KV: kv, Plan: device.Plan{}})
				}
			})
			for _, way := range []struct {
				name      string
				minCosine float64
				bytes     int
			}{{"miss", 2, n * row}, {"hit", -1, 0}} {
				r.at(n - reuseStep + 1)
				r.queue(true, false, way.minCosine)
				r.at(n)
				r.queue(true, false, way.minCosine)
				counts := make([]byte, r.plan.List.Count.Size())
				if err := d.Read(counts, r.plan.List.Count); err != nil {
					return err
				}
				reads := 2 * (r.plan.Sink + r.plan.Recent) * row
				for i := 0; i < len(counts); i += 4 {
					reads += 2 * 2 * reuseDim * (int(counts[i]) | int(counts[i+1])<<8)
				}
				report(way.name+"/select", way.bytes, func() { r.queue(true, false, way.minCosine) })
				report(way.name+"/attend", reads, func() { r.queue(false, true, way.minCosine) })
				report(way.name+"/both", way.bytes+reads, func() { r.queue(true, true, way.minCosine) })
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
