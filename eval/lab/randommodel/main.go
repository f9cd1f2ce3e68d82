// Command randommodel writes a GGUF file of a known shape with random weights, to
// measure speed and memory where nobody has the real weights:
//
//	go run ./eval/lab/randommodel -shape llama-3.1-8b -type q4_k_m -o model.gguf
//
// Weights have a standard deviation of 1/sqrt(width), so that numbers stay in range
// through any number of layers. They are cut out of one random block for each type
// and width, which is as large as the largest tensor: parts of it come back. The
// vocabulary is bytes and words without meaning.
package main

import (
	"cmp"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/weights"
)

// shape is the size of a model.
type shape struct {
	layers, dim, ff, heads, kvHeads, headDim, vocab, context int

	theta   float64 // base of the rotary embedding
	factors bool    // Llama-3.1's frequency factors
}

// shapes are the models that there are.
var shapes = map[string]shape{
	"llama-3.1-8b": {layers: 32, dim: 4096, ff: 14336, heads: 32, kvHeads: 8, headDim: 128, vocab: 128256, context: 131072, theta: 500000, factors: true},
	"mistral-7b":   {layers: 32, dim: 4096, ff: 14336, heads: 32, kvHeads: 8, headDim: 128, vocab: 32768, context: 32768, theta: 1e6},
	"llama-2-7b":   {layers: 32, dim: 4096, ff: 11008, heads: 32, kvHeads: 32, headDim: 128, vocab: 32000, context: 4096, theta: 10000},
	"tiny-128":     {layers: 3, dim: 64, ff: 64, heads: 4, kvHeads: 1, headDim: 128, vocab: 320, context: 4096, theta: 10000},
	"tiny":         {layers: 2, dim: 256, ff: 256, heads: 4, kvHeads: 2, headDim: 64, vocab: 320, context: 4096, theta: 10000},
}

// mixes are the types of a file: that of most matrices, and that of the output and
// of some values and down projections.
var mixes = map[string][2]device.DType{
	"f32": {device.F32, device.F32}, "f16": {device.F16, device.F16}, "bf16": {device.BF16, device.BF16},
	"q8_0": {device.Q8_0, device.Q8_0}, "q4_0": {device.Q4_0, device.Q4_0}, "q4_k_m": {device.Q4_K, device.Q6_K},
}

func main() {
	name := flag.String("shape", "llama-3.1-8b", "one of "+names(shapes))
	mix := flag.String("type", "q4_k_m", "one of "+names(mixes)+"; q4_k_m has some matrices in Q6_K")
	layers := flag.Int("layers", 0, "layers, instead of the shape's")
	seed := flag.Uint64("seed", 1, "of the weights")
	unpack := flag.Bool("unpack", false, "write what the weights of the type stand for, as F32")
	out := flag.String("o", "", "the file (required)")
	flag.Parse()
	if err := run(*name, *mix, *layers, *seed, *unpack, *out); err != nil {
		fmt.Fprintln(os.Stderr, "randommodel:", err)
		os.Exit(1)
	}
}

// names are the keys in order.
func names[V any](m map[string]V) string {
	var all []string
	for key := range m {
		all = append(all, key)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func run(name, mix string, layers int, seed uint64, unpack bool, out string) error {
	s, known := shapes[name]
	types, is := mixes[mix]
	switch {
	case !known:
		return fmt.Errorf("-shape %q, want one of %s", name, names(shapes))
	case !is:
		return fmt.Errorf("-type %q, want one of %s", mix, names(mixes))
	case layers < 0:
		return fmt.Errorf("-layers %d, want 0 or more", layers)
	case out == "":
		return fmt.Errorf("no file: name one with -o FILE")
	}
	s.layers = cmp.Or(layers, s.layers)
	m := &maker{shape: s, common: types[0], better: types[1], rng: rand.New(rand.NewPCG(seed, 1)), blocks: map[kind][]byte{}, unpack: unpack}
	m.metadata(name + " of random weights")
	m.tensors()
	return m.w.WriteFile(out)
}

// kind is matrices that are cut out of one block.
type kind struct {
	dtype device.DType
	width int
}

// maker fills a writer.
type maker struct {
	shape
	common, better device.DType
	rng            *rand.Rand
	blocks         map[kind][]byte
	unpack         bool
	w              weights.Writer
}

// metadata sets the hyper-parameters and the vocabulary.
func (m *maker) metadata(name string) {
	w := &m.w
	w.Set("general.architecture", "llama")
	w.Set("general.name", name)
	w.Set("llama.block_count", m.layers)
	w.Set("llama.context_length", m.context)
	w.Set("llama.embedding_length", m.dim)
	w.Set("llama.feed_forward_length", m.ff)
	w.Set("llama.attention.head_count", m.heads)
	w.Set("llama.attention.head_count_kv", m.kvHeads)
	w.Set("llama.attention.key_length", m.headDim)
	w.Set("llama.attention.value_length", m.headDim)
	w.Set("llama.attention.layer_norm_rms_epsilon", float32(1e-5))
	w.Set("llama.rope.dimension_count", m.headDim)
	w.Set("llama.rope.freq_base", float32(m.theta))
	w.Set("llama.vocab_size", m.vocab)
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
		m.norm(at("attn_norm"))
		m.matrix(at("attn_q"), m.common, q, m.dim)
		m.matrix(at("attn_k"), m.common, kv, m.dim)
		m.matrix(at("attn_v"), some, kv, m.dim)
		m.matrix(at("attn_output"), m.common, m.dim, q)
		m.norm(at("ffn_norm"))
		m.matrix(at("ffn_gate"), m.common, m.ff, m.dim)
		m.matrix(at("ffn_up"), m.common, m.ff, m.dim)
		m.matrix(at("ffn_down"), some, m.dim, m.ff)
	}
	m.norm("output_norm.weight")
	m.matrix("output.weight", m.better, m.vocab, m.dim)
}

// norm adds weights around 1.
func (m *maker) norm(name string) {
	x := make([]float32, m.dim)
	for i := range x {
		x[i] = 1 + 0.1*float32(m.rng.NormFloat64())
	}
	m.w.AddF32(name, x, m.dim)
}

// matrix adds rows of random weights.
func (m *maker) matrix(name string, t device.DType, rows, width int) {
	row := t.RowSize(width)
	most := m.maxRows(width)
	block, ok := m.blocks[kind{t, width}]
	if !ok {
		block = random(t, width, most, m.rng.Uint64())
		if m.unpack {
			block = unpacked(block, t, width)
		}
		m.blocks[kind{t, width}] = block
	}
	if m.unpack {
		t, row = device.F32, 4*width
	}
	first := m.rng.IntN(most-rows+1) * row
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

// random is rows of random weights, made by all cores.
func random(t device.DType, width, rows int, seed uint64) []byte {
	row := t.RowSize(width)
	data := make([]byte, rows*row)
	each := (rows + runtime.NumCPU() - 1) / runtime.NumCPU()
	var all sync.WaitGroup
	for lo := 0; lo < rows; lo += each {
		part := data[lo*row : min(rows, lo+each)*row]
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

// scale sets the factors of a block of uniform bits. The divisors are the standard
// deviations of what the bits stand for.
func scale(block []byte, t device.DType, deviation float32) {
	le := binary.LittleEndian
	switch t {
	case device.Q8_0: // -128 to 127
		le.PutUint16(block, half(deviation/74))
	case device.Q4_0: // -8 to 7
		le.PutUint16(block, half(deviation/4.6))
	case device.Q4_K: // scale · (0 to 15) less least · 7.5, both 0 to 63
		le.PutUint16(block, half(deviation/258))
		le.PutUint16(block[2:], half(deviation/258*7.5))
	case device.Q6_K: // scale of -128 to 127 · (-32 to 31)
		le.PutUint16(block[208:], half(deviation/1365))
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
