package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// ChunkLen is the number of positions of a prefill pass, or 2, 4, 8 times as many where
// the device prefers more and has memory for them.
// Chunks end at absolute multiples of it, whatever came before, so that a method whose
// unit divides it sees the same units in one prompt and in many parts.
const ChunkLen = 2048

// passPairs bounds the pairs of a row and a position of a longer pass, so that a layer
// of it is soon done, and a prefill soon ended: 8192 rows behind 128k positions.
const passPairs = 1 << 30

// logitRows is how many rows of logits are computed and read at once when all
// positions are asked for.
const logitRows = 32

// historyLen is how many of the newest tokens penalties may look at where
// [Config.RepeatLastN] says nothing.
const historyLen = 64

// Config is the size of a runner and what its attention is.
type Config struct {
	Context int          // positions of a sequence; 0 is the model's own
	Slots   int          // sequences at once; 0 is 1
	KV      device.DType // type of the cache; 0 is F16
	Attn    *sparse.Spec // nil is dense
	Seed    uint64       // of what the attention draws at random

	// RepeatLastN is the most tokens that penalties look at, see
	// [sampling.Params]; 0 is 64.
	RepeatLastN int

	// Also is more attention systems for decode steps, which read prompts as Attn
	// does; see [Runner.SetDecodePolicy].
	Also []*sparse.Spec
}

// describe is the size and the attention, for errors.
func (c Config) describe() string {
	text := fmt.Sprintf("a context of %d tokens", c.Context)
	if c.Slots > 1 {
		text += fmt.Sprintf(" for %d sequences", c.Slots)
	}
	if c.Attn != nil {
		text = "attention " + c.Attn.String() + " with " + text
	}
	if len(c.Also) > 0 {
		text += fmt.Sprintf(" and %d more attention systems", len(c.Also))
	}
	return text
}

// Runner runs passes of a model over one cache.
type Runner struct {
	passes
	model   *model.Model
	stops   func(id int32) bool
	replays bool // see [device.Info]
	most    int  // rows of a prefill pass, a power of 2 times ChunkLen
	pieces  func() pieceDecoder

	// Buffers of a pass, refilled between passes.
	next     device.Tensor     // i32 [slots]: the first ids of a decode pass
	logit    device.Tensor     // f32 [1, 1]: of what was chosen last
	history  device.Tensor     // i32 [slots, newest tokens that penalties may look at]
	newest   []int32           // of a sequence, as a row of history
	how      []sampling.Params // of a call of Sample
	logits   device.Tensor     // f32 [max(slots, logitRows), vocab]
	scratch  *model.Scratch
	decoding int
	free     func() error
	eager    bool
	calls    *CallTrace      // nil: nobody notes calls
	units    *UnitTrace      // nil: nobody times units
	graphs   [][]decodeGraph // of decode passes, by turn and graphOf, on a device that replays them
	queued   []queuedStep    // since the last Wait
}

// queuedStep is a step of a sequence.
type queuedStep struct {
	*Sequence
	before int // its length before it
}

// decodeGraph is a captured decode pass.
type decodeGraph struct {
	device.Graph
	watch *Stopwatch // that it sets marks for, nil for none
	laps  []lap      // between these marks
}

// NewRunner allocates the cache and the buffers.
func (e *Engine) NewRunner(c Config) (*Runner, error) {
	if c.Context == 0 {
		c.Context = e.Model.Context
	}
	c.Slots = max(c.Slots, 1)
	if c.KV == 0 {
		c.KV = device.F16
	}
	r := &Runner{passes: passes{dev: e.Device}, replays: e.Device.Info().Replays, model: e.Model, stops: e.Tokenizer.EndOfGeneration}
	r.pieces = func() pieceDecoder { return e.Tokenizer.Stream(tokenizer.DecodeOptions{Continued: true}) }
	r.most = ChunkLen
	for rows := r.dev.Info().PassRows; r.most*2 <= rows; {
		r.most *= 2
	}
	for {
		var err error
		if r.free, err = r.dev.Scope(func() error { return r.alloc(c) }); err == nil {
			return r, nil
		}
		if r.most == ChunkLen {
			return nil, fmt.Errorf("engine: %s: %w", c.describe(), err)
		}
		r.most = ChunkLen
	}
}

// PassRows is how many positions of a prompt a pass has at most.
func (r *Runner) PassRows() int { return r.most }

// chunkEnd is where the chunk ends that begins at a position, unless the prompt ends
// before.
func (r *Runner) chunkEnd(pos int) int {
	n := r.most
	for n > ChunkLen && (pos/n+1)*n > passPairs/n {
		n /= 2
	}
	return (pos/n + 1) * n
}

// Close gives the memory back. Neither the runner nor a sequence of it can be
// used afterwards. An engine that is closed needs no Close of its runners.
func (r *Runner) Close() error {
	var err error
	for _, g := range slices.Concat(r.graphs...) {
		if g.Graph != nil {
			err = errors.Join(err, g.Close())
		}
	}
	r.graphs = nil
	return errors.Join(err, r.free())
}

// alloc takes the device memory.
func (r *Runner) alloc(c Config) error {
	m := r.model
	err := r.passes.alloc(r.dev, passConfig{
		layers: m.Layers, heads: m.Heads, kvHeads: m.KVHeads, headDim: m.HeadDim,
		maxLen: c.Context, slots: c.Slots, rows: r.most, kv: c.KV,
		window: m.Window, rope: m.Rotation(), attn: c.Attn, also: c.Also, seed: c.Seed,
	})
	r.graphs = make([][]decodeGraph, 1+len(c.Also))
	alloc := func(dt device.DType, dims ...int) (t device.Tensor) {
		if err == nil {
			t, err = r.dev.Alloc(dt, dims...)
		}
		return t
	}
	r.logit, r.history = alloc(device.F32, 1, 1), alloc(device.I32, c.Slots, min(max(c.RepeatLastN, historyLen), c.Context))
	if err != nil {
		return err
	}
	r.next = r.ids.Rows(0, c.Slots)
	r.newest, r.how = make([]int32, r.history.Dim(1)), make([]sampling.Params, 1)
	r.logits = alloc(device.F32, max(c.Slots, min(r.rows(), logitRows)), m.Vocab)
	if err != nil {
		return err
	}
	r.scratch, err = m.NewScratch(r.dev, r.rows())
	return err
}

// Context is the number of positions that a sequence may have.
func (r *Runner) Context() int { return r.cache.Config().MaxLen }

// KVBytes is the memory of the cache's pages in use.
func (r *Runner) KVBytes() int { return r.cache.Used() }

// KVShared is the memory that a sequence's layers save by sharing pages with the
// layer below.
func (s *Sequence) KVShared() int { return s.kv.Shared() }

// Figures are what the attention counted in the decode steps of a sequence.
func (s *Sequence) Figures() ([]sparse.Figure, error) { return s.runner.policy.Figures(s.kv.Slot()) }

// NaNScores is how many scores that were not numbers the choosing of what to read
// has met since the device was opened: each counted as -Inf. Where it is not 0 a
// query or a key is broken, and the output is not to be trusted.
func (r *Runner) NaNScores() (int64, error) { return r.nanScores() }

// Policy is the attention of the runner.
func (r *Runner) Policy() *sparse.Policy { return r.policy }

// Attn is the text form of the attention policy.
func (r *Runner) Attn() string { return r.policy.String() }

// Open takes a slot for an empty sequence.
func (r *Runner) Open() (*Sequence, error) {
	kv, err := r.openSeq()
	if err != nil {
		return nil, err
	}
	return &Sequence{runner: r, kv: kv}, nil
}

// Turn makes the attention of decode steps that of [Config.Attn], 0, or of
// [Config.Also], from 1 on. A sequence takes its steps under one of them: to answer
// a prompt under several, fork it after the prompt for each.
func (r *Runner) SetDecodePolicy(i int) {
	r.policy.SetDecodePolicy(i)
	r.decoding = i
}

// chunk runs one prefill pass over ids, which follow the sequence's tokens and
// end at chunkEnd or before. total is the length of the whole prompt.
// It returns the residual stream of the rows.
func (r *Runner) chunk(ctx context.Context, s *Sequence, ids []int32, total int, layer func(int)) (device.Tensor, error) {
	first := s.Len()
	p, err := r.passes.chunk(s.kv, ids, total)
	if err != nil {
		return device.Tensor{}, err
	}
	r.calls.begin()
	p.Layer = func(l int) bool {
		r.calls.at(l)
		layer(l)
		return ctx.Err() == nil
	}
	r.until(ctx.Done())
	x, _ := r.model.Forward(&p, r.policy, r.scratch)
	r.calls.at(-1)
	err = r.sync()
	r.until(nil)
	if ctx.Err() != nil { // whatever a device says that was interrupted
		err = ctx.Err()
	}
	if err != nil {
		s.Truncate(first)
	}
	return x, err
}

// Step runs one decode pass for several sequences of the runner: each stores
// its pushed or sampled token and gets the logits after it. When the device fails no
// sequence keeps the position; see [Sequence.Truncate] for what it may lose besides.
func (r *Runner) Step(active ...*Sequence) error {
	if err := r.queue(active, false); err != nil {
		return err
	}
	return r.Wait()
}

// Queue is Step without waiting for the device, which then has the next pass when
// this one is done. Until [Runner.Wait] nothing but Push and Queue may be called.
// Where somebody watches the passes it waits for each.
func (r *Runner) Queue(active ...*Sequence) error {
	err := r.queue(active, false)
	if err == nil && len(r.tracers) > 0 {
		err = r.Wait()
	}
	return err
}

// Wait waits for the steps that were queued. When the device fails no sequence keeps
// the position of any of them.
func (r *Runner) Wait() error {
	err := r.sync()
	if err != nil {
		r.takeBack(0)
	}
	r.keep(len(r.queued))
	return err
}

// keep makes the first n of the steps that are queued those that are done.
func (r *Runner) keep(n int) { r.queued = slices.Delete(r.queued, 0, n) }

// takeBack drops the steps that are queued, from number first on.
func (r *Runner) takeBack(first int) {
	for _, q := range slices.Backward(r.queued[first:]) {
		if q.Len() > q.before {
			q.Truncate(q.before)
		}
		q.row = -1
	}
	r.queued = r.queued[:first]
}

// queue queues one decode pass: the pending token of every active sequence, or what
// the device has chosen for one, is stored, and its logits are left in the sequence's
// row of r.logits.
func (r *Runner) queue(active []*Sequence, ofDevice bool) error {
	p, err := r.passes.step(len(active), func(i int) (*kvcache.Seq, int32) {
		if ofDevice {
			return active[i].kv, chosen
		}
		return active[i].kv, active[i].next
	})
	if err != nil {
		return err
	}
	first := len(r.queued)
	for _, s := range active {
		id := s.next
		if ofDevice {
			id = chosen
		}
		r.queued = append(r.queued, queuedStep{s, len(s.tokens)})
		s.tokens = append(s.tokens, id)
		s.row = s.kv.Slot()
	}
	if err = r.decode(&p); err != nil {
		r.takeBack(first)
	}
	return err
}

// Eager makes decode passes call by call from here on, as a pass that is watched is made,
// instead of capturing and replaying them: to tell what capturing changes.
func (r *Runner) Eager(on bool) { r.eager = on }

// Replays reports whether decode passes are captured once and replayed.
func (r *Runner) Replays() bool { return r.replays }

// decode queues a decode pass, as a graph where the device replays those and
// nothing watches the pass but a stopwatch that sets marks. The graph is captured
// the first time that a pass has this number of rows, and again for long pasts.
func (r *Runner) decode(p *sparse.Pass) error {
	run := func(ops device.Queue) {
		p.Queue = ops
		x, _ := r.model.Forward(p, r.policy, r.scratch)
		r.calls.at(-1)
		r.model.Logits(ops, r.logits.Rows(0, p.Rows()), x)
	}
	var watch *Stopwatch
	if all := r.clocked(); len(all) == 1 {
		watch = all[0]
	}
	if r.calls != nil {
		r.calls.begin()
		p.Layer = func(l int) bool { r.calls.at(l); return true }
	}
	if r.eager || !r.replays || len(r.tracers) > 1 || r.policy.Trace != nil && watch == nil || r.calls != nil || r.units.eager() {
		run(p.Queue)
		return nil
	}
	if r.units != nil {
		return r.units.replay(run)
	}
	graphs := &r.graphs[r.decoding]
	n := graphOf(p)
	for len(*graphs) <= n {
		*graphs = append(*graphs, decodeGraph{})
	}
	g := &(*graphs)[n]
	if g.Graph == nil || g.watch != watch {
		if err := r.capture(g, run, watch); err != nil {
			return err
		}
	}
	g.Launch()
	if watch != nil {
		watch.laps = append(watch.laps[:0], g.laps...)
	}
	return nil
}

// capture makes a graph of run, in the place of what g was.
func (r *Runner) capture(g *decodeGraph, run func(device.Queue), watch *Stopwatch) error {
	if g.Graph != nil {
		if err := g.Close(); err != nil {
			return err
		}
	}
	var err error
	*g = decodeGraph{watch: watch}
	if g.Graph, err = r.dev.Capture(run); err != nil {
		*g = decodeGraph{}
	} else if watch != nil {
		g.laps, watch.marks = slices.Clone(watch.laps), 0
	}
	return err
}
