package sparse_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// planned is what every row, layer and head of a run reads, as text: of the rows
// from on.
func (b *bench) planned(layers []engine.QKV, prompt, to, from int) map[[3]int]string {
	b.t.Helper()
	all := map[[3]int]string{}
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := 0; p >= from && h < sel.Heads; h++ {
				keys, weights := sel.Keys(row, h)
				all[[3]int{sel.Layer, p, h}] = fmt.Sprint(keys, weights)
			}
		}
	}
	s := b.open(layers)
	must(b.t, s.Prefill(prompt, 0))
	for s.Len() < to {
		must(b.t, b.Step(s))
	}
	b.Observe = nil
	return all
}

// Setup B: the question rows of a prompt read what decode steps at the same
// positions read, and rows before them everything.
func TestVAttentionQuestionRowsAreDecodeRows(t *testing.T) {
	const n, question = 160, 25
	layers := lawTensors(1, n)
	const options = "vattention(sink=4,local=16,top=0.05,fb=0.1,eps=0.3,question="
	b := openBench(t, options+"25)", n, nil)
	rows := b.planned(layers, n, n, n-question)
	steps := openBench(t, options+"0)", n, nil).planned(layers, n-question, n, n-question)
	if len(rows) != len(steps) || len(rows) != lawLayers*lawHeads*question {
		t.Fatalf("%d rows of the question, %d steps", len(rows), len(steps))
	}
	for at, want := range steps {
		if rows[at] != want {
			t.Fatalf("layer %d, position %d, head %d: the question reads %s, a step %s", at[0], at[1], at[2], rows[at], want)
		}
	}
	got := outputs(b.run(layers, n, 0))
	dense := outputs(openBench(t, "dense", n, nil).run(layers, n, 0))
	same(t, "rows before the question", rowsOf(got, n, 0, n-question), rowsOf(dense, n, 0, n-question))
	if slices.Equal(rowsOf(got, n, n-question, n), rowsOf(dense, n, n-question, n)) {
		t.Error("the question is dense")
	}
}

// fb=0 takes no sample: the oracle top-k, to the bit.
func TestVAttentionWithoutAPilotIsTopK(t *testing.T) {
	same(t, "fb=0", alone(t, "prefill=dense decode=vattention(sink=4,local=20,top=30,fb=0)", lawLen), alone(t, "prefill=dense decode=topk(sink=4,window=20,k=30)", lawLen))
}

// A row that sees no more than sinks, recent window and top-k is dense.
func TestVAttentionOfShortRowsIsDense(t *testing.T) {
	for _, spec := range []string{"vattention", "vattention(sink=100,local=80,top=20)", "vattention(scorer=cis,sink=100,local=80,top=20)", "vattention(question=99)"} {
		same(t, spec, alone(t, spec, lawLen), alone(t, "dense", lawLen))
	}
}

// scorer=cis is the stack of the two; with the other scorers what the scorer
// reads is fixed, sinks and recent window besides, and prompts stay dense.
func TestVAttentionScorers(t *testing.T) {
	const tail = ",fb=0.1,eps=0.4"
	same(t, "scorer=cis",
		alone(t, "vattention(scorer=cis,sink=4,local=16,top=20"+tail+")", lawLen),
		alone(t, "cis(k=20,sink=4,local=16) + vattention(sink=4,local=16,top=20"+tail+")", lawLen))

	const n = 400
	layers := lawTensors(1, n)
	blocks := openBench(t, "prefill=dense decode=sketchwalk(density=0.4)", n, nil).planned(layers, n-lawSteps, n, n-lawSteps)
	b := openBench(t, "vattention(scorer=sketchwalk,sink=70,local=16,top=0.4"+tail+")", n, nil)
	var sampled int
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := 0; p >= 0 && h < sel.Heads; h++ {
				keys, weights := sel.Keys(row, h)
				switch {
				case !sel.Decode || sel.Layer < 2:
					if len(keys) != p+1 {
						t.Fatalf("layer %d, row %d reads %d positions, want all", sel.Layer, p, len(keys))
					}
				default:
					sampled += fixedAre(t, blocks[[3]int{sel.Layer, p, h}], keys, weights, p)
				}
			}
		}
	}
	b.run(layers, n-lawSteps, 0)
	if sampled == 0 {
		t.Error("nothing was sampled")
	}
}

// fixedAre fails the test unless the keys with weight one are those of a plan's
// text, sinks of 70 and a recent window of 16, and counts the others.
func fixedAre(t *testing.T, plan string, keys []int32, weights []float32, p int) (sampled int) {
	t.Helper()
	want := map[int32]bool{}
	for _, f := range strings.Fields(strings.Trim(strings.SplitN(plan, "]", 2)[0], "[")) {
		var j int32
		if _, err := fmt.Sscan(f, &j); err != nil {
			t.Fatal(err)
		}
		want[j] = true
	}
	for j := range int32(p + 1) {
		if j < 70 || int(j) > p-16 {
			want[j] = true
		}
	}
	whole := len(keys) == p+1
	for i, j := range keys {
		switch {
		case want[j] && weights[i] != 1:
			t.Fatalf("row %d: fixed position %d has weight %v", p, j, weights[i])
		case !want[j] && !whole:
			sampled++
		}
		delete(want, j)
	}
	if len(want) > 0 {
		t.Fatalf("row %d does not read %v", p, want)
	}
	return sampled
}

// What cannot be had is one clear error.
func TestVAttentionScorerErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"vattention(scorer=cis,question=5)":         "cis selects in decode only",
		"vattention(scorer=cis,top=0)":              "option top",
		"topk + vattention(scorer=cis)":             "cis (of vattention)",
		"etf + vattention(scorer=sketchwalk)":       "must see all of them",
		"vattention(scorer=oracle)":                 "topk, quest, sketchwalk, cis",
		"prefill=etf decode=vattention(scorer=cis)": "",
		"anchor + vattention(scorer=sketchwalk)":    "",
	} {
		_, err := sparse.Parse(spec)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", spec, err, want)
		}
	}
}

// Three laws of scores: equal ones, one spike above equal ones, and sinks and
// recent positions above a wide tail. A top-k fails the first and takes the
// second; a sample without a top-k the other way round; both together pass all.
func TestThreeLawsOfScores(t *testing.T) {
	const n, heads, seeds = 1024, 16, 16
	type reading struct {
		name string
		// off is the mean error of D, relative, over heads and seeds.
		off func(b *residualBench) float64
	}
	sampledBy := func(top, pilot int, eps float64) func(b *residualBench) float64 {
		return func(b *residualBench) (off float64) {
			plan := device.Plan{Sink: 4, Recent: 16, Selected: device.None}
			if top > 0 {
				plan = b.best(4, 16, top)
			}
			want := b.dense()[0]
			for seed := range uint64(seeds) {
				index, weight := b.sample(plan, tailOf(pilot, eps, seed))
				for h := range index {
					off += math.Abs(b.sums(plan, index[h], weight[h])[0]/want-1) / (heads * seeds)
				}
			}
			return off
		}
	}
	readings := []reading{
		{"top-k", sampledBy(50, 0, 1)},
		{"sample", sampledBy(0, 100, 1e9)},
		{"both", sampledBy(50, 100, .1)},
	}
	limit := map[string]map[string][2]float64{ // least and largest error
		"flat":  {"top-k": {.8, 1}, "sample": {0, .001}, "both": {0, .001}},
		"loud":  {"top-k": {0, .1}, "sample": {.5, 10}, "both": {0, .1}},
		"wide":  {"both": {0, .1}},
		"mixed": {"both": {0, .1}},
	}
	for law, scores := range map[string]func(j int) float64{
		"flat":  func(int) float64 { return 1 },
		"loud":  func(j int) float64 { return 9 * float64(max(0, 2-max(j-500, 500-j))) }, // 499 to 501
		"wide":  func(j int) float64 { return float64(gauss(uint64(j), 1)[0]) * 2 },
		"mixed": func(j int) float64 { return float64(gauss(uint64(j), 1)[0]) + edgeBonus(j, n) },
	} {
		x := make([]float64, n)
		for j := range x {
			x[j] = float64(float32(scores(j)))
		}
		b := newResidualBench(t, heads, x, make([][2]float64, n))
		for _, r := range readings {
			if bound, ok := limit[law][r.name]; ok {
				if off := r.off(b); !(off >= bound[0] && off <= bound[1]) {
					t.Errorf("%s of a %s law: mean error %.4f, want %v to %v", r.name, law, off, bound[0], bound[1])
				}
			}
		}
	}
}

// tailOf is a sample sized by a pilot; no sample for a pilot of 0.
func tailOf(pilot int, eps float64, seed uint64) device.Residual {
	return device.Residual{Draw: rng.Address{Seed: seed}, Pilot: device.Amount{Count: pilot}, Eps: eps, Z: 1.96}
}

// edgeBonus is what sinks and recent positions score more.
func edgeBonus(j, n int) float64 {
	if j < 4 || j >= n-16 {
		return 4
	}
	return 0
}
