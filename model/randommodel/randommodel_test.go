package randommodel

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu" // the device
	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/weights"
)

// TestGain: the weights of every type have the standard deviation that they should.
func TestGain(t *testing.T) {
	for _, dt := range device.DTypes() {
		if dt == device.I32 {
			continue
		}
		const width, rows = 1024, 64
		data := random(dt, width, rows, 7)
		x := make([]float32, width*rows)
		kernel.Dequantize(dt, x, data)
		var sum, squares float64
		for _, v := range x {
			sum += float64(v)
			squares += float64(v) * float64(v)
		}
		mean, deviation := sum/float64(len(x)), math.Sqrt(squares/float64(len(x)))
		if want := 1. / 32; math.Abs(deviation/want-1) > 0.1 || math.Abs(mean) > 0.3*want {
			t.Errorf("%v: mean %.4f, deviation %.4f, want 0 and %.4f", dt, mean, deviation, want)
		}
	}
}

func TestHalf(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		want := float32(rng.NormFloat64() * math.Pow(2, -20*rng.Float64()))
		h := half(want)
		fraction, exponent := float64(h&0x3ff), int(h>>10&31)
		got := math.Ldexp(1+fraction/1024, exponent-15)
		if exponent == 0 {
			got = math.Ldexp(fraction/1024, -14)
		}
		if h>>15 == 1 {
			got = -got
		}
		if d := math.Abs(got - float64(want)); d > math.Abs(float64(want))/1024+math.Ldexp(1, -24) {
			t.Errorf("%g is %g", want, got)
		}
	}
}

// TestModelsLoad: a model of each type, and of each shape without most of its layers and words.
func TestModelsLoad(t *testing.T) {
	for mix := range mixes {
		if c := load(t, Options{Shape: "tiny", Type: mix, Layers: 9}).Config; c.Layers != 9 || c.Heads != 4 || c.Vocab != 320 {
			t.Errorf("%s: %+v", mix, c)
		}
	}
	for name, s := range shapes {
		if strings.HasPrefix(name, "tiny") {
			if c := load(t, Options{Shape: name, Type: "q8_0"}).Config; c.HeadDim != s.headDim || c.Dim != s.dim {
				t.Errorf("%s: %+v", name, c)
			}
		}
	}
	for _, o := range []Options{{Shape: "tiny", Type: "q9"}, {Shape: "huge", Type: "f16"}, {Shape: "tiny", Type: "f16", Layers: -1}} {
		if _, err := Make(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

// file is a model as an open file.
func file(t *testing.T, o Options) *weights.File {
	t.Helper()
	w, err := Make(o)
	if err != nil {
		t.Fatal(err)
	}
	data, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := weights.Parse("random.gguf", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func load(t *testing.T, o Options) *model.Model {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	m, err := model.Load(file(t, o), dev)
	if err != nil {
		t.Fatalf("%+v: %v", o, err)
	}
	return m
}

// TestUnpack: the weights of a file with Unpack are those of the one without.
func TestUnpack(t *testing.T) {
	var files [2]*weights.File
	for i, unpack := range []bool{false, true} {
		files[i] = file(t, Options{Shape: "tiny", Type: "q4_k_m", Seed: 3, Unpack: unpack})
	}
	plain := files[1].Tensors()
	for i, packed := range files[0].Tensors() {
		x, y := make([]float32, packed.Len()), make([]float32, packed.Len())
		if plain[i].Name != packed.Name || plain[i].DType != device.F32 || plain[i].Len() != packed.Len() {
			t.Fatalf("%v is %v", packed.Name, plain[i].Name)
		}
		kernel.Dequantize(packed.DType, x, packed.Data)
		kernel.Dequantize(device.F32, y, plain[i].Data)
		if !slices.Equal(x, y) {
			t.Errorf("%s differs", packed.Name)
		}
	}
}
