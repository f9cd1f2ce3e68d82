package sparse_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// subject is options of a method under which the laws are tested. A method
// has at least one line in subjects.
type subject struct {
	spec string // sparse on a few hundred positions
	// full reads everything and equals dense; empty where a method cannot.
	full string
	mean bool // full equals dense in the mean over seeds only

	len    int  // positions of a run; 0 is lawLen
	unit   int  // rows of a prompt that are planned as one, and what chunks must be multiples of; 0 is 1
	prompt bool // what rows read depends on the length of the prompt
	frozen int  // rows of all layers that are not updated in a run of lawLen
	future bool // what rows read depends on later rows of the prompt
	slow   bool // its ops take minutes to read everything of thousands of rows of a prompt
	random bool // draws at random
	// shared methods make one selection for several query heads, from all of them:
	// repeating keys for each head gives the same selection to rounding only, and
	// is not tested.
	shared bool
}

// subjects is every method with options that are sparse on short sequences.
var subjects = []subject{
	{spec: "dense", full: "dense"},
	{spec: "streaming(sink=3,window=40)", full: "streaming(sink=1,window=100000)"},
	{spec: "topk(k=30,sink=4,window=20)", full: "topk(k=1.0,sink=0,window=1)", slow: true},
	{spec: "topk(k=0.1,sink=4,window=20,index=q8)", full: "topk(k=100000,index=q4)", slow: true},
	{spec: "topp(p=0.6,sink=4,window=20)", full: "topp(p=1)"},
	{spec: "topp(p=0.2,sink=0,window=1,index=q8)", full: "topp(p=0.9,sink=100000,index=q4)", slow: true},
	{spec: "quest(budget=48)", full: "quest(budget=100000)"},
	{spec: "quest(budget=0.3,page=8,share=group)", full: "quest(budget=1.0,share=group)", shared: true},
	{spec: "quest(budget=1,page=64)", full: "quest(budget=100000,page=64)", len: 400},
	{spec: "psaw(phi=0.2,ls=0,sink=3) + quest(budget=32,page=4)", full: "psaw(phi=1) + quest(budget=1.0)"},
	{spec: "quest(budget=32) + vattention(eps=0.5)", full: "quest(budget=32) + vattention(eps=0)", random: true},
	{spec: "etf(ls=2) + quest(budget=32)", full: "etf(psi=1) + quest(budget=1.0)", prompt: true, frozen: 39 + 78},
	{spec: "etf(ls=1,etf=kv,sink=2) + quest(budget=32,page=8)", full: "etf(psi=1,etf=kv) + quest(budget=100000)", unit: device.PageLen, prompt: true, frozen: 36 + 67 + 92},
	{spec: "vslash(vertical=40,slash=50)", full: "vslash(vertical=100000)", len: 400, future: true},
	{spec: "vslash(vertical=0,slash=0,pattern=per_chunk)", full: "vslash(slash=100000,pattern=per_chunk)", len: 400, future: true, unit: 1000, slow: true},
	{spec: "flexprefill(gamma=0.3,tau=0,min=64,block=64)", full: "flexprefill(gamma=1)", len: 400, future: true},
	{spec: "flexprefill(gamma=0.4,tau=1,min=64,block=64)", full: "flexprefill(min=100000)", len: 400, future: true},
	{spec: "flexprefill(gamma=0.2,min=0,max=64,block=64,pattern=per_chunk) + vattention(question=30)", full: "flexprefill(gamma=1,block=64,pattern=per_chunk) + vattention(eps=0)", len: 400, future: true, unit: 1000, prompt: true, random: true},
	{spec: "sketchwalk:paper(density=0.4,r=8)", full: "sketchwalk:paper(density=1)", len: 400, unit: 64, random: true, shared: true},
	{spec: "sketchwalk:code(tau=4,r=8,last=1,recent=1)", full: "sketchwalk:code(tau=9999)", len: 400, unit: 64, prompt: true, random: true, shared: true},
	{spec: "sketchwalk(tau=3,heads=mean_score,sketch=exact)", full: "sketchwalk(tau=9999)", len: 400, unit: 64, shared: true},
	{spec: "sketchwalk(tau=3,causal=none,arith=scaled)", full: "sketchwalk(tau=9999)", len: 400, future: true, shared: true},
	{spec: "cis(k=20,sink=4,local=16,s=4,tau=0.3)", full: "cis(k=100000)"},
	{spec: "cis(k=20,sink=4,local=16,s=4,tau=-1,blocks=relative,cand=chain,gap=drop,index=q8)", full: "cis(k=1.0,tau=2,index=q4)"},
	{spec: "cis(k=0.1,sink=4,local=16,s=8,tau=0,share=group,index=q4)", full: "cis(k=100000,share=group,index=q8)", shared: true},
	{spec: "psaw(phi=0.2,ls=0,sink=3)", full: "psaw(phi=1)"},
	{spec: "etf(ls=2)", full: "etf(psi=1)", prompt: true, frozen: 39 + 78},
	{spec: "etf(ls=1,etf=kv,sink=2)", full: "etf(psi=1,etf=kv)", unit: device.PageLen, prompt: true, frozen: 36 + 67 + 92},
	{spec: "cpe(k=20,sink=4,local=16,s=4,tau=0.2,phi=0.3,ls=1,index=q4)", full: "cpe(k=100000,phi=1,psi=1)", prompt: true, frozen: 34 + 65 + 90},
	{spec: "vattention(sink=4,local=16,top=0.05,fb=0.1,eps=0.3,delta=0.2)", full: "vattention(eps=0)", random: true},
	{spec: "vattention(sink=4,local=16,top=5,fb=20,eps=0.5,guarantee=sdpa,fpc=on,pilot=fresh,question=30,index=q8)", full: "vattention(eps=0,question=99)", slow: true, prompt: true, random: true},
	{spec: "vattention(sink=4,local=16,top=0.05,fb=0.1,eps=0.3,share=group,index=q4,rescore=2)", full: "vattention(sink=4,local=16,eps=0,share=group,index=q8,rescore=3)", random: true, shared: true},
	{spec: "vattention:authors-code(sink=4,local=16,eps=0.5)", full: "vattention(sink=4,local=16,top=1.0)", random: true},
	{spec: "vattention(scorer=cis,sink=4,local=16,top=20,fb=0.1,eps=0.4)", full: "vattention(scorer=cis,sink=4,local=16,top=20,eps=0)", random: true},
	{spec: "vattention(scorer=sketchwalk,sink=4,local=16,top=0.4,fb=0.1,eps=0.4)", full: "vattention(scorer=sketchwalk,sink=4,local=16,eps=0)", len: 400, unit: 64, random: true, shared: true},
	{spec: "vattention(scorer=quest,sink=4,local=16,top=40,fb=0.1,eps=0.4)", full: "vattention(scorer=quest,sink=4,local=16,eps=0)", random: true},
	{spec: "vattention(scorer=sketchwalk,sink=4,local=16,top=120,fb=0.1,eps=0.4,question=50)", full: "vattention(scorer=sketchwalk,eps=0,question=50)", slow: true, len: 400, unit: 64, prompt: true, random: true, shared: true},
	{spec: "topk(k=8,sink=4,window=20,index=q4,rescore=3) + vattention(eps=0.5,question=50)", full: "topk(k=100000,index=q8,rescore=2) + vattention", slow: true, prompt: true, random: true},
	{spec: "sketchwalk(tau=3,sketch=exact,heads=mean_score) + vattention(eps=0.5)", full: "sketchwalk(tau=9999) + vattention", len: 400, unit: 64, random: true, shared: true},
	{spec: "cis(k=20,sink=4,local=16,s=4,tau=0.3) + vattention(eps=0.5)", full: "cis(k=20,sink=4,local=16,s=4,tau=0.3) + vattention(eps=0)", random: true},
	{spec: "anchor(theta=1,block=16,step=4)", full: "anchor(theta=Inf,block=16,step=4)", unit: 64},
	{spec: "anchor(theta=0.5,block=8,step=2,window=noprev)", full: "anchor(theta=Inf,window=noprev)", unit: 16},
	{spec: "anchor(theta=1,block=16,step=2,window=code_v4)", unit: 32},
	{spec: "anchor(theta=1,block=16,step=2,tail=dense)", full: "anchor(theta=Inf,tail=dense)", unit: 32, prompt: true},
	{spec: "psaw(phi=0.3,ls=0,sink=3) + anchor(theta=1,block=16,step=4)", full: "psaw(phi=1) + anchor(theta=Inf,block=16,step=4)", unit: 64},
	{spec: "santa(samples=24)", full: "santa(samples=64)", mean: true, random: true},
	{spec: "santa(samples=24,sampler=strat,share=group)", full: "santa(samples=32,sampler=strat)", mean: true, random: true, shared: true},
	{spec: "santa(samples=24,sampler=iid)", full: "santa(samples=32,sampler=iid,share=group)", mean: true, random: true},
	{spec: "santa(samples=24,exec=flash,tile=64)", full: "santa(samples=16,exec=flash)", mean: true, random: true},
	{spec: "santa(samples=40,alloc=largest_remainder)", random: true},
	{spec: "santa(samples=24,scores=bernoulli,bits=2)", random: true},
	{spec: "santa(samples=24,scores=bernoulli,bernoulli=standard,bits=3,group=mean_query)", random: true, shared: true},
	{spec: "topk(k=40) + vattention(eps=0.5) + santa(samples=24)", full: "topk(k=100000) + vattention + santa(samples=32)", mean: true, random: true},
	{spec: "sketchwalk(tau=3,sketch=exact,heads=mean_score) + santa(samples=24)", len: 400, unit: 64, random: true, shared: true},
	{spec: "random(k=0.1,sink=4,window=16)", full: "random(k=1.0)", slow: true, random: true},
	{spec: "random(k=20,sink=4,window=16,weight=one,share=group)", full: "random(k=100000,weight=one,share=group)", slow: true, random: true, shared: true},
	{spec: "h2o(hh=20,recent=16)", full: "h2o(hh=100000)", shared: true},
	{spec: "h2o", full: "h2o(hh=0,recent=100000)", shared: true},
	{spec: "magicpig(bits=3,tables=20,sink=4,local=16,dense=0)", full: "magicpig(local=100000)", random: true},
	{spec: "magicpig(bits=2,tables=4,sink=4,local=16,center=both,least=one,find=codes)", full: "magicpig(bits=1,tables=3,local=100000,dense=0)", random: true},
	{spec: "doublesparsity(file=" + lawFiles + "/channels.npy,factor=4,k=30,window=16,dense=1)", full: "doublesparsity(file=" + lawFiles + "/channels.npy,k=100000)"},
	{spec: "doublesparsity(file=" + lawFiles + "/shared.npy,factor=5,bits=2,k=0.1,dense=0)", full: "doublesparsity(file=" + lawFiles + "/shared.npy,k=1.0,bits=4)", shared: true},
	{spec: "hashattention(dir=" + lawFiles + ",k=0.1,sink=4,window=16)", full: "hashattention(dir=" + lawFiles + ",k=100000)"},
	{spec: "h2o(hh=20,recent=16) + santa(samples=24)", full: "h2o(hh=100000) + santa(samples=32)", mean: true, random: true, shared: true},
	{spec: "psaw(phi=0.2,ls=0,sink=3) + magicpig(bits=3,tables=20,dense=0) + santa(samples=24)", full: "psaw(phi=1) + magicpig(local=100000) + santa(samples=32)", mean: true, random: true},
	{spec: "psaw(phi=0.2,ls=0,sink=3) + vattention(sink=3,local=8,eps=0.5)", full: "psaw(phi=1) + vattention(eps=0)", random: true},
}

// The size of the runs of the laws.
const (
	lawLayers, lawHeads, lawKVHeads, lawDim = 4, 4, 2, 16
	lawSteps                                = 12 // decode steps after the prompt
	lawLen                                  = 200
)

// eachSubject runs a law for every subject.
func eachSubject(t *testing.T, law func(t *testing.T, s subject)) {
	for _, s := range subjects {
		if s.len == 0 {
			s.len = lawLen
		}
		t.Run(title(s.spec), func(t *testing.T) { law(t, s) })
	}
}

func TestEveryMethodIsUnderTheLaws(t *testing.T) {
	for _, e := range sparse.Methods() {
		covered := slices.ContainsFunc(subjects, func(s subject) bool {
			return slices.Contains(methodsOf(s.spec), e.Name)
		})
		if !covered {
			t.Errorf("%s has no line in subjects", e.Name)
		}
	}
}

// methodsOf are the names in a spec.
func methodsOf(spec string) []string {
	return strings.FieldsFunc(spec, func(r rune) bool { return strings.ContainsRune(" +=():,", r) })
}

// lawTensors is n positions for each layer. Keys of some positions point where
// queries do, and a few are loud, so that selecting matters.
func lawTensors(seed uint64, n int) []engine.QKV {
	rng := rand.New(rand.NewPCG(seed, 7))
	normal := func(heads int) []float32 {
		x := make([]float32, heads*n*lawDim)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		return x
	}
	layers := make([]engine.QKV, lawLayers)
	for l := range layers {
		layers[l] = engine.QKV{Q: normal(lawHeads), K: normal(lawKVHeads), V: normal(lawKVHeads)}
		for h := range lawKVHeads {
			for j := range n {
				if j%7 == h {
					k := layers[l].K[(h*n+j)*lawDim:][:lawDim]
					for i := range k {
						k[i] *= 2
					}
				}
			}
		}
	}
	return layers
}

// bench is a replay of a spec for a test.
type bench struct {
	*engine.Replay
	t *testing.T
}

// openBench makes a replay; change edits its sizes.
func openBench(t *testing.T, spec string, maxLen int, change func(*engine.ReplayConfig)) *bench {
	t.Helper()
	return openBenchOn(t, devtest.Device, spec, maxLen, change)
}

// openBenchOn is openBench on another device.
func openBenchOn(t *testing.T, name, spec string, maxLen int, change func(*engine.ReplayConfig)) *bench {
	t.Helper()
	b := openReplay(t, openDevice(t, name), spec, maxLen, change)
	t.Cleanup(b.close)
	return b
}

// openDevice opens a device for the length of a test.
func openDevice(t *testing.T, name string) device.Device {
	t.Helper()
	dev, err := device.Open(name, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	return dev
}

// openReplay makes a replay on a device that is open; the caller closes it.
func openReplay(t *testing.T, dev device.Device, spec string, maxLen int, change func(*engine.ReplayConfig)) *bench {
	t.Helper()
	s, err := sparse.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	c := engine.ReplayConfig{
		Layers: lawLayers, Heads: lawHeads, KVHeads: lawKVHeads, HeadDim: lawDim, MaxLen: maxLen, Slots: 3, Seed: 1,
	}
	if change != nil {
		change(&c)
	}
	r, err := engine.NewReplay(dev, s, c)
	if err != nil {
		t.Fatal(err)
	}
	return &bench{r, t}
}

// close gives the replay's memory back.
func (b *bench) close() {
	if err := b.Close(); err != nil {
		b.t.Error(err)
	}
}

// aboutNumbers skips a test that says nothing about threads which others do not
// say, where the race detector makes it ten times slower.
func aboutNumbers(t *testing.T) {
	t.Helper()
	if race {
		t.Skip("the race detector has nothing to find here")
	}
}

// must ends the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// open takes a slot.
func (b *bench) open(layers []engine.QKV) *engine.ReplaySequence {
	b.t.Helper()
	s, err := b.Open(layers)
	must(b.t, err)
	return s
}

// run prefills rows of layers in chunks and steps through the rest.
func (b *bench) run(layers []engine.QKV, rows, chunk int) *engine.ReplaySequence {
	b.t.Helper()
	s := b.open(layers)
	must(b.t, s.Prefill(rows, chunk))
	b.steps(s)
	return s
}

// steps decodes what is left of the sequences together.
func (b *bench) steps(seqs ...*engine.ReplaySequence) {
	b.t.Helper()
	for seqs[0].More() {
		must(b.t, b.Step(seqs...))
	}
}

// known keeps the outputs of runs alone: spec and length decide them.
var known = map[string][]float32{}

// alone is the outputs of a spec over the first tensors, from a prompt in chunks
// of ChunkLen and lawSteps steps, with nothing else in the cache.
func alone(t *testing.T, spec string, n int) []float32 {
	t.Helper()
	key := fmt.Sprint(spec, " ", n)
	if known[key] == nil {
		known[key] = outputs(openBench(t, spec, n, nil).run(lawTensors(1, n), n-lawSteps, 0))
	}
	return known[key]
}

// outputs is all layers' outputs of a sequence in one slice.
func outputs(s *engine.ReplaySequence) []float32 {
	var y []float32
	for l := range lawLayers {
		y = append(y, s.Output(l)...)
	}
	return y
}

// rowsOf cuts positions [from, to) out of outputs of n positions.
func rowsOf(y []float32, n, from, to int) []float32 {
	var cut []float32
	for head := range lawLayers * lawHeads {
		cut = append(cut, y[(head*n+from)*lawDim:(head*n+to)*lawDim]...)
	}
	return cut
}

// furthest is the largest difference of two outputs, NaN where one is.
func furthest(a, b []float32) float64 {
	var largest float64
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if d > largest || math.IsNaN(d) {
			largest = d
		}
		if math.IsNaN(d) {
			return d
		}
	}
	return largest
}

// same fails the test unless the outputs are the same bits.
func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: outputs differ by %g", what, furthest(got, want))
	}
}

// close32 is how far two ways of summing the same numbers in float32 may be
// apart here, where values are about 1.
const close32 = 4e-6

// near fails the test unless the outputs agree to rounding.
func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if d := furthest(got, want); !(d <= close32*4) {
		t.Errorf("%s: outputs differ by %g", what, d)
	}
}

// 9.1 and R8: a budget that covers everything is dense, to the bit.
func TestLawDenseLimit(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		if s.full == "" {
			return
		}
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, "dense", s.len)
		if s.spec != s.full {
			if d := furthest(alone(t, s.spec, s.len), want); !(d > 100*close32) {
				t.Errorf("%s differs from dense by only %g: it is not sparse here, so the laws say nothing", s.spec, d)
			}
		}
		if s.mean {
			meanIsDense(t, s, layers, rowsOf(want, s.len, prompt, s.len))
			return
		}
		same(t, s.full, alone(t, s.full, s.len), want)
	})
}

// meanSeeds is how many seeds the mean of a sampler is taken over.
const meanSeeds = 256

// meanIsDense holds the mean of the decode rows over seeds against dense, by
// the recipe of statistical tests: no coordinate further than 4.5 standard
// errors.
func meanIsDense(t *testing.T, s subject, layers []engine.QKV, want []float32) {
	t.Helper()
	sum, square := make([]float64, len(want)), make([]float64, len(want))
	dev := openDevice(t, devtest.Device)
	for seed := range meanSeeds {
		b := openReplay(t, dev, s.full, s.len, func(c *engine.ReplayConfig) { c.Seed = uint64(seed) + 1 })
		got := b.run(layers, s.len-lawSteps, 0)
		for i, y := range rowsOf(outputs(got), s.len, s.len-lawSteps, s.len) {
			sum[i] += float64(y)
			square[i] += float64(y) * float64(y)
		}
		b.close()
	}
	var worst float64
	for i := range sum {
		mean := sum[i] / meanSeeds
		sd := math.Sqrt(max(0, square[i]/meanSeeds-mean*mean) * meanSeeds / (meanSeeds - 1))
		if off := math.Abs(mean - float64(want[i])); off > 1e-5 {
			worst = max(worst, off/(sd/math.Sqrt(meanSeeds)))
		}
	}
	if !(worst <= 4.5) {
		t.Errorf("%s: the mean over %d seeds is %g standard errors from dense", s.full, meanSeeds, worst)
	}
}

// 9.2: what comes later changes nothing. Rows of a prompt that are planned as a
// unit, by the mean of their queries, see each other; units see none that come
// later.
func TestLawCausality(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		if s.future {
			return
		}
		prompt := s.len - lawSteps
		b := openBench(t, s.spec, s.len, nil)
		want := alone(t, s.spec, s.len)
		for _, at := range []int{prompt / 2, prompt - 1, s.len - 3} {
			seq := b.run(changed(lawTensors(1, s.len), s.len, at), prompt, 0)
			got, past := outputs(seq), at
			if at < prompt {
				past -= at % max(s.unit, 1)
			}
			same(t, fmt.Sprintf("other tensors from %d on", at), rowsOf(got, s.len, 0, past), rowsOf(want, s.len, 0, past))
			if slices.Equal(rowsOf(got, s.len, at, s.len), rowsOf(want, s.len, at, s.len)) {
				t.Errorf("other tensors from %d on changed nothing at all", at)
			}
			seq.Close()
		}
	})
}

// changed replaces all tensors from position at on.
func changed(layers []engine.QKV, n, at int) []engine.QKV {
	other := lawTensors(99, n)
	for l := range layers {
		for i, x := range [3][]float32{layers[l].Q, layers[l].K, layers[l].V} {
			from := [3][]float32{other[l].Q, other[l].K, other[l].V}[i]
			for h := range len(x) / (n * lawDim) {
				copy(x[(h*n+at)*lawDim:(h+1)*n*lawDim], from[(h*n+at)*lawDim:])
			}
		}
	}
	return layers
}

// R1, R2, R3 and the rules of device.List: ascending, no repeats, inside the
// region, below the cap, and every row reads itself.
func TestLawPlansAreLegal(t *testing.T) {
	eachSubject(t, func(t *testing.T, s subject) {
		b := openBench(t, s.spec, s.len, nil)
		rows := 0
		b.Observe = func(sel engine.Selection) {
			for row, p := range sel.Pos {
				for h := range lawHeads {
					if p >= 0 && !t.Failed() {
						legal(t, &sel, row, h)
						rows++
					}
				}
			}
		}
		b.run(lawTensors(1, s.len), s.len-lawSteps, 64*max(1, s.unit/64))
		if want := lawHeads * (lawLayers*s.len - s.frozen); rows != want {
			t.Errorf("%d rows were planned, want %d", rows, want)
		}
	})
}

// legal checks what one row and head read.
func legal(t *testing.T, sel *engine.Selection, row, head int) {
	t.Helper()
	p, plan := sel.Pos[row], sel.Plan()
	where := fmt.Sprintf("layer %d, row %d, head %d", sel.Layer, p, head)
	index, listWeights := sel.List(row, head)
	for i, j := range index {
		if j < 0 || i > 0 && j <= index[i-1] {
			t.Errorf("%s: list %v is not ascending", where, index)
			return
		}
		if plan.Selected == device.Tokens && plan.List.Group <= 1 && (int(j) < plan.Sink || int(j) > p) {
			t.Errorf("%s: entry %d is outside the region", where, j)
		}
		if listWeights != nil && !(listWeights[i] > 0) {
			t.Errorf("%s: entry %d has weight %v", where, j, listWeights[i])
		}
	}
	keys, weights := sel.Keys(row, head)
	if plan.Mixture {
		var sum float64
		for _, w := range weights {
			sum += float64(w)
		}
		if math.Abs(sum-1) > 1e-4 {
			t.Errorf("%s: the weights of a mixture sum to %v", where, sum)
		}
		return
	}
	if len(keys) == 0 || int(keys[len(keys)-1]) != p {
		t.Errorf("%s: it does not read itself, but %v", where, keys)
	}
}

// 9.9: every short length works, and is dense where everything is read.
func TestLawShortContexts(t *testing.T) {
	aboutNumbers(t)
	const maxLen = 2*device.PageLen + 2
	layers := lawTensors(1, maxLen)
	dense := outputs(openBench(t, "dense", maxLen, nil).run(layers, maxLen-1, 0))
	eachSubject(t, func(t *testing.T, s subject) {
		b := openBench(t, s.spec, maxLen, nil)
		var whole []int // rows of which everything is read, as index into outputs
		b.Observe = func(sel engine.Selection) {
			for row, p := range sel.Pos {
				for h := range lawHeads {
					if readsAll(&sel, row, h, p) {
						whole = append(whole, ((sel.Layer*lawHeads+h)*maxLen+p)*lawDim)
					}
				}
			}
		}
		check := func(n int, seq *engine.ReplaySequence) {
			y := outputs(seq)
			for i, v := range y {
				if v != v {
					t.Fatalf("n=%d: output %d is not a number", n, i)
				}
			}
			for _, at := range whole {
				near(t, fmt.Sprintf("n=%d, a row that reads everything", n), y[at:at+lawDim], dense[at:at+lawDim])
			}
			whole = whole[:0]
		}
		for _, n := range []int{1, 2, 3, 5, 16, 31, 63, 64, 65, 66, 100, 127, 128, 129} {
			seq := b.open(layers)
			must(t, seq.Prefill(n, 0))
			if n == 1 && !s.random && len(whole) != lawLayers*lawHeads {
				t.Errorf("a sequence of one position: %d rows of %d read it", len(whole), lawLayers*lawHeads)
			}
			must(t, b.Step(seq))
			check(n, seq)
			seq.Close()
		}
		seq := b.open(layers)
		must(t, seq.Prefill(1, 0))
		for seq.More() {
			must(t, b.Step(seq))
			check(seq.Len(), seq)
		}
	})
}

// readsAll reports whether a row reads its whole past, each position once.
func readsAll(sel *engine.Selection, row, head, p int) bool {
	keys, weights := sel.Keys(row, head)
	return p >= 0 && !sel.Plan().Mixture && len(keys) == p+1 &&
		!slices.ContainsFunc(weights, func(w float32) bool { return w != 1 })
}

// 9.8: keys and values repeated for each query head change nothing.
func TestLawRepeatedKeys(t *testing.T) {
	aboutNumbers(t)
	eachSubject(t, func(t *testing.T, s subject) {
		if s.shared {
			return
		}
		layers, prompt := lawTensors(1, s.len), s.len-lawSteps
		want := alone(t, s.spec, s.len)
		repeated := make([]engine.QKV, len(layers))
		for l, t := range layers {
			repeated[l] = engine.QKV{Q: t.Q, K: repeat(t.K, s.len), V: repeat(t.V, s.len)}
		}
		b := openBench(t, s.spec, s.len, func(c *engine.ReplayConfig) { c.KVHeads = lawHeads })
		near(t, "repeated keys", outputs(b.run(repeated, prompt, 0)), want)
	})
}

// repeat gives every query head its own copy of its kv head.
func repeat(x []float32, n int) []float32 {
	var y []float32
	for h := range lawHeads {
		kv := h * lawKVHeads / lawHeads
		y = append(y, x[kv*n*lawDim:(kv+1)*n*lawDim]...)
	}
	return y
}

func TestLawRoundTrip(t *testing.T) {
	for _, s := range subjects {
		for _, text := range []string{s.spec, s.full} {
			if text == "" {
				continue
			}
			parsed, err := sparse.Parse(text)
			must(t, err)
			again, err := sparse.Parse(parsed.String())
			must(t, err)
			if again.String() != parsed.String() {
				t.Errorf("%q is %q, and that is %q", text, parsed, again)
			}
		}
	}
}
