package sparse

import (
	"strings"
	"testing"
)

func TestParseRoundTrip(t *testing.T) {
	for _, name := range Methods() {
		p, err := Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.String() != name {
			t.Errorf("Parse(%q).String() = %q", name, p)
		}
	}
}

func TestParseErrorListsMethods(t *testing.T) {
	for _, bad := range []string{"", "densee", "dense(x=1)", "sketchwalk2"} {
		_, err := Parse(bad)
		if err == nil || !strings.Contains(err.Error(), "dense") {
			t.Errorf("Parse(%q): err = %v", bad, err)
		}
	}
}
