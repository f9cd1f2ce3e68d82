package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/quote"
	"github.com/gollm/gollm/weights"
)

// Model is the weights of a transformer on a device.
type Model struct {
	Config

	embed  device.Tensor // any type [vocab, dim]
	norm   device.Tensor // f32 [dim]
	output device.Tensor // any type [vocab, dim]; embed when the file ties them
	rope   device.Rotation
	layers []layer
}

// layer is the weights of one layer; matrices are of any type.
type layer struct {
	attnNorm device.Tensor // f32 [dim]
	q        device.Tensor // [heads·headdim, dim]
	k, v     device.Tensor // [kvheads·headdim, dim]
	o        device.Tensor // [dim, heads·headdim]

	qBias, kBias, vBias device.Tensor // f32 [heads·headdim] and twice [kvheads·headdim]; absent without Bias
	qNorm, kNorm        device.Tensor // f32 [headdim]; absent without HeadNorms

	ffNorm   device.Tensor // f32 [dim]
	gate, up device.Tensor // [ff, dim]
	down     device.Tensor // [dim, ff]
}

// loader moves tensors of a file to a device and keeps the first error.
type loader struct {
	file *weights.File
	dev  device.Device
	used map[string]bool
	err  error
}

// Load reads the configuration and the weights of a GGUF file. The tensors may
// alias the file, which stays open as long as dev. A tensor that is missing,
// of the wrong shape, or unknown to this architecture is an error.
func Load(f *weights.File, dev device.Device) (*Model, error) { return LoadRope(f, dev, RopeOptions{}) }

// LoadRope is Load with another rotary embedding than the file's.
func LoadRope(f *weights.File, dev device.Device, o RopeOptions) (*Model, error) {
	c, err := ReadConfig(f, o)
	if err != nil {
		return nil, err
	}
	ld := &loader{file: f, dev: dev, used: map[string]bool{}}
	m := &Model{Config: c}
	ld.top(m)
	for i := range c.Layers {
		m.layers = append(m.layers, ld.layer(c, fmt.Sprintf("blk.%d.", i)))
		if ld.err != nil {
			break
		}
	}
	ld.unused(c)
	if ld.err != nil {
		return nil, fmt.Errorf("model: %w", ld.err)
	}
	return m, nil
}

// top loads the tensors outside of the layers.
func (ld *loader) top(m *Model) {
	embed, err := ld.file.Tensor("token_embd.weight")
	ld.keep(err)
	if ld.err != nil {
		return
	}
	m.Vocab = embed.Shape[0]
	if m.Vocab > maxVocab {
		ld.keep(fmt.Errorf("%s: a vocabulary of %d, want at most %d", ld.file.Path(), m.Vocab, maxVocab))
	}
	ld.checkVocab(m.Vocab)
	m.embed = ld.matrix("token_embd.weight", m.Vocab, m.Dim)
	m.norm = ld.vector("output_norm.weight", m.Dim)
	m.output = m.embed
	if ld.file.HasTensor("output.weight") {
		m.output = ld.matrix("output.weight", m.Vocab, m.Dim)
	}
	m.rope = ld.ropeTensor(m.Config)
}

// checkVocab compares the rows of the embedding with the tokens of the file.
func (ld *loader) checkVocab(rows int) {
	tokens, err := ld.file.StringsOr("tokenizer.ggml.tokens", nil)
	ld.keep(err)
	if n := len(tokens); n > 0 && n != rows {
		ld.keep(fmt.Errorf("%s: tensor token_embd.weight has %d rows for the %d tokens of tokenizer.ggml.tokens; the file mixes two models", ld.file.Path(), rows, n))
	}
}

// layer loads the tensors whose names start with prefix.
func (ld *loader) layer(c Config, prefix string) layer {
	q, kv := c.Heads*c.HeadDim, c.KVHeads*c.HeadDim
	w := layer{
		attnNorm: ld.vector(prefix+"attn_norm.weight", c.Dim),
		q:        ld.matrix(prefix+"attn_q.weight", q, c.Dim),
		k:        ld.matrix(prefix+"attn_k.weight", kv, c.Dim),
		v:        ld.matrix(prefix+"attn_v.weight", kv, c.Dim),
		o:        ld.matrix(prefix+"attn_output.weight", c.Dim, q),
		ffNorm:   ld.vector(prefix+"ffn_norm.weight", c.Dim),
		gate:     ld.matrix(prefix+"ffn_gate.weight", c.FF, c.Dim),
		up:       ld.matrix(prefix+"ffn_up.weight", c.FF, c.Dim),
		down:     ld.matrix(prefix+"ffn_down.weight", c.Dim, c.FF),
	}
	if c.Bias {
		w.qBias = ld.vector(prefix+"attn_q.bias", q)
		w.kBias = ld.vector(prefix+"attn_k.bias", kv)
		w.vBias = ld.vector(prefix+"attn_v.bias", kv)
	}
	if c.HeadNorms {
		w.qNorm = ld.vector(prefix+"attn_q_norm.weight", c.HeadDim)
		w.kNorm = ld.vector(prefix+"attn_k_norm.weight", c.HeadDim)
	}
	return w
}

// maxFreq is the maximum frequency of a RoPE pair, in radians a position: far above the 1
// of any model, and low enough that the angle of every position is finite.
const maxFreq = 1e9

// ropeTensor puts the frequencies on the device.
func (ld *loader) ropeTensor(c Config) device.Rotation {
	rc := c.Rope
	var factors []float32
	if ld.file.HasTensor("rope_freqs.weight") {
		factors = ld.floats("rope_freqs.weight", rc.Dims/2)
	}
	if ld.err != nil {
		return device.Rotation{}
	}
	for i, f := range factors {
		if !(f > 0) {
			ld.keep(fmt.Errorf("%s: tensor rope_freqs.weight: element %d is %v, want a number above 0", ld.file.Path(), i, f))
			return device.Rotation{}
		}
	}
	freqs := rc.Freqs(factors)
	for i, f := range freqs {
		if !(f <= maxFreq) {
			ld.keep(fmt.Errorf("%s: rope rotates pair %d by %v radians a position, want at most %g: a factor in tensor rope_freqs.weight or key %s is too small",
				ld.file.Path(), i, f, maxFreq, c.Arch+".rope.scaling.factor"))
			return device.Rotation{}
		}
	}
	return device.Rotation{Freqs: ld.upload(freqs), Scale: rc.Scale(), Interleaved: !rc.Halves}
}

// Rotation is the rotary embedding of queries and keys.
func (m *Model) Rotation() device.Rotation { return m.rope }

// matrix loads a tensor as it is, of any type that MatMul takes (weights.Expect refuses
// others).
func (ld *loader) matrix(name string, rows, cols int) device.Tensor {
	t, err := ld.file.Expect(name, rows, cols)
	ld.used[name] = true
	ld.keep(err)
	if ld.err != nil {
		return device.Tensor{}
	}
	w, err := ld.dev.Load(t.Data, t.DType, rows, cols)
	if err != nil {
		ld.keep(fmt.Errorf("%s: tensor %s: %w", ld.file.Path(), name, err))
	}
	return w
}

// vector loads a tensor of plain numbers as f32.
func (ld *loader) vector(name string, n int) device.Tensor {
	v := ld.floats(name, n)
	if ld.err != nil {
		return device.Tensor{}
	}
	return ld.upload(v)
}

// floats reads a tensor of plain numbers.
func (ld *loader) floats(name string, n int) []float32 {
	t, err := ld.file.Expect(name, n)
	ld.used[name] = true
	ld.keep(err)
	if ld.err != nil {
		return nil
	}
	v := make([]float32, n)
	switch t.DType {
	case device.F32:
		for i := range v {
			v[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case device.BF16:
		for i := range v {
			v[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
		}
	default:
		ld.keep(fmt.Errorf("%s: tensor %s is %v, want F32 or BF16: norms, biases and rope factors are plain numbers", ld.file.Path(), name, t.DType))
	}
	return v
}

// upload makes a device tensor of host numbers.
func (ld *loader) upload(v []float32) device.Tensor {
	t, err := ld.dev.Alloc(device.F32, len(v))
	ld.keep(err)
	if ld.err != nil {
		return device.Tensor{}
	}
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	ld.dev.Write(t, b)
	return t
}

// unused refuses tensors that the forward pass does not read: biases and norms of other
// families, experts. Ignoring one would silently compute another model.
func (ld *loader) unused(c Config) {
	var extra []string
	for _, t := range ld.file.Tensors() {
		if !ld.used[t.Name] && !strings.HasSuffix(t.Name, ".attn_rot_embd") {
			extra = append(extra, t.Name)
		}
	}
	if len(extra) > 0 && ld.err == nil {
		slices.Sort(extra)
		ld.keep(fmt.Errorf("%s: %d tensors are not part of a dense %s model, first %s: this variant is not supported", ld.file.Path(), len(extra), c.Arch, quote.Short(extra[0])))
	}
}

func (ld *loader) keep(err error) {
	if ld.err == nil {
		ld.err = err
	}
}
