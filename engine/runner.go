package engine

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
)

// ChunkLen is the number of positions of a prefill pass. Chunks end at absolute
// multiples of it, whatever came before, so that a method whose unit divides it
// sees the same units in one prompt and in many parts.
const ChunkLen = 2048

// logitRows is how many rows of logits are computed and read at once when all
// positions are asked for.
const logitRows = 32

// HistoryLen is how many of the newest tokens the repeat penalty sees.
const HistoryLen = 64

// Config is the size of a runner and what its attention is.
type Config struct {
	Context int          // positions of a sequence; 0 is the model's own
	Slots   int          // sequences at once; 0 is 1
	KV      device.DType // type of the cache; 0 is F16
	Attn    *sparse.Spec // nil is dense
	Seed    uint64       // of what the attention draws at random
}

// Runner runs passes of a model over one cache.
type Runner struct {
	dev    device.Device
	model  *model.Model
	cache  *kvcache.Cache
	policy *sparse.Policy
	whole  bool // a prompt is one pass
	stops  func(id int32) bool
	pieces func() pieceDecoder

	// Buffers of a pass, refilled between passes.
	ids, pos device.Tensor // i32 [rows]
	end      device.Tensor // i32 [rows]: pos + 1
	next     device.Tensor // i32 [slots]
	history  device.Tensor // i32 [slots, HistoryLen]
	logits   device.Tensor // f32 [max(slots, logitRows), vocab]
	scratch  *model.Scratch

	prefill, decode []device.KV // by layer
	host            []int32     // staging for ids and pos
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
	r := &Runner{dev: e.Device, model: e.Model, stops: e.Tokenizer.EndOfGeneration}
	r.pieces = func() pieceDecoder { return e.Tokenizer.Stream(tokenizer.DecodeOptions{Continued: true}) }
	if err := r.alloc(c); err != nil {
		return nil, fmt.Errorf("engine: a context of %d tokens for %d sequences: %w", c.Context, c.Slots, err)
	}
	return r, nil
}

// alloc takes the device memory.
func (r *Runner) alloc(c Config) (err error) {
	m := r.model
	r.cache, err = kvcache.New(r.dev, kvcache.Config{
		Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		MaxLen: c.Context, Slots: c.Slots, DType: c.KV,
	})
	alloc := func(dt device.DType, dims ...int) (t device.Tensor) {
		if err == nil {
			t, err = r.dev.Alloc(dt, dims...)
		}
		return t
	}
	rows := max(min(ChunkLen, c.Context), c.Slots)
	if c.Attn != nil && c.Attn.Whole() {
		rows = max(c.Context, c.Slots)
		r.whole = true
	}
	if err == nil {
		err = r.build(c, rows)
	}
	r.ids, r.pos, r.end = alloc(device.I32, rows), alloc(device.I32, rows), alloc(device.I32, rows)
	r.next, r.history = alloc(device.I32, c.Slots), alloc(device.I32, c.Slots, HistoryLen)
	r.logits = alloc(device.F32, max(c.Slots, min(rows, logitRows)), m.Vocab)
	if err != nil {
		return err
	}
	r.host = make([]int32, rows)
	r.prefill, r.decode = make([]device.KV, m.Layers), make([]device.KV, m.Layers)
	r.scratch, err = m.NewScratch(r.dev, rows)
	return err
}

// build makes the attention policy and ties its pages to those of the cache.
func (r *Runner) build(c Config, rows int) (err error) {
	m := r.model
	spec := c.Attn
	if spec == nil {
		if spec, err = sparse.Parse("dense"); err != nil {
			return err
		}
	}
	env := sparse.NewEnv(r.dev, sparse.Shape{
		Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
		MaxLen: c.Context, Slots: c.Slots, Rows: rows, Pages: r.cache.Config().Pages,
	}, c.Seed)
	if r.policy, err = spec.Build(env); err != nil {
		return err
	}
	r.policy.Window = m.Window
	r.cache.Attach(r.policy.PageStates()...)
	return nil
}

// Context is the number of positions that a sequence may have.
func (r *Runner) Context() int { return r.cache.Config().MaxLen }

// KVBytes is the memory of the cache's pages in use.
func (r *Runner) KVBytes() int { return r.cache.Used() }

// Policy is the attention of the runner.
func (r *Runner) Policy() *sparse.Policy { return r.policy }

// Attn is the text form of the attention policy.
func (r *Runner) Attn() string { return r.policy.String() }

// Open takes a slot for an empty sequence.
func (r *Runner) Open() (*Sequence, error) {
	kv, err := r.cache.Open()
	if err != nil {
		return nil, err
	}
	r.policy.Reset(kv.Slot())
	return &Sequence{runner: r, kv: kv}, nil
}

// chunk runs one prefill pass over ids, which follow the sequence's tokens and
// do not cross a multiple of ChunkLen. total is the length of the whole prompt.
// It returns the residual stream of the rows.
func (r *Runner) chunk(ctx context.Context, s *Sequence, ids []int32, total int, layer func(int)) (device.Tensor, error) {
	first := s.kv.Len()
	if err := s.kv.Extend(len(ids), nil); err != nil {
		return device.Tensor{}, err
	}
	n := len(ids)
	r.write(r.ids, ids)
	for i := range n {
		r.host[i] = int32(first + i)
	}
	r.write(r.pos, r.host[:n])
	for i := range n {
		r.host[i]++
	}
	r.write(r.end, r.host[:n])
	r.cache.Flush(s.kv)
	for l := range r.prefill {
		r.prefill[l] = r.cache.Slot(l, s.kv.Slot())
	}
	p := sparse.Pass{
		Ops: r.dev.Ops(), IDs: r.ids.Rows(0, n), Pos: r.pos.Rows(0, n), End: r.end.Rows(0, n), Cache: r.prefill,
		Slot: s.kv.Slot(), First: first, Prompt: total,
		Layer: func(l int) bool {
			layer(l)
			return ctx.Err() == nil
		},
	}
	x, ok := r.model.Forward(&p, r.policy, r.scratch)
	err := r.dev.Sync()
	if !ok || err != nil {
		s.kv.Truncate(first)
		return x, errors.Join(ctx.Err(), err)
	}
	return x, nil
}

// step runs one decode pass: the pending token of every active sequence is
// stored, and its logits are left in the sequence's row of r.logits.
func (r *Runner) step(active []*Sequence) error {
	rows, kvs := 0, make([]*kvcache.Seq, 0, 8)
	for i, s := range active {
		if err := s.kv.Extend(1, nil); err != nil {
			for _, undo := range active[:i] {
				undo.kv.Truncate(undo.kv.Len() - 1)
			}
			return err
		}
		kvs = append(kvs, s.kv)
		rows = max(rows, s.kv.Slot()+1)
	}
	clear(r.host[:rows])
	for _, s := range active {
		r.host[s.kv.Slot()] = s.next
	}
	r.write(r.ids, r.host[:rows])
	for _, s := range active {
		r.host[s.kv.Slot()] = int32(s.kv.Len() - 1)
	}
	r.write(r.pos, r.host[:rows])
	r.cache.Flush(kvs...)
	for l := range r.decode {
		r.decode[l] = r.cache.Slots(l, rows)
	}
	p := sparse.Pass{
		Ops: r.dev.Ops(), IDs: r.ids.Rows(0, rows), Pos: r.pos.Rows(0, rows), Cache: r.decode, Decode: true,
	}
	x, _ := r.model.Forward(&p, r.policy, r.scratch)
	r.model.Logits(p.Ops, r.logits.Rows(0, rows), x)
	return r.dev.Sync()
}

// write queues numbers to the start of an i32 tensor.
func (r *Runner) write(dst device.Tensor, v []int32) {
	r.dev.Write(dst.Rows(0, len(v)), unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v)))
}

// read waits for an i32 or f32 tensor and copies it out.
func read[T int32 | float32](dev device.Device, dst []T, src device.Tensor) error {
	return dev.Read(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), src)
}
