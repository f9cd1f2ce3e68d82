//go:build cuda || cudaemu

package cuda

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// flashBound is the error of attention with f16 operands, relative to the size of its results:
// queries, softmax weights and values have 11 bits.
const flashBound = 4e-3

// flashPlans are the plans that kernels are compared with, of n positions.
func flashPlans(t *testing.T, d *dev, rng *rand.Rand, n, heads int) map[string]device.Plan {
	list := func(limit, heads, group int, weights bool) device.List {
		groups := n/group + 2
		l := device.List{Index: alloc(t, d, device.I32, groups, heads, limit), Count: alloc(t, d, device.I32, groups, heads), Weight: alloc(t, d, device.F32, groups, heads, limit), Group: group}
		var index, count, weight []byte
		for range groups * heads {
			m := 0
			for i := range limit {
				if rng.IntN(3) == 0 {
					index = binary.LittleEndian.AppendUint32(index, uint32(i))
					weight = binary.LittleEndian.AppendUint32(weight, math.Float32bits(0.5+rng.Float32()))
					m++
				}
			}
			for i := m; i < limit; i++ {
				index, weight = binary.LittleEndian.AppendUint32(index, 0), binary.LittleEndian.AppendUint32(weight, 0)
			}
			count = binary.LittleEndian.AppendUint32(count, uint32(m))
		}
		d.Write(l.Index, index)
		d.Write(l.Count, count)
		d.Write(l.Weight, weight)
		if !weights {
			l.Weight = device.Tensor{}
		}
		return l
	}
	return map[string]device.Plan{
		"dense":   {},
		"window":  {Span: device.Span{Back: 100}},
		"drop":    {Span: device.Span{Drop: 0.4, Sink: 5, Recent: 20}},
		"stream":  {Selected: device.None, Sink: 4, Recent: 90},
		"align":   {Selected: device.None, Sink: 64, Recent: 64, Align: 64},
		"blocks":  {Selected: device.Blocks, Sink: 4, Recent: 20, List: list(n/64, heads, 64, true)},
		"shared":  {Selected: device.Blocks, Sink: 64, Recent: 20, List: list(n/64, 1, 64, false)},
		"tokens":  {Selected: device.Tokens, Sink: 4, Recent: 20, List: list(n-64, heads, 128, true)},
		"anchor":  {Selected: device.Tokens, Sink: 32, Recent: 20, Align: 128, List: list(n-64, heads, 128, false)},
		"single":  {Selected: device.Tokens, Sink: 4, Recent: 20, List: list(n-64, heads, 64, false)},
		"narrow":  {Selected: device.Tokens, Sink: 4, Recent: 20, Span: device.Span{Back: 150}, List: list(n-64, 1, 64, false)},
		"nothing": {Selected: device.None},
	}
}

// TestFlash compares FlashAttention with the kernel for any plan: two heads of a kv head per
// block, two tiles of rows, and one.
func TestFlash(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for _, s := range [][4]int{{256, 64, 256, 2}, {300, 64, 333, 1}, {257, 128, 390, 2}} {
		rows, dim, n, ratio := s[0], s[1], s[2], s[3]
		const heads = 2
		rng := rand.New(rand.NewPCG(5, 6))
		q := alloc(t, d, device.F32, rows, heads, dim)
		d.Write(q, normal(rng, rows*heads*dim))
		kv := filledCache(t, d, rng, n, heads/ratio, dim)
		for name, p := range flashPlans(t, d, rng, n, heads) {
			want := alloc(t, d, device.F32, rows, heads, dim)
			c := device.Attend{Dst: want, Q: q, KV: kv, Plan: p}
			if !suitsFlash(&c) {
				t.Fatalf("plan %s does not suit the kernels", name)
			}
			d.ops.attend(&c)
			for kind, flash := range map[string]func(*device.Attend){"mma": d.ops.flashMMA, "wgmma": d.ops.flashWGMMA} {
				if kind == "wgmma" && !d.drv.hasWGMMA() {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/rows=%d/dim=%d/len=%d", name, kind, rows, dim, n), func(t *testing.T) {
					got := alloc(t, d, device.F32, rows, heads, dim)
					flash(&device.Attend{Dst: got, Q: q, KV: kv, Plan: p})
					compare(t, read(t, d, got), read(t, d, want), flashBound)
				})
			}
		}
	}
}

// TestDecodeEach compares decode_each, for position lists of heads without GQA, with the kernel
// for any plan.
func TestDecodeEach(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for _, s := range [][2]int{{64, 333}, {128, 333}, {128, 1500}, {64, 6700}} { // the last are looked up in two parts
		dim, n := s[0], s[1]
		const heads = 3
		rng := rand.New(rand.NewPCG(5, 7))
		q := alloc(t, d, device.F32, 1, heads, dim)
		d.Write(q, normal(rng, heads*dim))
		kv := filledCache(t, d, rng, n, heads, dim)
		plans := flashPlans(t, d, rng, n, heads)
		mixture := plans["tokens"]
		mixture.Mixture = true
		plans["mixture"] = mixture
		for name, p := range plans {
			if p.Selected != device.Tokens {
				continue
			}
			t.Run(fmt.Sprintf("%s/dim=%d/len=%d", name, dim, n), func(t *testing.T) {
				want, got := alloc(t, d, device.F32, 1, heads, dim), alloc(t, d, device.F32, 1, heads, dim)
				d.ops.attend(&device.Attend{Dst: want, Q: q, KV: kv, Plan: p})
				d.ops.decodeEach(&device.Attend{Dst: got, Q: q, KV: kv, Plan: p})
				compare(t, read(t, d, got), read(t, d, want), 1e-5)
			})
		}
	}
}

// TestDecodeWhole: where heads without GQA fill the GPU, lists that leave nothing out have the
// bits of dense attention, and the others do not.
func TestDecodeWhole(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	const n, dim = 200, 64
	heads := 2 * d.drv.multiprocessors()
	rng := rand.New(rand.NewPCG(5, 8))
	q := alloc(t, d, device.F32, 1, heads, dim)
	d.Write(q, normal(rng, heads*dim))
	kv := filledCache(t, d, rng, n, heads, dim)
	l := device.List{Index: alloc(t, d, device.I32, 1, heads, n), Count: alloc(t, d, device.I32, 1, heads)}
	var index, counts []int
	for h := range heads {
		for i := range n {
			index = append(index, i)
		}
		counts = append(counts, n-20-h%2) // every other head misses one
	}
	d.Write(l.Index, words(index...))
	d.Write(l.Count, words(counts...))
	want, got := alloc(t, d, device.F32, 1, heads, dim), alloc(t, d, device.F32, 1, heads, dim)
	device.Do(d.ops, device.Attend{Dst: want, Q: q, KV: kv, Plan: device.Plan{}})
	device.Do(d.ops, device.Attend{Dst: got, Q: q, KV: kv, Plan: device.Plan{Selected: device.Tokens, Recent: 20, List: l}})
	x, y := read(t, d, got), read(t, d, want)
	for h := range heads {
		if same := slices.Equal(x[h*dim:(h+1)*dim], y[h*dim:(h+1)*dim]); same != (h%2 == 0) {
			t.Errorf("head %d has the bits of dense attention: %v", h, same)
		}
	}
}

// TestDecodeClusters compares split-K that is merged in distributed shared memory with the kernel
// for any plan.
func TestDecodeClusters(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	for _, s := range [][4]int{{64, 333, 2, 1}, {64, 400, 7, 1}, {128, 40, 4, 2}, {128, 1000, 8, 1}} {
		dim, n, heads, kvHeads := s[0], s[1], s[2], s[3]
		rng := rand.New(rand.NewPCG(5, 10))
		q := alloc(t, d, device.F32, 1, heads, dim)
		d.Write(q, normal(rng, heads*dim))
		kv := filledCache(t, d, rng, n, kvHeads, dim)
		kv.Short = true
		for name, p := range flashPlans(t, d, rng, max(n, 70), heads) {
			t.Run(fmt.Sprintf("%s/dim=%d/len=%d", name, dim, n), func(t *testing.T) {
				want, got := alloc(t, d, device.F32, 1, heads, dim), alloc(t, d, device.F32, 1, heads, dim)
				d.ops.attend(&device.Attend{Dst: want, Q: q, KV: kv, Plan: p})
				if !d.ops.decode(&device.Attend{Dst: got, Q: q, KV: kv, Plan: p}) {
					t.Fatal("this does not suit the kernel")
				}
				compare(t, read(t, d, got), read(t, d, want), 1e-5)
			})
		}
	}
}

// TestDecodePDL runs steps whose newest position is appended by the product launched in front of
// attention, which reads the earlier ones before pdl_wait. Unwritten positions are NaN.
func TestDecodePDL(t *testing.T) {
	d := openTest(t).(*dev)
	defer d.Close()
	const n, heads, kvHeads, dim, steps = 258, 4, 2, 128, 20
	k := 16384
	if emulated {
		k = 256
	}
	rng := rand.New(rand.NewPCG(5, 9))
	f := func(dims ...int) device.Tensor {
		x := alloc(t, d, device.F32, dims...)
		d.Write(x, normal(rng, x.Len()))
		return x
	}
	matrix := func(rows int) device.Tensor {
		w := alloc(t, d, device.F16, rows, k)
		d.Write(w, randomMatrix(rng, device.F16, rows, k))
		w.Memory().(*memory).constant = true
		return w
	}
	w := []device.Tensor{matrix(heads * dim), matrix(kvHeads * dim), matrix(kvHeads * dim)}
	made := []device.Tensor{f(1, heads*dim), f(1, kvHeads*dim), f(1, kvHeads*dim)}
	x, norm, pos, freqs := f(1, k), f(k), alloc(t, d, device.I32, 1), f(dim/2)
	q, got, want := made[0].Reshape(1, heads, dim), f(1, heads, dim), f(1, heads, dim)
	kv := filledCache(t, d, rng, n, kvHeads, dim)
	kv.Short = true
	scores, later := f(1, heads, kv.Pages.Dim(1)*device.PageLen), f(1, heads, kv.Pages.Dim(1)*device.PageLen)
	for name, c := range map[string]struct {
		next      func() bool // launched right behind the product
		after     func()
		got, want device.Tensor // of every head
		all       bool          // compare all elements of a head, not only those of positions
	}{
		"attention": {
			func() bool { return d.ops.decode(&device.Attend{Dst: got, Q: q, KV: kv}) },
			func() { d.ops.attend(&device.Attend{Dst: want, Q: q, KV: kv}) }, got, want, true,
		},
		"scores": {
			func() bool {
				return d.ops.scoreDecode(&device.Score{Rule: device.ExactScores, Dst: scores, Q: q, KV: kv, Region: device.Visible})
			},
			func() {
				device.Do(d.ops, device.Score{Rule: device.ExactScores, Dst: later, Q: q, KV: kv, Plan: device.Plan{}, Region: device.Visible})
			}, scores, later, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := d.Capture(func(device.Queue) {
				d.ops.matched.q = &device.Rope{Pos: pos, Rotation: device.Rotation{Freqs: freqs, Scale: 1, Interleaved: true}}
				d.ops.matched.stored = &device.Append{KV: kv}
				if !d.ops.skinny(made, x, fusedNorm{W: norm, Eps: float32(k)}, w, epilogueQKV) || !c.next() {
					t.Error("a step does not suit the kernels for it")
				}
				c.after()
			})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			for i := range steps {
				at := n + i
				d.Write(x, normal(rng, k))
				d.Write(pos, words(at))
				d.Write(kv.Len, words(at+1))
				g.Launch()
				a, b := read(t, d, c.got), read(t, d, c.want)
				width := len(a) / heads
				for h := range heads {
					valid := width
					if !c.all {
						valid = at + 1
					}
					compare(t, a[h*width:][:valid], b[h*width:][:valid], 1e-5)
				}
			}
		})
	}
}

// filledCache is a cache of one slot with n positions in shuffled pages; beyond them it is NaN.
func filledCache(t *testing.T, d *dev, rng *rand.Rand, n, heads, dim int) device.KV {
	t.Helper()
	pages := (n + device.PageLen - 1) / device.PageLen
	kv := device.KV{
		K: alloc(t, d, device.F16, pages, heads, device.PageLen, dim), V: alloc(t, d, device.F16, pages, heads, device.PageLen, dim),
		Pages: alloc(t, d, device.I32, 1, pages), Len: alloc(t, d, device.I32, 1),
	}
	var table, nan []byte
	for _, p := range rng.Perm(pages) {
		table = binary.LittleEndian.AppendUint32(table, uint32(p))
	}
	for range kv.K.Len() {
		nan = binary.LittleEndian.AppendUint16(nan, 0x7e00)
	}
	d.Write(kv.Pages, table)
	d.Write(kv.Len, binary.LittleEndian.AppendUint32(nil, uint32(n)))
	d.Write(kv.K, nan)
	d.Write(kv.V, nan)
	k, v := alloc(t, d, device.F32, n, heads, dim), alloc(t, d, device.F32, n, heads, dim)
	d.Write(k, normal(rng, n*heads*dim))
	d.Write(v, normal(rng, n*heads*dim))
	device.Do(d.ops, device.Append{KV: kv, K: k, V: v})
	return kv
}

// compare fails unless a is b within bound of b's size, the root of its mean square.
func compare(t *testing.T, a, b []float32, bound float64) {
	t.Helper()
	var size float64
	for _, v := range b {
		size += float64(v) * float64(v)
	}
	size = math.Sqrt(size / float64(len(b)))
	for i := range a {
		if diff := math.Abs(float64(a[i]) - float64(b[i])); !(diff <= bound*size) {
			t.Fatalf("element %d is %v, want %v: error %.2g of %.3g", i, a[i], b[i], diff/size, size)
		}
	}
}
