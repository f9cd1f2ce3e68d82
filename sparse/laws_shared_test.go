package sparse_test

import (
	"context"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// settingsOf is every subject as it is, in decode steps only, and in prompts with the
// steps of another: as far as a method works in a phase.
func settingsOf(t *testing.T, e *engine.Engine) []*sparse.Spec {
	t.Helper()
	var list []*sparse.Spec
	seen := map[string]bool{}
	for _, s := range subjects {
		if s.slow {
			continue
		}
		text := fitted(t, s.spec, e)
		for _, text := range []string{text, "prefill=dense decode=" + text, "prefill=" + text + " decode=quest(budget=48)"} {
			spec, err := sparse.Parse(text)
			if err == nil && !seen[spec.String()] { // an error: not in this phase, or not with that one
				seen[spec.String()] = true
				list = append(list, spec)
			}
		}
	}
	return list
}

// A prompt that is read once for several methods which read it alike gives each
// the logits that it has alone, bit by bit: of the prompt and of every step.
func TestLawSharedPrefill(t *testing.T) {
	aboutNumbers(t)
	e, err := engine.Open("../testdata/stories260K.gguf", devtest.Device, device.Config{Threads: 2})
	must(t, err)
	defer e.Close()
	const prompt = 230 // ends inside a page
	ids := make([]int32, prompt+lawSteps)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*13) % e.Model.Vocab)
	}
	var groups [][]*sparse.Spec
next:
	for _, s := range settingsOf(t, e) {
		for i, g := range groups {
			if s.SamePrefill(g[0]) {
				groups[i] = append(g, s)
				continue next
			}
		}
		groups = append(groups, []*sparse.Spec{s})
	}
	grouped := 0
	for _, g := range groups {
		if len(g) == 1 {
			continue
		}
		grouped += len(g)
		config := engine.Config{Context: len(ids), Slots: 2, Attn: g[0], Also: g[1:], Seed: 1}
		shared, err := e.NewRunner(config)
		must(t, err)
		read, err := shared.Open()
		must(t, err)
		must(t, read.Prefill(context.Background(), ids[:prompt], engine.PrefillOptions{}))
		kept, err := read.Fork()
		must(t, err)
		read.Close()
		for i, spec := range g {
			t.Run(title(spec.String()), func(t *testing.T) {
				config := config
				config.Slots, config.Attn, config.Also = 1, spec, nil
				r, err := e.NewRunner(config)
				must(t, err)
				defer r.Close()
				want, err := r.Open()
				must(t, err)
				must(t, want.Prefill(context.Background(), ids[:prompt], engine.PrefillOptions{}))
				shared.SetDecodePolicy(i)
				got, err := kept.Fork()
				must(t, err)
				defer got.Close()
				sameSteps(t, [2]*engine.Runner{shared, r}, [2]*engine.Sequence{got, want}, ids[prompt:])
			})
		}
		must(t, shared.Close())
	}
	if grouped < 80 || len(groups) < 20 {
		t.Errorf("%d specs in %d groups: too few shared a prompt for this to say something", grouped, len(groups))
	}
}

// sameSteps compares the logits of two sequences, which have a prompt, before and
// after each of some steps.
func sameSteps(t *testing.T, r [2]*engine.Runner, s [2]*engine.Sequence, ids []int32) {
	t.Helper()
	var logits [2][]float32
	for step := 0; ; step++ {
		for i := range s {
			if logits[i] == nil {
				logits[i] = make([]float32, 512)
			}
			must(t, s[i].Logits(logits[i]))
		}
		same(t, "logits", logits[0], logits[1])
		if step == len(ids) {
			return
		}
		for i := range s {
			must(t, s[i].Push(ids[step]))
			must(t, r[i].Step(s[i]))
		}
	}
}

// What draws in the laws says so in its table entry: repeats of an evaluation ask.
func TestSystemsThatDrawSaySo(t *testing.T) {
	draws := 0
	for _, s := range subjects {
		spec, err := sparse.Parse(s.spec)
		must(t, err)
		if s.random && !spec.Draws() {
			t.Errorf("%s draws and does not say so", s.spec)
		}
		if spec.Draws() {
			draws++
		}
	}
	if draws == len(subjects) {
		t.Error("everything says that it draws")
	}
}
