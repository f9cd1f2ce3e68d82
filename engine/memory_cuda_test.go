//go:build cuda || cudaemu

package engine_test

import (
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// openRandom opens a small random model on the device.
func openRandom(t *testing.T) *engine.Engine {
	t.Helper()
	dev, err := device.Open(devtest.Device, device.Config{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{})), dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// parse reads an attention.
func parse(t *testing.T, text string) *sparse.Spec {
	t.Helper()
	spec, err := sparse.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// TestStepsKeepMemory: however many decode steps are run, dense or sparse, eager,
// replayed or watched by a stopwatch, the device has as much memory as after the
// first ones.
func TestStepsKeepMemory(t *testing.T) {
	steps := 10000
	if testing.Short() {
		steps = 60
	}
	e := openRandom(t)
	dev := e.Device
	if dev.Info().Free == 0 {
		t.Skip("the device does not tell its memory")
	}
	for _, attn := range []string{"dense", "sketchwalk(density=0.5)"} {
		r := runner(t, e, engine.Config{Context: 512, Attn: parse(t, attn)})
		s := sequence(t, r)
		prefill(t, s, make([]int32, 100))
		var first uint64
		var watch *engine.Stopwatch
		for i := range steps / 2 {
			if s.Len() == r.Context() {
				s.Truncate(64)
			}
			if i%(steps/8) == 0 { // a graph with marks, and one without
				if watch == nil {
					watch = r.Time()
				} else {
					watch.Stop()
					watch = nil
				}
			}
			if err := s.Push(int32(i % 200)); err != nil {
				t.Fatal(err)
			}
			if err := r.Step(s); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Sample(sampling.Params{Temperature: 1, TopK: 40, Seed: 1}); err != nil {
				t.Fatal(err)
			}
			if i == steps/4 {
				first = dev.Info().Free
			}
		}
		if last := dev.Info().Free; last != first {
			t.Errorf("%s: %d bytes are free after %d steps, %d after %d", attn, last, steps/2, first, steps/4)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStopwatchOfAClock: what a device's clock counts is what steps take, replayed
// or not, and nothing once the stopwatch has stopped.
func TestStopwatchOfAClock(t *testing.T) {
	e := openRandom(t)
	r := runner(t, e, engine.Config{Context: 256, Attn: parse(t, "sketchwalk(density=0.5)")})
	s := sequence(t, r)
	watch := r.Time()
	if !watch.Marks() {
		t.Fatal("the device has no clock")
	}
	step := func(n int) {
		for range n {
			if err := s.Push(7); err != nil {
				t.Fatal(err)
			}
			if err := r.Step(s); err != nil {
				t.Fatal(err)
			}
		}
	}
	prefill(t, s, make([]int32, 70))
	if p := watch.Prefill; p.Select <= 0 || p.Attend <= 0 || watch.Decode != (engine.Times{}) {
		t.Errorf("a prefill: %+v and %+v", p, watch.Decode)
	}
	step(1)
	one := watch.Decode
	step(3)
	four := watch.Decode
	if one.Select <= 0 || one.Attend <= 0 || four.Select <= one.Select || four.Attend <= one.Attend {
		t.Errorf("one step %+v, four %+v", one, four)
	}
	watch.Stop()
	step(2)
	if watch.Decode != four {
		t.Errorf("after it stopped %+v, before %+v", watch.Decode, four)
	}
	again := r.Time()
	step(1)
	if again.Decode.Attend <= 0 || again.Decode.Attend > 10*four.Attend {
		t.Errorf("another stopwatch: %+v, the first after four steps %+v", again.Decode, four)
	}
}
