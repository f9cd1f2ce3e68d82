package sparse

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/gollm/gollm/internal/npy"
)

// BenchmarkBaselines is BenchmarkSampling for the methods that others are
// compared with. What their labels hold does not matter to their speed.
func BenchmarkBaselines(b *testing.B) {
	const heads, kvHeads, dim = 32, 8, 64
	dir := b.TempDir()
	file := func(name string, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(i % dim)
		}
		var buf bytes.Buffer
		must(b, npy.Write(&buf, &npy.Array{Shape: shape, Data: x}))
		must(b, os.WriteFile(filepath.Join(dir, name+".npy"), buf.Bytes(), 0o600))
	}
	file("heads", 1, heads, dim)
	file("shared", 1, kvHeads, dim)
	for _, side := range []string{"query", "key"} {
		for l, width := range [][2]int{{dim, 128}, {128, 128}, {128, 32}} {
			file(fmt.Sprintf("%s.%d.weight", side, l), 1, heads, width[0], width[1])
			file(fmt.Sprintf("%s.%d.bias", side, l), 1, heads, width[1])
		}
	}
	for _, n := range []int{8 << 10, 32 << 10} {
		for name, spec := range map[string]string{
			"random": "random(k=0.1)", "random-one": "random(k=0.1,weight=one,share=group)", "h2o": "h2o(hh=0.05,recent=0.05)",
			"magicpig": "magicpig(dense=0)", "magicpig-k8-l75": "magicpig:k8-l75(dense=0)",
			"doublesparsity":        "doublesparsity(dense=0,k=0.1,file=" + dir + "/heads.npy)",
			"doublesparsity-shared": "doublesparsity(dense=0,k=0.1,file=" + dir + "/shared.npy)",
			"hashattention":         "hashattention(k=0.1,dir=" + dir + ")",
		} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, name), func(b *testing.B) { benchDecode(b, n, spec) })
		}
	}
}
