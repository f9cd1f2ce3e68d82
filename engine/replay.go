package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/sparse"
)

// A replay runs an attention policy over given queries, keys and values, with
// the cache, the passes and the policy of a Runner but without a model:
//
//	r, err := engine.NewReplay(dev, spec, engine.ReplayConfig{
//		Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, MaxLen: 300, Slots: 2,
//	})
//	s, err := r.Open(layers)      // []engine.QKV, one for each layer, n positions
//	err = s.Prefill(200, 64)      // positions 0..199 in chunks of 64
//	f, err := s.Fork()
//	err = r.Step(s, f)            // position 200 of both, in one decode pass
//	y := s.Output(3)              // layer 3: f32 [heads, n, dim]
//
// With r.Observe set, every planned pass is read back; see [Selection].

// QKV is one layer's queries, keys and values of a sequence of n positions,
// after RoPE.
type QKV struct {
	Q    []float32 // [heads, n, dim]
	K, V []float32 // [kvheads, n, dim]
}

// ReplayConfig is the size of a replay.
type ReplayConfig struct {
	Layers, Heads, KVHeads, HeadDim int

	MaxLen int          // positions of a sequence
	Slots  int          // sequences at once; 0 is 1
	Rows   int          // maximum rows of a prefill pass; 0 is MaxLen, at most ChunkLen
	KV     device.DType // type of the cache; 0 is F32
	Window int          // the model's sliding window; 0 is none
	Seed   uint64       // of the attention's random numbers
}

// Replay is a cache and an attention policy over given tensors.
type Replay struct {
	passes
	conf ReplayConfig

	// Observe, when set, gets the selection of each layer of each eager pass, tile by
	// tile where a method plans in tiles.
	Observe func(Selection)
	// ObserveFrozen, when set, gets the positions [from, to) of a prefill pass that
	// a layer does not update: they have no Selection.
	ObserveFrozen func(layer, from, to int)

	in       [3]device.Tensor // q f32 [rows, heads·dim]; k, v f32 [rows, kvheads·dim]
	out      device.Tensor    // f32 [rows, heads·dim]
	steps    [3]device.Tensor // q, k, v of a decode step, f32 [layers, slots, ...]
	ys       device.Tensor    // f32 [layers, slots, heads·dim]
	floats   []float32        // staging for one of them
	graphs   []device.Graph   // of decode passes, by graphOf
	last     sparse.Pass      // the last decode pass
	launched bool             // by a graph
}

// ReplaySequence is one sequence of a replay.
type ReplaySequence struct {
	replay *Replay
	kv     *kvcache.Seq
	layers []QKV
	n      int         // positions that layers have
	out    [][]float32 // by layer: [heads, n, dim]
}

// NewReplay allocates a replay on dev. A nil spec is dense.
func NewReplay(dev device.Device, spec *sparse.Spec, c ReplayConfig) (*Replay, error) {
	c.Slots = max(c.Slots, 1)
	if c.KV == 0 {
		c.KV = device.F32
	}
	if c.Rows == 0 {
		c.Rows = min(c.MaxLen, ChunkLen)
	}
	if c.KVHeads < 1 || c.Heads%c.KVHeads != 0 || c.Heads < 1 {
		return nil, fmt.Errorf("engine: %d query heads for %d kv heads, want a multiple", c.Heads, c.KVHeads)
	}
	r := &Replay{conf: c}
	if err := r.alloc(dev, spec); err != nil {
		return nil, fmt.Errorf("engine: a replay of %d layers and %d positions: %w", c.Layers, c.MaxLen, err)
	}
	return r, nil
}

// alloc allocates the device memory.
func (r *Replay) alloc(dev device.Device, spec *sparse.Spec) error {
	c := r.conf
	err := r.passes.alloc(dev, passConfig{
		layers: c.Layers, heads: c.Heads, kvHeads: c.KVHeads, headDim: c.HeadDim,
		maxLen: c.MaxLen, slots: c.Slots, rows: c.Rows, kv: c.KV, window: c.Window, attn: spec, seed: c.Seed,
	})
	if err != nil {
		return err
	}
	alloc := func(dims ...int) (t device.Tensor) {
		if err == nil {
			t, err = dev.Alloc(device.F32, dims...)
		}
		return t
	}
	q, kv, rows := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim, r.rows()
	r.in = [3]device.Tensor{alloc(rows, q), alloc(rows, kv), alloc(rows, kv)}
	r.out = alloc(rows, q)
	r.steps = [3]device.Tensor{alloc(c.Layers, c.Slots, q), alloc(c.Layers, c.Slots, kv), alloc(c.Layers, c.Slots, kv)}
	r.ys = alloc(c.Layers, c.Slots, q)
	r.floats = make([]float32, max(rows, c.Slots)*q)
	r.graphs = make([]device.Graph, 2*c.Slots+2)
	return err
}

// Begin makes the first n positions of another sequence, whole blocks, the beginning of
// this empty one, as a prefix cache does.
func (s *ReplaySequence) Begin(other *ReplaySequence, n int) {
	var blocks []kvcache.Block
	for i := range n / device.PageLen {
		blocks = append(blocks, other.kv.Keep(i))
	}
	s.kv.Begin(blocks)
	for _, b := range blocks {
		s.replay.cache.Drop(b)
	}
}

// NaNScores is [Runner.NaNScores].
func (r *Replay) NaNScores() (int64, error) { return r.nanScores() }

// Policy is the attention that is replayed.
func (r *Replay) Policy() *sparse.Policy { return r.policy }

// Open opens a sequence that will have the positions of layers, one
// QKV for each layer. The slices are read while the sequence is in use.
func (r *Replay) Open(layers []QKV) (*ReplaySequence, error) {
	n, err := r.check(layers)
	if err != nil {
		return nil, err
	}
	kv, err := r.openSeq()
	if err != nil {
		return nil, err
	}
	s := &ReplaySequence{replay: r, kv: kv, layers: layers, n: n, out: make([][]float32, len(layers))}
	for l := range s.out {
		s.out[l] = make([]float32, len(layers[l].Q))
	}
	return s, nil
}

// check verifies the sizes of a sequence's tensors and returns its length.
func (r *Replay) check(layers []QKV) (n int, err error) {
	c := r.conf
	if len(layers) != c.Layers {
		return 0, fmt.Errorf("engine: tensors of %d layers for a replay of %d", len(layers), c.Layers)
	}
	width, kvWidth := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	n = len(layers[0].Q) / width
	for l, t := range layers {
		if len(t.Q) != n*width || len(t.K) != n*kvWidth || len(t.V) != n*kvWidth {
			return 0, fmt.Errorf("engine: layer %d has %d, %d and %d elements of q, k and v, want %d, %d and %d for %d positions",
				l, len(t.Q), len(t.K), len(t.V), n*width, n*kvWidth, n*kvWidth, n)
		}
	}
	return n, nil
}

// SetRequest is [Sequence.SetRequest].
func (s *ReplaySequence) SetRequest(n uint32) { s.replay.setRequest(s.kv, n) }

// Slot is the sequence's row in decode passes.
func (s *ReplaySequence) Slot() int { return s.kv.Slot() }

// Len is the number of positions stored.
func (s *ReplaySequence) Len() int { return s.kv.Len() }

// More reports whether the tensors have positions that are not stored yet.
func (s *ReplaySequence) More() bool { return s.Len() < s.n }

// Output is one layer's attention, f32 [heads, n, dim], zero where a position
// has not been run, or is one that the layer does not update. It is valid as long as the sequence.
func (s *ReplaySequence) Output(layer int) []float32 { return s.out[layer] }

// Prefill runs the next rows positions as a prompt, in chunks that end at
// absolute multiples of chunk; 0 is ChunkLen. A method that needs the whole prompt
// gets it in one pass.
func (s *ReplaySequence) Prefill(rows, chunk int) error {
	r, to := s.replay, s.Len()+rows
	if rows < 1 || to > s.n {
		return fmt.Errorf("engine: prefill of positions %d to %d, the tensors have %d", s.Len(), to-1, s.n)
	}
	if chunk == 0 {
		chunk = ChunkLen
	}
	for s.Len() < to {
		n := to - s.Len()
		if !r.whole {
			n = min(n, chunk-s.Len()%chunk, r.rows())
		}
		if err := r.prefillChunk(s, n, to); err != nil {
			return err
		}
	}
	return nil
}

// prefillChunk runs one prefill pass over the next n positions.
func (r *Replay) prefillChunk(s *ReplaySequence, n, prompt int) error {
	first := s.Len()
	p, err := r.chunk(s.kv, make([]int32, n), prompt)
	if err != nil {
		return err
	}
	r.trace()
	for l := range r.conf.Layers {
		t := &s.layers[l]
		for i, x := range [3][]float32{t.Q, t.K, t.V} {
			dst := r.in[i].Rows(0, n)
			r.gather(dst, x, s.n, first, n)
		}
		r.layer(&p, l, r.out.Rows(0, n), r.in[0].Rows(0, n), r.in[1].Rows(0, n), r.in[2].Rows(0, n))
		frozen := r.policy.Frozen(&p, l).Rows
		if r.ObserveFrozen != nil && !frozen.Empty() {
			r.ObserveFrozen(l, first+frozen.Lo, first+frozen.Hi)
		}
		for _, run := range frozen.Around(n) {
			if err := r.scatter(s.out[l], r.out.Rows(run.Lo, run.Hi), s.n, first+run.Lo, run.Hi-run.Lo); err != nil {
				return err
			}
		}
	}
	return r.sync()
}

// layer stores keys and values and attends, as a model's layer does.
// dst, q f32 [rows, heads·dim]; k, v f32 [rows, kvheads·dim].
func (r *Replay) layer(p *sparse.Pass, l int, dst, q, k, v device.Tensor) {
	c, n := r.conf, p.Rows()
	k, v = k.Reshape(n, c.KVHeads, c.HeadDim), v.Reshape(n, c.KVHeads, c.HeadDim)
	r.policy.Append(p, l, k, v)
	r.policy.Attend(p, l, dst.Reshape(n, c.Heads, c.HeadDim), q.Reshape(n, c.Heads, c.HeadDim), k)
}

// gather queues positions [first, first+n) of x, [heads, all, dim], to dst,
// [n, heads·dim].
func (r *Replay) gather(dst device.Tensor, x []float32, all, first, n int) {
	dim, width := r.conf.HeadDim, dst.RowLen()
	for i := range n {
		for h := range width / dim {
			copy(r.floats[i*width+h*dim:][:dim], x[(h*all+first+i)*dim:])
		}
	}
	write(r.dev, dst, r.floats[:n*width])
}

// scatter is the inverse of gather; it waits.
func (r *Replay) scatter(x []float32, src device.Tensor, all, first, n int) error {
	dim, width := r.conf.HeadDim, src.RowLen()
	if err := read(r.dev, r.floats[:n*width], src); err != nil {
		return err
	}
	for i := range n {
		for h := range width / dim {
			copy(x[(h*all+first+i)*dim:][:dim], r.floats[i*width+h*dim:])
		}
	}
	return nil
}

// Step runs one decode pass: the next position of each sequence.
func (r *Replay) Step(active ...*ReplaySequence) error {
	p, err := r.stage(active)
	if err != nil {
		return err
	}
	r.trace()
	r.last, r.launched = p, false
	r.stepLayers(&r.last)
	return r.collect(active)
}

// Again runs the last decode pass again, eagerly or as a graph as before, and copies no
// output: for stopwatches and for counting allocations. State of a method that accumulates
// over steps then has the pass twice.
func (r *Replay) Again() {
	if g := r.graphs[graphOf(&r.last)]; r.launched && g != nil {
		g.Launch()
		return
	}
	r.stepLayers(&r.last)
}

// StepReplayed is Step as a graph, which is captured for the first pass with this number
// of rows and launched from then on. Nothing is observed.
func (r *Replay) StepReplayed(active ...*ReplaySequence) error {
	p, err := r.stage(active)
	if err != nil {
		return err
	}
	g := &r.graphs[graphOf(&p)]
	if *g == nil {
		r.policy.Trace = nil
		*g, err = r.dev.Capture(func(ops device.Queue) {
			p.Queue = ops
			r.stepLayers(&p)
		})
		if err != nil {
			return err
		}
	}
	r.last, r.launched = p, true
	(*g).Launch()
	return r.collect(active)
}

// stage refills the buffers of a decode pass.
func (r *Replay) stage(active []*ReplaySequence) (sparse.Pass, error) {
	for _, s := range active {
		if s.Len() >= s.n {
			return sparse.Pass{}, fmt.Errorf("engine: step to position %d, the tensors have %d", s.Len(), s.n)
		}
	}
	p, err := r.step(len(active), func(i int) (*kvcache.Seq, int32) { return active[i].kv, 0 })
	if err != nil {
		return p, err
	}
	for _, s := range active {
		slot, pos := s.kv.Slot(), s.Len()-1
		for l, t := range s.layers {
			for i, x := range [3][]float32{t.Q, t.K, t.V} {
				r.gather(r.steps[i].At(l).Rows(slot, slot+1), x, s.n, pos, 1)
			}
		}
	}
	return p, nil
}

// stepLayers runs the layers of a decode pass.
func (r *Replay) stepLayers(p *sparse.Pass) {
	n := p.Rows()
	for l := range r.conf.Layers {
		r.layer(p, l, r.ys.At(l).Rows(0, n), r.steps[0].At(l).Rows(0, n), r.steps[1].At(l).Rows(0, n), r.steps[2].At(l).Rows(0, n))
	}
}

// collect waits for a decode pass and copies its outputs.
func (r *Replay) collect(active []*ReplaySequence) error {
	for _, s := range active {
		slot := s.kv.Slot()
		for l := range s.out {
			if err := r.scatter(s.out[l], r.ys.At(l).Rows(slot, slot+1), s.n, s.Len()-1, 1); err != nil {
				return err
			}
		}
	}
	return r.sync()
}

// trace sets the policy's tracers.
func (r *Replay) trace() {
	list := r.tracers
	if r.Observe != nil {
		list = append(slices.Clip(list), &selectionTracer{dev: r.dev, heads: r.conf.Heads, observe: r.Observe})
	}
	r.policy.Trace = nil
	if len(list) > 0 {
		r.policy.Trace = list
	}
}

// Fork opens a sequence with the same positions and the same tensors to come.
func (s *ReplaySequence) Fork() (*ReplaySequence, error) {
	r := s.replay
	kv, err := r.fork(s.kv)
	if err != nil {
		return nil, err
	}
	f := &ReplaySequence{replay: r, kv: kv, layers: s.layers, n: s.n}
	for _, y := range s.out {
		f.out = append(f.out, append([]float32(nil), y...))
	}
	return f, nil
}

// Continue gives the sequence other tensors for the positions to come; those
// before Len are in the cache and stay.
func (s *ReplaySequence) Continue(layers []QKV) error {
	n, err := s.replay.check(layers)
	if err == nil && n != s.n {
		err = fmt.Errorf("engine: tensors of %d positions continue a sequence of %d", n, s.n)
	}
	if err == nil {
		s.layers = layers
	}
	return err
}

// Truncate drops the positions from n on and returns how many stay, as
// [Sequence.Truncate] does.
func (s *ReplaySequence) Truncate(n int) int { return s.replay.truncate(s.kv, n) }

// Close frees the slot and the pages.
func (s *ReplaySequence) Close() { s.kv.Close() }

// Close frees the captured graphs. The memory belongs to the device.
func (r *Replay) Close() error {
	var err error
	for _, g := range r.graphs {
		if g != nil {
			err = errors.Join(err, g.Close())
		}
	}
	clear(r.graphs)
	return err
}
