//go:build cudaemu

package engine

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gollm/gollm/cuda"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/model/randommodel"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// The length of a sequence, the rows of a chunk, and the layers in TestLaunches.
const (
	launchLen    = 128 << 10
	launchRows   = 8192
	launchLayers = 3
)

// TestLaunches: a driver takes every launch of every attention method at the sizes of users'
// models, up to 128k positions, on every kind of card. Nothing is computed. What sm_80 runs is
// what sm_89 runs with less shared memory.
func TestLaunches(t *testing.T) {
	defer cuda.Emulate(nil)
	llama := headShape{32, 8, 128}
	some := []headShape{{32, 8, 64}, {8, 4, 256}}
	others := append([]headShape{{32, 32, 128}, {32, 32, 80}, {32, 4, 96}, {28, 4, 128}}, some...)
	for _, c := range []struct {
		name  string
		card  cuda.Card
		heads []headShape
	}{
		{"sm_80", cuda.Card{Major: 8, Minor: 0, Shared: 163 << 10, Multiprocessors: 108}, nil},
		{"sm_89", cuda.Card{Major: 8, Minor: 9, Shared: 99 << 10, Multiprocessors: 142}, others},
		{"sm_90", cuda.Card{Major: 9, Minor: 0, Shared: 227 << 10, Multiprocessors: 132}, some},
	} {
		c.card.Memory, c.card.Idle = 1<<40, true
		cuda.Emulate(&c.card)
		for _, heads := range append([]headShape{llama}, c.heads...) {
			t.Run(fmt.Sprintf("%s/%d-%d-heads-of-%d", c.name, heads.heads, heads.kvHeads, heads.dim), func(t *testing.T) {
				dir := t.TempDir()
				calibrate(t, dir, launchLayers, heads)
				for _, spec := range launchSpecs(dir) {
					if err := launchAll(spec, heads); err != nil {
						t.Errorf("%s: %v", spec, err)
					}
				}
			})
		}
	}
}

var updateLaunches = flag.Bool("launches", false, "write testdata/launches.txt anew")

// TestStepLaunches: what a decode step of one sequence launches for attention, behind 128k
// positions of Llama-3.1-8B's heads in three layers, is what testdata/launches.txt has: a
// pattern of calls that does not match any more costs launches, and nothing else would show
// it. make launches writes the file anew; a change of it is looked at.
func TestStepLaunches(t *testing.T) {
	const file = "testdata/launches.txt"
	defer cuda.Emulate(nil)
	llama, dir := headShape{32, 8, 128}, t.TempDir()
	calibrate(t, dir, launchLayers, llama)
	var text strings.Builder
	seen := launches{counts: map[string]int{}}
	cuda.Emulate(&cuda.Card{Major: 9, Shared: 227 << 10, Multiprocessors: 132, Memory: 1 << 40, Idle: true, Launched: seen.add})
	for _, name := range []string{"testdata/demo.gguf", "tiny f16", "tiny-yarn f16", "tiny-qwen3 f16"} {
		if err := modelStep(name, &seen); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&text, "%s: %v\n", name, &seen)
	}
	for _, spec := range launchSpecs(dir) {
		p, err := openLaunches(spec, llama)
		if err != nil {
			t.Fatalf("%s: %v", spec, err)
		}
		l := &launcher{passes: p, headShape: llama}
		err = l.alloc()
		if err == nil {
			err = l.oneStep(launchLen-8, seen.reset)
		}
		if closed := p.dev.Close(); err != nil || closed != nil {
			t.Fatalf("%s: %v, %v", spec, err, closed)
		}
		fmt.Fprintf(&text, "%s: %v\n", strings.ReplaceAll(spec, dir, "DIR"), &seen)
	}
	if *updateLaunches {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, had := strings.Split(text.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(had)) {
		switch {
		case i >= len(had):
			t.Errorf("new: %s", got[i])
		case i >= len(got):
			t.Errorf("gone: %s", had[i])
		case got[i] != had[i]:
			t.Errorf("launches are\n%s\nwere\n%s", got[i], had[i])
		}
	}
}

// launches counts launches by kernel.
type launches struct {
	names  []string // in the order of their first launch
	counts map[string]int
	total  int
}

func (l *launches) add(kernel string) {
	if l.counts[kernel]++; l.counts[kernel] == 1 {
		l.names = append(l.names, kernel)
	}
	l.total++
}

func (l *launches) reset() { *l = launches{counts: map[string]int{}} }

// String is the number of launches, and that of each kernel.
func (l *launches) String() string {
	var each []string
	for _, name := range l.names {
		each = append(each, fmt.Sprintf("%s %d", name, l.counts[name]))
	}
	return fmt.Sprintf("%d: %s", l.total, strings.Join(each, ", "))
}

// openStep opens a file, or a random model by its shape and type.
func openStep(name string) (*weights.File, error) {
	shape, kind, random := strings.Cut(name, " ")
	if !random {
		return weights.Open("../" + name)
	}
	w, err := randommodel.Make(randommodel.Options{Shape: shape, Type: kind})
	if err != nil {
		return nil, err
	}
	data, err := w.Bytes()
	if err != nil {
		return nil, err
	}
	return weights.Parse(name, data)
}

// modelStep makes the first decode step of a model, which is captured.
func modelStep(name string, seen *launches) error {
	dev, err := device.Open("cuda", device.Config{})
	if err != nil {
		return err
	}
	file, err := openStep(name)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	e, err := Load(file, dev)
	if err != nil {
		return errors.Join(err, dev.Close())
	}
	defer e.Close()
	r, err := e.NewRunner(Config{Context: 256})
	if err != nil {
		return err
	}
	defer r.Close()
	s, err := r.Open()
	if err != nil {
		return err
	}
	if err := s.Prefill(context.Background(), make([]int32, 20), PrefillOptions{}); err != nil {
		return err
	}
	if err := s.Push(1); err != nil {
		return err
	}
	seen.reset()
	return r.Step(s)
}

// oneStep makes a step of one sequence behind a prompt, eagerly and captured; begin is
// called before the latter.
func (l *launcher) oneStep(prompt int, begin func()) error {
	kv, err := l.openSeq()
	if err != nil {
		return err
	}
	defer kv.Close()
	if err := l.prompt(kv, prompt); err != nil {
		return err
	}
	pass, err := l.step(1, func(int) (*kvcache.Seq, int32) { return kv, 0 })
	if err != nil {
		return err
	}
	begin()
	if err := l.capture(pass); err != nil {
		return err
	}
	return l.sync()
}

// launchSpecs is every method, and options that other kernels are for. dir has the files of
// calibrate.
func launchSpecs(dir string) []string {
	specs := []string{
		"topk(k=0.1)", "quest(budget=0.1,share=group)", "quest(budget=2048,page=64)", "vslash(pattern=per_chunk)",
		"flexprefill(pattern=per_chunk,block=64)", "sketchwalk:paper-90", "sketchwalk(tau=9,causal=none,arith=scaled)",
		"sketchwalk(sketch=exact,heads=mean_score)", "cis(share=group)", "cis(k=4096)", "cpe(ls=1)", "etf(ls=1,etf=kv) + quest",
		"vattention(share=group)", "vattention(scorer=sketchwalk)", "vattention(question=40)", "anchor(block=16,step=4)",
		"anchor(tail=dense)", "santa(samples=128)", "santa(sampler=iid)", "santa(sampler=strat,share=group)", "santa(exec=flash,tile=64)",
		"santa(alloc=largest_remainder)", "santa(scores=bernoulli)", "psaw(ls=0) + anchor", "topk + vattention + santa", "h2o(hh=0.1,recent=0.1)",
		"magicpig:k8-l75(dense=0)", "magicpig(center=both,find=codes,dense=0)", "random(k=0.1)", "streaming + santa",
	}
	for _, e := range sparse.Methods() {
		switch e.Name {
		case "doublesparsity":
			specs = append(specs, "doublesparsity(dense=0,file="+dir+"/channels.npy)", "doublesparsity(dense=0,k=0.1,file="+dir+"/shared.npy)")
		case "hashattention":
			specs = append(specs, "hashattention(k=0.1,dir="+dir+")")
		default:
			specs = append(specs, e.Name)
		}
	}
	return specs
}

// launchAll makes every pass of a sequence: its prompt, steps behind it and behind short
// pasts, captured ones too, and steps of several sequences.
func launchAll(text string, c headShape) error {
	p, err := openLaunches(text, c)
	if err != nil {
		return err
	}
	defer p.dev.Close()
	l := &launcher{passes: p, headShape: c}
	if err := l.alloc(); err != nil {
		return err
	}
	for _, prompts := range [][]int{{launchLen - 8, 200, 400, 600}, {300}} {
		if err := l.run(prompts); err != nil {
			return err
		}
	}
	return p.dev.Sync()
}

// openLaunches opens a device with the passes of a spec.
func openLaunches(text string, c headShape) (*passes, error) {
	spec, err := sparse.Parse(text)
	if err != nil {
		return nil, err
	}
	dev, err := device.Open("cuda", device.Config{})
	if err != nil {
		return nil, err
	}
	const slots = 4
	p := &passes{}
	if err := p.alloc(dev, passConfig{
		layers: launchLayers, heads: c.heads, kvHeads: c.kvHeads, headDim: c.dim, maxLen: launchLen, slots: slots,
		rows: launchRows, kv: device.F16, attn: spec,
	}); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	return p, nil
}

// launcher is passes with what their attention is called with.
type launcher struct {
	*passes
	headShape
	q, k, v, out device.Tensor // [rows, heads, dim]
}

func (l *launcher) alloc() (err error) {
	for t, heads := range map[*device.Tensor]int{&l.q: l.heads, &l.k: l.kvHeads, &l.v: l.kvHeads, &l.out: l.heads} {
		if *t, err = l.dev.Alloc(device.F32, l.rows(), heads, l.dim); err != nil {
			return err
		}
	}
	return nil
}

// layers runs a pass.
func (l *launcher) layers(pass *sparse.Pass) {
	n := pass.Rows()
	for i := range launchLayers {
		k := l.k.Rows(0, n)
		l.policy.Append(pass, i, k, l.v.Rows(0, n))
		l.policy.Attend(pass, i, l.out.Rows(0, n), l.q.Rows(0, n), k)
	}
}

// run makes the passes of sequences with prompts of some lengths, and steps of the first one
// and of all.
func (l *launcher) run(prompts []int) error {
	seqs := make([]*kvcache.Seq, len(prompts))
	for i, prompt := range prompts {
		kv, err := l.openSeq()
		if err != nil {
			return err
		}
		defer kv.Close()
		if err := l.prompt(kv, prompt); err != nil {
			return err
		}
		seqs[i] = kv
	}
	for _, n := range []int{1, len(seqs)} {
		for captured := range 2 {
			pass, err := l.step(n, func(i int) (*kvcache.Seq, int32) { return seqs[i], 0 })
			if err != nil {
				return err
			}
			if captured == 0 {
				l.layers(&pass)
			} else if err := l.capture(pass); err != nil {
				return err
			}
			if err := l.sync(); err != nil {
				return fmt.Errorf("step of %d: %w", n, err)
			}
		}
	}
	return nil
}

// prompt makes the passes of a prompt.
func (l *launcher) prompt(s *kvcache.Seq, length int) error {
	for s.Len() < length {
		n := length - s.Len()
		if !l.whole {
			n = min(n, launchRows)
		}
		pass, err := l.chunk(s, make([]int32, n), length)
		if err != nil {
			return err
		}
		if pass.First == 0 || s.Len() == length { // those between are like the last one
			l.layers(&pass)
		}
		if err := l.sync(); err != nil {
			return fmt.Errorf("prefill to %d: %w", s.Len(), err)
		}
	}
	return nil
}

// capture is layers as a graph.
func (l *launcher) capture(pass sparse.Pass) error {
	g, err := l.dev.Capture(func(ops device.Queue) {
		pass.Queue = ops
		l.layers(&pass)
	})
	if err != nil {
		return err
	}
	g.Launch()
	return g.Close()
}
