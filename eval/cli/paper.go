package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gollm/gollm/eval/paper"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/quote"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const paperLong = `Run a table of the papers that the attention methods come from, and print it with
our figures beside the published ones.

NAME is a table, or a paper for all of its tables; gollm eval paper list names them.
Their rows are attention methods, the first is dense, and all answer the same
samples. What cannot be run, or was not published, is a hole in the table that says why.

RULER is made here. What else is read lies in the folder of --data:
  RULER/                         a checkout of NVIDIA/RULER, for its own wording
  PaulGrahamEssays.json          its essays; without them, sentences that mean nothing
  dev-v2.0.json                  SQuAD, for qa_1
  hotpot_dev_distractor_v1.json  HotpotQA, for qa_2
  LongBench/, data/              a checkout of THUDM/LongBench, its unzipped data.zip
  data.json                      LongBench v2
  haystack.txt                   a long text to hide needles in

Tables of GSM8K, CoQA, MMLU, HumanEval and AIME are run by lm-evaluation-harness: the
command writes the two commands of each row, and reads what they wrote when it is run
again.

The model need not be the paper's; the report says which it is. -n, --lengths, --tasks
and --row run a part of a table, which the report calls reduced. A run that was stopped
goes on with the same command.`

const paperExample = `  gollm eval paper list
  gollm eval paper sketchwalk-ruler -m testdata/ruler.gguf --lengths 1k --fit fine --tasks vt,fwe -n 1 -o smoke
  gollm eval paper sketchwalk-longbench -m Llama-3.1-8B-Instruct-Q8_0.gguf --data DATA -o tables
  gollm eval paper santa anchor -m model.gguf --data DATA -o tables --dry-run`

// paperFlags is what eval paper can be told.
type paperFlags struct {
	model   openmodel.Flags
	out     string
	data    string
	as      string
	rows    []string
	tasks   []string
	lengths string
	samples int
	port    int
	json    bool
	dry     bool
}

// passedFlag is a flag that a suite gets as it is given.
type passedFlag struct {
	name, usage string
	changes     string // of the paper's protocol; empty is nothing
}

// passed are those flags.
var passed = []passedFlag{
	{"fit", "how closely RULER fills a length: official or fine", "lengths are filled otherwise"},
	{"ruler-template", "chat template of RULER prompts, instead of the paper's", "another template"},
	{"max-length", "tokens of a prompt of LongBench", "prompts are cut otherwise"},
	{"max-new-tokens", "tokens of an answer", "shorter or longer answers"},
	{"audit-samples", "samples of each task that are compared with dense attention, for density and mass", ""},
	{"kv", "element type of the KV cache: f16 or f32", ""},
	{"ctx", "tokens of context", ""},
}

func newPaper() *cobra.Command {
	var p paperFlags
	cmd := &cobra.Command{
		Use:     "paper list | paper NAME... -m FILE -o DIR [--data DIR]",
		Short:   "Run the tables of the papers, with their figures beside ours",
		Long:    paperLong,
		Example: paperExample,
		RunE:    func(cmd *cobra.Command, args []string) error { return p.run(cmd, args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return append([]string{"list"}, paper.Names()...), cobra.ShellCompDirectiveNoFileComp
		},
	}
	f := cmd.Flags()
	p.model.RegisterPath(cmd)
	f.StringVarP(&p.out, "out", "o", "", "folder of the tables (required); a run that was stopped goes on in it")
	f.StringVar(&p.data, "data", "", "folder of the data sets, as said above")
	f.StringVar(&p.as, "as", "", "model of the paper whose figures and prompts are taken (default: by the name of the file)")
	f.StringArrayVar(&p.rows, "row", nil, "row that is run besides the dense one (repeatable; default: all)")
	f.StringSliceVar(&p.tasks, "tasks", nil, "tasks of the table that are run, with commas between them (default: all)")
	f.StringVar(&p.lengths, "lengths", "", "lengths that are run instead of the paper's, such as 4k,8k")
	f.IntVarP(&p.samples, "samples", "n", 0, "samples of each task (default: the paper's number)")
	for _, x := range passed {
		f.String(x.name, "", x.usage)
	}
	f.IntVar(&p.port, "port", 8080, "port of gollm serve in the commands for lm-evaluation-harness")
	f.BoolVar(&p.json, "json", false, "print JSON: a list of tables")
	f.BoolVar(&p.dry, "dry-run", false, "print what would be run, and run nothing")
	p.model.RegisterRun(cmd)
	_ = cmd.MarkFlagDirname("data") // fails only for a flag that does not exist
	return cmd
}

func (p *paperFlags) run(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage.Errorf("no table: gollm eval paper list names them")
	}
	if args[0] == "list" {
		if len(args) > 1 {
			return usage.Errorf("gollm eval paper list takes no other name")
		}
		return p.list(cmd)
	}
	tables, err := p.find(args)
	if err != nil {
		return err
	}
	plans, err := p.plans(cmd, tables)
	if err != nil {
		return err
	}
	if p.dry {
		return p.survey(cmd, plans)
	}
	var reports []*paper.Report
	for _, plan := range plans {
		r, err := p.table(cmd, plan)
		if err != nil {
			return err
		}
		reports = append(reports, r)
	}
	return p.print(cmd, reports)
}

// list prints the tables.
func (p *paperFlags) list(cmd *cobra.Command) error {
	if p.json {
		return console.WriteJSON(cmd.OutOrStdout(), paper.Papers())
	}
	t := console.NewTable("rows", "published")
	t.AppendHeader(table.Row{"table", "of", "what", "run by", "rows", "published", "models"})
	for _, f := range paper.All() {
		by := "lm-evaluation-harness"
		if f.Table.Suite != nil {
			by = "eval " + f.Table.Suite.Name
		}
		var models []string
		for _, m := range f.Table.Models {
			models = append(models, m.Name)
		}
		t.AppendRow(table.Row{f.Table.Name, f.Paper.Name, f.Table.Title, by, len(f.Table.Rows), f.Table.Count(), strings.Join(models, ", ")})
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render())
	for _, q := range paper.Papers() {
		for _, m := range q.Missing {
			cmd.PrintErrf("note: %s, not a table here: %s: %s\n", q.Short, m.What, m.Why)
		}
	}
	return err
}

// find is the tables of the names, each once, and what is wrong with the flags.
func (p *paperFlags) find(names []string) ([]paper.Found, error) {
	var tables []paper.Found
	for _, name := range names {
		for part := range strings.SplitSeq(name, ",") {
			list, err := paper.Find(part)
			if err != nil {
				return nil, usage.Errorf("%v", err)
			}
			for _, f := range list {
				if !slices.Contains(tables, f) {
					tables = append(tables, f)
				}
			}
		}
	}
	switch {
	case p.samples < 0:
		return nil, usage.Errorf("-n %d, want 0 (the paper's number) or more", p.samples)
	case p.lengths != "" && !slices.ContainsFunc(tables, func(f paper.Found) bool { return f.Table.Suite != nil && len(f.Table.Suite.Lengths) > 0 }):
		return nil, usage.Errorf("--lengths %s, but these tables have none; leave it out", p.lengths)
	case len(p.tasks) > 0 && slices.ContainsFunc(tables, func(f paper.Found) bool { return f.Table.Suite == nil }):
		return nil, usage.Errorf("--tasks %s with a table that lm-evaluation-harness runs: name tables of one suite", strings.Join(p.tasks, ","))
	case p.port < 1 || p.port > 65535:
		return nil, usage.Errorf("--port %d, want 1 to 65535", p.port)
	case p.out == "" && !p.dry:
		return nil, usage.Errorf("no folder: name one with -o DIR; it keeps answers and tables")
	}
	return tables, errors.Join(p.model.Check(), checkData(p.data, tables))
}

// plans are how the tables are run.
func (p *paperFlags) plans(cmd *cobra.Command, tables []paper.Found) ([]*paper.Plan, error) {
	here, names, err := p.here()
	if err != nil {
		return nil, err
	}
	var plans []*paper.Plan
	for _, f := range tables {
		plan := &paper.Plan{Found: f, Here: here}
		if err := p.findModel(plan, names); err != nil {
			return nil, err
		}
		if err := p.findRows(plan); err != nil {
			return nil, err
		}
		if f.Table.Harness != nil {
			p.planHarness(cmd, plan)
		} else if err := p.planSuite(cmd, plan); err != nil {
			return nil, err
		}
		plans = append(plans, plan)
	}
	return plans, p.checkPassed(cmd, plans)
}

// here is what the report calls the model, and its names.
func (p *paperFlags) here() (string, []string, error) {
	m, err := openForPrompts(&p.model)
	if err != nil {
		return "", nil, err
	}
	defer m.Close()
	name, err := m.file.StringOr("general.name", "")
	file := filepath.Base(p.model.Path)
	if name == "" {
		return file, []string{file}, err
	}
	return fmt.Sprintf("%s (%s)", name, file), []string{name, file}, err
}

// findModel is the model of the paper whose figures are taken.
func (p *paperFlags) findModel(plan *paper.Plan, names []string) error {
	t := plan.Table
	if p.as != "" {
		m, err := t.FindModel(p.as)
		if err != nil {
			return usage.Errorf("--as: %v", err)
		}
		plan.Model, plan.Same = m, true
		return nil
	}
	if plan.Model = t.ModelOf(names...); plan.Model != nil {
		plan.Same = true
		return nil
	}
	plan.Model = &t.Models[0]
	if len(plan.Model.Args) > 0 {
		plan.Reduced = append(plan.Reduced, fmt.Sprintf("without %s, which the paper's prompts have for %s; --as %s takes it", quote.Command(plan.Model.Args), plan.Model.Name, plan.Model.Name))
	}
	return nil
}

// findRows is the rows that run: the dense one, and those of --row or all.
func (p *paperFlags) findRows(plan *paper.Plan) error {
	var names []string
	for i, r := range plan.Table.Rows {
		names = append(names, r.Name)
		if r.Hole == "" && (i == 0 || len(p.rows) == 0 || slices.Contains(p.rows, r.Name)) {
			plan.Rows = append(plan.Rows, i)
		}
	}
	for _, name := range p.rows {
		i := slices.Index(names, name)
		if i < 0 {
			return usage.Errorf("--row %q: %s has no such row; want one of %s", name, plan.Table.Name, strings.Join(names, "; "))
		}
		if hole := plan.Table.Rows[i].Hole; hole != "" {
			return usage.Errorf("--row %q cannot be run: %s", name, hole)
		}
	}
	return nil
}

// suiteOf is the command of a suite, nil where there is none.
func suiteOf(name string) *cobra.Command {
	for _, sub := range suites() {
		if sub.Name() == name {
			return sub
		}
	}
	return nil
}

// planSuite makes the command of a table that a suite runs.
func (p *paperFlags) planSuite(cmd *cobra.Command, plan *paper.Plan) error {
	s := plan.Table.Suite
	plan.Tasks, plan.Lengths, plan.Samples = slices.Clone(s.Tasks), s.Lengths, s.Samples
	sub := suiteOf(s.Name)
	if sub == nil {
		plan.Hole = fmt.Sprintf("this gollm has no suite %s; gollm eval --help lists those it has", s.Name)
		return nil
	}
	if err := p.reduce(cmd, plan); err != nil {
		return err
	}
	args := &argList{words: []string{"-m", p.model.Path}}
	args.setAll(s.Args)
	if plan.Same {
		args.setAll(plan.Model.Args)
	}
	if err := supply(plan, args, p.data); err != nil || plan.Hole != "" {
		return err
	}
	for _, i := range plan.Rows {
		args.add("--attn", plan.Table.Rows[i].Attn)
	}
	p.scope(sub, plan, args)
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if p.passes(f.Name) && sub.Flags().Lookup(f.Name) != nil {
			args.set("--"+f.Name, f.Value.String())
		}
	})
	args.set("--out", filepath.Join(p.out, plan.Table.Name, runName))
	plan.Command = append([]string{"gollm", "eval", s.Name}, args.words...)
	return nil
}

// runName is the folder of the run of a suite, in that of its table.
const runName = "run"

// scope says which tasks, lengths and samples are run, where the suite can be told.
func (p *paperFlags) scope(sub *cobra.Command, plan *paper.Plan, args *argList) {
	set := func(flag, value string) {
		if value != "" && sub.Flags().Lookup(flag) != nil {
			args.set("--"+flag, value)
		}
	}
	var lengths []string
	for _, n := range plan.Lengths {
		lengths = append(lengths, fmt.Sprint(n))
	}
	set("tasks", strings.Join(plan.Tasks, ","))
	set("lengths", strings.Join(lengths, ","))
	set("sparse-phase", plan.Table.Suite.Phase)
	samples := "samples"
	if sub.Flags().Lookup(samples) == nil {
		samples = "rounds"
	}
	set(samples, countFlag(plan.Samples))
}

// reduce runs less than the paper where flags say so.
func (p *paperFlags) reduce(cmd *cobra.Command, plan *paper.Plan) error {
	if p.samples > 0 && p.samples != plan.Samples {
		of := "all of them"
		if plan.Samples > 0 {
			of = fmt.Sprint(plan.Samples)
		}
		plan.Reduced = append(plan.Reduced, fmt.Sprintf("-n %d samples of each task, not %s", p.samples, of))
		plan.Samples = p.samples
	}
	if p.lengths != "" && len(plan.Lengths) > 0 {
		lengths, err := parseLengths(p.lengths)
		if err != nil {
			return usage.Errorf("--lengths: %v", err)
		}
		plan.Reduced = append(plan.Reduced, fmt.Sprintf("--lengths %s, not %s", lengthsText(lengths), lengthsText(plan.Lengths)))
		plan.Lengths = lengths
	}
	if len(p.tasks) > 0 {
		for _, name := range p.tasks {
			if !slices.Contains(plan.Tasks, name) {
				return usage.Errorf("--tasks: %s has no task %q; want some of %s", plan.Table.Name, name, strings.Join(plan.Tasks, ", "))
			}
		}
		plan.Reduced = append(plan.Reduced, fmt.Sprintf("--tasks %s of %d", strings.Join(p.tasks, ","), len(plan.Tasks)))
		plan.Tasks = slices.Clone(p.tasks)
	}
	p.changes(cmd, plan)
	return nil
}

// changes says which of the flags that are passed on change the paper's protocol.
func (p *paperFlags) changes(cmd *cobra.Command, plan *paper.Plan) {
	for _, x := range passed {
		if f := cmd.Flags().Lookup(x.name); f.Changed && x.changes != "" && takes(plan.Table, x.name) {
			plan.Reduced = append(plan.Reduced, fmt.Sprintf("--%s %s: %s", x.name, f.Value, x.changes))
		}
	}
}

// lengthsText is lengths as a list.
func lengthsText(lengths []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(lengths), " ", ","), "[]")
}

// passes reports whether a flag is passed on to a suite.
func (p *paperFlags) passes(name string) bool {
	return slices.ContainsFunc(passed, func(x passedFlag) bool { return x.name == name }) || ofModel(name)
}

// ofModel reports whether a flag says on what, or how, a model runs.
func ofModel(name string) bool {
	dummy := &cobra.Command{}
	new(openmodel.Flags).RegisterRun(dummy)
	return dummy.Flags().Lookup(name) != nil
}

// checkPassed refuses a flag that no table takes.
func (p *paperFlags) checkPassed(cmd *cobra.Command, plans []*paper.Plan) error {
	for _, x := range passed {
		if cmd.Flags().Changed(x.name) && !slices.ContainsFunc(plans, func(plan *paper.Plan) bool { return takes(plan.Table, x.name) }) {
			return usage.Errorf("--%s is of none of these tables; leave it out", x.name)
		}
	}
	return nil
}

// takes reports whether what runs a table has a flag.
func takes(t *paper.Table, flag string) bool {
	if t.Harness != nil {
		return served(flag)
	}
	sub := suiteOf(t.Suite.Name)
	return sub != nil && sub.Flags().Lookup(flag) != nil
}

// survey prints what would be run.
func (p *paperFlags) survey(cmd *cobra.Command, plans []*paper.Plan) error {
	var reports []*paper.Report
	for _, plan := range plans {
		if plan.Table.Harness != nil {
			reports = append(reports, plan.HarnessReport(nil))
		} else {
			r := plan.Report(nil)
			r.Command = quote.Command(plan.Command)
			reports = append(reports, r)
		}
	}
	if p.json {
		return console.WriteJSON(cmd.OutOrStdout(), reports)
	}
	for _, r := range reports {
		if err := r.Dry(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	return nil
}

// table runs a table, or goes on with it, and writes it into its folder.
func (p *paperFlags) table(cmd *cobra.Command, plan *paper.Plan) (*paper.Report, error) {
	r, err := p.report(cmd, plan)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", plan.Table.Name, err)
	}
	folder := filepath.Join(p.out, plan.Table.Name)
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return nil, err
	}
	return r, writeTable(folder, r)
}

// report is the table with what there is of ours.
func (p *paperFlags) report(cmd *cobra.Command, plan *paper.Plan) (*paper.Report, error) {
	switch {
	case plan.Table.Harness != nil:
		return p.harnessReport(plan)
	case plan.Hole != "":
		return plan.Report(nil), nil
	}
	folder := filepath.Join(p.out, plan.Table.Name, runName)
	cmd.PrintErrf("gollm: %s: %s\n", plan.Table.Name, console.OneLine(quote.Command(plan.Command)))
	if err := p.runSuite(cmd, plan); err != nil {
		return nil, err
	}
	s, err := summarize(cmd.Context(), folder, nil)
	if err != nil {
		return nil, err
	}
	r := plan.Report(s)
	r.Command = quote.Command(plan.Command)
	return r, nil
}

// runSuite runs the command of a table. What it prints of the run is in its folder.
func (p *paperFlags) runSuite(cmd *cobra.Command, plan *paper.Plan) error {
	sub := suiteOf(plan.Table.Suite.Name)
	sub.Version = cmd.Root().Version
	sub.SetOut(io.Discard)
	sub.SetErr(cmd.ErrOrStderr())
	sub.SetIn(cmd.InOrStdin())
	sub.SetContext(cmd.Context())
	if f := cmd.Flags().Lookup("verbose"); f != nil {
		sub.Flags().AddFlag(f)
	}
	if err := sub.ParseFlags(plan.Command[3:]); err != nil {
		return usage.Errorf("%v", err)
	}
	return sub.RunE(sub, nil)
}

// writeTable writes the table as Markdown, JSON and a page.
func writeTable(folder string, r *paper.Report) error {
	for name, write := range map[string]func(io.Writer) error{
		"table.md": r.Markdown, "table.html": r.Page().Write,
		"table.json": func(w io.Writer) error { return console.WriteJSON(w, r) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if err := trial.WriteFile(folder, name, b.Bytes()); err != nil {
			return userfile.OpenError("", filepath.Join(folder, name), "a folder that takes files", err)
		}
	}
	return nil
}

// print prints the tables.
func (p *paperFlags) print(cmd *cobra.Command, reports []*paper.Report) error {
	if p.json {
		return console.WriteJSON(cmd.OutOrStdout(), reports)
	}
	for _, r := range reports {
		if err := r.Markdown(cmd.OutOrStdout()); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	return nil
}
