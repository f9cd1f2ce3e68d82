package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	_ "github.com/gollm/gollm/cpu" // the device
	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/weights"
)

// TestGain: the weights of every type have the standard deviation that they should.
func TestGain(t *testing.T) {
	for _, dt := range []device.DType{device.F32, device.F16, device.BF16, device.Q8_0, device.Q4_0, device.Q4_K, device.Q6_K} {
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

// TestModelLoads writes each type of the smallest shape and reads it back.
func TestModelLoads(t *testing.T) {
	for mix := range mixes {
		path := filepath.Join(t.TempDir(), mix+".gguf")
		if err := run("tiny", mix, 9, 1, false, path); err != nil {
			t.Fatal(err)
		}
		f, err := weights.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		dev, err := device.Open("cpu", device.Config{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		m, err := model.Load(f, dev)
		if err != nil {
			t.Fatalf("%s: %v", mix, err)
		}
		if m.Layers != 9 || m.Heads != 4 || m.Vocab != 320 {
			t.Errorf("%s: %+v", mix, m.Config)
		}
	}
	if run("tiny", "q9", 0, 1, false, "x") == nil || run("huge", "f16", 0, 1, false, "x") == nil || run("tiny", "f16", 0, 1, false, "") == nil {
		t.Error("a wrong flag is taken")
	}
}

// TestUnpack: the weights of a file with -unpack are those of the one without.
func TestUnpack(t *testing.T) {
	dir := t.TempDir()
	var files [2]*weights.File
	for i, unpack := range []bool{false, true} {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := run("tiny", "q4_k_m", 0, 3, unpack, path); err != nil {
			t.Fatal(err)
		}
		var err error
		if files[i], err = weights.Open(path); err != nil {
			t.Fatal(err)
		}
		defer files[i].Close()
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
