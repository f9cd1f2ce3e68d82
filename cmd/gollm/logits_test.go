package main

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/model/modeltest"
)

// floats reads float32, little endian.
func floats(t *testing.T, b []byte) []float64 {
	t.Helper()
	if len(b)%4 != 0 {
		t.Fatalf("%d bytes are no float32s", len(b))
	}
	x := make([]float64, len(b)/4)
	for i := range x {
		x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return x
}

// relative is ‖a − b‖ / ‖b‖.
func relative(a, b []float64) float64 {
	var diff, norm float64
	for i := range b {
		diff += (a[i] - b[i]) * (a[i] - b[i])
		norm += b[i] * b[i]
	}
	return math.Sqrt(diff / norm)
}

func TestLogitsStepEqualsPrefill(t *testing.T) {
	model := clitest.Stories(t)
	ids := ok(t, "", "tokenize", "-m", model, "-p", "Once upon a time, there was a little girl")
	dir := t.TempDir()
	one, two := filepath.Join(dir, "prefill.f32"), filepath.Join(dir, "step.f32")
	ok(t, ids, "logits", "-m", model, "--tokens", "-", "-o", one)
	ok(t, "", "logits", "-m", model, "--tokens", clitest.WriteFile(t, "ids.json", ids), "-o", two, "--step")
	a, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(two)
	if err != nil {
		t.Fatal(err)
	}
	x, y := floats(t, a), floats(t, b)
	if n := len(clitest.Decode[[]int32](t, ids)); len(x) != 512*n || len(y) != 512*n {
		t.Fatalf("%d and %d numbers, want 512 for each of %d tokens", len(x), len(y), n)
	}
	if e := relative(x, y); e > 1e-3 {
		t.Errorf("step by step differs from one prefill by %g", e)
	}
	if out := ok(t, ids, "logits", "-m", model, "--tokens", "-", "-o", "-"); out != string(a) {
		t.Error("stdout gets other bytes than a file")
	}
}

// The greedy choice after the last position is what generate writes next.
func TestLogitsAgreeWithGenerate(t *testing.T) {
	model := clitest.Stories(t)
	j := clitest.Decode[generateReport](t, ok(t, "", "generate", "-m", model, "-p", "Once upon", "--temp", "0", "-n", "1", "--json"))
	x := floats(t, []byte(ok(t, jsonText(t, j.PromptTokens), "logits", "-m", model, "--tokens", "-", "-o", "-")))
	last, best := x[len(x)-512:], 0
	for i, v := range last {
		if v > last[best] {
			best = i
		}
	}
	if int32(best) != j.Tokens[0] {
		t.Errorf("the largest logit is of token %d, generate wrote %d", best, j.Tokens[0])
	}
}

func TestLogitsFailuresLeaveNoFile(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	out := filepath.Join(t.TempDir(), "out.f32")
	fails(t, console.ExitFailure, []string{"the prompt has no tokens"}, "[]", "logits", "-m", model, "--tokens", "-", "-o", out)
	fails(t, console.ExitFailure, []string{"number 2 is 320"}, "[1,320]", "logits", "-m", model, "--tokens", "-", "-o", out)
	fails(t, console.ExitFailure, []string{"no such file"}, "[1]", "logits", "-m", model, "--tokens", "-", "-o", filepath.Join(out, "x"))
	if _, err := os.Stat(out); err == nil {
		t.Error("a failed run left a file")
	}
}
