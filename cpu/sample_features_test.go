package cpu

import (
	"math"
	"testing"

	"github.com/gollm/gollm/device"
)

// S-3: features of queries with given random numbers.
func TestExampleOfFeatures(t *testing.T) {
	q := []float32{.8, -.4, .2, 0}
	numbers := [][]float64{{.3, .6, .1, .5}, {.99, .2, .9, .5}}
	group := []float32{.8, -.4, .2, -.4, .4, .1}
	for _, c := range []struct {
		name string
		q    []float32
		dim  int
		f    device.QueryFeatures
		u    func(draw, i int) float64
		want []float64
	}{
		{"standard", q, 4, device.QueryFeatures{Draws: 2}, func(t, i int) float64 { return numbers[t][i] }, []float64{.8, -.4, .4, 0}},
		{"strata, low numbers", q, 4, device.QueryFeatures{Draws: 4, Strata: true}, func(int, int) float64 { return 0 }, []float64{.8, -.4, .2, 0}},
		{"strata, high numbers", q, 4, device.QueryFeatures{Draws: 4, Strata: true}, func(int, int) float64 { return 1 - 1.0/(1<<24) }, []float64{.8, -.4, .2, 0}},
		{"group", group, 3, device.QueryFeatures{Draws: 2, Mean: true}, func(t, i int) float64 {
			return [][]float64{{.5, .6, .9}, {.5, .7, .9}}[t][i] // counts 2, 1, 0
		}, []float64{.8, -.3, 0, -.4, .3, 0}},
		{"zeros", make([]float32, 4), 4, device.QueryFeatures{Draws: 2}, func(int, int) float64 { return 0 }, make([]float64, 4)},
		{"zeros of a group", make([]float32, 6), 3, device.QueryFeatures{Draws: 2, Mean: true, Strata: true}, func(int, int) float64 { return 0 }, make([]float64, 6)},
	} {
		dst := make([]float32, len(c.q))
		estimateFeatures(dst, c.q, c.dim, c.f, c.u)
		for i, w := range c.want {
			if !(math.Abs(float64(dst[i])-w) <= 1e-7) {
				t.Errorf("%s: %v, want %v", c.name, dst, c.want)
				break
			}
		}
	}
}
