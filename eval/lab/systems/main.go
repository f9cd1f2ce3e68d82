// Command systems runs one attention method of a model on a device, as a user would: a
// long prompt, decode steps behind it eagerly and captured, and holds what the last rows
// select against what the CPU selects by the same queries and keys. eval/lab/gpureport runs
// it for every method, each in a process of its own: one that fails takes no other along.
//
//	systems -m model.gguf -device cuda -attn 'quest(budget=0.1)' -len 32768
//
// It prints a JSON object. An error says how far it came.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"

	_ "github.com/gollm/gollm/cpu" // the device "cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// Result is what was seen.
type Result struct {
	Attn    string  `json:"attn"`
	Prompt  int     `json:"prompt"`    // tokens
	Prefill float64 `json:"prefill_s"` // of the pass that is recorded
	Steps   int     `json:"steps"`     // of each kind
	StepMS  float64 `json:"step_ms"`   // captured, the fastest
	// Apart is how far the logits of captured steps are from those of eager ones that
	// nobody watches, relative to their length: the largest of the steps. Recorded steps
	// are made by other kernels where a method has one that selects and attends at once.
	// Where draws decide, rounding moves some across a border, and logits with them.
	Apart float64 `json:"apart"`
	engine.Comparison
	CompareS float64 `json:"compare_s"`
}

func main() {
	model := flag.String("m", "", "a GGUF file (required)")
	name := flag.String("device", "cuda", "the device")
	attn := flag.String("attn", "dense", "as --attn of gollm")
	prompt := flag.Int("len", 32768, "tokens of the prompt")
	steps := flag.Int("steps", 4, "decode steps, eager and then captured")
	rows := flag.Int("rows", 8, "last rows of the prompt whose selections are compared")
	layers := flag.String("layers", "2,31", "layers that are compared, ascending; those that a walk goes through, from its first on")
	threads := flag.Int("threads", 0, "of the CPU; 0 is one for each core")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s := method{prompt: *prompt, steps: *steps, threads: *threads, conf: engine.RecordConfig{Rows: *rows}}
	result, err := s.run(ctx, *model, *name, *attn, *layers)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "systems:", err)
		os.Exit(1)
	}
}

// method is one attention method that is run.
type method struct {
	prompt, steps, threads int
	conf                   engine.RecordConfig

	engine *engine.Engine
	runner *engine.Runner
	ids    []int32 // of the prompt and of the steps
	result Result
}

// run opens everything and runs the method.
func (s *method) run(ctx context.Context, path, name, attn, layers string) (*Result, error) {
	spec, err := sparse.Parse(attn)
	if err != nil {
		return nil, err
	}
	kind, index, _ := strings.Cut(name, ":")
	c := device.Config{Threads: s.threads}
	if index != "" {
		if c.Index, err = strconv.Atoi(index); err != nil {
			return nil, fmt.Errorf("-device %q, want a name as gollm devices lists it", name)
		}
	}
	if s.engine, err = engine.Open(path, kind, c); err != nil {
		return nil, err
	}
	defer s.engine.Close()
	if err := s.layers(layers); err != nil {
		return nil, err
	}
	s.result = Result{Attn: spec.String(), Prompt: s.prompt, Steps: s.steps}
	s.runner, err = s.engine.NewRunner(engine.Config{Context: s.prompt + s.steps + 1, Slots: 2, Attn: spec, Seed: 1})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range s.prompt + s.steps {
		s.ids = append(s.ids, int32(rng.IntN(s.engine.Model.Vocab)))
	}
	rec, err := s.passes(ctx)
	if err != nil {
		return nil, err
	}
	return s.compare(rec)
}

// layers reads the numbers of layers, of which the model may have fewer.
func (s *method) layers(text string) error {
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if all := s.conf.Layers; err != nil || n < 0 || len(all) > 0 && n <= all[len(all)-1] {
			return fmt.Errorf("-layers %q, want numbers from 0 on, ascending, with commas between", text)
		}
		if n >= s.engine.Model.Layers {
			return fmt.Errorf("-layers %q, the model has %d", text, s.engine.Model.Layers)
		}
		s.conf.Layers = append(s.conf.Layers, n)
	}
	return nil
}

// passes runs the prompt and the steps behind it: recorded, and then behind copies of the
// prompt eagerly and captured.
func (s *method) passes(ctx context.Context) (*engine.Recording, error) {
	rec := s.runner.Record(s.conf)
	seq, err := s.runner.Open()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := seq.Prefill(ctx, s.ids[:s.prompt], engine.PrefillOptions{}); err != nil {
		return nil, fmt.Errorf("prefill: %w", err)
	}
	s.result.Prefill = time.Since(began).Seconds()
	kept, err := seq.Fork()
	if err != nil {
		return nil, fmt.Errorf("a fork of the prompt: %w", err)
	}
	if _, err := s.decode(ctx, seq); err != nil {
		return nil, fmt.Errorf("recorded steps: %w", err)
	}
	rec.Stop()
	seq.Close() // the next fork has its slot, and is alone in its passes, too
	eager, err := s.again(ctx, kept, true)
	if err != nil {
		return nil, fmt.Errorf("eager steps: %w", err)
	}
	captured, err := s.again(ctx, kept, false)
	if err != nil {
		return nil, fmt.Errorf("captured steps: %w", err)
	}
	for i := range eager {
		s.result.Apart = max(s.result.Apart, distance(captured[i], eager[i]))
	}
	return rec, nil
}

// again takes the steps behind a copy of the prompt.
func (s *method) again(ctx context.Context, kept *engine.Sequence, eager bool) ([][]float32, error) {
	seq, err := kept.Fork()
	if err != nil {
		return nil, fmt.Errorf("a fork of the prompt: %w", err)
	}
	defer seq.Close()
	s.runner.Eager(eager)
	s.result.StepMS = math.Inf(1)
	return s.decode(ctx, seq)
}

// decode takes the steps of a sequence, and returns the logits after each.
func (s *method) decode(ctx context.Context, seq *engine.Sequence) ([][]float32, error) {
	var all [][]float32
	for i, id := range s.ids[s.prompt:] {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := seq.Push(id); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := s.runner.Step(seq); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		s.result.StepMS = min(s.result.StepMS, 1e3*time.Since(began).Seconds())
		logits := make([]float32, s.engine.Model.Vocab)
		if err := seq.Logits(logits); err != nil {
			return nil, err
		}
		all = append(all, logits)
	}
	return all, nil
}

// compare lets the CPU select what was recorded.
func (s *method) compare(rec *engine.Recording) (*Result, error) {
	if !(s.result.Apart <= math.MaxFloat64) {
		return nil, errors.New("logits of a step are not numbers")
	}
	cpu, err := device.Open("cpu", device.Config{Threads: s.threads})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	s.result.Comparison, err = rec.Compare(cpu)
	if err = errors.Join(err, cpu.Close()); err != nil {
		return nil, fmt.Errorf("the CPU's selection: %w", err)
	}
	s.result.CompareS = time.Since(began).Seconds()
	return &s.result, nil
}

// distance is the length of a less b, as a share of b's.
func distance(a, b []float32) float64 {
	var off, size float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		off += d * d
		size += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(off / size)
}
