package model

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// trial runs passes of a small model over one sequence and keeps the residual
// stream before every layer and after the last.
type trial struct {
	t      *testing.T
	dev    device.Device
	model  *Model
	cache  *kvcache.Cache
	seq    *kvcache.Seq
	policy *sparse.Policy

	ids, pos, end device.Tensor
	scratch       *Scratch
	stream        [][]float32 // by layer, layers+1 of them: [positions, dim]
}

const trialLen = 512

// tryOut makes a trial of a random model of 6 layers.
func tryOut(t *testing.T, spec string) *trial {
	t.Helper()
	return tryOutOf(t, "llama", spec)
}

// tryOutOf is tryOut of an architecture.
func tryOutOf(t *testing.T, arch, spec string) *trial {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	must(t, err)
	t.Cleanup(func() { dev.Close() })
	r := &trial{t: t, dev: dev}
	r.model, err = Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Arch: arch, Layers: 6})), dev)
	must(t, err)
	m := r.model
	r.cache, err = kvcache.New(dev, kvcache.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim, MaxLen: trialLen, Slots: 1, DType: device.F32})
	must(t, err)
	r.seq, err = r.cache.Open()
	must(t, err)
	s, err := sparse.Parse(spec)
	must(t, err)
	env := sparse.NewEnv(dev, sparse.Shape{Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		MaxLen: trialLen, Slots: 1, Rows: trialLen, Pages: r.cache.Config().Pages}, 1)
	env.Rope = m.Rotation()
	r.policy, err = s.Build(env)
	must(t, err)
	for _, x := range []*device.Tensor{&r.ids, &r.pos, &r.end} {
		*x, err = dev.Alloc(device.I32, trialLen)
		must(t, err)
	}
	r.scratch, err = m.NewScratch(dev, trialLen)
	must(t, err)
	r.stream = make([][]float32, m.Layers+1)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// prefill runs n more positions of a prompt that will have prompt positions.
func (r *trial) prefill(n, prompt int) {
	r.t.Helper()
	first := r.seq.Len()
	must(r.t, r.seq.Extend(n, r.policy.Aliased(prompt)))
	p := r.pass(first, n)
	p.First, p.Prompt, p.Slot = first, prompt, r.seq.Slot()
	for l := range r.model.Layers {
		p.Cache = append(p.Cache, r.cache.Slot(l, r.seq.Slot()))
	}
	r.forward(&p, n)
}

// step decodes one position.
func (r *trial) step() {
	r.t.Helper()
	first := r.seq.Len()
	must(r.t, r.seq.Extend(1, nil))
	p := r.pass(first, 1)
	p.Decode = true
	for l := range r.model.Layers {
		p.Cache = append(p.Cache, r.cache.Slots(l, 1))
	}
	r.forward(&p, 1)
}

// pass fills the buffers for positions [first, first+n).
func (r *trial) pass(first, n int) sparse.Pass {
	var ids, pos, end []byte
	for p := first; p < first+n; p++ {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(3+p*p*7%256))
		pos = binary.LittleEndian.AppendUint32(pos, uint32(p))
		end = binary.LittleEndian.AppendUint32(end, uint32(p+1))
	}
	r.dev.Write(r.ids.Rows(0, n), ids)
	r.dev.Write(r.pos.Rows(0, n), pos)
	r.dev.Write(r.end.Rows(0, n), end)
	r.cache.Flush(r.seq)
	return sparse.Pass{Queue: r.dev.Queue(), IDs: r.ids.Rows(0, n), Pos: r.pos.Rows(0, n), End: r.end.Rows(0, n)}
}

// forward runs the pass and keeps the stream.
func (r *trial) forward(p *sparse.Pass, n int) {
	r.t.Helper()
	keep := func(l int) bool {
		r.stream[l] = append(r.stream[l], r.floats(r.scratch.x.Rows(0, n))...)
		return true
	}
	p.Layer = keep
	if _, ok := r.model.Forward(p, r.policy, r.scratch); !ok {
		r.t.Fatal("the pass was abandoned")
	}
	keep(r.model.Layers)
	must(r.t, r.dev.Sync())
	must(r.t, r.cache.Check())
}

func (r *trial) floats(x device.Tensor) []float32 {
	r.t.Helper()
	raw := make([]byte, x.Size())
	must(r.t, r.dev.Read(raw, x))
	v := make([]float32, x.Len())
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v
}

// at is a position of the stream before a layer.
func (r *trial) at(layer, p int) []float32 {
	return r.stream[layer][p*r.model.Dim : (p+1)*r.model.Dim]
}

// stored is the key and the value of a position in a layer, all heads.
func (r *trial) stored(layer, p int) []float32 {
	r.t.Helper()
	kv := r.cache.Slot(layer, r.seq.Slot())
	raw := make([]byte, kv.Pages.Size())
	must(r.t, r.dev.Read(raw, kv.Pages))
	page := int(binary.LittleEndian.Uint32(raw[p/device.PageLen*4:]))
	var x []float32
	for h := range r.model.KVHeads {
		for _, t := range []device.Tensor{kv.K, kv.V} {
			x = append(x, r.floats(t.At(page).At(h).Rows(p%device.PageLen, p%device.PageLen+1))...)
		}
	}
	return x
}

// ends is the first position that a layer updates after those it freezes, with
// ls = 3 of 6 layers, psi = 0.5 and a sink of 10.
func ends(layer, prompt int) int {
	return int((1 - math.Pow(0.5, max(0, float64(layer+1-3)/3))) * float64(prompt))
}

const frozenSpec = "etf(ls=3,sink=10)"

// Frozen rows keep their stream bit for bit; all others move.
func TestFrozenRowsKeepTheirState(t *testing.T) {
	const n = 300
	for _, spec := range []string{frozenSpec, "etf(ls=3,sink=10,etf=kv)", "cpe(ls=3,sink=10,phi=0.6)"} {
		r := tryOut(t, spec)
		r.prefill(n, n)
		for l := range r.model.Layers {
			for p := range n {
				frozen := p >= 10 && p < ends(l, n)
				if still := slices.Equal(r.at(l, p), r.at(l+1, p)); still != frozen {
					t.Fatalf("%s: layer %d, position %d: the stream stays: %v, want %v", spec, l, p, still, frozen)
				}
			}
		}
	}
}

// Without attention's output a layer is its feed-forward half: with etf_mlp=run
// every position is as in the dense model, with skip frozen ones are not.
func TestFrozenRowsFeedOnRequest(t *testing.T) {
	const n = 200
	run := func(spec string) []float32 {
		r := tryOut(t, spec)
		zero, err := r.dev.Alloc(device.F32, r.model.Dim, r.model.Heads*r.model.HeadDim)
		must(t, err)
		for l := range r.model.layers {
			r.model.layers[l].o = zero
		}
		r.prefill(n, n)
		return r.stream[r.model.Layers]
	}
	dense := run("dense")
	if !slices.Equal(run("etf(ls=3,sink=10,etf_mlp=run)"), dense) {
		t.Error("etf_mlp=run: the feed-forward half did not run for every row")
	}
	if slices.Equal(run(frozenSpec), dense) {
		t.Error("etf_mlp=skip: the feed-forward half ran for every row")
	}
}

// etf=hidden: keys and values of frozen positions are the layer's own
// projection of the stream as it was frozen. etf=kv: those of the layer below
// in whole pages, projected elsewhere. Biases and norms of heads, of rows that are not
// projected too, change nothing of that.
func TestFrozenRowsLeaveKeysAndValues(t *testing.T) {
	const n = 300
	for i, arch := range []string{"llama", "llama", "qwen2", "qwen3"} {
		kv, spec := i > 0, frozenSpec
		if kv {
			spec = "etf(ls=3,sink=10,etf=kv)"
		}
		r := tryOutOf(t, arch, spec)
		r.prefill(n, n)
		shared := 0
		for l := 3; l < r.model.Layers; l++ {
			end := ends(l, n) / device.PageLen * device.PageLen
			for p := range n {
				want := r.projected(l, p)
				if kv && p >= device.PageLen && p < end {
					shared++
					want = r.stored(l-1, p)
				}
				if got := r.stored(l, p); !nearly(got, want) {
					t.Fatalf("%s, %s: layer %d, position %d stores %v, want %v", arch, spec, l, p, got[:4], want[:4])
				}
			}
		}
		if want := 0; kv && shared == want {
			t.Error("no page was wholly frozen: nothing was tested")
		}
	}
}

// projected is what a layer's weights make of its stream at a position.
func (r *trial) projected(l, p int) []float32 {
	r.t.Helper()
	m, w := r.model, &r.model.layers[l]
	alloc := func(dims ...int) device.Tensor {
		x, err := r.dev.Alloc(device.F32, dims...)
		must(r.t, err)
		return x
	}
	x, k, v := alloc(1, m.Dim), alloc(1, m.KVHeads*m.HeadDim), alloc(1, m.KVHeads*m.HeadDim)
	q := alloc(1, m.Heads*m.HeadDim)
	var raw []byte
	for _, f := range r.at(l, p) {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(f))
	}
	ops := r.dev.Queue()
	r.dev.Write(x, raw)
	r.dev.Write(r.pos.Rows(0, 1), binary.LittleEndian.AppendUint32(nil, uint32(p)))
	device.Do(ops, device.RMSNorm{Dst: x, X: x, W: w.attnNorm, Eps: m.Eps})
	device.Do(ops, device.MatMul{Dst: k, X: x, W: w.k})
	device.Do(ops, device.MatMul{Dst: v, X: x, W: w.v})
	m.adjust(ops, w, q, k, v)
	device.Do(ops, device.Rope{X: k.Reshape(1, m.KVHeads, m.HeadDim), Pos: r.pos.Rows(0, 1), Rotation: m.rope})
	var all []float32
	for h := range m.KVHeads {
		for _, t := range []device.Tensor{k, v} {
			all = append(all, r.floats(t)[h*m.HeadDim:(h+1)*m.HeadDim]...)
		}
	}
	return all
}

// nearly reports whether two vectors agree to the rounding of a product.
func nearly(a, b []float32) bool {
	for i := range b {
		if math.Abs(float64(a[i]-b[i])) > 1e-5 {
			return false
		}
	}
	return len(a) == len(b)
}

// With the prompt's length known, chunks give the bits of the whole prompt; also
// chunks of which a deep layer updates no row. Where it updates a single one,
// kernels for one row add up in another order.
func TestFrozenRowsInChunks(t *testing.T) {
	const n = 300
	for i, tt := range []struct {
		spec   string
		chunks []int
	}{
		{frozenSpec, []int{64, 128, 50, 37}}, {"etf(ls=3,sink=10,etf=kv)", []int{64, 128}}, {"cpe(ls=3,sink=10,phi=0.6,etf=kv)", []int{64}},
		{"etf(ls=3,sink=0)", []int{50, 16}},
	} {
		arch := []string{"llama", "qwen2", "qwen3", "qwen2"}[i]
		whole := tryOutOf(t, arch, tt.spec)
		whole.prefill(n, n)
		for _, chunk := range tt.chunks {
			parts := tryOutOf(t, arch, tt.spec)
			for parts.seq.Len() < n {
				parts.prefill(min(chunk, n-parts.seq.Len()), n)
			}
			for l := range whole.stream {
				same := slices.Equal(parts.stream[l], whole.stream[l])
				if !same && (chunk != 16 || !nearly(parts.stream[l], whole.stream[l])) {
					t.Errorf("%s in chunks of %d: the stream before layer %d differs", tt.spec, chunk, l)
				}
			}
			if parts.cache.Used() != whole.cache.Used() {
				t.Errorf("%s in chunks of %d takes %d bytes, whole %d", tt.spec, chunk, parts.cache.Used(), whole.cache.Used())
			}
		}
	}
}

// etf=kv saves the pages that are wholly frozen, and what is stored later does
// not reach the layer below.
func TestAliasedPagesSaveMemory(t *testing.T) {
	const n = 300
	hidden, kv := tryOut(t, frozenSpec), tryOut(t, "etf(ls=3,sink=10,etf=kv)")
	hidden.prefill(n, n)
	kv.prefill(n, n)
	pages := 0
	for l := 3; l < 6; l++ {
		pages += max(0, ends(l, n)/device.PageLen-1) // page 0 has the sinks
	}
	if pages == 0 {
		t.Fatal("no page is wholly frozen")
	}
	saved := pages * kv.cache.Config().PageSize()
	if got := kv.seq.Shared(); got != saved {
		t.Errorf("%d bytes shared, want %d", got, saved)
	}
	if got := hidden.cache.Used() - kv.cache.Used(); got != saved || hidden.seq.Shared() != 0 {
		t.Errorf("%d bytes saved, want %d; %d shared with etf=hidden", got, saved, hidden.seq.Shared())
	}
	before := kv.stored(3, 70)
	kv.step()
	kv.seq.Truncate(100) // into a shared page
	kv.prefill(200, 300)
	kv.step()
	if !slices.Equal(kv.stored(3, 70), before) {
		t.Error("the layer below has changed")
	}
	if slices.Equal(kv.stored(5, 110), kv.stored(4, 110)) {
		t.Error("a position of a page that was half full is not projected")
	}
}

// A conversation that goes on freezes by its whole length, and only new
// positions; what an earlier prompt stored stays.
func TestFrozenRowsOfALaterPrompt(t *testing.T) {
	r := tryOut(t, "etf(ls=3,sink=10,etf=kv)")
	r.prefill(100, 100)
	var before [][]float32
	for l := range r.model.Layers {
		for p := range 100 {
			before = append(before, r.stored(l, p))
		}
	}
	r.step()
	r.prefill(299, 400)
	for i, want := range before {
		if !slices.Equal(r.stored(i/100, i%100), want) {
			t.Fatalf("layer %d, position %d has changed", i/100, i%100)
		}
	}
	for l := range r.model.Layers {
		for p := 101; p < 400; p++ {
			if still := slices.Equal(r.at(l, p), r.at(l+1, p)); still != (p < ends(l, 400)) {
				t.Fatalf("layer %d, position %d: the stream stays: %v", l, p, still)
			}
		}
	}
}

// rope=pre compares queries as they were before rotation: those of equal tokens
// are equal, while rotation tells them apart.
func TestQueriesComparedBeforeRotation(t *testing.T) {
	share := func(spec string) float64 {
		r := tryOut(t, spec)
		r.prefill(64, 64)
		for range 32 {
			r.step()
		}
		f, err := r.policy.Figures(r.seq.Slot())
		must(t, err)
		for _, f := range f {
			if f.Name == "selections" {
				return f.Value
			}
		}
		return -1
	}
	// Before rotation, the first layer's queries depend on the token alone, and
	// some tokens of the block come twice.
	pre, post := share("cis(k=8,sink=2,local=4,s=32,tau=0.9999,rope=pre)"), share("cis(k=8,sink=2,local=4,s=32,tau=0.9999)")
	if !(pre < post) {
		t.Errorf("%v selections with rope=pre, %v with rope=post: want fewer", pre, post)
	}
}
