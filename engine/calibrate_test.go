package engine

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/model"
)

// headShape is the heads of a model.
type headShape struct{ heads, kvHeads, dim int }

// Calibrate writes the files of doublesparsity and hashattention for a model.
func Calibrate(t *testing.T, dir string, m *model.Model) {
	calibrate(t, dir, m.Layers, headShape{m.Heads, m.KVHeads, m.HeadDim})
}

// calibrate writes the files of doublesparsity and hashattention.
func calibrate(t *testing.T, dir string, layers int, c headShape) {
	t.Helper()
	file := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i % c.dim)
		}
		var b bytes.Buffer
		if err := npy.Write(&b, &npy.Array{Shape: shape, Data: x}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".npy"), b.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file("channels", layers, c.heads, c.dim)
	file("shared", layers, c.kvHeads, c.dim)
	for _, side := range []string{"query", "key"} {
		for i, width := range [][2]int{{c.dim, 128}, {128, 128}, {128, 32}} {
			file(fmt.Sprintf("%s.%d.weight", side, i), layers, c.heads, width[0], width[1])
			file(fmt.Sprintf("%s.%d.bias", side, i), layers, c.heads, width[1])
		}
	}
}
