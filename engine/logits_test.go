package engine_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/weights"
)

// manifest describes a folder of models with exact logits: a float64 forward of
// the dequantized weights, rounded to float32.
type manifest struct {
	Tokens []int32 `json:"tokens"`
	Models map[string]struct {
		File   string  `json:"file"`
		Logits string  `json:"logits"`
		Shape  [2]int  `json:"shape"`
		Peer   float64 `json:"peer_relative_error"` // llama.cpp's
	} `json:"models"`
}

// plainBound is the error allowed for weights that are not quantized, whatever
// the peer's is.
const plainBound = 3e-3

// TestLogitsAgainstExact holds the relative error of every model's logits
// against llama.cpp's on the same model.
func TestLogitsAgainstExact(t *testing.T) {
	for _, dir := range []string{"../testdata/logits", shared + "logits"} {
		data, err := os.ReadFile(need(t, filepath.Join(dir, "manifest.json")))
		if err != nil {
			t.Fatal(err)
		}
		var m manifest
		if err := json.Unmarshal(data, &m); err != nil {
			t.Fatal(err)
		}
		for name, model := range m.Models {
			t.Run(name, func(t *testing.T) {
				e := open(t, filepath.Join(dir, model.File))
				bound := 1.1 * model.Peer
				if !quantized(e) {
					bound = plainBound
				}
				want := readFloats(t, filepath.Join(dir, model.Logits))
				got := allLogits(t, e, m.Tokens)
				if len(got) != len(want) {
					t.Fatalf("%d logits, want %d", len(got), len(want))
				}
				d := distance(got, want)
				t.Logf("relative error %.5f, llama.cpp's %.5f", d, model.Peer)
				if d > bound {
					t.Errorf("relative error %.5f, want at most %.5f", d, bound)
				}
			})
		}
	}
}

// allLogits is the logits of every position, [position][vocabulary].
func allLogits(t *testing.T, e *engine.Engine, ids []int32) []float32 {
	t.Helper()
	s := sequence(t, runner(t, e, engine.Config{Context: len(ids)}))
	var all []float32
	err := s.Prefill(context.Background(), ids, engine.PrefillOptions{Logits: func(_ int, l []float32) error {
		all = append(all, l...)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// quantized reports whether any weight of the model is.
func quantized(e *engine.Engine) bool {
	return slices.ContainsFunc(e.File.Tensors(), func(t weights.Tensor) bool { return t.DType.Quantized() })
}

// readFloats reads a file of little-endian float32.
func readFloats(t *testing.T, path string) []float32 {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	v := make([]float32, len(data)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return v
}
