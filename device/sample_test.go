package device

import (
	"fmt"
	"math"
	"testing"
)

// The worked example of budgets: a tail of 1000, a pilot of .1, .3, .2, .4 and a
// fixed sum of 400.
func TestBudgetOfAPilot(t *testing.T) {
	s := ResidualSpread{Positions: 1000, Sum: 400 + 1000*.25, Var: (.0225*2 + .0025*2) / 3}
	if got := fmt.Sprintf("%.6f", math.Sqrt(s.Var)); got != "0.129099" {
		t.Errorf("deviation %s", got)
	}
	const z05, z05one, z20 = 1.959963984540054, 1.6448536269514722, 1.2815515655446004
	for _, c := range []struct {
		name   string
		tail   Residual
		need   float64
		unit   float64 // of the last digit given
		budget int
	}{
		{"eps=.05", Residual{Eps: .05, Z: z05}, 60.614735, 1e-6, 61},
		{"one-sided", Residual{Eps: .05, Z: z05one}, 42.69, 1e-2, 43},
		{"eps=.01", Residual{Eps: .01, Z: z05}, 1515.37, 1e-2, 1000},
		{"finite", Residual{Eps: .01, Z: z05, Finite: true}, 602.44, 1e-2, 603},
		{"delta=.2", Residual{Eps: .05, Z: z20}, 25.92, 1e-2, 26},
		{"eps=0", Residual{Z: z05}, math.Inf(1), 0, 1000},
	} {
		need := c.tail.Need(s)
		if !(math.Abs(need-c.need) <= c.unit/2) && need != c.need {
			t.Errorf("%s: need %v, want %v", c.name, need, c.need)
		}
		if got := c.tail.Budget(need, s.Positions, 4); got != c.budget {
			t.Errorf("%s: budget %d, want %d", c.name, got, c.budget)
		}
	}
}

// The worked example of the error of the output: both halves need the same.
func TestBudgetOfValues(t *testing.T) {
	s := ResidualSpread{Positions: 1000, Sum: 650, Var: 1. / 60, Norm: 300, Trace: .25}
	tail := Residual{Eps: .1, Z: 1.959963984540054, Values: true}
	a, c := 1000*math.Sqrt(s.Trace)/s.Norm, 1000*math.Sqrt(s.Var)/s.Sum
	if got := fmt.Sprintf("%.6f %.6f", a, c); got != "1.666667 0.198615" {
		t.Errorf("relative spreads %s", got)
	}
	eps1, eps2 := tail.Eps/2*a/(a+c), tail.Eps/2*c/(a+c)
	if got := fmt.Sprintf("%.6f %.6f", eps1, eps2); got != "0.044676 0.005324" {
		t.Errorf("errors %s", got)
	}
	need := tail.Need(s)
	for _, part := range []float64{tail.Z * a / eps1, tail.Z * c / eps2} {
		if math.Abs(part*part/need-1) > 1e-12 {
			t.Errorf("need %v, one half needs %v", need, part*part)
		}
	}
	if got := fmt.Sprintf("%.3f", need); got != "5346.195" {
		t.Errorf("need %v, want 5346.195", need)
	}
	if got := tail.Budget(need, 1000, 2); got != 1000 {
		t.Errorf("budget %d, want the whole tail", got)
	}
}

func TestBudgetBounds(t *testing.T) {
	tail := Residual{Eps: .05, Z: 2, Pilot: Amount{Share: .05}}
	if got := tail.Need(ResidualSpread{Positions: 10, Sum: 3}); got != 0 {
		t.Errorf("equal weights need %v, want 0", got)
	}
	for _, c := range []struct {
		need     float64
		n, pilot int
		want     int
	}{
		{0, 10, 3, 3}, {3.5, 10, 3, 4}, {9.5, 10, 3, 10}, {math.NaN(), 10, 3, 10}, {math.Inf(1), 10, 3, 10}, {1, 2, 2, 2},
	} {
		if got := tail.Budget(c.need, c.n, c.pilot); got != c.want {
			t.Errorf("Budget(%v, %d, %d) = %d, want %d", c.need, c.n, c.pilot, got, c.want)
		}
	}
	for n, want := range map[int]int{2: 2, 3: 2, 40: 2, 60: 3, 1000: 50} {
		if got := tail.PilotSize(n); got != want {
			t.Errorf("pilot of %d is %d, want %d", n, got, want)
		}
	}
}
