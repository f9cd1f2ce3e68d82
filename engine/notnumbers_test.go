package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// damaged opens a random model with one weight of a tensor that is not a number.
func damaged(t *testing.T, tensor string) *engine.Engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "damaged.gguf")
	if err := modeltest.Damaged(modeltest.Shape{}, tensor).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(f, dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// Logits that are not numbers end a generation, whether tokens are greedy or
// drawn, and whether they all are or one of them.
func TestLogitsThatAreNotNumbersEndAGeneration(t *testing.T) {
	for tensor, want := range map[string]string{
		"blk.0.attn_norm.weight": "320 of 320 logits of position 2 are not numbers: the model file is damaged or not for this architecture",
		"output.weight":          "1 of 320 logits of position 2 are not numbers",
	} {
		e := damaged(t, tensor)
		for _, temperature := range []float32{0, 0.8} {
			s := sequence(t, runner(t, e, engine.Config{Context: 64}))
			res, err := s.Generate(context.Background(), []int32{1, 5, 9}, engine.Options{MaxTokens: 4, Sampling: sampling.Params{Temperature: temperature}})
			if err == nil || !strings.Contains(err.Error(), want) || len(res.Tokens) > 0 {
				t.Errorf("%s at temperature %v: %v and %v, want %q", tensor, temperature, res.Tokens, err, want)
			}
		}
	}
}

// Logits that break in a step do the same.
func TestAStepWithoutLogitsIsNotSampled(t *testing.T) {
	e := damaged(t, "token_embd.weight") // the row of token 0
	r := runner(t, e, engine.Config{Context: 64})
	s := sequence(t, r)
	if err := s.Prefill(context.Background(), []int32{1, 5, 9}, engine.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sample(sampling.Params{}); err != nil {
		t.Fatalf("token 0 is not in the text yet: %v", err)
	}
	if err := s.Push(0); err != nil {
		t.Fatal(err)
	}
	if err := r.Step(s); err != nil {
		t.Fatal(err)
	}
	for _, temperature := range []float32{0, 0.8} {
		if id, err := s.Sample(sampling.Params{Temperature: temperature}); err == nil || !strings.Contains(err.Error(), "the logits of position 3 are not numbers") {
			t.Errorf("at temperature %v: token %d, %v", temperature, id, err)
		}
	}
}

// An audit does not count rows of NaN as right.
func TestAuditOfNaNIsNotMeasured(t *testing.T) {
	r := runner(t, damaged(t, "blk.0.attn_norm.weight"), engine.Config{Context: 64})
	a, err := r.Audit(engine.AuditConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if err := sequence(t, r).Prefill(context.Background(), []int32{1, 5, 9}, engine.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	rep := a.Report()
	if p := rep.Phases[0]; p.Rows != 3 || rep.NaNRows != 6 || !p.Mean.Unmeasured || !p.Layer[0].Unmeasured || !p.Cells[1][0].Unmeasured || p.Mean.Error != 0 {
		t.Errorf("%+v", rep)
	}
}

// An audit that ends within a prefill says nothing of the layers that it has not
// seen, and its means are those of the others.
func TestAuditOfAPrefillThatIsInterrupted(t *testing.T) {
	e := open(t, "../testdata/stories260K.gguf")
	r := runner(t, e, engine.Config{Context: 64})
	a, err := r.Audit(engine.AuditConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	layers := e.Model.Layers
	err = sequence(t, r).Prefill(ctx, []int32{1, 300, 310, 320}, engine.PrefillOptions{Progress: func(done float64) {
		if done > 1.5/float64(layers) {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want to be interrupted", err)
	}
	p := a.Report().Phases[0]
	var mass float64
	n := 0
	for l, c := range p.Layer {
		if c.Unmeasured != (l >= 2) {
			t.Errorf("layer %d of %d: %+v", l, layers, c)
		}
		if !c.Unmeasured {
			mass += c.Mass
			n++
		}
	}
	if p.Mean.Unmeasured || math.Abs(p.Mean.Mass-1) > 1e-6 || math.Abs(mass-float64(n)) > 1e-6 {
		t.Errorf("the mean of dense layers is %+v", p.Mean)
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back engine.AuditPhase
	if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(p, back) || strings.Count(string(text), "null") != (layers-2)*(1+e.Model.Heads) {
		t.Errorf("%v: %s", err, text)
	}
}

// Where dense attention is zero there is no relative error, and no infinite one.
func TestAuditOfValuesThatCancel(t *testing.T) {
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	const n, dim = 100, 8
	spec, err := sparse.Parse("decode=streaming(sink=1,window=4)")
	if err != nil {
		t.Fatal(err)
	}
	r, err := engine.NewReplay(dev, spec, engine.ReplayConfig{Layers: 1, Heads: 1, KVHeads: 1, HeadDim: dim, MaxLen: n})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a, err := r.Audit(engine.AuditConfig{})
	if err != nil {
		t.Fatal(err)
	}
	values := make([]float32, n*dim) // equal scores: these two cancel, and the window sees one of them
	values[70*dim], values[97*dim] = 1, -1
	s, err := r.Open([]engine.QKV{{Q: make([]float32, n*dim), K: make([]float32, n*dim), V: values}})
	if err == nil {
		err = s.Prefill(n-1, 0)
	}
	if err == nil {
		err = r.Step(s)
	}
	if err != nil {
		t.Fatal(err)
	}
	rep := a.Report()
	if _, err := json.Marshal(rep); err != nil {
		t.Error(err)
	}
	for _, p := range rep.Phases {
		if math.IsInf(p.Mean.Error, 0) || math.IsNaN(p.Mean.Mass) {
			t.Errorf("%s: %+v", p.Phase, p.Mean)
		}
		if p.Phase == "decode" && (!p.Mean.Unmeasured || rep.NaNRows != 1) {
			t.Errorf("%d rows left out, %+v", rep.NaNRows, p.Mean)
		}
	}
}
