package engine

import (
	"slices"
	"unsafe"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/sparse"
)

// passes makes the passes of a runner or a replay: a cache, the attention whose
// page state is tied to it, and fixed buffers that are refilled between passes.
type passes struct {
	dev    device.Device
	cache  *kvcache.Cache
	policy *sparse.Policy
	whole  bool // a prompt is one pass

	ids, pos device.Tensor // i32 [rows]
	end      device.Tensor // i32 [rows]: pos + 1

	requests device.Tensor // i32 [slots]: the number of each sequence, see setRequest

	prefill, decode []device.KV // by layer
	host            []int32     // staging for ids, pos and end
	active          []*kvcache.Seq

	config  passConfig // that they were made with
	shape   sparse.Shape
	tracers tracers // what watches the attention besides a test
}

// tracers is several tracers as one.
type tracers []sparse.Tracer

// Begin tells all of them.
func (t tracers) Begin(p *sparse.Pass, layer int, q, k device.Tensor) {
	for _, one := range t {
		one.Begin(p, layer, q, k)
	}
}

// Planned tells all of them.
func (t tracers) Planned(p *sparse.Pass, layer int, plan device.Plan) {
	for _, one := range t {
		one.Planned(p, layer, plan)
	}
}

// Attended tells all of them.
func (t tracers) Attended(p *sparse.Pass, layer int, dst, q device.Tensor, plan device.Plan) {
	for _, one := range t {
		one.Attended(p, layer, dst, q, plan)
	}
}

// watch adds a tracer to the policy.
func (p *passes) watch(t sparse.Tracer) {
	p.tracers = append(p.tracers, t)
	p.policy.Trace = p.tracers
}

// unwatch takes a tracer from the policy.
func (p *passes) unwatch(t sparse.Tracer) {
	p.tracers = slices.DeleteFunc(slices.Clone(p.tracers), func(one sparse.Tracer) bool { return one == t })
	p.policy.Trace = nil
	if len(p.tracers) > 0 {
		p.policy.Trace = p.tracers
	}
}

// clocked are the stopwatches that set marks.
func (p *passes) clocked() (all []*Stopwatch) {
	for _, t := range p.tracers {
		if s, ok := t.(*Stopwatch); ok && s.Marks() {
			all = append(all, s)
		}
	}
	return all
}

// sync waits for a pass and lets the stopwatches count it.
func (p *passes) sync() error {
	err := p.dev.Sync()
	for _, s := range p.clocked() {
		if err == nil {
			err = s.collect(s.laps)
		} else {
			s.laps, s.marks = s.laps[:0], 0
		}
	}
	return err
}

// passConfig is the sizes of the passes and what their attention is.
type passConfig struct {
	layers, heads, kvHeads, headDim int

	maxLen, slots int
	rows          int             // most rows of a prefill pass, unless the attention wants a whole prompt
	kv            device.DType    // type of the cache
	window        int             // the model's own sliding window; 0 is none
	rope          device.Rotation // the model's rotation; no Freqs without a model
	attn          *sparse.Spec    // nil is dense
	also          []*sparse.Spec  // for decode steps
	seed          uint64
}

// alloc takes the device memory of cache, attention and buffers.
func (p *passes) alloc(dev device.Device, c passConfig) (err error) {
	p.dev, p.config = dev, c
	p.cache, err = kvcache.New(dev, kvcache.Config{
		Layers: c.layers, KVHeads: c.kvHeads, HeadDim: c.headDim,
		MaxLen: c.maxLen, Slots: c.slots, DType: c.kv,
	})
	if err != nil {
		return err
	}
	if c.attn == nil {
		if c.attn, err = sparse.Parse("dense"); err != nil {
			return err
		}
	}
	rows := max(min(c.rows, c.maxLen), c.slots)
	if p.whole = c.attn.Whole(); p.whole {
		rows = max(c.maxLen, c.slots)
	}
	if err = p.build(c, rows); err != nil {
		return err
	}
	for _, t := range []*device.Tensor{&p.ids, &p.pos, &p.end} {
		if *t, err = dev.Alloc(device.I32, rows); err != nil {
			return err
		}
	}
	if p.requests, err = dev.Alloc(device.I32, c.slots); err != nil {
		return err
	}
	p.host = make([]int32, rows)
	p.prefill, p.decode = make([]device.KV, c.layers), make([]device.KV, c.layers)
	return nil
}

// build makes the attention policy and ties its pages to those of the cache.
func (p *passes) build(c passConfig, rows int) (err error) {
	p.shape = sparse.Shape{
		Layers: c.layers, Heads: c.heads, KVHeads: c.kvHeads, HeadDim: c.headDim,
		MaxLen: c.maxLen, Slots: c.slots, Rows: rows, Pages: p.cache.Config().Pages,
	}
	env := sparse.NewEnv(p.dev, p.shape, c.seed)
	env.Rope, env.KV = c.rope, p.cache.Config().DType
	if p.policy, err = sparse.Build(env, slices.Concat([]*sparse.Spec{c.attn}, c.also)...); err != nil {
		return err
	}
	p.policy.Window = c.window
	p.cache.Attach(p.policy.PageStates()...)
	return nil
}

// nanScores is how many scores that were not numbers the device has met since it
// was opened.
func (p *passes) nanScores() (int64, error) { return p.dev.NaNScores() }

// rows is the most rows that a pass can have.
func (p *passes) rows() int { return p.ids.Dim(0) }

// openSeq takes a slot for an empty sequence.
func (p *passes) openSeq() (*kvcache.Seq, error) {
	kv, err := p.cache.Open()
	if err == nil {
		p.policy.Reset(kv.Slot())
		p.setRequest(kv, 0)
	}
	return kv, err
}

// setRequest makes n, of which 24 bits are used, part of the address of all that
// the attention draws for s.
func (p *passes) setRequest(s *kvcache.Seq, n uint32) {
	p.write(p.requests.Rows(s.Slot(), s.Slot()+1), []int32{int32(n & (1<<24 - 1))})
}

// fork takes a slot for a sequence with the positions of s.
func (p *passes) fork(s *kvcache.Seq) (*kvcache.Seq, error) {
	kv, err := s.Fork()
	if err == nil {
		p.policy.Fork(kv.Slot(), s.Slot())
		device.Do(p.dev.Queue(), device.Copy{Dst: p.requests.Rows(kv.Slot(), kv.Slot()+1), Src: p.requests.Rows(s.Slot(), s.Slot()+1)})
	}
	return kv, err
}

// truncate drops positions from n on and returns how many stay. Where the
// attention keeps sums beside each page, which cannot be taken apart, that is
// the last page boundary.
func (p *passes) truncate(s *kvcache.Seq, n int) int {
	if len(p.policy.PageStates()) > 0 && n < s.Len() {
		n -= n % device.PageLen
	}
	s.Truncate(n)
	p.policy.Truncate(s.Slot(), n)
	return n
}

// until lets the device drop the work of a pass once done is closed. What watches
// the attention sees whole layers only.
func (p *passes) until(done <-chan struct{}) {
	if done == nil || p.policy.Trace == nil {
		p.dev.Until(done)
	}
}

// chunk makes room for ids after the positions of s and returns the prefill
// pass over them. prompt is the length of the whole prompt.
func (p *passes) chunk(s *kvcache.Seq, ids []int32, prompt int) (sparse.Pass, error) {
	first, n := s.Len(), len(ids)
	if err := s.Extend(n, p.policy.Aliased(prompt)); err != nil {
		return sparse.Pass{}, err
	}
	p.write(p.ids, ids)
	for i := range n {
		p.host[i] = int32(first + i)
	}
	p.writePos(n)
	p.cache.Flush(s)
	for l := range p.prefill {
		p.prefill[l] = p.cache.Slot(l, s.Slot())
	}
	return sparse.Pass{
		Queue: p.dev.Queue(), IDs: p.ids.Rows(0, n), Pos: p.pos.Rows(0, n), End: p.end.Rows(0, n), Cache: p.prefill,
		Requests: p.requests.Rows(s.Slot(), s.Slot()+1), Slot: s.Slot(), First: first, Prompt: prompt,
	}, nil
}

// chosen stands for the id that the device has chosen for a sequence and left in ids.
const chosen int32 = -1

// step makes room for one position of each sequence and returns the decode pass
// that stores id(i) for sequence i of n; a pass of one sequence may store what was
// chosen. When one does not fit nothing changes.
func (p *passes) step(n int, seq func(i int) (s *kvcache.Seq, id int32)) (sparse.Pass, error) {
	rows := 0
	p.active = p.active[:0]
	for i := range n {
		s, _ := seq(i)
		if err := s.Extend(1, nil); err != nil {
			for _, undo := range p.active {
				undo.Truncate(undo.Len() - 1)
			}
			return sparse.Pass{}, err
		}
		p.active = append(p.active, s)
		rows = max(rows, s.Slot()+1)
	}
	clear(p.host[:rows])
	known := true
	for i := range n {
		s, id := seq(i)
		p.host[s.Slot()] = id
		known = known && id != chosen
	}
	if known {
		p.write(p.ids, p.host[:rows])
	}
	clear(p.host[:rows])
	for _, s := range p.active {
		p.host[s.Slot()] = int32(s.Len() - 1)
	}
	p.writePos(rows)
	p.cache.Flush(p.active...)
	for l := range p.decode {
		p.decode[l] = p.cache.Slots(l, rows)
	}
	return sparse.Pass{
		Queue: p.dev.Queue(), IDs: p.ids.Rows(0, rows), Pos: p.pos.Rows(0, rows), End: p.end.Rows(0, rows),
		Requests: p.requests.Rows(0, rows), Cache: p.decode, Decode: true,
	}, nil
}

// graphOf is the number of the graph of a decode pass: by rows, and twice, for pasts that
// are short and others.
func graphOf(p *sparse.Pass) int {
	n := 2 * p.Rows()
	if p.Cache[0].Short {
		n++
	}
	return n
}

// writePos queues the first n staged numbers as positions, and their ends.
func (p *passes) writePos(n int) {
	p.write(p.pos, p.host[:n])
	for i := range n {
		p.host[i]++
	}
	p.write(p.end, p.host[:n])
}

// write queues numbers to the start of an i32 tensor.
func (p *passes) write(dst device.Tensor, v []int32) { write(p.dev, dst.Rows(0, len(v)), v) }

// write queues the elements of an i32 or f32 tensor.
func write[T int32 | float32](dev device.Device, dst device.Tensor, v []T) {
	dev.Write(dst, unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), 4*len(v)))
}

// read waits for an i32 or f32 tensor and copies it out.
func read[T int32 | float32](dev device.Device, dst []T, src device.Tensor) error {
	return dev.Read(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(dst))), 4*len(dst)), src)
}
