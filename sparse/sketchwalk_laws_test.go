package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// swOutputs are the bits of a sequence's attention, all layers.
func swOutputs(s *engine.ReplaySequence) [][]float32 {
	var y [][]float32
	for l := range swLayers {
		y = append(y, slices.Clone(s.Output(l)))
	}
	return y
}

// sameOutputs compares them where both have been run.
func sameOutputs(t *testing.T, what string, a, b [][]float32) {
	t.Helper()
	for l := range a {
		for i, v := range a[l] {
			if math.Float32bits(v) != math.Float32bits(b[l][i]) {
				t.Errorf("%s: layer %d, element %d: %v and %v", what, l, i, v, b[l][i])
				return
			}
		}
	}
}

// sameLists compares what positions [lo, hi) of two sequences read.
func sameLists(a, b *swRun, slotA, slotB, lo, hi int) (layer, pos int, same bool) {
	for l := range swLayers {
		for p := lo; p < hi; p++ {
			if !slices.Equal(a.lists[[3]int{slotA, l, p}], b.lists[[3]int{slotB, l, p}]) {
				return l, p, false
			}
		}
	}
	return 0, 0, true
}

// steps decodes until the sequence has n positions.
func (r *swRun) steps(t *testing.T, s *engine.ReplaySequence, n int) {
	t.Helper()
	for s.Len() < n {
		must(t, r.Step(s))
	}
}

func TestSketchwalkDenseLimit(t *testing.T) {
	for _, n := range []int{1, 2, swBlock - 1, swBlock, swBlock + 1, 2 * swBlock, 2*swBlock + 1, 5*swBlock + 3} {
		data := swData(2, n+2)
		dense := swReplay(t, "dense", 1, n+2)
		want := dense.open(t, data, n, 0)
		dense.steps(t, want, n+2)
		specs := []string{"sketchwalk(density=1)", "sketchwalk(tau=99)", "sketchwalk(tau=99,forced=literal)"}
		if n+2 <= 2*swBlock {
			specs = append(specs, "sketchwalk", "sketchwalk(density=0.01)", "sketchwalk(density=0.01,forced=literal,causal=none)")
		}
		for _, spec := range specs {
			run := swReplay(t, spec, 1, n+2)
			s := run.open(t, data, n, 0)
			run.steps(t, s, n+2)
			sameOutputs(t, fmt.Sprintf("%s of %d positions", spec, n), swOutputs(s), swOutputs(want))
		}
	}
}

// TestSketchwalkChunks: a prompt in parts that end at blocks equals the whole.
func TestSketchwalkChunks(t *testing.T) {
	const n = 8*swBlock + 20
	data := swData(3, n)
	for _, spec := range []string{"sketchwalk(density=0.4)", "sketchwalk(density=0.3,budget=total)", "sketchwalk(density=0.4,arith=scaled,power=matrix,exponent=3)"} {
		whole := swReplay(t, spec, 1, n)
		want := whole.open(t, data, n, n)
		for _, chunk := range []int{swBlock, 2 * swBlock, 3 * swBlock} {
			run := swReplay(t, spec, 1, n)
			got := run.open(t, data, n, chunk)
			if l, p, same := sameLists(run, whole, 0, 0, 0, n); !same {
				t.Errorf("%s in chunks of %d: layer %d, position %d reads another list", spec, chunk, l, p)
			}
			sameOutputs(t, fmt.Sprintf("%s in chunks of %d", spec, chunk), swOutputs(got), swOutputs(want))
		}
	}
}

// TestSketchwalkDecodedState: blocks that decode completed serve a later prompt
// as if they had been prefilled.
func TestSketchwalkDecodedState(t *testing.T) {
	const mid, n = 5 * swBlock, 9*swBlock + 1
	data := swData(4, n)
	for _, tt := range []struct {
		spec string
		same bool
	}{{"sketchwalk(density=0.4)", true}, {"sketchwalk(density=0.4,row=last_token)", false}} {
		whole, parts := swReplay(t, tt.spec, 1, n), swReplay(t, tt.spec, 1, n)
		whole.open(t, data, n, 0)
		s := parts.open(t, data, 2*swBlock+10, 0)
		parts.steps(t, s, mid)
		must(t, s.Prefill(n-mid, 0))
		if l, p, same := sameLists(parts, whole, 0, 0, mid, n); same != tt.same {
			t.Errorf("%s: after decode the same lists: %v, want %v (layer %d, position %d)", tt.spec, same, tt.same, l, p)
		}
	}
}

// TestSketchwalkObserves: decode finds what another method's prefill stored.
func TestSketchwalkObserves(t *testing.T) {
	const prompt, n = 7*swBlock + 5, 8*swBlock + 9
	data := swData(5, n)
	both, one := swReplay(t, "sketchwalk(density=0.4)", 1, n), swReplay(t, "prefill=streaming decode=sketchwalk(density=0.4)", 1, n)
	both.steps(t, both.open(t, data, prompt, 0), n)
	one.steps(t, one.open(t, data, prompt, 0), n)
	if l, p, same := sameLists(both, one, 0, 0, prompt, n); !same {
		t.Errorf("layer %d, position %d reads another list than after its own prefill", l, p)
	}
}

// TestSketchwalkCausal: what comes in later blocks changes nothing, unless the
// walk is told to look there.
func TestSketchwalkCausal(t *testing.T) {
	const n, block = 9 * swBlock, 6
	data, changed := swData(16, n), swData(16, n)
	for l := range changed {
		for h := range swHeads {
			for i := range swDim {
				changed[l].Q[(h*n+block*swBlock+7)*swDim+i] += float32(900 * (i % 3))
				changed[l].K[(h%swKVHeads*n+block*swBlock+7)*swDim+i] -= float32(900 * (i % 5))
			}
		}
	}
	for _, tt := range []struct {
		spec  string
		still bool
	}{
		{"sketchwalk(density=0.4)", true}, {"sketchwalk(density=0.4,score=softmax)", true},
		{"sketchwalk(density=0.4,power=matrix,arith=scaled)", true}, {"sketchwalk(density=0.4,causal=none)", false},
	} {
		a, b := swReplay(t, tt.spec, 1, n), swReplay(t, tt.spec, 1, n)
		a.open(t, data, n, 0)
		b.open(t, changed, n, 0)
		if l, p, same := sameLists(a, b, 0, 0, 0, block*swBlock); same != tt.still {
			t.Errorf("%s: rows before the change read the same: %v, want %v (layer %d, position %d)", tt.spec, same, tt.still, l, p)
		}
		if _, _, same := sameLists(a, b, 0, 0, block*swBlock, n); same {
			t.Errorf("%s: rows after the change read the same", tt.spec)
		}
	}
}

// TestSketchwalkBatch: a sequence reads the same alone, on other pages, in a
// batch, as a fork and replayed from a graph.
func TestSketchwalkBatch(t *testing.T) {
	const prompt, n = 6*swBlock + 50, 8*swBlock + 9
	data, other := swData(7, n), swData(8, n)
	for _, spec := range []string{"sketchwalk(density=0.4)", "sketchwalk(density=0.4,causal=none)", "sketchwalk(density=0.4,row=last_token,diag=blockmean,heads=mean_score)"} {
		alone := swReplay(t, spec, 1, n)
		want := alone.open(t, data, prompt, 0)
		alone.steps(t, want, n)

		run := swReplay(t, spec, 4, n)
		first := run.open(t, other, 3*swBlock, 0)
		a := run.open(t, data, prompt, 0)
		f, err := a.Fork()
		must(t, err)
		must(t, f.Continue(other))
		for a.Len() < n {
			if a.Len()%2 == 0 {
				must(t, run.Step(first, a, f))
			} else {
				must(t, run.Step(a, f))
			}
		}
		if l, p, same := sameLists(run, alone, a.Slot(), 0, prompt, n); !same {
			t.Errorf("%s: in a batch layer %d, position %d reads another list", spec, l, p)
		}
		sameOutputs(t, spec+" in a batch", swOutputs(a), swOutputs(want))

		graph := swReplay(t, spec, 1, n)
		g := graph.open(t, data, prompt, 0)
		for g.Len() < n {
			must(t, graph.StepReplayed(g))
		}
		sameOutputs(t, spec+" replayed", swOutputs(g), swOutputs(want))
	}
}

// TestSketchwalkTruncate: what was dropped leaves no trace.
func TestSketchwalkTruncate(t *testing.T) {
	const n = 8*swBlock + 9
	data, other := swData(9, n), swData(10, n)
	spec := "sketchwalk(density=0.4)"
	alone := swReplay(t, spec, 1, n)
	want := alone.open(t, data, 6*swBlock, 0)
	alone.steps(t, want, n)
	run := swReplay(t, spec, 1, n)
	s := run.open(t, data, 6*swBlock, 0)
	must(t, s.Continue(other))
	run.steps(t, s, n)
	if got := s.Truncate(6*swBlock + 3); got != 6*swBlock {
		t.Fatalf("truncated to %d, want a page boundary", got)
	}
	must(t, s.Continue(data))
	run.steps(t, s, n)
	sameOutputs(t, "after a truncation", swOutputs(s), swOutputs(want))
}

// TestSketchwalkSeeds: the sketch is that of the seed.
func TestSketchwalkSeeds(t *testing.T) {
	const n = 10 * swBlock
	data := swData(12, n)
	runs := map[string]*swRun{}
	for _, spec := range []string{"sketchwalk(density=0.4,r=4)", "sketchwalk(density=0.4,r=4,seed=1)", "sketchwalk(density=0.4,seed=1)", "sketchwalk(density=0.4,sketch=exact)"} {
		runs[spec] = swReplay(t, spec, 1, n)
		runs[spec].open(t, data, n, 0)
	}
	if _, _, same := sameLists(runs["sketchwalk(density=0.4,r=4)"], runs["sketchwalk(density=0.4,r=4,seed=1)"], 0, 0, 0, n); same {
		t.Error("another seed makes no other sketch")
	}
	if l, p, same := sameLists(runs["sketchwalk(density=0.4,seed=1)"], runs["sketchwalk(density=0.4,sketch=exact)"], 0, 0, 0, n); !same {
		t.Errorf("a sketch as long as the head is not exact: layer %d, position %d", l, p)
	}
}

// TestSketchwalkThreads: the order of sums does not depend on the workers.
func TestSketchwalkThreads(t *testing.T) {
	const prompt, n = 7*swBlock + 9, 8*swBlock + 5
	data := swData(14, n)
	var want [][]float32
	for _, threads := range []int{1, 2, 5} {
		run := swReplayOn(t, "sketchwalk(density=0.4)", threads, engine.ReplayConfig{MaxLen: n})
		s := run.open(t, data, prompt, 0)
		run.steps(t, s, n)
		if got := swOutputs(s); want == nil {
			want = got
		} else {
			sameOutputs(t, fmt.Sprintf("%d threads", threads), got, want)
		}
	}
}

// TestSketchwalkWindow: what a layer cannot see is not selected, and the budget is
// of what it can see.
func TestSketchwalkWindow(t *testing.T) {
	const prompt, n, window = 11*swBlock + 9, 12*swBlock + 5, 6 * swBlock
	run := swReplayOn(t, "sketchwalk(density=0.5)", 2, engine.ReplayConfig{MaxLen: n, Window: window})
	run.steps(t, run.open(t, swData(15, n), prompt, 0), n)
	for p := range n {
		first := p // of the rows that share the list
		if p < prompt {
			first -= p % swBlock
		}
		oldest := max(0, first-window+1) / swBlock
		seen := p/swBlock - oldest + 1
		list := run.lists[[3]int{0, 3, p}]
		if want := (seen + 1) / 2; seen > 2 && len(list) != max(2, want) || int(list[0]) < oldest {
			t.Fatalf("position %d reads %v, want %d of blocks %d to %d", p, list, want, oldest, p/swBlock)
		}
	}
}

// TestSketchwalkNotANumber: a query that is not a number selects the lowest
// blocks and harms nobody else.
func TestSketchwalkNotANumber(t *testing.T) {
	const n = 8 * swBlock
	data := swData(13, n)
	for l := range data {
		data[l].Q[5*swBlock*swDim] = float32(math.NaN())
	}
	run := swReplay(t, "sketchwalk(density=0.5)", 1, n)
	run.open(t, data, n, 0)
	if got := run.lists[[3]int{0, 3, 6*swBlock - 1}]; !slices.Equal(got, []int32{0, 1, 5}) {
		t.Errorf("block 5 reads %v, want [0 1 5]", got)
	}
	if got := run.lists[[3]int{0, 3, 5*swBlock - 1}]; len(got) != 3 {
		t.Errorf("block 4 reads %v, want 3 blocks", got)
	}
}

func TestSketchwalkOptions(t *testing.T) {
	tests := []struct{ options, want string }{
		{"density=0", "more than 0"}, {"density=1.1", "at most 1"}, {"tau=1", "0 or at least 2"}, {"exponent=0", "1 to 32"},
		{"exponent=7", "arith=scaled"}, {"power=matrix", "arith=scaled"}, {"causal=full", "tri, none"}, {"r=0", "at least 1"}, {"seed=-1", "at least 0"},
		{"last=-1", "at least 0"}, {"dense=-1", "at least 0"}, {"sink=2,forced=literal", "forced=literal reads only"}, {"recent=1.5", "want a count"},
		{"temperature=2", "score=softmax"}, {"score=softmax,temperature=0", "above 0"}, {"score=softmax,temperature=Inf", "above 0"},
		{"damping=0", "above 0"}, {"damping=2", "at most 1"}, {"steps=3", "damping"}, {"steps=0,damping=0.5", "1 to 16"},
		{"damping=0.5,power=matrix,score=relu", "power=matrix"},
	}
	for _, tt := range tests {
		if _, err := sparse.Parse("sketchwalk(" + tt.options + ")"); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v, want it to contain %q", tt.options, err, tt.want)
		}
	}
	for text, whole := range map[string]bool{"sketchwalk": false, "sketchwalk(causal=none)": true, "prefill=dense decode=sketchwalk(causal=none)": false} {
		s, err := sparse.Parse(text)
		must(t, err)
		if s.Whole() != whole {
			t.Errorf("%s: whole prompt %v, want %v", text, s.Whole(), whole)
		}
	}
}
