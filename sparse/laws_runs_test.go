package sparse_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// The laws of this file say that how a sequence is run does not matter: in which
// chunks, beside which others, in which slot and pages, forked, cut back, or
// launched.

// R6: the seed decides, and nothing else does.
func TestLawSameSeedSamePlan(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		run := func(seed uint64) []float32 {
			b := openBench(t, s.spec, s.len, func(c *engine.ReplayConfig) { c.Seed = seed })
			return outputs(b.run(lawTensors(1, s.len), s.len-lawSteps, 0))
		}
		one := alone(t, s.spec, s.len)
		same(t, "the same seed", run(1), one)
		if other := run(2); slices.Equal(other, one) == s.random {
			t.Errorf("another seed: outputs are equal: %v, want %v", !s.random, s.random)
		}
	})
}

// A decode step that is captured once and launched is the eager step.
func TestLawEagerEqualsReplayed(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, s.spec, s.len)
		b := openBench(t, s.spec, s.len, nil)
		got := b.open(layers)
		must(t, got.Prefill(prompt, 0))
		for got.More() {
			must(t, b.StepReplayed(got))
		}
		same(t, "launched steps", outputs(got), want)
	})
}

// Table 8: chunks of a prompt, and a prompt in two parts, are the whole prompt.
func TestLawChunks(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		b, want := openBench(t, s.spec, s.len, nil), alone(t, s.spec, s.len)
		for _, chunk := range []int{37, 64, 128} {
			if chunk%max(s.unit, 1) == 0 {
				got := b.run(layers, prompt, chunk)
				same(t, fmt.Sprintf("chunks of %d", chunk), outputs(got), want)
				got.Close()
			}
		}
		if !s.prompt && !s.future {
			got := b.open(layers)
			must(t, got.Prefill(prompt/2/max(s.unit, 1)*max(s.unit, 1), 0))
			must(t, got.Prefill(prompt-got.Len(), 0))
			b.steps(got)
			same(t, "a prompt in two parts", outputs(got), want)
		}
	})
}

// 9.5: a sequence in a batch, in any slot, is the sequence alone.
func TestLawBatch(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, s.spec, s.len)
		b := openBench(t, s.spec, s.len, nil)
		short, gone, got := b.open(lawTensors(2, s.len)), b.open(lawTensors(3, s.len)), (*engine.ReplaySequence)(nil)
		must(t, short.Prefill(70, 0))
		must(t, gone.Prefill(s.len, 0))
		gone.Close()
		idle := b.open(lawTensors(4, s.len))
		must(t, idle.Prefill(33, 0))
		got = b.open(layers)
		must(t, got.Prefill(prompt, 0))
		b.steps(got, short)
		same(t, "in a batch", outputs(got), want)
		if short.Len() != 70+lawSteps || idle.Len() != 33 {
			t.Errorf("the others have %d and %d positions", short.Len(), idle.Len())
		}
	})
}

// A fork goes on as the original does, and one does not disturb the other.
func TestLawFork(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, s.spec, s.len)
		b := openBench(t, s.spec, s.len, nil)
		first := b.open(layers)
		must(t, first.Prefill(prompt, 0))
		must(t, b.Step(first))
		must(t, b.Step(first))
		fork, err := first.Fork()
		must(t, err)
		astray, err := first.Fork()
		must(t, err)
		must(t, astray.Continue(lawTensors(5, s.len)))
		b.steps(astray)
		b.steps(first)
		b.steps(fork)
		same(t, "the original", outputs(first), want)
		same(t, "the fork", outputs(fork), want)
		if slices.Equal(outputs(astray), want) {
			t.Error("a fork with other tensors gives the same outputs")
		}
	})
}

// 9.4: which pages hold a sequence, and what was in them, changes no bit.
func TestLawPagesDoNotMatter(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, s.spec, s.len)
		b := openBench(t, s.spec, s.len, nil)
		for round := range 2 { // pages come back in another order
			a, c := b.open(lawTensors(6, s.len)), b.open(lawTensors(7, s.len))
			must(t, a.Prefill(130, 0))
			must(t, c.Prefill(s.len-1, 0))
			must(t, b.Step(a, c))
			if round == 0 {
				a.Close()
			}
			c.Close()
			a.Close()
		}
		got := b.run(layers, prompt, 0)
		same(t, "other pages", outputs(got), want)
	})
}

// What a closed sequence left in its slot is gone, for one that begins with a
// decode step too.
func TestLawSlotsAreClean(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		steps := func(b *bench, layers []engine.QKV) []float32 {
			seq := b.open(layers)
			for range 25 {
				must(t, b.Step(seq))
			}
			seq.Close()
			return rowsOf(outputs(seq), s.len, 0, 25)
		}
		want := steps(openBench(t, s.spec, s.len, nil), lawTensors(1, s.len))
		b := openBench(t, s.spec, s.len, nil)
		steps(b, lawTensors(6, s.len))
		b.run(lawTensors(7, s.len), 70, 0).Close()
		same(t, "in a used slot", steps(b, lawTensors(1, s.len)), want)
	})
}

// A sequence that is cut back and goes on as before is as before.
func TestLawTruncate(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		b := openBench(t, s.spec, s.len, nil)
		want := alone(t, s.spec, s.len)
		got := b.open(changed(lawTensors(1, s.len), s.len, 192))
		must(t, got.Prefill(s.len-2, 0))
		must(t, b.Step(got))
		if stay := got.Truncate(0); stay != 0 {
			t.Errorf("Truncate(0) leaves %d positions", stay)
		}
		must(t, got.Continue(layers))
		must(t, got.Prefill(prompt, 0))
		b.steps(got)
		same(t, "after a truncation", outputs(got), want)
	})
}

// A step of a method takes no memory, neither its ops, which are all that a launched
// step runs, nor the method, which an eager step runs besides.
func TestLawStepsDoNotAllocate(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		b := openBench(t, s.spec, s.len, nil)
		seq := b.open(lawTensors(1, s.len))
		must(t, seq.Prefill(s.len-lawSteps, 0))
		must(t, b.StepReplayed(seq))
		ops := testing.AllocsPerRun(5, b.Again)
		if ops > 0 && !race {
			t.Errorf("%g allocations in the ops of a step", ops)
		}
		must(t, b.Step(seq))
		if all := testing.AllocsPerRun(5, b.Again); all > ops {
			t.Errorf("%g allocations in an eager step, %g by its ops", all, ops)
		}
	})
}

// Table 8 at full size: the engine's own chunks, which end at multiples of 2,048
// positions, are the whole prompt.
func TestLawChunksOfTheEngine(t *testing.T) {
	aboutNumbers(t)
	const n = engine.ChunkLen + 200
	layers := lawTensors(1, n)
	for _, spec := range []string{
		"sketchwalk(density=0.2)", "sketchwalk:code", "sketchwalk(density=0.2,budget=total)", "anchor(theta=2)", "psaw(ls=0)", "etf(ls=1)", "etf(ls=1,etf=kv)", "cpe(ls=1)", "streaming",
	} {
		run := func(rows, chunk int) []float32 {
			b := openBench(t, spec, n, func(c *engine.ReplayConfig) { c.Rows, c.Slots = rows, 1 })
			s := b.open(layers)
			must(t, s.Prefill(n, chunk))
			return outputs(s)
		}
		same(t, spec, run(0, 0), run(n, n))
	}
}
