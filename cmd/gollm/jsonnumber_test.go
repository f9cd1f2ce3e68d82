package main

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
		{perplexityReport{Perplexity: jsonNumber(inf), StdErr: jsonNumber(nan)}, `{"perplexity":null,"std_err":null,"tokens":0,"windows":0,"complete":false,"ctx":0,"stride":0,"attn":"","model":""}`},
		{[]jsonNumber{1.5, jsonNumber(-inf), 0, 1e300}, `[1.5,null,0,1e+300]`},
		{jsonNumbers{0.1, float32(nan), float32(inf), -2}, `[0.1,null,null,-2]`},
	} {
		got, err := json.Marshal(tt.x)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s, %v, want %s", got, err, tt.want)
		}
	}
}
