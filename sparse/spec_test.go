package sparse_test

import (
	"testing"

	"github.com/gollm/gollm/sparse"
)

func TestPhases(t *testing.T) {
	for text, want := range map[string][2]bool{
		"dense":                      {true, true},
		"topk":                       {true, true},
		"cis":                        {false, true},
		"anchor":                     {true, false},
		"cpe":                        {true, true},
		"etf + psaw":                 {true, true},
		"decode=topk":                {false, true},
		"prefill=topk":               {true, false},
		"prefill=dense decode=cis":   {true, true},
		"prefill=anchor decode=topk": {true, true},
	} {
		s, err := sparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if prefill, decode := s.Phases(); prefill != want[0] || decode != want[1] {
			t.Errorf("%s works in prefill: %v, in decode: %v, want %v", text, prefill, decode, want)
		}
	}
}
