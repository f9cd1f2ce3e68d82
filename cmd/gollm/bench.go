package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

const benchLong = `Measure how fast a model runs, and how fast this machine could run it.

prefill is reading a prompt of some length into an empty cache; decode is writing
one token after another behind so many others. Each figure is the median of
--reps runs, in tokens per second, of all sequences of --batch together.

GB is what must be read (every weight once for a token or a prompt, of the
embedding the token's row only, and for decode the keys and values of all tokens
before, as far as the attention reads them), and GB/s that over the time; TFLOP/s
is what must be computed over the time. read % and compute % are these as shares of
what the device reaches in the same run: of a memory that is read (of a copy on a
GPU), and of the instructions that the products use (of a large product on a GPU,
by cuBLASLt where the system has it). The larger of both is of limit %, bound says
which it is, and limit tok/s is the speed at which it would be 100. It may be more
in one case: a model so small that it stays in the processor's cache is not fetched
from memory. A line under the table says so then.

select and attend are what attention took of a prefill or a step: to select what
to read, and to attend to it. limit ms is the roofline of the attention's part of
the bytes and operations.

With --attn several times the specs run alternately, and the first that is dense
is what the others are compared with: "× dense" is tok/s as a multiple of its,
"× attend" the same of attention proper, "× both" with selection.
A spec that is not dense has a pass more, which is not timed: an audit of one
row of each prefill pass, or of the second step, says which share of the pairs of queries
and keys its attention kept (density) and which of the keys and values it had to
read for them, all heads together.

--ctx 4k,8k measures prompts of these lengths and steps behind as many tokens, and
prints a line for each length and spec: the time to the first token, tokens per
second after it, what attention took of both, memory, and how much faster than
dense that is, with the density beside it. --html writes the same as a page with
figures.

--trace FILE runs each of these once more and writes what ran, call by call: name,
shapes, bytes, operations, time, and the roofline, which is the time that the device needs
for as many bytes or operations at what it reaches at best. Where the device computes
several calls at once they are one row. The end of the name says how it is written:
.txt is a table, .json is for programs, .trace.json opens in ui.perfetto.dev.

The prompts are random tokens. For decode --fill tokens are computed and the rest
of the cache is copies of them: the cost of a dense step does not depend on what
the values are, and what a sparse one selects among them is as random as they are.`

const benchExample = `  gollm bench -m model.gguf
  gollm bench -m model.gguf --prefill 512,2k --decode 128,8k --threads 2 --reps 5
  gollm bench -m model.gguf --prefill 0 --decode 8k,32k --attn dense --attn 'sketchwalk(density=0.1)'
  gollm bench -m model.gguf --ctx 4k,8k,16k --attn dense --attn 'sketchwalk(density=0.1)' --html bench.html
  gollm bench -m model.gguf --prefill 0 --decode 8k --trace step.txt
  gollm bench -m model.gguf --json > bench.json`

// maxReps bounds --reps: enough for any median, and memory for their figures.
const maxReps = 1 << 20

// maxBatch bounds --batch.
const maxBatch = 1 << 10

// benchFlags is what bench can be told.
type benchFlags struct {
	model    openmodel.Flags
	cache    openmodel.CacheFlags
	audit    auditFlags
	attn     []string
	prefill  lengths
	decode   lengths
	ctx      lengths
	steps    int
	batch    int
	density  bool
	fill     int
	reps     int
	json     bool
	csv      bool
	markdown bool
	html     string
	trace    string
}

func newBench() *cobra.Command {
	b := benchFlags{prefill: lengths{512, 2048}, decode: lengths{128, 8192}}
	cmd := &cobra.Command{
		Use:        "bench -m FILE",
		Short:      "Measure speed beside what the machine allows",
		Long:       benchLong,
		Example:    benchExample,
		GroupID:    groupLook,
		Args:       usage.NoArgs,
		SuggestFor: []string{"benchmark", "speed", "llama-bench"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.model.RegisterPath(cmd)
	f := cmd.Flags()
	f.Var(&b.prefill, "prefill", "lengths of prompts, in tokens; 8k is 8192, 1M is 1024k, 0 is no prefill")
	f.Var(&b.decode, "decode", "tokens before the first step; 0 is no decode")
	f.Var(&b.ctx, "ctx", "lengths of both, and a line for each length and --attn; instead of --prefill and --decode")
	f.IntVar(&b.steps, "steps", 16, "decode steps of a run")
	f.IntVar(&b.batch, "batch", 1, "sequences of a decode step")
	f.BoolVar(&b.density, "density", true, "count what an --attn that is not dense reads, in a pass of its own")
	f.IntVar(&b.reps, "reps", 3, "runs of each, of which the median counts")
	f.IntVar(&b.fill, "fill", 0, "tokens computed before a decode step, the rest are copies; 0 is 64, or 512 beside a sparse --attn")
	f.BoolVar(&b.json, "json", false, "print one JSON object")
	f.BoolVar(&b.csv, "csv", false, "print CSV")
	f.BoolVar(&b.markdown, "markdown", false, "print a Markdown table")
	f.StringVar(&b.html, "html", "", "write a page with the figures of --ctx to this file")
	f.StringVar(&b.trace, "trace", "", "write what ran, call by call, to this file: .txt, .json, or .trace.json for ui.perfetto.dev")
	_ = cmd.MarkFlagFilename("html", "html") // fails only for a flag that does not exist
	_ = cmd.MarkFlagFilename("trace", "txt", "json")
	b.cache.RegisterType(cmd)
	f.StringArrayVar(&b.attn, "attn", []string{"dense"}, openmodel.AttnUsage+" (repeatable)")
	openmodel.CompleteAttn(cmd)
	b.audit.register(cmd)
	b.cache.Audit = &b.audit
	b.model.RegisterRun(cmd)
	return cmd
}

// check reports what is wrong with the command line.
func (b *benchFlags) check(cmd *cobra.Command) error {
	forms := 0
	for _, on := range []bool{b.json, b.csv, b.markdown} {
		if on {
			forms++
		}
	}
	if forms > 1 {
		return usage.Errorf("--json, --csv and --markdown: choose one")
	}
	if err := b.checkLengths(cmd); err != nil {
		return err
	}
	for _, n := range append(append([]int{}, b.prefill...), b.decode...) {
		if n < 1 || n > openmodel.MaxContext/2 { // steps follow
			return usage.Errorf("a length of %d tokens, want 1 to %d", n, openmodel.MaxContext/2)
		}
	}
	if len(b.prefill)+len(b.decode) == 0 {
		return usage.Errorf("--prefill 0 --decode 0 leave nothing to measure")
	}
	if b.fill < 0 || b.fill > openmodel.MaxContext/2 {
		return usage.Errorf("--fill %d, want 0 to %d tokens", b.fill, openmodel.MaxContext/2)
	}
	if len(b.attn) > 1 && b.audit.on() {
		return usage.Errorf("--audit looks at one --attn, %d are given", len(b.attn))
	}
	if b.steps < 1 || b.steps > openmodel.MaxContext/2 {
		return usage.Errorf("--steps %d, want 1 or more decode steps, at most %d", b.steps, openmodel.MaxContext/2)
	}
	if b.batch < 1 || b.batch > maxBatch {
		return usage.Errorf("--batch %d, want 1 to %d sequences", b.batch, maxBatch)
	}
	if b.reps < 1 || b.reps > maxReps {
		return usage.Errorf("--reps %d, want 1 or more runs, at most %d", b.reps, maxReps)
	}
	for flag, path := range map[string]string{"html": b.html, "trace": b.trace} {
		if path == "" && cmd.Flags().Changed(flag) {
			return usage.Errorf("--%s \"\", want the name of a file", flag)
		}
	}
	if b.trace != "" {
		if _, err := traceFormOf(b.trace); err != nil {
			return err
		}
	}
	if err := b.model.Check(); err != nil {
		return err
	}
	for _, attn := range b.attn {
		b.cache.Attn = attn
		if err := b.cache.Check(); err != nil {
			return err
		}
		outputs := append([]userfile.Named{{Flag: "--html", Path: b.html}, {Flag: "--trace", Path: b.trace}}, b.audit.outputs()...)
		if err := userfile.CheckOutputs(append(b.model.Files(), b.cache.Files()...), outputs...); err != nil {
			return err
		}
	}
	return nil
}

// checkLengths makes --prefill and --decode of --ctx, which excludes them.
func (b *benchFlags) checkLengths(cmd *cobra.Command) error {
	if len(b.ctx) == 0 {
		if b.html != "" {
			return usage.Errorf("--html %s: a page shows lengths; name some with --ctx 4k,8k", b.html)
		}
		return nil
	}
	for _, flag := range []string{"prefill", "decode"} {
		if cmd.Flags().Changed(flag) {
			return usage.Errorf("--ctx is the lengths of prompts and of what steps follow; leave out --%s, or --ctx", flag)
		}
	}
	b.prefill, b.decode = b.ctx, b.ctx
	return nil
}

func (b *benchFlags) run(cmd *cobra.Command) error {
	if err := b.check(cmd); err != nil {
		return err
	}
	var html *userfile.Out // what is written in the end is opened before it is measured
	defer func() { html.Drop() }()
	if b.html != "" {
		var err error
		if html, err = userfile.Create("--html", b.html); err != nil {
			return err
		}
	}
	trace, err := b.openTrace()
	if err != nil {
		return err
	}
	defer trace.drop()
	if err := b.audit.open(); err != nil {
		return err
	}
	defer b.audit.files.drop()
	m, err := b.model.Open(cmd)
	if err != nil {
		return err
	}
	defer m.Close()
	sides, names, err := b.sides(m)
	if err != nil {
		return err
	}
	kv, err := b.cache.DType()
	if err != nil {
		return err
	}
	o := eval.SpeedOptions{Tasks: b.tasks(), Steps: b.steps, Reps: b.reps, Fill: b.fill, Batch: b.batch}
	if o.Fill == 0 && slices.ContainsFunc(names, func(name string) bool { return name != "dense" }) {
		o.Fill = sparseFill
	}
	b.warnLengths(m)
	machine := eval.Describe(m.Device) // takes seconds, and Ctrl-C ends the program meanwhile
	ctx, release := console.Interruptible(cmd.Context())
	defer release()
	wait := console.NewBar(cmd.ErrOrStderr(), m.Log, "measuring", len(o.Tasks)*o.Reps*len(sides), " runs")
	defer wait.Stop()
	o.Begin = func(t eval.Task, side int) { wait.Say(fmt.Sprintf("%s %d, %s", t.Phase, t.Len, names[side])) }
	o.Progress = func(done, _ int) { wait.At(done) }
	rows, err := eval.MeasureSpeed(ctx, sides, m.Model.Vocab, eval.NewBudget(m.File, m.Model.Config, kv), machine.Roofline, o)
	wait.Stop()
	if err != nil && ctx.Err() == nil {
		return err
	}
	report := newBenchReport(m.File.Path(), names, b.batch, machine, rows)
	if len(b.ctx) > 0 {
		report.lengths, report.Story = true, newStory(report.Rows)
	}
	if printErr := b.print(cmd.OutOrStdout(), report); printErr != nil {
		return printErr
	}
	if html != nil {
		if pageErr := html.Finish(storyPage(report).Write(html)); pageErr != nil {
			return pageErr
		}
	}
	if err != nil {
		return errors.Join(console.ErrInterrupted, err)
	}
	if err := trace.run(ctx, cmd, m, sides, rows, report, machine.Roofline, o); err != nil {
		return err
	}
	return b.auditRun(ctx, cmd, m, sides[0], o)
}

// tasks is what is measured, in order: with --ctx one length after the other, so that
// those before a Ctrl-C are whole.
func (b *benchFlags) tasks() []eval.Task {
	if len(b.ctx) == 0 {
		return eval.Tasks(b.prefill, b.decode)
	}
	var all []eval.Task
	for _, n := range b.ctx {
		all = append(all, eval.Tasks([]int{n}, []int{n})...)
	}
	return all
}

// warnLengths says that lengths go beyond what the model was trained for, which
// changes no speed.
func (b *benchFlags) warnLengths(m *openmodel.Model) {
	longest := 0
	for _, n := range b.prefill {
		longest = max(longest, n)
	}
	for _, n := range b.decode {
		longest = max(longest, n+b.steps)
	}
	m.Warned = true // the cache has room for a warm-up too
	if trained := m.Model.Context; longest > trained {
		m.Warn("%d tokens are measured, but %s was trained for %d: the speed is real, a text of that length would not be",
			longest, filepath.Base(m.File.Path()), trained)
	}
}

// sparseFill is the tokens that are computed before a step whose attention
// selects: pages that are all alike leave nothing to select.
const sparseFill = 512

// sides are the settings of --attn and their names in full.
func (b *benchFlags) sides(m *openmodel.Model) (sides []eval.Side, names []string, err error) {
	for _, attn := range b.attn {
		c := b.cache
		c.Attn, c.Audit = attn, nil // an audit would be timed too
		spec, err := c.Spec()
		if err != nil {
			return nil, nil, err
		}
		names = append(names, spec.String())
		sides = append(sides, eval.Side{
			Count: b.density && !spec.Dense(),
			Open:  func(context, slots int) (*engine.Runner, error) { return m.Runners(&c, context, slots, 0) },
		})
	}
	return sides, names, nil
}

// auditRun runs each task once more under the audit that the flags ask for. What
// it finds is of random tokens and of a cache that repeats: how much is read
// means something, how wrong it is does not.
func (b *benchFlags) auditRun(ctx context.Context, cmd *cobra.Command, m *openmodel.Model, side eval.Side, o eval.SpeedOptions) error {
	if !b.audit.on() {
		return nil
	}
	open := side.Open
	side.Count = false
	side.Open = func(context, slots int) (*engine.Runner, error) {
		r, err := open(context, slots)
		if err != nil {
			return nil, err
		}
		return r, b.audit.Watch(r)
	}
	o.Reps = 1
	o.Begin, o.Progress = nil, nil
	if _, err := eval.MeasureSpeed(ctx, []eval.Side{side}, m.Model.Vocab, eval.Budget{}, device.Roofline{}, o); err != nil {
		return err
	}
	return b.audit.finish(cmd, m)
}
