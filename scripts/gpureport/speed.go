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
	FloorTokS float64 `json:"floor_tok_s"`
	Limit     string  `json:"limit"`
	OfRead    float64 `json:"of_read"`
	OfProduct float64 `json:"of_product"`
	ChooseMS  float64 `json:"choose_ms"`
	AttendMS  float64 `json:"attend_ms"`
	FloorMS   float64 `json:"attention_floor_ms"`
	Attention struct {
		OfRead    float64 `json:"of_read"`
		OfProduct float64 `json:"of_product"`
	} `json:"attention"`
	Density    float64 `json:"density"`
	TimesDense float64 `json:"times_dense"`
	TimesBoth  float64 `json:"times_both"`
}

// both is the time of choosing and attending.
func (b benchRow) both() float64 { return b.ChooseMS + b.AttendMS }

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
	w.Floor = b.FloorTokS
	w.Reached, w.Of = b.OfRead, "copy"
	if b.Phase == "prefill" { // whose aim is the products' rate, whatever bounds it
		w.Reached, w.Of = b.OfProduct, "product"
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
	b, err := r.bench(ctx, f16, append(r.once(), "--prefill", r.length(32), "--decode", r.length(32)+","+r.length(128))...)
	if err != nil {
		return err
	}
	for i, w := range rows[6:8] {
		x := b.Rows[1+i]
		w.set(x.both(), "ms")
		r.besideTorch(w, []string{"decode-32k", "decode-128k"}[i], layers, x)
		w.Floor, w.Reached, w.Of = x.FloorMS, x.Attention.OfRead, "copy"
	}
	w, x := rows[8], b.Rows[0]
	w.set(x.both(), "ms")
	w.Floor, w.Reached, w.Of = x.FloorMS, x.Attention.OfProduct, "product"
	r.besideTorch(w, "prefill-32k", layers, x)
	return nil
}

// beside fills rows with how a setting does beside dense: its attention, the share
// of choosing, and the whole, of which any may be nil.
func beside(b benchRow, attention, choosing, whole *row) {
	if attention != nil {
		attention.set(b.TimesBoth, "times")
		attention.Density = b.Density
		attention.Note = fmt.Sprintf("%s ms to choose, %s ms to read", number(b.ChooseMS, ""), number(b.AttendMS, ""))
		if b.both() > 0 {
			attention.Reached, attention.Of = b.FloorMS/b.both(), "its own floor"
		}
	}
	if choosing != nil && b.both() > 0 {
		choosing.set(b.ChooseMS/b.both(), "")
	}
	if whole != nil {
		whole.set(b.TimesDense, "times")
		whole.Density = b.Density
	}
}

// steered fills rows with a setting's attention beside dense and its share of
// choosing in the layers that it steers. The first two are dense by definition, and
// take what those of dense take.
func (r *report) steered(b, dense benchRow, attention, choosing *row) {
	const first = 2
	all := layers
	if r.small {
		all = 2
	}
	share := float64(first) / float64(all)
	both := b.both() - share*dense.both()
	if share >= 1 || both <= 0 {
		for _, w := range []*row{attention, choosing} {
			w.Unmeasured = fmt.Sprintf("%d of %d layers are dense", first, all)
		}
		return
	}
	attention.set((1-share)*dense.both()/both, "times")
	attention.Density = (b.Density - share) / (1 - share)
	choosing.set(b.ChooseMS/both, "")
}

// sparseDecode measures steps of sparse systems beside dense ones.
func (r *report) sparseDecode(ctx context.Context, rows []*row) error {
	run := func(m modelSpec, length, attn string, more ...string) (*bench, error) {
		args := append(r.once(), "--prefill", "0", "--decode", length, "--attn", "dense", "--attn", attn)
		return r.bench(ctx, m, append(args, more...)...)
	}
	because := func(rows []*row, err error) {
		for _, w := range rows {
			w.Unmeasured = err.Error()
		}
	}
	f16, wide := modelSpec{"llama-3.1-8b", "f16", 0, false}, modelSpec{"llama-2-7b", "f16", 0, false}
	if b, err := run(f16, r.length(32), santa); err != nil {
		because(rows[0:3], err)
	} else {
		// Where nothing is timed in between, drawing and reading are one kernel.
		if both := b.Rows[0].both() - 1e3/b.Rows[0].TokS + 1e3/b.Rows[1].TokS; both > 0 {
			rows[0].set(b.Rows[0].both()/both, "times")
		} else {
			rows[0].Unmeasured = "the step is shorter than without attention"
		}
		rows[0].Density = b.Rows[1].Density
		beside(b.Rows[1], rows[1], rows[2], nil)
		r.besideTorch(rows[1], "decode-32k", layers, b.Rows[1])
	}
	if b, err := run(f16, r.length(128), sketch); err != nil {
		because(rows[3:7], err)
	} else {
		beside(b.Rows[1], rows[3], nil, rows[6])
		r.steered(b.Rows[1], b.Rows[0], rows[4], rows[5])
		r.besideTorch(rows[3], "decode-128k", layers, b.Rows[1])
	}
	batch := 16
	if r.small {
		batch = 2
	}
	settings := []string{shared, cpe, eighth2k, eighth4k}
	args := []string{"--batch", strconv.Itoa(batch)}
	for _, attn := range settings[1:] {
		args = append(args, "--attn", attn)
	}
	b, err := run(wide, r.length(2)+","+r.length(4), settings[0], args...)
	if err != nil {
		because(rows[7:], err)
		return ctx.Err()
	}
	// of is a setting behind 2k, or 4k: at each length dense comes first.
	of := func(attn string, long int) benchRow {
		return b.Rows[long*(1+len(settings))+1+slices.Index(settings, attn)]
	}
	for i, pair := range [][2]benchRow{
		{of(eighth2k, 0), of(eighth4k, 1)}, {of(shared, 0), of(shared, 1)}, {of(cpe, 0), of(cpe, 1)},
	} {
		rows, short, long := rows[7+4*i:11+4*i], pair[0], pair[1]
		beside(short, rows[0], nil, nil)
		beside(long, rows[1], rows[2], rows[3])
		r.besideTorch(rows[0], "wide-2k", layers, short)
		r.besideTorch(rows[1], "wide-4k", layers, long)
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
	rows[0].Floor = float64(dense.Tokens) / max(dense.FloorTokS, 1e-9)
	rows[0].Reached, rows[0].Of = dense.OfProduct, "product"
	beside(b, rows[2], nil, rows[1])
	r.steered(b, dense, rows[3], rows[4])
	r.besideTorch(rows[2], "prefill-128k", layers, b)

	const few = 4
	if _, b, err = pair(few, anchor); err != nil {
		return err
	}
	beside(b, rows[5], rows[6], nil)
	r.besideTorch(rows[5], "prefill-128k", few, b)
	return nil
}
