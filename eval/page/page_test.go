package page

import (
	"encoding/xml"
	"html/template"
	"io"
	"slices"
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

// full is a run that has every figure there is: a third setting of the family of
// the second, sparse in decode steps too, with maps of its layers.
func full() *trial.Summary {
	s := summary()
	third := s.Settings[1]
	third.Attn = "<b>x</b>(k=2)"
	third.Units = slices.Clone(third.Units)
	for i := range third.Units {
		third.Units[i].Audit = &trial.Audited{
			Prefill: &trial.Reading{Density: 0.5, Mass: 0.95, KRead: 0.6}, Decode: &trial.Reading{Density: 0.1, Mass: 0.8, KRead: 0.2},
		}
	}
	third.Maps = &trial.Maps{Prefill: layers(1, 1, 1), Decode: layers(0.8, 0.25, 0)}
	s.Settings = append(s.Settings, third)
	return s
}

// layers is a map of two layers and three heads; nothing was measured of the last.
func layers(mass ...float64) *trial.Map {
	m := &trial.Map{Rows: 7}
	for range 2 {
		var kept, lost []*float64
		for _, x := range mass {
			wrong := 1 - x
			kept, lost = append(kept, &x), append(lost, &wrong)
		}
		m.Mass, m.Error = append(m.Mass, kept), append(m.Error, lost)
	}
	m.Mass[1][2], m.Error[1][2] = nil, nil
	return m
}

// wellFormed fails the test for what is not XML, or has what is no number.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v: %s", err, svg)
		}
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("a picture without numbers: %s", svg)
	}
}

// TestFigures checks what each figure of a run draws, and that it is a file of its
// own.
func TestFigures(t *testing.T) {
	p := New(full(), nil)
	want := map[string]struct{ marks, lines, bars int }{
		"score-density-prefill":       {6 + 3, 2, 6}, // a mark for each setting in the legend, a curve for each length
		"score-density-decode":        {4 + 2, 0, 4},
		"score-length":                {6 + 3, 3, 0},
		"prefill-length":              {6 + 3, 3, 0},
		"decode-length":               {6 + 3, 3, 0},
		"layers-2-b_x__b__k_2-decode": {0, 0, 0},
	}
	figures := p.Figures()
	for i := range figures {
		f := &figures[i]
		w, ok := want[f.File]
		if !ok {
			t.Errorf("a figure %s", f.File)
			continue
		}
		delete(want, f.File)
		text := f.Paper()
		wellFormed(t, text)
		if n := strings.Count(text, `class="dot`); n != w.marks {
			t.Errorf("%s: %d marks, want %d", f.File, n, w.marks)
		}
		if n := strings.Count(text, "<polyline"); n != w.lines {
			t.Errorf("%s: %d lines, want %d", f.File, n, w.lines)
		}
		if n := strings.Count(text, `class="bar`); n != w.bars {
			t.Errorf("%s: %d bars, want %d", f.File, n, w.bars)
		}
		if strings.Contains(text, "var(") || !strings.Contains(text, `xmlns="http://www.w3.org/2000/svg"`) {
			t.Errorf("%s is no file of its own", f.File)
		}
	}
	for name := range want {
		t.Errorf("no figure %s", name)
	}
	maps := figures[len(figures)-1]
	if want := "retained mass 42.0 %, least 0.0 % in layer 0, head 2; error 0.580; 7 rows of a head"; len(p.Layers) != 1 || maps.Text != want {
		t.Errorf("%d maps of layers, which say %q, want %q", len(p.Layers), maps.Text, want)
	}
	// Of five cells two panels have one path for each colour: 0.8, 0.25 and 0 of the
	// mass, 0.2, 0.75 and 1 of the error.
	if n := strings.Count(string(maps.SVG), `class="cells"`); n != 6 {
		t.Errorf("%d colours of cells, want 6", n)
	}
	s := full()
	for i := range s.Settings {
		for n := range s.Settings[i].Units {
			s.Settings[i].Units[n].Shared = 3
		}
	}
	for _, f := range New(s, nil).Figures() {
		if f.File == "prefill-length" {
			t.Error("the speed of a prefill for three settings is drawn as that of one")
		}
	}
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
		{Title: `"<&>`, X: "<x>", Y: "&", Series: []Series{{Name: `<"&`, Points: []Point{{Note: "<"}, {X: 100, Y: 100, Note: "&", Low: 90, High: 100}}}}, Joins: []Series{{Colour: 9, Points: []Point{{}, {X: 100, Y: 100}}}}},
		{Log: true, Lines: true, Series: []Series{{Points: []Point{{X: 1024, Y: 5000}, {X: 131072, Y: 3}}}}},
		{Log: true, Series: []Series{{Points: []Point{{X: 1024}}}}},
	} {
		svg := string(p.SVG())
		wellFormed(t, svg)
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

func TestFamily(t *testing.T) {
	for attn, want := range map[string]string{
		"dense": "dense", "a(k=0.1)": "a", "prefill=a(k=2) decode=b(x=1e-3,w=one) + c": "prefill=a decode=b(w=one) + c", "a(file=x.npy,k=1.0)": "a(file=x.npy)",
	} {
		if got := family(attn); got != want {
			t.Errorf("%s: %q, want %q", attn, got, want)
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

// TestNumbersHaveNoExponent draws speeds of tens of thousands of tokens per second, and
// a length of 5,000 tokens, which is no multiple of 1024.
func TestNumbersHaveNoExponent(t *testing.T) {
	for v, want := range map[float64]string{12500: "12500", 98765.4: "98765", 1e9: "1000000000", 1234.5: "1235", 999.95: "1000", 0.1 + 0.2: "0.3", 0.00001234: "0.00001234", 0: "0"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
	s := summary()
	for i := range s.Settings {
		for n := range s.Settings[i].Units {
			s.Settings[i].Units[n].PrefillTokS, s.Settings[i].Units[n].DecodeTokS = 48000, 10240*float64(1+n)
		}
	}
	var b strings.Builder
	if err := New(s, nil).Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{">10000</text>", ">15000</text>", ">40000</text>", ">48000</td>", ">10240</td>", ">4k</text>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s on the page", want)
		}
	}
	for _, bad := range []string{"e+0", "e&#43;0", ">10k</text>", ">20k</text>"} {
		if strings.Contains(b.String(), bad) {
			t.Errorf("%s is on the page", bad)
		}
	}
}

// TestScaleTellsAlmostAllFromAll gives what is said to be 1 or more a colour of its own.
func TestScaleTellsAlmostAllFromAll(t *testing.T) {
	for v, want := range map[float64]int{0: 0, 0.0999: 0, 0.1: 1, 0.93: 9, 0.9999: 9, 1: 10, 7: 10, -1: 0, 1e308: 10} {
		if got := colourOf(v); got != want {
			t.Errorf("%v has colour %d, want %d", v, got, want)
		}
	}
	svg := layerBody(layers(0.93, 0.93, 0.93))
	all := viridis[len(viridis)-1]
	if at := strings.Index(svg, all); at != strings.LastIndex(svg, all) || !strings.Contains(svg[at:], "1 or more") {
		t.Errorf("the colour of 1 or more is not that of the scale alone: %s", svg)
	}
}

// TestDeviceIsTheOneThatWasUsed has a run that was told to find a device itself, and one
// that has computed nothing yet.
func TestDeviceIsTheOneThatWasUsed(t *testing.T) {
	for devices, want := range map[string]string{"cpu (2 threads)": ".gguf on cpu (2 threads)</p>", "": ".gguf</p>"} {
		s := summary()
		s.Manifest.About.ModelPath, s.Manifest.About.Device = "m.gguf", "auto"
		if devices != "" {
			s.Manifest.About.Devices = []string{devices}
		}
		var b strings.Builder
		if err := New(s, nil).Write(&b); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), want) || strings.Contains(b.String(), " on auto") {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// The command of a page can be pasted into a shell, that of a shard too.
func TestCommandIsQuoted(t *testing.T) {
	s := summary()
	command := []string{"gollm", "eval", "ruler", "--attn", "quest(budget=0.2)"}
	const want = "gollm eval ruler --attn 'quest(budget=0.2)'"
	s.Manifest.About.Command = command
	s.Manifest.About.Parts = []trial.Part{{Shard: trial.Shard{Index: 0, Of: 2}, About: trial.About{Command: command}}}
	list := facts(s)
	if list[0] != (Fact{"command", want}) || list[1] != (Fact{"command of the shards", want}) {
		t.Errorf("%q and %q, want %q of both", list[0], list[1], want)
	}
}
