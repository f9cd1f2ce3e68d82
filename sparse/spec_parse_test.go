package sparse

import (
	"strings"
	"testing"
)

func TestParseRoundTrip(t *testing.T) {
	for _, e := range Methods() {
		s, err := Parse(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if s.String() != e.Name {
			t.Errorf("Parse(%q).String() = %q", e.Name, s)
		}
		for preset := range e.Presets {
			s, err := Parse(e.Name + ":" + preset)
			if err != nil {
				t.Errorf("preset %s: %v", preset, err)
				continue
			}
			again, err := Parse(s.String())
			if err != nil || again.String() != s.String() {
				t.Errorf("preset %s is %q, parsed again %v (%v)", preset, s, again, err)
			}
		}
	}
}

func TestParseErrorsListWhatIsValid(t *testing.T) {
	tests := []struct{ spec, want string }{
		{"", "there are: dense"},
		{"densee", "there are: dense"},
		{"dense(x=1)", "no options"},
		{"dense(x", "not closed"},
		{"dense:paper", "no preset"},
		{"dense + dense", "cannot be combined"},
		{"prefill=nope decode=dense", "there are: dense"},
	}
	for _, tt := range tests {
		_, err := Parse(tt.spec)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Parse(%q): err = %v, want it to contain %q", tt.spec, err, tt.want)
		}
	}
}
