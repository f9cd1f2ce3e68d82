package engine

import (
	"slices"
	"unsafe"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/sparse"
)

// passes prepares the passes of a runner or a replay: the cache, the attention policy with
// its state per page, and fixed buffers that are refilled between passes.
type passes struct {
	dev    device.Device
	cache  *kvcache.Cache
	policy *sparse.Policy
	whole  bool // a prompt is one pass
	unit   int  // positions of a prompt that are planned as one, see [sparse.Spec.Unit]

	ids, pos device.Tensor // i32 [rows]
	end      device.Tensor // i32 [rows]: pos + 1

	requests device.Tensor // i32 [slots]: the number of each sequence, see setRequest

	prefill, decode []device.KV // by layer
	host            []int32     // staging for ids, pos and end
	active          []*kvcache.Seq

	config  passConfig
	shape   sparse.Shape
	tracers tracers // of the attention
}

// tracers is several tracers as one.
type tracers []sparse.Tracer

// Begin calls all of them.
func (t tracers) Begin(p *sparse.Pass, layer int, q, k device.Tensor) {
	for _, one := range t {
		one.Begin(p, layer, q, k)
	}
}

// Planned calls all of them.
func (t tracers) Planned(p *sparse.Pass, layer int, plan device.Plan) {
	for _, one := range t {
		one.Planned(p, layer, plan)
	}
}

// Attended calls all of them.
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

// unwatch removes a tracer from the policy.
func (p *passes) unwatch(t sparse.Tracer) {
	p.tracers = slices.DeleteFunc(slices.Clone(p.tracers), func(one sparse.Tracer) bool { return one == t })
	p.policy.Trace = nil
	if len(p.tracers) > 0 {
		p.policy.Trace = p.tracers
	}
}

// clocked are the stopwatches with marks.
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

// passConfig is the sizes of the passes and their attention.
type passConfig struct {
	layers, heads, kvHeads, headDim int

	maxLen, slots int
	rows          int             // maximum rows of a prefill pass, unless a method needs the whole prompt
	kv            device.DType    // type of the cache
	window        int             // the model's own sliding window; 0 is none
	rope          device.Rotation // the model's rotation; no Freqs without a model
	attn          *sparse.Spec    // nil is dense
	also          []*sparse.Spec  // more specs for decode steps
	seed          uint64
	blocks        int     // of the cache; 0 is enough for every slot
	lead          *passes // whose pages and buffers these passes share; nil: they have their own
}

// alloc allocates cache, attention and buffers.
func (p *passes) alloc(dev device.Device, c passConfig) (err error) {
	p.dev, p.config = dev, c
	if c.lead != nil {
		p.cache, err = c.lead.cache.Sibling()
	} else {
		p.cache, err = kvcache.New(dev, kvcache.Config{
			Layers: c.layers, KVHeads: c.kvHeads, HeadDim: c.headDim,
			MaxLen: c.maxLen, Slots: c.slots, DType: c.kv, Pages: c.blocks * c.layers,
		})
	}
	if err != nil {
		return err
	}
	if c.attn == nil {
		if c.attn, err = sparse.Parse("dense"); err != nil {
			return err
		}
	}
	rows := max(min(c.rows, c.maxLen), c.slots)
	p.unit = c.attn.Unit()
	if p.whole = c.attn.Whole(); p.whole {
		rows = max(c.maxLen, c.slots)
	}
	if err = p.build(c, rows); err != nil {
		return err
	}
	if p.requests, err = dev.Alloc(device.I32, c.slots); err != nil {
		return err
	}
	p.prefill, p.decode = make([]device.KV, c.layers), make([]device.KV, c.layers)
	return p.buffers(c.lead, rows)
}

// buffers allocates the buffers of a pass, or takes those of lead.
func (p *passes) buffers(lead *passes, rows int) (err error) {
	if lead != nil {
		p.ids, p.pos, p.end, p.host = lead.ids, lead.pos, lead.end, lead.host
		return nil
	}
	for _, t := range []*device.Tensor{&p.ids, &p.pos, &p.end} {
		if *t, err = p.dev.Alloc(device.I32, rows); err != nil {
			return err
		}
	}
	p.host = make([]int32, rows)
	return nil
}

// build makes the attention policy and attaches its state per page to the cache.
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

// nanScores is the number of NaN scores since the device was opened.
func (p *passes) nanScores() (int64, error) { return p.dev.NaNScores() }

// rows is the maximum rows of a pass.
func (p *passes) rows() int { return p.ids.Dim(0) }

// openSeq opens an empty sequence in a free slot.
func (p *passes) openSeq() (*kvcache.Seq, error) {
	kv, err := p.cache.Open()
	if err == nil {
		p.policy.Reset(kv.Slot())
		p.setRequest(kv, 0)
	}
	return kv, err
}

// setRequest makes n, of which 24 bits are used, part of the address of the attention's
// random numbers for s.
func (p *passes) setRequest(s *kvcache.Seq, n uint32) {
	p.write(p.requests.Rows(s.Slot(), s.Slot()+1), []int32{int32(n & (1<<24 - 1))})
}

// fork opens a sequence with the positions of s in a free slot.
func (p *passes) fork(s *kvcache.Seq) (*kvcache.Seq, error) {
	kv, err := s.Fork()
	if err == nil {
		p.policy.Fork(kv.Slot(), s.Slot())
		device.Do(p.dev.Queue(), device.Copy{Dst: p.requests.Rows(kv.Slot(), kv.Slot()+1), Src: p.requests.Rows(s.Slot(), s.Slot()+1)})
	}
	return kv, err
}

// truncate drops positions from n on and returns how many stay: n, or the last page
// boundary before it where methods keep state per page, which is only valid for whole
// pages.
func (p *passes) truncate(s *kvcache.Seq, n int) int {
	if len(p.policy.PageStates()) > 0 && n < s.Len() {
		n -= n % device.PageLen
	}
	s.Truncate(n)
	p.policy.Truncate(s.Slot(), n)
	return n
}

// until lets the device drop the work of a pass once done is closed, but not under a
// tracer, which sees whole layers only.
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

// sampled stands for the id that the device has sampled for a sequence and left in ids.
const sampled int32 = -1

// step makes room for one position of each sequence and returns the decode pass that
// stores seq(i)'s id for sequence i of n; the id of a pass of one sequence may be
// sampled. When a position does not fit nothing changes.
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
	onHost := true
	for i := range n {
		s, id := seq(i)
		p.host[s.Slot()] = id
		onHost = onHost && id != sampled
	}
	if onHost {
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

// graphOf is the index of the graph of a decode pass: by rows and by whether all pasts are
// short.
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
