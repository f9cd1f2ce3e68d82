package sparse

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/gollm/gollm/device"
)

// Shape is the model's and the cache's sizes that a policy is built for.
type Shape struct {
	Layers, Heads, KVHeads, HeadDim int

	MaxLen int // maximum positions of a sequence
	Slots  int // maximum number of sequences
	Rows   int // maximum query rows of a prefill pass
	Pages  int // pages of the cache, all layers
}

// MaxBlocks is the number of pages that MaxLen positions take.
func (s Shape) MaxBlocks() int { return (s.MaxLen + device.PageLen - 1) / device.PageLen }

// Group is the number of query heads of a GQA group, which share a kv head.
func (s Shape) Group() int { return s.Heads / s.KVHeads }

// Env is what a method is built from: the shapes, the seed, the model's RoPE, and
// memory. The first failure sticks; Build reports it.
type Env struct {
	Shape
	Seed uint64
	Rope device.Rotation // the model's rotation of queries and keys; no Freqs where there is no model
	KV   device.DType    // type of the cache

	dev    device.Device
	states []device.Tensor // [layers, slots, ...]
	clear  []bool          // by state: zeroed when a slot is opened
	pages  []device.Tensor // [pages, ...]
	size   int             // bytes allocated
	err    error
}

// NewEnv makes the environment of a policy on dev, for a cache of f16.
func NewEnv(dev device.Device, s Shape, seed uint64) *Env {
	return &Env{Shape: s, Seed: seed, KV: device.F16, dev: dev}
}

// State is memory that outlives a pass: [layers, slots, dims...]. It is zeroed
// when a slot is opened and copied when a sequence is forked.
func (e *Env) State(dt device.DType, dims ...int) device.Tensor {
	return e.state(true, dt, dims)
}

// Uncleared is a State whose contents are undefined when a slot is opened: for large
// tensors whose valid length another State holds.
func (e *Env) Uncleared(dt device.DType, dims ...int) device.Tensor {
	return e.state(false, dt, dims)
}

func (e *Env) state(clear bool, dt device.DType, dims []int) device.Tensor {
	t := e.alloc(dt, append([]int{e.Layers, e.Slots}, dims...)...)
	e.states, e.clear = append(e.states, t), append(e.clear, clear)
	return t
}

// PageState is state per page of the cache: [pages, dims...], addressed by the page
// tables of a [device.KV]. It is shared and copied with the page; its contents are
// undefined until the page's first position is stored.
func (e *Env) PageState(dt device.DType, dims ...int) device.Tensor {
	t := e.alloc(dt, append([]int{e.Pages}, dims...)...)
	e.pages = append(e.pages, t)
	return t
}

// Scratch is memory that every pass overwrites, shared by all layers.
func (e *Env) Scratch(dt device.DType, dims ...int) device.Tensor { return e.alloc(dt, dims...) }

// List is scratch for lists of at most capacity entries, one for each group of rows
// and head (all heads, kv heads or 1).
func (e *Env) List(groups, heads, capacity int, weighted bool) device.List {
	l := device.List{
		Index: e.Scratch(device.I32, groups, heads, capacity),
		Count: e.Scratch(device.I32, groups, heads),
	}
	if weighted {
		l.Weight = e.Scratch(device.F32, groups, heads, capacity)
	}
	return l
}

// Floats is a constant f32 tensor.
func (e *Env) Floats(v []float32, dims ...int) device.Tensor {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return e.constant(b, device.F32, dims)
}

// Ints is a constant i32 tensor.
func (e *Env) Ints(v []int32, dims ...int) device.Tensor {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, uint32(x))
	}
	return e.constant(b, device.I32, dims)
}

func (e *Env) constant(b []byte, dt device.DType, dims []int) device.Tensor {
	t := e.alloc(dt, dims...)
	if e.err == nil {
		e.dev.Write(t, b)
	}
	return t
}

func (e *Env) alloc(dt device.DType, dims ...int) (t device.Tensor) {
	if e.err == nil {
		t, e.err = e.dev.Alloc(dt, dims...)
		e.size += t.Size()
	}
	return t
}

// ints copies an i32 tensor to the host; between passes only.
func (e *Env) ints(t device.Tensor) ([]int32, error) {
	raw := make([]byte, t.Size())
	err := e.dev.Read(raw, t)
	v := make([]int32, t.Len())
	for i := range v {
		v[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return v, err
}

// unrope is the inverse rotation of Rope, without its scale.
func (e *Env) unrope() (device.Rotation, error) {
	if e.Rope.Freqs.Absent() {
		return device.Rotation{}, errors.New("rope=pre needs the rotation of a model, and there is none here; use rope=post")
	}
	raw := make([]byte, e.Rope.Freqs.Size())
	if err := e.dev.Read(raw, e.Rope.Freqs); err != nil {
		return device.Rotation{}, err
	}
	freqs := make([]float32, e.Rope.Freqs.Len())
	for i := range freqs {
		freqs[i] = -math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return device.Rotation{Freqs: e.Floats(freqs, len(freqs)), Scale: 1, Interleaved: e.Rope.Interleaved}, nil
}

// reset zeroes a slot of every state that is cleared.
func (e *Env) reset(slot int) {
	for i, t := range e.states {
		if !e.clear[i] {
			continue
		}
		row := t.At(0).Rows(slot, slot+1)
		zero := make([]byte, row.Size())
		for l := range e.Layers {
			e.dev.Write(t.At(l).Rows(slot, slot+1), zero)
		}
	}
}

// fork copies a slot of every state.
func (e *Env) fork(dst, src int) {
	for _, t := range e.states {
		for l := range e.Layers {
			device.Do(e.dev.Queue(), device.Copy{Dst: t.At(l).Rows(dst, dst+1), Src: t.At(l).Rows(src, src+1)})
		}
	}
}
