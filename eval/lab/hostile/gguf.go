package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	_ "github.com/gollm/gollm/cpu" // registers the device
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
	"github.com/gollm/gollm/weights"
)

// field is a key or a tensor of a GGUF file, as bytes that need not fit together.
type field struct {
	name  string
	typ   uint32
	value []byte   // of a key: what follows its type
	dims  []uint64 // of a tensor, fastest first
	at    uint64   // of a tensor: its offset
}

// ggufFile is a GGUF file taken apart.
type ggufFile struct {
	arch          string // general.architecture
	version       uint32
	keys, tensors []field
	moreKeys      int // announced beyond those that there are
	moreTensors   int
	data          []byte
}

// GGUF's numbers of the types of values.
const (
	numberU32, numberI32, numberF32, numberBool, numberString, numberArray, numberU64, numberF64 = 4, 5, 6, 7, 8, 9, 10, 12
)

// bytes puts the file together.
func (f *ggufFile) bytes() []byte {
	b := binary.LittleEndian.AppendUint32([]byte("GGUF"), f.version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.tensors)+f.moreTensors))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(f.keys)+f.moreKeys))
	for _, k := range f.keys {
		b = appendString(b, k.name)
		b = binary.LittleEndian.AppendUint32(b, k.typ)
		b = append(b, k.value...)
	}
	for _, t := range f.tensors {
		b = appendString(b, t.name)
		b = binary.LittleEndian.AppendUint32(b, uint32(len(t.dims)))
		for _, d := range t.dims {
			b = binary.LittleEndian.AppendUint64(b, d)
		}
		b = binary.LittleEndian.AppendUint32(b, t.typ)
		b = binary.LittleEndian.AppendUint64(b, t.at)
	}
	b = append(b, make([]byte, -len(b)&31)...)
	return append(b, f.data...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(s))), s...)
}

// set adds a key.
func (f *ggufFile) set(name string, typ uint32, value []byte) {
	f.keys = append(f.keys, field{name: name, typ: typ, value: value})
}

func (f *ggufFile) setU32(name string, v uint32) {
	f.set(name, numberU32, binary.LittleEndian.AppendUint32(nil, v))
}

func (f *ggufFile) setString(name, v string) { f.set(name, numberString, appendString(nil, v)) }

func (f *ggufFile) setStrings(name string, all []string) {
	b := array(numberString, len(all))
	for _, s := range all {
		b = appendString(b, s)
	}
	f.set(name, numberArray, b)
}

// array begins an array of n elements.
func array(elem uint32, n int) []byte {
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, elem), uint64(n))
}

// setNumbers adds an array of i32 or f32, which v holds the bits of.
func (f *ggufFile) setNumbers(name string, elem uint32, v []uint32) {
	b := array(elem, len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	f.set(name, numberArray, b)
}

// byteLetters are the letters that stand for the bytes in a byte-level vocabulary: a
// printable one for itself, the others for the letters from U+0100 on.
func byteLetters() []string {
	letters := make([]string, 256)
	for b, others := 0, 0; b < 256; b++ {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) {
			r = rune(256 + others)
			others++
		}
		letters[b] = string(r)
	}
	return letters
}

// small is a Llama with weights of a type; byteLevel says which kind of vocabulary it has.
func small(dt device.DType, byteLevel bool, rng *rand.Rand) *ggufFile {
	return smallOf("llama", dt, byteLevel, rng)
}

// smallOf is small of an architecture.
func smallOf(arch string, dt device.DType, byteLevel bool, rng *rand.Rand) *ggufFile {
	f := &ggufFile{version: 3, arch: arch}
	width := max(32, dt.BlockLen())
	f.setString("general.architecture", arch)
	f.setU32(arch+".block_count", 1)
	f.setU32(arch+".embedding_length", uint32(width))
	f.setU32(arch+".attention.head_count", 2)
	f.setU32(arch+".attention.head_count_kv", 1)
	f.setU32(arch+".feed_forward_length", uint32(width))
	f.setU32(arch+".context_length", 64)
	f.setString("tokenizer.chat_template", "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}</s>{% endfor %}")
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []uint32{2, 3, 3}
	if byteLevel {
		tokens = append(append(tokens, byteLetters()...), "he", "ll", "hell", "Ġ1")
		f.setString("tokenizer.ggml.model", "gpt2")
		f.setString("tokenizer.ggml.pre", "llama-bpe")
		f.setStrings("tokenizer.ggml.merges", []string{"h e", "l l", "he ll", "Ġ 1"})
	} else {
		for b := range 256 {
			tokens = append(tokens, fmt.Sprintf("<0x%02X>", b))
		}
		tokens = append(tokens, "▁", "h", "e", "he", "▁he", "l", "ll")
		f.setString("tokenizer.ggml.model", "llama")
		f.setNumbers("tokenizer.ggml.scores", numberF32, make([]uint32, len(tokens)))
	}
	for len(types) < len(tokens) {
		types = append(types, 1)
	}
	f.setStrings("tokenizer.ggml.tokens", tokens)
	f.setNumbers("tokenizer.ggml.token_type", numberI32, types)
	f.setU32("tokenizer.ggml.bos_token_id", 1)
	f.setU32("tokenizer.ggml.eos_token_id", 2)
	f.addTensors(dt, width, len(tokens), rng)
	return f
}

// addTensors adds the weights of one layer.
func (f *ggufFile) addTensors(dt device.DType, width, vocab int, rng *rand.Rand) {
	head := width / 2
	f.addMatrix("token_embd.weight", dt, vocab, width, rng)
	f.addNorm("blk.0.attn_norm.weight", width)
	f.addMatrix("blk.0.attn_q.weight", dt, width, width, rng)
	f.addMatrix("blk.0.attn_k.weight", dt, head, width, rng)
	f.addMatrix("blk.0.attn_v.weight", dt, head, width, rng)
	switch f.arch {
	case "qwen2":
		f.addNorm("blk.0.attn_q.bias", width)
		f.addNorm("blk.0.attn_k.bias", head)
		f.addNorm("blk.0.attn_v.bias", head)
	case "qwen3":
		f.addNorm("blk.0.attn_q_norm.weight", head)
		f.addNorm("blk.0.attn_k_norm.weight", head)
	}
	f.addMatrix("blk.0.attn_output.weight", dt, width, width, rng)
	f.addNorm("blk.0.ffn_norm.weight", width)
	f.addMatrix("blk.0.ffn_gate.weight", dt, width, width, rng)
	f.addMatrix("blk.0.ffn_up.weight", dt, width, width, rng)
	f.addMatrix("blk.0.ffn_down.weight", dt, width, width, rng)
	f.addNorm("output_norm.weight", width)
}

// ggufNumber is the number of a type of weights in GGUF.
var ggufNumber = map[device.DType]uint32{device.F32: 0, device.F16: 1, device.Q4_0: 2, device.Q8_0: 8, device.Q6_K: 14}

// scaleAt is where a block has its scale, an f16.
var scaleAt = map[device.DType]int{device.Q4_0: 0, device.Q8_0: 0, device.Q6_K: 208}

// addMatrix adds a matrix of small numbers.
func (f *ggufFile) addMatrix(name string, dt device.DType, rows, row int, rng *rand.Rand) {
	data := make([]byte, rows*dt.RowSize(row))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	switch dt {
	case device.F32:
		for i := 0; i < len(data); i += 4 {
			binary.LittleEndian.PutUint32(data[i:], math.Float32bits(float32(rng.NormFloat64()/8)))
		}
	case device.F16:
		for i := 1; i < len(data); i += 2 {
			data[i] = data[i]&0x83 | 0x28 // from 1/32 to 1/16
		}
	default:
		for i := scaleAt[dt] + 1; i < len(data); i += dt.BlockSize() {
			data[i] = data[i]&0x83 | 0x10 // 1/2048 to 1/1024
		}
	}
	f.add(name, ggufNumber[dt], data, uint64(row), uint64(rows))
}

// addNorm adds a vector of ones.
func (f *ggufFile) addNorm(name string, n int) {
	var data []byte
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(1))
	}
	f.add(name, 0, data, uint64(n))
}

func (f *ggufFile) add(name string, typ uint32, data []byte, dims ...uint64) {
	f.tensors = append(f.tensors, field{name: name, typ: typ, dims: dims, at: uint64(len(f.data))})
	f.data = append(f.data, data...)
	f.data = append(f.data, make([]byte, -len(f.data)&31)...)
}

// clone is a copy that shares nothing that a change writes to.
func (f *ggufFile) clone() *ggufFile {
	c := *f
	c.keys, c.tensors, c.data = slices.Clone(f.keys), slices.Clone(f.tensors), slices.Clone(f.data)
	return &c
}

// startModels feeds changed models.
func startModels() (execution, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	bases := []*ggufFile{
		small(device.F32, false, rng), small(device.F32, true, rng), small(device.Q8_0, false, rng),
		small(device.Q4_0, true, rng), smallOf("qwen2", device.F16, true, rng), smallOf("qwen3", device.F32, true, rng), small(device.Q6_K, false, rng),
	}
	for i, b := range bases {
		if result := feedModel(b.bytes()); result != "make two tokens" {
			return nil, fmt.Errorf("model %d does not run: %s", i, result)
		}
	}
	return func(rng *rand.Rand) ([]byte, string) {
		f := bases[rng.IntN(len(bases))].clone()
		for range 1 + rng.IntN(4) {
			f.change(rng)
		}
		b := f.bytes()
		if rng.IntN(8) == 0 {
			b = changeBytes(b, rng)
		}
		return b, feedModel(b)
	}, nil
}

// feedModel does with a file all that the command does, and says how far it came.
func feedModel(b []byte) string {
	f, err := weights.Parse("hostile.gguf", b)
	if err != nil {
		return refused("files refused", err)
	}
	defer f.Close()
	f.Hash()
	vocab, err := tokenizer.FromMetadata(f)
	if err != nil {
		return refused("vocabularies refused", err)
	}
	tok, err := tokenizer.New(vocab)
	if err != nil {
		return refused("vocabularies refused", err)
	}
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		return "WRONG: no device: " + err.Error()
	}
	defer dev.Close()
	m, err := model.Load(f, dev)
	if err != nil {
		return refused("models refused", err)
	}
	return generate(&engine.Engine{File: f, Model: m, Tokenizer: tok, Device: dev})
}

// generate makes two tokens behind a message in the model's own template.
func generate(e *engine.Engine) string {
	prompt := "<s> hello 1</s>"
	if source, err := e.File.StringOr("tokenizer.chat_template", ""); err == nil && source != "" {
		if t, err := chat.Parse(source); err == nil {
			text, err := t.Render(context.Background(), chat.Conversation{Messages: []chat.Message{{Role: "user", Content: "hello"}}})
			if err == nil {
				prompt += text[:min(len(text), 100)]
			}
		}
	}
	ids := e.Tokenizer.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: true, ParseSpecial: true})
	r, err := e.NewRunner(engine.Config{Context: 64})
	if err != nil {
		return refused("runners refused", err)
	}
	defer r.Close()
	s, err := r.Open()
	if err != nil {
		return refused("runners refused", err)
	}
	if ids = ids[:min(len(ids), 16)]; len(ids) == 0 {
		return "have no prompt"
	}
	res, err := s.Generate(context.Background(), ids, engine.Options{MaxTokens: 2, IgnoreEnd: true})
	switch {
	case err != nil && strings.Contains(err.Error(), "not numbers"):
		return "have no numbers"
	case err != nil:
		return refused("generations refused", err)
	case len(res.Tokens) > 2:
		return fmt.Sprintf("WRONG: %d tokens", len(res.Tokens))
	}
	return "make two tokens"
}

// maxError is the bytes of an error: one line, however long the names in the file are.
const maxError = 2000

// refused is the result of an error.
func refused(result string, err error) string {
	if n := len(err.Error()); n > maxError {
		return fmt.Sprintf("WRONG: an error of %d bytes: %.200s", n, err)
	}
	return result
}

// change makes one thing of the file wrong, or only odd.
func (f *ggufFile) change(rng *rand.Rand) {
	changes := []func(*rand.Rand){
		f.changeKey, f.changeKey, f.changeKey, f.addKey, f.changeText, f.changeText, f.changeTensor, f.changeTensor, f.changeData, f.changeData, f.changeCounts,
	}
	changes[rng.IntN(len(changes))](rng)
}

// oddNumbers are bits where things go wrong.
var oddNumbers = []uint64{
	0, 1, 2, 3, 4, 7, 8, 31, 32, 33, 63, 64, 65, 255, 256, 257, 1 << 16, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 1<<62 - 1, 1 << 63, math.MaxUint64,
	uint64(math.Float32bits(float32(math.Inf(1)))), uint64(math.Float32bits(float32(math.NaN()))), uint64(math.Float32bits(1e-30)),
	math.Float64bits(math.NaN()), math.Float64bits(-1), uint64(math.Float32bits(-1)), uint64(math.Float32bits(10000)), uint64(math.Float32bits(1)),
}

// knownKeys are keys that the models leave out; llama stands for the architecture.
var knownKeys = []string{
	"general.name", "general.alignment", "split.no", "split.count", "split.tensors.count", "llama.attention.key_length", "llama.attention.value_length",
	"llama.attention.sliding_window", "llama.attention.layer_norm_rms_epsilon", "llama.rope.dimension_count", "llama.rope.freq_base",
	"llama.rope.scaling.type", "llama.rope.scaling.factor", "llama.rope.scaling.original_context_length", "llama.rope.scaling.attn_factor",
	"llama.expert_count", "llama.vocab_size", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
	"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix", "tokenizer.ggml.fim_pad_token_id",
}

// ofArch is a known key of the file's architecture.
func (f *ggufFile) ofArch(key string) string {
	if rest, ours := strings.CutPrefix(key, "llama."); ours {
		return f.arch + "." + rest
	}
	return key
}

// value is a value of some type: right, but for its meaning.
func value(typ uint32, rng *rand.Rand) []byte {
	odd := oddNumbers[rng.IntN(len(oddNumbers))]
	switch typ {
	case numberString:
		words := []string{"", "llama", "gpt2", "yarn", "linear", "tekken", "default", strings.Repeat("x", 5000), "\x1b[2J", "{{ 1 / 0 }}{% for a in b %}"}
		return appendString(nil, words[rng.IntN(len(words))])
	case numberArray:
		elem := uint32(rng.IntN(14))
		b := array(elem, rng.IntN(5))
		if rng.IntN(4) == 0 {
			binary.LittleEndian.PutUint64(b[4:], odd)
		}
		for range rng.IntN(40) {
			b = append(b, byte(rng.IntN(4)))
		}
		return b
	}
	sizes := []int{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}
	b := binary.LittleEndian.AppendUint64(nil, odd)
	if int(typ) >= len(sizes) {
		return b
	}
	return b[:sizes[typ]]
}

// changeKey gives a key another value, type or name, or takes it away.
func (f *ggufFile) changeKey(rng *rand.Rand) {
	if len(f.keys) == 0 {
		return
	}
	i := rng.IntN(len(f.keys))
	k := &f.keys[i]
	switch rng.IntN(6) {
	case 0:
		f.keys = slices.Delete(f.keys, i, i+1)
	case 1:
		f.keys = append(f.keys, *k)
	case 2:
		k.name, f.keys[0].name = f.keys[0].name, k.name
	case 3:
		k.typ = uint32(rng.IntN(14))
		k.value = value(k.typ, rng)
	default: // another value of the same type; of an array, one element
		if k.typ != numberArray {
			k.value = value(k.typ, rng)
			return
		}
		k.value = slices.Clone(k.value)
		at := 12 + 4*rng.IntN(len(k.value)/4-2)
		binary.LittleEndian.PutUint32(k.value[min(at, len(k.value)-4):], uint32(oddNumbers[rng.IntN(len(oddNumbers))]))
	}
}

// addKey adds a key that the code reads.
func (f *ggufFile) addKey(rng *rand.Rand) {
	typ := uint32(rng.IntN(13))
	f.keys = append(f.keys, field{name: f.ofArch(knownKeys[rng.IntN(len(knownKeys))]), typ: typ, value: value(typ, rng)})
}

// changeText changes bytes inside of strings and of arrays of them, without their lengths.
func (f *ggufFile) changeText(rng *rand.Rand) {
	if len(f.keys) == 0 {
		return
	}
	k := &f.keys[rng.IntN(len(f.keys))]
	if k.typ != numberString && k.typ != numberArray || len(k.value) < 20 {
		return
	}
	k.value = slices.Clone(k.value)
	for range 1 + rng.IntN(8) {
		k.value[len(k.value)-1-rng.IntN(len(k.value)-12)] ^= 1 << rng.IntN(8)
	}
}

// changeTensor changes an entry of the table.
func (f *ggufFile) changeTensor(rng *rand.Rand) {
	if len(f.tensors) == 0 {
		return
	}
	i := rng.IntN(len(f.tensors))
	t := &f.tensors[i]
	odd := oddNumbers[rng.IntN(len(oddNumbers))]
	switch rng.IntN(7) {
	case 0:
		f.tensors = slices.Delete(f.tensors, i, i+1)
	case 1:
		f.tensors = append(f.tensors, *t)
	case 2:
		t.typ = uint32(rng.IntN(42))
	case 3:
		t.at = odd &^ uint64(31*rng.IntN(2))
	case 4:
		t.dims = slices.Clone(t.dims)
		t.dims[rng.IntN(len(t.dims))] = odd
	case 5:
		t.dims = append(slices.Clone(t.dims), odd)
	default:
		names := []string{"output.weight", "rope_freqs.weight", "blk.0.attn_q.bias", "blk.1.attn_q.weight", "blk.0.attn_rot_embd", f.tensors[0].name, strings.Repeat("n", 300)}
		t.name = names[rng.IntN(len(names))]
	}
}

// changeData makes weights of a tensor odd.
func (f *ggufFile) changeData(rng *rand.Rand) {
	for range 1 + rng.IntN(20) {
		if at := rng.IntN(len(f.data) + 1); at+4 <= len(f.data) {
			binary.LittleEndian.PutUint32(f.data[at&^3:], uint32(oddNumbers[rng.IntN(len(oddNumbers))]))
		}
	}
}

// changeCounts makes the file announce what it does not have, or ends it.
func (f *ggufFile) changeCounts(rng *rand.Rand) {
	switch rng.IntN(5) {
	case 0:
		f.moreKeys = rng.IntN(5) - 2
	case 1:
		f.moreTensors = rng.IntN(5) - 2
	case 2:
		f.version = uint32(rng.IntN(5))
	case 3:
		f.data = f.data[:rng.IntN(len(f.data)+1)]
	default:
		f.data = append(f.data, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(200))...)
	}
}
