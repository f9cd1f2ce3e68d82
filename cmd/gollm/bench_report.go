package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
)

// benchReport is the JSON form of a benchmark.
type benchReport struct {
	Model   string        `json:"model"`
	Attn    []string      `json:"attn"`
	Batch   int           `json:"batch"` // sequences of a decode step
	Machine machineReport `json:"machine"`
	Rows    []benchRow    `json:"rows"`
	Story   []storyRow    `json:"story,omitempty"` // of --ctx
	lengths bool          // whether there is --ctx, and Story is what is shown
}

// machineReport is the machine of a benchmark.
type machineReport struct {
	CPU       string  `json:"cpu"`
	Cores     int     `json:"cores"`
	Device    string  `json:"device"`
	ReadGBs   float64 `json:"read_gb_s"`
	Int8GOPs  float64 `json:"int8_gop_s"`
	FloatGOPs float64 `json:"float_gop_s"`
	Peaks     string  `json:"peaks"` // how the three were measured
}

// benchRow is one figure.
type benchRow struct {
	Phase     eval.Phase `json:"phase"`
	Tokens    int        `json:"tokens,omitempty"` // of a prefill
	Depth     int        `json:"depth,omitempty"`  // of a decode
	Attn      string     `json:"attn"`
	TokS      float64    `json:"tok_s"`
	TTFTMS    float64    `json:"ttft_ms,omitempty"` // to the first token of a prefill
	LimitTokS float64    `json:"floor_tok_s"`
	Fraction  float64    `json:"fraction"`
	Bound     string     `json:"limit"`
	benchWork
	SelectMS   float64   `json:"select_ms"` // of attention, a prefill or a step
	AttendMS   float64   `json:"attend_ms"`
	Attention  benchWork `json:"attention"`          // selection and attention
	LimitMS    float64   `json:"attention_floor_ms"` // of both
	KVBytes    int       `json:"kv_bytes"`
	StateBytes int       `json:"state_bytes"` // that the attention keeps besides
	Runs       []float64 `json:"runs"`

	// Of a setting that is not dense: shares of what dense attention keeps and
	// reads.
	Density *float64 `json:"density,omitempty"`
	KRead   *float64 `json:"k_read,omitempty"`
	VRead   *float64 `json:"v_read,omitempty"`
	// Of every setting beside a dense one.
	TimesDense  float64 `json:"times_dense,omitempty"`  // tokens per second
	TimesAttend float64 `json:"times_attend,omitempty"` // attend alone
	TimesBoth   float64 `json:"times_both,omitempty"`   // select and attend
}

// benchWork is work, and how fast it was done.
type benchWork struct {
	Bytes     float64 `json:"bytes"`
	GBs       float64 `json:"gb_s"`
	OfRead    float64 `json:"of_read"` // of the machine's read_gb_s
	Ops       float64 `json:"ops"`
	TFLOPs    float64 `json:"tflop_s"`
	OfProduct float64 `json:"of_product"` // of the machine's int8_gop_s and float_gop_s
}

func newBenchWork(r eval.Achieved) benchWork {
	bytes, ops := r.Rates()
	return benchWork{
		Bytes: r.Bytes, GBs: console.Round3(bytes / 1e9), OfRead: console.Round3(r.OfRead),
		Ops: r.IntOps + r.FloatOps, TFLOPs: console.Round3(ops / 1e12), OfProduct: console.Round3(r.OfProduct),
	}
}

// newBenchReport is what print prints; attn are the names of the sides.
func newBenchReport(model string, attn []string, batch int, m eval.Machine, speeds []eval.Speed) benchReport {
	r := benchReport{Model: model, Attn: attn, Batch: batch, Rows: []benchRow{}, Machine: machineReport{
		CPU: m.CPU, Cores: m.Cores, Device: m.Device,
		ReadGBs: console.Round3(m.Read / 1e9), Int8GOPs: console.Round3(m.Int8 / 1e9), FloatGOPs: console.Round3(m.Float / 1e9), Peaks: m.How,
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
		Phase: s.Phase, Attn: attn, TokS: console.Round3(s.TokS), LimitTokS: console.Round3(s.LimitS), Fraction: console.Round3(s.Fraction), Bound: s.Bound,
		benchWork: newBenchWork(s.Work), Attention: newBenchWork(s.Attention), LimitMS: console.Round3(1e3 * s.Attention.LimitSeconds),
		SelectMS: console.Round3(1e3 * s.Select.Seconds()), AttendMS: console.Round3(1e3 * s.Attend.Seconds()), KVBytes: s.KVBytes, StateBytes: s.StateBytes,
	}
	if s.Phase == eval.Prefill {
		row.Tokens = s.Len
		if s.TokS > 0 {
			row.TTFTMS = console.Round3(1e3 * float64(s.Len) / s.TokS)
		}
	} else {
		row.Depth = s.Len
	}
	for _, x := range s.Runs {
		row.Runs = append(row.Runs, console.Round3(x))
	}
	if r := s.Read; r != nil {
		share := func(x float64) *float64 { x = math.Round(1e6*x) / 1e6; return &x }
		row.Density, row.KRead, row.VRead = share(r.Density), share(r.KRead), share(r.VRead)
	}
	if dense != nil && dense.TokS > 0 && s.Attend > 0 {
		row.TimesDense = console.Round3(s.TokS / dense.TokS)
		row.TimesAttend = console.Round3(dense.Attend.Seconds() / s.Attend.Seconds())
		row.TimesBoth = console.Round3((dense.Select + dense.Attend).Seconds() / (s.Select + s.Attend).Seconds())
	}
	return row
}

// print writes the report in the form that the flags ask for.
func (b *benchFlags) print(out io.Writer, r benchReport) error {
	if b.json {
		return console.WriteJSON(out, r)
	}
	t := r.table()
	var text string
	switch {
	case t.Length() == 0 && !b.csv:
		text = r.headLine() + "\n\nnothing was measured to the end"
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
	parts := []string{console.OneLine(r.Model), console.OneLine(m.CPU), m.Device}
	if len(r.Attn) == 1 {
		parts = append(parts, "attention "+r.Attn[0])
	}
	if r.Batch > 1 {
		parts = append(parts, fmt.Sprintf("%d sequences a step", r.Batch))
	}
	if m.ReadGBs > 0 {
		parts = append(parts, fmt.Sprintf("reads %.1f GB/s, computes %s (%s)", m.ReadGBs, m.products(), m.Peaks))
	}
	return strings.Join(parts, "; ")
}

// products is the rates of products; a GPU has one for all of them, that of halves.
func (m machineReport) products() string {
	if m.Int8GOPs == m.FloatGOPs {
		return console.ThreeDigits(m.FloatGOPs/1e3) + " TFLOP/s"
	}
	return fmt.Sprintf("%.0f int8 GOP/s and %.0f float GFLOP/s", m.Int8GOPs, m.FloatGOPs)
}

// notes explains speeds above the limit, where the table has the share of it; each
// begins on a line of its own, after space.
func (r benchReport) notes(space string) string {
	if !r.lengths && slices.ContainsFunc(r.Rows, func(row benchRow) bool { return row.Bound == "memory" && math.Round(100*row.Fraction) > 100 }) {
		return space + "\nof limit > 100: the limit is that of weights read from memory, and here the processor's cache holds them."
	}
	return ""
}

// compares reports whether there is more to a row than the speed of dense
// attention.
func (r benchReport) compares() bool {
	return len(r.Attn) > 1 || slices.ContainsFunc(r.Rows, func(row benchRow) bool { return row.Density != nil })
}

// column is a column of a table of rows.
type column[R any] struct {
	name string
	cell func(r R) any
}

// tableOf is a table with the columns in order; those of names and words stand to
// the left.
func tableOf[R any](columns []column[R], rows []R, left ...string) table.Writer {
	var head table.Row
	var numbers []string
	for _, c := range columns {
		head = append(head, c.name)
		if !slices.Contains(left, c.name) {
			numbers = append(numbers, c.name)
		}
	}
	t := console.NewTable(numbers...)
	t.AppendHeader(head)
	for _, r := range rows {
		var cells table.Row
		for _, c := range columns {
			cells = append(cells, c.cell(r))
		}
		t.AppendRow(cells)
	}
	return t
}

// table is the rows, with the spread of the runs; with --ctx a line for each length
// and setting.
func (r benchReport) table() table.Writer {
	if r.lengths {
		return tableOf(storyColumns, r.Story, "attention")
	}
	columns := slices.DeleteFunc(slices.Clone(benchColumns), func(c column[benchRow]) bool {
		return !r.compares() && slices.Contains(comparing, c.name)
	})
	return tableOf(columns, r.Rows, "phase", "attention", "bound")
}

// comparing names the columns of a table of several settings.
var comparing = []string{"attention", "× dense", "× attend", "× both", "density %", "K read %", "V read %"}

// benchColumns are all that a table may have.
var benchColumns = []column[benchRow]{
	{"phase", func(r benchRow) any { return r.Phase }},
	{"tokens", func(r benchRow) any { return r.Tokens + r.Depth }},
	{"attention", func(r benchRow) any { return r.Attn }},
	{"tok/s", func(r benchRow) any { return console.ThreeDigits(r.TokS) }},
	{"× dense", func(r benchRow) any { return times(r.TimesDense) }},
	{"spread %", func(r benchRow) any { return fmt.Sprintf("%.0f", spread(r.Runs)) }},
	{"GB", func(r benchRow) any { return console.ThreeDigits(r.Bytes / 1e9) }},
	{"GB/s", func(r benchRow) any { return console.ThreeDigits(r.GBs) }},
	{"read %", func(r benchRow) any { return partOf(r.OfRead) }},
	{"TFLOP/s", func(r benchRow) any { return console.ThreeDigits(r.TFLOPs) }},
	{"compute %", func(r benchRow) any { return partOf(r.OfProduct) }},
	{"select ms", func(r benchRow) any { return console.ThreeDigits(r.SelectMS) }},
	{"attend ms", func(r benchRow) any { return console.ThreeDigits(r.AttendMS) }},
	{"limit ms", func(r benchRow) any { return times(r.LimitMS) }},
	{"× attend", func(r benchRow) any { return times(r.TimesAttend) }},
	{"× both", func(r benchRow) any { return times(r.TimesBoth) }},
	{"density %", func(r benchRow) any { return percentOf(r.Density) }},
	{"K read %", func(r benchRow) any { return percentOf(r.KRead) }},
	{"V read %", func(r benchRow) any { return percentOf(r.VRead) }},
	{"limit tok/s", func(r benchRow) any { return times(r.LimitTokS) }},
	{"of limit %", func(r benchRow) any { return partOf(r.Fraction) }},
	{"bound", func(r benchRow) any { return orDash(r.Bound) }},
}

// times is a number, "-" where there is none.
func times(x float64) string {
	if x == 0 {
		return "-"
	}
	return console.ThreeDigits(x)
}

// partOf is a share in whole percent, "-" where it is unknown.
func partOf(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*x)
}

// orDash is a word, "-" for none.
func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
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
