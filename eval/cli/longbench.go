package cli

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
)

const longbenchLong = `Evaluate a model on LongBench version 1, with the prompts of the official
repository, its truncation from the middle, and its metrics to the digit.

--longbench is a checkout of THUDM/LongBench, --data the folder of the unzipped
data.zip. A prompt is wrapped in the chat template of the model where there is
one, but for the few-shot and code data sets, as in the official code.

multifieldqa_zh, dureader and vcsum are scored over words of Chinese, for which
--jieba names the folder of the Python package jieba. Without it their answers are
written and not scored.`

// longFlags are what both versions of LongBench can be told.
type longFlags struct {
	textFlags
	checkout string
}

func (l *longFlags) register(cmd *cobra.Command, data string) {
	l.run.model.RegisterPath(cmd)
	cmd.Flags().StringVar(&l.checkout, "longbench", "", "a checkout of THUDM/LongBench (required)")
	_ = cmd.MarkFlagDirname("longbench") // fails only for a flag that does not exist
	l.textFlags.register(cmd, data)
	cmd.Flags().BoolVar(&l.plain, "no-chat", false, "no chat template around any prompt")
	l.run.registerPreset(cmd)
	l.run.register(cmd)
}

func (l *longFlags) check() error {
	if err := l.run.check(); err != nil {
		return err
	}
	if l.checkout == "" {
		return usage.Errorf("no prompts: --longbench DIR names a checkout of THUDM/LongBench")
	}
	return l.textFlags.check()
}

// longbenchFlags is what eval longbench can be told.
type longbenchFlags struct {
	longFlags
	tasks string
	e     bool
	code  string
	jieba string
}

func newLongbench() *cobra.Command {
	var e longbenchFlags
	cmd := &cobra.Command{
		Use:     "longbench -m FILE --longbench DIR --data DIR -o DIR",
		Short:   "Evaluate on LongBench version 1",
		Long:    longbenchLong,
		Example: "  gollm eval longbench -m model.gguf --longbench LongBench --data data --tasks en -o longbench",
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.execute(cmd) },
	}
	e.register(cmd, "the folder of NAME.jsonl of the unzipped data.zip (required)")
	cmd.Flags().StringVar(&e.tasks, "tasks", "en", "data sets with commas between them, or all, en (sixteen) or e (those of LongBench-E)")
	cmd.Flags().BoolVar(&e.e, "e", false, "the files of LongBench-E, NAME_e.jsonl")
	cmd.Flags().StringVar(&e.jieba, "jieba", "", jiebaUsage)
	_ = cmd.MarkFlagDirname("jieba") // fails only for a flag that does not exist
	cmd.Flags().StringVar(&e.code, "code-sim", string(metric.Difflib), "what compares lines of code: difflib or levenshtein")
	return cmd
}

func (e *longbenchFlags) execute(cmd *cobra.Command) error {
	remarks, err := e.run.usePreset(cmd, "longbench")
	if err != nil {
		return err
	}
	if err := e.check(); err != nil {
		return err
	}
	if err := checkCodeSim(e.code); err != nil {
		return err
	}
	sets, err := longbench.Pick(e.tasks)
	if err != nil {
		return usage.Errorf("--tasks: %v", err)
	}
	prompts, err := longbench.LoadSuite(e.checkout)
	if err != nil {
		return err
	}
	w, err := e.newWriter(cmd, false)
	if err != nil {
		return err
	}
	s := e.suite("longbench", w, remarks)
	if !prompts.Known {
		s.notes = append(s.notes, "the configuration of the checkout is not that of commit 2e00731")
	}
	o := longbench.Options{Code: metric.CodeBackend(e.code)}
	if o.Words, err = openSplitter(e.jieba); err != nil {
		return err
	}
	if s.words = o.Words; o.Words != nil {
		s.ident.Options["jieba_sha256"] = o.Words.Hash
		if !o.Words.Known {
			s.notes = append(s.notes, "the words of Chinese are those of tables that are not those of jieba 0.42.1")
		}
	}
	s.ident.Options["code_sim"], s.ident.Options["rouge_recursion_limit"] = e.code, fmt.Sprint(metric.RougeSteps)
	for _, d := range sets {
		if !d.Scorable(o) {
			s.notes = append(s.notes, d.Name+" is answered and not scored, and part of no mean: that needs the words of jieba, whose folder --jieba names; or score its answers with the official eval.py")
		}
		if err := e.addSet(s, d, prompts, w, o); err != nil {
			return err
		}
	}
	return e.run.execute(cmd, s, w.tok)
}

// addSet makes the unit of a data set.
func (e *longbenchFlags) addSet(s *suite, d longbench.Dataset, prompts *longbench.Suite, w *writer, o longbench.Options) error {
	path := longbench.DataPath(e.data, d, e.e)
	folder := "pred"
	if e.e {
		folder = longbenchE
	}
	u := trial.Unit{Info: trial.Info{Name: folder + "/" + d.Name + ".jsonl", Task: d.Name, Group: d.Category, Unscored: !d.Scorable(o)}}
	newline := w.newline()
	u.Each = func(f func(line int, make func() (trial.Sample, error)) error) error {
		return e.rows(path, d, func(line int, r *longbench.Row) error {
			return f(line, func() (trial.Sample, error) {
				s, err := e.sample(d, r, prompts, w, o, newline)
				return s, atLine(path, r.Line, err)
			})
		})
	}
	if err := e.rows(path, d, func(line int, _ *longbench.Row) error {
		u.Count = line + 1
		return nil
	}); err != nil {
		return userfile.OpenError("", path, "a file of the unzipped data.zip, whose folder is --data; --tasks leaves data sets out", err)
	}
	if u.Count == 0 {
		return fmt.Errorf("%s has no samples, want a line of JSON for each", path)
	}
	var err error
	s.ident.Data[u.Name], err = hashFile(path)
	s.units = append(s.units, u)
	return err
}

// atLine says which line of a file, from 1, an error is about.
func atLine(path string, line int, err error) error {
	if err != nil {
		err = fmt.Errorf("%s:%d: %w", path, line, err)
	}
	return err
}

// atItem says which item of a file, from 0, an error is about.
func atItem(path string, item int, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: item %d: %w", path, item, err)
	}
	return err
}

// rows calls f for the first rows of a data set.
func (e *longbenchFlags) rows(path string, d longbench.Dataset, f func(line int, r *longbench.Row) error) error {
	return withFile(path, func(file io.Reader) error {
		in := longbench.NewReader(path, d, file)
		in.E = e.e
		for line := 0; e.samples == 0 || line < e.samples; line++ {
			r, err := in.Next()
			if err == io.EOF {
				return nil
			}
			if err == nil {
				err = f(line, &r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// sample makes the prompt of a row.
func (e *longbenchFlags) sample(d longbench.Dataset, r *longbench.Row, prompts *longbench.Suite, w *writer, o longbench.Options, newline int32) (trial.Sample, error) {
	most := prompts.NewTokens(d)
	if e.run.most > 0 {
		most = e.run.most
	}
	text, split := prompts.Prompt(d, r)
	s, err := w.write(text, split, most, !d.Bare)
	if err != nil {
		return s, err
	}
	if d.Name == "samsum" { // the official code asks for a token at least and stops at a line end
		s.One, s.StopIDs = true, []int32{newline}
	}
	row := *r
	s.Row = func(answer string) any {
		return longbench.Prediction{Pred: answer, Answers: row.Answers, AllClasses: row.AllClasses, Length: row.Length, ID: row.ID, Dataset: row.Dataset}
	}
	s.Grade = func(answer string) (float64, error) {
		if !d.Scorable(o) {
			return 0, nil
		}
		return d.Grade(answer, row.Answers, row.AllClasses, o)
	}
	return s, nil
}

// newline is the last token of a line end.
func (w *writer) newline() int32 {
	ids := w.tok.Encode("\n", tokenizer.EncodeOptions{})
	if len(ids) == 0 {
		return tokenizer.None
	}
	return ids[len(ids)-1]
}

const longbench2Long = `Evaluate a model on LongBench version 2: 503 questions with four choices.

--longbench is a checkout of THUDM/LongBench, --data its data.json or the same as
lines. Answers are greedy, where the official code has a temperature of 0.1.`

func newLongbench2() *cobra.Command {
	var l longFlags
	cmd := &cobra.Command{
		Use:     "longbench2 -m FILE --longbench DIR --data FILE -o DIR",
		Short:   "Evaluate on LongBench version 2",
		Long:    longbench2Long,
		Example: "  gollm eval longbench2 -m model.gguf --longbench LongBench --data data.json -o longbench2",
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return l.two(cmd) },
	}
	l.register(cmd, "data.json of THUDM/LongBench-v2 (required)")
	return cmd
}

// twoTokens is the tokens of an answer of version 2.
const twoTokens = 128

func (l *longFlags) two(cmd *cobra.Command) error {
	remarks, err := l.run.usePreset(cmd, "longbench2")
	if err != nil {
		return err
	}
	if err := l.check(); err != nil {
		return err
	}
	template, known, err := longbench.LoadForm(l.checkout, longbench.ZeroShot)
	if err != nil {
		return err
	}
	w, err := l.newWriter(cmd, true)
	if err != nil {
		return err
	}
	s := l.suite("longbench2", w, remarks)
	s.notes = append(s.notes, "greedy answers; the official code has a temperature of 0.1")
	if !known {
		s.notes = append(s.notes, "the prompt of the checkout is not that of commit 2e00731")
	}
	u, err := l.items(template, w)
	if err != nil {
		return err
	}
	if s.ident.Data[u.Name], err = hashFile(l.data); err != nil {
		return err
	}
	s.units = []trial.Unit{*u}
	return l.run.execute(cmd, s, w.tok)
}

// items makes the unit of the questions.
func (l *longFlags) items(template string, w *writer) (*trial.Unit, error) {
	file, err := openData(l.data)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	items, err := longbench.ReadItems(l.data, file)
	if err != nil {
		return nil, err
	}
	if l.samples > 0 {
		items = items[:min(l.samples, len(items))]
	}
	most := twoTokens
	if l.run.most > 0 {
		most = l.run.most
	}
	u := &trial.Unit{Info: trial.Info{Name: "results/" + filepath.Base(l.run.model.Path) + ".jsonl", Task: "longbench2", Count: len(items)}}
	u.Each = func(f func(line int, make func() (trial.Sample, error)) error) error {
		for line := range items {
			item := &items[line]
			if err := f(line, func() (trial.Sample, error) {
				s, err := w.write(item.Prompt(template, ""), item.Split(template), most, true)
				s.Row = func(answer string) any { return item.Judge(answer) }
				s.Grade = func(answer string) (float64, error) { return item.Grade(answer), nil }
				return s, atItem(l.data, line, err)
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return u, nil
}
