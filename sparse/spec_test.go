package sparse_test

import (
	"strings"
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

// TestErrorsOfSpecsSayWhatToWrite has slips of the pen, and the words that help.
func TestErrorsOfSpecsSayWhatToWrite(t *testing.T) {
	const phases = "phases are prefill and decode, with a space between them: prefill=NAME decode=NAME"
	for text, want := range map[string]string{
		"prefill=dense,decode=quest":              phases,
		"prefill=dense;decode=quest":              phases,
		"prefill=dense+decode=quest":              phases,
		"prefill=quest(budget=64),decode=dense":   phases,
		"decode=quest(budget=64)prefill=dense":    phases,
		"prefil=dense decode=quest":               phases,
		"quest decode=dense":                      phases,
		"prefill=dense decode=quest decode":       "methods are joined by +, and a space is between phases: prefill=NAME decode=NAME",
		"etf psaw":                                "methods are joined by +",
		"nope":                                    "there are: dense, ",
		"sketchwalk density=0.1":                  `options stand in parentheses: sketchwalk(density=0.1)`,
		"prefill=sketchwalk density=0.1,depth=2":  phases, // no option of it
		"cis:gsm8k-128  s=4, k=0.1 + santa":       phases,
		"decode=cis:gsm8k-128 s=4, k=0.1":         "cis:gsm8k-128(s=4,k=0.1)",
		"quest(budget=64":                         "the parenthesis is not closed",
		"santa(samples=0)":                        "option samples: 0, want 1 to 1048576",
		"santa(samples=0,exec=flash)":             "option samples: 0",
		"cis(s=0)":                                "option s: 0, want 1 to 4096",
		"prefill=dense decode=cis(s=99999999999)": "option s: 99999999999, want 1 to 4096",
		"prefill=dense decode=cis(s=4097)":        "option s: 4097, want 1 to 4096",
	} {
		if s, err := sparse.Parse(text); err == nil {
			t.Errorf("%s is read as %s", text, s)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{"santa(samples=1)", "cis(s=4096)", "decode=santa prefill=streaming(sink=1,window=8)"} {
		if _, err := sparse.Parse(text); err != nil {
			t.Error(err)
		}
	}
}

// TestSame compares specs that are written in several ways, and says in which phases they are dense.
func TestSame(t *testing.T) {
	for _, c := range []struct {
		a, b            string
		same            bool
		prefill, decode bool // of a
	}{
		{"dense", "prefill=dense decode=dense", true, true, true},
		{"quest(budget=512)", "prefill=dense decode=quest:paper-512", true, true, false},
		{"quest(budget=512)", "quest", false, true, false},
		{"quest( share=head, budget=9 )", "decode=quest(budget=9)", true, true, false},
		{"streaming", "prefill=streaming decode=dense", false, false, false},
		{"prefill=streaming decode=dense", "decode=dense prefill=streaming", true, false, true},
		{"santa + streaming", "streaming+santa", true, false, false},
	} {
		a, err := sparse.Parse(c.a)
		b, other := sparse.Parse(c.b)
		if err != nil || other != nil {
			t.Fatal(err, other)
		}
		if a.Same(b) != c.same || b.Same(a) != c.same {
			t.Errorf("%s and %s are the same: %v, want %v", c.a, c.b, a.Same(b), c.same)
		}
		if prefill, decode := a.DenseIn(); prefill != c.prefill || decode != c.decode {
			t.Errorf("%s is dense in prefill %v and decode %v, want %v and %v", c.a, prefill, decode, c.prefill, c.decode)
		}
	}
}
