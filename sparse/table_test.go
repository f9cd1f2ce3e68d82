package sparse_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// Every option of the specification's registry, its default first, and the
// numbers that the papers set: name, then the words in order, or the default.
const registry = `
sketchwalk causal: tri none
sketchwalk power: elementwise matrix
sketchwalk score: raw relu softmax
sketchwalk walk: product onehop
sketchwalk walk_start: first_sparse 0
sketchwalk arith: log scaled
sketchwalk sketch: srht hadamard_prefix exact
sketchwalk budget: row total
sketchwalk tau = 0
sketchwalk forced: first_current literal
sketchwalk row: blockmean last_token
sketchwalk diag: token blockmean
sketchwalk heads: mean_qk mean_score each
sketchwalk density = 0.2
sketchwalk exponent = 8
sketchwalk r = 64
vattention scorer: topk quest sketchwalk cis
vattention guarantee: den sdpa
vattention z: two one
vattention pool: residual code
vattention sampling: without_replacement code
vattention pilot: reuse fresh
vattention fpc: off on
vattention share: head group
vattention sink = 128
vattention local = 128
vattention eps = 0.05
vattention delta = 0.05
anchor window: paper noprev code_v4
anchor tail: native dense
anchor theta = 12
anchor step = 16
anchor block = 128
santa sampler: sys strat iid
santa exec: prop flash
santa alloc: systematic largest_remainder
santa share: head group
santa scores: exact bernoulli
santa bernoulli: strat standard
santa group: per_head mean_query
santa samples = 128
cis blocks: absolute relative
cis cand: anchors chain
cis rope: post pre
cis gap: keep drop
cis share: head group
cis tau = 0.8
cis r = 1
cis m = 0.3333333333333333
psaw phi = 0.7
psaw alpha = 1
psaw ls = 0.75
psaw sink = 16
etf etf: hidden kv
etf etf_mlp: skip run
etf psi = 0.5
etf gamma = 1
etf ls = 0.75
cpe gap: keep drop
cpe etf: hidden kv
cpe phi = 0.7
cpe psi = 0.5
cpe tau = 0.8
`

func TestOptionsAreThoseOfTheRegistry(t *testing.T) {
	for _, line := range strings.Split(strings.TrimSpace(registry), "\n") {
		words := strings.Fields(line)
		name, option := words[0], strings.TrimSuffix(words[1], ":")
		values := words[2:]
		if values[0] == "=" {
			values = values[1:]
		}
		i := slices.IndexFunc(sparse.Methods(), func(e sparse.Entry) bool { return e.Name == name })
		if i < 0 {
			t.Errorf("there is no method %s", name)
			continue
		}
		options := sparse.Methods()[i].Options()
		at := slices.IndexFunc(options, func(o sparse.Option) bool { return o.Name == option })
		switch {
		case at < 0:
			t.Errorf("%s has no option %s", name, option)
		case options[at].Default != values[0]:
			t.Errorf("%s: the default of %s is %s, want %s", name, option, options[at].Default, values[0])
		case len(values) > 1 && !slices.Equal(options[at].Values, values):
			t.Errorf("%s: %s is one of %v, want %v", name, option, options[at].Values, values)
		}
	}
}

// TestObserversSaySo: every method that watches prompts says so, because one that leaves
// rows out cannot be used with it. All of them are built, those that read a file too.
func TestObserversSaySo(t *testing.T) {
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	shape := sparse.Shape{Layers: lawLayers, Heads: lawHeads, KVHeads: lawKVHeads, HeadDim: lawDim, MaxLen: 128, Slots: 1, Rows: 64, Pages: 8}
	files := map[string]string{
		"doublesparsity": "(file=" + lawFiles + "/channels.npy)",
		"hashattention":  "(dir=" + lawFiles + ")",
	}
	for _, e := range sparse.Methods() {
		s, err := sparse.Parse(e.Name + files[e.Name])
		if err != nil {
			t.Fatal(err)
		}
		policy, err := s.Build(sparse.NewEnv(dev, shape, 1))
		if err != nil {
			t.Fatalf("%s: %v", e.Name, err)
		}
		if got := policy.Observes(); got != e.Observes {
			t.Errorf("%s: Observes is %v in its table entry, want %v", e.Name, e.Observes, got)
		}
	}
}
