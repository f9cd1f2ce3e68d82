package engine_test

import (
	"math"
	"testing"

	"github.com/gollm/gollm/engine"
)

// TestMeter holds what a meter counts against the positions that each row and head reads, one
// by one, and against an audit of the last step.
func TestMeter(t *testing.T) {
	const n, prompt = 200, 199
	for _, spec := range []string{
		"dense", "streaming(sink=4,window=20)", "topk(k=10,sink=4,window=20)", "topp(p=0.5)", "prefill=dense decode=quest(budget=64,page=8)",
		"prefill=dense decode=vattention", "santa(samples=8)", "sketchwalk(density=0.5)", "psaw", "vslash", "anchor", "prefill=dense decode=h2o(hh=32,recent=32)",
		"prefill=dense decode=magicpig", "cis", "prefill=dense decode=topk(k=20,index=q4)",
	} {
		t.Run(spec, func(t *testing.T) {
			meteredReplay(t, newWindowReplay(t, spec, 2, n, 50), n)
			got := meteredReplay(t, newReplay(t, spec, 2, n), n)
			step := audited(t, spec, n, prompt).Phases[1].Mean
			for name, pair := range map[string][2]float64{
				"density": {float64(got.Selected) / float64(got.Pairs), step.Density},
				"K":       {float64(got.K) / float64(got.Past), step.KRead}, "V": {float64(got.V) / float64(got.Past), step.VRead},
			} {
				if math.Abs(pair[0]-pair[1]) > 1e-12 {
					t.Errorf("%s of a step: %v, the audit has %v", name, pair[0], pair[1])
				}
			}
		})
	}
}

// meteredReplay counts a prompt and a step one by one beside a meter, and returns what the
// meter has of the step.
func meteredReplay(t *testing.T, r *engine.Replay, n int) engine.Reads {
	t.Helper()
	m := r.Meter()
	var want engine.Reads
	r.Observe = func(s engine.Selection) { addReads(&want, &s, rKVHeads) }
	s, err := r.Open(randomLayers(1, n))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(n-1, 64); err != nil {
		t.Fatal(err)
	}
	got := m.Take(0)
	if got.Selected != want.Selected || got.V != want.V || got.Pairs != want.Pairs || got.Past != want.Past || got.K > got.Past || got.V > got.Past {
		t.Errorf("the prompt: %+v, want %+v", got, want)
	}
	want = engine.Reads{}
	if err := r.Step(s); err != nil {
		t.Fatal(err)
	}
	got = m.Take(0)
	if got.Selected != want.Selected || got.V != want.V || got.Pairs != want.Pairs {
		t.Errorf("a step: %+v, want %+v", got, want)
	}
	return got
}

// addReads adds what the rows of a selection read.
func addReads(r *engine.Reads, s *engine.Selection, kvHeads int) {
	for row, pos := range s.Pos {
		if pos < 0 {
			continue
		}
		r.Pairs += int64(s.Heads * (pos + 1))
		r.Past += int64(kvHeads * (pos + 1))
		for g := range kvHeads {
			values := map[int32]bool{}
			for h := g * s.Heads / kvHeads; h < (g+1)*s.Heads/kvHeads; h++ {
				keys, _ := s.Keys(row, h)
				r.Selected += int64(len(keys))
				for _, j := range keys {
					values[j] = true
				}
			}
			r.V += int64(len(values))
		}
	}
}
