package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/weights"
)

const inspectLong = `Show what is in a GGUF file: the architecture, how the weights are quantized,
how much memory they and the KV cache need, the tokenizer and the chat template.

It reads the header only, so it is quick for a file of any size, and it works on
files that gollm cannot run: those without weights, those of other architectures
and those with tensors of types that gollm does not compute with, which it marks.`

const inspectExample = `  gollm inspect model.gguf
  gollm inspect model.gguf --tensors
  gollm inspect model.gguf --template > template.jinja
  gollm inspect model.gguf --json | jq .memory
  gollm inspect model.gguf --json --tensors | jq -r '.tensors[] | [.name, .type, .bytes] | @tsv'`

// inspectFlags is what inspect can be told.
type inspectFlags struct {
	path     string // of -m, which the other commands have
	tensors  bool
	metadata bool
	template bool
	json     bool
	rope     openmodel.RopeFlags
}

func newInspect() *cobra.Command {
	var i inspectFlags
	cmd := &cobra.Command{
		Use:        "inspect FILE",
		Short:      "Show what is in a GGUF file",
		Long:       inspectLong,
		Example:    inspectExample,
		GroupID:    groupLook,
		Args:       func(cmd *cobra.Command, args []string) error { return oneFile(cmd, i.files(args)) },
		SuggestFor: []string{"show", "info", "dump", "gguf-dump"},
		RunE:       func(cmd *cobra.Command, args []string) error { return i.run(cmd, i.files(args)[0]) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"gguf"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	f := cmd.Flags()
	f.StringVarP(&i.path, "model", "m", "", "the file, as the other commands name it")
	_ = cmd.MarkFlagFilename("model", "gguf") // fails only for a flag that does not exist
	f.BoolVar(&i.tensors, "tensors", false, "list the tensors")
	f.BoolVar(&i.metadata, "metadata", false, "list the metadata, long values shortened")
	f.BoolVar(&i.template, "template", false, "print the chat template, whole and nothing else")
	f.BoolVar(&i.json, "json", false, "print one JSON object; --tensors and --metadata add theirs to it, whole")
	i.rope.Register(cmd)
	return cmd
}

// files is the arguments and the file of -m.
func (i *inspectFlags) files(args []string) []string {
	if i.path != "" {
		args = append(slices.Clip(args), i.path)
	}
	return args
}

// oneFile wants the name of one file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage.Errorf("%d files, want one: gollm %s FILE", len(args), cmd.Name())
	}
	return nil
}

func (i *inspectFlags) run(cmd *cobra.Command, path string) error {
	if i.json && i.template {
		return usage.Errorf("--json has the template, as chat_template: leave out --template")
	}
	if err := i.rope.Check(); err != nil {
		return err
	}
	f, err := weights.Open(path)
	if err != nil {
		return userfile.OpenError("", path, userfile.GGUF, err)
	}
	defer f.Close()
	r, err := inspectFile(f, i.rope.RopeOptions)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch {
	case i.json:
		if i.tensors {
			r.Tensors = tensorReports(f.Tensors())
		}
		if i.metadata {
			r.Metadata = metadataValues(f)
		}
		return console.WriteJSON(out, r)
	case i.template:
		if r.Template == "" {
			return fmt.Errorf("%s has no chat template", path)
		}
		_, err := io.WriteString(console.TextOut(cmd), r.Template)
		return err
	}
	text := r.text()
	if i.tensors {
		text += "\n" + tensorTable(f.Tensors())
	}
	if i.metadata {
		text += "\n" + metadataTable(f)
	}
	_, err = io.WriteString(out, text)
	return err
}

// text is the report for people.
func (r *modelReport) text() string {
	var b strings.Builder
	b.WriteString(r.headText())
	if len(r.Groups) > 0 {
		b.WriteString("\n" + r.groupTable())
	}
	if len(r.Memory) > 0 && len(r.Groups) > 0 {
		b.WriteString("\n" + r.memoryTable())
	}
	b.WriteString("\n" + r.tokenizerText())
	b.WriteString("\n" + r.templateText())
	return b.String()
}

// maxName is the characters of a name that are shown; --json has it whole.
const maxName = 200

// headText is the file and the shape of the model.
func (r *modelReport) headText() string {
	t := console.NewTable()
	t.AppendRow(table.Row{"file", r.File + partsText(r.Parts) + ", " + console.SizeText(r.Bytes)})
	if r.Name != "" {
		t.AppendRow(table.Row{"name", shorten(r.Name, maxName)})
	}
	t.AppendRow(table.Row{"architecture", shorten(r.Architecture, maxName)})
	if r.Runs {
		t.AppendRow(table.Row{"gollm runs it", "yes"})
	} else {
		t.AppendRow(table.Row{"gollm runs it", "no: " + r.WhyNot})
	}
	if r.Parameters > 0 {
		t.AppendRow(table.Row{"parameters", fmt.Sprintf("%s (%d)", console.CountText(r.Parameters), r.Parameters)})
	}
	if r.Shape != nil {
		t.AppendRows(r.Shape.rows())
	}
	for _, o := range r.Others {
		t.AppendRow(table.Row{strings.ReplaceAll(o.Name, "_", " "), fmt.Sprint(o.Value)})
	}
	return t.Render() + "\n"
}

// rows is the shape for people.
func (s *shapeReport) rows() []table.Row {
	rows := []table.Row{
		{"layers", fmt.Sprint(s.Layers)},
		{"width", fmt.Sprint(s.Width)},
		{"feed-forward width", fmt.Sprint(s.FeedWidth)},
		{"heads", fmt.Sprintf("%d of width %d", s.Heads, s.HeadWidth)},
		{"kv heads", fmt.Sprint(s.KVHeads)},
		{"context", fmt.Sprintf("%d tokens trained", s.Context)},
	}
	if s.Rope.Original < s.Context {
		rows[len(rows)-1][1] = fmt.Sprintf("%d tokens, extended from %d", s.Context, s.Rope.Original)
	}
	if s.Window > 0 {
		rows = append(rows, table.Row{"sliding window", fmt.Sprintf("%d tokens", s.Window)})
	}
	rope := fmt.Sprintf("base %g over %d dimensions", s.Rope.Base, s.Rope.Dims)
	if s.Rope.Halves {
		rope += ", in halves"
	}
	if s.Rope.Scaling != string(model.NoScaling) {
		rope += fmt.Sprintf(", %s scaling by %g", s.Rope.Scaling, s.Rope.Factor)
	}
	if s.Rope.Scale != 1 {
		rope += fmt.Sprintf(", rotated values times %.4g", s.Rope.Scale)
	}
	if s.Rope.Factors {
		rope += ", with frequency factors of the file (rope_freqs)"
	}
	return append(rows, table.Row{"rope", rope})
}

// partsText says that a model has several files.
func partsText(parts []string) string {
	if len(parts) == 1 {
		return ""
	}
	return fmt.Sprintf(" and the rest of %d files", len(parts))
}

// groupTable is how the weights are quantized.
func (r *modelReport) groupTable() string {
	t := console.NewTable("tensors", "parameters", "size", "bits each")
	t.AppendHeader(table.Row{"weights", "tensors", "parameters", "size", "bits each", "types"})
	var tensors int
	var params, bytes int64
	for _, g := range r.Groups {
		t.AppendRow(table.Row{g.Name, g.Tensors, console.CountText(g.Parameters), console.SizeText(g.Bytes), bitsEach(g.Bytes, g.Parameters), typesText(g.Types)})
		tensors += g.Tensors
		params += g.Parameters
		bytes += g.Bytes
	}
	t.AppendRow(table.Row{"all", tensors, console.CountText(params), console.SizeText(bytes), bitsEach(bytes, params), ""})
	return t.Render() + "\n"
}

// bitsEach is the mean size of a parameter.
func bitsEach(bytes, params int64) string {
	return fmt.Sprintf("%.2f", 8*float64(bytes)/float64(max(params, 1)))
}

// typesText is the types of a group, for example "193 Q4_K, 33 Q6_K".
func typesText(types []typeCount) string {
	var all []string
	for _, c := range types {
		all = append(all, fmt.Sprintf("%d %s", c.Tensors, typeText(c.Type, c.Supported)))
	}
	return strings.Join(all, ", ")
}

// typeText is the name of a type, marked where gollm cannot compute with it.
func typeText(name string, supported bool) string {
	if supported {
		return name
	}
	return name + " (unsupported)"
}

// memoryTable is the memory that one sequence needs.
func (r *modelReport) memoryTable() string {
	t := console.NewTable("memory", "weights", "KV f16", "together", "KV f32")
	t.AppendHeader(table.Row{"memory", "weights", "KV f16", "together", "KV f32"})
	for _, m := range r.Memory {
		t.AppendRow(table.Row{
			fmt.Sprintf("%d tokens", m.Context), console.SizeText(m.Weights), console.SizeText(m.KVF16), console.SizeText(m.Weights + m.KVF16), console.SizeText(m.KVF32),
		})
	}
	return t.Render() + "\n"
}

// tokenizerText describes the tokenizer.
func (r *modelReport) tokenizerText() string {
	t := console.NewTable()
	if r.Tokenizer == nil {
		t.AppendRow(table.Row{"tokenizer", "none that gollm can use: " + r.NoTokenizer})
		return t.Render() + "\n"
	}
	tok := r.Tokenizer
	kind := map[string]string{"gpt2": "byte-level BPE", "llama": "SentencePiece BPE"}[tok.Model]
	name := tok.Model
	if tok.Pre != "" {
		name += ", pre-tokenizer " + tok.Pre
	}
	t.AppendRow(table.Row{"tokenizer", fmt.Sprintf("%s (%s)", kind, name)})
	t.AppendRow(table.Row{"tokens", fmt.Sprintf("%d, %d of them special", tok.Tokens, len(tok.Specials))})
	t.AppendRow(table.Row{"special", specialsText(tok.Specials)})
	added := ", not added to prompts"
	if tok.AddsBOS {
		added = ", added to prompts"
	}
	t.AppendRow(table.Row{"BOS", tokenText(tok.BOS) + added})
	t.AppendRow(table.Row{"EOS", tokenText(tok.EOS)})
	t.AppendRow(table.Row{"ends a text", specialsText(tok.Ends)})
	return t.Render() + "\n"
}

func tokenText(s *specialToken) string {
	if s == nil {
		return "none"
	}
	return fmt.Sprintf("%d %q", s.ID, s.Text)
}

// maxSpecials bounds the tokens that are named: Llama-3 has 256, nearly all of
// them reserved.
const maxSpecials = 8

func specialsText(specials []specialToken) string {
	var all []string
	for i, s := range specials {
		if i == maxSpecials {
			all = append(all, fmt.Sprintf("and %d more", len(specials)-i))
			break
		}
		all = append(all, fmt.Sprintf("%d %q", s.ID, s.Text))
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// templateLines is how much of a template the report shows.
const templateLines = 5

// templateText shows the beginning of the chat template.
func (r *modelReport) templateText() string {
	if r.Template == "" {
		return "chat template: none in the file\n"
	}
	text := strings.TrimRight(r.Template, "\n")
	count, lines := strings.Count(text, "\n")+1, strings.SplitN(text, "\n", templateLines+1)
	shown := lines[:min(len(lines), templateLines)]
	var b strings.Builder
	fmt.Fprintf(&b, "chat template: %s, %s (--template prints it)\n", console.Plural(count, "line"), console.SizeText(int64(len(r.Template))))
	for _, l := range shown {
		fmt.Fprintf(&b, "  %s\n", shorten(console.OneLine(l), 100))
	}
	if len(lines) > len(shown) {
		b.WriteString("  ...\n")
	}
	return b.String()
}

// tensorTable lists tensors in file order.
func tensorTable(tensors []weights.Tensor) string {
	t := console.NewTable("size")
	t.AppendHeader(table.Row{"tensor", "type", "shape", "size"})
	for _, w := range tensors {
		t.AppendRow(table.Row{w.Name, typeText(w.Type(), w.Supported()), strings.Trim(fmt.Sprint(w.Shape), "[]"), console.SizeText(int64(len(w.Data)))})
	}
	return t.Render() + "\n"
}

// metadataTable lists the keys in file order.
func metadataTable(f *weights.File) string {
	t := console.NewTable()
	t.AppendHeader(table.Row{"key", "value"})
	for _, key := range f.Keys() {
		t.AppendRow(table.Row{key, valueText(f, key)})
	}
	return t.Render() + "\n"
}

// valueText is a metadata value, shortened.
func valueText(f *weights.File, key string) string {
	if s, err := f.String(key); err == nil {
		return shorten(fmt.Sprintf("%.80q", s), 80)
	}
	if n, err := f.Int(key); err == nil {
		return fmt.Sprint(n)
	}
	if x, err := f.Float(key); err == nil {
		return fmt.Sprintf("%.7g", x)
	}
	if b, err := f.Bool(key); err == nil {
		return fmt.Sprint(b)
	}
	if all, err := f.Strings(key); err == nil {
		return listText(all, "%.40q")
	}
	if all, err := f.Ints(key); err == nil {
		return listText(all, "%d")
	}
	if all, err := f.Floats(key); err == nil {
		return listText(all, "%.7g")
	}
	return "a value of a type that is not shown"
}

// listText is the length and the beginning of a list.
func listText[T any](all []T, format string) string {
	var first []string
	for _, v := range all[:min(len(all), 4)] {
		first = append(first, shorten(fmt.Sprintf(format, v), 40))
	}
	dots := ""
	if len(all) > len(first) {
		dots = ", ..."
	}
	return fmt.Sprintf("%d: [%s%s]", len(all), strings.Join(first, ", "), dots)
}

// shorten cuts a text to n characters.
func shorten(s string, n int) string {
	chars, cut := 0, 0
	for at := range s {
		if chars == n-3 {
			cut = at
		}
		if chars++; chars > n {
			return s[:cut] + "..."
		}
	}
	return s
}
