// Package golden compares what a program printed with a file in testdata, or
// rewrites the file when the test binary is run with -update.
package golden

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files instead of comparing with them")

// Compare fails t unless got is what testdata/name holds. With -update it writes
// the file; look at the difference before you commit it.
func Compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; go test with -update writes it", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (go test with -update rewrites it):\n%s", path, diff(string(want), got))
	}
}

// diff shows the first lines that differ.
func diff(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	i := 0
	for i < min(len(w), len(g)) && w[i] == g[i] {
		i++
	}
	return "want: " + strings.Join(w[i:min(i+3, len(w))], "\n      ") + "\ngot:  " + strings.Join(g[i:min(i+3, len(g))], "\n      ")
}
