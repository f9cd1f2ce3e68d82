package engine

import (
	"math"
	"testing"

	"github.com/gollm/gollm/device"
)

// TestUndecided: an entry is undecided where readings with moved inputs differ in it, and
// wrong where none of them has it, or all have.
func TestUndecided(t *testing.T) {
	at := rowOf{layer: 2, pos: 40, head: 1}
	list := func(index ...int32) selected {
		return selected{plan: device.Plan{Selected: device.Tokens}, index: index}
	}
	weighted := func(w float32) selected {
		return selected{plan: device.Plan{Selected: device.Tokens}, index: []int32{7}, weight: []float32{w}}
	}
	one := func(s selected) map[rowOf]selected { return map[rowOf]selected{at: s} }
	for _, c := range []struct {
		name             string
		got              selected
		readings         []selected
		undecided, wrong int
	}{
		{"equal", list(1, 5, 9), []selected{list(1, 5, 9)}, 0, 0},
		{"a tie", list(1, 5, 8), []selected{list(1, 5, 9), list(1, 5, 8)}, 2, 0},
		{"not the tie", list(1, 5, 7), []selected{list(1, 5, 9), list(1, 5, 8)}, 1, 1},
		{"one less", list(1, 5), []selected{list(1, 5, 9), list(1, 5, 9)}, 0, 1},
		{"one more", list(1, 5, 8, 9), []selected{list(1, 5, 9), list(1, 5, 9)}, 0, 1},
		{"about the weight", weighted(2.01), []selected{weighted(2)}, 0, 0},
		{"another weight", weighted(2.1), []selected{weighted(2)}, 0, 1},
		{"a weight that is open", weighted(2.1), []selected{weighted(2), weighted(2.1)}, 1, 0},
		{"another plan", list(1), []selected{{plan: device.Plan{Selected: device.Blocks}, index: []int32{1}}}, 0, 1},
	} {
		var all []map[rowOf]selected
		for _, r := range c.readings {
			all = append(all, one(r))
		}
		got := compareSelections(one(c.got), all)
		if got.Undecided != c.undecided || got.Wrong != c.wrong {
			t.Errorf("%s: %+v, want %d undecided and %d wrong", c.name, got, c.undecided, c.wrong)
		}
	}
	if c := compareSelections(one(list(1)), []map[rowOf]selected{{}}); c.Wrong != 1 {
		t.Errorf("a row that the CPU does not plan: %+v", c)
	}
}

// TestMoved: numbers move by as much as is said, up and down, and the other way with the
// other sign; what half precision holds stays as it is.
func TestMoved(t *testing.T) {
	x := make([]float32, 1000)
	for i := range x {
		x[i] = float32(i+1) / 7
	}
	up, down := moved(x, 1, 5), moved(x, -1, 5)
	n := 0
	for i, v := range x {
		d := (float64(up[i]) - float64(v)) / float64(v)
		if math.Abs(math.Abs(d)-inputNoise) > 1e-6*20 || (up[i] > v) == (down[i] > v) {
			t.Fatalf("%g becomes %g and %g", v, up[i], down[i])
		}
		if d > 0 {
			n++
		}
	}
	if n < 400 || n > 600 {
		t.Errorf("%d of 1000 move up", n)
	}
	for _, c := range [][2]float32{{1, 1}, {1 + 1./2048, 1}, {1 + 3./2048, 1 + 2./1024}, {-1.0008, -1 - 1./1024}, {1e-7, 1. / (1 << 23)}, {3e-8, 1. / (1 << 24)}, {65503, 65504}} {
		if got := halves([]float32{c[0]})[0]; got != c[1] {
			t.Errorf("%v is rounded to %v, want %v", c[0], got, c[1])
		}
	}
}
