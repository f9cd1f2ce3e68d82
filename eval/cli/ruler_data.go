package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/punkt"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
)

const rulerDataLong = `Write the tasks of RULER as JSON lines, in the form of the official generator,
for the tokenizer of a model: DIR/LENGTH/data/TASK/validation.jsonl.

With --ruler DIR the sentences are those of a checkout of NVIDIA/RULER, and the
rows are those that its generator makes with the same seed. Without it they are
our own, and scores are not those of the publication.

Tasks that hide needles in an essay need --haystack: a text, the JSON file of
the official essays, or builtin for sentences that mean nothing. qa_1 and qa_2
need --squad and --hotpotqa, the official files. --tasks offline is what needs
no file.

--fit fine fills a length to the last line or word, not in the official steps
of up to 500 words, and is what makes lengths of 1k or 2k possible.`

const rulerDataExample = `  gollm eval ruler-data -m model.gguf --tasks offline --lengths 4k,8k -o data
  gollm eval ruler-data -m model.gguf --tasks all --ruler RULER --haystack RULER/scripts/data/synthetic/json/PaulGrahamEssays.json \
      --squad squad.json --hotpotqa hotpotqa.json --lengths 32k -n 500 -o data`

// rulerFlags say what rows are made of.
type rulerFlags struct {
	tasks    string
	lengths  string
	samples  int
	seed     uint64
	checkout string
	haystack string
	nltk     string
	squad    string
	hotpot   string
	words    string
	template string
	fit      string
}

func (r *rulerFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.tasks, "tasks", "offline", "tasks with commas between them, or all, or offline: "+strings.Join(ruler.TaskNames(), ", "))
	f.StringVar(&r.lengths, "lengths", "4k", "tokens of prompt and answer together, for example 4k,8k,131072")
	f.IntVarP(&r.samples, "samples", "n", 500, "rows of each task and length")
	f.Uint64Var(&r.seed, "seed", 42, "same seed, same rows")
	f.StringVar(&r.checkout, "ruler", "", "a checkout of NVIDIA/RULER, whose wording is used")
	f.StringVar(&r.haystack, "haystack", "", "what essay tasks hide needles in: a text file, PaulGrahamEssays.json, or builtin")
	f.StringVar(&r.nltk, "nltk", string(punkt.Releases()[0]), "which NLTK's rules cut that text into sentences: "+releaseNames(", "))
	f.StringVar(&r.squad, "squad", "", "dev-v2.0.json of SQuAD, for qa_1")
	f.StringVar(&r.hotpot, "hotpotqa", "", "hotpot_dev_distractor_v1.json of HotpotQA, for qa_2")
	f.StringVar(&r.words, "cwe-words", "", "more words for cwe, needed near 128k tokens: english_words.json, a JSON list, or lines")
	f.StringVar(&r.template, "ruler-template", "base", "chat template in the prompts: a text with {t}, or one of "+strings.Join(ruler.TemplateNames(), ", "))
	f.StringVar(&r.fit, "fit", "official", "how closely a length is filled: official or fine")
	usage.Complete(cmd, "fit", func() []string { return []string{"official", "fine"} })
	usage.Complete(cmd, "nltk", func() []string { return strings.Fields(releaseNames(" ")) })
}

// rulerPlan is what the flags ask for, files read.
type rulerPlan struct {
	tasks   []ruler.Task
	lengths []int
	samples int
	options ruler.Options // task, length and Count aside
	corpora map[string]*ruler.Corpus
	notes   []string // what a report must say
}

// plan reads the flags and the files that they name. warn tells what a user may
// not expect.
func (r *rulerFlags) plan(warn func(format string, args ...any)) (*rulerPlan, error) {
	p := &rulerPlan{samples: r.samples, corpora: map[string]*ruler.Corpus{}}
	var err error
	if p.tasks, err = ruler.PickTasks(r.tasks); err != nil {
		return nil, usage.Errorf("--tasks: %v", err)
	}
	if p.lengths, err = parseLengths(r.lengths); err != nil {
		return nil, usage.Errorf("--lengths: %v", err)
	}
	if err := r.checkSamples(); err != nil {
		return nil, err
	}
	if r.fit != "official" && r.fit != "fine" {
		return nil, usage.Errorf("--fit %s, want official or fine", r.fit)
	}
	p.options = ruler.Options{Seed: r.seed, Fine: r.fit == "fine"}
	if p.options.NLTK, err = punkt.ParseRelease(r.nltk); err != nil {
		return nil, usage.Errorf("--nltk: %v", err)
	}
	if p.options.Template, err = ruler.FindTemplate(r.template); err != nil {
		return nil, usage.Errorf("--ruler-template: %v", err)
	}
	if p.options.Fine {
		p.notes = append(p.notes, "fit fine: lengths are filled to one unit, not in the official steps")
	}
	if err := r.readWording(p, warn); err != nil {
		return nil, err
	}
	p.notes = append(p.notes, "word lists of "+ruler.WordsVersion)
	if essayTasks(p.tasks) != "" {
		p.notes = append(p.notes, "sentences of essays by "+sentencesName(p.options.NLTK))
	}
	return p, r.readFiles(p)
}

// sentencesName is what manifests and reports call the rules that cut essays.
func sentencesName(r punkt.Release) string { return "punkt of NLTK " + string(r) }

// releaseNames lists the releases of NLTK that --nltk knows.
func releaseNames(between string) string {
	var names []string
	for _, r := range punkt.Releases() {
		names = append(names, string(r))
	}
	return strings.Join(names, between)
}

// maxRows is the most rows of a file: two hundred times those of the publication. At
// 4k tokens they are 1.6 GB.
const maxRows = 100000

// checkSamples reports a number of rows that cannot be.
func (r *rulerFlags) checkSamples() error {
	if r.samples < 1 || r.samples > maxRows {
		return usage.Errorf("-n %d, want 1 to %d rows", r.samples, maxRows)
	}
	return nil
}

// readWording takes the official wording from the checkout, or ours.
func (r *rulerFlags) readWording(p *rulerPlan, warn func(format string, args ...any)) error {
	p.options.Wording = ruler.Native
	if r.checkout == "" {
		p.notes = append(p.notes, "wording of gollm, not the official one: scores do not compare with published ones")
		return nil
	}
	w, known, err := ruler.LoadWording(r.checkout)
	if err != nil {
		return err
	}
	if !known {
		warn("the wording in %s is not that of commit c3f5e3b, whose rules the generator follows", r.checkout)
		p.notes = append(p.notes, "wording "+w.Name+", which is not that of RULER's commit c3f5e3b: scores may not compare with published ones")
	}
	p.options.Wording = w
	return nil
}

// readFiles reads what the tasks need.
func (r *rulerFlags) readFiles(p *rulerPlan) error {
	var err error
	for _, t := range p.tasks {
		switch {
		case t.Haystack == ruler.Essay && p.options.Text == "":
			err = r.readHaystack(p)
		case t.Data == "squad":
			err = p.readCorpus(t, r.squad, "--squad")
		case t.Data == "hotpotqa":
			err = p.readCorpus(t, r.hotpot, "--hotpotqa")
		}
		if err != nil {
			return err
		}
	}
	if r.words != "" {
		p.options.MoreWords, err = readWords(r.words)
	}
	return err
}

// fillerWords is how long the built-in text is before it repeats.
const fillerWords = 120000

// readHaystack reads the text of essay tasks.
func (r *rulerFlags) readHaystack(p *rulerPlan) error {
	switch r.haystack {
	case "":
		return usage.Errorf("essay tasks (%s) need a text: --haystack FILE, or --haystack builtin, or --tasks offline to leave them out", essayTasks(p.tasks))
	case "builtin":
		p.options.Text = ruler.Filler(1, fillerWords)
		p.notes = append(p.notes, "haystack: "+ruler.FillerName)
		return nil
	}
	b, err := userfile.ReadLimited(r.haystack, userfile.MaxText)
	if err != nil {
		return err
	}
	p.options.Text = string(b)
	var essays struct {
		Text string `json:"text"`
	}
	if jsonl.Decode(b, &essays) == nil && essays.Text != "" {
		p.options.Text = essays.Text
		p.notes = append(p.notes, "haystack: the field text of "+filepath.Base(r.haystack))
		return nil
	}
	p.notes = append(p.notes, "haystack: essay-substitute ("+filepath.Base(r.haystack)+")")
	return nil
}

// essayTasks names the tasks that need a text.
func essayTasks(tasks []ruler.Task) string {
	var names []string
	for _, t := range tasks {
		if t.Haystack == ruler.Essay {
			names = append(names, t.Name)
		}
	}
	return strings.Join(names, ", ")
}

// readCorpus reads the file of a question task.
func (p *rulerPlan) readCorpus(t ruler.Task, path, flag string) error {
	if path == "" {
		return usage.Errorf("%s needs a file: %s FILE; --tasks leaves the task out", t.Name, flag)
	}
	f, err := openData(path)
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	c, err := ruler.LoadCorpus(t, path)
	if err != nil {
		return err
	}
	p.corpora[t.Name] = c
	return nil
}

// readWords reads words: the values of a JSON object, a JSON list, or lines.
func readWords(path string) ([]string, error) {
	b, err := userfile.ReadLimited(path, userfile.MaxText)
	if err != nil {
		return nil, err
	}
	words, err := ruler.ParseWords(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return words, nil
}

// generator makes the generator of one file.
func (p *rulerPlan) generator(t ruler.Task, length int, tok *tokenizer.Tokenizer) (*ruler.Generator, error) {
	o := p.options
	o.Task, o.Length, o.Corpus = t, length, p.corpora[t.Name]
	o.Count = func(text string) int { return len(tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})) }
	return ruler.NewGenerator(o)
}

// parseLengths reads numbers of tokens; k stands for 1024, M for 1024k. A length that is named
// twice is one: its samples would count twice.
func parseLengths(list string) ([]int, error) {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		n, ok := openmodel.TokenCount(part)
		if !ok {
			return nil, fmt.Errorf("%q, want numbers of tokens such as 4096 or 4k", part)
		}
		if !slices.Contains(all, n) {
			all = append(all, n)
		}
	}
	return all, nil
}

// rulerDataFlags is what ruler-data can be told.
type rulerDataFlags struct {
	model openmodel.Flags
	ruler rulerFlags
	out   string
	under string // folder in out that has the files; empty is out itself
}

func newRulerData() *cobra.Command {
	var d rulerDataFlags
	cmd := &cobra.Command{
		Use:     "ruler-data -m FILE -o DIR",
		Short:   "Write the tasks of RULER as files",
		Long:    rulerDataLong,
		Example: rulerDataExample,
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd) },
	}
	d.model.RegisterPath(cmd)
	cmd.Flags().StringVarP(&d.out, "out", "o", "", "folder to write to (required)")
	_ = cmd.MarkFlagDirname("out") // fails only for a flag that does not exist
	d.ruler.register(cmd)
	return cmd
}

func (d *rulerDataFlags) run(cmd *cobra.Command) error {
	if err := d.model.CheckPath(); err != nil {
		return err
	}
	if d.out == "" {
		return usage.Errorf("no folder: name one with -o DIR")
	}
	p, err := d.ruler.plan(console.Warner(cmd))
	if err != nil {
		return err
	}
	tok, err := openmodel.OpenTokenizer(d.model.Path)
	if err != nil {
		return err
	}
	t := console.NewTable("length", "rows", "units", "least tokens", "most tokens")
	t.AppendHeader(table.Row{"task", "length", "rows", "units", "least tokens", "most tokens", "file"})
	for _, length := range p.lengths {
		for _, task := range p.tasks {
			row, err := d.write(cmd.Context(), p, task, length, tok)
			if err != nil {
				return err
			}
			t.AppendRow(row)
		}
	}
	for _, note := range p.notes {
		cmd.PrintErrln("note:", console.OneLine(note))
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	return err
}

// write makes one file and returns what there is to say about it. The file
// appears when it is complete. When ctx is done there is none.
func (d *rulerDataFlags) write(ctx context.Context, p *rulerPlan, task ruler.Task, length int, tok *tokenizer.Tokenizer) (row table.Row, err error) {
	g, err := p.generator(task, length, tok)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(d.out, 0o777); err != nil {
		return nil, err
	}
	name := ruler.DataPath(d.under, length, task)
	err = trial.InFolder(d.out, name, func(root *os.Root) (err error) {
		row, err = d.fill(ctx, root, name, p, task, g)
		return err
	})
	return append(table.Row{task.Name, length}, append(row, filepath.Join(d.out, name))...), err
}

// fill writes the rows of a generator into a file of the root.
func (d *rulerDataFlags) fill(ctx context.Context, root *os.Root, name string, p *rulerPlan, task ruler.Task, g *ruler.Generator) (row table.Row, err error) {
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return nil, err
	}
	part := name + ".part"
	f, err := root.Create(part)
	if err != nil {
		return nil, err
	}
	defer func() {
		f.Close()
		if err != nil {
			err = errors.Join(err, root.Remove(part))
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	least, most := 0, 0
	for i := range p.samples {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r, err := g.Next()
		if err != nil {
			return nil, err
		}
		if least = min(least, r.Length); i == 0 {
			least = r.Length
		}
		most = max(most, r.Length)
		if err := ruler.WriteRow(w, task, &r); err != nil {
			return nil, err
		}
	}
	if err := w.Flush(); err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	for _, note := range g.Notes() {
		if !slices.Contains(p.notes, note) {
			p.notes = append(p.notes, note)
		}
	}
	return table.Row{p.samples, g.Units(), least, most}, root.Rename(part, name)
}
