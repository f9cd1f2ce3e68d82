package sparse

import (
	"math"
	"testing"
)

func TestLabelChannels(t *testing.T) {
	for _, c := range []struct{ dim, factor, want int }{
		{64, 1, 64}, {64, 16, 4}, {65, 16, 5}, {63, 16, 4}, {64, 64, 1}, {64, 65, 1}, {64, math.MaxInt, 1},
	} {
		if got := labelChannels(c.dim, c.factor); got != c.want {
			t.Errorf("one in %d of %d channels is %d, want %d", c.factor, c.dim, got, c.want)
		}
	}
}
