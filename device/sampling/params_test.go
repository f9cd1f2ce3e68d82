package sampling

import (
	"strings"
	"testing"
)

func TestParseOrder(t *testing.T) {
	for text, want := range map[string]string{
		"penalties;top_k;top_p;min_p;temperature": "penalties;top_k;top_p;min_p;temperature",
		"TEMP; top-k ;nucleus":                    "temperature;top_k;top_p",
		"minp":                                    "min_p",
	} {
		o, err := ParseOrder(text)
		if err != nil || o.String() != want {
			t.Errorf("%q is %v, %v, want %s", text, o, err, want)
		}
		if again, err := ParseOrder(o.String()); err != nil || again != o {
			t.Errorf("%v is %v when it is read again, %v", o, again, err)
		}
	}
	for text, want := range map[string]string{
		"": `unknown sampler ""`, "top_k;": `unknown sampler ""`, "top_q": `unknown sampler "top_q"`, "top_k,top_p": "with semicolons between them",
		"xtc; DRY;top_k;dry": "leave out dry, xtc: not supported",
		"temp;temperature":   "temperature is there twice", "top_k;top_p;min_p;temp;penalties;top_k": "top_k is there twice",
		strings.Repeat("x", 5000): "unknown sampler",
	} {
		if o, err := ParseOrder(text); err == nil || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%.40q is %v, %v, want an error with %q", text, o, err, want)
		}
	}
	if zero := (Order{}); zero.String() != DefaultOrder.String() || !zero.Has(StageMinP) {
		t.Errorf("the zero order is %v, want %v", zero, DefaultOrder)
	}
}

// A sampler that is not named is off, and one that changes nothing is left out.
func TestStages(t *testing.T) {
	s := Params{Temperature: 1, TopK: 4, TopP: 1, RepeatPenalty: 1, RepeatLastN: 9}
	if list, n := s.Stages(); n != 2 || list[0] != StageTopK || list[1] != StageTemperature {
		t.Errorf("%v of %v", n, list)
	}
	s = Params{Order: Order{StageMinP}, MinP: 0.5, TopK: 4}
	if list, n := s.Stages(); n != 1 || list[0] != StageMinP || s.Greedy() {
		t.Errorf("%v of %v", n, list)
	}
}
