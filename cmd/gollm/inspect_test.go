package main

import (
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
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
	path := randomModel(t, modeltest.Shape{})
	r := decode[modelReport](t, ok(t, "", "inspect", path, "--json"))
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
	vocab := need(t, "../../../shared/data/tokenizer/llama-bpe.gguf")
	out := ok(t, "", "inspect", vocab)
	for _, word := range []string{"no: the file has a vocabulary but no weights", "byte-level BPE", "128256", `128009 "<|eot_id|>"`, "none in the file"} {
		if !strings.Contains(out, word) {
			t.Errorf("inspect of a vocabulary does not say %q in:\n%s", word, out)
		}
	}
	path := randomModel(t, modeltest.Shape{Keys: map[string]any{
		"general.architecture": "mamba", "mamba.block_count": 7, "tokenizer.ggml.model": "rwkv",
	}})
	out = ok(t, "", "inspect", path)
	for _, word := range []string{`no: model: `, `"mamba" is not supported`, "block count", "7", "none that gollm can use", "rwkv"} {
		if !strings.Contains(out, word) {
			t.Errorf("inspect of another architecture does not say %q in:\n%s", word, out)
		}
	}
	if r := decode[modelReport](t, ok(t, "", "inspect", path, "--json")); r.Runs || r.WhyNot == "" || r.NoTokenizer == "" {
		t.Errorf("%+v", r)
	}
}

func TestShorten(t *testing.T) {
	for _, tt := range []struct{ in, want string }{{"short", "short"}, {"exactly10.", "exactly10."}, {"longer than 10", "longer ..."}, {"ÄÖÜäöüßéèê!", "ÄÖÜäöüß..."}} {
		if got := shorten(tt.in, 10); got != tt.want {
			t.Errorf("shorten(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}
