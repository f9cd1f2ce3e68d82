package sparse_test

import (
	"math"
	"slices"
	"testing"

	"github.com/gollm/gollm/engine"
)

// weights is dense attention of query q, [dim], over the first n keys, [·, dim].
func weights(q, k []float32, n int) []float64 {
	a, sum := make([]float64, n), 0.0
	for j := range a {
		var s float64
		for i := range q {
			s += float64(q[i]) * float64(k[j*len(q)+i])
		}
		a[j] = math.Exp(s / math.Sqrt(float64(len(q))))
		sum += a[j]
	}
	for j := range a {
		a[j] /= sum
	}
	return a
}

// massOf is the mass of a on a set.
func massOf(a []float64, set []int32) (m float64) {
	for _, j := range set {
		m += a[j]
	}
	return m
}

// reads is what the heads of the observed layer read at each position, and how
// often selections were made.
type reads struct {
	keys  [][][]int32 // [position][head]
	ratio float64     // share of heads and steps
	out   []float32   // [heads, n, dim]
}

// c2 runs the keys of example C-2 with the queries of positions 9 and 10.
func c2(t *testing.T, spec string, q9, q10 []float32) reads {
	t.Helper()
	x := engine.QKV{Q: make([]float32, 24), K: c2Keys, V: slices.Clone(c2Keys)}
	copy(x.Q[18:], q9)
	copy(x.Q[20:], q10)
	b := openBench(t, spec, 12, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.HeadDim = 1, 1, 1, 2 })
	return b.watch([]engine.QKV{x}, 9, 11)
}

var c2Keys = []float32{1, 0, .2, 1, .9, .3, 0, 1, 1, 1, .5, .5, 2, .1, .1, .2, .3, .9, .4, .1, 1.5, -.2, .2, .2}

// watch prefills prompt positions and steps to position to, and gives what layer
// 0 read.
func (b *bench) watch(layers []engine.QKV, prompt, to int) reads {
	b.t.Helper()
	r := reads{keys: make([][][]int32, to)}
	s := b.open(layers)
	b.Observe = func(sel engine.Selection) {
		for row, p := range sel.Pos {
			for h := 0; p >= 0 && sel.Layer == 0 && h < sel.Heads; h++ {
				keys, _ := sel.Keys(row, h)
				r.keys[p] = append(r.keys[p], slices.Clone(keys))
			}
		}
	}
	must(b.t, s.Prefill(prompt, 0))
	for s.Len() < to {
		must(b.t, b.Step(s))
	}
	r.ratio = b.figure(s, "retrieval ratio")
	r.out = s.Output(0)
	b.Observe = nil
	return r
}

// figure is what the policy counted for a sequence.
func (b *bench) figure(s *engine.ReplaySequence, name string) float64 {
	b.t.Helper()
	all, err := b.Policy().Figures(s.Slot())
	must(b.t, err)
	for _, f := range all {
		if f.Name == name {
			return f.Value
		}
	}
	return math.NaN()
}

// C-2 of the specification, to its digits.
func TestCISExample(t *testing.T) {
	q9, q10 := []float32{2, .5}, []float32{1.9, .7}
	a9 := weights(q9, c2Keys, 10)
	for j, want := range []float64{.097092, .044605, .093719, .033616, .138270, .057130, .413735, .029183, .049596, .043055} {
		if math.Abs(a9[j]-want) > 5e-7 {
			t.Errorf("weight %d is %.6f, want %.6f", j, a9[j], want)
		}
	}
	a10 := weights(q10, c2Keys, 11)
	const base = "cis(sink=1,local=2,k=3,m=1,r=1,s=4"
	tests := []struct {
		spec string
		want []int32
		mass float64
	}{
		{base + ",gap=drop)", []int32{0, 2, 4, 5, 6, 7, 9, 10}, .872245},
		{base + ",gap=keep)", []int32{0, 2, 4, 5, 6, 7, 8, 9, 10}, .920991},
		{base + ",tau=2)", []int32{0, 2, 4, 6, 9, 10}, .793579},
		{base + ",tau=0.9942)", []int32{0, 2, 4, 6, 9, 10}, .793579},                      // the cosine is .994172
		{base + ",tau=0.9941)", []int32{0, 2, 4, 5, 6, 7, 8, 9, 10}, .920991},             // just below
		{base + ",blocks=relative)", []int32{0, 2, 4, 5, 6, 7, 8, 9, 10}, .920991},        // 9 and 10 are steps 0 and 1
		{"cis(sink=1,local=2,k=3,m=0,s=4,gap=drop)", []int32{0, 2, 4, 6, 9, 10}, .793579}, // the old selection and the windows
		{"cis(sink=1,local=2,k=3,r=1,s=4)", []int32{0, 2, 4, 5, 6, 7, 8, 9, 10}, .920991}, // m is floor(k/3)
		{"cis(sink=1,local=2,k=3,m=1,r=1,s=5)", []int32{0, 2, 4, 6, 9, 10}, .793579},      // 10 begins a block
	}
	for _, tt := range tests {
		got := c2(t, tt.spec, q9, q10)
		if want := []int32{0, 2, 4, 6, 8, 9}; !slices.Equal(got.keys[9][0], want) {
			t.Errorf("%s: position 9 reads %v, want %v", tt.spec, got.keys[9][0], want)
		}
		if !slices.Equal(got.keys[10][0], tt.want) {
			t.Errorf("%s: position 10 reads %v, want %v", tt.spec, got.keys[10][0], tt.want)
		}
		if m := massOf(a10, got.keys[10][0]); math.Abs(m-tt.mass) > 5e-7 {
			t.Errorf("%s: retained mass %.6f, want %.6f", tt.spec, m, tt.mass)
		}
	}
}

// Equal queries are not alike enough for tau = 1, and a query of zero is like
// none.
func TestCISNeverReuses(t *testing.T) {
	for _, tt := range []struct {
		tau       string
		q9, q10   []float32
		selecting float64
	}{
		{"1", []float32{2, .5}, []float32{2, .5}, 1},
		{"0.999", []float32{2, .5}, []float32{2, .5}, .5},
		{"-1", []float32{2, .5}, []float32{-1, .9}, .5},
		{"-1", []float32{2, .5}, []float32{0, 0}, 1},
		{"-1", []float32{0, 0}, []float32{2, .5}, 1},
	} {
		if got := c2(t, "cis(sink=1,local=2,k=3,s=4,tau="+tt.tau+")", tt.q9, tt.q10); got.ratio != tt.selecting {
			t.Errorf("tau=%s, queries %v and %v: %v of the steps selected, want %v", tt.tau, tt.q9, tt.q10, got.ratio, tt.selecting)
		}
	}
}

// Without sharing, and without windows and freezing, every step is the oracle's.
func TestCISWithoutReuseIsTopK(t *testing.T) {
	const n = 160
	layers := turning(n)
	want := openBench(t, "topk(k=20,sink=4,window=16)", n, nil).watch(layers, 100, n)
	for _, spec := range []string{
		"cis(k=20,sink=4,local=16,tau=2,s=8)", "cis(k=20,sink=4,local=16,tau=1)", "cis(k=20,sink=4,local=16,s=1,tau=-1)",
		"cpe(k=20,sink=4,local=16,tau=2,phi=1,psi=1)", "cpe(k=20,sink=4,local=16,tau=2,ls=1.0)",
	} {
		got := openBench(t, spec, n, nil).watch(layers, 100, n)
		if got.ratio != 1 {
			t.Errorf("%s: %v of the steps selected", spec, got.ratio)
		}
		for p := 100; p < n; p++ {
			for h := range lawHeads {
				if !slices.Equal(got.keys[p][h], want.keys[p][h]) {
					t.Fatalf("%s: position %d, head %d reads %v, want %v", spec, p, h, got.keys[p][h], want.keys[p][h])
				}
			}
		}
	}
}

// turning is tensors whose queries rotate slowly, so that neighbours are alike.
func turning(n int) []engine.QKV {
	layers := lawTensors(3, n)
	for l := range layers {
		q := layers[l].Q
		for h := range lawHeads {
			for i := (h*n + 1) * lawDim; i < (h+1)*n*lawDim; i++ {
				q[i] = 0.85*q[i-lawDim] + 0.5*q[i]
			}
		}
	}
	return layers
}

// Everything is alike: one selection in each block, and what is reused is what was
// selected, but for the windows.
func TestCISOneSelectionPerBlock(t *testing.T) {
	const n, prompt, s, sink, local = 150, 100, 8, 4, 16
	layers := turning(n)
	for _, tt := range []struct {
		options string
		selects func(p int) bool
	}{
		{"", func(p int) bool { return p == prompt || p%s == 0 }},
		{",blocks=relative", func(p int) bool { return (p-prompt)%s == 0 }},
		{",cand=chain", func(p int) bool { return p == prompt || p%s == 0 }},
		{",share=group", func(p int) bool { return p == prompt || p%s == 0 }},
	} {
		b := openBench(t, "cis(k=20,sink=4,local=16,s=8,tau=-1,r=0,gap=drop"+tt.options+")", n, nil)
		got := b.watch(layers, prompt, n)
		oracle := openBench(t, "cis(k=20,sink=4,local=16,tau=2"+tt.options+")", n, nil).watch(layers, prompt, n)
		blocks, from := 0, 0
		for p := prompt; p < n; p++ {
			if tt.selects(p) {
				blocks, from = blocks+1, p
			}
			for h := range lawHeads {
				var want []int32
				for _, j := range oracle.keys[from][h] { // what was selected, and the windows of p
					if int(j) < from+1-local {
						want = append(want, j)
					}
				}
				for j := p + 1 - local; j <= p; j++ {
					want = append(want, int32(j))
				}
				if !slices.Equal(got.keys[p][h], want) {
					t.Fatalf("%q: position %d, head %d reads %v, want %v", tt.options, p, h, got.keys[p][h], want)
				}
			}
		}
		if want := float64(blocks) / (n - prompt); math.Abs(got.ratio-want) > 1e-9 {
			t.Errorf("%q: %v of the steps selected, want %v", tt.options, got.ratio, want)
		}
	}
}

// A block that is longer than the context never ends: where everything is alike, each
// head selects once.
func TestCISBlocksLongerThanTheContext(t *testing.T) {
	const n, prompt = 150, 100
	layers := turning(n)
	for _, options := range []string{"", ",blocks=relative", ",cand=chain"} {
		got := openBench(t, "cis(k=20,sink=4,local=16,tau=-1,s=4096"+options+")", n, nil).watch(layers, prompt, n)
		if want := 1. / (n - prompt); math.Abs(got.ratio-want) > 1e-9 {
			t.Errorf("%q: %v of the steps selected, want %v", options, got.ratio, want)
		}
	}
}

// A head that reuses a selection scores no key: the keys scored are those of selections.
func TestCISCountsKeysScored(t *testing.T) {
	const n, prompt = 150, 100
	b := openBench(t, "cis(k=20,sink=4,local=16,s=8,tau=-1)", n, nil)
	s := b.run(turning(n), prompt, 0)
	want := 0.0
	for p := prompt; p < n; p++ {
		if p == prompt || p%8 == 0 {
			want += float64(p + 1 - 4 - 16)
		}
	}
	if got := b.figure(s, "keys scored"); math.Abs(got-want/(n-prompt)) > 1e-9 {
		t.Errorf("%v keys scored for each head and step, want %v", got, want/(n-prompt))
	}
}

// What is remembered is of the text before: another prompt ends it, a step back
// takes back only what was selected later.
func TestCISForgets(t *testing.T) {
	const n = 128
	layers := turning(n)
	const spec = "cis(k=10,sink=2,local=4,s=64,tau=-1)"
	b := openBench(t, spec, n, nil)
	s := b.open(layers)
	steps := func(want float64) {
		t.Helper()
		must(t, b.Step(s))
		if got := b.selections(s); got != want {
			t.Errorf("at %d: %v selections so far, want %v", s.Len(), got, want)
		}
	}
	const one = lawLayers * lawHeads
	must(t, s.Prefill(70, 0))
	steps(one) // the first step selects
	steps(one)
	must(t, s.Prefill(3, 0))
	steps(2 * one) // after more of a prompt again
	steps(2 * one)
	s.Truncate(76)
	steps(2 * one) // 75 selected, and is still there
	s.Truncate(75)
	steps(3 * one) // nothing before 75 counts
	must(t, s.Continue(lawTensors(9, n)))
	s.Truncate(71)
	must(t, s.Prefill(5, 0)) // to where the steps were, with another text
	steps(4 * one)
}

// A prompt that is cut is a shorter prompt: the steps after it select and reuse
// as they do after one that ended there, whatever was selected before.
func TestCISAfterACutPrompt(t *testing.T) {
	const n, prompt, cut = 128, 100, 53
	layers := turning(n)
	for _, options := range []string{"", ",blocks=relative", ",cand=chain", ",share=group"} {
		b := openBench(t, "cis(k=10,sink=2,local=4,s=16,tau=0.5"+options+")", n, nil)
		fresh, again := b.open(layers), b.open(layers)
		must(t, fresh.Prefill(cut, 0))
		must(t, again.Prefill(40, 0))
		for again.Len() < 60 { // entries of the block that is cut
			must(t, b.Step(again))
		}
		must(t, again.Prefill(prompt-60, 0))
		must(t, b.Step(again))
		before := b.selections(again)
		again.Truncate(cut)
		for fresh.Len() < n {
			must(t, b.Step(fresh))
			must(t, b.Step(again))
		}
		if got, want := b.selections(again)-before, b.selections(fresh); got != want || want == (n-cut)*lawLayers*lawHeads {
			t.Errorf("%q: %v selections after the cut, want %v", options, got, want)
		}
		for l := range lawLayers {
			for h := range lawHeads {
				at, to := (h*n+cut)*lawDim, (h+1)*n*lawDim
				if !slices.Equal(again.Output(l)[at:to], fresh.Output(l)[at:to]) {
					t.Errorf("%q: layer %d, head %d: other outputs after the cut", options, l, h)
				}
			}
		}
	}
}

// selections is how many selections the heads of a sequence made.
func (b *bench) selections(s *engine.ReplaySequence) float64 {
	b.t.Helper()
	return math.Round(b.figure(s, "selections"))
}

// psaw: in prefill and in decode, each layer sees the sinks and what its bound
// leaves, and nothing else.
func TestPSAWSeesItsWindow(t *testing.T) {
	const n, prompt, sink = 140, 120, 5
	const phi, alpha = 0.4, 1.5
	b := openBench(t, "psaw(phi=0.4,alpha=1.5,ls=1,sink=5)", n, nil)
	rows := 0
	b.Observe = func(sel engine.Selection) {
		x := max(0, float64(sel.Layer+1-1)/float64(lawLayers-1))
		for row, p := range sel.Pos {
			bound := int(math.Floor((1-math.Pow(phi, alpha*x))*float64(p+1)+1e-9)) - 1
			var want []int32
			for j := 0; j <= p; j++ {
				if j < sink || j >= bound {
					want = append(want, int32(j))
				}
			}
			rows++
			if keys, _ := sel.Keys(row, 0); !slices.Equal(keys, want) && !t.Failed() {
				t.Errorf("layer %d, row %d reads %v, want %v", sel.Layer, p, keys, want)
			}
		}
	}
	b.run(lawTensors(1, n), prompt, 50)
	if rows != lawLayers*n {
		t.Errorf("%d rows, want %d", rows, lawLayers*n)
	}
}

// cpe in decode: k positions of what the window leaves, sinks and recent window
// always, and nothing that the window hides.
func TestCPESelectsInsideItsWindow(t *testing.T) {
	const n, prompt, sink, local, k, phi = 150, 30, 4, 16, 10, 0.2
	b := openBench(t, "cpe(sink=4,local=16,k=10,s=8,tau=0.5,phi=0.2,psi=1,ls=0)", n, nil)
	shared := 0
	b.Observe = func(sel engine.Selection) {
		if !sel.Decode || t.Failed() {
			return
		}
		x := float64(sel.Layer+1) / lawLayers
		p := sel.Pos[0]
		bound := int(math.Floor((1-math.Pow(phi, x))*float64(p+1)+1e-9)) - 1
		for h := range lawHeads {
			keys, _ := sel.Keys(0, h)
			region := 0
			for _, j := range keys {
				if edge := int(j) < sink || int(j) >= p+1-local; !edge {
					if region++; int(j) < bound {
						t.Errorf("layer %d, row %d, head %d reads %d, the window begins at %d", sel.Layer, p, h, j, bound)
					}
				}
			}
			for _, edge := range []int{0, sink - 1, p + 1 - local, p} {
				if !slices.Contains(keys, int32(edge)) {
					t.Errorf("layer %d, row %d, head %d does not read %d", sel.Layer, p, h, edge)
				}
			}
			if region != min(k, max(0, p+1-local-max(sink, bound))) {
				shared++
			}
		}
	}
	s := b.run(turning(n), prompt, 0)
	selections := b.selections(s)
	if total := float64((n - prompt) * lawLayers * lawHeads); float64(shared) > total-selections || shared == 0 {
		t.Errorf("%d sets have not k positions, %v of %v were selected", shared, selections, total)
	}
}

// entropy is Σ -a ln a in nats.
func entropy(a []float64) (h float64) {
	for _, x := range a {
		if x > 0 {
			h -= x * math.Log(x)
		}
	}
	return h
}

// only is a restricted to a set and normalized.
func only(a []float64, set []int32) []float64 {
	b, m := make([]float64, len(a)), massOf(a, set)
	for _, j := range set {
		b[j] = a[j] / m
	}
	return b
}

// variation and divergence are the distances of b from a: half of the sum of
// differences, and Σ b ln(b/a).
func variation(a, b []float64) (d float64) {
	for j := range a {
		d += math.Abs(a[j]-b[j]) / 2
	}
	return d
}

func divergence(b, a []float64) (d float64) {
	for j := range a {
		if b[j] > 0 {
			d += b[j] * math.Log(b[j]/a[j])
		}
	}
	return d
}

// binary is the entropy of a coin.
func binary(x float64) float64 { return entropy([]float64{x, 1 - x}) }

// Where a key lies far above the others, its own in most steps, the weights of the others
// are too small for a float32, and the best of them are selected all the same.
func TestCISRanksBesideADominantKey(t *testing.T) {
	const n = 201
	x := engine.QKV{Q: make([]float32, 2*2*n), K: make([]float32, 2*n), V: make([]float32, 2*n)}
	for i := range 2 * n {
		x.Q[2*i] = math.Sqrt2
	}
	for j := range n {
		x.K[2*j] = float32(j) / 4
	}
	x.K[2*(n-1)] = 200
	for _, spec := range []string{"cis(k=5,sink=2,local=3,share=group)", "cpe(k=5,sink=2,local=3,share=group,phi=1,psi=1)", "cis(k=5,sink=2,local=3)"} {
		b := openBench(t, spec, n, func(c *engine.ReplayConfig) { c.Layers, c.Heads, c.KVHeads, c.HeadDim = 1, 2, 1, 2 })
		got := b.watch([]engine.QKV{x}, n-1, n).keys[n-1]
		if want := []int32{0, 1, 193, 194, 195, 196, 197, 198, 199, 200}; !slices.Equal(got[0], want) || !slices.Equal(got[1], want) {
			t.Errorf("%s reads %v and %v, want %v", spec, got[0], got[1], want)
		}
	}
}

// C-3 of the specification, to its digits.
func TestDroppedMassExample(t *testing.T) {
	a := []float64{.4, .3, .15, .1, .05}
	set := []int32{0, 1}
	b := only(a, set)
	g := func(l, delta float64) float64 { return 2 * (binary(delta) + delta*math.Log(l)) }
	for _, tt := range []struct {
		name      string
		got, want float64
	}{
		{"delta", 1 - massOf(a, set), .3}, {"TV", variation(a, b), .3}, {"KL", divergence(b, a), .356675},
		{"H(A)", entropy(a), 1.392321}, {"H(B)", entropy(b), .682908}, {"difference", entropy(a) - entropy(b), .709413},
		{"bound", binary(.3) + .3*math.Log(4), 1.026753},
		{"g(4096, .01)", g(4096, .01), .278358}, {"g(32768, .05)", g(32768, .05), 1.436751},
	} {
		if math.Abs(tt.got-tt.want) > 5e-7 {
			t.Errorf("%s = %.6f, want %.6f", tt.name, tt.got, tt.want)
		}
	}
}

// What dropping mass does, over the sets that heads really read: exact distances,
// the bounds of entropy and output, and the bound of a reused selection's mass by the
// distance of the two queries' weights.
func TestDroppedMassOfReusedSelections(t *testing.T) {
	const n, prompt = 150, 100
	layers := turning(n)
	b := openBench(t, "cis(k=10,sink=4,local=8,s=8,tau=-1)", n, nil)
	got := b.watch(layers, prompt, n)
	x, out := layers[0], make([]float32, lawDim)
	query := func(h, p int) []float32 { return x.Q[(h*n+p)*lawDim:][:lawDim] }
	for p := prompt; p < n; p++ {
		anchor := max(prompt, p/8*8)
		for h := range lawHeads {
			kv := h * lawKVHeads / lawHeads
			keys, set := x.K[kv*n*lawDim:], got.keys[p][h]
			a := weights(query(h, p), keys, p+1)
			s := only(a, set)
			delta := 1 - massOf(a, set)
			if tv, kl := variation(a, s), divergence(s, a); math.Abs(tv-delta) > 1e-9 || math.Abs(kl-math.Log(1/(1-delta))) > 1e-9 {
				t.Fatalf("position %d, head %d: delta %v, TV %v, KL %v", p, h, delta, tv, kl)
			}
			if d := math.Abs(entropy(a) - entropy(s)); d > binary(delta)+delta*math.Log(float64(p)) {
				t.Fatalf("position %d, head %d: entropy moves by %v", p, h, d)
			}
			for i := range out { // what was really computed is attention over the set
				var y float64
				for j, w := range s {
					y += w * float64(x.V[(kv*n+j)*lawDim+i])
				}
				out[i] = float32(y)
			}
			near(t, "attention over the set", got.out[(h*n+p)*lawDim:][:lawDim], out)
			then := weights(query(h, anchor), keys, p+1)
			if massOf(a, set) < massOf(then, set)-2*variation(a, then)-1e-12 {
				t.Fatalf("position %d, head %d: the set keeps %v, under the query that selected %v", p, h, massOf(a, set), massOf(then, set))
			}
		}
	}
}
