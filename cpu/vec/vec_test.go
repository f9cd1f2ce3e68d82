package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/cpu/kernel"
)

// lengths lie around the widths of registers.
var lengths = []int{0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 130, 1000}

// natives calls f for every set but the definition.
func natives(t *testing.T, f func(t *testing.T, k *Kernels)) {
	if len(All()) == 1 {
		t.Skip("this processor has none of the vector instructions")
	}
	for _, k := range All()[1:] {
		t.Run(string(k.ISA), func(t *testing.T) { f(t, k) })
	}
}

func normal(n int) []float32 {
	rng := rand.New(rand.NewPCG(uint64(n), 3))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

func halves(x []float32) []uint16 {
	h := make([]uint16, len(x))
	toHalf(h, x)
	return h
}

func clone(x []float32) []float32 { return append([]float32(nil), x...) }

// compare fails where got and want differ by more than bound of the largest.
func compare(t *testing.T, name string, got, want []float32, bound float64) {
	t.Helper()
	within(t, name, got, want, bound*largest(want))
}

// largest is the largest magnitude of what is finite.
func largest(x []float32) (top float64) {
	for _, v := range x {
		if !math.IsInf(float64(v), 0) && v == v {
			top = max(top, math.Abs(float64(v)))
		}
	}
	return top
}

// within fails where got and want differ by more than the error given.
func within(t *testing.T, name string, got, want []float32, err float64) {
	t.Helper()
	for i, w := range want {
		g := got[i]
		if g == w || g != g && w != w {
			continue
		}
		if diff := math.Abs(float64(g) - float64(w)); !(diff <= err) {
			t.Errorf("%s[%d] = %v, want %v", name, i, g, w)
			return
		}
	}
}

func TestElements(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range lengths {
			x, y, z := normal(n), normal(n + 1)[:n], normal(n + 2)[:n]
			got, want := clone(x), clone(x)
			k.Add(got, y)
			Go.Add(want, y)
			compare(t, fmt.Sprint("Add ", n), got, want, 0)
			k.AddScaled(got, y, 1.3)
			Go.AddScaled(want, y, 1.3)
			compare(t, fmt.Sprint("AddScaled ", n), got, want, 0)
			k.ScaleMul(got, y, z, 1.7)
			Go.ScaleMul(want, y, z, 1.7)
			compare(t, fmt.Sprint("ScaleMul ", n), got, want, 0)
			if a, b := k.SumSquares(x), Go.SumSquares(x); math.Abs(a-b) > 1e-14*b {
				t.Errorf("SumSquares of %d: %v, want %v", n, a, b)
			}
			for _, spread := range []float32{1, 30, 200} {
				for i := range y {
					y[i] *= spread
				}
				k.SwiGLU(got, y, z)
				Go.SwiGLU(want, y, z)
				const nothing = 1e-33 // exp stops at e^88, so that gates below -88 are not quite closed
				for i := range got {
					if diff := math.Abs(float64(got[i] - want[i])); diff > 3e-7*math.Abs(float64(want[i]))+nothing {
						t.Errorf("SwiGLU of %v: %v, want %v", y[i], got[i], want[i])
					}
				}
			}
			cos, sin := normal(n), normal(n + 1)[:n]
			got = normal(2*n + 3)
			want = clone(got)
			k.RotateHalves(got, cos, sin)
			Go.RotateHalves(want, cos, sin)
			compare(t, fmt.Sprint("RotateHalves ", n), got, want, 2e-7)
			k.RotatePairs(got, cos, sin)
			Go.RotatePairs(want, cos, sin)
			compare(t, fmt.Sprint("RotatePairs ", n), got, want, 4e-7)
		}
	})
}

// TestHalf converts every half precision number, and numbers around each border.
func TestHalf(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		all := make([]uint16, 1<<16)
		for i := range all {
			all[i] = uint16(i)
		}
		got, want := make([]float32, len(all)), make([]float32, len(all))
		k.FromHalf(got, all)
		Go.FromHalf(want, all)
		compare(t, "FromHalf", got, want, 0)
		var borders []float32
		for i := range 1<<15 - 1 {
			a, b := kernel.Float16(uint16(i)), kernel.Float16(uint16(i+1))
			if mid := a + (b-a)/2; mid == mid {
				borders = append(borders, mid, math.Nextafter32(mid, 0), math.Nextafter32(mid, 1e9), -mid)
			}
		}
		borders = append(borders, 65519.99, 65520, 65535, 1e30, float32(math.Inf(1)))
		h, w := make([]uint16, len(borders)), make([]uint16, len(borders))
		k.ToHalf(h, borders)
		Go.ToHalf(w, borders)
		for i := range h {
			if h[i] != w[i] {
				t.Fatalf("ToHalf(%v) = %04x, want %04x", borders[i], h[i], w[i])
			}
		}
	})
}

func TestSoftmax(t *testing.T) {
	inf := float32(math.Inf(1))
	natives(t, func(t *testing.T, k *Kernels) {
		for rows := range 9 {
			for _, spread := range []float32{0.01, 1, 40, 300} {
				s := normal(rows * Tile)
				top, sum := normal(rows), normal(rows + 1)[:rows]
				for i := range s {
					s[i] *= spread
					if i%7 == 3 || i/Tile == 2 {
						s[i] = -inf
					}
				}
				for r := range top {
					sum[r] = 1 + sum[r]*sum[r]
					if r%3 == 2 {
						top[r], sum[r] = -math.MaxFloat32, 0 // nothing seen yet
					}
					if r == 4 {
						top[r] = 500 // more than any score
					}
				}
				scale := make([]float32, rows)
				s2, top2, sum2, scale2 := clone(s), clone(top), clone(sum), clone(scale)
				k.Softmax(s, top, sum, scale)
				Go.Softmax(s2, top2, sum2, scale2)
				compare(t, "s", s, s2, 2e-7)
				compare(t, "top", top, top2, 0)
				compare(t, "sum", sum, sum2, 5e-7)
				compare(t, "scale", scale, scale2, 2e-7)
			}
		}
	})
}

func TestMultiply(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, cols := range []int{16, 32, 48, 64, 80, 96, 112, 128, 256} {
			for _, n := range []int{1, 2, 16, 64, 128} {
				a := Matrix{normal(TileRows * (n + 3)), n + 3}
				b := Matrix{normal(n * (cols + 5)), cols + 5}
				c := Matrix{normal(TileRows * (cols + 1)), cols + 1}
				for _, scale := range [][]float32{nil, normal(TileRows)} {
					got, want := Matrix{clone(c.Data), c.Stride}, Matrix{clone(c.Data), c.Stride}
					k.Multiply(got, a, b, scale, n, cols)
					Go.Multiply(want, a, b, scale, n, cols)
					compare(t, fmt.Sprintf("Multiply cols=%d n=%d scale=%v", cols, n, scale != nil), got.Data, want.Data, 1e-6)
				}
			}
		}
	})
}

// caches is the same numbers as rows of both types.
func caches(n int) map[string]Rows {
	x := normal(n)
	h := halves(x)
	fromHalf(x, h)
	return map[string]Rows{"f16": {Half: h}, "f32": {Full: x}}
}

var dims = []int{16, 32, 48, 64, 80, 96, 128, 256}

func TestColumns(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, dim := range dims {
			for name, rows := range caches(Tile * dim) {
				for _, n := range []int{1, 7, 8, 15, 16, 17, 63, 64} {
					got, want := normal(dim*Tile), make([]float32, dim*Tile)
					k.Columns(got, rows, n, dim)
					Go.Columns(want, rows, n, dim)
					compare(t, fmt.Sprintf("Columns %s dim=%d n=%d", name, dim, n), got, want, 0)
				}
			}
		}
	})
}

func TestScoresAndGather(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, dim := range dims {
			for name, rows := range caches(Tile * dim) {
				for _, heads := range []int{1, 2, 3, 4, 5, 7, 8} {
					q, p, scale := normal(heads*dim), normal(heads*Tile), normal(heads)
					for _, n := range []int{1, 2, 3, 4, 5, 15, 16, 17, 63, 64} {
						at := fmt.Sprintf("%s dim=%d heads=%d n=%d", name, dim, heads, n)
						got, want := make([]float32, heads*Tile), make([]float32, heads*Tile)
						k.Scores(got, q, rows, Rows{}, heads, n, dim)
						Go.Scores(want, q, rows, Rows{}, heads, Tile, dim)
						for h := range heads { // a sum may cancel, so the scale is that of all
							within(t, "Scores "+at, got[h*Tile:][:n], want[h*Tile:][:n], 1e-6*largest(want))
						}
						acc := normal(heads*dim + 1)
						got, want = clone(acc), clone(acc)
						k.Gather(got, p, scale, rows, rows, heads, n, dim)
						Go.Gather(want, p, scale, rows, rows, heads, n, dim)
						within(t, "Gather "+at, got, want, 1e-6*math.Sqrt(float64(n)))
					}
				}
			}
		}
	})
}

func BenchmarkKernel(b *testing.B) {
	const dim = 128
	for _, k := range All() {
		c, a, w := Matrix{normal(TileRows * dim), dim}, Matrix{normal(TileRows * dim), dim}, Matrix{normal(dim * Tile), Tile}
		report := func(b *testing.B, flops int) {
			b.ReportMetric(float64(flops)*float64(b.N)/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
		}
		b.Run(fmt.Sprintf("kernel=multiply/isa=%s", k.ISA), func(b *testing.B) {
			for b.Loop() {
				k.Multiply(c, a, w, nil, dim, Tile)
			}
			report(b, 2*TileRows*dim*Tile)
		})
		rows := caches(Tile * dim)["f16"]
		s := normal(4 * Tile)
		for _, heads := range []int{1, 4} {
			q, scale := normal(4*dim), normal(4)
			b.Run(fmt.Sprintf("kernel=scores/heads=%d/isa=%s", heads, k.ISA), func(b *testing.B) {
				for b.Loop() {
					k.Scores(s, q, rows, Rows{}, heads, Tile, dim)
				}
				b.SetBytes(2 * Tile * dim)
			})
			b.Run(fmt.Sprintf("kernel=gather/heads=%d/isa=%s", heads, k.ISA), func(b *testing.B) {
				for b.Loop() {
					k.Gather(q, s, scale, rows, Rows{}, heads, Tile, dim)
				}
				b.SetBytes(2 * Tile * dim)
			})
		}
		b.Run(fmt.Sprintf("kernel=softmax/isa=%s", k.ISA), func(b *testing.B) {
			top, sum, scale := normal(4), normal(4), normal(4)
			for b.Loop() {
				k.Softmax(s, top, sum, scale)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/(4*Tile), "ns/score")
		})
		b.Run(fmt.Sprintf("kernel=columns/isa=%s", k.ISA), func(b *testing.B) {
			dst := make([]float32, dim*Tile)
			for b.Loop() {
				k.Columns(dst, rows, Tile, dim)
			}
			b.SetBytes(2 * Tile * dim)
		})
		b.Run(fmt.Sprintf("kernel=swiglu/isa=%s", k.ISA), func(b *testing.B) {
			x, y, z := normal(4096), normal(4096), normal(4096)
			for b.Loop() {
				k.SwiGLU(z, x, y)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/element")
		})
	}
}

// TestPlaceDoesNotMatter: kernels with exponentials give an element the same bits
// whether it fills a register with others or is left over, and write nothing
// behind the last one.
func TestPlaceDoesNotMatter(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		const n = 70
		gate, up := normal(n), normal(n + 1)[:n]
		top, x := normal(n + 2)[:n], normal(n + 3)[:n]
		gated, sums, tops := make([]float32, n), make([]float32, n), clone(top)
		k.SwiGLU(gated, gate, up)
		k.LogSum(sums, top, x, 3, 0.5)
		k.LogTop(tops, x, 3, 0.5)
		for lo := range n {
			for hi := lo; hi <= n; hi++ {
				g, s, p := filled(n, 7), make([]float32, n), clone(top)
				k.SwiGLU(g[lo:hi], gate[lo:hi], up[lo:hi])
				k.LogSum(s[lo:hi], top[lo:hi], x[lo:hi], 3, 0.5)
				k.LogTop(p[lo:hi], x[lo:hi], 3, 0.5)
				want := [3][]float32{filled(n, 7), make([]float32, n), clone(top)}
				for i, whole := range [][]float32{gated, sums, tops} {
					copy(want[i][lo:hi], whole[lo:hi])
				}
				for i, got := range [][]float32{g, s, p} {
					if !slices.Equal(got, want[i]) {
						t.Fatalf("%s of elements %d to %d: %v, want %v", [...]string{"SwiGLU", "LogSum", "LogTop"}[i], lo, hi-1, got, want[i])
					}
				}
			}
		}
	})
}

// TestExps compares exponentials and their sums with their definition; a place does not matter, and
// nothing is written behind the last one.
func TestExps(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range lengths {
			x, got, want := normal(n), filled(n+1, 7), filled(n+1, 7)
			for j := range x {
				if x[j] *= 20; j%7 == 3 {
					x[j] = float32(math.Inf(-1))
				}
			}
			top := Go.Largest(x)
			a, b := k.Exps(got[:n], x, top), Go.Exps(want[:n], x, top)
			within(t, fmt.Sprint("Exps ", n), got, want, 2e-7)
			if got[n] != 7 || !(math.Abs(a-b) <= 2e-7*b) {
				t.Fatalf("Exps of %d: sum %v, want %v; %v behind it, want 7", n, a, b, got[n])
			}
			for lo := range min(n, 20) {
				part := make([]float32, n-lo)
				if k.Exps(part, x[lo:], top); !slices.Equal(part, got[lo:n]) {
					t.Fatalf("Exps of elements %d to %d: %v, want %v", lo, n-1, part, got[lo:n])
				}
			}
		}
	})
}

// filled is n times v.
func filled(n int, v float32) []float32 { return slices.Repeat([]float32{v}, n) }

// TestLogs sums terms of many sizes, some of them -Inf.
func TestLogs(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range lengths {
			fast, slow := [2][]float32{make([]float32, n), make([]float32, n)}, [2][]float32{make([]float32, n), make([]float32, n)}
			for j := range n {
				fast[0][j], slow[0][j] = -math.MaxFloat32, -math.MaxFloat32
			}
			terms := func(f func(x []float32, shift float32)) {
				for m := range 9 {
					x := normal(n + m)[m:]
					for j := range x {
						if (j+m)%5 == 0 || j%11 == 3 {
							x[j] = float32(math.Inf(-1))
						}
					}
					f(x, 10*float32(m%4))
				}
			}
			terms(func(x []float32, shift float32) {
				k.LogTop(fast[0], x, 8, shift)
				Go.LogTop(slow[0], x, 8, shift)
			})
			compare(t, fmt.Sprint("LogTop ", n), fast[0], slow[0], 1e-7)
			copy(fast[0], slow[0])
			terms(func(x []float32, shift float32) {
				k.LogSum(fast[1], fast[0], x, 8, shift)
				Go.LogSum(slow[1], slow[0], x, 8, shift)
			})
			compare(t, fmt.Sprint("LogSum ", n), fast[1], slow[1], 2e-6)
			for j := range n {
				if j%11 == 3 && slow[1][j] != 0 || j%11 != 3 && slow[1][j] < 0.9 {
					t.Fatalf("LogSum %d: sum[%d] = %v over the largest term %v", n, j, slow[1][j], slow[0][j])
				}
			}
		}
	})
}
