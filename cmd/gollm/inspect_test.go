package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/golden"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/weights"
)

func TestInspectGolden(t *testing.T) {
	jinja := "{% for m in messages %}\n{{ m.content }}\n{% endfor %}\n1\n2\n3\n4\n"
	w := modeltest.Writer(modeltest.Shape{Context: 20000})
	w.Set("tokenizer.chat_template", jinja)
	w.Set("llama.attention.sliding_window", 256)
	w.Set("llama.rope.scaling.type", "linear")
	w.Set("llama.rope.scaling.factor", float32(4))
	q8 := make([]byte, 64*device.Q8_0.RowSize(64))
	w.Add("blk.9.attn_q.weight", device.Q8_0, q8, 64, 64) // a second type in a group, and one layer too many
	path := t.TempDir() + "/random.gguf"
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"inspect.golden":          nil,
		"inspect-tensors.golden":  {"--tensors"},
		"inspect-metadata.golden": {"--metadata"},
	} {
		out := ok(t, "", append([]string{"inspect", path}, args...)...)
		golden.Compare(t, name, strings.ReplaceAll(out, path, "random.gguf"))
	}
	if out := ok(t, "", "inspect", path, "--template"); out != jinja {
		t.Errorf("--template: %q, want %q", out, jinja)
	}
}

func TestInspectJSON(t *testing.T) {
	path := clitest.RandomModel(t, modeltest.Shape{})
	r := clitest.Decode[modelReport](t, ok(t, "", "inspect", path, "--json"))
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var params, bytes int64
	for _, w := range f.Tensors() {
		params += int64(w.Len())
		bytes += int64(len(w.Data))
	}
	if r.Parameters != params || !r.Runs || r.Architecture != "llama" || r.Bytes != f.Size() || r.Hash != f.Hash() {
		t.Errorf("%+v", r)
	}
	if len(r.Memory) != 1 || r.Memory[0].Context != 512 || r.Memory[0].Weights != bytes {
		t.Errorf("memory %+v, want 512 tokens and %d bytes", r.Memory, bytes)
	}
	if kv := int64(512 * 2 * 2 * 2 * 16); r.Memory[0].KVF16 != 2*kv || r.Memory[0].KVF32 != 4*kv { // tokens, k and v, layers, kv heads, width
		t.Errorf("KV %+v, want %d elements", r.Memory, kv)
	}
	if tok := r.Tokenizer; tok.BOS.ID != 1 || tok.EOS.Text != "</s>" || len(tok.Ends) != 1 || !tok.AddsBOS || tok.Tokens != 320 {
		t.Errorf("tokenizer %+v", tok)
	}
}

// The JSON has the shape as numbers, every tensor and every key.
func TestInspectJSONLists(t *testing.T) {
	w := modeltest.Writer(modeltest.Shape{Context: 20000, Keys: map[string]any{
		"llama.attention.sliding_window": 256, "llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4),
		"llama.rope.scaling.original_context_length": 5000, "llama.odd": float32(math.Inf(1)), "llama.even": []float32{1, float32(math.NaN())},
	}})
	path := t.TempDir() + "/random.gguf"
	if err := w.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	r := clitest.Decode[modelReport](t, ok(t, "", "inspect", path, "--json", "--tensors", "--metadata"))
	want := shapeReport{
		Layers: 2, Width: 64, FeedWidth: 96, Heads: 4, HeadWidth: 16, KVHeads: 2, Context: 20000, Window: 256, Eps: 1e-5,
		Rope: ropeReport{Base: 10000, Dims: 16, Scaling: "yarn", Factor: 4, Original: 5000, Scale: 1.1386294},
	}
	if r.Shape == nil || *r.Shape != want || r.Others != nil {
		t.Errorf("%+v, want %+v", r.Shape, want)
	}
	var params, bytes int64
	for _, x := range r.Tensors {
		params += x.Parameters
		bytes += x.Bytes
	}
	if len(r.Tensors) != 21 || params != r.Parameters || bytes != r.Memory[0].Weights {
		t.Errorf("%d tensors of %d parameters and %d bytes", len(r.Tensors), params, bytes)
	}
	if x := r.Tensors[1]; x.Name != "blk.0.attn_norm.weight" || x.Type != "F32" || !x.Supported || !slices.Equal(x.Shape, []int{64}) {
		t.Errorf("%+v", x)
	}
	for key, want := range map[string]any{"general.name": "random", "llama.block_count": 2.0, "llama.odd": "+Inf"} {
		if got := r.Metadata[key]; got != want {
			t.Errorf("%s: %v, want %v", key, got, want)
		}
	}
	if tokens, even := r.Metadata["tokenizer.ggml.tokens"].([]any), r.Metadata["llama.even"].([]any); len(tokens) != 320 || even[0] != 1.0 || even[1] != "NaN" {
		t.Errorf("%d tokens, %v", len(tokens), even)
	}
	if r := clitest.Decode[modelReport](t, ok(t, "", "inspect", path, "--json")); r.Tensors != nil || r.Metadata != nil {
		t.Error("lists without their flags")
	}
}

// A tensor of a type that gollm does not compute with is listed and marked; only
// running the model fails.
func TestInspectMarksUnsupportedTypes(t *testing.T) {
	data, err := modeltest.Writer(modeltest.Shape{}).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	name := []byte("blk.1.ffn_up.weight")
	at := bytes.Index(data, name) + len(name) + 4 + 2*8 // the number of dimensions and two of them
	binary.LittleEndian.PutUint32(data[at:], 16)
	path := clitest.WriteFile(t, "foreign.gguf", string(data))
	text := ok(t, "", "inspect", path, "--tensors")
	for _, word := range []string{"gollm runs it       no: ", "type 16 (IQ2_XXS) is not supported", "1 IQ2_XXS (unsupported)", "IQ2_XXS (unsupported)  96 64"} {
		if !strings.Contains(text, word) {
			t.Errorf("no %q in:\n%s", word, text)
		}
	}
	r := clitest.Decode[modelReport](t, ok(t, "", "inspect", path, "--json", "--tensors"))
	i := slices.IndexFunc(r.Tensors, func(x tensorReport) bool { return !x.Supported })
	if r.Runs || len(r.Tensors) != 21 || i < 0 || r.Tensors[i].Name != string(name) || r.Tensors[i].Type != "IQ2_XXS" {
		t.Errorf("%+v", r.Tensors)
	}
	fails(t, console.ExitFailure, []string{path, string(name), "type 16 (IQ2_XXS) is not supported", "Q4_K"}, "", "generate", "-m", path, "-p", "a")
}

// Matrices of integers and of f64 are refused like any type that gollm does not compute
// with: inspect says so, and generate ends in one error.
func TestInspectRefusesMatricesOfIntegers(t *testing.T) {
	data, err := modeltest.Writer(modeltest.Shape{}).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	name := []byte("output.weight")
	at := bytes.LastIndex(data, name) + len(name) + 4 + 2*8 // the number of dimensions and two of them
	data = append(data, make([]byte, 4*320*64)...)          // it is the last tensor: room for elements of 8 bytes
	for want, kind := range map[string]uint32{"I8": 24, "I16": 25, "I32": 26, "I64": 27, "F64": 28} {
		binary.LittleEndian.PutUint32(data[at:], kind)
		path := clitest.WriteFile(t, want+".gguf", string(data))
		text := ok(t, "", "inspect", path, "--tensors")
		refused := fmt.Sprintf("type %d (%s) is not supported", kind, want)
		for _, word := range []string{"gollm runs it       no: ", refused, "1 " + want + " (unsupported)"} {
			if !strings.Contains(text, word) {
				t.Errorf("no %q in:\n%s", word, text)
			}
		}
		fails(t, console.ExitFailure, []string{path, string(name), refused}, "", "generate", "-m", path, "-p", "a", "-n", "2")
	}
}

func TestContexts(t *testing.T) {
	for trained, want := range map[int][]int{
		512: {512}, 4096: {4096}, 5000: {4096, 5000}, 32768: {4096, 8192, 16384, 32768},
	} {
		if got := contexts(trained); jsonText(t, got) != jsonText(t, want) {
			t.Errorf("contexts(%d) = %v, want %v", trained, got, want)
		}
	}
}

// Files that gollm cannot run are inspected all the same.
func TestInspectFilesThatDoNotRun(t *testing.T) {
	vocab := clitest.Need(t, "../../../shared/data/tokenizer/llama-bpe.gguf")
	out := ok(t, "", "inspect", vocab)
	for _, word := range []string{"no: the file has a vocabulary but no weights", "byte-level BPE", "128256", `128009 "<|eot_id|>"`, "none in the file"} {
		if !strings.Contains(out, word) {
			t.Errorf("inspect of a vocabulary does not say %q in:\n%s", word, out)
		}
	}
	fails(t, console.ExitFailure, []string{vocab + " has a vocabulary but no weights", "a file with weights"}, "", "generate", "-m", vocab, "-p", "a")
	path := clitest.RandomModel(t, modeltest.Shape{Keys: map[string]any{
		"general.architecture": "mamba", "mamba.block_count": 7, "tokenizer.ggml.model": "rwkv",
	}})
	out = strings.ReplaceAll(ok(t, "", "inspect", path), path, "random.gguf")
	for _, word := range []string{`no: random.gguf: architecture "mamba" is not supported`, "block count", "7", "none that gollm can use", "rwkv"} {
		if !strings.Contains(out, word) {
			t.Errorf("inspect of another architecture does not say %q in:\n%s", word, out)
		}
	}
	if r := clitest.Decode[modelReport](t, ok(t, "", "inspect", path, "--json")); r.Runs || r.WhyNot == "" || r.NoTokenizer == "" || r.Shape != nil || !slices.Contains(r.Others, otherParameter{"block_count", 7}) {
		t.Errorf("%+v", r)
	}
}

// The factors of a file are a tensor, of which the metadata does not know.
func TestInspectTellsOfFrequencyFactors(t *testing.T) {
	const with, without = "../../testdata/logits/rope-freqs.gguf", "../../testdata/logits/f32.gguf"
	for path, want := range map[string]bool{with: true, without: false} {
		text := ok(t, "", "inspect", "-m", path)
		if strings.Contains(text, ", with frequency factors of the file (rope_freqs)\n") != want {
			t.Errorf("%s: factors %v in:\n%s", path, want, text)
		}
		if r := clitest.Decode[modelReport](t, ok(t, "", "inspect", path, "--json")); r.Shape.Rope.Factors != want {
			t.Errorf("%s: %+v, want factors %v", path, r.Shape.Rope, want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"short", "short"}, {"exactly10.", "exactly10."}, {"longer than 10", "longer ..."}, {"ÄÖÜäöüßéèê!", "ÄÖÜäöüß..."}} {
		if got := shorten(tt.in, 10); got != tt.want {
			t.Errorf("shorten(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
