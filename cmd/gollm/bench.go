package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
)

const benchLong = `Measure how fast a model runs, and how fast this machine could run it.

prefill is reading a prompt of some length into an empty cache; decode is writing
one token after another behind so many others. Each figure is the median of
--reps runs, in tokens per second.

Beside it stands the floor of the time, as a speed: no program can be faster
here. It is the larger of what must be read (every weight once for a token or a
prompt, of the embedding the token's row only, and for decode the keys and
values of all tokens before) divided by the measured read bandwidth of all
threads together, and what must be computed divided by the measured peak of the
instructions that the kernels use.

choose and attend are what attention took of a prefill or a step: to decide what
to read, and to read it.

The prompts are random tokens. For decode the cache is filled with copies of one
computed page: the cost of a step does not depend on what the values are.`

const benchExample = `  gollm bench -m model.gguf
  gollm bench -m model.gguf --prefill 512,2048 --decode 128,8192 --threads 2 --reps 5
  gollm bench -m model.gguf --json > bench.json`

// maxReps bounds --reps: enough for any median, and memory for their figures.
const maxReps = 1 << 20

// benchFlags is what bench can be told.
type benchFlags struct {
	model    modelFlags
	cache    cacheFlags
	prefill  []int
	decode   []int
	steps    int
	reps     int
	json     bool
	csv      bool
	markdown bool
}

func newBench() *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use:        "bench -m FILE",
		Short:      "Measure speed beside what the machine allows",
		Long:       benchLong,
		Example:    benchExample,
		GroupID:    groupLook,
		Args:       noArgs,
		SuggestFor: []string{"benchmark", "speed", "llama-bench"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.model.registerPath(cmd)
	f := cmd.Flags()
	f.IntSliceVar(&b.prefill, "prefill", []int{512, 2048}, "lengths of prompts, in tokens")
	f.IntSliceVar(&b.decode, "decode", []int{128, 8192}, "tokens before the first step")
	f.IntVar(&b.steps, "steps", 16, "decode steps of a run")
	f.IntVar(&b.reps, "reps", 3, "runs of each, of which the median counts")
	f.BoolVar(&b.json, "json", false, "print one JSON object")
	f.BoolVar(&b.csv, "csv", false, "print CSV")
	f.BoolVar(&b.markdown, "markdown", false, "print a Markdown table")
	b.cache.register(cmd, "tokens of context; 0, the default, is as many as are needed")
	b.cache.audit.register(cmd)
	b.model.registerDevice(cmd)
	return cmd
}

// check reports what is wrong with the command line.
func (b *benchFlags) check() error {
	forms := 0
	for _, on := range []bool{b.json, b.csv, b.markdown} {
		if on {
			forms++
		}
	}
	if forms > 1 {
		return usagef("--json, --csv and --markdown: choose one")
	}
	for _, n := range append(append([]int{}, b.prefill...), b.decode...) {
		if n < 1 || n > maxContext/2 { // steps follow
			return usagef("a length of %d tokens, want 1 to %d", n, maxContext/2)
		}
	}
	if b.steps < 1 || b.steps > maxContext/2 || b.reps < 1 || b.reps > maxReps {
		return usagef("--steps %d --reps %d, want 1 to %d steps and 1 to %d repetitions", b.steps, b.reps, maxContext/2, maxReps)
	}
	if err := b.model.check(); err != nil {
		return err
	}
	return b.cache.check()
}

func (b *benchFlags) run(cmd *cobra.Command) error {
	if err := b.check(); err != nil {
		return err
	}
	m, err := b.model.open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	o := eval.SpeedOptions{Tasks: eval.Tasks(b.prefill, b.decode), Steps: b.steps, Reps: b.reps}
	timed := b.cache
	timed.audit = auditFlags{} // it would be timed too
	r, err := m.runner(&timed, max(o.Context(), b.cache.context), 0)
	if err != nil {
		return err
	}
	kv, err := b.cache.dtype()
	if err != nil {
		return err
	}
	ctx, release := interruptible(cmd.Context())
	defer release()
	machine := eval.Describe(m.Device)
	wait := newBar(cmd.ErrOrStderr(), m.log, "measuring", len(o.Tasks)*o.Reps, " runs")
	defer wait.stop()
	o.Progress = func(done, _ int) { wait.at(done) }
	rows, err := eval.MeasureSpeed(ctx, r, m.Model.Vocab, eval.NewBudget(m.File, m.Model.Config, kv), machine.Peaks, o)
	wait.stop()
	if err != nil && ctx.Err() == nil {
		return err
	}
	if printErr := b.print(cmd.OutOrStdout(), newBenchReport(m.File.Path(), r.Attn(), machine, rows)); printErr != nil {
		return printErr
	}
	if err != nil {
		return errors.Join(errInterrupted, err)
	}
	return b.auditRun(ctx, cmd, m, r, o)
}

// auditRun runs each task once more under the audit that the flags ask for. What
// it finds is of random tokens and of a cache that repeats: how much is read
// means something, how wrong it is does not.
func (b *benchFlags) auditRun(ctx context.Context, cmd *cobra.Command, m *openModel, r *engine.Runner, o eval.SpeedOptions) error {
	if !b.cache.audit.on() {
		return nil
	}
	if err := b.cache.audit.watch(r); err != nil {
		return err
	}
	o.Reps = 1
	o.Progress = nil
	if _, err := eval.MeasureSpeed(ctx, r, m.Model.Vocab, eval.Budget{}, device.Peaks{}, o); err != nil {
		return err
	}
	return b.cache.audit.finish(cmd, m)
}

// benchReport is the JSON form of a benchmark.
type benchReport struct {
	Model   string        `json:"model"`
	Attn    string        `json:"attn"`
	Machine machineReport `json:"machine"`
	Rows    []benchRow    `json:"rows"`
}

// machineReport is the machine of a benchmark.
type machineReport struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"`
	Device    string  `json:"device"`
	ReadGBs   float64 `json:"read_gb_s"`
	Int8GOPs  float64 `json:"int8_gop_s"`
	FloatGOPs float64 `json:"float_gop_s"`
}

// benchRow is one figure.
type benchRow struct {
	Phase     eval.Phase `json:"phase"`
	Tokens    int        `json:"tokens,omitempty"` // of a prefill
	Depth     int        `json:"depth,omitempty"`  // of a decode
	TokS      float64    `json:"tok_s"`
	FloorTokS float64    `json:"floor_tok_s"`
	Fraction  float64    `json:"fraction"`
	Limit     string     `json:"limit"`
	ChooseMS  float64    `json:"choose_ms"` // of attention, a prefill or a step
	AttendMS  float64    `json:"attend_ms"`
	Runs      []float64  `json:"runs"`
}

// newBenchReport is what print prints.
func newBenchReport(model, attn string, m eval.Machine, speeds []eval.Speed) benchReport {
	r := benchReport{Model: model, Attn: attn, Rows: []benchRow{}, Machine: machineReport{
		CPU: m.CPU, Cores: m.Cores, Device: m.Device,
		ReadGBs: round3(m.Read / 1e9), Int8GOPs: round3(m.Int8 / 1e9), FloatGOPs: round3(m.Float / 1e9),
	}}
	for _, s := range speeds {
		row := benchRow{
			Phase: s.Phase, TokS: round3(s.TokS), FloorTokS: round3(s.FloorS), Fraction: round3(s.Fraction), Limit: s.Limit,
			ChooseMS: round3(1e3 * s.Choose.Seconds()), AttendMS: round3(1e3 * s.Attend.Seconds()),
		}
		if s.Phase == eval.Prefill {
			row.Tokens = s.Len
		} else {
			row.Depth = s.Len
		}
		for _, x := range s.Runs {
			row.Runs = append(row.Runs, round3(x))
		}
		r.Rows = append(r.Rows, row)
	}
	return r
}

// print writes the report in the form that the flags ask for.
func (b *benchFlags) print(out io.Writer, r benchReport) error {
	if b.json {
		return writeJSON(out, r)
	}
	t := r.table()
	var text string
	switch {
	case b.csv:
		text = t.RenderCSV()
	case b.markdown:
		text = r.headLine() + "\n\n" + t.RenderMarkdown()
	default:
		text = r.headLine() + "\n\n" + t.Render()
	}
	_, err := io.WriteString(out, text+"\n")
	return err
}

// headLine names the machine and its peaks.
func (r benchReport) headLine() string {
	m := r.Machine
	parts := []string{r.Model, m.CPU, m.Device, "attention " + r.Attn}
	if m.ReadGBs > 0 {
		parts = append(parts, fmt.Sprintf("reads %.1f GB/s, computes %.0f int8 GOP/s and %.0f float GFLOP/s", m.ReadGBs, m.Int8GOPs, m.FloatGOPs))
	}
	return strings.Join(parts, "; ")
}

// table is the rows, with the spread of the runs.
func (r benchReport) table() table.Writer {
	t := newTable("tokens", "tok/s", "spread %", "choose ms", "attend ms", "floor tok/s", "reached %")
	t.AppendHeader(table.Row{"phase", "tokens", "tok/s", "spread %", "choose ms", "attend ms", "floor tok/s", "reached %", "limit"})
	for _, row := range r.Rows {
		floor, reached, limit := "-", "-", "-"
		if row.FloorTokS > 0 {
			floor, reached, limit = threeDigits(row.FloorTokS), fmt.Sprintf("%.0f", 100*row.Fraction), row.Limit
		}
		t.AppendRow(table.Row{
			row.Phase, row.Tokens + row.Depth, threeDigits(row.TokS), fmt.Sprintf("%.0f", spread(row.Runs)),
			threeDigits(row.ChooseMS), threeDigits(row.AttendMS), floor, reached, limit,
		})
	}
	return t
}

// spread is how far apart the runs are, in percent of the slowest.
func spread(runs []float64) float64 {
	lo, hi := math.Inf(1), 0.0
	for _, x := range runs {
		lo, hi = min(lo, x), max(hi, x)
	}
	if hi == 0 || lo == 0 {
		return 0
	}
	return 100 * (hi/lo - 1)
}
