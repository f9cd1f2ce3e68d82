package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
)

// modelReport is what inspect says about a file; its JSON form is the output of
// inspect --json.
type modelReport struct {
	File         string           `json:"file"`
	Parts        []string         `json:"parts"`
	Bytes        int64            `json:"bytes"`
	Hash         string           `json:"hash"` // of the header and samples of the tensors, see weights.File.Hash
	Name         string           `json:"name"`
	Architecture string           `json:"architecture"`
	Runs         bool             `json:"runs"`
	WhyNot       string           `json:"why_not,omitempty"`
	Parameters   int64            `json:"parameters"`
	Shape        []hyperParameter `json:"hyper_parameters"`
	Groups       []tensorGroup    `json:"tensor_groups"`
	Memory       []memoryNeed     `json:"memory"`
	Tokenizer    *tokenizerReport `json:"tokenizer,omitempty"`
	NoTokenizer  string           `json:"no_tokenizer,omitempty"`
	Template     string           `json:"chat_template,omitempty"`
}

// hyperParameter is one line about the shape of the model.
type hyperParameter struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// tensorGroup is the tensors that do one job.
type tensorGroup struct {
	Name       string      `json:"name"`
	Tensors    int         `json:"tensors"`
	Parameters int64       `json:"parameters"`
	Bytes      int64       `json:"bytes"`
	Types      []typeCount `json:"types"`
}

// typeCount is how much of a group has one element type.
type typeCount struct {
	Type    string `json:"type"`
	Tensors int    `json:"tensors"`
	Bytes   int64  `json:"bytes"`
}

// memoryNeed is the memory for one sequence of a length.
type memoryNeed struct {
	Context int   `json:"ctx"`
	Weights int64 `json:"weights_bytes"`
	KVF16   int64 `json:"kv_f16_bytes"`
	KVF32   int64 `json:"kv_f32_bytes"`
}

// tokenizerReport is what there is to know about a tokenizer.
type tokenizerReport struct {
	Model    string         `json:"model"`
	Pre      string         `json:"pre"`
	Tokens   int            `json:"tokens"`
	Specials []specialToken `json:"special_tokens"`
	AddsBOS  bool           `json:"adds_bos"`
	BOS      *specialToken  `json:"bos"`
	EOS      *specialToken  `json:"eos"`
	Ends     []specialToken `json:"end_of_generation"`
}

// specialToken is a token with a meaning of its own.
type specialToken struct {
	ID   int32  `json:"id"`
	Text string `json:"text"`
}

// inspectFile gathers the report of an open file.
func inspectFile(f *weights.File) (*modelReport, error) {
	r := &modelReport{File: f.Path(), Parts: f.Parts(), Bytes: f.Size(), Hash: f.Hash()}
	var err error
	if r.Architecture, err = f.StringOr("general.architecture", "unknown"); err != nil {
		return nil, err
	}
	if r.Name, err = f.StringOr("general.name", ""); err != nil {
		return nil, err
	}
	if r.Template, err = f.StringOr("tokenizer.chat_template", ""); err != nil {
		return nil, err
	}
	r.Groups = groupTensors(f.Tensors())
	for _, g := range r.Groups {
		r.Parameters += g.Parameters
	}
	r.addTokenizer(f)
	r.addModel(f)
	return r, nil
}

// addModel fills in the shape, the memory and whether gollm runs the model.
func (r *modelReport) addModel(f *weights.File) {
	c, err := model.ReadConfig(f)
	switch {
	case len(f.Tensors()) == 0:
		r.WhyNot = "the file has a vocabulary but no weights"
	case err != nil:
		r.WhyNot = err.Error()
	case r.Tokenizer == nil:
		r.WhyNot = r.NoTokenizer
	default:
		if _, err := model.Load(f, dryDevice{}); err != nil {
			r.WhyNot = err.Error()
		}
	}
	r.Runs = r.WhyNot == ""
	if err != nil {
		r.Shape = rawShape(f, r.Architecture)
		return
	}
	r.Shape = configShape(c)
	weightBytes := int64(0)
	for _, g := range r.Groups {
		weightBytes += g.Bytes
	}
	for _, n := range contexts(c.Context) {
		r.Memory = append(r.Memory, memoryNeed{
			Context: n, Weights: weightBytes,
			KVF16: int64(n) * int64(c.KVBytes(device.F16.BlockSize())),
			KVF32: int64(n) * int64(c.KVBytes(device.F32.BlockSize())),
		})
	}
}

// dryDevice takes a model's tensors without keeping them, to learn whether it
// would load.
type dryDevice struct{ device.Device }

// dryMemory is memory of a size that nobody uses.
type dryMemory int

func (m dryMemory) Size() int { return int(m) }

func (dryDevice) Alloc(dt device.DType, dims ...int) (device.Tensor, error) {
	return device.NewTensor(dryMemory(math.MaxInt), 0, dt, dims...), nil
}

func (d dryDevice) Load(_ []byte, dt device.DType, dims ...int) (device.Tensor, error) {
	return d.Alloc(dt, dims...)
}

func (dryDevice) Write(device.Tensor, []byte) {}

// contexts lists the lengths that memory is told for, up to what the model was
// trained for.
func contexts(trained int) []int {
	var all []int
	for n := 4096; n < trained; n *= 2 {
		all = append(all, n)
	}
	return append(all, trained)
}

// configShape is the shape of a model that gollm knows.
func configShape(c model.Config) []hyperParameter {
	shape := []hyperParameter{
		{"layers", fmt.Sprint(c.Layers)},
		{"width", fmt.Sprint(c.Dim)},
		{"feed-forward width", fmt.Sprint(c.FF)},
		{"heads", fmt.Sprintf("%d of width %d", c.Heads, c.HeadDim)},
		{"kv heads", fmt.Sprint(c.KVHeads)},
		{"context", fmt.Sprintf("%d tokens trained", c.Context)},
	}
	if c.Window > 0 {
		shape = append(shape, hyperParameter{"sliding window", fmt.Sprintf("%d tokens", c.Window)})
	}
	rope := fmt.Sprintf("base %g over %d dimensions", c.Rope.Base, c.Rope.Dims)
	if c.Rope.Scaling != model.NoScaling && c.Rope.Factor != 1 {
		rope += fmt.Sprintf(", %s scaling by %g", c.Rope.Scaling, c.Rope.Factor)
	}
	return append(shape, hyperParameter{"rope", rope})
}

// rawShape lists the whole numbers that the metadata of an architecture has.
func rawShape(f *weights.File, arch string) []hyperParameter {
	shape := []hyperParameter{}
	for _, key := range f.Keys() {
		name, ours := strings.CutPrefix(key, arch+".")
		if n, err := f.Int(key); ours && err == nil {
			shape = append(shape, hyperParameter{strings.ReplaceAll(name, "_", " "), fmt.Sprint(n)})
		}
	}
	return shape
}

// groupNames is the order in which groups are shown.
var groupNames = []string{"embedding", "attention", "feed-forward", "norms", "output", "other"}

// groupOf is the job of a tensor.
func groupOf(name string) string {
	switch {
	case strings.Contains(name, "norm"):
		return "norms"
	case strings.HasPrefix(name, "token_embd"):
		return "embedding"
	case strings.HasPrefix(name, "output"):
		return "output"
	case strings.Contains(name, ".attn_"):
		return "attention"
	case strings.Contains(name, ".ffn_"):
		return "feed-forward"
	}
	return "other"
}

// groupTensors sums up tensors by what they do.
func groupTensors(tensors []weights.Tensor) []tensorGroup {
	groups := make([]tensorGroup, len(groupNames))
	for _, t := range tensors {
		g := &groups[slices.Index(groupNames, groupOf(t.Name))]
		g.Tensors++
		g.Parameters += int64(t.Len())
		g.Bytes += int64(len(t.Data))
		g.addType(t)
	}
	filled := []tensorGroup{}
	for i, g := range groups {
		if g.Name = groupNames[i]; g.Tensors > 0 {
			filled = append(filled, g)
		}
	}
	return filled
}

func (g *tensorGroup) addType(t weights.Tensor) {
	name := t.DType.String()
	i := slices.IndexFunc(g.Types, func(c typeCount) bool { return c.Type == name })
	if i < 0 {
		i = len(g.Types)
		g.Types = append(g.Types, typeCount{Type: name})
	}
	g.Types[i].Tensors++
	g.Types[i].Bytes += int64(len(t.Data))
}

// addTokenizer fills in the tokenizer, or why there is none.
func (r *modelReport) addTokenizer(f *weights.File) {
	tok, err := fileTokenizer(f)
	if err != nil {
		r.NoTokenizer = err.Error()
		return
	}
	t := &tokenizerReport{
		Tokens: tok.Len(), AddsBOS: tok.AddsBOS(),
		Specials: []specialToken{}, Ends: []specialToken{},
		BOS: special(tok, tok.BOS()), EOS: special(tok, tok.EOS()),
	}
	t.Model, _ = f.StringOr("tokenizer.ggml.model", "") // the tokenizer has read both
	t.Pre, _ = f.StringOr("tokenizer.ggml.pre", "")
	for id := range int32(tok.Len()) {
		if tok.Special(id) {
			t.Specials = append(t.Specials, *special(tok, id))
		}
	}
	for _, id := range tok.Ends() {
		t.Ends = append(t.Ends, *special(tok, id))
	}
	r.Tokenizer = t
}

// special names a token, nil for one that the vocabulary does not have.
func special(tok *tokenizer.Tokenizer, id int32) *specialToken {
	if id == tokenizer.None {
		return nil
	}
	return &specialToken{ID: id, Text: tok.Text(id)}
}
