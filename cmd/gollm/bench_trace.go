package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

// traceForm is how a trace is written.
type traceForm struct {
	suffix string // of the file's name
	what   string
	write  func(io.Writer, traceReport) error
}

// traceForms are the forms, a longer suffix before one that it ends with.
var traceForms = []traceForm{
	{".trace.json", "for ui.perfetto.dev", writePerfetto},
	{".json", "rows for programs", func(w io.Writer, r traceReport) error { return console.WriteJSON(w, r) }},
	{".txt", "a table", writeTraceText},
}

// traceFormOf is the form of a file, by its name.
func traceFormOf(path string) (traceForm, error) {
	var known []string
	for _, f := range traceForms {
		if strings.HasSuffix(strings.ToLower(path), f.suffix) {
			return f, nil
		}
		known = append(known, fmt.Sprintf("%s (%s)", f.suffix, f.what))
	}
	return traceForm{}, usage.Errorf("--trace %s: the end of the name says what is written, want %s", path, strings.Join(known, ", "))
}

// traceFile is the file of --trace while it is not written.
type traceFile struct {
	*userfile.Out
	form traceForm
}

// openTrace begins the file; nil without --trace.
func (b *benchFlags) openTrace() (*traceFile, error) {
	if b.trace == "" {
		return nil, nil
	}
	form, err := traceFormOf(b.trace)
	if err != nil {
		return nil, err
	}
	out, err := userfile.Create("--trace", b.trace)
	if err != nil {
		return nil, err
	}
	return &traceFile{out, form}, nil
}

// drop is that of the file; f may be nil.
func (f *traceFile) drop() {
	if f != nil {
		f.Out.Drop()
	}
}

// run traces what was measured and writes the file. f may be nil.
func (f *traceFile) run(ctx context.Context, cmd *cobra.Command, m *openmodel.Model, sides []eval.Side, speeds []eval.Speed, r benchReport, peaks device.Roofline, o eval.SpeedOptions) error {
	if f == nil {
		return nil
	}
	wait := console.NewBar(cmd.ErrOrStderr(), m.Log, "tracing", len(speeds), " runs")
	defer wait.Stop()
	o.Progress = func(done, _ int) { wait.At(done) }
	traces, err := eval.MeasureTrace(ctx, sides, m.Model.Vocab, speeds, peaks, o)
	if err != nil {
		return err
	}
	return f.Finish(f.form.write(f, newTraceReport(r, traces)))
}

// traceReport is the JSON form of traces; docs/trace.md describes it.
type traceReport struct {
	Model   string        `json:"model"`
	Batch   int           `json:"batch"` // sequences of a decode step
	Machine machineReport `json:"machine"`
	Traces  []traceOf     `json:"traces"`
}

// traceOf is one step, or the passes of one prompt.
type traceOf struct {
	What       string       `json:"what"`
	Phase      eval.Phase   `json:"phase"`
	Tokens     int          `json:"tokens"` // of the prompt, or before the step
	Attn       string       `json:"attn"`
	SumUS      float64      `json:"sum_us"`      // of the units
	SpanUS     float64      `json:"span_us"`     // from the beginning of the first unit to the end of the last
	UntracedUS float64      `json:"untraced_us"` // the same without a trace, as the benchmark has it
	Captured   bool         `json:"captured"`    // as one launch, which it was without a trace
	Groups     []traceGroup `json:"groups"`
	Units      []traceUnit  `json:"units"`
}

// traceCost is what units cost, beside their roofline.
type traceCost struct {
	TimeUS  float64 `json:"time_us"`
	Share   float64 `json:"share"` // of sum_us
	Bytes   int64   `json:"bytes"`
	Ops     int64   `json:"ops"`
	Int8Ops int64   `json:"int8_ops"` // of ops: products with quantized weights
	GBs     float64 `json:"gb_s"`
	GOPs    float64 `json:"gop_s"`
	LimitUS float64 `json:"limit_us"` // the roofline, 0 where the machine's peaks are unknown
	OfLimit float64 `json:"of_limit"` // limit_us / time_us
}

// traceGroup is all units of a name.
type traceGroup struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
	traceCost
}

// traceUnit is one unit.
type traceUnit struct {
	Name    string  `json:"name"`
	Layer   *int    `json:"layer"` // null outside of the layers
	Pass    int     `json:"pass"`  // a prompt of many tokens is several
	StartUS float64 `json:"start_us"`
	traceCost
	Bound string      `json:"bound"` // what sets the limit: memory or compute
	Calls []traceCall `json:"calls"`
}

// traceCall is a call of a unit.
type traceCall struct {
	Name     string         `json:"name"`
	Operands []traceOperand `json:"operands"`
}

// traceOperand is a tensor of a call.
type traceOperand struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Shape []int  `json:"shape"`
}

// newTraceReport is what is written of traces; r is the benchmark that they belong to.
func newTraceReport(r benchReport, traces []eval.Trace) traceReport {
	report := traceReport{Model: r.Model, Batch: r.Batch, Machine: r.Machine, Traces: []traceOf{}}
	for i := range traces {
		report.Traces = append(report.Traces, newTraceOf(r, &traces[i]))
	}
	return report
}

func newTraceOf(r benchReport, t *eval.Trace) traceOf {
	attn := r.Attn[t.Side]
	j := traceOf{
		Phase: t.Phase, Tokens: t.Len, Attn: attn, What: traceTitle(t, r.Batch, attn),
		SumUS: micros(t.Sum()), SpanUS: micros(t.Span()), UntracedUS: micros(t.Untraced), Captured: t.Captured,
		Groups: []traceGroup{}, Units: []traceUnit{},
	}
	for _, g := range t.Groups() {
		j.Groups = append(j.Groups, traceGroup{g.Name, g.Count, newTraceCost(g.Time, t.Sum(), g.Cost, g.Limit)})
	}
	for i := range t.Units {
		j.Units = append(j.Units, newTraceUnit(t, &t.Units[i]))
	}
	return j
}

// traceTitle says what was traced.
func traceTitle(t *eval.Trace, batch int, attn string) string {
	if t.Phase == eval.Prefill {
		return fmt.Sprintf("a prefill of %s, attention %s", console.Plural(t.Len, "token"), attn)
	}
	return fmt.Sprintf("a decode step of %s behind %s, attention %s", console.Plural(batch, "sequence"), console.Plural(t.Len, "token"), attn)
}

func newTraceUnit(t *eval.Trace, u *engine.Unit) traceUnit {
	limit, bound := t.Limit(u.Cost)
	j := traceUnit{
		Name: u.Name(), Pass: u.Pass(), StartUS: micros(u.Start), Bound: bound,
		traceCost: newTraceCost(u.Time, t.Sum(), u.Cost, limit), Calls: []traceCall{},
	}
	if layer := u.Layer(); layer >= 0 {
		j.Layer = &layer
	}
	for _, c := range u.Calls {
		j.Calls = append(j.Calls, newTraceCall(c.Call))
	}
	return j
}

func newTraceCall(c device.Call) traceCall {
	j := traceCall{Name: device.Name(c), Operands: []traceOperand{}}
	for name, t := range device.Operands(c) {
		shape := make([]int, t.Rank())
		for i := range shape {
			shape[i] = t.Dim(i)
		}
		j.Operands = append(j.Operands, traceOperand{name, t.DType.String(), shape})
	}
	return j
}

// newTraceCost is a cost that took so long of a sum of times, and its roofline in seconds.
func newTraceCost(took, sum time.Duration, c device.Cost, limit float64) traceCost {
	t := traceCost{TimeUS: micros(took), Bytes: c.Bytes, Ops: c.Ops, Int8Ops: c.Int8, LimitUS: console.Round3(1e6 * limit)}
	if sum > 0 {
		t.Share = round6(took.Seconds() / sum.Seconds())
	}
	if took > 0 {
		t.GBs, t.GOPs = console.Round3(float64(c.Bytes)/took.Seconds()/1e9), console.Round3(float64(c.Ops)/took.Seconds()/1e9)
		t.OfLimit = round6(limit / took.Seconds())
	}
	return t
}

// micros is a time in microseconds, to the nanosecond.
func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

// round6 is x to six digits behind the point.
func round6(x float64) float64 { return math.Round(1e6*x) / 1e6 }

// writeTraceText writes tables: what took longest by name, and every unit in order.
func writeTraceText(w io.Writer, r traceReport) error {
	var b strings.Builder
	fmt.Fprintln(&b, r.headLine())
	for i := range r.Traces {
		t := &r.Traces[i]
		fmt.Fprintf(&b, "\n%s\n\n%s\n\n%s\n\n%s\n", console.OneLine(t.What), tableOf(groupColumns, t.Groups, "name").Render(), t.foot(),
			tableOf(t.unitColumns(), t.Units, "name", "bound", "calls").Render())
	}
	_, err := io.WriteString(console.NewScreen(w), b.String())
	return err
}

// headLine names the machine and its peaks.
func (r traceReport) headLine() string {
	return benchReport{Model: r.Model, Machine: r.Machine}.headLine()
}

// foot compares the sum of the units with the pass, and the pass with one that nobody
// looked at.
func (t *traceOf) foot() string {
	pass, launched := "prefill", ""
	if t.Phase == eval.Decode {
		pass = "step"
	}
	if t.Captured {
		launched = ", launched as one graph"
	}
	return fmt.Sprintf("%s took %s of the %s from the beginning of the first to the end of the last; without a trace the %s takes %s%s.",
		console.Plural(len(t.Units), "unit"), microsText(t.SumUS), microsText(t.SpanUS), pass, microsText(t.UntracedUS), launched)
}

// microsText is a time in microseconds for people.
func microsText(us float64) string {
	if us < 1e3 {
		return console.ThreeDigits(us) + " µs"
	}
	return console.TimeText(time.Duration(us * 1e3))
}

// groupColumns are the columns of units by name.
var groupColumns = append([]column[traceGroup]{
	{"name", func(g traceGroup) any { return g.Name }},
	{"count", func(g traceGroup) any { return g.Count }},
}, costColumns(func(g traceGroup) traceCost { return g.traceCost })...)

// unitColumns are the columns of the units, with the pass where there are several.
func (t *traceOf) unitColumns() []column[traceUnit] {
	if n := len(t.Units); n == 0 || t.Units[n-1].Pass == 0 {
		return unitColumns
	}
	return append([]column[traceUnit]{{"pass", func(u traceUnit) any { return u.Pass }}}, unitColumns...)
}

// unitColumns are the columns of units of one pass.
var unitColumns = append(append([]column[traceUnit]{
	{"layer", func(u traceUnit) any { return layerText(u.Layer) }},
	{"name", func(u traceUnit) any { return u.Name }},
}, costColumns(func(u traceUnit) traceCost { return u.traceCost })...), []column[traceUnit]{
	{"bound", func(u traceUnit) any { return orDash(u.Bound) }},
	{"calls", func(u traceUnit) any { return callsText(u.Calls) }},
}...)

// costColumns are the columns of what rows cost.
func costColumns[R any](of func(R) traceCost) []column[R] {
	return []column[R]{
		{"µs", func(r R) any { return console.ThreeDigits(of(r).TimeUS) }},
		{"share %", func(r R) any { return fmt.Sprintf("%.1f", 100*of(r).Share) }},
		{"MB", func(r R) any { return orDash(smallDigits(float64(of(r).Bytes) / 1e6)) }},
		{"GB/s", func(r R) any { return console.ThreeDigits(of(r).GBs) }},
		{"MFLOP", func(r R) any { return orDash(smallDigits(float64(of(r).Ops) / 1e6)) }},
		{"limit µs", func(r R) any { return orDash(smallDigits(of(r).LimitUS)) }},
		{"of limit %", func(r R) any { return partOf(of(r).OfLimit) }},
	}
}

// smallDigits is threeDigits for numbers that may be far below one, nothing for 0.
func smallDigits(x float64) string {
	switch {
	case x == 0:
		return ""
	case x < 0.1:
		return fmt.Sprintf("%.2g", x)
	}
	return console.ThreeDigits(x)
}

// layerText is the number of a layer, "-" for none.
func layerText(layer *int) string {
	if layer == nil {
		return "-"
	}
	return fmt.Sprint(*layer)
}

// maxCalls is the characters of a cell of calls.
const maxCalls = 240

// callsText is calls with the types and shapes of their operands.
func callsText(calls []traceCall) string {
	var all []string
	for _, c := range calls {
		if c.Name == "Discard" {
			continue // runs nothing
		}
		var operands []string
		for _, o := range c.Operands {
			operands = append(operands, fmt.Sprintf("%s %s %v", o.Name, o.Type, o.Shape))
		}
		all = append(all, c.Name+"("+strings.Join(operands, ", ")+")")
	}
	return console.Elide(strings.Join(all, "; "), maxCalls)
}

// perfettoTrace is the JSON object format of Chrome's trace events, which
// ui.perfetto.dev and chrome://tracing open: a process for each trace, in which a slice
// for the pass has one for each layer, which has one for each unit.
type perfettoTrace struct {
	Unit   string          `json:"displayTimeUnit"`
	Other  machineReport   `json:"otherData"`
	Events []perfettoEvent `json:"traceEvents"`
}

// perfettoEvent is a complete event, or the name of a process.
type perfettoEvent struct {
	Name  string  `json:"name"`
	Phase string  `json:"ph"` // X: complete; M: metadata
	Start float64 `json:"ts"` // microseconds
	Time  float64 `json:"dur"`
	PID   int     `json:"pid"`
	TID   int     `json:"tid"`
	Args  any     `json:"args,omitempty"`
}

// writePerfetto writes the form of ui.perfetto.dev.
func writePerfetto(w io.Writer, r traceReport) error {
	p := perfettoTrace{Unit: "ns", Other: r.Machine, Events: []perfettoEvent{}}
	for i := range r.Traces {
		t := &r.Traces[i]
		p.Events = append(p.Events, perfettoEvent{Name: "process_name", Phase: "M", PID: i + 1, TID: 1, Args: map[string]string{"name": filepath.Base(r.Model) + ", " + t.What}})
		p.Events = append(p.Events, t.slices(i+1)...)
	}
	return console.WriteJSON(w, p)
}

// slices are the events of a trace: the outer ones first.
func (t *traceOf) slices(process int) []perfettoEvent {
	all := []perfettoEvent{slice(process, string(t.Phase), t.Units, nil)}
	for from := 0; from < len(t.Units); {
		first, to := &t.Units[from], from+1
		for to < len(t.Units) && sameLayer(&t.Units[to], first) {
			to++
		}
		if first.Layer != nil {
			all = append(all, slice(process, fmt.Sprintf("layer %d", *first.Layer), t.Units[from:to], map[string]int{"pass": first.Pass}))
		}
		for i := from; i < to; i++ {
			all = append(all, slice(process, t.Units[i].Name, t.Units[i:i+1], &t.Units[i]))
		}
		from = to
	}
	return all
}

// sameLayer reports whether units are of one layer of one pass.
func sameLayer(a, b *traceUnit) bool {
	return a.Pass == b.Pass && layerText(a.Layer) == layerText(b.Layer)
}

// slice is an event from the beginning of the first of some units to the end of the last.
func slice(process int, name string, units []traceUnit, args any) perfettoEvent {
	e := perfettoEvent{Name: name, Phase: "X", PID: process, TID: 1, Args: args}
	if len(units) > 0 {
		last := &units[len(units)-1]
		e.Start = units[0].StartUS
		e.Time = console.Round3(last.StartUS + last.TimeUS - e.Start)
	}
	return e
}
