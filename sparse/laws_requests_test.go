package sparse_test

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// drawing are methods that draw for each row.
var drawing = []string{
	"santa(samples=16)", "santa(samples=16,sampler=strat,exec=flash,tile=64)", "santa(samples=200,scores=bernoulli,bits=1)",
	"vattention(sink=2,local=8,top=4,fb=20,eps=0.9)", "vattention(sink=2,local=8,top=4,fb=20,eps=0.9,question=20)",
	"vattention:authors-code(sink=2,local=8,top=4,fb=20,eps=0.9,share=group)", "topk(k=4) + vattention(fb=20,eps=0.9) + santa(samples=16)",
}

// R6: the number of a request is part of what addresses its draws. Sequences of
// one batch with numbers of their own draw independently, and each draws what it
// would alone, in any slot.
func TestRequestsDrawForThemselves(t *testing.T) {
	layers, prompt := lawTensors(1, lawLen), lawLen-lawSteps
	for _, spec := range drawing {
		alone := func(request uint32) []float32 {
			b := openBench(t, spec, lawLen, nil)
			s := b.open(layers)
			s.SetRequest(request)
			must(t, s.Prefill(prompt, 0))
			b.steps(s)
			return outputs(s)
		}
		b := openBench(t, spec, lawLen, nil)
		var seqs []*engine.ReplaySequence
		for i := range uint32(3) {
			s := b.open(layers)
			s.SetRequest(i % 2 * 7) // 0, 7, 0
			must(t, s.Prefill(prompt, 0))
			seqs = append(seqs, s)
		}
		b.steps(seqs...)
		zero, seven, again := outputs(seqs[0]), outputs(seqs[1]), outputs(seqs[2])
		same(t, spec+": request 0 in a batch", zero, alone(0))
		same(t, spec+": request 7 in a batch", seven, alone(7))
		same(t, spec+": request 0 in another slot", again, zero)
		if slices.Equal(zero, seven) {
			t.Errorf("%s: requests 0 and 7 draw the same", spec)
		}
	}
}

// A fork draws what the original does, captured steps too, and a slot that is
// opened again has no number left over.
func TestRequestsGoWithTheirSequence(t *testing.T) {
	layers, prompt := lawTensors(1, lawLen), lawLen-lawSteps
	for _, spec := range drawing {
		b := openBench(t, spec, lawLen, nil)
		first := b.open(layers)
		first.SetRequest(1<<24 - 1)
		must(t, first.Prefill(prompt, 0))
		fork, err := first.Fork()
		must(t, err)
		for first.More() {
			must(t, b.StepReplayed(first))
		}
		b.steps(fork)
		same(t, spec+": a fork", outputs(fork), outputs(first))
		used := outputs(first)
		first.Close()
		fork.Close()
		if fresh := outputs(b.run(layers, prompt, 0)); slices.Equal(fresh, used) {
			t.Errorf("%s: a new sequence draws as the one before in its slot", spec)
		} else {
			same(t, spec+": a new sequence", fresh, alone(t, spec, lawLen))
		}
	}
}
