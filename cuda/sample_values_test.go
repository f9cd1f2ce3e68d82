//go:build cuda || cudaemu

package cuda

import (
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// TestSampleAttendInParts: attention to values that several blocks of a head sample is attention
// to the list of them.
func TestSampleAttendInParts(t *testing.T) {
	const slots, heads, kvHeads, dim, n = 1, 4, 2, 64, 700
	d := openTest(t).(*dev)
	defer d.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	kv := filledCache(t, d, rng, n, kvHeads, dim)
	q, got, want := alloc(t, d, device.F32, slots, heads, dim), alloc(t, d, device.F32, slots, heads, dim), alloc(t, d, device.F32, slots, heads, dim)
	d.Write(q, normal(rng, q.Len()))
	l := device.List{Index: alloc(t, d, device.I32, slots, heads, n), Count: alloc(t, d, device.I32, slots, heads), Weight: alloc(t, d, device.F32, slots, heads, n)}
	for name, draws := range map[string]device.ValueDraws{
		"sys": {Samples: 600}, "strat": {Samples: 600, Sampler: device.Stratified}, "flash": {Samples: 600, Tiles: device.Equal, Tile: 64},
	} {
		for range 2 { // the counters of finished blocks are 0 again
			if !d.ops.sampleDecode(&device.Sample{Q: q, KV: kv, Draws: draws}, got) {
				t.Fatalf("%s: the kernels for one row do not take it", name)
			}
		}
		device.Do(d.ops, device.Sample{Rule: device.ValueSample, List: l, Q: q, KV: kv, Plan: device.Plan{}, Draws: draws})
		device.Do(d.ops, device.Attend{Dst: want, Q: q, KV: kv, Plan: device.Plan{Selected: device.Tokens, List: l, Mixture: true}})
		x, y := read(t, d, got), read(t, d, want)
		for i := range y {
			if diff := x[i] - y[i]; !(diff < 1e-5 && diff > -1e-5) {
				t.Fatalf("%s: number %d is %v, want %v", name, i, x[i], y[i])
			}
		}
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
}
