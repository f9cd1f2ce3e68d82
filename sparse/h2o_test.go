package sparse_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// oracle is the definition of h2o for one layer: the scores of each kv head, and
// what is gone.
type oracle struct {
	x     engine.QKV
	score [lawKVHeads][]float64
	gone  [lawKVHeads]map[int]bool
}

// reads adds the weights of all heads of the row at p over what is not gone, in
// full for a prompt, and returns what each kv head reads.
func (o *oracle) reads(p int, full bool) (sets [lawKVHeads][]int32) {
	for g := range lawKVHeads {
		o.score[g] = append(o.score[g], 0)
		var set []int32
		for j := range p + 1 {
			if full || !o.gone[g][j] {
				set = append(set, int32(j))
			}
		}
		for h := g * lawHeads / lawKVHeads; h < (g+1)*lawHeads/lawKVHeads; h++ {
			q, k := o.x.Q[(h*lawLen+p)*lawDim:][:lawDim], o.x.K[g*lawLen*lawDim:][:lawLen*lawDim]
			a := weights(q, k, p+1)
			for _, j := range set {
				o.score[g][j] += a[j] / massOf(a, set)
			}
		}
		sets[g] = set
	}
	return sets
}

// evict drops what is neither new nor among the best before position p.
func (o *oracle) evict(p, best, newest int) {
	for g := range lawKVHeads {
		if o.gone[g] == nil {
			o.gone[g] = map[int]bool{}
		}
		var old []int
		for j := 0; j < p-newest; j++ {
			if !o.gone[g][j] {
				old = append(old, j)
			}
		}
		slices.SortStableFunc(old, func(a, b int) int {
			if o.score[g][a] > o.score[g][b] {
				return -1
			}
			return 1
		})
		for _, j := range old[min(best, len(old)):] {
			o.gone[g][j] = true
		}
	}
}

// Every step of every head reads what the definition keeps, and what is gone
// never comes back.
func TestH2OKeepsWhatItReads(t *testing.T) {
	const prompt, best, newest = 12, 20, 16 // so short that what is generated competes
	layers := lawTensors(1, lawLen)
	var oracles [lawLayers]oracle
	for l := range oracles {
		oracles[l].x = layers[l]
		for p := range prompt {
			oracles[l].reads(p, true)
		}
	}
	b := openBench(t, "h2o(hh=20,recent=16)", lawLen, nil)
	checked, generated := 0, 0
	b.Observe = func(sel engine.Selection) {
		if !sel.Decode {
			return
		}
		o, p := &oracles[sel.Layer], sel.Pos[0]
		o.evict(p, best, newest)
		want := o.reads(p, false)
		for h := range lawHeads {
			keys, _ := sel.Keys(0, h)
			if g := h * lawKVHeads / lawHeads; !slices.Equal(keys, want[g]) || len(keys) != min(p, best+newest)+1 {
				t.Fatalf("layer %d, row %d, head %d reads %v, want %v", sel.Layer, p, h, keys, want[g])
			}
			for _, j := range keys {
				if int(j) >= prompt && int(j) < p-newest {
					generated++
				}
			}
			checked++
		}
	}
	b.run(layers, prompt, 0)
	if checked != (lawLen-prompt)*lawLayers*lawHeads || generated == 0 {
		t.Errorf("%d heads were checked, which kept generated positions %d times", checked, generated)
	}
}

// Shares are of the prompt: 188 positions, and of nothing without one.
func TestH2OBudgetIsOfThePrompt(t *testing.T) {
	sizes := func(prompt int) (n []int) {
		b := openBench(t, "h2o(hh=0.1,recent=0.25)", lawLen, nil)
		b.Observe = func(sel engine.Selection) {
			if keys, _ := sel.Keys(0, 0); sel.Decode && sel.Layer == 0 {
				n = append(n, len(keys))
			}
		}
		s := b.open(lawTensors(1, lawLen))
		if prompt > 0 {
			must(t, s.Prefill(prompt, 0))
		}
		for range 9 {
			must(t, b.Step(s))
		}
		return n
	}
	if got := sizes(188); got[0] != 18+47+1 || got[8] != 18+47+1 {
		t.Errorf("after a prompt of 188: %v positions", got)
	}
	if got := sizes(0); !slices.Equal(got, []int{1, 1, 1, 1, 2, 2, 2, 2, 3}) {
		t.Errorf("without a prompt: %v positions", got)
	}
}

// Before anything goes the scores of a kv head add up to its queries.
func TestH2OScoresAddUpToQueries(t *testing.T) {
	const heads, rows = 6, 130
	scores, values := lawOfScores("wide", 150)
	b := newResidualBench(t, heads, scores, values)
	q := make([]float32, rows*heads*tailDim)
	for i := range q {
		q[i] = float32(math.Sin(float64(i)))
	}
	sum := b.tensor(device.F32, make([]float32, 150), 1, 1, 150)
	for _, part := range [][2]int{{20, 77}, {77, 78}, {78, 150}} {
		kv := b.kv
		kv.Len = b.tensor(device.I32, []int32{int32(part[1])}, 1)
		n := part[1] - part[0]
		x := b.tensor(device.F32, q[(part[0]-20)*heads*tailDim:(part[1]-20)*heads*tailDim], n, heads, tailDim)
		device.Do(b.dev.Queue(), device.Summarize{Rule: device.AttentionMass, Dst: sum, X: x, KV: kv, Plan: device.Plan{}})
	}
	got := make([]float32, 150)
	b.read(got, sum)
	var total float64
	for _, x := range got {
		total += float64(x)
	}
	if math.Abs(total-rows*heads) > 1e-3 {
		t.Errorf("scores add up to %v, want %d", total, rows*heads)
	}
}

// An evicted position cannot be sampled.
func TestH2OEvicts(t *testing.T) {
	for _, spec := range []string{"h2o + vattention", "prefill=topk decode=h2o + vattention(eps=0.5)"} {
		if _, err := sparse.Parse(spec); err == nil || !strings.Contains(err.Error(), "evicts") {
			t.Errorf("%s: %v", spec, err)
		}
	}
	for _, spec := range []string{"h2o + santa", "prefill=vattention(question=9) decode=h2o"} {
		if _, err := sparse.Parse(spec); err != nil {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
