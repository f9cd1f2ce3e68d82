package console

import (
	"encoding/json"
	"math"
	"testing"
)

// What is infinite or none is null in JSON, which knows no such numbers.
func TestJSONNumbers(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, tt := range []struct {
		x    any
		want string
	}{
		{struct{ A, B Number }{Number(inf), Number(nan)}, `{"A":null,"B":null}`},
		{[]Number{1.5, Number(-inf), 0, 1e300}, `[1.5,null,0,1e+300]`},
		{Numbers{0.1, float32(nan), float32(inf), -2}, `[0.1,null,null,-2]`},
	} {
		got, err := json.Marshal(tt.x)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
}
