package sparse_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/device/rng"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// The shape of the models of these tests, and the seed of their runs.
const (
	swLayers, swHeads, swKVHeads, swDim = 5, 4, 2, 16
	swSeed                              = 11
	swBlock                             = device.PageLen
)

// swData is random queries, keys and values of n positions. Keys of some blocks
// point in one direction, so that blocks differ by more than noise.
func swData(seed uint64, n int) []engine.QKV {
	rng := rand.New(rand.NewPCG(seed, 2))
	normal := func(heads int) []float32 {
		x := make([]float32, heads*n*swDim)
		for i := range x {
			block := i / swDim % n / swBlock
			x[i] = float32(2*rng.NormFloat64() + math.Sin(float64(seed)+float64(block*block+i%swDim)))
		}
		return x
	}
	layers := make([]engine.QKV, swLayers)
	for l := range layers {
		layers[l] = engine.QKV{Q: normal(swHeads), K: normal(swKVHeads), V: normal(swKVHeads)}
	}
	return layers
}

// swRun is a replay that keeps the lists of what was read.
type swRun struct {
	*engine.Replay
	// lists is the blocks that the row of a slot, layer and position read; every
	// block where the plan was dense.
	lists map[[3]int][]int32
}

func swReplay(t *testing.T, spec string, slots, maxLen int) *swRun {
	t.Helper()
	return swReplayOn(t, spec, 2, engine.ReplayConfig{MaxLen: maxLen, Slots: slots})
}

// swReplayOn fills in the shape of c.
func swReplayOn(t *testing.T, spec string, threads int, c engine.ReplayConfig) *swRun {
	t.Helper()
	dev, err := device.Open(devtest.Device, device.Config{Threads: threads})
	must(t, err)
	s, err := sparse.Parse(spec)
	must(t, err)
	c.Layers, c.Heads, c.KVHeads, c.HeadDim, c.Rows, c.Seed = swLayers, swHeads, swKVHeads, swDim, c.MaxLen, swSeed
	r, err := engine.NewReplay(dev, s, c)
	must(t, err)
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	})
	run := &swRun{r, map[[3]int][]int32{}}
	r.Observe = func(s engine.Selection) {
		for row, p := range s.Pos {
			slot := s.Slot
			if s.Decode {
				slot = row
			}
			list, _ := s.List(row, 0)
			if s.Dense() {
				list = upTo(p / swBlock)
			}
			run.lists[[3]int{slot, s.Layer, p}] = slices.Clone(list)
		}
	}
	return run
}

// upTo is 0 to i.
func upTo(i int) []int32 {
	var all []int32
	for j := range i + 1 {
		all = append(all, int32(j))
	}
	return all
}

// open starts a sequence and prefills it.
func (r *swRun) open(t *testing.T, data []engine.QKV, prompt, chunk int) *engine.ReplaySequence {
	t.Helper()
	s, err := r.Open(data)
	must(t, err)
	must(t, s.Prefill(prompt, chunk))
	return s
}

// reference is Sketch&Walk as its definition says it, in float64, with whole
// matrices made anew for every row.
type reference struct {
	opt                  map[string]string
	s                    int // exponent
	rho                  float64
	dense, last, steps   int
	temperature, damping float64
	data                 []engine.QKV
	n                    int // positions of data
	prompt               int // positions that were prefilled
	basis                []float32
	width                int

	sketches map[sketchKey][]float64
	walks    [][][]float64 // by layer, of the prompt
}

// sketchKey says what was sketched.
type sketchKey struct{ layer, groups, g, lo, hi int }

func newReference(t *testing.T, text string, data []engine.QKV, prompt int) *reference {
	r := &reference{opt: map[string]string{
		"causal": "tri", "power": "elementwise", "score": "raw", "walk": "product", "walk_start": "first_sparse",
		"sketch": "srht", "budget": "row", "forced": "first_current", "row": "blockmean", "diag": "token",
		"heads": "mean_qk", "exponent": "8", "density": "0.2", "r": "64", "seed": "0",
		"dense": "2", "sink": "1", "recent": "1", "last": "0", "query": "token", "temperature": "1", "damping": "1", "steps": "1",
	}, data: data, prompt: prompt, n: len(data[0].Q) / swHeads / swDim, sketches: map[sketchKey][]float64{}}
	for _, option := range strings.Split(text, ",") {
		name, value, _ := strings.Cut(option, "=")
		r.opt[name] = value
	}
	var width, seed int
	for name, to := range map[string]any{
		"exponent": &r.s, "density": &r.rho, "r": &width, "seed": &seed, "dense": &r.dense, "last": &r.last,
		"temperature": &r.temperature, "damping": &r.damping, "steps": &r.steps,
	} {
		if _, err := fmt.Sscan(r.opt[name], to); err != nil {
			t.Fatal(err)
		}
	}
	draw := rng.Address{Seed: swSeed + uint64(seed), Purpose: rng.ForSigns}
	r.basis, r.width = sparse.SketchBasis(r.opt["sketch"], swDim, width, draw)
	return r
}

// query and key are sketches of the mean over positions [lo, hi) of the mean of
// the heads that belong to group g of groups.
func (r *reference) query(layer, groups, g, lo, hi int) []float64 {
	return r.sketch(r.data[layer].Q, swHeads, sketchKey{2 * layer, groups, g, lo, hi})
}

func (r *reference) key(layer, groups, g, lo, hi int) []float64 {
	return r.sketch(r.data[layer].K, swKVHeads, sketchKey{2*layer + 1, groups, g, lo, hi})
}

func (r *reference) sketch(x []float32, heads int, k sketchKey) []float64 {
	if out, ok := r.sketches[k]; ok {
		return out
	}
	g, groups, lo, hi := k.g, k.groups, k.lo, k.hi
	mean := make([]float64, swDim)
	for h := g * heads / groups; h < (g+1)*heads/groups; h++ {
		for p := lo; p < hi; p++ {
			for i := range mean {
				mean[i] += float64(x[(h*r.n+p)*swDim+i]) / float64(hi-lo) / float64(heads/groups)
			}
		}
	}
	out := make([]float64, r.width)
	for c := range out {
		for i, v := range mean {
			out[c] += v * float64(r.basis[c*swDim+i])
		}
	}
	r.sketches[k] = out
	return out
}

// scores is the matrix of a layer as the row at position p sees it: whether by
// decode, and with how many positions stored.
func (r *reference) scores(layer, p, stored int) [][]float64 {
	groups := map[string]int{"mean_qk": 1, "mean_score": swKVHeads, "each": swHeads}[r.opt["heads"]]
	a := matrix((stored + swBlock - 1) / swBlock)
	for g := range groups {
		one := r.products(layer, groups, g, p, stored)
		if r.opt["heads"] == "each" {
			one = r.form(one)
		}
		add(a, one, 1/float64(groups))
	}
	if r.opt["heads"] != "each" {
		a = r.form(a)
	}
	return r.weights(a)
}

// products is the products of the sketches of group g of groups.
func (r *reference) products(layer, groups, g, p, stored int) [][]float64 {
	c, decode, shared := p/swBlock, p >= r.prompt, min(groups, swKVHeads)
	a := matrix((stored + swBlock - 1) / swBlock)
	for i := range a {
		lo, hi := i*swBlock, min(stored, (i+1)*swBlock)
		mean := r.query(layer, groups, g, lo, hi)
		query := mean
		if decode && i == c && r.opt["query"] == "token" {
			query = r.query(layer, groups, g, p, p+1)
		} else if decode && r.opt["row"] == "last_token" && (i+1)*swBlock > r.prompt {
			query = r.query(layer, groups, g, hi-1, hi)
		}
		for j := range a[i] {
			from := query
			if i == j && r.opt["diag"] == "blockmean" {
				from = mean
			}
			key := r.key(layer, shared, g*shared/groups, j*swBlock, min(stored, (j+1)*swBlock))
			for x, v := range from {
				a[i][j] += v * key[x] / math.Sqrt(float64(r.width))
			}
		}
	}
	return a
}

// matrix is b by b zeros.
func matrix(b int) [][]float64 {
	a := make([][]float64, b)
	for i := range a {
		a[i] = make([]float64, b)
	}
	return a
}

// add adds b times share to a.
func add(a, b [][]float64, share float64) {
	for i := range a {
		for j := range a[i] {
			a[i][j] += share * b[i][j]
		}
	}
}

// form makes of products what the option score says.
func (r *reference) form(a [][]float64) [][]float64 {
	for i, row := range a {
		seen := row
		if r.opt["causal"] == "tri" {
			seen = row[:i+1]
			clear(row[i+1:])
		}
		var sum float64
		for _, v := range seen {
			sum += math.Exp(v / r.temperature)
		}
		for j, v := range seen {
			switch r.opt["score"] {
			case "relu":
				seen[j] = max(0, v)
			case "softmax":
				seen[j] = math.Exp(v/r.temperature) / sum
			}
		}
	}
	return a
}

// weights makes of scores the matrix W.
func (r *reference) weights(a [][]float64) [][]float64 {
	for _, row := range a {
		for j, v := range row {
			if r.opt["power"] == "elementwise" {
				row[j] = math.Pow(v, float64(r.s))
			}
		}
	}
	if r.opt["power"] == "matrix" {
		one := a
		for range r.s - 1 {
			a = times(a, one)
		}
	}
	return a
}

func times(a, b [][]float64) [][]float64 {
	c := make([][]float64, len(a))
	for i := range c {
		c[i] = make([]float64, len(b[0]))
		for m, v := range a[i] {
			for j := range c[i] {
				c[i][j] += v * b[m][j]
			}
		}
	}
	return c
}

// walk is R of each layer as the row at position p sees it.
func (r *reference) walk(p, stored int) [][][]float64 {
	if p < r.prompt && r.walks != nil {
		return r.walks
	}
	walks := make([][][]float64, swLayers)
	var last [][]float64
	for l := range walks {
		if l < r.dense && r.opt["walk_start"] != "0" {
			continue
		}
		w := r.scores(l, p, stored)
		fresh := last == nil || r.opt["walk"] == "onehop"
		if fresh {
			last = w
		}
		for range r.steps {
			switch {
			case r.damping < 1:
				last = mix(1-r.damping, w, r.damping, times(last, w))
			case !fresh:
				last = times(last, w)
			}
		}
		walks[l] = last
	}
	if p < r.prompt {
		r.walks = walks
	}
	return walks
}

// mix is x·a + y·b, of which each row was scaled so that its magnitudes sum to 1.
func mix(x float64, a [][]float64, y float64, b [][]float64) [][]float64 {
	c := matrix(len(a))
	for i := range c {
		for k, part := range [][]float64{a[i], b[i]} {
			var sum float64
			for _, v := range part {
				sum += math.Abs(v)
			}
			for j, v := range part {
				if sum > 0 {
					c[i][j] += []float64{x, y}[k] * v / sum
				}
			}
		}
	}
	return c
}

// reads is the blocks that the row at position p reads in every layer.
func (r *reference) reads(p int) [][]int32 {
	stored, i := r.prompt, p/swBlock
	if p >= r.prompt {
		stored = p + 1
	}
	var lists [][]int32
	for l, walk := range r.walk(p, stored) {
		if l < r.dense {
			lists = append(lists, upTo(i))
			continue
		}
		lists = append(lists, r.pick(walk[i][:i+1], i, stored, p >= r.prompt))
	}
	return lists
}

// pick selects blocks from the row of block i.
func (r *reference) pick(row []float64, i, stored int, decode bool) []int32 {
	of := i + 1
	if r.opt["budget"] == "total" && !decode {
		of = (stored + swBlock - 1) / swBlock
	}
	tau := max(2, int(math.Ceil(r.rho*float64(of)-1e-9)))
	if tau >= i+1 || i < 2 || !decode && i >= (r.prompt+swBlock-1)/swBlock-r.last {
		return upTo(i)
	}
	order := upTo(i)
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	selected := map[int32]bool{int32(i): true}
	if decode && r.opt["forced"] == "literal" {
		for _, j := range order[:tau-1] {
			selected[j] = true
		}
	} else {
		for j := range r.edge("sink", i+1) {
			selected[int32(j)] = true
		}
		for j := range r.edge("recent", i+1) {
			selected[int32(i-j)] = true
		}
		for _, j := range order {
			if len(selected) < tau {
				selected[j] = true
			}
		}
	}
	var list []int32
	for j := range selected {
		list = append(list, j)
	}
	slices.Sort(list)
	return list
}

// edge is how many of n blocks the option name says.
func (r *reference) edge(name string, n int) int {
	var x float64
	fmt.Sscan(r.opt[name], &x)
	if strings.Contains(r.opt[name], ".") {
		x = math.Ceil(x*float64(n) - 1e-9)
	}
	return min(max(int(x), 1), n)
}

// TestSketchwalkAgainstDefinition runs a prompt that ends inside a block and a
// decode that completes it and two more, under every option.
func TestSketchwalkAgainstDefinition(t *testing.T) {
	const prompt, n = 9*swBlock + 40, 12*swBlock + 3
	data := swData(1, n)
	specs := []string{
		"density=0.2", "density=0.5", "density=0.4,exponent=2", "density=0.4,r=8", "density=0.4,r=8,seed=5",
		"density=0.4,causal=none", "density=0.4,causal=none,arith=scaled", "density=0.4,causal=none,row=last_token",
		"density=0.4,power=matrix,exponent=3,arith=scaled", "density=0.4,power=matrix,exponent=3,score=relu", "density=0.4,power=matrix,exponent=2,score=softmax",
		"density=0.4,power=matrix,exponent=2,score=softmax,causal=none,arith=scaled",
		"density=0.4,score=relu", "density=0.4,score=softmax", "density=0.4,score=relu,arith=scaled", "density=0.4,score=softmax,arith=scaled,exponent=3",
		"density=0.4,walk=onehop", "density=0.4,walk_start=0", "density=0.4,arith=scaled", "density=0.4,arith=scaled,exponent=3",
		"density=0.4,sketch=hadamard_prefix,r=8", "density=0.4,sketch=exact", "density=0.3,budget=total",
		"density=0.4,forced=literal", "density=0.4,row=last_token", "density=0.4,diag=blockmean",
		"density=0.4,row=last_token,diag=blockmean,forced=literal", "density=0.4,diag=blockmean,score=softmax", "density=0.4,heads=mean_score",
		"density=0.4,heads=each", "density=0.4,heads=each,score=softmax", "density=0.4,heads=each,score=relu,diag=blockmean",
		"density=0.4,heads=each,score=softmax,exponent=1,temperature=0.4", "density=0.4,heads=each,score=softmax,arith=scaled,causal=none",
		"density=0.4,score=softmax,exponent=1,temperature=3", "density=0.4,query=block", "density=0.4,query=block,heads=each,score=softmax",
		"density=0.4,dense=1", "density=0.4,dense=0", "density=0.4,dense=3,walk_start=0", "density=0.4,last=3", "density=0.4,last=2,budget=total",
		"density=0.4,sink=2", "density=0.5,sink=0.3,recent=0.2", "density=0.2,recent=4", "density=0.4,recent=2,arith=scaled",
		"density=0.4,damping=0.25", "density=0.4,damping=0.25,steps=3", "density=0.4,damping=0.6,steps=2,walk=onehop,score=softmax",
		"density=0.4,damping=0.9,arith=scaled,exponent=3", "density=0.4,damping=0.5,walk_start=0,causal=none,arith=scaled",
	}
	seen := map[string]string{}
	for _, option := range specs {
		t.Run(option, func(t *testing.T) {
			run := swReplay(t, "sketchwalk("+option+")", 1, n)
			s := run.open(t, data, prompt, 0)
			for s.Len() < n {
				must(t, run.Step(s))
			}
			ref := newReference(t, option, data, prompt)
			var all []string
			for p := range n {
				if at := p % swBlock; at != 0 && at != swBlock-1 && p != prompt-1 && (p < prompt || at%21 > 1) {
					continue // rows of a block are alike, or all but
				}
				for l, want := range ref.reads(p) {
					got := run.lists[[3]int{0, l, p}]
					if !slices.Equal(got, want) {
						t.Fatalf("layer %d, position %d reads %v, want %v", l, p, got, want)
					}
					all = append(all, fmt.Sprint(got))
				}
			}
			key := strings.Join(all, "")
			if other, dup := seen[key]; dup && !equivalent(other, option) {
				t.Errorf("reads what %q reads: the test does not tell them apart", other)
			}
			seen[key] = option
		})
	}
}

// equivalent reports whether two specs differ only in arithmetic, or in a
// sketch that loses nothing.
func equivalent(a, b string) bool {
	plain := func(s string) string {
		for _, arith := range []string{",arith=scaled", ",sketch=exact"} {
			s = strings.ReplaceAll(s, arith, "")
		}
		if !strings.Contains(s, "score=") { // a mean of products is the product of a mean
			s = strings.ReplaceAll(s, "heads=each", "heads=mean_score")
		}
		return s
	}
	return plain(a) == plain(b)
}
