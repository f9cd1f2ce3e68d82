package sparse

import (
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// A model that rotates neighbours has the numbers of a Hugging Face head in
// another order.
func TestLayoutOfHeads(t *testing.T) {
	e := &Env{Shape: Shape{HeadDim: 8}}
	plain := []int{0, 1, 2, 3, 4, 5, 6, 7}
	if got := e.stored("halves"); !slices.Equal(got, plain) {
		t.Errorf("a model that rotates halves: %v", got)
	}
	e.Rope = device.Rotation{Interleaved: true}
	if got, want := e.stored("halves"), []int{0, 2, 4, 6, 1, 3, 5, 7}; !slices.Equal(got, want) {
		t.Errorf("a model that rotates neighbours: %v, want %v", got, want)
	}
	if got := e.stored("stored"); !slices.Equal(got, plain) {
		t.Errorf("numbers of the cache: %v", got)
	}
	// a matrix [in, out] whose rows follow the layout
	x := make([]float32, 16)
	for i := range x {
		x[i] = float32(i)
	}
	if got, want := transposed(x, 8, 2, e.stored("halves")), []float32{0, 8, 2, 10, 4, 12, 6, 14, 1, 9, 3, 11, 5, 13, 7, 15}; !slices.Equal(got, want) {
		t.Errorf("transposed: %v, want %v", got, want)
	}
}

func TestLabelChannels(t *testing.T) {
	for _, c := range []struct{ dim, factor, want int }{
		{64, 1, 64}, {64, 16, 4}, {65, 16, 5}, {63, 16, 4}, {64, 64, 1}, {64, 65, 1}, {64, math.MaxInt, 1},
	} {
		if got := labelChannels(c.dim, c.factor); got != c.want {
			t.Errorf("one in %d of %d channels is %d, want %d", c.factor, c.dim, got, c.want)
		}
	}
}
