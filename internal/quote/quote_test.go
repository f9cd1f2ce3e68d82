package quote

import (
	"os/exec"
	"slices"
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

// A shell reads the words again, whatever they hold.
func TestCommand(t *testing.T) {
	words := []string{"gollm", "--attn", "prefill=dense decode=quest(budget=0.2)", "a/b.c:d", "", "it's", "$HOME `x` \\ \"*\"\n", "é", "a=b;c"}
	if got, want := Command(words[:4]), "gollm --attn 'prefill=dense decode=quest(budget=0.2)' a/b.c:d"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	out, err := exec.Command("sh", "-c", "printf '%s\\0' "+Command(words)).Output()
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, words) {
		t.Errorf("%v: the shell reads %q, want %q", err, got, words)
	}
}
