package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/randommodel"
	"github.com/gollm/gollm/weights"
)

// familyData is testdata/families.json, which scripts/family-peer.py describes.
type familyData struct {
	Tokens []int32 `json:"tokens"`
	Models map[string]struct {
		SHA256 string    `json:"sha256"`
		Error  float64   `json:"error"`
		Exact  []float64 `json:"exact"`
		Prompt []int32   `json:"prompt"`
		Greedy []int32   `json:"greedy"`
		Text   string    `json:"text"`
	} `json:"models"`
}

// TestLogitsAgainstExactOfFamilies: models of every family and every type of weights have the
// logits of a float64 forward and llama.cpp's greedy text.
func TestLogitsAgainstExactOfFamilies(t *testing.T) {
	raw, err := os.ReadFile("../testdata/families.json")
	if err != nil {
		t.Fatal(err)
	}
	var data familyData
	if err := json.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	for name, want := range data.Models {
		shape, kind, _ := strings.Cut(name, "/")
		if !slices.Contains(familyTypes(), kind) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			e := openFamily(t, shape, kind, want.SHA256)
			d := exactDistance(t, e, data.Tokens, want.Exact)
			t.Logf("relative error %.5f, llama.cpp's %.5f", d, want.Error)
			bound := 1.1 * want.Error
			if !quantized(e) {
				bound = plainBound
			}
			if d > bound {
				t.Errorf("relative error %.5f, want at most %.5f", d, bound)
			}
			res, err := sequence(t, runner(t, e, engine.Config{})).Generate(context.Background(), want.Prompt, engine.Options{MaxTokens: len(want.Greedy), IgnoreEnd: true})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(res.Tokens, want.Greedy) || res.Text != want.Text {
				t.Errorf("greedy %v %q, llama.cpp's %v %q", res.Tokens, res.Text, want.Greedy, want.Text)
			}
		})
	}
}

// familyTypes are the types of weights that are tested: all, or where that takes minutes some.
func familyTypes() []string {
	if race || devtest.Device != "cpu" {
		return []string{"f16", "q8_0", "q4_k"}
	}
	return randommodel.Types()
}

// openFamily opens a random model, which must be the one of the hash.
func openFamily(t *testing.T, shape, kind, hash string) *engine.Engine {
	t.Helper()
	w, err := randommodel.Make(randommodel.Options{Shape: shape, Type: kind, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	data, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != hash {
		t.Fatalf("package randommodel makes another model than llama.cpp ran; if it should, run scripts/family-peer.py")
	}
	f, err := weights.Parse(shape+"-"+kind, data)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(f, dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// exactDistance is the relative error of a model's logits of ids. known are the first exact
// ones of the last position, from a third implementation.
func exactDistance(t *testing.T, e *engine.Engine, ids []int32, known []float64) float64 {
	t.Helper()
	want := newExactModel(t, e).logits(ids)
	for i, x := range known {
		if got := want[len(want)-e.Model.Vocab+i]; math.Abs(got-x) > 1e-7 {
			t.Fatalf("exact logit %d is %v, numpy's is %v", i, got, x)
		}
	}
	exact := make([]float32, len(want))
	for i, x := range want {
		exact[i] = float32(x)
	}
	return distance(allLogits(t, e, ids), exact)
}
