package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/published"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const scoreLong = `Score predictions that were made elsewhere, in the official forms, as the
official code scores them.

FILE is a file of predictions, a pipe, or - for stdin; the task is its name unless
--task says it; preds_NAME.jsonl of InfiniteBench and prediction_NAME_scdq.jsonl of SCBench
are those of NAME. For ruler and longbench it may also be a folder of such files, of
which the ones with names of tasks are scored and averaged.`

const scoreExample = `  gollm eval score --suite ruler pred/niah_single_1.jsonl
  gollm eval score --suite longbench pred/Llama-3.1-8B/ --json
  gollm eval score --suite longbench2 results/model.jsonl
  zcat pred.gz | gollm eval score --suite ruler --task vt -`

// scoreFlags is what eval score can be told.
type scoreFlags struct {
	suite  string
	task   string
	json   bool
	e      bool
	grader string
	code   string
	steps  int
	jieba  string
	write  string
}

func newScore() *cobra.Command {
	var s scoreFlags
	cmd := &cobra.Command{
		Use:     "score --suite NAME [--task NAME] FILE",
		Short:   "Score predictions made elsewhere",
		Long:    scoreLong,
		Example: scoreExample,
		Args:    oneScored,
		RunE:    func(cmd *cobra.Command, args []string) error { return s.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.StringVar(&s.suite, "suite", "", strings.Join(scoredSuites(), ", ")+" (required)")
	f.StringVar(&s.task, "task", "", "the task of a file (default: the name of the file)")
	f.BoolVar(&s.json, "json", false, "print one JSON object")
	f.BoolVar(&s.e, "e", false, "longbench: scores by length, as LongBench-E has them")
	f.StringVar(&s.grader, "grader", "official", "ruler: official, or santa")
	f.StringVar(&s.code, "code-sim", string(metric.Difflib), "longbench: what compares lines of code, difflib or levenshtein")
	f.IntVar(&s.steps, "rouge-recursion-limit", metric.RougeSteps, "longbench: where the official ROUGE gives up and scores 0; -1 is never")
	f.StringVar(&s.jieba, "jieba", "", "longbench: "+jiebaUsage)
	_ = cmd.MarkFlagDirname("jieba") // fails only for a flag that does not exist
	f.StringVar(&s.write, "summary", "", "ruler: write summary.csv and submission.csv, as the official code does, into this folder")
	usage.Complete(cmd, "suite", scoredSuites)
	usage.Complete(cmd, "code-sim", func() []string { return []string{string(metric.Difflib), string(metric.Levenshtein)} })
	return cmd
}

// jiebaUsage explains --jieba.
const jiebaUsage = "folder of the Python package jieba, over whose words multifieldqa_zh, dureader and vcsum are scored; gollm reads its tables and runs no Python"

// openSplitter reads the tables in the folder that --jieba names, nil without one.
func openSplitter(dir string) (*longbench.Splitter, error) {
	if dir == "" {
		return nil, nil
	}
	s, err := longbench.LoadSplitter(dir)
	if err != nil {
		return nil, fmt.Errorf("--jieba: %w", err)
	}
	return s, nil
}

// oneScored wants one argument.
func oneScored(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usage.Errorf("%d files, want one file or folder of predictions; see %s --help", len(args), cmd.CommandPath())
	}
	return nil
}

func (s *scoreFlags) run(cmd *cobra.Command, path string) error {
	if s.grader != "official" && s.grader != "santa" {
		return usage.Errorf("--grader %s, want official or santa", s.grader)
	}
	if err := checkCodeSim(s.code); err != nil {
		return err
	}
	switch s.suite {
	case "ruler":
		return s.ruler(cmd, path)
	case "longbench":
		return s.longbench(cmd, path)
	case "longbench2":
		return s.longbench2(cmd, path)
	}
	if p := published.Find(s.suite); p != nil {
		return s.published(cmd, p, path)
	}
	return usage.Errorf("--suite %q, want one of %s", s.suite, strings.Join(scoredSuites(), ", "))
}

// scoredSuites are those whose predictions can be scored.
func scoredSuites() []string {
	return append([]string{"ruler", "longbench", "longbench2"}, published.Names()...)
}

// published scores a file of predictions of a suite of package published, whose names have
// the task in them in some suites.
func (s *scoreFlags) published(cmd *cobra.Command, p *published.Suite, path string) error {
	name := s.task
	if name == "" {
		base := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		base = strings.TrimPrefix(strings.TrimPrefix(base, "preds_"), "prediction_")
		name = strings.TrimSuffix(strings.TrimSuffix(base, "_scdq"), "_multi_turn")
	}
	d, err := p.Set(name)
	if err != nil {
		return usage.Errorf("%v; --task says it where the name of the file does not", err)
	}
	if d.Unscored != "" {
		return usage.Errorf("%s is not scored: %s", d.Name, d.Unscored)
	}
	var scores []float64
	nulls := 0
	if err := untilDone(cmd, path, func(name string, r io.Reader) error {
		in := jsonl.NewReader(r)
		for {
			line, number, err := in.Next()
			if err == io.EOF {
				return nil
			}
			var score float64
			var null bool
			if err == nil {
				_, score, null, err = d.GradeLine(line)
			}
			if err != nil {
				return fmt.Errorf("%s:%d: %w", name, number, err)
			}
			scores = append(scores, score)
			if null {
				nulls++
			}
		}
	}); err != nil {
		return err
	}
	if len(scores) == 0 {
		return fmt.Errorf("%s has no predictions", path)
	}
	report := scoreReport{Suite: p.Name, Options: map[string]string{}}
	sum := 0.0
	for _, x := range scores {
		sum += x
	}
	report.Mean = metric.Round(sum/float64(len(scores))*100, 2)
	report.add(d.Name, report.Mean, nulls, scores)
	return report.print(cmd, s.json)
}

// checkCodeSim reports a --code-sim that is none.
func checkCodeSim(name string) error {
	if name != string(metric.Difflib) && name != string(metric.Levenshtein) {
		return usage.Errorf("--code-sim %s, want difflib or levenshtein", name)
	}
	return nil
}

// files is the files to score, by task: path itself, or the ones of a folder that
// have names of tasks.
func (s *scoreFlags) files(path string, names []string) (tasks, paths []string, err error) {
	folder := false
	if path != stdinName {
		info, err := os.Stat(path)
		if err != nil {
			return nil, nil, userfile.OpenError("", path, "a file or folder of predictions", err)
		}
		folder = info.IsDir()
	}
	if !folder {
		task := s.task
		if task == "" {
			task = strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
		}
		return []string{task}, []string{path}, nil
	}
	if s.task != "" {
		names = []string{s.task}
	}
	for _, name := range names {
		file := filepath.Join(path, name+".jsonl")
		if _, err := os.Stat(file); err == nil {
			tasks, paths = append(tasks, name), append(paths, file)
		}
	}
	if len(tasks) == 0 {
		return nil, nil, fmt.Errorf("%s has no file TASK.jsonl of a task: %s", path, strings.Join(names, ", "))
	}
	return tasks, paths, nil
}

// scoredFile is the result of a file.
type scoredFile struct {
	Task    string              `json:"task"`
	Score   float64             `json:"score"`
	N       int                 `json:"n"`
	Nulls   int                 `json:"nulls"`
	Sure    metric.Interval     `json:"interval"`
	Buckets map[string]*float64 `json:"by_length,omitempty"` // null: no samples
}

// scoreReport is the JSON form of scores.
type scoreReport struct {
	Suite    string              `json:"suite"`
	Files    []scoredFile        `json:"files"`
	Mean     float64             `json:"mean"`
	Ruler    *ruler.LengthScore  `json:"ruler,omitempty"`
	Averages *longbench.Averages `json:"averages,omitempty"`
	Two      *longbench.Judged   `json:"longbench2,omitempty"`
	Options  map[string]string   `json:"options"`
}

func (s *scoreFlags) ruler(cmd *cobra.Command, path string) error {
	tasks, paths, err := s.files(path, ruler.TaskNames())
	if err != nil {
		return err
	}
	report := scoreReport{Suite: "ruler", Options: map[string]string{"grader": s.grader}}
	var all []ruler.Scored
	for i, name := range tasks {
		t, err := ruler.FindTask(name)
		if err != nil {
			return usage.Errorf("%v; --task says it where the name of the file does not", err)
		}
		var one ruler.Scored
		if err := untilDone(cmd, paths[i], func(name string, f io.Reader) error {
			one, err = ruler.ScoreFile(name, f, t, ruler.Grader(s.grader))
			return err
		}); err != nil {
			return err
		}
		all = append(all, one)
		report.add(name, one.Score, one.Nulls, one.Samples)
	}
	mean := ruler.Summarize(0, all)
	report.Ruler, report.Mean = &mean, mean.Mean
	if s.write != "" {
		if err := writeRulerSummary(s.write, all); err != nil {
			return err
		}
	}
	return report.print(cmd, s.json)
}

// writeRulerSummary writes the official tables.
func writeRulerSummary(dir string, all []ruler.Scored) error {
	for name, write := range map[string]func(io.Writer, []ruler.Scored) error{
		ruler.SummaryName(all): ruler.WriteSummary, "submission.csv": ruler.WriteSubmission,
	} {
		var b bytes.Buffer
		if err := write(&b, all); err != nil {
			return err
		}
		if err := trial.WriteFile(dir, name, b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

func (s *scoreFlags) longbench(cmd *cobra.Command, path string) error {
	tasks, paths, err := s.files(path, longbench.Names())
	if err != nil {
		return err
	}
	o := longbench.Options{Code: metric.CodeBackend(s.code), RougeSteps: s.steps, E: s.e}
	if o.Words, err = openSplitter(s.jieba); err != nil {
		return err
	}
	report := scoreReport{Suite: "longbench", Options: map[string]string{"code_sim": s.code, "rouge_recursion_limit": fmt.Sprint(s.steps)}}
	if o.Words != nil {
		report.Options["jieba_sha256"] = o.Words.Hash
	}
	var all []longbench.Scored
	for i, name := range tasks {
		d, err := longbench.Find(name)
		if err != nil {
			return usage.Errorf("%v; --task says it where the name of the file does not", err)
		}
		if !d.Scorable(o) && len(tasks) == 1 {
			return usage.Errorf("%s is scored over the words of jieba: name its folder with --jieba, or score it with the official eval.py", name)
		}
		if !d.Scorable(o) {
			cmd.PrintErrf("gollm: %s is left out: it is scored over the words of jieba; name its folder with --jieba\n", console.OneLine(paths[i]))
			continue
		}
		var one longbench.Scored
		if err := untilDone(cmd, paths[i], func(name string, f io.Reader) error {
			one, err = longbench.ScoreFile(name, f, d, o)
			return err
		}); err != nil {
			return err
		}
		all = append(all, one)
		report.add(name, one.Score, one.Nulls, one.Samples)
		if s.e {
			report.Files[len(report.Files)-1].Buckets = bucketMap(one.ByLength())
		}
	}
	if len(all) == 0 {
		return usage.Errorf("%s has nothing to score: %s are scored over the words of jieba; name its folder with --jieba, or score them with the official eval.py", path, strings.Join(tasks, " and "))
	}
	average := longbench.Average(all)
	report.Averages, report.Mean = &average, average.English
	return report.print(cmd, s.json)
}

// bucketMap names the scores of lengths; what has no samples is nil.
func bucketMap(scores [3]float64) map[string]*float64 {
	m := map[string]*float64{}
	for i, x := range scores {
		m[longbench.Buckets[i]] = nil
		if x == x { // not NaN
			m[longbench.Buckets[i]] = &x
		}
	}
	return m
}

func (s *scoreFlags) longbench2(cmd *cobra.Command, path string) error {
	var j longbench.Judged
	if err := untilDone(cmd, path, func(name string, f io.Reader) (err error) {
		j, err = longbench.JudgeFile(name, f)
		return err
	}); err != nil {
		return err
	}
	report := scoreReport{Suite: "longbench2", Two: &j, Mean: j.Overall, Options: map[string]string{}}
	report.add("longbench2", j.Overall, j.Nulls, j.Samples)
	return report.print(cmd, s.json)
}

// untilDone opens a file of answers, a pipe, or stdin as "-" for f, which gets no more
// of it once the command is stopped. name is what errors call it.
func untilDone(cmd *cobra.Command, path string, f func(name string, r io.Reader) error) error {
	ctx := cmd.Context()
	if path == stdinName {
		r := stream(ctx, "stdin", func() (io.ReadCloser, error) { return io.NopCloser(cmd.InOrStdin()), nil })
		defer r.Close()
		return f("stdin", r)
	}
	if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeNamedPipe != 0 {
		r := stream(ctx, path, func() (io.ReadCloser, error) { return os.Open(path) })
		defer r.Close()
		return f(path, r)
	}
	return withFile(path, func(r io.Reader) error { return f(path, untilReader{ctx, r}) })
}

// stdinName is the argument that stands for stdin.
const stdinName = "-"

// stream reads what may not come for long, or not at all: opening a named pipe waits for
// somebody who writes to it, and reading it for what is written. Both end for the reader
// once ctx is done.
func stream(ctx context.Context, name string, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(ctx.Err()) })
	go func() {
		in, err := open()
		if err != nil {
			w.CloseWithError(err)
			return
		}
		defer in.Close()
		n, err := io.Copy(w, io.LimitReader(in, userfile.MaxText+1))
		if err == nil && n > userfile.MaxText {
			err = fmt.Errorf("%s gives more than %s, the most that is read of a pipe; write it into a file", name, console.SizeText(userfile.MaxText))
		}
		w.CloseWithError(err) // nil is the end
	}()
	return r
}

// withFile opens a file for f.
func withFile(path string, f func(io.Reader) error) error {
	file, err := openData(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return f(file)
}

// openData opens a file of samples or answers. What is no file is refused before it is
// opened: that of a named pipe without a writer never ends.
func openData(path string) (*os.File, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder, want a file", path)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is a pipe or a device, want a file: write what it has into one", path)
	}
	return os.Open(path)
}

// untilReader reads until a context is done.
type untilReader struct {
	ctx context.Context
	io.Reader
}

// Read reads, or returns why it does not any more.
func (r untilReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(b)
}

// add adds the result of a file.
func (r *scoreReport) add(task string, score float64, nulls int, samples []float64) {
	r.Files = append(r.Files, scoredFile{
		Task: task, Score: score, N: len(samples), Nulls: nulls, Sure: metric.Bootstrap(samples, metric.Draws, 42),
	})
}

// print writes the report.
func (r *scoreReport) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return console.WriteJSON(cmd.OutOrStdout(), r)
	}
	t := console.NewTable("score", "95 % interval", "n", "nulls")
	t.AppendHeader(table.Row{"task", "score", "95 % interval", "n", "nulls"})
	for _, f := range r.Files {
		t.AppendRow(table.Row{f.Task, fmt.Sprintf("%.2f", f.Score), intervalText(f.Sure), f.N, f.Nulls})
		for _, b := range longbench.Buckets {
			if score, ok := f.Buckets[b]; ok {
				t.AppendRow(table.Row{"  " + b, scoreCell(score)})
			}
		}
	}
	r.addMeans(t)
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	return err
}

// addMeans appends the averages that the suite has.
func (r *scoreReport) addMeans(t table.Writer) {
	line := func(name string, x float64) { t.AppendRow(table.Row{name, fmt.Sprintf("%.2f", x)}) }
	switch {
	case r.Ruler != nil && len(r.Files) > 1:
		name := fmt.Sprintf("mean of %d tasks", len(r.Files))
		if r.Ruler.Complete {
			name = "Avg"
		}
		line(name, r.Mean)
		for _, c := range []ruler.Category{ruler.Retrieval, ruler.Tracing, ruler.Aggregation, ruler.Answering} {
			if x, ok := r.Ruler.Categories[c]; ok {
				line("  "+string(c), x)
			}
		}
	case r.Averages != nil && len(r.Files) > 1:
		name := "mean of those in English"
		if r.Averages.Complete {
			name = "mean of the sixteen in English"
		}
		line(name, r.Averages.English)
		line("  without passage_count", r.Averages.WithoutCount)
		line("mean of the categories", r.Averages.ByCategory)
	case r.Two != nil:
		for _, g := range []struct {
			name string
			x    *float64
		}{{"easy", r.Two.Easy}, {"hard", r.Two.Hard}, {"short", r.Two.Short}, {"medium", r.Two.Medium}, {"long", r.Two.Long}, {"compensated", &r.Two.Compensated}} {
			t.AppendRow(table.Row{"  " + g.name, scoreCell(g.x)})
		}
	}
}

func scoreCell(x *float64) string {
	if x == nil {
		return "n/a"
	}
	return fmt.Sprintf("%.2f", *x)
}
