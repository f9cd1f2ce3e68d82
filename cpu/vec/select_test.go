package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// scoreRows are rows of n scores: plain ones, and some with what a score may be besides.
func scoreRows(n int) map[string][]float32 {
	rng, inf := rand.New(rand.NewPCG(uint64(n), 5)), float32(math.Inf(1))
	odd, few := make([]float32, n), make([]float32, n)
	for i := range odd {
		few[i] = float32(rng.IntN(3))
		odd[i] = [...]float32{inf, -inf, float32(math.NaN()), 0, float32(math.Copysign(0, -1)), 1, -math.MaxFloat32, 1e-40, -2, 3}[rng.IntN(10)]
	}
	return map[string][]float32{"normal": normal(n), "odd": odd, "few": few, "behind": append(slices.Repeat([]float32{-inf}, n), 7)[:n]}
}

// TestSelection compares what selects from a row with its definition.
func TestSelection(t *testing.T) {
	inf := float32(math.Inf(1))
	bounds := []float32{-inf, -math.MaxFloat32, -1, -1e-40, 0, 1e-40, .5, 1, 2, math.MaxFloat32, inf}
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range lengths {
			for name, all := range scoreRows(n + 1) {
				x, at := all[:n], fmt.Sprintf("%s, %d", name, n) // one score lies behind x
				all[n] = inf
				if got, want := k.Largest(x), Go.Largest(x); got != want {
					t.Fatalf("Largest %s: %v, want %v", at, got, want)
				}
				for rows := range min(4, n+1) {
					some := n - rows // rows overlap
					got, want := filled(some+1, 7), filled(some+1, 7)
					k.LargestOfRows(got[:some], all, 1, rows)
					Go.LargestOfRows(want[:some], all, 1, rows)
					if !slices.Equal(got, want) {
						t.Fatalf("LargestOfRows %s, %d rows: %v, want %v", at, rows, got, want)
					}
				}
				for i, low := range bounds {
					if got, want := k.Count(x, low), Go.Count(x, low); got != want {
						t.Fatalf("Count %s, %v: %d, want %d", at, low, got, want)
					}
					for _, high := range bounds[i:] {
						sameBetween(t, k, at, x, low, high)
					}
				}
			}
		}
	})
}

// sameBetween compares Between with its definition.
func sameBetween(t *testing.T, k *Kernels, at string, x []float32, low, high float32) {
	t.Helper()
	got, want := filled(len(x)+BetweenSlack+1, 7), make([]float32, len(x))
	n, above := k.Between(got[:len(x)+BetweenSlack], x, low, high)
	m, more := Go.Between(want, x, low, high)
	if n != m || above != more || !slices.Equal(got[:n], want[:m]) {
		t.Fatalf("Between %s, %v to %v: %v and %d above, want %v and %d", at, low, high, got[:n], above, want[:m], more)
	}
	if got[len(got)-1] != 7 {
		t.Fatalf("Between %s, %v to %v: wrote behind dst", at, low, high)
	}
}

// TestMasses compares sums of exponentials with their definition.
func TestMasses(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range lengths {
			for _, spread := range []float32{.01, 1, 30, 300, 3000} {
				x := normal(n)
				for i := range x {
					if x[i] *= spread; i%9 == 4 {
						x[i] = float32(math.NaN())
					} else if i%11 == 5 {
						x[i] = float32(math.Inf(-1))
					}
				}
				top := Go.Largest(x)
				for _, high := range []float32{-math.MaxFloat32, -spread, 0, spread, top} {
					all, above := k.Masses(x, max(top, -1), high)
					wantAll, wantAbove := Go.Masses(x, max(top, -1), high)
					if !(math.Abs(all-wantAll) <= 1e-13*wantAll) || !(math.Abs(above-wantAbove) <= 1e-13*wantAll) {
						t.Fatalf("Masses of %d, spread %v, above %v: %v and %v, want %v and %v", n, spread, high, all, above, wantAll, wantAbove)
					}
				}
			}
		}
	})
}

// TestLabels compares the products of channel labels with those of a tile of Multiply, which they
// equal to the bit: both add in order with one rounding for each term.
func TestLabels(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for _, n := range []int{1, 2, 3, 4, 5, 8, 16, 31} {
			q, labels := normal(TileRows*n), halves(normal(n*Tile))
			wide, got, want := make([]float32, n*Tile), make([]float32, Tile), make([]float32, TileRows*Tile)
			k.FromHalf(wide, labels)
			k.Multiply(Matrix{want, Tile}, Matrix{q, n}, Matrix{wide, Tile}, nil, n, Tile)
			k.Labels(got, q[:n], labels, nil)
			compare(t, fmt.Sprint("Labels ", n), got, want[:Tile], 0)
			Go.Labels(want, q[:n], labels, nil)
			within(t, fmt.Sprint("Labels ", n), got, want[:Tile], 1e-5)
		}
	})
}

// TestWriteTile compares rows that are written, and what lies between them, with their definition.
func TestWriteTile(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		for heads := range 6 {
			for _, stride := range []int{Tile, Tile + 1, 3 * Tile} {
				x, got := normal(heads*Tile), filled(heads*stride+1, 7)
				want := clone(got)
				k.WriteTile(got, stride, x, .3)
				Go.WriteTile(want, stride, x, .3)
				if !slices.Equal(got, want) {
					t.Fatalf("WriteTile of %d heads, %d apart: %v, want %v", heads, stride, got, want)
				}
			}
		}
	})
}

// TestSigns compares the agreement of sign bits with its definition.
func TestSigns(t *testing.T) {
	natives(t, func(t *testing.T, k *Kernels) {
		rng := rand.New(rand.NewPCG(7, 7))
		for _, words := range []int{1, 2, 3, 4, 5, 8} {
			q, keys := make([]int32, words), make([]int32, words*Tile)
			for i := range q {
				q[i] = int32(rng.Uint32())
			}
			for i := range keys {
				keys[i] = [...]int32{int32(rng.Uint32()), q[i%words], ^q[i%words], q[i%words] ^ 1<<(i%32)}[i/words%4]
			}
			got, want := make([]float32, Tile), make([]float32, Tile)
			k.Signs(got, q, keys)
			Go.Signs(want, q, keys)
			compare(t, fmt.Sprintf("Signs of %d words", words), got, want, 0)
		}
	})
}

func BenchmarkSelection(b *testing.B) {
	const n = 32 << 10
	k, x := Best(), normal(n)
	dst, set := make([]float32, n+BetweenSlack), make([]uint64, n/64)
	list := make([]int32, n)
	for name, f := range map[string]func(){
		"largest": func() { k.Largest(x) }, "count": func() { k.Count(x, 1) }, "between": func() { k.Between(dst, x, 1.1, 1.4) },
		"masses": func() { k.Masses(x, 5, 1) }, "atLeast": func() { k.AtLeast(set, x, 1.3) },
		"positions": func() { k.AtLeast(set, x, 1.3); k.Positions(list, set) },
	} {
		b.Run("kernel="+name, func(b *testing.B) {
			for b.Loop() {
				f()
			}
		})
	}
}
