package userfile

import (
	"bufio"
	"io"
	"strings"
	"testing"
)

// What is read whole has a bound, from a file and from stdin.
func TestReadWhole(t *testing.T) {
	for limit, want := range map[int64]string{2: "stdin is larger than 2 B, the most that is read; give less", 3: "", 4: ""} {
		b, err := readWhole(strings.NewReader("abc"), "stdin", limit)
		if want == "" && (err != nil || string(b) != "abc") || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("limit %d: %q, %v, want %q", limit, b, err, want)
		}
	}
	if b, err := readWhole(endlessZeros{}, "stdin", 1<<20); err == nil {
		t.Errorf("%d bytes of an endless stdin", len(b))
	}
}

// A line has a bound, too, and may be longer than a buffer.
func TestReadLine(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	r := bufio.NewReader(strings.NewReader("a\n" + long + "\n\nb"))
	for _, want := range []string{"a\n", long + "\n", "\n", "b"} {
		got, err := ReadLine(r, "a line", 10_001)
		if got != want || err != nil && (want != "b" || err != io.EOF) {
			t.Errorf("%.20q, %v, want %.20q", got, err, want)
		}
	}
	if got, err := ReadLine(bufio.NewReader(endlessZeros{}), "a line", 1<<20); err == nil || !strings.Contains(err.Error(), "a line is larger than 1.00 MiB") {
		t.Errorf("%d bytes of an endless line, %v", len(got), err)
	}
}

// endlessZeros never ends.
type endlessZeros struct{}

func (endlessZeros) Read(b []byte) (int, error) { return len(b), nil }
