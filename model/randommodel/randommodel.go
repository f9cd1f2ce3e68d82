// Package randommodel makes GGUF models of known shapes with random weights: to measure speed
// and memory where nobody has the real weights, and to compare what is computed with another
// engine on a file that both make anew.
//
// Weights have a standard deviation of 1/sqrt(width), so that numbers stay in range through
// any number of layers. Those of a large matrix are cut out of one random block for each type
// and width: parts of it come back. The vocabulary is bytes and words without meaning. The
// same options give the same file everywhere.
//
// Start reading at [Make].
package randommodel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/weights"
)

// Options say which model is made.
type Options struct {
	Shape  string // one of [Shapes]
	Type   string // one of [Types]
	Layers int    // instead of the shape's; 0: those
	Seed   uint64 // of the weights
	Unpack bool   // what the weights of the type stand for, as F32
}

// shape is the size of a model.
type shape struct {
	arch string // "llama" if empty

	layers, dim, ff, heads, kvHeads, headDim, vocab, context int

	theta   float64        // base of the rotary embedding
	factors bool           // Llama-3.1's frequency factors
	tied    bool           // no output matrix
	keys    map[string]any // further metadata, without the architecture in front
}

// shapes are the models that there are.
var shapes = map[string]shape{
	"llama-3.1-8b":  {layers: 32, dim: 4096, ff: 14336, heads: 32, kvHeads: 8, headDim: 128, vocab: 128256, context: 131072, theta: 500000, factors: true},
	"llama-3.1-70b": {layers: 80, dim: 8192, ff: 28672, heads: 64, kvHeads: 8, headDim: 128, vocab: 128256, context: 131072, theta: 500000, factors: true},
	"mistral-7b":    {layers: 32, dim: 4096, ff: 14336, heads: 32, kvHeads: 8, headDim: 128, vocab: 32768, context: 32768, theta: 1e6},
	"mistral-nemo":  {layers: 40, dim: 5120, ff: 14336, heads: 32, kvHeads: 8, headDim: 128, vocab: 131072, context: 131072, theta: 1e6},
	"llama-2-7b":    {layers: 32, dim: 4096, ff: 11008, heads: 32, kvHeads: 32, headDim: 128, vocab: 32000, context: 4096, theta: 10000},
	"qwen2.5-7b":    {arch: "qwen2", layers: 28, dim: 3584, ff: 18944, heads: 28, kvHeads: 4, headDim: 128, vocab: 152064, context: 32768, theta: 1e6},
	"qwen2.5-1.5b":  {arch: "qwen2", layers: 28, dim: 1536, ff: 8960, heads: 12, kvHeads: 2, headDim: 128, vocab: 151936, context: 32768, theta: 1e6, tied: true},
	"qwen3-8b":      {arch: "qwen3", layers: 36, dim: 4096, ff: 12288, heads: 32, kvHeads: 8, headDim: 128, vocab: 151936, context: 40960, theta: 1e6},
	"qwen3-0.6b":    {arch: "qwen3", layers: 28, dim: 1024, ff: 3072, heads: 16, kvHeads: 8, headDim: 128, vocab: 151936, context: 40960, theta: 1e6, tied: true},
	"tiny-128":      {layers: 3, dim: 64, ff: 64, heads: 4, kvHeads: 1, headDim: 128, vocab: 320, context: 4096, theta: 10000},
	"tiny":          {layers: 2, dim: 256, ff: 256, heads: 4, kvHeads: 2, headDim: 64, vocab: 320, context: 4096, theta: 10000},

	// Of each family one, for comparisons with llama.cpp: every type of weights divides its rows.
	"tiny-nemo":  {layers: 2, dim: 256, ff: 256, heads: 4, kvHeads: 2, headDim: 128, vocab: 320, context: 4096, theta: 10000},
	"tiny-qwen2": {arch: "qwen2", layers: 2, dim: 256, ff: 256, heads: 8, kvHeads: 2, headDim: 32, vocab: 320, context: 4096, theta: 10000, tied: true},
	"tiny-qwen3": {arch: "qwen3", layers: 2, dim: 256, ff: 256, heads: 4, kvHeads: 2, headDim: 128, vocab: 320, context: 4096, theta: 10000},
	"tiny-yarn": {arch: "qwen2", layers: 2, dim: 256, ff: 256, heads: 4, kvHeads: 1, headDim: 64, vocab: 320, context: 256, theta: 10000, keys: map[string]any{
		"rope.scaling.type": "yarn", "rope.scaling.factor": float32(4), "rope.scaling.original_context_length": 64,
	}},
}

// mix is the types of a file: that of most matrices, and that of the output and of some
// values and down projections.
type mix struct{ common, better device.DType }

// mixes are Q4_K_M's, and each type alone.
var mixes = func() map[string]mix {
	all := map[string]mix{"q4_k_m": {device.Q4_K, device.Q6_K}}
	for _, t := range device.DTypes() {
		if t != device.I32 {
			all[strings.ToLower(t.String())] = mix{t, t}
		}
	}
	return all
}()

// Shapes are the names of the shapes, sorted.
func Shapes() []string { return slices.Sorted(maps.Keys(shapes)) }

// Types are the names of the types of weights, sorted; q4_k_m has some matrices in Q6_K.
func Types() []string { return slices.Sorted(maps.Keys(mixes)) }

// Make makes a model, in memory.
func Make(o Options) (*weights.Writer, error) {
	s, known := shapes[o.Shape]
	types, is := mixes[o.Type]
	switch {
	case !known:
		return nil, fmt.Errorf("shape %q, want one of %s", o.Shape, strings.Join(Shapes(), ", "))
	case !is:
		return nil, fmt.Errorf("type %q, want one of %s", o.Type, strings.Join(Types(), ", "))
	case o.Layers < 0:
		return nil, fmt.Errorf("%d layers, want 0 or more", o.Layers)
	}
	s.layers, s.arch = cmp.Or(o.Layers, s.layers), cmp.Or(s.arch, "llama")
	m := &maker{shape: s, mix: types, rng: rand.New(rand.NewPCG(o.Seed, 1)), blocks: map[kind][]byte{}, unpack: o.Unpack}
	m.metadata(o.Shape + " of random weights")
	m.tensors()
	return &m.w, nil
}

// kind is matrices that are cut out of one block.
type kind struct {
	dtype device.DType
	width int
}

// maker fills a writer.
type maker struct {
	shape
	mix
	rng    *rand.Rand
	blocks map[kind][]byte
	unpack bool
	w      weights.Writer
}

// metadata sets the hyper-parameters and the vocabulary.
func (m *maker) metadata(name string) {
	w := &m.w
	w.Set("general.architecture", m.arch)
	w.Set("general.name", name)
	w.Set(m.arch+".block_count", m.layers)
	w.Set(m.arch+".context_length", m.context)
	w.Set(m.arch+".embedding_length", m.dim)
	w.Set(m.arch+".feed_forward_length", m.ff)
	w.Set(m.arch+".attention.head_count", m.heads)
	w.Set(m.arch+".attention.head_count_kv", m.kvHeads)
	w.Set(m.arch+".attention.key_length", m.headDim)
	w.Set(m.arch+".attention.value_length", m.headDim)
	w.Set(m.arch+".attention.layer_norm_rms_epsilon", float32(1e-5))
	w.Set(m.arch+".rope.dimension_count", m.headDim)
	w.Set(m.arch+".rope.freq_base", float32(m.theta))
	w.Set(m.arch+".vocab_size", m.vocab)
	for _, key := range slices.Sorted(maps.Keys(m.keys)) {
		w.Set(m.arch+"."+key, m.keys[key])
	}
	tokens, kinds := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		tokens, kinds = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(kinds, 6)
	}
	for len(tokens) < m.vocab {
		tokens, kinds = append(tokens, fmt.Sprintf("▁w%d", len(tokens))), append(kinds, 1)
	}
	w.Set("tokenizer.ggml.model", "llama")
	w.Set("tokenizer.ggml.tokens", tokens)
	w.Set("tokenizer.ggml.scores", make([]float32, m.vocab))
	w.Set("tokenizer.ggml.token_type", kinds)
	w.Set("tokenizer.ggml.bos_token_id", 1)
	w.Set("tokenizer.ggml.eos_token_id", 2)
}

// tensors adds the weights, in the order of llama.cpp's files.
func (m *maker) tensors() {
	m.matrix("token_embd.weight", m.common, m.vocab, m.dim)
	if m.factors {
		m.w.AddF32("rope_freqs.weight", factors(m.theta, m.headDim), m.headDim/2)
	}
	for l := range m.layers {
		at := func(name string) string { return fmt.Sprintf("blk.%d.%s.weight", l, name) }
		some := m.common
		if l < m.layers/8 || l >= m.layers*7/8 || (l-m.layers/8)%3 == 2 { // as Q4_K_M has it
			some = m.better
		}
		q, kv := m.heads*m.headDim, m.kvHeads*m.headDim
		m.norm(at("attn_norm"), m.dim)
		m.matrix(at("attn_q"), m.common, q, m.dim)
		m.matrix(at("attn_k"), m.common, kv, m.dim)
		m.matrix(at("attn_v"), some, kv, m.dim)
		m.matrix(at("attn_output"), m.common, m.dim, q)
		m.extras(l)
		m.norm(at("ffn_norm"), m.dim)
		m.matrix(at("ffn_gate"), m.common, m.ff, m.dim)
		m.matrix(at("ffn_up"), m.common, m.ff, m.dim)
		m.matrix(at("ffn_down"), some, m.dim, m.ff)
	}
	m.norm("output_norm.weight", m.dim)
	if !m.tied {
		m.matrix("output.weight", m.better, m.vocab, m.dim)
	}
}

// extras adds what a family has beside the matrices of a layer.
func (m *maker) extras(l int) {
	switch m.arch {
	case "qwen2":
		for _, c := range []struct {
			name  string
			heads int
		}{{"q", m.heads}, {"k", m.kvHeads}, {"v", m.kvHeads}} {
			m.vector(fmt.Sprintf("blk.%d.attn_%s.bias", l, c.name), c.heads*m.headDim, 0, 1)
		}
	case "qwen3":
		m.norm(fmt.Sprintf("blk.%d.attn_q_norm.weight", l), m.headDim)
		m.norm(fmt.Sprintf("blk.%d.attn_k_norm.weight", l), m.headDim)
	}
}

// norm adds weights around 1.
func (m *maker) norm(name string, n int) { m.vector(name, n, 1, 0.1) }

// vector adds plain numbers of a mean and a standard deviation.
func (m *maker) vector(name string, n int, mean, deviation float64) {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mean + deviation*m.rng.NormFloat64())
	}
	m.w.AddF32(name, x, n)
}

// ownBytes is how large a matrix may be that has random numbers of its own.
const ownBytes = 4 << 20

// matrix adds rows of random weights.
func (m *maker) matrix(name string, t device.DType, rows, width int) {
	row, n, seed := t.RowSize(width), m.maxRows(width), m.rng.Uint64()
	block, ok := m.blocks[kind{t, width}]
	own := rows*row <= ownBytes
	if own {
		n = rows
	}
	if own || !ok {
		block = random(t, width, n, seed)
		if m.unpack {
			block = unpacked(block, t, width)
		}
	}
	if !own {
		m.blocks[kind{t, width}] = block
	}
	if m.unpack {
		t, row = device.F32, 4*width
	}
	first := m.rng.IntN(n-rows+1) * row
	m.w.Add(name, t, block[first:first+rows*row], rows, width)
}

// maxRows is the rows of the largest matrix of a width.
func (m *maker) maxRows(width int) int {
	n := 0
	for _, s := range [][2]int{{m.vocab, m.dim}, {m.ff, m.dim}, {m.dim, m.ff}, {m.heads * m.headDim, m.dim}, {m.dim, m.heads * m.headDim}} {
		if s[1] == width {
			n = max(n, s[0])
		}
	}
	return n
}

// unpacked is rows as F32, made by all cores.
func unpacked(data []byte, t device.DType, width int) []byte {
	row := t.RowSize(width)
	rows := len(data) / row
	out := make([]byte, rows*4*width)
	each := (rows + runtime.NumCPU() - 1) / runtime.NumCPU()
	var all sync.WaitGroup
	for lo := 0; lo < rows; lo += each {
		all.Go(func() {
			x := make([]float32, width)
			for r := lo; r < min(rows, lo+each); r++ {
				kernel.Dequantize(t, x, data[r*row:(r+1)*row])
				for i, v := range x {
					binary.LittleEndian.PutUint32(out[4*(r*width+i):], math.Float32bits(v))
				}
			}
		})
	}
	all.Wait()
	return out
}

// pieceRows is the rows that one generator of random numbers makes.
const pieceRows = 4096

// random is rows of random weights, made by all cores.
func random(t device.DType, width, rows int, seed uint64) []byte {
	row := t.RowSize(width)
	data := make([]byte, rows*row)
	var all sync.WaitGroup
	for lo := 0; lo < rows; lo += pieceRows {
		part := data[lo*row : min(rows, lo+pieceRows)*row]
		rng := rand.New(rand.NewPCG(seed, uint64(lo)))
		all.Go(func() { fill(part, t, float32(1/math.Sqrt(float64(width))), rng) })
	}
	all.Wait()
	return data
}

// fill writes weights of a standard deviation: plain types normal ones, quantized
// ones uniform in what a block can hold.
func fill(data []byte, t device.DType, deviation float32, rng *rand.Rand) {
	le := binary.LittleEndian
	switch t {
	case device.F32:
		for i := 0; i < len(data); i += 4 {
			le.PutUint32(data[i:], math.Float32bits(deviation*float32(rng.NormFloat64())))
		}
		return
	case device.BF16:
		for i := 0; i < len(data); i += 2 {
			le.PutUint16(data[i:], uint16(math.Float32bits(deviation*float32(rng.NormFloat64()))>>16))
		}
		return
	case device.F16:
		for i := 0; i < len(data); i += 2 {
			le.PutUint16(data[i:], half(deviation*float32(rng.NormFloat64())))
		}
		return
	}
	for i := 0; i+8 <= len(data); i += 8 {
		le.PutUint64(data[i:], rng.Uint64())
	}
	for i := len(data) &^ 7; i < len(data); i++ {
		data[i] = byte(rng.Uint32())
	}
	for at := 0; at < len(data); at += t.BlockSize() {
		scale(data[at:at+t.BlockSize()], t, deviation)
	}
}

// uniform says what uniform bits of a block of a quantized type stand for.
type uniform struct {
	deviation float64 // standard deviation where the block's scale is 1
	scale     int     // where the scale is in the block, in bytes, as f16
	min       float64 // the second scale, of minimums, where the first is 1, so that the mean is 0
	minAt     int     // where that is; 0: there is none
}

// uniforms are the types; the numbers follow from the layouts of scripts/gguf.py.
var uniforms = map[device.DType]uniform{
	device.Q4_0:   {deviation: 4.61},                                 // -8 to 7
	device.Q4_1:   {deviation: 4.61, min: -7.5, minAt: 2},            // 0 to 15 and a minimum
	device.Q5_0:   {deviation: 9.23},                                 // -16 to 15
	device.Q5_1:   {deviation: 9.23, min: -15.5, minAt: 2},           // 0 to 31 and a minimum
	device.Q8_0:   {deviation: 73.9},                                 // -128 to 127
	device.Q2_K:   {deviation: 13.9, scale: 80, min: 1.5, minAt: 82}, // 0 to 15 · 0 to 3, less 0 to 15
	device.Q3_K:   {deviation: 43.3, scale: 108},                     // -32 to 31 · -4 to 3
	device.Q4_K:   {deviation: 258, min: 7.5, minAt: 2},              // 0 to 63 · 0 to 15, less 0 to 63
	device.Q5_K:   {deviation: 527, min: 15.5, minAt: 2},             // 0 to 63 · 0 to 31, less 0 to 63
	device.Q6_K:   {deviation: 1365, scale: 208},                     // -128 to 127 · -32 to 31
	device.IQ4_NL: {deviation: 67.4},                                 // of a table of 16
	device.IQ4_XS: {deviation: 1246},                                 // -32 to 31 · of that table
}

// scale sets the factors of a block of uniform bits.
func scale(block []byte, t device.DType, deviation float32) {
	u := uniforms[t]
	d := deviation / float32(u.deviation)
	binary.LittleEndian.PutUint16(block[u.scale:], half(d))
	if u.minAt > 0 {
		binary.LittleEndian.PutUint16(block[u.minAt:], half(d*float32(u.min)))
	}
}

// half is the half precision number nearest to x, towards zero; what is too small
// to be normal keeps the bits that fit.
func half(x float32) uint16 {
	bits := math.Float32bits(x)
	sign, exponent, fraction := uint16(bits>>16&0x8000), int(bits>>23&0xff)-127+15, bits&(1<<23-1)
	switch {
	case exponent >= 31:
		return sign | 0x7bff
	case exponent > 0:
		return sign | uint16(exponent)<<10 | uint16(fraction>>13)
	case exponent > -10:
		return sign | uint16((fraction|1<<23)>>(14-exponent))
	}
	return sign
}

// factors are those by which Llama-3.1 divides the frequencies: 8 for waves longer
// than the first context, 1 for waves shorter than a quarter of it.
func factors(theta float64, headDim int) []float32 {
	const context, low, high, factor = 8192, 1, 4, 8
	all := make([]float32, headDim/2)
	for i := range all {
		wave := 2 * math.Pi * math.Pow(theta, 2*float64(i)/float64(headDim))
		smooth := min(max((context/wave-low)/(high-low), 0), 1)
		all[i] = float32(1 / ((1-smooth)/factor + smooth))
	}
	return all
}
