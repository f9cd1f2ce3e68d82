package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
)

// row is a figure, or the reason why there is none.
type row struct {
	Part string `json:"part"`
	What string `json:"what"`
	How  string `json:"how,omitempty"` // model, lengths, setting

	Value   float64 `json:"value"`
	Unit    string  `json:"unit,omitempty"`
	Limit   float64 `json:"floor,omitempty"`       // what the device's roofline allows, in the unit
	Share   float64 `json:"reached,omitempty"`     // share of the ceiling that bounds it
	Of      string  `json:"of,omitempty"`          // that ceiling
	Torch   float64 `json:"times_torch,omitempty"` // as fast as PyTorch's dense attention on tensors of this shape
	Density float64 `json:"density,omitempty"`

	Aim  *aim   `json:"aim,omitempty"`
	Note string `json:"note,omitempty"`

	Unmeasured string `json:"unmeasured,omitempty"` // the reason
	Failed     string `json:"failed,omitempty"`     // what went wrong where it was to be measured
}

// ofLimit is an aim of a share of the limit.
const ofLimit = "reached"

// aim is what a figure should be.
type aim struct {
	Of   string  `json:"of"` // value, ofLimit or torch
	Min  float64 `json:"least,omitempty"`
	Max  float64 `json:"most,omitempty"`
	None bool    `json:"none,omitempty"` // exactly 0
}

// The states of a row.
const (
	measured   = "measured"
	met        = "met"
	missed     = "missed"
	unmeasured = "unmeasured"
	failed     = "failed" // an aim that is about right and wrong, not about speed
)

// set fills a row in.
func (w *row) set(value float64, unit string) *row {
	w.Value, w.Unit, w.Unmeasured = value, unit, ""
	return w
}

// fail makes a row one that went wrong.
func (w *row) fail(err error) { w.Failed, w.Unmeasured = err.Error(), "" }

// state is one of the states.
func (w *row) state() string {
	switch {
	case w.Failed != "":
		return failed
	case w.Unmeasured != "":
		return unmeasured
	case w.Aim == nil:
		return measured
	}
	x := w.Value
	switch w.Aim.Of {
	case ofLimit:
		x = w.Share
	case "torch":
		if x = w.Torch; x == 0 {
			return measured // beside nothing
		}
	}
	if x >= w.Aim.Min && (w.Aim.Max == 0 || x <= w.Aim.Max) && !(w.Aim.None && x != 0) {
		return met
	}
	if w.Part == suite || w.Part == agreement || w.Part == everyMethod {
		return failed
	}
	return missed
}

// aimText is for people.
func (w *row) aimText() string {
	a := w.Aim
	if a == nil {
		return ""
	}
	number := func(x float64) string {
		switch a.Of {
		case ofLimit:
			return fmt.Sprintf("%.0f %%", 100*x)
		case "torch":
			return fmt.Sprintf("%.2g × torch", x)
		}
		return strings.TrimSpace(fmt.Sprintf("%.3g %s", x, w.Unit))
	}
	switch {
	case a.None:
		return "0"
	case a.Max == 0:
		return "≥ " + number(a.Min)
	}
	return "≤ " + number(a.Max)
}

// about is what was measured.
type about struct {
	Date    string  `json:"date"`
	Commit  string  `json:"commit"`
	Device  string  `json:"device"`
	Driver  string  `json:"driver"` // of NVIDIA
	CPU     string  `json:"cpu"`
	ReadGBs float64 `json:"memory_gb_s"`
	TFLOPs  float64 `json:"product_tflop_s"`
	Peaks   string  `json:"peaks"`
	Torch   string  `json:"torch,omitempty"`
	Small   bool    `json:"small,omitempty"`
	Seconds float64 `json:"seconds"`

	NotAsked []string `json:"not_asked,omitempty"` // parts, by --only
}

// count is how many rows are in a state.
func (r *report) count(state string) int { return countOf(r.rows, state) }

func countOf(rows []*row, state string) int {
	n := 0
	for _, w := range rows {
		if w.state() == state {
			n++
		}
	}
	return n
}

// summary is the states of all rows.
func (r *report) summary() string { return ofRows(r.rows) }

func ofRows(rows []*row) string {
	var parts []string
	for _, state := range []string{met, missed, failed, measured, unmeasured} {
		if n := countOf(rows, state); n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, state))
		}
	}
	return strings.Join(parts, ", ")
}

// writeJSON writes everything.
func (r *report) writeJSON(f *os.File) error {
	type stated struct {
		*row
		Value *float64 `json:"value"` // null where nothing was measured
		State string   `json:"state"`
	}
	var rows []stated
	for _, w := range r.rows {
		s := stated{row: w, State: w.state()}
		if w.Unmeasured == "" && w.Failed == "" {
			s.Value = &w.Value
		}
		rows = append(rows, s)
	}
	e := json.NewEncoder(f)
	e.SetIndent("", " ")
	return e.Encode(struct {
		About about    `json:"about"`
		Rows  []stated `json:"rows"`
	}{r.about, rows})
}

// writeMarkdown writes what people read.
func (r *report) writeMarkdown(f *os.File) error {
	a := r.about
	about := []string{cmp.Or(a.Device, "no GPU"), "driver " + orUnknown(a.Driver), "gollm " + strings.TrimPrefix(orUnknown(a.Commit), "gollm "), a.CPU, a.Date}
	about = slices.DeleteFunc(about, func(text string) bool { return text == "" })
	fmt.Fprintf(f, "%s. ", strings.Join(about, "; "))
	if a.ReadGBs > 0 {
		fmt.Fprintf(f, "Memory gives %.0f GB/s and a large product does %.0f TFLOP/s in the same run (%s). ", a.ReadGBs, a.TFLOPs, a.Peaks)
	}
	fmt.Fprintf(f, "%s. %.0f s.\n\n", r.summary(), a.Seconds)
	if len(a.NotAsked) > 0 {
		fmt.Fprintf(f, "Not asked for: %s.\n\n", strings.Join(a.NotAsked, ", "))
	}
	if r.small {
		fmt.Fprint(f, "Small models and lengths: this tries the report, and says nothing about speed.\n\n")
	}
	fmt.Fprint(f, "| part | what | how | measured | limit | of limit | × torch | density | aim | |\n|---|---|---|---:|---:|---:|---:|---:|---:|---|\n")
	for _, w := range r.rows {
		value, remark := strings.TrimSpace(threeDigits(w.Value)+" "+w.Unit), w.state()
		if w.Unmeasured != "" {
			value, remark = "-", "unmeasured: "+w.Unmeasured
		} else if w.Failed != "" {
			value, remark = "-", "failed: "+w.Failed
		} else if w.Note != "" {
			remark += "; " + w.Note
		}
		share := ""
		if w.Share > 0 {
			share = fmt.Sprintf("%.0f %% of %s", 100*w.Share, w.Of)
		}
		cells := []string{w.Part, w.What, w.How, value, number(w.Limit, w.Unit), share, number(w.Torch, ""), percent(w.Density), w.aimText(), remark}
		for i := range cells {
			cells[i] = strings.NewReplacer("|", "\\|", "\n", " ").Replace(cells[i])
		}
		if _, err := fmt.Fprintf(f, "| %s |\n", strings.Join(cells, " | ")); err != nil {
			return err
		}
	}
	return nil
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}

// number is a figure with its unit, nothing for none.
func number(x float64, unit string) string {
	if x == 0 {
		return ""
	}
	return strings.TrimSpace(threeDigits(x) + " " + unit)
}

// threeDigits is a number as short as it can be.
func threeDigits(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func percent(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}
