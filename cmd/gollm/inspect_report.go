package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
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
	Shape        *shapeReport     `json:"hyper_parameters,omitempty"` // of an architecture that gollm knows
	Others       []otherParameter `json:"other_parameters,omitempty"` // of another one
	Groups       []tensorGroup    `json:"tensor_groups"`
	Tensors      []tensorReport   `json:"tensors,omitempty"`  // with --tensors
	Metadata     map[string]any   `json:"metadata,omitempty"` // with --metadata: the file's values as they are
	Memory       []memoryNeed     `json:"memory"`
	Tokenizer    *tokenizerReport `json:"tokenizer,omitempty"`
	NoTokenizer  string           `json:"no_tokenizer,omitempty"`
	Template     string           `json:"chat_template,omitempty"`
}

// shapeReport is the shape of a model; widths are in elements.
type shapeReport struct {
	Layers    int        `json:"layers"`
	Width     int        `json:"width"`
	FeedWidth int        `json:"feed_forward_width"`
	Heads     int        `json:"heads"`
	HeadWidth int        `json:"head_width"`
	KVHeads   int        `json:"kv_heads"`
	Context   int        `json:"context_tokens"` // trained, or extended
	Window    int        `json:"sliding_window_tokens,omitempty"`
	Eps       float32    `json:"norm_epsilon"`
	Rope      ropeReport `json:"rope"`
}

// ropeReport is the rotary embedding of a model.
type ropeReport struct {
	Base     float64 `json:"base"`
	Dims     int     `json:"dimensions"`
	Halves   bool    `json:"halves"`  // pairs are elements i and i + dimensions/2, not 2i and 2i + 1
	Scaling  string  `json:"scaling"` // none, linear or yarn
	Factor   float64 `json:"factor"`
	Original int     `json:"original_context_tokens"` // before scaling
	Scale    float32 `json:"scale"`                   // what rotated queries and keys are multiplied by
	Factors  bool    `json:"frequency_factors"`       // the file has a tensor of them, as Llama-3.1 and 3.2 do
}

// otherParameter is a whole number in the metadata of an architecture that gollm
// does not know, without the architecture's name.
type otherParameter struct {
	Name  string `json:"name"`
	Value int    `json:"value"`
}

// tensorReport is one tensor.
type tensorReport struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Supported  bool   `json:"supported"`
	Shape      []int  `json:"shape"` // slowest dimension first
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
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
	Type      string `json:"type"`
	Supported bool   `json:"supported"` // gollm computes with it
	Tensors   int    `json:"tensors"`
	Bytes     int64  `json:"bytes"`
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
func inspectFile(f *weights.File, o model.RopeOptions) (*modelReport, error) {
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
	r.addModel(f, o)
	return r, nil
}

// addModel fills in the shape, the memory and whether gollm runs the model.
func (r *modelReport) addModel(f *weights.File, o model.RopeOptions) {
	c, err := model.ReadConfig(f, o)
	switch {
	case len(f.Tensors()) == 0:
		r.WhyNot = "the file has a vocabulary but no weights"
	case err != nil:
		r.WhyNot = console.Message(err)
	case r.Tokenizer == nil:
		r.WhyNot = r.NoTokenizer
	default:
		if _, err := model.LoadRope(f, dryDevice{}, o); err != nil {
			r.WhyNot = console.Message(err)
		}
	}
	r.Runs = r.WhyNot == ""
	if err != nil {
		r.Others = otherParameters(f, r.Architecture)
		return
	}
	r.Shape = newShapeReport(c)
	r.Shape.Rope.Factors = f.HasTensor("rope_freqs.weight")
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

// newShapeReport is the shape of a model that gollm knows.
func newShapeReport(c model.Config) *shapeReport {
	return &shapeReport{
		Layers: c.Layers, Width: c.Dim, FeedWidth: c.FF, Heads: c.Heads, HeadWidth: c.HeadDim, KVHeads: c.KVHeads,
		Context: c.Context, Window: c.Window, Eps: c.Eps,
		Rope: ropeReport{
			Base: c.Rope.Base, Dims: c.Rope.Dims, Halves: c.Rope.Halves, Scaling: string(c.Rope.Rule()), Factor: c.Rope.Factor,
			Original: c.Rope.Original, Scale: c.Rope.Scale(),
		},
	}
}

// otherParameters lists the whole numbers that the metadata of an architecture
// has.
func otherParameters(f *weights.File, arch string) []otherParameter {
	var all []otherParameter
	for _, key := range f.Keys() {
		name, ours := strings.CutPrefix(key, arch+".")
		if n, err := f.Int(key); ours && err == nil {
			all = append(all, otherParameter{name, n})
		}
	}
	return all
}

// tensorReports lists tensors in file order.
func tensorReports(tensors []weights.Tensor) []tensorReport {
	all := []tensorReport{}
	for _, t := range tensors {
		all = append(all, tensorReport{
			Name: t.Name, Type: t.Type(), Supported: t.Supported(), Shape: t.Shape, Parameters: int64(t.Len()), Bytes: int64(len(t.Data)),
		})
	}
	return all
}

// metadataValues is the metadata as values of JSON.
func metadataValues(f *weights.File) map[string]any {
	all := map[string]any{}
	for _, key := range f.Keys() {
		all[key] = metadataValue(f, key)
	}
	return all
}

// metadataValue is a value of the metadata as one of JSON, nil where it has
// none. JSON knows no infinite numbers: they are text.
func metadataValue(f *weights.File, key string) any {
	if s, err := f.String(key); err == nil {
		return s
	}
	if n, err := f.Int(key); err == nil {
		return n
	}
	if x, err := f.Float(key); err == nil {
		return finite(x)
	}
	if b, err := f.Bool(key); err == nil {
		return b
	}
	if all, err := f.Strings(key); err == nil {
		return all
	}
	if all, err := f.Ints(key); err == nil {
		return all
	}
	if all, err := f.Floats(key); err == nil {
		list := []any{}
		for _, x := range all {
			list = append(list, finite(x))
		}
		return list
	}
	return nil
}

// finite is x, or the text of x where it is infinite or no number.
func finite(x float64) any {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return fmt.Sprint(x)
	}
	return x
}

// groupNames is the order in which groups are shown.
var groupNames = []string{"embedding", "attention", "feed-forward", "norms", "output", "rope", "other"}

// groupOf is the job of a tensor.
func groupOf(name string) string {
	switch {
	case strings.Contains(name, "norm"):
		return "norms"
	case strings.HasPrefix(name, "token_embd"):
		return "embedding"
	case strings.HasPrefix(name, "output"):
		return "output"
	case strings.HasPrefix(name, "rope_"):
		return "rope"
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
	i := slices.IndexFunc(g.Types, func(c typeCount) bool { return c.Type == t.Type() })
	if i < 0 {
		i = len(g.Types)
		g.Types = append(g.Types, typeCount{Type: t.Type(), Supported: t.Supported()})
	}
	g.Types[i].Tensors++
	g.Types[i].Bytes += int64(len(t.Data))
}

// addTokenizer fills in the tokenizer, or why there is none.
func (r *modelReport) addTokenizer(f *weights.File) {
	tok, err := openmodel.FileTokenizer(f)
	if err != nil {
		r.NoTokenizer = console.Message(err)
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
