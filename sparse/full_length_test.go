//go:build cuda || cudaemu

package sparse_test

import (
	encoding "encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// fullLength is the positions of TestSelectionAtFullLength.
const fullLength = 128 << 10

// TestSelectionAtFullLength holds what the calls that sample, hash and evict make of 131,072
// positions of Llama-3.1-8B's shape against the CPU. A sample may have a position more or less,
// where rounding decides its size, and one of the 32 queries may lie so near a plane that rounding
// decides its side.
func TestSelectionAtFullLength(t *testing.T) {
	if !*fullSize {
		t.Skip("it takes minutes in emulation: -fullsize")
	}
	cpu, gpu := newFullBed(t, "cpu"), newFullBed(t, devtest.Device)
	tenth := device.Amount{Share: .1}
	for _, heads := range []int{fullHeads, fullKVHeads} {
		for name, r := range map[string]device.Residual{
			"random":     {Pilot: tenth, Eps: 1},
			"vattention": {Pilot: device.Amount{Share: .05}, Eps: .05, Z: 1.96},
		} {
			want, got := cpu.sample(heads, r), gpu.sample(heads, r)
			for i := range want {
				if more := apartBy(want[i].index, got[i].index); more > 1 || name == "random" && more > 0 {
					t.Errorf("%s, list %d of %d: %d positions, on the CPU %d, and %d are in one of them", name, i, heads, len(got[i].index), len(want[i].index), more)
				}
			}
		}
	}
	want, got := cpu.hitters(), gpu.hitters()
	for i := range want {
		if !slices.Equal(want[i].index, got[i].index) {
			t.Errorf("heavy hitters of kv head %d: %d positions, on the CPU %d, or others", i, len(got[i].index), len(want[i].index))
		}
	}
	mass, wrong := gpu.floats(gpu.mass), 0
	for i, x := range cpu.floats(cpu.mass) {
		if y := mass[i]; !(x == y || math.Abs(float64(x-y)) <= 1e-5*max(math.Abs(float64(x)), 1e-4)) {
			if wrong++; wrong <= 3 {
				t.Errorf("accumulated attention of position %d of kv head %d: %g, on the CPU %g", i%fullLength, i/fullLength, y, x)
			}
		}
	}
	if wrong > 0 {
		t.Errorf("accumulated attention of %d positions is not that of the CPU", wrong)
	}
	gpu.hash()
	for _, x := range [][2]device.Tensor{{cpu.hashes.Codes, gpu.hashes.Codes}, {cpu.hashes.Norm, gpu.hashes.Norm}, {cpu.hashes.Center, gpu.hashes.Center}, {cpu.hashes.Done, gpu.hashes.Done}} {
		cpu.d.Write(x[0], gpu.bytes(x[1]))
	}
	want, got = cpu.collisions(), gpu.collisions()
	differ := 0
	for i := range want {
		if !slices.Equal(want[i].index, got[i].index) {
			differ++
			continue
		}
		for k, w := range want[i].weight {
			if math.Abs(float64(got[i].weight[k]/w-1)) > 1e-3 {
				t.Errorf("collisions of head %d: weight %g of position %d, on the CPU %g", i, got[i].weight[k], want[i].index[k], w)
				break
			}
		}
	}
	if differ > 1 {
		t.Errorf("collisions of %d of %d heads are other positions than on the CPU", differ, len(want))
	}
}

// apartBy is how many numbers of two ascending lists are in one of them only.
func apartBy(a, b []int32) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			a, n = a[1:], n+1
		default:
			b, n = b[1:], n+1
		}
	}
	return n + len(a) + len(b)
}

const fullHeads, fullKVHeads, fullDim = 32, 8, 128

// fullBed is a device with one layer of a sequence.
type fullBed struct {
	t       *testing.T
	d       device.Device
	q, mass device.Tensor
	kv      device.KV
	hashes  device.Hash
}

// fullList is a list of a device.
type fullList struct {
	index  []int32
	weight []float32
}

func newFullBed(t *testing.T, name string) *fullBed {
	d, err := device.Open(name, device.Config{})
	must(t, err)
	t.Cleanup(func() { d.Close() })
	const pages, planes = fullLength / device.PageLen, 1500
	b := &fullBed{t: t, d: d}
	b.q = b.normal(1, 1, fullHeads, fullDim)
	keys := b.alloc(device.F16, pages, fullKVHeads, device.PageLen, fullDim)
	b.kv = device.KV{K: keys, V: keys, Pages: b.alloc(device.I32, 1, pages), Len: b.alloc(device.I32, 1)}
	table, rng := make([]int32, pages), rand.New(rand.NewPCG(3, 4))
	for i, p := range rng.Perm(pages) {
		table[i] = int32(p)
	}
	b.write(b.kv.Pages, table...)
	const piece = 8 << 10
	for n := piece; n <= fullLength; n += piece {
		b.write(b.kv.Len, int32(n))
		k := b.normal(uint64(n), piece, fullKVHeads, fullDim)
		device.Do(d.Queue(), device.Append{KV: b.kv, K: k, V: k})
		must(t, d.Sync())
	}
	b.mass = b.alloc(device.F32, 1, fullKVHeads, fullLength)
	mass := make([]byte, 0, b.mass.Size())
	for range b.mass.Len() {
		mass = encoding.LittleEndian.AppendUint32(mass, math.Float32bits(rng.Float32()))
	}
	d.Write(b.mass, mass)
	i := func(dims ...int) device.Tensor { return b.alloc(device.I32, dims...) }
	b.hashes = device.Hash{Planes: b.normal(5, planes, fullDim), Codes: i(1, fullKVHeads*pages, 2*planes), Norm: b.alloc(device.F32, 1, fullKVHeads, fullLength),
		Center: b.alloc(device.F32, 1, fullKVHeads, fullDim), Since: i(1, 1), Done: i(1, 1), Tables: 150, MinCollisions: 2, Mean: true, Sink: 4, Recent: 64}
	b.write(b.hashes.Since, fullLength-100)
	return b
}

func (b *fullBed) alloc(dt device.DType, dims ...int) device.Tensor {
	x, err := b.d.Alloc(dt, dims...)
	must(b.t, err)
	return x
}

func (b *fullBed) write(x device.Tensor, v ...int32) {
	var raw []byte
	for _, n := range v {
		raw = encoding.LittleEndian.AppendUint32(raw, uint32(n))
	}
	b.d.Write(x, raw)
}

// normal is a tensor f32 of normal numbers.
func (b *fullBed) normal(seed uint64, dims ...int) device.Tensor {
	x, rng := b.alloc(device.F32, dims...), rand.New(rand.NewPCG(seed, 9))
	raw := make([]byte, 0, x.Size())
	for range x.Len() {
		raw = encoding.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rng.NormFloat64())))
	}
	b.d.Write(x, raw)
	return x
}

func (b *fullBed) bytes(x device.Tensor) []byte {
	raw := make([]byte, x.Size())
	must(b.t, b.d.Read(raw, x))
	return raw
}

func (b *fullBed) floats(x device.Tensor) []float32 {
	raw := b.bytes(x)
	v := make([]float32, x.Len())
	for i := range v {
		v[i] = math.Float32frombits(encoding.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

func (b *fullBed) list(heads int) device.List {
	return device.List{Index: b.alloc(device.I32, 1, heads, fullLength), Count: b.alloc(device.I32, 1, heads), Weight: b.alloc(device.F32, 1, heads, fullLength), Group: 1}
}

// lists reads a list.
func (b *fullBed) lists(l device.List) []fullList {
	all := make([]fullList, l.Count.Len())
	count, index, weight := b.bytes(l.Count), b.bytes(l.Index), b.floats(l.Weight)
	for i := range all {
		for k := range int(encoding.LittleEndian.Uint32(count[4*i:])) {
			all[i].index = append(all[i].index, int32(encoding.LittleEndian.Uint32(index[4*(i*fullLength+k):])))
		}
		all[i].weight = weight[i*fullLength:][:len(all[i].index)]
	}
	return all
}

// sample is random's and vattention's sample; before it, a fixed list of some positions.
func (b *fullBed) sample(heads int, r device.Residual) []fullList {
	l, fixed := b.list(heads), b.list(heads)
	var index []byte
	for i := range heads {
		for k := range fullLength {
			index = encoding.LittleEndian.AppendUint32(index, uint32(k*20+i))
		}
	}
	b.d.Write(fixed.Index, index)
	b.write(fixed.Count, slices.Repeat([]int32{fullLength / 20}, heads)...)
	fixed.Weight = device.Tensor{}
	plan := device.Plan{Sink: 128, Recent: 128, Selected: device.Tokens, List: fixed}
	device.Do(b.d.Queue(), device.Sample{Rule: device.ResidualSample, List: l, Q: b.q, KV: b.kv, Plan: plan, Residual: r})
	return b.lists(l)
}

// hitters evicts, and accumulates the attention on what stays.
func (b *fullBed) hitters() []fullList {
	l, tenth := b.list(fullKVHeads), device.Amount{Share: .1}
	plan := device.Plan{Recent: 1, Selected: device.Tokens}
	device.Do(b.d.Queue(), device.Select{Rule: device.HeavyHitters, List: l, Scores: b.mass, KV: b.kv, Plan: plan, K: tenth, Recent: tenth, Since: b.hashes.Since})
	plan.List = l
	plan.List.Weight = device.Tensor{}
	device.Do(b.d.Queue(), device.Summarize{Rule: device.AttentionMass, Dst: b.mass, X: b.q, KV: b.kv, Plan: plan})
	return b.lists(l)
}

// hash makes the codes of all keys but the last, and then those of the last.
func (b *fullBed) hash() {
	device.Do(b.d.Queue(), device.Summarize{Rule: device.KeyHashes, Hash: b.hashes, KV: b.kv})
	device.Do(b.d.Queue(), device.Summarize{Rule: device.KeyHashes, Hash: b.hashes, KV: b.kv})
	must(b.t, b.d.Sync())
}

func (b *fullBed) collisions() []fullList {
	l := b.list(fullHeads)
	device.Do(b.d.Queue(), device.Select{Rule: device.Collisions, List: l, Hash: b.hashes, Q: b.q, KV: b.kv, Plan: device.Plan{Sink: 4, Recent: 64, Selected: device.None}})
	return b.lists(l)
}
