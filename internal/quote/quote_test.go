package quote

import (
	"strings"
	"testing"
)

func TestShort(t *testing.T) {
	long := strings.Repeat("é", maxChars)
	for s, want := range map[string]string{
		"":                        `""`,
		"blk.0.attn_q.weight":     `"blk.0.attn_q.weight"`,
		"\x1b[2J\u202e\xff":       `"\x1b[2J\u202e\xff"`,
		long:                      `"` + long + `"`,
		long + "x":                `"` + long + `"... (161 bytes)`,
		strings.Repeat("\n", 1e6): `"` + strings.Repeat(`\n`, maxChars) + `"... (1000000 bytes)`,
	} {
		if got := Short(s); got != want {
			t.Errorf("%.100q: %s, want %s", s, got, want)
		}
	}
}
