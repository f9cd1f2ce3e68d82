package cli

import (
	"bytes"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/page"
	"github.com/gollm/gollm/eval/published"
	"github.com/gollm/gollm/eval/recite"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/tokenizer"
)

const reciteLong = `Have a list of lines written down again, over thousands of decode steps, and draw the share
of right lines against the step: what a sparse method loses while it writes is a curve.

A line is right where it is the line that belongs there. --sort asks for the lines sorted by
their names. A free answer that leaves a line out has all that follow it wrong; --guided reads
the right lines on the way and asks for the number in each, so that every step counts by
itself, also of a model that cannot keep the order.

The folder of -o gets recite-100.csv for each attention, and figures/recite-100.svg, for each
number of lines.`

// reciteFlags is what eval recite can be told.
type reciteFlags struct {
	textFlags
	lines  string
	sorted bool
	guided bool
	seed   uint64
}

func newRecite() *cobra.Command {
	var e reciteFlags
	cmd := &cobra.Command{
		Use:     "recite -m FILE -o DIR",
		Short:   "Write a list down again: what is lost over thousands of decode steps",
		Long:    reciteLong,
		Example: "  gollm eval recite -m model.gguf --lines 100,400 --attn dense --attn 'prefill=dense decode=quest(budget=0.1)' -o recite",
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.execute(cmd) },
	}
	e.run.model.RegisterPath(cmd)
	f := cmd.Flags()
	f.StringVar(&e.lines, "lines", "100", "lines of the list, some numbers with commas; a line is about 20 tokens")
	f.IntVarP(&e.samples, "samples", "n", 4, "lists of each length")
	f.BoolVar(&e.sorted, "sort", false, "ask for the lines sorted by their names")
	f.BoolVar(&e.guided, "guided", false, "read the right lines on the way, and ask for the number in each")
	f.Uint64Var(&e.seed, "seed", 42, "same seed, same lists")
	f.BoolVar(&e.plain, "no-chat", false, "no chat template around the prompt")
	e.template.Register(cmd, "what the model is told before the prompt, in its chat template")
	e.run.register(cmd)
	return cmd
}

func (e *reciteFlags) execute(cmd *cobra.Command) error {
	if err := e.run.check(); err != nil {
		return err
	}
	if e.samples < 1 || e.samples > maxRounds {
		return usage.Errorf("-n %d, want 1 to %d", e.samples, maxRounds)
	}
	lists, err := e.lists()
	if err != nil {
		return usage.Errorf("--lines: %v", err)
	}
	e.length, e.cut = math.MaxInt32, "error" // nothing is cut: what does not fit is an error of the context
	w, err := e.newWriter(cmd, false)
	if err != nil {
		return err
	}
	s := e.textFlags.suite("recite", w, nil)
	s.ident.MaxPrompt, s.ident.Wording = 0, "gollm"
	for name, value := range map[string]any{"lines": e.lines, "sort": e.sorted, "guided": e.guided, "seed": e.seed} {
		s.ident.Options[name] = fmt.Sprint(value)
	}
	for _, l := range lists {
		s.units = append(s.units, e.unit(l, w))
	}
	return e.run.execute(cmd, s, w.tok)
}

// lists reads --lines.
func (e *reciteFlags) lists() ([]recite.List, error) {
	var all []recite.List
	for text := range strings.SplitSeq(e.lines, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", text)
		}
		l := recite.List{Lines: n, Sorted: e.sorted, Seed: e.seed}
		if err := l.Check(); err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	return all, nil
}

// unit is the prompts of a list.
func (e *reciteFlags) unit(l recite.List, w *writer) trial.Unit {
	u := trial.Unit{Info: trial.Info{Name: fmt.Sprintf("pred/recite-%d.jsonl", l.Lines), Task: fmt.Sprintf("%d lines", l.Lines), Count: e.samples}}
	u.Each = func(f func(line int, make func() (trial.Sample, error)) error) error {
		for i := range u.Count {
			if err := f(i, func() (trial.Sample, error) { return e.sample(l, i, w) }); err != nil {
				return err
			}
		}
		return nil
	}
	return u
}

// sample makes the prompt of case i of a list.
func (e *reciteFlags) sample(l recite.List, i int, w *writer) (trial.Sample, error) {
	c := l.Make(i)
	right := newRightAnswer(&c, w.tok, e.guided)
	q := published.Question{Text: c.Text, Split: c.Split, Prefix: c.Prefix, Most: right.most()}
	if e.run.most > 0 {
		q.Most = e.run.most
	}
	s, err := w.question(&q)
	if err != nil {
		return s, err
	}
	a := recite.Answer{ID: i, Steps: right.steps}
	if e.guided {
		s.Forced = right.ids[:min(len(right.ids), q.Most)]
		s.Tokens = func(ids []int32) { a.Truth, a.Said = right.values(ids) }
	}
	s.Grade = func(answer string) (float64, error) {
		if !e.guided {
			a.Truth, a.Said = recite.Free(&c, answer)
		}
		return a.Score(), nil
	}
	s.Row = func(string) any { return a }
	return s, nil
}

// rightAnswer is the right answer in tokens.
type rightAnswer struct {
	tok   *tokenizer.Tokenizer
	ids   []int32
	steps []int // tokens before each line, or its value
	ends  []int // and behind it
	truth []string
}

// newRightAnswer encodes the lines at once, and finds the tokens of each line or of its value.
func newRightAnswer(c *recite.Case, tok *tokenizer.Tokenizer, values bool) *rightAnswer {
	r := &rightAnswer{tok: tok}
	var text strings.Builder
	var spans [][2]int // bytes
	for _, p := range c.Right {
		from, to := text.Len(), text.Len()+len(p.Text())
		if values {
			from, to = from+len(p.Head)-1, from+len(p.Head)+len(p.Value) // with the blank before it
			r.truth = append(r.truth, p.Value)
		}
		spans = append(spans, [2]int{from, to})
		text.WriteString(p.Text())
	}
	r.ids = tok.Encode(text.String(), tokenizer.EncodeOptions{})
	begins := make([]int, 0, len(r.ids)+1)
	at := 0
	for _, id := range r.ids {
		begins, at = append(begins, at), at+len(tok.Piece(id))
	}
	extra := at - text.Len() // a blank that the tokenizer put in front
	for _, span := range spans {
		first, _ := slices.BinarySearch(begins, span[0]+extra+1)
		end, _ := slices.BinarySearch(begins, span[1]+extra)
		r.steps, r.ends = append(r.steps, first-1), append(r.ends, end)
	}
	return r
}

// most is the tokens that a free answer may have: some more than the right one.
func (r *rightAnswer) most() int { return len(r.ids) + len(r.ids)/8 + 16 }

// values is the right values and what was said for them, by the tokens of an answer that may
// have ended before the last.
func (r *rightAnswer) values(ids []int32) (truth, said []string) {
	for i, end := range r.ends {
		text := ""
		if end <= len(ids) {
			text = r.tok.Decode(ids[r.steps[i]:end], tokenizer.DecodeOptions{Continued: true})
		}
		said = append(said, strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD")))
	}
	return r.truth, said
}

// readRecited reads a line of answers.
func readRecited(row []byte) (a recite.Answer, err error) {
	if err := jsonl.Decode(row, &a); err != nil {
		return a, jsonl.Explain(row, err)
	}
	return a, a.Check()
}

// gradeRecited scores a line of a run of recite.
func gradeRecited(_ trial.Info, row []byte) (v trial.Verdict, err error) {
	a, err := readRecited(row)
	score := a.Score()
	return trial.Verdict{Score: &score, Null: len(a.Said) == 0}, err
}

// writeCurves writes the curves of a run of recite into the folders of their settings, and
// returns their figures for the report: one for each length of a list.
func writeCurves(folder string, s *trial.Summary) ([]page.Plot, error) {
	if s.Manifest.Identity.Suite != "recite" {
		return nil, nil
	}
	var plots []page.Plot
	for _, u := range s.Manifest.Units {
		plot := page.Plot{File: strings.TrimSuffix(filepath.Base(u.Name), ".jsonl"), Title: "Right lines of " + u.Task, X: "decode step", Y: "right lines %", Lines: true, Most: 100}
		for i, set := range s.Settings {
			points, err := curveOf(folder, i, s.Manifest.Identity.Times(i), set.Attn, u)
			if err != nil {
				return nil, err
			}
			var b bytes.Buffer
			if err := recite.WriteCSV(&b, points); err != nil {
				return nil, err
			}
			if err := trial.WriteFile(folder, filepath.Join(trial.SettingName(i, set.Attn), plot.File+".csv"), b.Bytes()); err != nil {
				return nil, err
			}
			series := page.Series{Name: set.Attn, Colour: i}
			for _, p := range points {
				y := p.Right
				series.Points = append(series.Points, page.Point{X: p.Step, Y: 100 * y.Mean, Low: 100 * y.Low, High: 100 * y.High,
					Note: fmt.Sprintf("lines %d to %d, %.1f %% of %d", p.From+1, p.To, 100*y.Mean, y.N)})
			}
			plot.Series = append(plot.Series, series)
		}
		if !plot.Empty() {
			plots = append(plots, plot)
		}
	}
	return plots, nil
}

// curveOf is the curve of a unit under a setting, over all its repeats.
func curveOf(folder string, setting, times int, attn string, u trial.Info) ([]recite.Point, error) {
	var all []recite.Answer
	for k := range times {
		name := trial.LogName(setting, attn, k, u.Name)
		answers, err := trial.ReadAnswers(folder, name)
		if err != nil {
			return nil, err
		}
		for line := range u.Count {
			x, ok := answers[line]
			if !ok {
				continue
			}
			a, err := readRecited(x.Row)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", filepath.Join(folder, name), x.Number, err)
			}
			all = append(all, a)
		}
	}
	return recite.Curve(all), nil
}
