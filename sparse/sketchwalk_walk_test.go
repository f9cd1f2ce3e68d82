package sparse

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// blockBed is a device with one sequence whose pages are in reverse order.
type blockBed struct {
	*testing.T
	dev device.Device
	kv  device.KV
	n   int // positions
}

func newBlockBed(t *testing.T, positions int) *blockBed {
	t.Helper()
	dev, err := cpu.Open(device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Sync(); err != nil {
			t.Error(err)
		}
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	b := &blockBed{T: t, dev: dev, n: positions}
	pages := make([]int32, (positions+device.PageLen-1)/device.PageLen)
	for i := range pages {
		pages[i] = int32(len(pages) - 1 - i)
	}
	k := b.floats(make([]float32, len(pages)*device.PageLen), len(pages), 1, device.PageLen, 1)
	b.kv = device.KV{K: k, V: k, Pages: b.ints(pages, 1, len(pages)), Len: b.ints([]int32{int32(positions)}, 1)}
	return b
}

func (b *blockBed) floats(x []float32, dims ...int) device.Tensor {
	return b.tensor(device.F32, x, dims)
}
func (b *blockBed) ints(x []int32, dims ...int) device.Tensor { return b.tensor(device.I32, x, dims) }

func (b *blockBed) tensor(dt device.DType, data any, dims []int) device.Tensor {
	b.Helper()
	x, err := b.dev.Alloc(dt, dims...)
	if err != nil {
		b.Fatal(err)
	}
	raw, err := binary.Append(nil, binary.LittleEndian, data)
	if err != nil {
		b.Fatal(err)
	}
	b.dev.Write(x, raw)
	return x
}

// read copies a tensor of floats out.
func (b *blockBed) read(x device.Tensor) []float32 {
	b.Helper()
	raw := make([]byte, x.Size())
	if err := b.dev.Read(raw, x); err != nil {
		b.Fatal(err)
	}
	y := make([]float32, len(raw)/4)
	if _, err := binary.Decode(raw, binary.LittleEndian, y); err != nil {
		b.Fatal(err)
	}
	return y
}

// readWalk is row i of a walk as logarithms of sizes, and the signs.
func (b *blockBed) readWalk(x device.Tensor, i, n int) (logs []float64, negative []bool) {
	raw := make([]byte, x.Size())
	if err := b.dev.Read(raw, x); err != nil {
		b.Fatal(err)
	}
	logs, negative = make([]float64, n), make([]bool, n)
	for j := range logs {
		if x.DType == device.F32 {
			logs[j] = float64(math.Float32frombits(binary.LittleEndian.Uint32(raw[4*(i*x.Dim(1)+j):])))
			continue
		}
		v := math.Float64frombits(binary.LittleEndian.Uint64(raw[8*(i*x.Dim(1)/2+j):]))
		logs[j], negative[j] = math.Log(math.Abs(v)), v < 0
	}
	return logs, negative
}

// blocks is the number of blocks of the sequence.
func (b *blockBed) blocks() int { return b.kv.Pages.Dim(1) }

// compared makes the pairs of rows of scores: sketches whose products are exact.
func (b *blockBed) compared(scores [][]float64, c device.SketchProduct) device.Tensor {
	n := b.blocks()
	q, k := make([]float32, n*n), make([]float32, n*n)
	for i, row := range scores {
		page := n - 1 - i
		k[page*n+i] = float32(math.Sqrt(float64(n)))
		for j, v := range row {
			q[page*n+j] = float32(v)
		}
	}
	pairs := b.floats(make([]float32, n*n), n, n)
	device.Do(b.dev.Queue(), device.Score{Rule: device.SketchScores, Dst: pairs, Q: b.floats(q, n, 1, n), Keys: b.floats(k, n, 1, n), KV: b.kv, Rows: b.n, Product: c})
	return pairs
}

// rows are rows of a walk.
func (b *blockBed) rows(log bool) device.Tensor {
	n := b.blocks()
	if log {
		return b.floats(make([]float32, n*n), n, n)
	}
	return b.ints(make([]int32, 2*n*n), n, 2*n)
}

// top is the lists of the blocks of the newest n rows.
func (b *blockBed) top(scores device.Tensor, newest int, p device.BlockBudget) [][]int32 {
	n := b.blocks()
	l := device.List{Index: b.ints(make([]int32, n*n), n, 1, n), Count: b.ints(make([]int32, n), n, 1)}
	device.Do(b.dev.Queue(), device.Select{Rule: device.TopBlocks, List: l, Scores: scores, KV: b.kv, Rows: newest, Blocks: p})
	index, count := b.read(l.Index), b.read(l.Count)
	var lists [][]int32
	for g := range n {
		var list []int32
		for _, v := range index[g*n:][:math.Float32bits(count[g])] {
			list = append(list, int32(math.Float32bits(v)))
		}
		lists = append(lists, list)
	}
	return lists
}

// layer0 and layer1 are the scores of the worked examples.
var (
	layer0 = [][]float64{{1}, {.5, 1}, {.8, .3, 1}, {.2, .9, .6, 1}, {.7, .4, -.9, .5, 1}}
	layer1 = [][]float64{{.9}, {.6, .8}, {.4, .7, 1.1}, {.3, -1, .5, .9}, {.6, .5, .2, .8, 1}}
)

func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol) {
			t.Errorf("%s[%d] = %v, want %v", what, i, got[i], want[i])
		}
	}
}

func TestSketchExample(t *testing.T) { // SW-1
	// A block of the example is two tokens; here each fills half of a block.
	q := [2][][]float32{
		{{1, 0, 2, 1}, {0, 1, 1, 1}, {2, 1, 0, 0}, {1, 3, 1, 0}, {0, 2, 1, -1}},
		{{1, 2, 0, 1}, {2, 1, -1, 1}, {0, 1, 2, 2}, {1, -1, 1, 2}, {2, 0, 1, 1}},
	}
	k := [][]float32{{1, 1, 0, 0}, {2, 1, 0, 1}, {0, 1, 1, 0}, {1, 0, 1, 2}, {1, 1, -1, 1}}
	const n = 2*device.PageLen + 1
	b := newBlockBed(t, n)
	var qs, ks []float32
	for p := range n {
		i := p / (device.PageLen / 2)
		qs = append(append(qs, q[0][i]...), q[1][i]...)
		ks = append(ks, k[i]...)
	}
	tests := []struct {
		name         string
		basis        []float32
		width        int
		qt, kt, want []float64 // by block
	}{
		{"whole", hadamard([]float32{-1, 1, 1, -1}, []int{2, 0, 3, 1}), 4, nil, nil,
			[]float64{1.5, 0, 0, 1.5, 1.5, 0, 1.25, 1, .5}},
		{"exact", identity(4), 4, []float64{1, 1, .5, 1, 1, 1, 1, 1, 1, 1, 1, 0}, []float64{1.5, 1, 0, .5, .5, .5, 1, 1, 1, 1, -1, 1},
			[]float64{1.5, 0, 0, 1.5, 1.5, 0, 1.25, 1, .5}},
		{"two columns", hadamard([]float32{1, -1, 1, 1}, []int{0, 2}), 2,
			[]float64{1.060660, -1.060660, 1.414214, -1.414214, .707107, -.707107},
			[]float64{.707107, 0, 1.414214, -1.414214, 0, 0},
			[]float64{.530330, 0, 0, .707107, 2.828427, 0, .353553, 1.414214, 0}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ops := b.dev.Queue()
			sum, basis := b.floats(make([]float32, 3*4), 3, 1, 4), b.floats(tt.basis, tt.width, 4)
			sketch := func(x []float32, heads int) device.Tensor {
				s := b.floats(make([]float32, 3*tt.width), 3, 1, tt.width)
				device.Do(ops, device.Summarize{Rule: device.SumBlocks, Dst: sum, X: b.floats(x, n, heads, 4), KV: b.kv})
				device.Do(ops, device.Summarize{Rule: device.ProjectMeans, Dst: s, X: sum, Basis: basis, KV: b.kv, Rows: b.n})
				return s
			}
			qt, kt := sketch(qs, 2), sketch(ks, 1)
			pairs := b.floats(make([]float32, 9), 3, 3)
			device.Do(ops, device.Score{Rule: device.SketchScores, Dst: pairs, Q: qt, Keys: kt, KV: b.kv, Rows: b.n, Product: device.SketchProduct{}})
			near(t, "q", b.byBlock(qt), tt.qt, 2e-6)
			near(t, "k", b.byBlock(kt), tt.kt, 2e-6)
			near(t, "scores", b.byBlock(pairs), tt.want, 2e-6)
		})
	}
}

// byBlock is a tensor [pages, ...] in the order of blocks.
func (b *blockBed) byBlock(x device.Tensor) []float64 {
	var y []float64
	for i := range b.blocks() {
		for _, v := range b.read(x.At(b.blocks() - 1 - i)) {
			y = append(y, float64(v))
		}
	}
	return y
}

func TestWalkExample(t *testing.T) { // SW-2
	b := newBlockBed(t, 5*device.PageLen)
	tests := []struct {
		form       device.ProductForm
		row4       []float64 // up to a factor; nil: not given
		lists      [][]int32 // of blocks 2 to 4
		onehop     []int32   // block 4 with layer 1 alone
		exampleRow []float64 // of logarithms
	}{
		{form: device.Raw, row4: []float64{.0419051, .0327380, .922763, .169454, 1},
			lists:  [][]int32{{0, 1, 2}, {0, 1, 3}, {0, 2, 4}},
			onehop: []int32{0, 3, 4}, exampleRow: []float64{-3.172347, -3.419218, -.080383, -1.775176, 0}},
		{form: device.Relu, row4: []float64{.041623, .0040162, 1.78188e-05, .169454, 1}, lists: [][]int32{nil, nil, {0, 3, 4}}},
		{form: device.Softmax, lists: [][]int32{nil, nil, {0, 1, 4}}},
	}
	for _, log := range []bool{true, false} {
		for _, tt := range tests {
			t.Run(fmt.Sprintf("log=%v/form=%d", log, tt.form), func(t *testing.T) {
				c := device.SketchProduct{Form: tt.form, Log: log}
				w0, w1 := b.compared(layer0, c), b.compared(layer1, c)
				r0, r1 := b.rows(log), b.rows(log)
				device.Do(b.dev.Queue(), device.Walk{Dst: r0, Src: device.Tensor{}, Pairs: w0, KV: b.kv, Rows: b.n, Exponent: 8})
				device.Do(b.dev.Queue(), device.Walk{Dst: r1, Src: r0, Pairs: w1, KV: b.kv, Rows: b.n, Exponent: 8})
				logs, _ := b.readWalk(r1, 4, 5)
				for j, want := range tt.row4 {
					if got := math.Exp(logs[j]); math.Abs(got-want) > 6e-6*want {
						t.Errorf("row 4[%d] = %v, want %v", j, got, want)
					}
				}
				near(t, "ln row 4", logs, tt.exampleRow, 2e-6)
				lists := b.top(r1, b.n, device.BlockBudget{Count: 3})
				for i, want := range tt.lists {
					if want != nil && !slices.Equal(lists[2+i], want) {
						t.Errorf("block %d reads %v, want %v", 2+i, lists[2+i], want)
					}
				}
				device.Do(b.dev.Queue(), device.Walk{Dst: r1, Src: device.Tensor{}, Pairs: w1, KV: b.kv, Rows: b.n, Exponent: 8})
				if got := b.top(r1, b.n, device.BlockBudget{Count: 3})[4]; tt.onehop != nil && !slices.Equal(got, tt.onehop) {
					t.Errorf("with one hop block 4 reads %v, want %v", got, tt.onehop)
				}
			})
		}
	}
}

// TestDampedWalkExample: of a softmax of the scores, three times S ← 0.75·P + 0.25·S·P in each
// layer, beginning with P, made by a script apart from this project.
func TestDampedWalkExample(t *testing.T) {
	b := newBlockBed(t, 5*device.PageLen)
	for _, log := range []bool{true, false} {
		c := device.SketchProduct{Form: device.Softmax, Log: log}
		rows := b.rows(log)
		for layer, want := range [][]float64{
			{.3043016, .1938642, .0560883, .1774463, .2682995}, {.2562920, .1755329, .1321652, .2083718, .2276381},
		} {
			w := device.Walk{Dst: rows, Src: rows, Pairs: b.compared([][][]float64{layer0, layer1}[layer], c), KV: b.kv, Rows: b.n, Exponent: 1, Own: .75}
			if layer == 0 {
				start := w
				start.Src = device.Tensor{}
				device.Do(b.dev.Queue(), start)
			}
			for range 3 {
				device.Do(b.dev.Queue(), w)
			}
			logs, _ := b.readWalk(rows, 4, 5)
			for j, share := range want {
				near(t, fmt.Sprintf("log=%v: layer %d, block %d", log, layer, j), []float64{logs[j]}, []float64{math.Log(share / want[4])}, 2e-6)
			}
		}
		for want, p := range map[[5]int32]device.BlockBudget{
			{0, 3, 4, -1, -1}: {Count: 3},
			{0, 1, 4, -1, -1}: {Count: 3, First: device.Amount{Count: 2}},
			{0, 2, 3, 4, -1}:  {Count: 2, Last: device.Amount{Share: .6}},
			{0, 1, 2, 3, 4}:   {Count: 3, Dense: 4},
		} {
			if got := append(b.top(rows, b.n, p)[4], -1, -1)[:5]; !slices.Equal(got, want[:]) {
				t.Errorf("log=%v: %+v reads %v, want %v", log, p, got, want)
			}
		}
	}
}

func TestDecodeRowExample(t *testing.T) { // SW-3
	b := newBlockBed(t, 4*device.PageLen+1)
	step0, step1 := slices.Clone(layer0), slices.Clone(layer1)
	step0[4], step1[4] = []float64{.9, .2, 1.1, .6, 1.2}, []float64{.5, .3, .7, .75, 1.1}
	c := device.SketchProduct{Log: true}
	w0, w1 := b.compared(step0, c), b.compared(step1, c)
	rows := b.rows(true)
	device.Do(b.dev.Queue(), device.Walk{Dst: rows, Src: device.Tensor{}, Pairs: w0, KV: b.kv, Rows: 1, Exponent: 8})
	first := []float64{.430467, .00000256, 2.143589, .016796, 4.299817}
	logs, _ := b.readWalk(rows, 4, 5)
	for j, want := range first {
		digit := 5e-7
		if j == 1 {
			digit = 5e-9
		}
		if got := math.Exp(logs[j]) * 4.29981696; math.Abs(got-want) > 1.2*digit {
			t.Errorf("after layer 0: [%d] = %v, want %v", j, got, want)
		}
	}
	device.Do(b.dev.Queue(), device.Walk{Dst: rows, Src: rows, Pairs: w1, KV: b.kv, Rows: 1, Exponent: 8})
	logs, _ = b.readWalk(rows, 4, 5)
	last := 2.221054
	near(t, "after layer 1", logs, []float64{-1.592069 - last, -1.961464 - last, 1.577517 - last, -.826227 - last, 0}, 2e-6)
	if got := b.top(rows, 1, device.BlockBudget{Count: 3})[0]; !slices.Equal(got, []int32{0, 2, 4}) {
		t.Errorf("reads %v, want [0 2 4]", got)
	}
	device.Do(b.dev.Queue(), device.Walk{Dst: rows, Src: device.Tensor{}, Pairs: w1, KV: b.kv, Rows: 1, Exponent: 8})
	if got := b.top(rows, 1, device.BlockBudget{Count: 3})[0]; !slices.Equal(got, []int32{0, 3, 4}) {
		t.Errorf("with one hop reads %v, want [0 3 4]", got)
	}
}

// randomScores is a lower triangle of small integers, a third of them 0.
func randomScores(rng *rand.Rand, n int) [][]float64 {
	s := make([][]float64, n)
	for i := range s {
		for range i + 1 {
			s[i] = append(s[i], float64(max(0, rng.IntN(7)-1))*float64(1-2*rng.IntN(2)))
		}
	}
	return s
}

// TestWalkAgainstRationals multiplies three layers exactly.
func TestWalkAgainstRationals(t *testing.T) {
	const n = 8
	rng := rand.New(rand.NewPCG(3, 1))
	b := newBlockBed(t, n*device.PageLen-5)
	for _, exponent := range []int{1, 2, 3, 8} {
		for _, log := range []bool{true, false} {
			if log && exponent%2 == 1 {
				continue
			}
			t.Run(fmt.Sprintf("exponent=%d/log=%v", exponent, log), func(t *testing.T) {
				rows, src := b.rows(log), device.Tensor{}
				var exact [][]*big.Int
				for range 3 {
					scores := randomScores(rng, n)
					device.Do(b.dev.Queue(), device.Walk{Dst: rows, Src: src, Pairs: b.compared(scores, device.SketchProduct{Log: log}), KV: b.kv, Rows: b.n, Exponent: exponent})
					src = rows
					exact = timesPower(exact, scores, int64(exponent))
				}
				for i, row := range exact {
					logs, negative := b.readWalk(rows, i, i+1)
					checkRow(t, i, logs, negative, row)
				}
			})
		}
	}
}

// timesPower is rows·w^exponent, element-wise power; no rows are the identity.
func timesPower(rows [][]*big.Int, w [][]float64, exponent int64) [][]*big.Int {
	next := make([][]*big.Int, len(w))
	for i := range w {
		for j := range i + 1 {
			sum := new(big.Int)
			for m := j; m <= i; m++ {
				x := new(big.Int).Exp(big.NewInt(int64(w[m][j])), big.NewInt(exponent), nil)
				if rows == nil {
					if m == i {
						sum.Add(sum, x)
					}
					continue
				}
				sum.Add(sum, x.Mul(x, rows[i][m]))
			}
			next[i] = append(next[i], sum)
		}
	}
	return next
}

// checkRow compares logarithms, up to one factor, with exact numbers.
func checkRow(t *testing.T, i int, logs []float64, negative []bool, exact []*big.Int) {
	t.Helper()
	top := new(big.Int)
	for _, v := range exact[min(1, i):] {
		if v.CmpAbs(top) > 0 {
			top.Abs(v)
		}
	}
	if top.Sign() == 0 { // nothing but the first: no scale is set
		return
	}
	for j, v := range exact {
		if v.Sign() == 0 {
			if !math.IsInf(logs[j], -1) {
				t.Errorf("row %d[%d] = exp(%v), want 0", i, j, logs[j])
			}
			continue
		}
		ratio, _ := new(big.Rat).SetFrac(new(big.Int).Abs(v), top).Float64()
		if math.Abs(logs[j]-math.Log(ratio)) > 4e-6*max(1, math.Abs(math.Log(ratio))) || negative[j] != (v.Sign() < 0) {
			t.Errorf("row %d[%d] = exp(%v), negative %v; want exp(%v), %v", i, j, logs[j], negative[j], math.Log(ratio), v)
		}
	}
}

// TestWalkInvariants: what the selection of blocks does not depend on.
func TestWalkInvariants(t *testing.T) {
	const n = 8
	rng := rand.New(rand.NewPCG(5, 1))
	b := newBlockBed(t, n*device.PageLen)
	random := func() [][]float64 {
		s := randomScores(rng, n)
		for i := range s {
			for j := range s[i] {
				s[i][j] = rng.NormFloat64()
			}
		}
		return s
	}
	scores := [][][]float64{random(), random(), random()}
	walk := func(scores [][][]float64, log bool) [][]int32 {
		rows, src := b.rows(log), device.Tensor{}
		for _, s := range scores {
			device.Do(b.dev.Queue(), device.Walk{Dst: rows, Src: src, Pairs: b.compared(s, device.SketchProduct{Log: log}), KV: b.kv, Rows: b.n, Exponent: 8})
			src = rows
		}
		return b.top(rows, b.n, device.BlockBudget{Share: .5})
	}
	scaled := func(f func(layer, i, j int) float64) [][][]float64 {
		var all [][][]float64
		for l, layer := range scores {
			var rows [][]float64
			for i, row := range layer {
				var r []float64
				for j, v := range row {
					r = append(r, v*f(l, i, j))
				}
				rows = append(rows, r)
			}
			all = append(all, rows)
		}
		return all
	}
	for _, log := range []bool{true, false} {
		want := walk(scores, log)
		same := func(what string, s [][][]float64, equal bool) {
			t.Helper()
			if got := walk(s, log); slices.EqualFunc(got, want, slices.Equal[[]int32]) != equal {
				t.Errorf("log=%v: %s: lists equal %v, want %v\n%v\n%v", log, what, !equal, equal, got, want)
			}
		}
		same("every score times 3", scaled(func(int, int, int) float64 { return 3 }), true)
		same("rows of the first layer scaled", scaled(func(l, i, _ int) float64 {
			if l == 0 {
				return float64(1 + i)
			}
			return 1
		}), true)
		same("column 0 and row 0 changed", scaled(func(_, i, j int) float64 {
			if j == 0 {
				return 1e3 * float64(i+1)
			}
			return 1
		}), true)
		same("rows of a later layer scaled", scaled(func(l, i, _ int) float64 {
			if l == 1 {
				return math.Pow(2, float64(i))
			}
			return 1
		}), false)
		if !log {
			if logs := walk(scores, true); !slices.EqualFunc(logs, want, slices.Equal[[]int32]) {
				t.Errorf("logarithms list %v, float64s %v", logs, want)
			}
		}
	}
}

// TestSketchUnbiased: the products of sketches have the products of vectors as
// their mean over draws.
func TestSketchUnbiased(t *testing.T) {
	const dim, width, times = 12, 4, 4096
	random := rand.New(rand.NewPCG(7, 1))
	x, y, dot := make([]float64, dim), make([]float64, dim), 0.0
	for i := range x {
		x[i], y[i] = random.NormFloat64(), random.NormFloat64()
		dot += x[i] * y[i]
	}
	var sum, square float64
	elements := make([]float64, width*dim)
	for seed := range times {
		basis, n := sketchBasis("srht", dim, width, rng.Address{Seed: uint64(seed), Purpose: rng.ForSigns})
		if n != width {
			t.Fatalf("sketch of %d numbers, want %d", n, width)
		}
		var v float64
		for c := range width {
			var a, b float64
			for i := range dim {
				elements[c*dim+i] += float64(basis[c*dim+i]) * math.Sqrt(width)
				a += x[i] * float64(basis[c*dim+i])
				b += y[i] * float64(basis[c*dim+i])
			}
			v += a * b
		}
		sum += v
		square += v * v
	}
	mean := sum / times
	z := (mean - dot) / math.Sqrt((square/times-mean*mean)/times)
	if !(math.Abs(z) <= 4.5) {
		t.Errorf("mean product of sketches %v, of vectors %v: z = %.2f", mean, dot, z)
	}
	for i, v := range elements { // 1 or -1, each as often
		if z := v / math.Sqrt(times); !(math.Abs(z) <= 4.5) {
			t.Errorf("element %d of the projection has mean %v over draws: z = %.2f", i, v/times, z)
		}
	}
}

// TestSketchWhole: as many columns as elements lose nothing.
func TestSketchWhole(t *testing.T) {
	for _, dim := range []int{1, 8, 64, 128} {
		for _, kind := range []string{"srht", "hadamard_prefix", "exact"} {
			basis, n := sketchBasis(kind, dim, 1024, rng.Address{Seed: 4, Purpose: rng.ForSigns})
			if n != dim {
				t.Errorf("%s of %d: %d numbers", kind, dim, n)
			}
			for i := range dim {
				for j := range dim {
					var dot, want float64
					for c := range n {
						dot += float64(basis[c*dim+i]) * float64(basis[c*dim+j])
					}
					if i == j {
						want = 1
					}
					if math.Abs(dot-want) > 1e-6 {
						t.Fatalf("%s of %d: columns %d and %d have product %v", kind, dim, i, j, dot)
					}
				}
			}
		}
	}
}

// TestPickDensity: the share of pairs that budgets give.
func TestPickDensity(t *testing.T) {
	density := func(b, fixed int) float64 {
		var read, all int
		for i := range b {
			n := min(device.BlockBudget{Share: .2}.Of(i+1), i+1)
			if fixed > 0 {
				n = device.BlockBudget{Count: fixed}.Of(i + 1)
			}
			read, all = read+n, all+i+1
		}
		return float64(read) / float64(all)
	}
	if got := (device.BlockBudget{Share: .07}).Of(100); got != 7 {
		t.Errorf("a share of 0.07 of 100 blocks is %d, want 7", got)
	}
	near(t, "density", []float64{density(64, 0), density(2048, 0), density(2048, 410)}, []float64{.2144, .2004, .360}, 5e-4)
}
