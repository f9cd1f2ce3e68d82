package engine_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/sparse"
)

// TestSampleRows samples the rows of a step at once, with a hole between the slots and
// other parameters for each: the tokens are those of each sequence sampled by itself.
func TestSampleRows(t *testing.T) {
	e, story := stories(t)
	text := append(slices.Clone(story.IDs), story.Greedy...)
	r := runner(t, e, engine.Config{Context: 128, Slots: 4})
	seqs := []*engine.Sequence{sequence(t, r), sequence(t, r), sequence(t, r), sequence(t, r)}
	for i, s := range seqs {
		prefill(t, s, text[i:20+3*i])
	}
	seqs[1].Close()
	seqs = slices.Delete(seqs, 1, 2)
	how := []sampling.Params{{}, {Temperature: 3, Seed: 5}, {Temperature: 1, Seed: 6, RepeatPenalty: 1.5, RepeatLastN: 30}}
	if _, err := r.Sample(seqs, how); err == nil {
		t.Error("rows of prefills are sampled, which have overwritten each other")
	}
	for i, s := range seqs {
		if err := s.Push(text[40+i]); err != nil {
			t.Fatal(err)
		}
	}
	var seen [3][]int32
	for range 6 {
		if err := r.Step(seqs...); err != nil {
			t.Fatal(err)
		}
		var rows [][]float32
		for _, s := range seqs {
			rows = append(rows, logits(t, e, s))
		}
		got, err := r.Sample(seqs, how)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range seqs {
			if err := s.SetLogits(rows[i]); err != nil {
				t.Fatal(err)
			}
			want, err := s.Sample(how[i])
			if err != nil || got[i].Err != nil || got[i].ID != want {
				t.Errorf("sequence %d: %+v, want %d, %v", i, got[i], want, err)
			}
			seen[i] = append(seen[i], want)
		}
	}
	if slices.Equal(seen[0], seen[1]) || slices.Equal(seen[1], seen[2]) {
		t.Error("all sequences write the same: this shows nothing")
	}
	if err := r.Step(seqs...); err != nil {
		t.Fatal(err)
	}
	broken := make([]float32, e.Model.Vocab)
	for i := range broken {
		broken[i] = float32(math.Inf(-1))
	}
	if err := seqs[1].SetLogits(broken); err != nil {
		t.Fatal(err)
	}
	got, err := r.Sample(seqs, how)
	if err != nil || got[0].Err != nil || got[1].Err == nil || got[2].Err != nil {
		t.Errorf("logits of one sequence are no numbers: %+v, %v", got, err)
	}
}

// TestRunnersShareACache steps sequences of two specs over one cache, with a prompt of one
// that begins with blocks of another: each has the logits that it has alone.
func TestRunnersShareACache(t *testing.T) {
	e, story := stories(t)
	text := slices.Concat(story.IDs, story.Greedy, story.Greedy)[:150]
	texts := []string{"dense", "streaming(sink=2,window=30)", "vslash(vertical=20,slash=30)"}
	var specs []*sparse.Spec
	var want [][]float32
	for _, name := range texts {
		spec, err := sparse.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
		r := runner(t, e, engine.Config{Context: 192, Attn: spec})
		s := sequence(t, r)
		prefill(t, s, text)
		stepEach(t, r, s, text[:2])
		want = append(want, logits(t, e, s))
	}
	all, err := e.NewRunners(engine.Config{Context: 192, Slots: 2, Blocks: 9}, specs...)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		var seqs []*engine.Sequence
		for i, r := range all {
			s, err := r.Open()
			if err != nil {
				t.Fatal(err)
			}
			seqs = append(seqs, s)
			if i < 2 && round == 1 {
				if err := s.Prefill(t.Context(), text[:70], engine.PrefillOptions{Prompt: len(text)}); err != nil {
					t.Fatal(err)
				}
				b := s.Keep(0)
				s.Close()
				if s, err = r.Open(); err != nil {
					t.Fatal(err)
				}
				s.Begin([]kvcache.Block{b}, text)
				r.Drop(b)
				seqs[i] = s
			}
			prefill(t, s, text[s.Len():])
			if i == 1 { // what another spec does between
				stepEach(t, all[0], seqs[0], text[:2])
				if got := logits(t, e, seqs[0]); distance(got, want[0]) > batchDistance {
					t.Errorf("%s: the logits differ by %g", texts[0], distance(got, want[0]))
				}
			}
		}
		for i := 1; i < len(all); i++ {
			stepEach(t, all[i], seqs[i], text[:2])
			if got := logits(t, e, seqs[i]); distance(got, want[i]) > batchDistance {
				t.Errorf("%s: the logits differ by %g", texts[i], distance(got, want[i]))
			}
		}
		for i, s := range seqs {
			if err := all[i].CheckPages(); err != nil {
				t.Error(err)
			}
			s.Close()
		}
		if blocks, free := all[1].Blocks(); blocks != 9 || free != 9 {
			t.Errorf("%d of %d blocks are free", free, blocks)
		}
	}
	if err := engine.CloseAll(all); err != nil {
		t.Error(err)
	}
}
