package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
)

func TestVisible(t *testing.T) {
	const shown = `a\x1b]0;t\a\u009b2J\x7f\u202egnp\u2066\u200b\u200f\u061c\u2028\u00ad\U000e0041\u3164\r` + "\n" + `gollm: all is well\x9b31m`
	const plain = "a\tb\nÄ 漢字 🙂 é \ufffd ±│"
	for _, tt := range []struct {
		name     string
		show     func(string) string
		in, want string
	}{
		{"visible", visible, clitest.Evil, shown},
		{"visible", visible, plain, plain},
		{"oneLine", OneLine, clitest.Evil, strings.ReplaceAll(shown, "\n", `\n`)},
		{"oneLine", OneLine, "a\tb", `a\tb`},
		{"visibleText", VisibleText, plain + "👩\u200d💻 نمی\u200cخواهم \u200f", plain + "👩\u200d💻 نمی\u200cخواهم \u200f"},
		{"visibleText", VisibleText, "\x1b[2J\u009bm\r\u202e\u2069\xff\x7f", `\x1b[2J\u009bm\r\u202e\u2069\xff\x7f`},
	} {
		if got := tt.show(tt.in); got != tt.want {
			t.Errorf("%s(%q) = %q, want %q", tt.name, tt.in, got, tt.want)
		}
	}
}

// What a screen is given in pieces is what it is given at once.
func TestScreenTakesPieces(t *testing.T) {
	for _, text := range []string{clitest.Evil, "漢\u202e字🙂\U000e0041", "\xf0\x9f", "a\xe6\xbc"} {
		for size := 1; size < 8; size++ {
			var out strings.Builder
			s := NewScreen(&out)
			for piece := range slices.Chunk([]byte(text), size) {
				if n, err := s.Write(piece); n != len(piece) || err != nil {
					t.Fatal(n, err)
				}
			}
			s.flush()
			if got, want := out.String(), visible(text); got != want {
				t.Errorf("%q in pieces of %d bytes: %q, want %q", text, size, got, want)
			}
		}
	}
}

func TestJSONHasNoHiddenCharacters(t *testing.T) {
	want := strings.ToValidUTF8(clitest.Evil, "\ufffd")
	var out bytes.Buffer
	if err := WriteJSON(&out, map[string]string{want: want}); err != nil {
		t.Fatal(err)
	}
	clitest.Harmless(t, "writeJSON", out.String())
	var got map[string]string
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || got[want] != want {
		t.Errorf("%v, %q, want %q", err, got, want)
	}
}

func TestElide(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"12345678", "12345678"}, {"123456789", "123456…9"}, {"äöüÄÖÜßé", "äöüÄÖÜßé"}, {"äöüÄÖÜßéè", "äöüÄÖÜ…è"}} {
		if got := Elide(tt.in, 8); got != tt.want {
			t.Errorf("elide(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := Message(errors.New("key " + strings.Repeat("k", 40_000) + " is no number")); len(got) > MaxMessage+2 || !strings.HasPrefix(got, "key kk") || !strings.HasSuffix(got, "k is no number") {
		t.Errorf("an error of 40,000 bytes becomes a line of %d: %.20s...", len(got), got)
	}
}

// A screen that cannot be written says so.
func TestScreenPassesErrorsOn(t *testing.T) {
	if _, err := io.WriteString(NewScreen(clitest.Full{}), "a"); err == nil {
		t.Error("a full disk is no error")
	}
}
