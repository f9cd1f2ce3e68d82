package eval

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// open loads a random model and makes a runner of a context.
func open(t *testing.T, s modeltest.Shape, context int) (*engine.Engine, *engine.Runner, *engine.Sequence) {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(modeltest.File(t, modeltest.Writer(s)), dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	r, err := e.NewRunner(engine.Config{Context: context})
	if err != nil {
		t.Fatal(err)
	}
	seq, err := r.Open()
	if err != nil {
		t.Fatal(err)
	}
	return e, r, seq
}

// text is n ids of a vocabulary of 320.
func text(n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32((i*i*7 + 3*i) % 320)
	}
	return ids
}

// definition is the perplexity as its sentence says it: every window from an
// empty cache, the logits of every position in one prefill, a softmax in full.
func definition(t *testing.T, seq *engine.Sequence, ids []int32, o PerplexityOptions) (value, stdErr float64) {
	t.Helper()
	var nll []float64
	step, scored := o.Context, o.Context-o.Context/2-1
	if o.Stride > 0 {
		step, scored = o.Stride, o.Stride
	}
	for at := 0; at+o.Context <= len(ids); at += step {
		window := slices.Clone(ids[at : at+o.Context])
		if o.BOS >= 0 {
			window[0] = o.BOS
		}
		seq.Truncate(0)
		err := seq.Prefill(context.Background(), window, engine.PrefillOptions{Logits: func(pos int, logits []float32) error {
			if pos+1 < o.Context-scored || pos+1 == o.Context {
				return nil
			}
			var sum float64
			for _, l := range logits {
				sum += math.Exp(float64(l))
			}
			nll = append(nll, -math.Log(math.Exp(float64(logits[ids[at+pos+1]]))/sum))
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
	}
	n := float64(len(nll))
	var sum, sq float64
	for _, x := range nll {
		sum += x
	}
	for _, x := range nll {
		sq += (x - sum/n) * (x - sum/n)
	}
	return math.Exp(sum / n), math.Exp(sum/n) * math.Sqrt(sq/n/(n-1))
}

func TestPerplexityIsItsDefinition(t *testing.T) {
	_, _, seq := open(t, modeltest.Shape{}, 64)
	ids := text(200)
	for _, o := range []PerplexityOptions{
		{Context: 64, BOS: 1}, {Context: 64, BOS: -1}, {Context: 33, BOS: 1}, {Context: 4, BOS: 1},
		{Context: 64, BOS: 1, Stride: 16}, {Context: 10, BOS: -1, Stride: 9}, {Context: 10, BOS: -1, Stride: 1},
	} {
		got, err := MeasurePerplexity(t.Context(), seq, ids, o)
		if err != nil {
			t.Fatal(err)
		}
		value, stdErr := definition(t, seq, ids, o)
		if math.Abs(got.Value/value-1) > 1e-4 || math.Abs(got.StdErr/stdErr-1) > 1e-3 || !got.Complete() {
			t.Errorf("%+v: %v ± %v, want %v ± %v", o, got.Value, got.StdErr, value, stdErr)
		}
	}
}

func TestPerplexityCountsAsLlamaCpp(t *testing.T) {
	_, _, seq := open(t, modeltest.Shape{}, 64)
	var calls [][2]int
	p, err := MeasurePerplexity(t.Context(), seq, text(210), PerplexityOptions{
		Context: 64, BOS: 1, Progress: func(done, total int, _ Perplexity) { calls = append(calls, [2]int{done, total}) },
	})
	if err != nil {
		t.Fatal(err)
	}
	if p.Windows != 3 || p.Tokens != 3*31 { // n_ctx - n_ctx/2 - 1 of each chunk, the rest of the text unread
		t.Errorf("%d tokens in %d windows, want 93 in 3", p.Tokens, p.Windows)
	}
	if !slices.Equal(calls, [][2]int{{1, 3}, {2, 3}, {3, 3}}) {
		t.Errorf("progress %v", calls)
	}
}

func TestPerplexityInterruptedKeepsWholeWindows(t *testing.T) {
	_, _, seq := open(t, modeltest.Shape{}, 64)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := MeasurePerplexity(ctx, seq, text(500), PerplexityOptions{
		Context: 64, BOS: 1, Progress: func(done, _ int, _ Perplexity) {
			if done == 2 {
				cancel()
			}
		},
	})
	if !errors.Is(err, context.Canceled) || p.Windows != 2 || p.Tokens != 2*31 || p.Complete() {
		t.Errorf("%+v, %v", p, err)
	}
}

// budget is that of a model whose numbers a reader can check: 2 layers of width
// 64, 4 heads and 2 kv heads of width 16, 96 wide feed-forward, 320 tokens, f32.
func budget(t *testing.T, w *weights.Writer, kv device.DType) Budget {
	t.Helper()
	e := modeltest.File(t, w)
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Load(e, dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return NewBudget(e, m.Model.Config, kv)
}

func TestWorkOfADecodeStep(t *testing.T) {
	const (
		matrices = 2 * (2*64*64 + 2*32*64 + 3*96*64) // q and o, k and v, gate, up and down
		norms    = 2*2*64 + 64
		output   = 320 * 64
		position = 2 * 2 * 2 * 16 // layers, k and v, kv heads, width
		attends  = 4 * 2 * 4 * 16 // operations for each position: layers, heads, width
	)
	for _, tt := range []struct {
		tied bool
		kv   device.DType
		elem int
	}{{false, device.F16, 2}, {true, device.F32, 4}} {
		b := budget(t, modeltest.Writer(modeltest.Shape{Tied: tt.tied}), tt.kv)
		w, attention := b.Decode(100, 1, Everything)
		want := Work{
			Bytes:    4*(matrices+norms+output+64) + 101*position*float64(tt.elem), // 64: the token's row of the embedding
			FloatOps: 2*(matrices+output) + 101*attends,
		}
		if w != want {
			t.Errorf("tied %v: %+v, want %+v", tt.tied, w, want)
		}
		if own := (Work{Bytes: 101 * position * float64(tt.elem), FloatOps: 101 * attends}); attention != own {
			t.Errorf("tied %v: attention %+v, want %+v", tt.tied, attention, own)
		}
		// Three sequences read the weights once, each its own cache and embedding; a
		// sparse attention reads half of the keys and a quarter of the values.
		three, part := b.Decode(100, 3, Share{Density: 0.125, K: 0.5, V: 0.25})
		if own := (Work{Bytes: 3 * attention.Bytes * 0.375, FloatOps: 3 * attention.FloatOps / 8}); part != own {
			t.Errorf("tied %v: attention of three %+v, want %+v", tt.tied, part, own)
		}
		if rest := w.Bytes - attention.Bytes; three.Bytes != rest+2*64*4+part.Bytes || three.FloatOps != 3*(w.FloatOps-attention.FloatOps)+part.FloatOps {
			t.Errorf("tied %v: three sequences %+v", tt.tied, three)
		}
	}
}

func TestWorkOfAPrefill(t *testing.T) {
	b := budget(t, modeltest.Writer(modeltest.Shape{}), device.F16)
	one, _ := b.Prefill(1, Everything)
	many, attention := b.Prefill(100, Everything)
	matrices, output, attends := 2.0*2*(2*64*64+2*32*64+3*96*64), 2.0*320*64, 4.0*2*4*16
	if want := matrices + output + attends; one.FloatOps != want {
		t.Errorf("one token: %v operations, want %v", one.FloatOps, want)
	}
	if want := 100*matrices + output + attends*100*101/2; many.FloatOps != want {
		t.Errorf("100 tokens: %v operations, want %v", many.FloatOps, want)
	}
	if d := many.Bytes - one.Bytes; d != 99*64*4 {
		t.Errorf("99 more tokens read %v bytes more, want their rows of the embedding", d)
	}
	windowed := budget(t, modeltest.Writer(modeltest.Shape{Keys: map[string]any{"llama.attention.sliding_window": 10}}), device.F16)
	if want := attends * 100 * 101 / 2; attention != (Work{FloatOps: want}) {
		t.Errorf("attention of 100 tokens: %+v, want %v operations", attention, want)
	}
	within, _ := windowed.Prefill(100, Everything)
	if d := many.FloatOps - within.FloatOps; d != attends*(100*101/2-(10*11/2+90*10)) {
		t.Errorf("a window of 10 saves %v operations", d)
	}
}

func TestQuantizedWeightsCountAsIntegers(t *testing.T) {
	var q Work
	q.add(weights.Tensor{Name: "w", DType: device.Q8_0, Shape: []int{2, 64}, Data: make([]byte, 136)})
	q.add(weights.Tensor{Name: "norm", DType: device.F32, Shape: []int{64}, Data: make([]byte, 256)})
	if want := (Work{Bytes: 392, IntOps: 256}); q != want {
		t.Errorf("%+v, want %+v", q, want)
	}
}

func TestLimit(t *testing.T) {
	w := Work{Bytes: 100, IntOps: 40, FloatOps: 20}
	for _, tt := range []struct {
		peaks   device.Roofline
		seconds float64
		limit   string
	}{
		{device.Roofline{Read: 10, Int8: 40, Float: 20}, 10, "memory"},
		{device.Roofline{Read: 100, Int8: 40, Float: 20}, 2, "compute"},
		{device.Roofline{}, 0, ""},
		{device.Roofline{Read: 10}, 0, ""},
	} {
		if s, limit := w.Limit(tt.peaks); s != tt.seconds || limit != tt.limit {
			t.Errorf("%+v: %v %s, want %v %s", tt.peaks, s, limit, tt.seconds, tt.limit)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(tt.in); got != tt.want {
			t.Errorf("median(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestMeasureSpeed(t *testing.T) {
	e, _, _ := open(t, modeltest.Shape{}, 64)
	o := SpeedOptions{Tasks: Tasks([]int{5, 70}, []int{1, 64, 200}), Steps: 4, Reps: 3}
	opened := 0
	sides := []Side{{Open: func(context, slots int) (*engine.Runner, error) {
		opened++
		return e.NewRunner(engine.Config{Context: context, Slots: slots})
	}}}
	runs, begun := 0, 0
	o.Begin = func(task Task, side int) {
		if begun++; task != o.Tasks[(begun-1)/3] || side != 0 {
			t.Errorf("run %d begins as %v of side %d", begun, task, side)
		}
	}
	o.Progress = func(done, total int) {
		if runs++; done != runs || total != 15 {
			t.Errorf("progress %d of %d after %d runs", done, total, runs)
		}
	}
	peaks := device.Roofline{Read: 1e9, Int8: 1e9, Float: 1e9}
	rows, err := MeasureSpeed(t.Context(), sides, e.Model.Vocab, NewBudget(e.File, e.Model.Config, device.F16), peaks, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 5 || runs != 15 {
		t.Fatalf("%d rows of %d runs", len(rows), runs)
	}
	if begun != runs {
		t.Errorf("%d runs begun, %d done", begun, runs)
	}
	o.Begin = nil
	for i, row := range rows {
		if row.Task != o.Tasks[i] || len(row.Runs) != 3 || row.TokS != median(row.Runs) || row.LimitS <= 0 || row.Fraction != row.TokS/row.LimitS {
			t.Errorf("%+v", row)
		}
		tokens := 1.0
		if row.Phase == Prefill {
			tokens = float64(row.Len)
		}
		// The share of the limit is the larger of the shares of the read rate and of the product rate.
		if w := row.Work; math.Abs(w.Seconds*row.TokS-tokens) > 1e-6 || math.Abs(max(w.OfRead, w.OfProduct)-row.Fraction) > 1e-9 {
			t.Errorf("%+v", row)
		}
		if a := row.Attention; math.Abs(a.Seconds-(row.Select+row.Attend).Seconds()) > 1e-9 || a.LimitSeconds <= 0 || a.LimitSeconds >= row.Work.LimitSeconds {
			t.Errorf("attention %+v", row)
		}
	}
	if opened != 1 {
		t.Errorf("one side opened %d runners", opened)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := MeasureSpeed(ctx, sides, e.Model.Vocab, Budget{}, peaks, o); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// TestMeasureSpeedOfSides: sides run in one order, then in the other, with one
// runner open at a time, and what a sparse one reads is counted.
func TestMeasureSpeedOfSides(t *testing.T) {
	e, _, _ := open(t, modeltest.Shape{}, 64)
	var order []string
	side := func(attn string) Side {
		spec, err := sparse.Parse(attn)
		if err != nil {
			t.Fatal(err)
		}
		return Side{Count: !spec.Dense(), Open: func(context, slots int) (*engine.Runner, error) {
			order = append(order, attn)
			return e.NewRunner(engine.Config{Context: context, Slots: slots, Attn: spec})
		}}
	}
	sides := []Side{side("dense"), side("streaming(sink=4,window=60)")}
	o := SpeedOptions{Tasks: Tasks([]int{200}, []int{300}), Steps: 2, Reps: 2, Fill: 65}
	rows, err := MeasureSpeed(t.Context(), sides, e.Model.Vocab, Budget{}, device.Roofline{}, o)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(order, " "), "dense streaming(sink=4,window=60) dense streaming(sink=4,window=60) dense"; got != want {
		t.Errorf("opened %s, want %s", got, want)
	}
	for i, row := range rows {
		if row.Task != o.Tasks[i/2] || row.Side != i%2 || len(row.Runs) != 2 || row.Attend <= 0 || row.KVBytes <= 0 {
			t.Errorf("row %d: %+v", i, row)
		}
		switch {
		case row.Side == 0:
			if row.Read != nil {
				t.Errorf("dense attention was counted: %+v", row)
			}
		case row.Phase == Decode:
			if want := 64 / 302.; math.Abs(row.Read.Density-want) > 1e-6 || math.Abs(row.Read.KRead-want) > 1e-6 {
				t.Errorf("decode: %+v, want density %v", row.Read, want)
			}
		default: // the last row of the pass
			if want := 64 / 200.; math.Abs(row.Read.Density-want) > 1e-6 {
				t.Errorf("prefill: %+v, want density %v", row.Read, want)
			}
		}
	}
}

func TestDescribe(t *testing.T) {
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	if m := Describe(dev); m.CPU == "" || m.Cores < 1 || m.Device != dev.Info().Name {
		t.Errorf("%+v", m)
	}
	if got := cpuName("no such file"); got == "" {
		t.Error("no name without /proc/cpuinfo")
	}
}
