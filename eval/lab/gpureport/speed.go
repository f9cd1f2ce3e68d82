package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// bench is what is taken of the JSON of gollm bench.
type bench struct {
	Machine struct {
		Device    string  `json:"device"`
		ReadGBs   float64 `json:"read_gb_s"`
		FloatGOPs float64 `json:"float_gop_s"`
		Peaks     string  `json:"peaks"`
	} `json:"machine"`
	Rows []benchRow `json:"rows"`
}

type benchRow struct {
	Phase     string  `json:"phase"`
	Tokens    int     `json:"tokens"`
	Depth     int     `json:"depth"`
	TokS      float64 `json:"tok_s"`
	TTFTMS    float64 `json:"ttft_ms"`
	LimitTokS float64 `json:"floor_tok_s"`
	Limit     string  `json:"limit"`
	OfRead    float64 `json:"of_read"`
	OfProduct float64 `json:"of_product"`
	SelectMS  float64 `json:"select_ms"`
	AttendMS  float64 `json:"attend_ms"`
	LimitMS   float64 `json:"attention_floor_ms"`
	Attention struct {
		OfRead    float64 `json:"of_read"`
		OfProduct float64 `json:"of_product"`
	} `json:"attention"`
	Density    float64 `json:"density"`
	TimesDense float64 `json:"times_dense"`
	TimesBoth  float64 `json:"times_both"`
}

// both is the time of selection and attending, by marks around them. Between marks a
// kernel waits for the one before and nothing runs beside it, which is not so in a step
// without marks.
func (b benchRow) both() float64 { return b.SelectMS + b.AttendMS }

// stepMS is how long a decode step of n sequences takes.
func (b benchRow) stepMS(n int) float64 { return 1e3 * float64(n) / b.TokS }

// attentionMS is the attention of a decode step, selection included, by the length of
// the step: by how much longer it is than a short one, behind few tokens with dense
// attention, and what attention takes in that one by marks.
func (b benchRow) attentionMS(n int, short benchRow) float64 {
	return b.stepMS(n) - short.stepMS(n) + short.both()
}

// bench runs gollm bench.
func (r *report) bench(ctx context.Context, m modelSpec, args ...string) (*bench, error) {
	path, err := r.model(ctx, m)
	if err != nil {
		return nil, err
	}
	out, err := output(ctx, "", r.bin.gollm, append([]string{"bench", "-m", path, "--device", r.device, "--json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var b bench
	if err := json.Unmarshal(out, &b); err != nil {
		return nil, fmt.Errorf("gollm bench: %w", err)
	}
	r.about.ReadGBs, r.about.TFLOPs, r.about.Peaks = b.Machine.ReadGBs, b.Machine.FloatGOPs/1e3, b.Machine.Peaks
	return &b, nil
}

// steps and reps are those of a run.
func (r *report) steps() []string {
	if r.small {
		return []string{"--steps", "1", "--reps", "1"}
	}
	return []string{"--steps", "64", "--reps", "3"}
}

// once is a run of each, of what takes seconds.
var once = []string{"--steps", "16", "--reps", "1"}

func (r *report) once() []string {
	if r.small {
		return r.steps()
	}
	return once
}

// speed fills a row with tokens per second.
func (w *row) speed(b benchRow) {
	w.set(b.TokS, "tok/s")
	w.Limit = b.LimitTokS
	w.Share, w.Of = b.OfRead, "memory"
	if b.Phase == "prefill" { // whose aim is the products' rate, whatever bounds it
		w.Share, w.Of = b.OfProduct, "product"
	}
}

// dense measures decode and prefill with dense attention.
func (r *report) dense(ctx context.Context, rows []*row) error {
	for i, mix := range []string{"f16", "q8_0", "q4_k_m"} {
		m := modelSpec{"llama-3.1-8b", mix, 0, false}
		depth := "512"
		if r.small {
			depth = "64"
		}
		b, err := r.bench(ctx, m, append(r.steps(), "--prefill", r.length(8), "--decode", depth)...)
		if err != nil {
			rows[2*i].Unmeasured, rows[2*i+1].Unmeasured = err.Error(), err.Error()
			continue
		}
		rows[2*i].speed(b.Rows[1])
		rows[2*i+1].speed(b.Rows[0])
	}
	f16 := modelSpec{"llama-3.1-8b", "f16", 0, false}
	b, err := r.bench(ctx, f16, append(r.once(), "--prefill", r.length(32), "--decode", r.shortest()+","+r.length(32)+","+r.length(128))...)
	if err != nil {
		return err
	}
	for i, w := range rows[6:8] {
		x := b.Rows[2+i]
		ms := x.attentionMS(1, b.Rows[1])
		if ms <= 0 {
			w.Unmeasured = notLonger
			continue
		}
		w.set(ms, "ms")
		r.besideTorch(w, []string{"decode-32k", "decode-128k"}[i], layers, ms)
		w.Limit, w.Share, w.Of = x.LimitMS, x.LimitMS/ms, "memory"
		w.Note = fmt.Sprintf("%s by marks", number(x.both(), "ms"))
	}
	w, x := rows[8], b.Rows[0]
	w.set(x.both(), "ms")
	w.Limit, w.Share, w.Of = x.LimitMS, x.Attention.OfProduct, "product"
	r.besideTorch(w, "prefill-32k", layers, x.both())
	return nil
}

// familyPoints is how far below Llama's share of the limit another family's may be.
const familyPoints = 0.03

// families measures decode and prefill of models of 7 and 8 billion weights, whose share of the
// limit should be the first one's.
func (r *report) families(ctx context.Context, rows []*row) error {
	var first float64
	for i, shape := range familyShapes {
		decode, prefill := rows[2*i], rows[2*i+1]
		b, err := r.bench(ctx, modelSpec{shape, "q4_k_m", 0, false}, append(r.once(), "--prefill", r.length(8), "--decode", r.shortest())...)
		if err != nil {
			decode.Unmeasured, prefill.Unmeasured = err.Error(), err.Error()
			continue
		}
		decode.speed(b.Rows[1])
		prefill.speed(b.Rows[0])
		if i == 0 {
			first = decode.Share
		} else if first > 0 {
			decode.Aim = atLeast(ofLimit, first-familyPoints)
		}
	}
	return ctx.Err()
}

// batches measures decode steps of several sequences.
func (r *report) batches(ctx context.Context, rows []*row) error {
	for i, w := range rows {
		n := batchSizes[i].sequences
		if r.small {
			n = min(n, 4)
		}
		b, err := r.bench(ctx, modelSpec{"llama-3.1-8b", "q8_0", 0, false}, append(r.once(), "--prefill", "0", "--decode", r.length(2), "--batch", strconv.Itoa(n))...)
		if err != nil {
			w.Unmeasured = err.Error()
			continue
		}
		w.speed(b.Rows[0])
	}
	return ctx.Err()
}

// notLonger is why a row has no figure.
const notLonger = "the step is not longer than one behind few tokens"

// beside fills rows with how a setting does in a prompt beside dense: its attention,
// the share of selection, and the whole, of which any may be nil.
func beside(b benchRow, attention, selection, whole *row) {
	if attention != nil {
		attention.set(b.TimesBoth, "times")
		attention.Density = b.Density
		attention.Note = fmt.Sprintf("%s ms to select, %s ms to read", number(b.SelectMS, ""), number(b.AttendMS, ""))
		if b.both() > 0 {
			attention.Share, attention.Of = b.LimitMS/b.both(), "its own limit"
		}
	}
	selection.selectionShare(b, 0)
	if whole != nil {
		whole.set(b.TimesDense, "times")
		whole.Density = b.Density
	}
}

// besideSteps is beside of a decode step of n sequences, with attention by the length
// of the step.
func besideSteps(n int, short, dense, b benchRow, attention, selection, whole *row) {
	beside(b, nil, selection, whole)
	own := b.attentionMS(n, short)
	if own <= 0 {
		attention.Unmeasured = notLonger
		return
	}
	attention.set(dense.attentionMS(n, short)/own, "times")
	if b.Density > 0 { // without it the limit is that of dense attention
		attention.Density = b.Density
		attention.Share, attention.Of = b.LimitMS/own, "its own limit"
	}
	attention.Note = fmt.Sprintf("%s beside %s; by marks %s to select and %s to attend beside %s",
		number(own, "ms"), number(dense.attentionMS(n, short), "ms"), number(b.SelectMS, "ms"), number(b.AttendMS, "ms"), number(dense.both(), "ms"))
}

// selectionShare fills a row with the share of selection in a spec's attention, of which
// some is not its own. The row may be nil.
func (w *row) selectionShare(b benchRow, foreign float64) {
	if own := b.both() - foreign; w != nil && own > 0 {
		w.set(b.SelectMS/own, "")
	}
}

// steered fills rows with a spec's attention beside dense and its share of
// selection in the layers that it steers. The first two are dense by definition, and
// take what those of dense take. both and dense are the attention of all layers.
func (r *report) steered(b benchRow, both, dense, denseMarks float64, attention, selection *row) {
	const first = 2
	all := layers
	if r.small {
		all = 2
	}
	share := float64(first) / float64(all)
	own := both - share*dense
	if share >= 1 || own <= 0 {
		for _, w := range []*row{attention, selection} {
			w.Unmeasured = fmt.Sprintf("%d of %d layers are dense", first, all)
		}
		return
	}
	attention.set((1-share)*dense/own, "times")
	attention.Density = (b.Density - share) / (1 - share)
	selection.selectionShare(b, share*denseMarks)
}

// sparseDecode measures steps of sparse methods beside dense ones.
func (r *report) sparseDecode(ctx context.Context, rows []*row) error {
	// run is rows behind few tokens, and behind each of some lengths: dense, and the settings.
	run := func(m modelSpec, lengths string, settings []string, more ...string) ([]benchRow, error) {
		args := append(r.once(), "--prefill", "0", "--decode", r.shortest()+","+lengths, "--attn", "dense")
		for _, attn := range settings {
			args = append(args, "--attn", attn)
		}
		b, err := r.bench(ctx, m, append(args, more...)...)
		if err != nil {
			return nil, err
		}
		return b.Rows, nil
	}
	because := func(rows []*row, err error) {
		for _, w := range rows {
			w.Unmeasured = err.Error()
		}
	}
	f16, wide := modelSpec{"llama-3.1-8b", "f16", 0, false}, modelSpec{"llama-2-7b", "f16", 0, false}
	if b, err := run(f16, r.length(32), []string{santa}); err != nil {
		because(rows[0:2], err)
	} else {
		short, dense, own := b[0], b[2], b[3]
		besideSteps(1, short, dense, own, rows[0], rows[1], nil)
		r.besideTorch(rows[0], "decode-32k", layers, own.attentionMS(1, short))
	}
	if b, err := run(f16, r.length(128), []string{sketch}); err != nil {
		because(rows[2:6], err)
	} else {
		short, dense, own := b[0], b[2], b[3]
		besideSteps(1, short, dense, own, rows[2], nil, rows[5])
		r.steered(own, own.attentionMS(1, short), dense.attentionMS(1, short), dense.both(), rows[3], rows[4])
		r.besideTorch(rows[2], "decode-128k", layers, own.attentionMS(1, short))
	}
	batch := 16
	if r.small {
		batch = 2
	}
	settings := []string{shared, cpe, eighth2k, eighth4k}
	b, err := run(wide, r.length(2)+","+r.length(4), settings, "--batch", strconv.Itoa(batch))
	if err != nil {
		because(rows[6:], err)
		return ctx.Err()
	}
	// at is dense and a setting behind the first of the lengths, or the second.
	short := b[0]
	at := func(attn string, length int) (dense, own benchRow) {
		rows := b[(1+length)*(1+len(settings)):]
		return rows[0], rows[1+slices.Index(settings, attn)]
	}
	for i, pair := range [][2]string{{eighth2k, eighth4k}, {shared, shared}, {cpe, cpe}} {
		rows := rows[6+4*i : 10+4*i]
		dense, own := at(pair[0], 0)
		besideSteps(batch, short, dense, own, rows[0], nil, nil)
		r.besideTorch(rows[0], "wide-2k", layers, own.attentionMS(batch, short))
		dense, own = at(pair[1], 1)
		besideSteps(batch, short, dense, own, rows[1], rows[2], rows[3])
		r.besideTorch(rows[1], "wide-4k", layers, own.attentionMS(batch, short))
	}
	return nil
}

// sparsePrefill measures prompts of 128k tokens. Each setting is a run of its own,
// so that one that takes too long costs only its own rows.
func (r *report) sparsePrefill(ctx context.Context, rows []*row) error {
	one := func(n int, attn string) (benchRow, error) {
		m := modelSpec{"llama-3.1-8b", "f16", n, false}
		b, err := r.bench(ctx, m, "--steps", "1", "--reps", "1", "--prefill", r.length(128), "--decode", "0", "--attn", attn)
		if err != nil {
			return benchRow{}, err
		}
		return b.Rows[0], nil
	}
	// pair is dense attention and a setting in n layers, 0 being all, with how the
	// setting does beside it.
	pair := func(n int, attn string) (dense, b benchRow, err error) {
		if dense, err = one(n, "dense"); err != nil {
			return
		}
		b, err = one(n, attn)
		b.TimesDense, b.TimesBoth = dense.TTFTMS/b.TTFTMS, dense.both()/b.both()
		return
	}
	dense, b, err := pair(0, sketch)
	if err != nil {
		return err
	}
	rows[0].set(dense.TTFTMS/1e3, "s")
	rows[0].Limit = float64(dense.Tokens) / max(dense.LimitTokS, 1e-9)
	rows[0].Share, rows[0].Of = dense.OfProduct, "product"
	beside(b, rows[2], nil, rows[1])
	r.steered(b, b.both(), dense.both(), dense.both(), rows[3], rows[4])
	r.besideTorch(rows[2], "prefill-128k", layers, b.both())

	const few = 4
	if _, b, err = pair(few, anchor); err != nil {
		return err
	}
	beside(b, rows[5], rows[6], nil)
	r.besideTorch(rows[5], "prefill-128k", few, b.both())
	return nil
}
