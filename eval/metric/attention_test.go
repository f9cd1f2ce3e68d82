package metric

import (
	"slices"
	"testing"
)

// The expected values are derived by hand from the definitions of the papers.

func TestRow(t *testing.T) {
	weights, selected := []float64{.5, .2, .1, .1, .05, .05}, []int{0, 1, 4}
	near(t, "mass", Mass(weights, selected), 0.75)
	near(t, "dropped", 1-Mass(weights, selected), 0.25)
	if top := Top(weights, 3); !slices.Equal(top, []int{0, 1, 2}) {
		t.Errorf("oracle %v, want the first of equal weights", top)
	}
	near(t, "oracle mass", Mass(weights, Top(weights, 3)), 0.8)
	near(t, "overlap", Overlap(weights, selected), 2./3)
	near(t, "overlap of nothing", Overlap(weights, nil), 0)
	near(t, "bound", InformationBound(0.25, 6), 2.0205500238516443)
	near(t, "bound of nothing dropped", InformationBound(0, 6), 0)
}

func TestGroupDensity(t *testing.T) {
	mean, union, worst := GroupDensity([][]int{{0, 1, 4}, {0, 2, 4}, {0, 1, 5}, {0, 1, 4}}, 6)
	near(t, "mean", mean, 0.5)
	near(t, "union", union, 5./6)
	near(t, "worst", worst, 1)
	_, _, worst = GroupDensity([][]int{make([]int, 128), make([]int, 128), make([]int, 128), make([]int, 128)}, 32768)
	near(t, "128 draws of four heads over 32k", worst, 0.015625)
}

func TestRatios(t *testing.T) {
	near(t, "retrieval", RetrievalRatio([]int{1024, 128, 128, 128}, 32, 32), 0.34375)
	near(t, "variance", MultinomialVariance([]float64{.5, .5}, [][]float64{{1, 0}, {0, 1}}, 4), 0.125)
	if n := ChunkedScored(25, 10); n != 22 {
		t.Errorf("%d predictions, want 22", n)
	}
}
