package sparse_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/sparse"
)

// lawFiles is a folder with what doublesparsity and hashattention read, for the
// sizes of the laws.
var lawFiles = func() string {
	dir, err := os.MkdirTemp("", "gollm-laws-")
	if err == nil {
		err = calibrate(dir, lawLayers, lawHeads, lawKVHeads, lawDim)
	}
	if err != nil {
		panic(err)
	}
	return dir
}()

// title is a spec of the laws as a name that does not change.
func title(spec string) string { return strings.ReplaceAll(spec, lawFiles, "FILES") }

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(lawFiles)
	os.Exit(code)
}

// calibrate writes random rankings of channels, for query heads and for kv heads,
// and random networks of 24 bits with a layer between, the same for queries and
// keys, so that they rank by likeness.
func calibrate(dir string, layers, heads, kvHeads, dim int) error {
	rng := rand.New(rand.NewPCG(8, uint64(dim)))
	normal := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	var err error
	for name, sets := range map[string]int{"channels": heads, "shared": kvHeads} {
		var channels []float32
		for range layers * sets {
			for _, c := range rng.Perm(dim) {
				channels = append(channels, float32(c))
			}
		}
		err = errors.Join(err, save(dir, name, channels, layers, sets, dim))
	}
	const hidden, bits = 32, 24
	w0, w1, b0, b1 := normal(dim*hidden), normal(hidden*bits), normal(hidden), make([]float32, bits)
	for _, net := range []string{"query", "key"} {
		for file, x := range map[string]struct {
			data []float32
			dims []int
		}{
			"0.weight": {w0, []int{dim, hidden}}, "0.bias": {b0, []int{hidden}},
			"1.weight": {w1, []int{hidden, bits}}, "1.bias": {b1, []int{bits}},
		} {
			err = errors.Join(err, save(dir, net+"."+file, slices.Repeat(x.data, layers*heads), append([]int{layers, heads}, x.dims...)...))
		}
	}
	return err
}

// save writes an array to dir/name.npy.
func save(dir, name string, x []float32, shape ...int) error {
	var b bytes.Buffer
	if err := npy.Write(&b, &npy.Array{Shape: shape, Data: x}); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".npy"), b.Bytes(), 0o600)
}

// fitted is a spec of the laws for a model: files are of its sizes.
func fitted(t *testing.T, spec string, e *engine.Engine) string {
	t.Helper()
	if !strings.Contains(spec, lawFiles) {
		return spec
	}
	dir, err := os.MkdirTemp("", "gollm-laws-") // TempDir would have the spec in it
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	must(t, calibrate(dir, e.Model.Layers, e.Model.Heads, e.Model.KVHeads, e.Model.HeadDim))
	return strings.ReplaceAll(spec, lawFiles, dir)
}

// newDevice is a CPU that the test closes.
func newDevice(t *testing.T) device.Device {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	must(t, err)
	t.Cleanup(func() { must(t, dev.Close()) })
	return dev
}

// buildError is what NewReplay says of a spec.
func buildError(t *testing.T, spec string) string {
	t.Helper()
	s, err := sparse.Parse(spec)
	if err != nil {
		return err.Error()
	}
	_, err = engine.NewReplay(newDevice(t), s, engine.ReplayConfig{
		Layers: lawLayers, Heads: lawHeads, KVHeads: lawKVHeads, HeadDim: lawDim, MaxLen: 100,
	})
	if err == nil {
		return ""
	}
	return err.Error()
}

// What is missing or wrong is one clear error before anything runs.
func TestCalibrationErrors(t *testing.T) {
	dir := t.TempDir()
	must(t, save(dir, "small", make([]float32, 4*2), 4, 2, 1))
	must(t, save(dir, "flat", make([]float32, 8), 8))
	must(t, save(dir, "twice", make([]float32, 4*2*16), 4, 2, 16))
	half := slices.Repeat([]float32{0.5}, 4*2*16)
	must(t, save(dir, "half", half, 4, 2, 16))
	far := slices.Repeat([]float32{16}, 4*2*16)
	must(t, save(dir, "far", far, 4, 2, 16))
	bad := t.TempDir()
	must(t, calibrate(bad, lawLayers, lawHeads, lawKVHeads, lawDim))
	must(t, save(bad, "key.1.bias", make([]float32, 4*4*3), 4, 4, 3))
	other := t.TempDir()
	must(t, calibrate(other, lawLayers+1, lawHeads, lawKVHeads, lawDim))
	bits := t.TempDir()
	must(t, calibrate(bits, lawLayers, lawHeads, lawKVHeads, lawDim))
	must(t, save(bits, "key.1.weight", make([]float32, 4*4*32*5), 4, 4, 32, 5))
	must(t, save(bits, "key.1.bias", make([]float32, 4*4*5), 4, 4, 5))
	nan, gap, end := t.TempDir(), t.TempDir(), t.TempDir()
	for _, d := range []string{nan, gap, end} {
		must(t, calibrate(d, lawLayers, lawHeads, lawKVHeads, lawDim))
	}
	notNumbers := make([]float32, 4*4*32)
	notNumbers[35] = float32(math.NaN())
	notNumbers[70] = float32(math.Inf(-1))
	must(t, save(nan, "key.0.bias", notNumbers, 4, 4, 32))
	must(t, save(gap, "query.3.weight", make([]float32, 4*4*24*24), 4, 4, 24, 24))
	must(t, save(end, "key.2.bias", make([]float32, 4*4*24), 4, 4, 24))
	for _, c := range []struct{ spec, want string }{
		{"hashattention(dir=" + nan + ")", "key.0.bias.npy: element 35 is NaN, want numbers"},
		{"hashattention(dir=" + gap + ")", "query.3.weight.npy: there is no query.2.weight.npy before it"},
		{"hashattention(dir=" + end + ")", "key.2.bias.npy: there is no key.2.weight.npy"},
		{"doublesparsity(file=" + lawFiles + "/channels.npy,dense=5)", "option dense: 5, the model has 4 layers"},
		{"doublesparsity", "give file="},
		{"doublesparsity(file=" + dir + "/none.npy)", "no such file"},
		{"doublesparsity(file=" + dir + "/small.npy,factor=8)", "want [4 layers, 4 heads or 2 kv heads, 2 channels or more]"},
		{"doublesparsity(file=" + dir + "/flat.npy)", "shape [8]"},
		{"doublesparsity(file=" + dir + "/twice.npy,factor=8)", "different whole numbers"},
		{"doublesparsity(file=" + dir + "/half.npy)", "channel 0.5 of layer 0, head 0"},
		{"doublesparsity(file=" + dir + "/far.npy)", "from 0 to 15"},
		{"hashattention", "give dir="},
		{"hashattention(dir=" + dir + ")", "query.0.weight.npy"},
		{"hashattention(dir=" + bad + ")", "key.1.bias.npy: an array of shape [4 4 3], want [4 4 24]"},
		{"hashattention(dir=" + other + ")", "want [4 layers"},
		{"hashattention(dir=" + bits + ")", "24 bits for queries and 5 for keys"},
		{"doublesparsity(factor=0)", "at least 1"},
		{"doublesparsity(bits=17)", "at most 16"},
		{"santa(samples=1048577)", "option samples: 1048577, want 1 to 1048576"},
		{"santa(samples=-1)", "want 1 to 1048576"},
		{"santa(scores=bernoulli,bits=2147483647)", "option bits: 2147483647, want 1 to 1048576"},
	} {
		if got := buildError(t, c.spec); !strings.Contains(got, c.want) {
			t.Errorf("%s: error %q, want it to say %q", c.spec, got, c.want)
		}
	}
	for _, spec := range []string{
		fmt.Sprintf("doublesparsity(file=%s/channels.npy)", lawFiles), fmt.Sprintf("hashattention(dir=%s)", lawFiles),
	} {
		if got := buildError(t, spec); got != "" {
			t.Errorf("%s: %s", spec, got)
		}
	}
}
