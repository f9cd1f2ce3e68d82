package model_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/weights"
)

func openCPU(t *testing.T) device.Device {
	t.Helper()
	d, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func TestLoadReadsTheConfiguration(t *testing.T) {
	f := modeltest.File(t, modeltest.Writer(modeltest.Shape{Tied: true, Keys: map[string]any{
		"llama.rope.freq_base": float32(500000), "llama.attention.sliding_window": 128,
	}}))
	m, err := model.Load(f, openCPU(t))
	if err != nil {
		t.Fatal(err)
	}
	want := model.Config{
		Name: "random", Arch: "llama", Layers: 2, Dim: 64, Heads: 4, KVHeads: 2, HeadDim: 16, FF: 96, Vocab: 320,
		Context: 512, Window: 128, Eps: 1e-5, Rope: m.Rope,
	}
	if m.Config != want {
		t.Errorf("config\n%+v, want\n%+v", m.Config, want)
	}
	if m.Rope.Base != 500000 || m.Rope.Dims != 16 || m.Rope.Factor != 1 {
		t.Errorf("rope %+v", m.Rope)
	}
}

// TestBadModels has files that are valid GGUF but no model that can be run; the
// error says which key or tensor, what was found and what was expected.
func TestBadModels(t *testing.T) {
	key := func(k string, v any) modeltest.Shape {
		return modeltest.Shape{Keys: map[string]any{k: v}}
	}
	yarn := func(k string, v any) modeltest.Shape {
		return modeltest.Shape{Keys: map[string]any{
			"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling." + k: v,
		}}
	}
	tests := []struct {
		name  string
		shape modeltest.Shape
		want  []string
	}{
		{"biases of another length", modeltest.Shape{Arch: "qwen2", Keys: map[string]any{"qwen2.attention.head_count": 8}}, []string{"blk.0.attn_q.weight", "[64 64]", "[128 64]"}},
		{"zero heads", key("llama.attention.head_count", 0), []string{"llama.attention.head_count is 0", "want 1"}},
		{"heads as text", key("llama.attention.head_count", "four"), []string{"llama.attention.head_count", "string"}},
		{"kv heads do not divide", key("llama.attention.head_count_kv", 3), []string{"4 attention heads", "3 kv heads"}},
		{"zero layers", key("llama.block_count", 0), []string{"llama.block_count is 0"}},
		{"layers without end", key("llama.block_count", uint32(1<<31)), []string{"llama.block_count is 2147483648", "want 1 to"}},
		{"too many layers for the file", key("llama.block_count", 3), []string{"blk.2.attn_norm.weight", "random.gguf"}},
		{"too few layers for the file", key("llama.block_count", 1), []string{"not part of a dense llama model", "blk.1."}},
		{"wrong width", key("llama.embedding_length", 65), []string{"token_embd.weight", "[320 64]", "[320 65]"}},
		{"wrong ff", key("llama.feed_forward_length", 97), []string{"blk.0.ffn_gate.weight", "[96 64]", "[97 64]"}},
		{"values of another width", key("llama.attention.value_length", 8), []string{"values of 8 and keys of 16"}},
		{"experts", key("llama.expert_count", 8), []string{"mixture of 8 experts"}},
		{"rope too wide", key("llama.rope.dimension_count", 18), []string{"rope over 18 dimensions", "16"}},
		{"rope odd", key("llama.rope.dimension_count", 7), []string{"rope over 7 dimensions", "even"}},
		{"rope rule", key("llama.rope.scaling.type", "longrope"), []string{"longrope", "none, linear or yarn"}},
		{"rope base", key("llama.rope.freq_base", float32(-1)), []string{"rope.freq_base is -1", "above 0"}},
		{"rope base 1", key("llama.rope.freq_base", float32(1)), []string{"rope.freq_base is 1,", "above 1"}},
		{"rope base below 1", key("llama.rope.freq_base", float32(0.5)), []string{"rope.freq_base is 0.5,", "above 1"}},
		{"rope base 0", key("llama.rope.freq_base", float32(0)), []string{"rope.freq_base is 0,", "above 0"}},
		{"rope factor tiny", key("llama.rope.scaling.factor", float32(1e-20)), []string{"radians a position", "rope.scaling.factor", "too small"}},
		{"rope factor no number", key("llama.rope.scaling.factor", float32(1e-40)), []string{"rope.scaling.factor is 9.99", "above 0"}},
		{"yarn ext factor", yarn("yarn_ext_factor", float32(0.5)), []string{"llama.rope.scaling.yarn_ext_factor is 0.5", "want 1"}},
		{"yarn ext factor no number", key("llama.rope.scaling.yarn_ext_factor", float32(math.NaN())), []string{"yarn_ext_factor is NaN"}},
		{"yarn ext factor without yarn", key("llama.rope.scaling.yarn_ext_factor", float32(1)), []string{"yarn_ext_factor is 1", "want 0"}},
		{"yarn log multiplier", yarn("yarn_log_multiplier", float32(0.1)), []string{"llama.rope.scaling.yarn_log_multiplier is 0.1", "want 0"}},
		{"yarn log multiplier no number", key("llama.rope.scaling.yarn_log_multiplier", float32(math.NaN())), []string{"yarn_log_multiplier is NaN"}},
		{"eps nan", key("llama.attention.layer_norm_rms_epsilon", float32(math.NaN())), []string{"rms_epsilon", "NaN"}},
		{"vocabulary mismatch", key("tokenizer.ggml.tokens", []string{"a", "b"}), []string{"320 rows", "2 tokens"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := model.Load(modeltest.File(t, modeltest.Writer(tt.shape)), openCPU(t))
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}
}

// others are the architectures of llama.cpp's table that gollm does not compute.
const others = `clip llama4 deci falcon grok gpt2 gptj gptneox mpt baichuan starcoder refact bert modern-bert nomic-bert
	nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert bloom stablelm qwen qwen2moe qwen2vl qwen3moe qwen3next qwen3vl
	qwen3vlmoe qwen35 qwen35moe phi2 phi3 phimoe plamo plamo2 plamo3 codeshell orion internlm2 minicpm minicpm3 gemma gemma2
	gemma3 gemma3n gemma4 gemma-embedding starcoder2 mamba mamba2 maple jamba falcon-h1 xverse command-r cohere2 cohere2moe
	dbrx olmo olmo2 olmoe openelm arctic deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4 chatglm glm4 glm4moe glm-dsa
	bitnet t5 t5encoder jais jais2 nemotron nemotron_h nemotron_h_moe exaone exaone4 exaone-moe rwkv6 rwkv6qwen2 rwkv7 arwkv7
	granite granitemoe granitehybrid chameleon wavtokenizer-dec plm bailingmoe bailingmoe2 dots1 arcee afmoe ernie4_5
	ernie4_5-moe hunyuan-moe hunyuan-dense smollm3 gpt-oss lfm2 lfm2moe dream smallthinker llada llada-moe seed_oss grovemoe
	apertus minimax-m2 cogvlm pangu-embedded mistral3 mistral4 paddleocr mimo2 kimi-linear`

// TestOtherArchitecturesAreRefused: in one sentence that has the name, and what is supported.
func TestOtherArchitecturesAreRefused(t *testing.T) {
	dev := openCPU(t)
	names := append(strings.Fields(others), "Llama", "qwen2 ", "", "mixtral", "a\x1b[2J")
	for _, name := range names {
		_, err := model.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Keys: map[string]any{"general.architecture": name}})), dev)
		wantWords(t, err, fmt.Sprintf("random.gguf: architecture %q is not supported", name), "llama (", "qwen2 (Qwen2, Qwen2.5", "qwen3 (dense")
	}
}

// A Mixtral is a llama with experts: the key and the tensors say so, each alone.
func TestExpertsAreRefused(t *testing.T) {
	_, err := model.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Keys: map[string]any{"llama.expert_count": 8, "llama.expert_used_count": 2}})), openCPU(t))
	wantWords(t, err, "mixture of 8 experts", "dense models of llama")
	w := modeltest.Writer(modeltest.Shape{})
	w.AddF32("blk.0.ffn_gate_inp.weight", make([]float32, 8*64), 8, 64)
	w.AddF32("blk.0.ffn_up_exps.weight", make([]float32, 8*96*64), 8, 96, 64)
	_, err = model.Load(modeltest.File(t, w), openCPU(t))
	wantWords(t, err, "2 tensors are not part of a dense llama model", "blk.0.ffn_gate_inp.weight")
}

// TestFamilies: what a family has beside Llama's tensors is loaded, and must be there; what
// belongs to another family is refused.
func TestFamilies(t *testing.T) {
	own := map[string]string{"qwen2": "blk.0.attn_q.bias", "qwen3": "blk.0.attn_q_norm.weight"}
	for arch, tensor := range own {
		m, err := model.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Arch: arch})), openCPU(t))
		if err != nil {
			t.Fatal(err)
		}
		if m.Bias != (arch == "qwen2") || m.HeadNorms != (arch == "qwen3") || !m.Rope.Halves || m.Rotation().Interleaved {
			t.Errorf("%s: %+v", arch, m.Config)
		}
		keys := map[string]any{"general.architecture": arch} // of a llama without the tensors
		for name, n := range map[string]int{
			"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2,
			"attention.key_length": 16, "feed_forward_length": 96, "context_length": 512,
		} {
			keys[arch+"."+name] = n
		}
		_, err = model.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Keys: keys})), openCPU(t))
		wantWords(t, err, "no tensor", tensor)
		other := modeltest.Writer(modeltest.Shape{Arch: arch})
		other.AddF32("blk.1.attn_output.bias", make([]float32, 64), 64)
		_, err = model.Load(modeltest.File(t, other), openCPU(t))
		wantWords(t, err, "not part of a dense "+arch+" model", "blk.1.attn_output.bias")
	}
}

func TestUnknownTensorIsRefused(t *testing.T) {
	w := modeltest.Writer(modeltest.Shape{})
	w.AddF32("blk.0.attn_q.bias", make([]float32, 64), 64)
	_, err := model.Load(modeltest.File(t, w), openCPU(t))
	if err == nil || !strings.Contains(err.Error(), "blk.0.attn_q.bias") {
		t.Errorf("err = %v", err)
	}
}

func TestVectorsOfOtherTypesAreRefused(t *testing.T) {
	w := modeltest.Writer(modeltest.Shape{})
	w.Add("rope_freqs.weight", device.F16, make([]byte, 16), 8)
	_, err := model.Load(modeltest.File(t, w), openCPU(t))
	if err == nil || !strings.Contains(err.Error(), "rope_freqs.weight is F16") {
		t.Errorf("err = %v", err)
	}
}

func TestZeroRopeFactorIsRefused(t *testing.T) {
	w := modeltest.Writer(modeltest.Shape{})
	w.AddF32("rope_freqs.weight", make([]float32, 8), 8)
	_, err := model.Load(modeltest.File(t, w), openCPU(t))
	if err == nil || !strings.Contains(err.Error(), "rope_freqs.weight: element 0 is 0") {
		t.Errorf("err = %v", err)
	}
}

// TestRopeFrequencies has numbers worked out by hand from the formulas.
func TestRopeFrequencies(t *testing.T) {
	near := func(got float32, want float64) bool { return math.Abs(float64(got)-want) <= 1e-6*want }
	plain := model.RopeConfig{Base: 10000, Dims: 8, Scaling: model.NoScaling, Factor: 4, Original: 2048, BetaFast: 32, BetaSlow: 1, AttnFactor: 1}
	for i, want := range []float64{1, 0.1, 0.01, 0.001} {
		if got := plain.Freqs(nil)[i]; !near(got, want) {
			t.Errorf("plain pair %d: %v, want %v", i, got, want)
		}
	}
	linear := plain
	linear.Scaling = model.LinearScaling
	for i, want := range []float64{0.25, 0.025, 0.0025, 0.00025} {
		if got := linear.Freqs(nil)[i]; !near(got, want) {
			t.Errorf("linear pair %d: %v, want %v", i, got, want)
		}
	}
	for i, want := range []float64{0.5, 0.1, 0.01 / 8, 0.001} {
		if got := plain.Freqs([]float32{2, 1, 8, 1})[i]; !near(got, want) {
			t.Errorf("pair %d divided by its factor: %v, want %v", i, got, want)
		}
	}
	// YaRN: pair i rotates 2048·f/2π times: 326, 32.6, 3.26, 0.326. The ramp goes
	// from pair floor(1.009) = 1 to pair ceil(2.513) = 3.
	yarn := plain
	yarn.Scaling = model.YaRNScaling
	for i, want := range []float64{1, 0.1, 0.01*0.5 + 0.0025*0.5, 0.00025} {
		if got := yarn.Freqs(nil)[i]; !near(got, want) {
			t.Errorf("yarn pair %d: %v, want %v", i, got, want)
		}
	}
	if got, want := yarn.Scale(), 1+0.1*math.Log(4); !near(got, want) {
		t.Errorf("yarn scale %v, want %v", got, want)
	}
	if plain.Scale() != 1 || linear.Scale() != 1 {
		t.Error("only yarn scales attention")
	}
}

// TestYaRNAgainstNumPy: frequencies and scale at factors 1, 4, 8 and 40 are what another
// implementation computes in float64 (scripts/yarn-vectors.py).
func TestYaRNAgainstNumPy(t *testing.T) {
	data, err := os.ReadFile("testdata/yarn.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Dims, Trained                   int
		Base, Fast, Slow, Factor, Scale float64
		Freqs                           []float64
	}
	if err := json.Unmarshal(data, &cases); err != nil || len(cases) != 12 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	near := func(got float32, want float64) bool { return math.Abs(float64(got)-want) <= 1e-7*want }
	for _, c := range cases {
		for _, extra := range []float64{1, 1.5} {
			rc := model.RopeConfig{Base: c.Base, Dims: c.Dims, Scaling: model.YaRNScaling, Factor: c.Factor, Original: c.Trained, BetaFast: c.Fast, BetaSlow: c.Slow, AttnFactor: extra}
			if !near(rc.Scale(), c.Scale*extra) {
				t.Errorf("%+v: scale %v, want %v", rc, rc.Scale(), c.Scale*extra)
			}
			for i, f := range rc.Freqs(nil) {
				if !near(f, c.Freqs[i]) {
					t.Errorf("%+v: pair %d: %v, want %v", rc, i, f, c.Freqs[i])
				}
			}
		}
	}
}

// TestRopeOptions: what a user wants is as if the file said it, and the context follows.
func TestRopeOptions(t *testing.T) {
	read := func(keys map[string]any, o model.RopeOptions) (model.Config, error) {
		return model.ReadConfig(modeltest.File(t, modeltest.Writer(modeltest.Shape{Arch: "qwen2", Keys: keys})), o)
	}
	yarn := map[string]any{"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": float32(4), "qwen2.rope.scaling.original_context_length": 128}
	for _, c := range []struct {
		keys    map[string]any
		o       model.RopeOptions
		want    model.RopeConfig // what differs from the file's
		context int
	}{
		{nil, model.RopeOptions{}, model.RopeConfig{Scaling: "linear", Factor: 1, Original: 512}, 512},
		{nil, model.RopeOptions{Factor: 4}, model.RopeConfig{Scaling: "linear", Factor: 4, Original: 512}, 2048},
		{nil, model.RopeOptions{Scaling: "yarn", Factor: 4}, model.RopeConfig{Scaling: "yarn", Factor: 4, Original: 512}, 2048},
		{nil, model.RopeOptions{Scaling: "yarn", Factor: 4, Original: 100, Base: 5e5, BetaFast: 16, BetaSlow: 2, AttnFactor: 3}, model.RopeConfig{Scaling: "yarn", Factor: 4, Original: 100, Base: 5e5, BetaFast: 16, BetaSlow: 2, AttnFactor: 3}, 400},
		{yarn, model.RopeOptions{}, model.RopeConfig{Scaling: "yarn", Factor: 4, Original: 128}, 512},
		{yarn, model.RopeOptions{Factor: 2}, model.RopeConfig{Scaling: "yarn", Factor: 2, Original: 128}, 256},
		{yarn, model.RopeOptions{Scaling: "none"}, model.RopeConfig{Scaling: "none", Factor: 4, Original: 128}, 128},
		{yarn, model.RopeOptions{AttnFactor: 2}, model.RopeConfig{Scaling: "yarn", Factor: 4, Original: 128, AttnFactor: 2}, 512},
	} {
		got, err := read(c.keys, c.o)
		if err != nil {
			t.Fatalf("%+v: %v", c.o, err)
		}
		want := c.want
		want.Dims, want.Halves = 16, true
		want.Base, want.BetaFast = cmp.Or(want.Base, 10000), cmp.Or(want.BetaFast, 32)
		want.BetaSlow, want.AttnFactor = cmp.Or(want.BetaSlow, 1), cmp.Or(want.AttnFactor, 1)
		if got.Rope != want || got.Context != c.context {
			t.Errorf("%+v: %+v and %d positions, want %+v and %d", c.o, got.Rope, got.Context, want, c.context)
		}
	}
	for _, c := range []struct {
		keys  map[string]any
		o     model.RopeOptions
		words string
	}{
		{nil, model.RopeOptions{Scaling: "none", Factor: 4}, "the rule is none"},
		{map[string]any{"qwen2.rope.scaling.type": "none"}, model.RopeOptions{Factor: 4}, "the rule is none"},
		{nil, model.RopeOptions{Scaling: "yarn"}, "scaling yarn without a factor"},
		{nil, model.RopeOptions{Factor: 4, BetaFast: 20}, "settings of YaRN, but the RoPE scaling is linear"},
		{yarn, model.RopeOptions{Scaling: "linear", Original: 64}, "settings of YaRN, but the RoPE scaling is linear"},
	} {
		_, err := read(c.keys, c.o)
		wantWords(t, err, "random.gguf", c.words)
	}
}

// A factor on the rotated values counts under every rule, as in llama.cpp.
func TestAttnFactorAlone(t *testing.T) {
	m, err := model.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Keys: map[string]any{"llama.rope.scaling.attn_factor": float32(1.5)}})), openCPU(t))
	if err != nil || m.Rotation().Scale != 1.5 {
		t.Errorf("scale %v, want 1.5; %v", m.Rotation().Scale, err)
	}
}

// What YaRN's further keys say where they change nothing is taken.
func TestYaRNKeysThatChangeNothing(t *testing.T) {
	for _, keys := range []map[string]any{
		{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.yarn_ext_factor": float32(1), "llama.rope.scaling.yarn_log_multiplier": float32(0)},
		{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.yarn_ext_factor": float32(-1)},
		{"llama.rope.scaling.yarn_ext_factor": float32(0)},
	} {
		if _, err := model.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Keys: keys})), openCPU(t)); err != nil {
			t.Errorf("%v: %v", keys, err)
		}
	}
}

// TestTypesByRole loads a model with a tensor of each role in each of GGUF's types: it
// loads where the role takes the type, and is refused with the tensor and the type
// where it does not.
func TestTypesByRole(t *testing.T) {
	const kinds, width = 42, 256                                              // GGUF's numbers of types and one that it does not have; a row of any type
	numbers := []uint32{0, 30}                                                // F32, BF16
	matrices := []uint32{0, 1, 30, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23} // no integers, no F64
	w := modeltest.Writer(modeltest.Shape{Layers: 1, Dim: width, Heads: 1, KVHeads: 1, HeadDim: width, FF: width})
	w.AddF32("rope_freqs.weight", slices.Repeat([]float32{1}, width/2), width/2)
	dev := openCPU(t)
	for _, x := range modeltest.File(t, w).Tensors() {
		takes := matrices
		if len(x.Shape) == 1 {
			takes = numbers
		}
		retype := retyper(t, w, x)
		for kind := range uint32(kinds) {
			if x.Len() < width && kind >= 10 && kind <= 23 {
				continue // rope_freqs has no whole blocks of these, which the file's guard refuses
			}
			f, err := retype(kind)
			if err == nil {
				_, err = model.Load(f, dev)
			}
			switch {
			case !slices.Contains(takes, kind):
				wantWords(t, err, "retyped.gguf", x.Name, "want ")
			case x.Name == "rope_freqs.weight":
				wantWords(t, err, x.Name, "element 0 is 0") // what retype leaves of it
			case err != nil:
				t.Errorf("%v as type %d: %v", x, kind, err)
			}
		}
	}
}

// retyper makes files in which tensor x is said to be of GGUF's type number kind. Its
// data is new, zeros behind all others, with room for eight bytes an element.
func retyper(t *testing.T, w *weights.Writer, x weights.Tensor) func(kind uint32) (*weights.File, error) {
	t.Helper()
	data, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, y := range modeltest.File(t, w).Tensors() {
		size += (len(y.Data) + 31) &^ 31
	}
	name := append(binary.LittleEndian.AppendUint64(nil, uint64(len(x.Name))), x.Name...)
	at := bytes.Index(data, name) + len(name) + 4 + 8*len(x.Shape) // behind the dimensions
	data = append(data, make([]byte, 8*x.Len())...)
	return func(kind uint32) (*weights.File, error) {
		binary.LittleEndian.PutUint32(data[at:], kind)
		binary.LittleEndian.PutUint64(data[at+4:], uint64(size))
		return weights.Parse("retyped.gguf", data)
	}
}

// wantWords fails unless err says all words.
func wantWords(t *testing.T, err error, words ...string) {
	t.Helper()
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v, want %q in it", err, w)
		}
	}
}
