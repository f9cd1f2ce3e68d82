package page

import (
	"encoding/xml"
	"html/template"
	"io"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/trial"
)

// summary is a run of two settings over two lengths.
func summary() *trial.Summary {
	s := &trial.Summary{Complete: true}
	s.Manifest.Identity = trial.Identity{Suite: "ruler", Settings: []string{"dense", "<b>x</b>"}, Options: map[string]string{"seed": "42"}}
	s.Manifest.About = trial.About{ModelName: "a & b.gguf", Command: []string{"gollm", "eval"}}
	s.Manifest.Notes = []string{"<script>alert(1)</script>"}
	for i, attn := range s.Manifest.Identity.Settings {
		set := trial.Setting{Attn: attn}
		for _, length := range []int{1024, 4096} {
			score := metric.Interval{Mean: 1 - float64(i)/4, Low: 0.5, High: 1, N: 4}
			u := trial.Result{Info: trial.Info{Name: "u", Task: "vt", Length: length, Count: 4}, Done: 4, Score: score, PrefillTokS: 1000, DecodeTokS: 50}
			if i > 0 {
				u.Audit = &trial.Audited{Prefill: &trial.Reading{Density: 0.25, Mass: 0.9, KRead: 0.3}}
				u.Paired = &metric.Paired{Difference: metric.Interval{Mean: -0.25, Low: -0.5, High: -0.1, N: 4}, Loss: 1, Tie: 3}
			}
			set.Units = append(set.Units, u)
			set.Means = append(set.Means, trial.Result{Info: trial.Info{Name: "mean", Task: "mean", Length: length}, Done: 4, Score: score})
		}
		s.Settings = append(s.Settings, set)
	}
	return s
}

func TestPage(t *testing.T) {
	var b strings.Builder
	p := New(summary(), []Map{{Name: "m", SVG: template.HTML("<svg></svg>")}})
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(b.String(), "isNaN", "")
	for _, want := range []string{"a &amp; b.gguf", "&lt;b&gt;x&lt;/b&gt;", `class="worse"`, "-25.0", "Score against density of the prefill", "Score against length", "Needle maps"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	for _, bad := range []string{"<script>alert", "<b>x", "http://", "https://", "Score against density of the decode", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(text, bad) {
			t.Errorf("%q is on the page", bad)
		}
	}
	if len(p.Rows) != 8 {
		t.Errorf("%d rows, want 8", len(p.Rows))
	}
	for _, r := range p.Rows {
		if len(r.Cells) != len(p.Columns) {
			t.Errorf("%d cells in a row of %d columns", len(r.Cells), len(p.Columns))
		}
	}
}

// TestPlotIsXML checks that a plot is well formed, whatever it is called, and
// that its points are inside it.
func TestPlotIsXML(t *testing.T) {
	for _, p := range []Plot{
		{Title: `"<&>`, X: "<x>", Y: "&", Series: []Series{{Name: `<"&`, Points: []Point{{0, 0, "<"}, {100, 100, "&"}}}}},
		{Log: true, Lines: true, Series: []Series{{Points: []Point{{1024, 5000, ""}, {131072, 3, ""}}}}},
		{Log: true, Series: []Series{{Points: []Point{{1024, 0, ""}}}}},
	} {
		svg := string(p.SVG())
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v: %s", err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("a plot without numbers: %s", svg)
		}
		x, y := p.axes()
		for _, s := range p.Series {
			for _, q := range s.Points {
				if cx, cy := x.at(q.X), y.at(q.Y); cx < plotLeft || cx > plotWidth || cy < plotTop-1 || cy > plotHeight-plotBottom+1 {
					t.Errorf("a point at %v, %v is outside", cx, cy)
				}
			}
		}
	}
}

func TestTicks(t *testing.T) {
	for _, high := range []float64{1, 3, 7, 10, 99, 100, 101, 5230} {
		if n := len(ticks(axis{high: high})); n < 4 || n > 11 {
			t.Errorf("%v: %d ticks", high, n)
		}
	}
}
