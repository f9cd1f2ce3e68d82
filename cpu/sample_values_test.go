package cpu

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// exampleMass and exampleValues are the worked example of sampled values: four positions.
var exampleMass, exampleValues = []float64{.5, .3, .15, .05}, []float64{1, 2, -1, 4}

// exampleTiles puts the softmax mass into the first per positions of each tile; the others
// have none.
func exampleTiles(per int) (s *valueScratch, x []float32) {
	s = &valueScratch{}
	for lo := 0; lo < len(exampleMass); lo += per {
		r := massRun{scale: .05}
		for i := range runLen {
			v := float32(0)
			if i < per {
				v = float32(math.Round(exampleMass[lo+i] / .05))
				r.mass += exampleMass[lo+i]
			}
			x = append(x, v)
		}
		s.runs = append(s.runs, r)
	}
	return s, x
}

// counted is how often each position of the example was drawn, and the output: the mean of the
// drawn values, weighted by tile.
func (s *valueScratch) counted(x []float32, per int, d device.ValueDraws, u func(tile, k int) float64) (counts []int32, y float64) {
	all := make([]int32, len(x))
	s.cutTiles(&d, len(x))
	for i, part := range s.tiles {
		s.thresholds(d.Sampler, part.samples, func(k int) float64 { return u(i, k) })
		s.count(all, x, part)
		for j := part.lo; j < part.hi; j++ {
			if all[j] > 0 {
				each := 1 / float64(d.Samples)
				if d.Tiles == device.Equal {
					each = part.mass / float64(part.samples)
				}
				y += each * float64(all[j]) * exampleValues[j/runLen*per+j%runLen]
			}
		}
	}
	for i := range exampleValues {
		counts = append(counts, all[i/per*runLen+i%per])
	}
	return counts, y
}

// S-1: draws of the three samplers with given random numbers.
func TestExampleOfDraws(t *testing.T) {
	s, x := exampleTiles(4)
	for _, c := range []struct {
		by     device.Sampler
		u      []float64
		counts []int32
		y      float64
	}{
		{device.Systematic, []float64{.1, .1, .1, .1}, []int32{2, 2, 0, 0}, 1.5},
		{device.Systematic, []float64{.6, .6, .6, .6}, []int32{2, 1, 1, 0}, .75},
		{device.Systematic, []float64{.95, .95, .95, .95}, []int32{2, 1, 0, 1}, 2},
		{device.Stratified, []float64{.9, .25, .5, .1}, []int32{2, 2, 0, 0}, 1.5},
		{device.Independent, []float64{.62, .10, .97, .49}, []int32{2, 1, 0, 1}, 2},
	} {
		counts, y := s.counted(x, 4, device.ValueDraws{Samples: 4, Sampler: c.by}, func(_, k int) float64 { return c.u[k] })
		if !slices.Equal(counts, c.counts) || math.Abs(y-c.y) > 1e-12 {
			t.Errorf("sampler %d, u=%v: counts %v, output %v, want %v, %v", c.by, c.u, counts, y, c.counts, c.y)
		}
	}
}

// grid is how many random numbers outputs are averaged over. The thresholds between outcomes
// of the example lie between two of them.
const grid = 2000

// moments are the mean and the variance of the output over one number u.
func moments(y func(u float64) float64) (mean, variance float64) {
	for i := range grid {
		mean += y((float64(i)+.5)/grid) / grid
	}
	for i := range grid {
		d := y((float64(i)+.5)/grid) - mean
		variance += d * d / grid
	}
	return mean, variance
}

// S-1: the variances of the three samplers. Stratified and independent draws are independent
// of each other: their variance is the sum of those of single draws.
func TestExampleOfVariances(t *testing.T) {
	s, x := exampleTiles(4)
	one := func(n int, limit float64) float64 { // the value of a draw of n
		counts := make([]int32, len(x))
		s.cutTiles(&device.ValueDraws{Samples: n}, len(x))
		s.limits = append(s.limits[:0], limit)
		s.count(counts, x, s.tiles[0])
		return exampleValues[slices.Index(counts, 1)]
	}
	want := map[int]string{1: "1.327500 1.327500 1.327500", 2: "0.663750 0.652500 0.652500", 4: "0.331875 0.265000 0.265000",
		8: "0.165937 0.127500 0.052500", 16: "0.082969 0.021250 0.016562"}
	for n, want := range want {
		size := float64(n)
		_, iid := moments(func(u float64) float64 { return one(n, size*u) })
		mean, sys := moments(func(u float64) float64 {
			_, y := s.counted(x, 4, device.ValueDraws{Samples: n}, func(int, int) float64 { return u })
			return y
		})
		var strat float64
		for k := range n {
			_, v := moments(func(u float64) float64 { return one(n, float64(k)+u) })
			strat += v
		}
		if math.Abs(mean-1.15) > 1e-9 {
			t.Errorf("%d samples: mean %v, want 1.15", n, mean)
		}
		// half a unit of the last digit may be rounded up or down
		if got := fmt.Sprintf("%.6f %.6f %.6f", iid/size-1e-9, strat/size/size-1e-9, sys-1e-9); got != want {
			t.Errorf("%d samples: variances %s, want %s", n, got, want)
		}
	}
}

// S-2: two tiles.
func TestExampleOfTiles(t *testing.T) {
	s, x := exampleTiles(2)
	remainder := device.ValueDraws{Samples: 4, Tiles: device.Remainder, Tile: runLen}
	equal := device.ValueDraws{Samples: 4, Tiles: device.Equal, Tile: runLen}
	for _, c := range []struct {
		d      device.ValueDraws
		offset []float64 // of the count form: 1 - u
		counts []int32
		y      float64
	}{
		{remainder, []float64{.3, .6}, []int32{2, 1, 1, 0}, .75},
		{device.ValueDraws{Samples: 4}, []float64{.3}, []int32{2, 1, 1, 0}, .75},
		{equal, []float64{.2, .5}, []int32{1, 1, 2, 0}, 1},
		{equal, []float64{.9, .1}, []int32{2, 0, 1, 1}, 1.1},
	} {
		counts, y := s.counted(x, 2, c.d, func(tile, _ int) float64 { return 1 - c.offset[tile] })
		if !slices.Equal(counts, c.counts) || math.Abs(y-c.y) > 1e-12 {
			t.Errorf("%+v: counts %v, output %v, want %v, %v", c, counts, y, c.counts, c.y)
		}
	}
	for n, want := range map[int]float64{4: 1.09375, 2: 1.375} {
		remainder.Samples = n
		mean, _ := moments(func(u float64) float64 {
			_, y := s.counted(x, 2, remainder, func(int, int) float64 { return u })
			return y
		})
		if math.Abs(mean-want) > 1e-9 {
			t.Errorf("%d samples by remainders: mean %v, want the biased %v", n, mean, want)
		}
	}
}
