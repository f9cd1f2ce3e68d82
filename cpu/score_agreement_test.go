package cpu

import (
	"math"
	"testing"
)

// TestDivergence has probabilities of 0, which add nothing: 0·ln 0 is 0.
func TestDivergence(t *testing.T) {
	for _, c := range []struct {
		p, q []float64
		want float64
	}{
		{[]float64{1, 0}, []float64{0, 1}, math.Sqrt(math.Ln2)},
		{[]float64{.5, .5, 0}, []float64{.5, .5, 0}, 0},
		{[]float64{1, 0}, []float64{.5, .5}, math.Sqrt((math.Log(4./3) + math.Log(2./3)/2 + math.Log(2)/2) / 2)},
	} {
		if got := divergence(c.p, c.q); !(math.Abs(got-c.want) < 1e-12) {
			t.Errorf("of %v and %v: %v, want %v", c.p, c.q, got, c.want)
		}
	}
}
