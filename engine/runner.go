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

// ChunkLen is the length of a prefill chunk in positions, or 2, 4, 8 times as many where
// the device prefers more and has memory for them. Chunks end at absolute multiples of it,
// so that a method whose unit (block, group of rows) divides it sees the same units for
// every way to split a prompt.
const ChunkLen = 2048

// passPairs is the maximum (row, position) pairs of a chunk longer than ChunkLen, so that
// a layer of it takes a bounded time, and a prefill is soon cancelled: 8192 rows behind
// 128k positions.
const passPairs = 1 << 30

// logitRows is the rows of a tile of logits when the logits of all positions are
// computed.
const logitRows = 32

// historyLen is the default of [Config.RepeatLastN].
const historyLen = 64

// Config is the sizes of a runner and its attention.
type Config struct {
	Context int          // positions of a sequence; 0 is the model's own
	Slots   int          // sequences at once; 0 is 1
	KV      device.DType // type of the cache; 0 is F16
	Attn    *sparse.Spec // nil is dense
	Seed    uint64       // of the attention's random numbers

	// Blocks is the size of the cache in blocks of [device.PageLen] positions, of all
	// sequences; 0 is enough for every slot to reach Context.
	Blocks int

	// RepeatLastN is the maximum number of tokens that penalties count, see
	// [sampling.Params]; 0 is 64.
	RepeatLastN int

	// Also is more specs for decode steps, which plan prompts as Attn does; see
	// [Runner.SetDecodePolicy].
	Also []*sparse.Spec
}

// describe is the sizes and the attention, for errors.
func (c Config) describe() string {
	text := fmt.Sprintf("a context of %d tokens", c.Context)
	if c.Slots > 1 {
		text += fmt.Sprintf(" for %d sequences", c.Slots)
	}
	if c.Attn != nil {
		text = "attention " + c.Attn.String() + " with " + text
	}
	if len(c.Also) > 0 {
		text += fmt.Sprintf(" and %d more attention specs", len(c.Also))
	}
	return text
}

// Runner runs passes of a model over one cache.
type Runner struct {
	passes
	model   *model.Model
	stops   func(id int32) bool
	replays bool // see [device.Info]
	maxRows int  // maximum rows of a prefill pass, a power of 2 times ChunkLen
	pieces  func() pieceDecoder

	// Buffers of a pass, refilled between passes.
	next     device.Tensor     // i32 [slots]: the first ids of a decode pass
	logit    device.Tensor     // f32 [slots, 1]: logits of the tokens sampled last
	history  device.Tensor     // i32 [slots, RepeatLastN]: ring of the newest tokens, for penalties
	newest   []int32           // staging for a row of history
	allowed  device.Tensor     // i32 [slots, (vocab+31)/32]: see Sequence.Allow
	how      []sampling.Params // [slots]: of a call of SampleTokens
	logits   device.Tensor     // f32 [max(slots, logitRows), vocab]
	scratch  *model.Scratch
	decoding int
	free     func() error
	eager    bool
	calls    *CallTrace      // nil: calls are not traced
	units    *UnitTrace      // nil: units are not timed
	graphs   [][]decodeGraph // of decode passes, by decode policy and graphOf, on a device that replays them
	queued   []queuedStep    // since the last Wait
}

// queuedStep is a queued step of a sequence.
type queuedStep struct {
	*Sequence
	before int // length of the sequence before the step
}

// decodeGraph is a captured decode pass.
type decodeGraph struct {
	device.Graph
	watch *Stopwatch // whose marks are captured, nil for none
	laps  []lap      // between these marks
}

// NewRunner allocates the cache and the buffers.
func (e *Engine) NewRunner(c Config) (*Runner, error) { return e.newRunner(c, nil) }

// NewRunners makes a runner of each attention spec, instead of Config.Attn. Each has slots
// of its own; they share the pages of one cache and the buffers of a pass, and so belong
// to one goroutine and are closed together.
func (e *Engine) NewRunners(c Config, specs ...*sparse.Spec) ([]*Runner, error) {
	all := make([]*Runner, len(specs))
	first := max(0, slices.IndexFunc(specs, (*sparse.Spec).Whole)) // its buffers are the largest
	var err error
	c.Attn = specs[first]
	if all[first], err = e.newRunner(c, nil); err != nil {
		return nil, err
	}
	for i, spec := range specs {
		if i == first {
			continue
		}
		c.Attn = spec
		if all[i], err = e.newRunner(c, all[first]); err != nil {
			return nil, errors.Join(err, CloseAll(all))
		}
	}
	return all, nil
}

// CloseAll closes runners that share their pages.
func CloseAll(all []*Runner) (err error) {
	for _, r := range slices.Backward(all) {
		if r != nil {
			err = errors.Join(err, r.Close())
		}
	}
	return err
}

// newRunner makes a runner, which shares pages and buffers with lead unless that is nil.
func (e *Engine) newRunner(c Config, lead *Runner) (*Runner, error) {
	if c.Context == 0 {
		c.Context = e.Model.Context
	}
	c.Slots = max(c.Slots, 1)
	if c.KV == 0 {
		c.KV = device.F16
	}
	r := &Runner{passes: passes{dev: e.Device}, replays: e.Device.Info().Replays, model: e.Model, stops: e.Tokenizer.EndOfGeneration}
	r.pieces = func() pieceDecoder { return e.Tokenizer.Stream(tokenizer.DecodeOptions{Continued: true}) }
	r.maxRows = ChunkLen
	for rows := r.dev.Info().PassRows; r.maxRows*2 <= rows; {
		r.maxRows *= 2
	}
	if lead != nil {
		r.maxRows = lead.maxRows
	}
	for {
		var err error
		if r.free, err = r.dev.Scope(func() error { return r.alloc(c, lead) }); err == nil {
			return r, nil
		}
		if r.maxRows == ChunkLen {
			return nil, fmt.Errorf("engine: %s: %w", c.describe(), err)
		}
		r.maxRows = ChunkLen
	}
}

// PassRows is the maximum number of prompt positions of a pass.
func (r *Runner) PassRows() int { return r.maxRows }

// chunkEnd is the end of the prefill chunk that begins at a position, unless the prompt
// ends before.
func (r *Runner) chunkEnd(pos int) int {
	n := r.maxRows
	for n > ChunkLen && (pos/n+1)*n > passPairs/n {
		n /= 2
	}
	return (pos/n + 1) * n
}

// chunkLen is the length of the prefill chunk that begins at a position, n positions
// before the end of the prompt.
func (r *Runner) chunkLen(pos, n int) int { return r.NextChunk(pos, n, r.maxRows) }

// NextChunk is the length of the prefill chunk that begins at a position, n positions
// before the end of the prompt, when it should have at most limit rows. It has more where
// a smaller one would change what is computed: an attention method plans several rows as
// one (see [sparse.Spec.Unit]), and a row alone in its pass is attended as in a decode
// step.
func (r *Runner) NextChunk(pos, n, limit int) int {
	if r.whole {
		return n
	}
	end := min(pos+n, r.chunkEnd(pos))
	cut := (pos + limit) / r.unit * r.unit
	for cut <= pos+1 {
		cut += r.unit
	}
	if cut >= end-1 {
		return end - pos
	}
	return cut - pos
}

// Close frees the memory. Neither the runner nor a sequence of it can be
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

// alloc allocates the device memory that is not lead's.
func (r *Runner) alloc(c Config, lead *Runner) error {
	m := r.model
	conf := passConfig{
		layers: m.Layers, heads: m.Heads, kvHeads: m.KVHeads, headDim: m.HeadDim,
		maxLen: c.Context, slots: c.Slots, rows: r.maxRows, kv: c.KV, blocks: c.Blocks,
		window: m.Window, rope: m.Rotation(), attn: c.Attn, also: c.Also, seed: c.Seed,
	}
	if lead != nil {
		conf.lead = &lead.passes
	}
	err := r.passes.alloc(r.dev, conf)
	r.graphs = make([][]decodeGraph, 1+len(c.Also))
	alloc := func(dt device.DType, dims ...int) (t device.Tensor) {
		if err == nil {
			t, err = r.dev.Alloc(dt, dims...)
		}
		return t
	}
	r.allowed = alloc(device.I32, c.Slots, (m.Vocab+31)/32)
	r.logit, r.history = alloc(device.F32, c.Slots, 1), alloc(device.I32, c.Slots, min(max(c.RepeatLastN, historyLen), c.Context))
	if err != nil {
		return err
	}
	r.next = r.ids.Rows(0, c.Slots)
	r.newest, r.how = make([]int32, r.history.Dim(1)), make([]sampling.Params, c.Slots)
	if lead != nil {
		r.logits, r.scratch = lead.logits, lead.scratch
		return nil
	}
	r.logits = alloc(device.F32, max(c.Slots, min(r.rows(), logitRows)), m.Vocab)
	if err != nil {
		return err
	}
	r.scratch, err = m.NewScratch(r.dev, r.rows())
	return err
}

// Context is the number of positions that a sequence may have.
func (r *Runner) Context() int { return r.cache.Config().MaxLen }

// KVBytes is the size of the cache's pages in use.
func (r *Runner) KVBytes() int { return r.cache.Used() }

// KVShared is the memory that a sequence's layers save by sharing pages with the
// layer below.
func (s *Sequence) KVShared() int { return s.kv.Shared() }

// Figures are the counters of the attention methods for a sequence's decode steps.
func (s *Sequence) Figures() ([]sparse.Figure, error) { return s.runner.policy.Figures(s.kv.Slot()) }

// NaNScores is the number of NaN scores that selection has seen since the device was
// opened; each counts as -Inf. Where it is not 0 a query or a key is broken, and the
// output is wrong.
func (r *Runner) NaNScores() (int64, error) { return r.nanScores() }

// Policy is the attention of the runner.
func (r *Runner) Policy() *sparse.Policy { return r.policy }

// Attn is the text form of the attention policy.
func (r *Runner) Attn() string { return r.policy.String() }

// Open opens an empty sequence in a free slot.
func (r *Runner) Open() (*Sequence, error) {
	kv, err := r.openSeq()
	if err != nil {
		return nil, err
	}
	return &Sequence{runner: r, kv: kv}, nil
}

// SetDecodePolicy makes the attention of decode steps that of [Config.Attn], 0, or of
// [Config.Also], from 1 on. All steps of a sequence are planned by one of them: to answer
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
	if ctx.Err() != nil { // hides the error of a device that was interrupted
		err = ctx.Err()
	}
	if err != nil {
		s.Truncate(first)
	}
	return x, err
}

// Step runs one decode pass for several sequences of the runner: each stores
// its pushed or sampled token and gets the logits after it. When the device fails no
// sequence keeps the position; see [Sequence.Truncate] for positions lost besides.
func (r *Runner) Step(active ...*Sequence) error {
	if err := r.queue(active, false); err != nil {
		return err
	}
	return r.Wait()
}

// Queue is Step without waiting for the device, which then runs passes back to back.
// Until [Runner.Wait] nothing but Push and Queue may be called. With a tracer it waits
// for each pass.
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

// keep makes the first n queued steps done ones.
func (r *Runner) keep(n int) { r.queued = slices.Delete(r.queued, 0, n) }

// takeBack undoes the queued steps from number first on.
func (r *Runner) takeBack(first int) {
	for _, q := range slices.Backward(r.queued[first:]) {
		if q.Len() > q.before {
			q.Truncate(q.before)
		}
		q.row = -1
	}
	r.queued = r.queued[:first]
}

// queue queues one decode pass: it stores the pending token of every active sequence, or
// the token that the device has sampled for one, and leaves the logits in the sequence's
// row of r.logits.
func (r *Runner) queue(active []*Sequence, ofDevice bool) error {
	p, err := r.passes.step(len(active), func(i int) (*kvcache.Seq, int32) {
		if ofDevice {
			return active[i].kv, sampled
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
			id = sampled
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

// Eager makes decode passes eager from here on, as with a tracer, instead of capturing and
// replaying them: to measure what capturing changes.
func (r *Runner) Eager(on bool) { r.eager = on }

// Replays reports whether decode passes are captured once and replayed.
func (r *Runner) Replays() bool { return r.replays }

// decode queues a decode pass, as a graph where the device replays those and no tracer is
// set but a stopwatch with marks. The graph is captured for the first pass with this
// number of rows, and again for long pasts.
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

// capture captures run into g, and closes the graph that g was.
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
