// Package modeltest makes small models with random weights for tests.
package modeltest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gollm/gollm/weights"
)

// Shape is the size of a random model. The zero Shape is two layers of width
// 64 with grouped heads.
type Shape struct {
	Layers, Dim, Heads, KVHeads, HeadDim, FF, Vocab, Context int

	Arch string         // general.architecture, "llama" if empty
	Tied bool           // no output.weight
	Keys map[string]any // further metadata, for example "llama.rope.scaling.type"
	Seed uint64
}

// withDefaults fills in what is zero.
func (s Shape) withDefaults() Shape {
	set := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	if s.Arch == "" {
		s.Arch = "llama"
	}
	set(&s.Layers, 2)
	set(&s.Dim, 64)
	set(&s.Heads, 4)
	set(&s.KVHeads, 2)
	set(&s.HeadDim, 16)
	set(&s.FF, 96)
	set(&s.Vocab, 320)
	set(&s.Context, 512)
	return s
}

// Writer holds the model's metadata, vocabulary and f32 weights of about unit
// gain. Tests may change or add to it before they write it.
func Writer(s Shape) *weights.Writer { return writer(s, "") }

// Damaged is Writer with one weight that is not a number: the first of a tensor.
func Damaged(s Shape, tensor string) *weights.Writer { return writer(s, tensor) }

func writer(s Shape, damaged string) *weights.Writer {
	s = s.withDefaults()
	w := &weights.Writer{}
	setMetadata(w, s)
	r := rand.New(rand.NewPCG(s.Seed, 1))
	add := func(name string, dims ...int) {
		n, gain := 1, 1/math.Sqrt(float64(dims[len(dims)-1]))
		for _, d := range dims {
			n *= d
		}
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64() * gain)
			switch {
			case strings.HasSuffix(name, ".bias"):
				x[i] = float32(r.NormFloat64())
			case len(dims) == 1:
				x[i] = float32(1 + 0.1*r.NormFloat64())
			}
		}
		if name == damaged {
			x[0] = float32(math.NaN())
		}
		w.AddF32(name, x, dims...)
	}
	add("token_embd.weight", s.Vocab, s.Dim)
	for l := range s.Layers {
		at := func(name string) string { return fmt.Sprintf("blk.%d.%s.weight", l, name) }
		add(at("attn_norm"), s.Dim)
		add(at("attn_q"), s.Heads*s.HeadDim, s.Dim)
		add(at("attn_k"), s.KVHeads*s.HeadDim, s.Dim)
		add(at("attn_v"), s.KVHeads*s.HeadDim, s.Dim)
		add(at("attn_output"), s.Dim, s.Heads*s.HeadDim)
		add(at("ffn_norm"), s.Dim)
		add(at("ffn_gate"), s.FF, s.Dim)
		add(at("ffn_up"), s.FF, s.Dim)
		add(at("ffn_down"), s.Dim, s.FF)
		switch s.Arch {
		case "qwen2":
			bias := func(name string) string { return strings.TrimSuffix(at(name), "weight") + "bias" }
			add(bias("attn_q"), s.Heads*s.HeadDim)
			add(bias("attn_k"), s.KVHeads*s.HeadDim)
			add(bias("attn_v"), s.KVHeads*s.HeadDim)
		case "qwen3":
			add(at("attn_q_norm"), s.HeadDim)
			add(at("attn_k_norm"), s.HeadDim)
		}
	}
	add("output_norm.weight", s.Dim)
	if !s.Tied {
		add("output.weight", s.Vocab, s.Dim)
	}
	return w
}

// setMetadata writes the hyper-parameters and a vocabulary of bytes and words.
func setMetadata(w *weights.Writer, s Shape) {
	w.Set("general.architecture", s.Arch)
	w.Set("general.name", "random")
	w.Set(s.Arch+".block_count", s.Layers)
	w.Set(s.Arch+".embedding_length", s.Dim)
	w.Set(s.Arch+".attention.head_count", s.Heads)
	w.Set(s.Arch+".attention.head_count_kv", s.KVHeads)
	w.Set(s.Arch+".attention.key_length", s.HeadDim)
	w.Set(s.Arch+".attention.value_length", s.HeadDim)
	w.Set(s.Arch+".feed_forward_length", s.FF)
	w.Set(s.Arch+".context_length", s.Context)
	w.Set(s.Arch+".attention.layer_norm_rms_epsilon", float32(1e-5))
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	for len(tokens) < s.Vocab {
		tokens, types = append(tokens, fmt.Sprintf("▁w%d", len(tokens))), append(types, 1)
	}
	w.Set("tokenizer.ggml.model", "llama")
	w.Set("tokenizer.ggml.tokens", tokens[:s.Vocab])
	w.Set("tokenizer.ggml.scores", make([]float32, s.Vocab))
	w.Set("tokenizer.ggml.token_type", types[:s.Vocab])
	w.Set("tokenizer.ggml.bos_token_id", 1)
	w.Set("tokenizer.ggml.eos_token_id", 2)
	for key, v := range s.Keys {
		w.Set(key, v)
	}
}

// File is the model as an open file.
func File(t testing.TB, w *weights.Writer) *weights.File {
	t.Helper()
	data, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := weights.Parse("random.gguf", data)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
