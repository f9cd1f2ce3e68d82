//go:build cuda || cudaemu

package cuda

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// TestResidualParts: the kernels that divide a row among the blocks of a cluster list what the general
// one lists, which takes a list with weights, all one here, and so do those that select the best
// positions themselves. Chunks are of 1 and 4 pages.
func TestResidualParts(t *testing.T) {
	const heads, kvHeads, dim = 8, 2, 64
	d := openTest(t).(*dev)
	defer d.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{5000, 33000} {
		kv, q := filledCache(t, d, rng, n, kvHeads, dim), alloc(t, d, device.F32, 1, heads, dim)
		d.Write(q, normal(rng, q.Len()))
		for _, groups := range []int{heads, kvHeads} {
			list := func() device.List {
				return device.List{Index: alloc(t, d, device.I32, 1, groups, n), Count: alloc(t, d, device.I32, 1, groups), Weight: alloc(t, d, device.F32, 1, groups, n)}
			}
			fixed, got, want, scores := list(), list(), list(), alloc(t, d, device.F32, 1, groups, n)
			d.Write(scores, normal(rng, scores.Len()))
			top := device.Select{Rule: device.TopK, List: device.List{Index: fixed.Index, Count: fixed.Count}, Scores: scores, KV: kv, K: device.Amount{Share: .05}}
			device.Do(d.ops, top)
			d.Write(fixed.Weight, words(slices.Repeat([]int{0x3f800000}, groups*n)...))
			for name, r := range map[string]device.Residual{
				"pilot":  {Pilot: device.Amount{Share: .05}, Eps: .3, Z: 1},
				"more":   {Pilot: device.Amount{Count: 200}, Eps: .06, Z: 1},
				"all":    {Pilot: device.Amount{Count: 200}, Eps: .001, Z: 1},
				"random": {Pilot: device.Amount{Share: .1}, Eps: 1},
			} {
				call := device.Sample{Rule: device.ResidualSample, List: want, Q: q, KV: kv, Plan: device.Plan{Sink: 100, Recent: 80, Selected: device.Tokens, List: fixed}, Residual: r}
				other := call
				other.List, other.Plan.List.Weight = got, device.Tensor{}
				if d.ops.samplesParts(&call) || !d.ops.samplesParts(&other) {
					t.Fatal("the kernels of parts take a list with weights, or none without")
				}
				device.Do(d.ops, call)
				device.Do(d.ops, other)
				sameLists(t, d, name, got, want)
				clear := func(x device.Tensor) { d.Write(x, make([]byte, x.Size())) }
				clear(got.Index)
				clear(got.Count)
				if !d.ops.sampleTop(&top, &other) {
					t.Fatal("the kernels of parts do not select")
				}
				sameLists(t, d, name+" of the best", got, want)
			}
		}
	}
}

// sameLists fails unless two lists have the same positions and weights, to the bit.
func sameLists(t *testing.T, d *dev, name string, got, want device.List) {
	t.Helper()
	raw := func(x device.Tensor) []byte {
		b := make([]byte, x.Size())
		if err := d.Read(b, x); err != nil {
			t.Fatal(err)
		}
		return b
	}
	lists, n := want.Index.Dim(1), want.Index.Dim(2)
	counts := raw(want.Count)
	if other := raw(got.Count); !bytes.Equal(other, counts) {
		t.Errorf("%d positions, %d lists, %s: counts %v, want %v", n, lists, name, other, counts)
		return
	}
	for _, x := range [][2]device.Tensor{{got.Index, want.Index}, {got.Weight, want.Weight}} {
		a, b := raw(x[0]), raw(x[1])
		for i := range lists {
			from, all := 4*i*n, 4*int(binary.LittleEndian.Uint32(counts[4*i:]))
			if !bytes.Equal(a[from:from+all], b[from:from+all]) {
				t.Errorf("%d positions, list %d of %d, %s: other positions or weights", n, i, lists, name)
			}
		}
	}
}
