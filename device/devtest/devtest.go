package devtest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
)

// Run tests a backend. open is called once for each group of cases; the suite closes what it
// opens.
//
// The last subtest, "complete", enumerates the calls and rules of package device and demands a
// case for each, and for those that take heads a case at every shape of heads.
func Run(t *testing.T, open func(t *testing.T) device.Device) {
	seen := &calls{all: map[string]bool{}, heads: map[string]bool{}, checked: map[string]bool{}}
	groups := []struct {
		name string
		run  func(t *testing.T, d device.Device)
	}{
		{"memory", memory},
		{"scopes", scopes},
		{"misuse", misuse},
		{"failures", failures},
		{"math", seen.group(mathCases)},
		{"matmul", seen.group(productCases)},
		{"fuse", seen.group(fuseCases)},
		{"alias", aliases},
		{"tokens", seen.group(sampleCases)},
		{"append", seen.group(appendCases)},
		{"attend", seen.group(attendCases)},
		{"walk", seen.group(walkCases)},
		{"top", seen.group(topCases)},
		{"residual", seen.group(residualCases)},
		{"values", seen.group(valueCases)},
		{"features", seen.group(featureCases)},
		{"margin", seen.group(marginCases)},
		{"reuse", seen.group(reuseCases)},
		{"parts", seen.group(boundCases)},
		{"lines", seen.group(lineCases)},
		{"hitters", seen.group(massCases)},
		{"collisions", seen.group(hashCases)},
		{"codes", seen.group(codeCases)},
		{"mirror", seen.group(mirrorCases)},
		{"heads", seen.group(shapeCases)},
		{"access", seen.accesses},
		{"refusals", seen.refusals},
		{"idle", idleRows},
		{"whole", wholeLists},
		{"nan", nanScores},
		{"pages", pagesDoNotMatter},
		{"chunks", chunksDoNotMatter},
		{"graph", positionsAreTensors},
		{"until", interrupted},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			d := open(t)
			defer func() {
				if err := d.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}()
			g.run(t, d)
			seen.groups++
		})
	}
	if seen.groups == len(groups) { // not with -run
		t.Run("complete", seen.complete)
	}
}

// A testCase makes a job on a bed.
type testCase struct {
	name string
	make func(b *bed) job
}

// job is what a case runs and what must come out.
type job struct {
	step   func(ops device.Queue)
	expect []expectation
}

// expectation is the contents a tensor must have: floats within bound times
// scale (bound 0 is equality), or ids. An I32 tensor without ids holds the bits
// of float64s.
type expectation struct {
	name  string
	got   device.Tensor
	want  []float64
	ids   []int32
	bound float64
	scale float64 // 0: the largest of want

	undefined []bool // elements that may be anything
}

// runAll runs each case eagerly, replayed, and, where the device can, with inputs that arrive
// late.
func (s *calls) runAll(t *testing.T, d device.Device, cases []testCase, heads bool) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, d)
			j := c.make(b)
			j.step(&noting{d.Queue(), s, heads})
			b.sync()
			for _, e := range j.expect {
				b.check(e)
			}
			eager := b.results(j)
			b.restore()
			g, err := d.Capture(j.step)
			if err != nil {
				t.Fatalf("Capture: %v", err)
			}
			if !bytes.Equal(b.results(j), b.firstResults(j)) {
				t.Error("Capture ran the calls")
			}
			g.Launch()
			b.sync()
			if !bytes.Equal(b.results(j), eager) {
				t.Error("replayed calls give other bits than eager ones")
			}
			if err := g.Close(); err != nil {
				t.Errorf("Graph.Close: %v", err)
			}
			b.late(j, eager)
		})
	}
}

// bed is a device with the tensors of one case.
type bed struct {
	t     *testing.T
	d     device.Device
	rng   *rand.Rand
	first []contents // of every tensor that the case wrote
}

type contents struct {
	t    device.Tensor
	b    []byte
	kept bool // a step changes its own rows only
}

// newBed is an empty bed whose random numbers depend on nothing but the code.
func newBed(t *testing.T, d device.Device) *bed {
	return &bed{t: t, d: d, rng: rand.New(rand.NewPCG(1, 2))}
}

// tensor allocates and fills a tensor.
func (b *bed) tensor(dt device.DType, data any, dims ...int) device.Tensor {
	b.t.Helper()
	x, err := b.d.Alloc(dt, dims...)
	if err != nil {
		b.t.Fatalf("Alloc: %v", err)
	}
	raw := encode(data)
	if len(raw) != x.Size() {
		b.t.Fatalf("devtest: %v filled with %d bytes", x, len(raw))
	}
	b.d.Write(x, raw)
	b.first = append(b.first, contents{t: x, b: raw})
	return x
}

// weights loads a matrix, which no call changes.
func (b *bed) weights(dt device.DType, data []byte, dims ...int) device.Tensor {
	b.t.Helper()
	x, err := b.d.Load(data, dt, dims...)
	if err != nil {
		b.t.Fatalf("Load: %v", err)
	}
	return x
}

func (b *bed) f32(data []float32, dims ...int) device.Tensor {
	b.t.Helper()
	return b.tensor(device.F32, data, dims...)
}

func (b *bed) i32(data []int32, dims ...int) device.Tensor {
	b.t.Helper()
	return b.tensor(device.I32, data, dims...)
}

// before is what results hold before a call, a number that no result has.
const before = -12345

// out is a tensor for a result.
func (b *bed) out(dims ...int) device.Tensor {
	b.t.Helper()
	return b.f32(filled(size(dims), before), dims...)
}

// restore gives every tensor its first contents.
func (b *bed) restore() {
	for _, c := range b.first {
		b.d.Write(c.t, c.b)
	}
}

func (b *bed) sync() {
	b.t.Helper()
	if err := b.d.Sync(); err != nil {
		b.t.Fatalf("Sync: %v", err)
	}
}

// raw is the contents of a tensor now.
func (b *bed) raw(x device.Tensor) []byte {
	b.t.Helper()
	p := make([]byte, x.Size())
	if err := b.d.Read(p, x); err != nil {
		b.t.Fatalf("Read: %v", err)
	}
	return p
}

// results is the contents now of everything that a job expects.
func (b *bed) results(j job) []byte {
	var all []byte
	for _, e := range j.expect {
		all = append(all, b.raw(e.got)...)
	}
	return all
}

// firstResults is the same before the job ran.
func (b *bed) firstResults(j job) []byte {
	var all []byte
	for _, e := range j.expect {
		for _, c := range b.first {
			if c.t == e.got {
				all = append(all, c.b...)
			}
		}
	}
	return all
}

// check compares a tensor with what it must be.
func (b *bed) check(e expectation) {
	b.t.Helper()
	raw := b.raw(e.got)
	if e.ids != nil {
		got := decodeI32(raw)
		for i, u := range e.undefined {
			if u {
				got[i] = e.ids[i]
			}
		}
		if !equal(got, e.ids) {
			b.t.Errorf("%s = %v, want %v", e.name, clip(got), clip(e.ids))
		}
		return
	}
	got := decodeF32(raw)
	switch e.got.DType {
	case device.F16:
		got = decodeF16(raw)
	case device.I32:
		got = decodeF64(raw)
	}
	for i, u := range e.undefined {
		if u {
			got[i] = float32(e.want[i])
		}
	}
	if at, err := worst(got, e.want, e.scale); !(err <= e.bound) {
		b.t.Errorf("%s[%d] = %v, want %v: error %.3g of the scale, bound %.3g", e.name, at, got[at], e.want[at], err, e.bound)
	}
}

// worst finds the largest difference, relative to scale or else to the largest
// value wanted that a call wrote. What is not finite must be the same.
func worst(got []float32, want []float64, scale float64) (at int, err float64) {
	if len(got) != len(want) {
		return 0, math.Inf(1)
	}
	var top, far float64
	for i, w := range want {
		g := float64(got[i])
		if math.IsNaN(w) || math.IsInf(w, 0) || math.IsNaN(g) || math.IsInf(g, 0) {
			if g != w && !(math.IsNaN(g) && math.IsNaN(w)) {
				return i, math.Inf(1)
			}
			continue
		}
		if w != before {
			top = max(top, math.Abs(w))
		}
		if diff := math.Abs(g - w); diff > far {
			at, far = i, diff
		}
	}
	if far == 0 {
		return at, 0
	}
	if scale > 0 {
		top = scale
	}
	return at, far / top
}

func size(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// normal is n numbers of the normal distribution.
func (b *bed) normal(n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(b.rng.NormFloat64())
	}
	return x
}

func filled(n int, v float32) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = v
	}
	return x
}

// encode is the bytes of a slice of fixed-size numbers, as devices store them.
func encode(data any) []byte {
	if raw, ok := data.([]byte); ok {
		return raw
	}
	var buf bytes.Buffer
	if err := binary.Write(&buf, binary.LittleEndian, data); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func decodeF32(raw []byte) []float32 {
	x := make([]float32, len(raw)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

// decodeF64 rounds the float64s whose bits an I32 tensor holds.
func decodeF64(raw []byte) []float32 {
	x := make([]float32, len(raw)/8)
	for i := range x {
		x[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:])))
	}
	return x
}

func decodeI32(raw []byte) []int32 {
	x := make([]int32, len(raw)/4)
	for i := range x {
		x[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return x
}

func decodeF16(raw []byte) []float32 {
	x := make([]float32, len(raw)/2)
	for i := range x {
		x[i] = float32(halfValue(binary.LittleEndian.Uint16(raw[2*i:])))
	}
	return x
}

func equal(a, b []int32) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// clip keeps an error message short.
func clip(x []int32) []int32 { return x[:min(len(x), 16)] }

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}
