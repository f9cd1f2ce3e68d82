package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
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

Beside it stands the floor of the time, as a speed. It is the larger of what must be read (every weight once for a token or a
prompt, of the embedding the token's row only, and for decode the keys and
values of all tokens before) divided by the measured read bandwidth of all
threads together, and what must be computed divided by the measured peak of the
instructions that the kernels use. No program that fetches them from memory can
be faster. reached is tok/s as a share of it, and may be more than 100 % in two
cases: a model so small that it stays in the processor's cache is not fetched from
memory, and a sparse system does not read all that the floor, which is that of
dense attention, counts. A line under the table says so then.

choose and attend are what attention took of a prefill or a step: to decide what
to read, and to read it.

With --attn several times the settings run in turns, and the first that is dense
is what the others are compared with: "× dense" is tok/s as a multiple of its,
"× attend" the same of the reading of the cache alone. A setting that is not
dense has a pass more, which is not timed: an audit of one row of each prefill
pass, or of one step, says which share of the pairs of queries and keys its
attention kept (density) and which of the keys and values it had to read for
them, all heads together.

The prompts are random tokens. For decode --fill tokens are computed and the rest
of the cache is copies of them: the cost of a dense step does not depend on what
the values are, and what a sparse one chooses among them is as random as they are.`

const benchExample = `  gollm bench -m model.gguf
  gollm bench -m model.gguf --prefill 512,2k --decode 128,8k --threads 2 --reps 5
  gollm bench -m model.gguf --prefill 0 --decode 8k,32k --attn dense --attn 'sketchwalk(density=0.1)'
  gollm bench -m model.gguf --json > bench.json`

// maxReps bounds --reps: enough for any median, and memory for their figures.
const maxReps = 1 << 20

// benchFlags is what bench can be told.
type benchFlags struct {
	model    modelFlags
	cache    cacheFlags
	attn     []string
	prefill  lengths
	decode   lengths
	steps    int
	fill     int
	reps     int
	json     bool
	csv      bool
	markdown bool
}

func newBench() *cobra.Command {
	b := benchFlags{prefill: lengths{512, 2048}, decode: lengths{128, 8192}}
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
	f.Var(&b.prefill, "prefill", "lengths of prompts, in tokens; 8k is 8192, 0 is no prefill")
	f.Var(&b.decode, "decode", "tokens before the first step; 0 is no decode")
	f.IntVar(&b.steps, "steps", 16, "decode steps of a run")
	f.IntVar(&b.reps, "reps", 3, "runs of each, of which the median counts")
	f.IntVar(&b.fill, "fill", 0, "tokens computed before a decode step, the rest are copies; 0 is 64, or 512 beside a sparse --attn")
	f.BoolVar(&b.json, "json", false, "print one JSON object")
	f.BoolVar(&b.csv, "csv", false, "print CSV")
	f.BoolVar(&b.markdown, "markdown", false, "print a Markdown table")
	b.cache.registerSize(cmd, "tokens of context; 0, the default, is as many as are needed")
	f.StringArrayVar(&b.attn, "attn", []string{"dense"}, attnUsage+" (repeatable)")
	completeAttn(cmd)
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
	if err := b.checkContext(); err != nil {
		return err
	}
	if len(b.prefill)+len(b.decode) == 0 {
		return usagef("--prefill 0 --decode 0 leave nothing to measure")
	}
	if b.fill < 0 || b.fill > maxContext/2 {
		return usagef("--fill %d, want 0 to %d tokens", b.fill, maxContext/2)
	}
	if len(b.attn) > 1 && b.cache.audit.on() {
		return usagef("--audit looks at one --attn, %d are given", len(b.attn))
	}
	if b.steps < 1 || b.steps > maxContext/2 {
		return usagef("--steps %d, want 1 or more decode steps, at most %d", b.steps, maxContext/2)
	}
	if b.reps < 1 || b.reps > maxReps {
		return usagef("--reps %d, want 1 or more runs, at most %d", b.reps, maxReps)
	}
	if err := b.model.check(); err != nil {
		return err
	}
	for _, attn := range b.attn {
		b.cache.attn = attn
		if err := b.cache.check(); err != nil {
			return err
		}
		if err := b.cache.audit.checkOutputs(append(b.model.files(), b.cache.files()...)...); err != nil {
			return err
		}
	}
	return nil
}

// checkContext refuses what does not fit into the --ctx that was given.
func (b *benchFlags) checkContext() error {
	ctx := b.cache.context
	for _, n := range b.prefill {
		if 0 < ctx && ctx < n {
			return usagef("--prefill %d, but --ctx is %d; use --ctx %d or a shorter prompt", n, ctx, n)
		}
	}
	for _, n := range b.decode {
		if 0 < ctx && ctx < n+b.steps {
			return usagef("--decode %d needs room for %d steps behind it, but --ctx is %d; use --ctx %d or a smaller depth", n, b.steps, ctx, n+b.steps)
		}
	}
	return nil
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
	sides, names, err := b.sides(m)
	if err != nil {
		return err
	}
	kv, err := b.cache.dtype()
	if err != nil {
		return err
	}
	o := eval.SpeedOptions{Tasks: eval.Tasks(b.prefill, b.decode), Steps: b.steps, Reps: b.reps, Fill: b.fill}
	if o.Fill == 0 && slices.ContainsFunc(sides, func(s eval.Side) bool { return s.Count }) {
		o.Fill = sparseFill
	}
	b.warnLengths(m)
	ctx, release := interruptible(cmd.Context())
	defer release()
	machine := eval.Describe(m.Device)
	wait := newBar(cmd.ErrOrStderr(), m.log, "measuring", len(o.Tasks)*o.Reps*len(sides), " runs")
	defer wait.stop()
	o.Progress = func(done, _ int) { wait.at(done) }
	rows, err := eval.MeasureSpeed(ctx, sides, m.Model.Vocab, eval.NewBudget(m.File, m.Model.Config, kv), machine.Peaks, o)
	wait.stop()
	if err != nil && ctx.Err() == nil {
		return err
	}
	if printErr := b.print(cmd.OutOrStdout(), newBenchReport(m.File.Path(), names, machine, rows)); printErr != nil {
		return printErr
	}
	if err != nil {
		return errors.Join(errInterrupted, err)
	}
	return b.auditRun(ctx, cmd, m, sides[0], o)
}

// warnLengths says that lengths go beyond what the model was trained for, which
// changes no speed.
func (b *benchFlags) warnLengths(m *openModel) {
	longest := b.cache.context
	for _, n := range b.prefill {
		longest = max(longest, n)
	}
	for _, n := range b.decode {
		longest = max(longest, n+b.steps)
	}
	m.warned = true // the cache has room for a warm-up too
	if trained := m.Model.Context; longest > trained {
		m.warn("%d tokens are measured, but %s was trained for %d: the speed is real, a text of that length would not be",
			longest, filepath.Base(m.File.Path()), trained)
	}
}

// sparseFill is the tokens that are computed before a step whose attention
// chooses: pages that are all alike leave nothing to choose.
const sparseFill = 512

// sides are the settings of --attn and their names in full.
func (b *benchFlags) sides(m *openModel) (sides []eval.Side, names []string, err error) {
	for _, attn := range b.attn {
		c := b.cache
		c.attn, c.audit = attn, auditFlags{} // an audit would be timed too
		spec, err := c.spec()
		if err != nil {
			return nil, nil, err
		}
		names = append(names, spec.String())
		sides = append(sides, eval.Side{
			Count: !spec.Dense(),
			Open: func(context int) (*engine.Runner, error) {
				return m.runner(&c, max(context, c.context), 0)
			},
		})
	}
	return sides, names, nil
}

// auditRun runs each task once more under the audit that the flags ask for. What
// it finds is of random tokens and of a cache that repeats: how much is read
// means something, how wrong it is does not.
func (b *benchFlags) auditRun(ctx context.Context, cmd *cobra.Command, m *openModel, side eval.Side, o eval.SpeedOptions) error {
	if !b.cache.audit.on() {
		return nil
	}
	open := side.Open
	side.Count = false
	side.Open = func(context int) (*engine.Runner, error) {
		r, err := open(context)
		if err != nil {
			return nil, err
		}
		return r, b.cache.audit.watch(r)
	}
	o.Reps = 1
	o.Progress = nil
	if _, err := eval.MeasureSpeed(ctx, []eval.Side{side}, m.Model.Vocab, eval.Budget{}, device.Peaks{}, o); err != nil {
		return err
	}
	return b.cache.audit.finish(cmd, m)
}

// benchReport is the JSON form of a benchmark.
type benchReport struct {
	Model   string        `json:"model"`
	Attn    []string      `json:"attn"`
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
	Attn      string     `json:"attn"`
	TokS      float64    `json:"tok_s"`
	TTFTMS    float64    `json:"ttft_ms,omitempty"` // to the first token of a prefill
	FloorTokS float64    `json:"floor_tok_s"`       // of dense attention
	Fraction  float64    `json:"fraction"`
	Limit     string     `json:"limit"`
	ChooseMS  float64    `json:"choose_ms"` // of attention, a prefill or a step
	AttendMS  float64    `json:"attend_ms"`
	KVBytes   int        `json:"kv_bytes"`
	Runs      []float64  `json:"runs"`

	// Of a setting that is not dense: shares of what dense attention keeps and
	// reads.
	Density *float64 `json:"density,omitempty"`
	KRead   *float64 `json:"k_read,omitempty"`
	VRead   *float64 `json:"v_read,omitempty"`
	// Of every setting beside a dense one.
	TimesDense  float64 `json:"times_dense,omitempty"`  // tokens per second
	TimesAttend float64 `json:"times_attend,omitempty"` // attend alone
}

// newBenchReport is what print prints; attn are the names of the sides.
func newBenchReport(model string, attn []string, m eval.Machine, speeds []eval.Speed) benchReport {
	r := benchReport{Model: model, Attn: attn, Rows: []benchRow{}, Machine: machineReport{
		CPU: m.CPU, Cores: m.Cores, Device: m.Device,
		ReadGBs: round3(m.Read / 1e9), Int8GOPs: round3(m.Int8 / 1e9), FloatGOPs: round3(m.Float / 1e9),
	}}
	for _, s := range speeds {
		r.Rows = append(r.Rows, newBenchRow(attn[s.Side], s, denseOf(attn, speeds, s)))
	}
	return r
}

// denseOf is the dense row of the same task, if another side has one.
func denseOf(attn []string, speeds []eval.Speed, of eval.Speed) *eval.Speed {
	for i, s := range speeds {
		if s.Task == of.Task && s.Side != of.Side && attn[s.Side] == "dense" {
			return &speeds[i]
		}
	}
	return nil
}

// newBenchRow is a row beside that of dense attention, which may be nil.
func newBenchRow(attn string, s eval.Speed, dense *eval.Speed) benchRow {
	row := benchRow{
		Phase: s.Phase, Attn: attn, TokS: round3(s.TokS), FloorTokS: round3(s.FloorS), Fraction: round3(s.Fraction), Limit: s.Limit,
		ChooseMS: round3(1e3 * s.Choose.Seconds()), AttendMS: round3(1e3 * s.Attend.Seconds()), KVBytes: s.KVBytes,
	}
	if s.Phase == eval.Prefill {
		row.Tokens = s.Len
		if s.TokS > 0 {
			row.TTFTMS = round3(1e3 * float64(s.Len) / s.TokS)
		}
	} else {
		row.Depth = s.Len
	}
	for _, x := range s.Runs {
		row.Runs = append(row.Runs, round3(x))
	}
	if r := s.Read; r != nil {
		share := func(x float64) *float64 { x = math.Round(1e6*x) / 1e6; return &x }
		row.Density, row.KRead, row.VRead = share(r.Density), share(r.KRead), share(r.VRead)
	}
	if dense != nil && dense.TokS > 0 && s.Attend > 0 {
		row.TimesDense = round3(s.TokS / dense.TokS)
		row.TimesAttend = round3(dense.Attend.Seconds() / s.Attend.Seconds())
	}
	return row
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
		text = r.headLine() + "\n\n" + t.RenderMarkdown() + r.notes("\n")
	default:
		text = r.headLine() + "\n\n" + t.Render() + r.notes("")
	}
	_, err := io.WriteString(out, text+"\n")
	return err
}

// headLine names the machine and its peaks.
func (r benchReport) headLine() string {
	m := r.Machine
	parts := []string{r.Model, m.CPU, m.Device}
	if len(r.Attn) == 1 {
		parts = append(parts, "attention "+r.Attn[0])
	}
	if m.ReadGBs > 0 {
		parts = append(parts, fmt.Sprintf("reads %.1f GB/s, computes %.0f int8 GOP/s and %.0f float GFLOP/s", m.ReadGBs, m.Int8GOPs, m.FloatGOPs))
	}
	return strings.Join(parts, "; ")
}

// notes explains speeds above the floor; each begins on a line of its own, after
// space.
func (r benchReport) notes(space string) string {
	var dense, sparse bool
	for _, row := range r.Rows {
		if math.Round(100*row.Fraction) > 100 {
			dense = dense || row.Density == nil && row.Limit == "memory"
			sparse = sparse || row.Density != nil
		}
	}
	text := ""
	if dense {
		text += space + "\nreached > 100: the floor fetches the weights from memory, and here the processor's cache holds them."
	}
	if sparse {
		text += space + "\nreached > 100 of a sparse system: the floor is that of dense attention, which reads the whole cache."
	}
	return text
}

// compares reports whether there is more to a row than the speed of dense
// attention.
func (r benchReport) compares() bool {
	return len(r.Attn) > 1 || slices.ContainsFunc(r.Rows, func(row benchRow) bool { return row.Density != nil })
}

// table is the rows, with the spread of the runs.
func (r benchReport) table() table.Writer {
	columns := []string{"tokens", "tok/s", "spread %", "choose ms", "attend ms"}
	head := table.Row{"phase"}
	if r.compares() {
		columns = []string{"tokens", "attention", "tok/s", "× dense", "spread %", "choose ms", "attend ms", "× attend", "density %", "K read %", "V read %"}
	}
	columns = append(columns, "floor tok/s", "reached %")
	for _, c := range columns {
		head = append(head, c)
	}
	t := newTable(slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == "attention" })...)
	t.AppendHeader(append(head, "limit"))
	for _, row := range r.Rows {
		t.AppendRow(row.cells(r.compares()))
	}
	return t
}

// cells is the row as the table shows it.
func (row benchRow) cells(compares bool) table.Row {
	speed, spread := threeDigits(row.TokS), fmt.Sprintf("%.0f", spread(row.Runs))
	choose, attend := threeDigits(row.ChooseMS), threeDigits(row.AttendMS)
	cells := table.Row{row.Phase, row.Tokens + row.Depth}
	if compares {
		cells = append(cells, row.Attn, speed, times(row.TimesDense), spread, choose, attend, times(row.TimesAttend),
			percentOf(row.Density), percentOf(row.KRead), percentOf(row.VRead))
	} else {
		cells = append(cells, speed, spread, choose, attend)
	}
	if row.FloorTokS > 0 {
		return append(cells, threeDigits(row.FloorTokS), fmt.Sprintf("%.0f", 100*row.Fraction), row.Limit)
	}
	return append(cells, "-", "-", "-")
}

// times is a ratio, "-" where there is none.
func times(x float64) string {
	if x == 0 {
		return "-"
	}
	return threeDigits(x)
}

// percentOf is a share in percent, "-" for that of dense attention.
func percentOf(x *float64) string {
	if x == nil {
		return "-"
	}
	return fmt.Sprintf("%.1f", 100**x)
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
