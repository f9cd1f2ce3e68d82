package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/tokenizer"
)

const rulerLong = `Evaluate a model on RULER: thirteen synthetic tasks, scored as the official
code scores them.

With --data the prompts are read: a folder as the official pipeline or gollm eval
ruler-data writes it (LENGTH/data/TASK/validation.jsonl), with files of any era of
the official generator. Without it they are made, for the tokenizer of the
model, as gollm eval ruler-data makes them.

The folder of -o keeps a line for each answer. A run that is stopped, or killed,
goes on where it was with the same command.`

const rulerExample = `  gollm eval ruler -m testdata/ruler.gguf --quick -o quick
  gollm eval ruler -m model.gguf --lengths 4k,16k -n 50 --attn dense --attn 'sketchwalk(density=0.2)' -o ruler
  gollm eval ruler -m model.gguf --data ROOT/MODEL/synthetic --lengths 32k --tasks all -o ruler-32k`

// rulerRunFlags is what eval ruler can be told.
type rulerRunFlags struct {
	run    runFlags
	ruler  rulerFlags
	data   string
	prefix string
	grader string
	keep   int
	quick  bool

	wording *ruler.Wording // of prompts that are made here
}

func newRuler() *cobra.Command {
	var e rulerRunFlags
	cmd := &cobra.Command{
		Use:     "ruler -m FILE -o DIR",
		Short:   "Evaluate on RULER",
		Long:    rulerLong,
		Example: rulerExample,
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return e.execute(cmd) },
	}
	e.run.model.RegisterPath(cmd)
	f := cmd.Flags()
	f.StringVar(&e.data, "data", "", "folder of prompts that were made before")
	f.BoolVar(&e.quick, "quick", false, "a first look: a few short samples of the nine tasks that need no download and have no UUIDs")
	e.run.registerPreset(cmd)
	e.ruler.register(cmd)
	f.StringVar(&e.prefix, "answer-prefix", "auto", "what the answer begins with, where the data has it: auto and keep send it, drop does not")
	f.StringVar(&e.grader, "grader", "official", "how answers are graded: official, or santa")
	f.IntVar(&e.keep, "truncate-input", -1, "bytes of the prompt that are kept beside each answer; -1 is all")
	e.run.register(cmd)
	_ = cmd.MarkFlagDirname("data") // fails only for a flag that does not exist
	usage.Complete(cmd, "answer-prefix", func() []string { return []string{"auto", "keep", "drop"} })
	usage.Complete(cmd, "grader", func() []string { return []string{"official", "santa"} })
	return cmd
}

// quicken sets what --quick stands for and was not said otherwise. niah_single_3 and
// niah_multikey_3 are not in it: the UUIDs of their answers take two to four times the
// decode steps of the numbers of niah_single_2 and niah_multikey_2, which are like them.
func (e *rulerRunFlags) quicken(cmd *cobra.Command) {
	set := func(name string, into *string, value string) {
		if !cmd.Flags().Changed(name) {
			*into = value
		}
	}
	set("tasks", &e.ruler.tasks, "niah_single_1,niah_single_2,niah_multikey_1,niah_multikey_2,niah_multivalue,niah_multiquery,vt,cwe,fwe")
	set("lengths", &e.ruler.lengths, "1k,2k,4k")
	set("haystack", &e.ruler.haystack, "builtin")
	set("fit", &e.ruler.fit, "fine")
	if !cmd.Flags().Changed("samples") {
		e.ruler.samples = 5
	}
}

func (e *rulerRunFlags) execute(cmd *cobra.Command) error {
	if e.quick {
		e.quicken(cmd)
	}
	remarks, err := e.run.usePreset(cmd, "ruler")
	if err != nil {
		return err
	}
	if err := e.check(cmd); err != nil {
		return err
	}
	tok, err := openmodel.OpenTokenizer(e.run.model.Path)
	if err != nil {
		return err
	}
	s := &suite{name: "ruler", notes: remarks, made: map[string]string{}, ident: trial.Identity{
		Data: map[string]string{}, Prefix: e.prefix, Samples: e.ruler.samples,
		Options: map[string]string{"grader": e.grader, "truncate_input": fmt.Sprint(e.keep)},
	}}
	dir := e.data
	if dir == "" {
		d := &rulerDataFlags{out: e.run.out, under: trial.PromptsName}
		if d.out == "" { // a dry run
			if d.out, err = os.MkdirTemp("", "gollm-ruler-*"); err != nil {
				return err
			}
			defer os.RemoveAll(d.out)
		}
		if err := e.generate(cmd, s, d, tok); err != nil {
			return err
		}
		dir = filepath.Join(d.out, d.under)
	}
	if err := e.addUnits(cmd, s, dir, tok); err != nil {
		return err
	}
	return e.run.execute(cmd, s, tok)
}

func (e *rulerRunFlags) check(cmd *cobra.Command) error {
	if err := e.run.check(); err != nil {
		return err
	}
	if e.prefix != "auto" && e.prefix != "keep" && e.prefix != "drop" {
		return usage.Errorf("--answer-prefix %s, want auto, keep or drop", e.prefix)
	}
	if e.grader != "official" && e.grader != "santa" {
		return usage.Errorf("--grader %s, want official or santa", e.grader)
	}
	if e.keep < -1 {
		return usage.Errorf("--truncate-input %d, want 0 bytes or more, or -1 for all", e.keep)
	}
	for _, name := range []string{"seed", "fit", "haystack", "nltk", "ruler", "squad", "hotpotqa", "cwe-words", "ruler-template"} {
		if e.data != "" && cmd.Flags().Changed(name) {
			return usage.Errorf("--%s with --data: the prompts are there and none are made; leave one of them out", name)
		}
	}
	return e.ruler.checkSamples()
}

// generate makes the prompts in the folder of the run. Those of a run that goes on
// stay as they are, also where others are asked for: its manifest refuses that.
func (e *rulerRunFlags) generate(cmd *cobra.Command, s *suite, d *rulerDataFlags, tok *tokenizer.Tokenizer) error {
	p, err := e.ruler.plan(console.Warner(cmd))
	if err != nil {
		return err
	}
	_, err = trial.ReadManifest(e.run.out)
	goesOn := err == nil
	wait := console.NewBar(cmd.ErrOrStderr(), console.Logger(cmd), "making prompts", len(p.lengths)*len(p.tasks), " files")
	defer wait.Stop()
	made := 0
	for _, length := range p.lengths {
		for _, t := range p.tasks {
			has, err := trial.Has(d.out, ruler.DataPath(d.under, length, t))
			if err != nil {
				return err
			}
			if !goesOn || !has {
				_, err := d.write(cmd.Context(), p, t, length, tok)
				if err := e.leaveOut(p, t, length, err); err != nil {
					return err
				}
			}
			made++
			wait.At(made)
		}
	}
	s.notes = append(s.notes, p.notes...)
	s.ident.Wording, e.wording = p.options.Wording.Name, p.options.Wording
	text := sha256.Sum256([]byte(p.options.Text))
	for name, value := range map[string]string{
		"seed": fmt.Sprint(e.ruler.seed), "fit": e.ruler.fit, "template": p.options.Template, "haystack_sha256": hex.EncodeToString(text[:]),
		"words": ruler.WordsVersion,
	} {
		s.ident.Options[name] = value
	}
	if essayTasks(p.tasks) != "" {
		s.ident.Options["sentences"] = sentencesName(p.options.NLTK)
	}
	return nil
}

// leaveOut makes a note of a file that could not be made because nothing fits, in
// a quick look. Other errors stay what they are.
func (e *rulerRunFlags) leaveOut(p *rulerPlan, t ruler.Task, length int, err error) error {
	if misfit := new(ruler.MisfitError); e.quick && errors.As(err, &misfit) {
		p.notes = append(p.notes, fmt.Sprintf("%s at %d tokens is left out: its smallest prompt has %d", t.Name, length, misfit.Least))
		return nil
	}
	return err
}

// there reports whether a file exists. Files of prompts appear when they are
// complete.
func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// addUnits makes a unit of each file of prompts.
func (e *rulerRunFlags) addUnits(cmd *cobra.Command, s *suite, dir string, tok *tokenizer.Tokenizer) error {
	tasks, err := ruler.PickTasks(e.ruler.tasks)
	if err != nil {
		return usage.Errorf("--tasks: %v", err)
	}
	lengths, err := parseLengths(e.ruler.lengths)
	if err != nil {
		return usage.Errorf("--lengths: %v", err)
	}
	for _, length := range lengths {
		for _, t := range tasks {
			if err := cmd.Context().Err(); err != nil {
				return err
			}
			path := ruler.DataPath(dir, length, t)
			if e.quick && e.data == "" && !there(path) {
				continue
			}
			u, era, err := e.unit(path, t, length, tok)
			if err != nil {
				return err
			}
			if s.ident.Era != "" && s.ident.Era != string(era) {
				return fmt.Errorf("%s is of era %s, but files before it are of %s: they are not the same tasks; evaluate them in runs of their own", path, era, s.ident.Era)
			}
			s.ident.Era = string(era)
			if s.ident.Data[u.Name], err = hashFile(path); err != nil {
				return err
			}
			if e.data == "" {
				s.made[u.Name] = filepath.ToSlash(ruler.DataPath(trial.PromptsName, length, t))
			}
			s.units = append(s.units, *u)
		}
	}
	if s.ident.Wording == "" {
		s.notes = append(s.notes, "prompts as they are in "+dir)
	}
	if least, files := e.fewer(s.units); files > 0 && (cmd.Flags().Changed("samples") || e.run.preset != "") {
		s.notes = append(s.notes, fmt.Sprintf("-n %d, but %d of %d files of prompts have fewer, the smallest %d: all of theirs are answered", e.ruler.samples, files, len(s.units), least))
	}
	if e.data != "" {
		cmd.PrintErrf("gollm: prompts %s\n", eraText(ruler.Era(s.ident.Era)))
	}
	return nil
}

// eraText says where the fields of official files come from.
func eraText(era ruler.Era) string {
	if era == ruler.E1 {
		return "as RULER's code wrote them until May 2025 (era E1): what the answer begins with is a part of the input"
	}
	return fmt.Sprintf("as RULER's code writes them since May 2025 (era %s): what the answer begins with is a field of its own", era)
}

// fewer is how many files have fewer rows than are asked for, and the rows of the
// smallest of them.
func (e *rulerRunFlags) fewer(units []trial.Unit) (least, files int) {
	least = e.ruler.samples
	for _, u := range units {
		if u.Count < e.ruler.samples {
			least, files = min(least, u.Count), files+1
		}
	}
	return least, files
}

// unit counts the rows of a file and makes its unit.
func (e *rulerRunFlags) unit(path string, t ruler.Task, length int, tok *tokenizer.Tokenizer) (*trial.Unit, ruler.Era, error) {
	u := &trial.Unit{Info: trial.Info{
		Name: fmt.Sprintf("%d/pred/%s.jsonl", length, t.Name), Task: t.Name, Group: string(t.Category), Length: length,
	}}
	p := &prompter{tok: tok, bos: e.run.bos, split: e.run.phase == "question+decode"}
	u.Each = func(f func(line int, make func() (trial.Sample, error)) error) error {
		_, err := e.rows(path, func(line int, r *ruler.Row) error {
			return f(line, func() (trial.Sample, error) {
				s, err := e.sample(p, t, r)
				return s, atLine(path, r.Line, err)
			})
		})
		return err
	}
	era, err := e.rows(path, func(line int, r *ruler.Row) error {
		u.Count = line + 1
		return atLine(path, r.Line, checkLength(r.Length, length))
	})
	if err != nil {
		if os.IsNotExist(err) {
			err = fmt.Errorf("%s is not there: --data wants LENGTH/data/TASK/validation.jsonl for every task and length (%w)", path, err)
		}
		return nil, "", err
	}
	if u.Count == 0 {
		return nil, "", fmt.Errorf("%s has no rows, want a line of JSON for each prompt", path)
	}
	return u, era, nil
}

// minFill is which part of its length a row has at least: the official generator
// takes one unit of three away at most.
const minFill = 4

// checkLength refuses a row that belongs into a file of another length; 0 is a row
// that does not say how long it is.
func checkLength(row, file int) error {
	if row > file || row > 0 && row < file/minFill {
		return fmt.Errorf("a row of %d tokens in a file of %d: files of several lengths were mixed; put each into the folder of its length", row, file)
	}
	return nil
}

// rows calls f for the first rows of a file.
func (e *rulerRunFlags) rows(path string, f func(line int, r *ruler.Row) error) (ruler.Era, error) {
	file, err := openData(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	in := ruler.NewReader(path, file)
	for line := 0; line < e.ruler.samples; line++ {
		r, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return in.Era(), err
		}
		if err := f(line, &r); err != nil {
			return in.Era(), err
		}
	}
	return in.Era(), nil
}

// sample makes the prompt of a row.
func (e *rulerRunFlags) sample(p *prompter, t ruler.Task, r *ruler.Row) (trial.Sample, error) {
	text := r.Prompt()
	if e.prefix == "drop" {
		text = strings.TrimSuffix(text, r.AnswerPrefix)
	}
	most := t.NewToken
	if e.run.most > 0 {
		most = e.run.most
	}
	split, known := r.Split(t, e.wording)
	if p.split && !known {
		return trial.Sample{}, fmt.Errorf("the question of this row of %s is in no known wording, so that --sparse-phase question+decode cannot tell where it begins", t.Name)
	}
	row := *r
	prefix := row.AnswerPrefix
	if e.prefix == "drop" {
		prefix = ""
	}
	s := p.sample(&wholePrompt{text: text, split: split, prefix: prefix, most: most})
	s.Grade = func(answer string) (float64, error) {
		return t.Grade(answer, row.Outputs, ruler.Grader(e.grader)), nil
	}
	s.Row = func(answer string) any { return row.Predict(answer, e.keep) }
	return s, nil
}
