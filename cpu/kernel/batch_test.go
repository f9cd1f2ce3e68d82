package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// awkward fills x with normal numbers, some of them special.
func awkward(rng *rand.Rand, x []float32) {
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-38, 1e-42, 3e38, -3e38, 0.5, 1.5, 2.5, 127, -127}
	for i := range x {
		x[i] = float32(rng.NormFloat64())
		if rng.IntN(40) == 0 {
			x[i] = special[rng.IntN(len(special))]
		}
	}
}

// Every ISA rounds activations to the same bits.
func TestQuantizeISAs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 0))
	for _, l := range available[1:] {
		for _, s := range []scaling{scale32, scale256} {
			for _, cols := range []int{32, 224, 256, 512, 768 + 32} {
				x := make([]float32, cols)
				awkward(rng, x)
				if cols == 512 {
					clear(x[:256])
				}
				supers := (cols + superLen - 1) / superLen
				got, want := make([]actBlock, supers), make([]actBlock, supers)
				l.quantize(got, 1, x, s)
				quantizeGo(want, 1, x, s)
				for i := range want {
					if got[i] != want[i] {
						t.Fatalf("%s, scaling %d, %d activations, block %d:\n%v\nwant\n%v", l.isa, s, cols, i, got[i], want[i])
					}
				}
			}
		}
	}
}

// Rounding is to the nearest of 255 steps, and the sums are those of the
// integers.
func TestQuantizeError(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 0))
	x := make([]float32, 512)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	for s, group := range map[scaling]int{scale32: 32, scale256: 256} {
		acts := make([]actBlock, 2)
		current.quantize(acts, 1, x, s)
		for k, v := range x {
			var largest float64
			for _, w := range x[k/group*group:][:group] {
				largest = max(largest, math.Abs(float64(w)))
			}
			a := &acts[k/256]
			got := float64(a.scale[k%256/32]) * (float64(a.q[k%256]) - 128)
			if math.Abs(got-float64(v)) > largest/254*1.0001 {
				t.Fatalf("scaling %d: activation %d is %v, rounded to %v", s, k, v, got)
			}
		}
		var sum int
		for _, q := range acts[1].q[64:96] {
			sum += int(q) - 128
		}
		if int(acts[1].sum32[2]) != sum {
			t.Errorf("scaling %d: sum32[2] = %d, want %d", s, acts[1].sum32[2], sum)
		}
	}
}

// An infinity or a NaN makes its own group NaN and no other.
func TestQuantizeNonFinite(t *testing.T) {
	for _, l := range available {
		for _, bad := range []float32{float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())} {
			x := make([]float32, 512)
			for i := range x {
				x[i] = 1
			}
			x[40] = bad
			acts := make([]actBlock, 2)
			l.quantize(acts, 1, x, scale32)
			if s := acts[0].scale; s[1] == s[1] || s[0] != 1.0/127 || s[2] != 1.0/127 {
				t.Errorf("%s: scales %v after %v at 40", l.isa, s, bad)
			}
			l.quantize(acts, 1, x, scale256)
			if s := acts[0].scale[0]; s == s || acts[1].scale[0] != 1.0/127 {
				t.Errorf("%s: scales %v, %v after %v at 40", l.isa, s, acts[1].scale[0], bad)
			}
		}
	}
}
