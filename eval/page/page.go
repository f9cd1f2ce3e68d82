package page

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/quote"
)

// palette is how many colours the page has.
const palette = 8

// Page is what is on a page.
type Page struct {
	Title    string
	Model    string
	Device   string
	First    string // what the differences are to
	About    string // what the numbers of the table are; empty is the scores of a run
	Complete bool
	Notes    []string
	Alarms   []string // what looks like a mistake
	Legend   []Series
	Plots    []Plot
	Maps     []Map
	Layers   []Figure
	Columns  []string
	Rows     []Row
	Facts    []Fact
}

// Map is a picture that was drawn before, of one setting. It must be trusted: it
// becomes part of the page as it is.
type Map struct {
	Name string
	SVG  template.HTML
}

// Fact is a line about the run.
type Fact struct{ Name, Text string }

// Row is a line of the table.
type Row struct {
	Cells []Cell
	Mean  bool
}

// Cell is a text and what it sorts by, "" for what is unknown.
type Cell struct {
	Text  string
	Value string
	Class string
	Key   *Series // the mark before the text; nil is none
}

// longName is the characters above which the name of a setting goes on in a second
// line, where it is cut, with the rest on a tap: names leave no room for figures on a
// phone.
const longName = 12

// Long reports whether the text is a name of that kind.
func (c Cell) Long() bool { return c.Key != nil && len(c.Text) > longName }

//go:embed page.html
var source string

var layout = template.Must(template.New("page").Funcs(template.FuncMap{
	"key": func(s Series) template.HTML {
		var b strings.Builder
		mark(&b, s.Colour, 7, 7, "")
		return template.HTML(`<svg class="key" viewBox="0 0 14 14" aria-hidden="true">` + b.String() + `</svg>`)
	},
	"colours": func() template.CSS { return colours },
}).Parse(source))

// New makes the page of a run. maps are the needle maps of its settings, if it
// has any.
func New(s *trial.Summary, maps []Map) *Page {
	p := &Page{
		Title: s.Manifest.Identity.Suite + ": " + s.Manifest.About.ModelName, Model: s.Manifest.About.ModelPath, Device: strings.Join(s.Manifest.About.Devices, ", "),
		Complete: s.Complete, Notes: s.Manifest.Notes, Alarms: s.Alarms, Maps: maps, Columns: columns,
	}
	for i, set := range s.Settings {
		if i == 0 {
			p.First = set.Attn
		}
		key := Series{Name: set.Attn, Colour: i}
		p.Legend = append(p.Legend, key)
		for _, r := range set.Results() {
			line := row(set.Attn, &r)
			line.Cells[0].Key = &key // names that are cut look alike
			p.Rows = append(p.Rows, line)
		}
	}
	for _, plot := range append(densityPlots(s), lengthPlots(s)...) {
		if !plot.Empty() {
			p.Plots = append(p.Plots, plot)
		}
	}
	p.Layers = layerFigures(s)
	p.Facts = facts(s)
	return p
}

// Write writes the page.
func (p *Page) Write(w io.Writer) error {
	if err := layout.Execute(w, p); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	return nil
}

// columns name the cells of a row.
var columns = []string{
	"attention", "task", "length", "n", "score", "interval", "difference", "its interval", "w/t/l",
	"density prefill %", "density decode %", "K read prefill %", "K read decode %", "mass prefill %", "mass decode %",
	"prefill tok/s", "decode tok/s",
}

// row is the line of a result.
func row(attn string, r *trial.Result) Row {
	c := Row{Mean: r.Name == "mean" || strings.HasPrefix(r.Name, "mean of "), Cells: []Cell{
		{Text: attn, Value: attn}, taskCell(r), whole(r.Length), whole(r.Done), percent(r.Score.Mean, r.Score.N > 0),
		{},
	}}
	if r.Score.N > 0 {
		c.Cells[len(c.Cells)-1] = Cell{Text: interval(r.Score.Low, r.Score.High), Value: fmt.Sprint(r.Score.Low)}
	}
	if p := r.Paired; p != nil {
		d := percent(p.Difference.Mean, true)
		d.Text = fmt.Sprintf("%+.1f", 100*p.Difference.Mean)
		switch {
		case p.Difference.High < 0:
			d.Class = "worse"
		case p.Difference.Low > 0:
			d.Class = "better"
		}
		c.Cells = append(c.Cells, d, Cell{Text: interval(p.Difference.Low, p.Difference.High), Value: fmt.Sprint(p.Difference.Low)},
			Cell{Text: fmt.Sprintf("%d/%d/%d", p.Win, p.Tie, p.Loss), Value: fmt.Sprint(p.Win - p.Loss)})
	} else {
		c.Cells = append(c.Cells, Cell{}, Cell{}, Cell{})
	}
	for _, figure := range []func(*trial.Reading) float64{
		func(r *trial.Reading) float64 { return r.Density }, func(r *trial.Reading) float64 { return r.KRead }, func(r *trial.Reading) float64 { return r.Mass },
	} {
		for _, reading := range readings(r, attn) {
			if reading == nil {
				c.Cells = append(c.Cells, Cell{})
				continue
			}
			c.Cells = append(c.Cells, percent(figure(reading), true))
		}
	}
	prefill := rate(r.PrefillTokS)
	if r.Shared > 1 {
		prefill.Text += fmt.Sprintf(" (of %d)", r.Shared)
	}
	c.Cells = append(c.Cells, prefill, rate(r.DecodeTokS))
	return c
}

// taskCell names the task of a result, and its subset behind it.
func taskCell(r *trial.Result) Cell {
	text := r.Task
	if r.Subset != "" {
		text += ", " + r.Subset
	}
	return Cell{Text: text, Value: text}
}

// all is what dense attention reads.
var all = &trial.Reading{Density: 1, Mass: 1, KRead: 1, VRead: 1}

// readings are those of the prefill and of the decode steps, nil where unknown.
func readings(r *trial.Result, attn string) [2]*trial.Reading {
	switch {
	case attn == "dense":
		return [2]*trial.Reading{all, all}
	case r.Audit == nil:
		return [2]*trial.Reading{}
	}
	return [2]*trial.Reading{r.Audit.Prefill, r.Audit.Decode}
}

func whole(n int) Cell {
	if n == 0 {
		return Cell{}
	}
	return Cell{Text: fmt.Sprint(n), Value: fmt.Sprint(n)}
}

func percent(x float64, known bool) Cell {
	if !known {
		return Cell{}
	}
	return Cell{Text: fmt.Sprintf("%.1f", 100*x), Value: fmt.Sprint(x)}
}

func interval(low, high float64) string {
	return fmt.Sprintf("[%.1f, %.1f]", 100*low, 100*high)
}

func rate(x float64) Cell {
	if x <= 0 {
		return Cell{}
	}
	return Cell{Text: number(x), Value: fmt.Sprint(x)}
}

// densityPlots are the scores of the settings against what they read: one plot
// for each phase in which one of them reads less than all.
func densityPlots(s *trial.Summary) []Plot {
	plots := []Plot{
		{File: "score-density-prefill", Title: "Score against density of the prefill", X: "density of the prefill, %", Y: "mean score", Most: 100},
		{File: "score-density-decode", Title: "Score against density of the decode steps", X: "density of decode steps, %", Y: "mean score", Most: 100},
	}
	var sparse [2]bool
	curves := [2]curves{{of: map[curve]*Series{}}, {of: map[curve]*Series{}}}
	for i, set := range s.Settings {
		for phase := range plots {
			series := Series{Name: set.Attn, Colour: i}
			for _, m := range set.Means {
				density, ok := meanDensity(&set, m.Info, phase)
				if m.Group != "" || !ok || m.Score.N == 0 {
					continue
				}
				sparse[phase] = sparse[phase] || density < 0.999
				series.Points = append(series.Points, Point{X: 100 * density, Y: 100 * m.Score.Mean, Low: 100 * m.Score.Low, High: 100 * m.Score.High,
					Note: fmt.Sprintf("%s, density %.1f %%, score %.1f", lengthText(m.Length), 100*density, 100*m.Score.Mean)})
				curves[phase].add(curve{family(set.Attn), m.Length}, series)
			}
			plots[phase].Series = append(plots[phase].Series, series)
		}
	}
	for phase := range plots {
		plots[phase].Joins = curves[phase].lines()
		if !sparse[phase] {
			plots[phase].Series, plots[phase].Joins = nil, nil
		}
	}
	return plots
}

// curve is one attention method at one length, with whatever numbers as options.
type curve struct {
	family string
	length int
}

// curves are the points of settings that differ in numbers only.
type curves struct {
	of    map[curve]*Series
	order []curve
}

// options is what stands in parentheses in a setting.
var options = regexp.MustCompile(`\([^()]*\)`)

// family is a setting without the options that are numbers: those that are words
// make another method of it.
func family(attn string) string {
	return options.ReplaceAllStringFunc(attn, func(text string) string {
		words := slices.DeleteFunc(strings.Split(strings.Trim(text, "()"), ","), func(option string) bool {
			_, value, _ := strings.Cut(option, "=")
			_, err := strconv.ParseFloat(value, 64)
			return err == nil
		})
		if len(words) == 0 {
			return ""
		}
		return "(" + strings.Join(words, ",") + ")"
	})
}

// add takes the last point of s into a curve, which has the colour of the first.
func (c *curves) add(k curve, s Series) {
	if c.of[k] == nil {
		c.of[k] = &Series{Name: k.family, Colour: s.Colour}
		c.order = append(c.order, k)
	}
	c.of[k].Points = append(c.of[k].Points, s.Points[len(s.Points)-1])
}

// lines are the curves of several points, from the least density on.
func (c *curves) lines() []Series {
	var list []Series
	for _, k := range c.order {
		if s := c.of[k]; len(s.Points) > 1 {
			slices.SortFunc(s.Points, func(a, b Point) int { return cmp.Compare(a.X, b.X) })
			list = append(list, *s)
		}
	}
	return list
}

// meanDensity is the mean over the units of a length that were audited.
func meanDensity(set *trial.Setting, mean trial.Info, phase int) (float64, bool) {
	sum, n := 0.0, 0
	for i := range set.Units {
		if u := &set.Units[i]; u.Length == mean.Length {
			if r := readings(u, set.Attn)[phase]; r != nil {
				sum += r.Density
				n++
			}
		}
	}
	return sum / float64(max(n, 1)), n > 0
}

// lengthPlots are score and speed against length, where there are several.
func lengthPlots(s *trial.Summary) []Plot {
	plots := []Plot{
		{File: "score-length", Title: "Score against length", X: "tokens", Y: "mean score", Most: 100, Log: true, Lines: true},
		{File: "prefill-length", Title: "Speed of the prefill against length", X: "tokens", Y: "tokens per second", Log: true, Lines: true},
		{File: "decode-length", Title: "Speed of decode steps against length", X: "tokens", Y: "tokens per second", Log: true, Lines: true},
	}
	for i, set := range s.Settings {
		series := [3]Series{{Name: set.Attn, Colour: i}, {Name: set.Attn, Colour: i}, {Name: set.Attn, Colour: i}}
		for _, m := range set.Means {
			if m.Group != "" || m.Length == 0 || m.Score.N == 0 {
				continue
			}
			prefill, decode := meanSpeed(&set, m.Length)
			for k, y := range [3]float64{100 * m.Score.Mean, prefill, decode} {
				if k == 0 || y > 0 {
					series[k].Points = append(series[k].Points, Point{X: float64(m.Length), Y: y, Note: lengthText(m.Length) + ", " + number(y)})
				}
			}
		}
		for k := range plots {
			if len(series[k].Points) > 1 {
				plots[k].Series = append(plots[k].Series, series[k])
			}
		}
	}
	return plots
}

// meanSpeed is the mean over the units of a length, 0 where unknown, as that of a
// prefill is which was for several settings.
func meanSpeed(set *trial.Setting, length int) (prefill, decode float64) {
	n, shared := 0.0, false
	for i := range set.Units {
		if u := &set.Units[i]; u.Length == length {
			shared = shared || u.Shared > 1
			prefill, decode, n = prefill+u.PrefillTokS, decode+u.DecodeTokS, n+1
		}
	}
	if shared {
		prefill = 0
	}
	return prefill / max(n, 1), decode / max(n, 1)
}

func lengthText(n int) string {
	if n == 0 {
		return "all samples"
	}
	return fmt.Sprintf("%d tokens", n)
}

// facts are what a reader needs to run it again.
func facts(s *trial.Summary) []Fact {
	m := &s.Manifest
	id := &m.Identity
	list := []Fact{
		{"command", quote.Command(m.About.Command)}, {"command of the shards", partsText(m.About.Parts)}, {"version", m.About.Version}, {"model", m.About.ModelPath}, {"model SHA-256", id.Model}, {"computed on", strings.Join(m.About.Devices, ", ")},
		{"identity SHA-256", m.Hash}, {"sparse phase", id.Phase}, {"seed of attention", fmt.Sprint(id.Seed)}, {"KV cache", id.KV},
		{"prompts read at once for", sharedText(m.About.Shared)}, {"BOS", id.BOS}, {"era", id.Era}, {"wording", id.Wording}, {"chat template", id.Template},
	}
	for name, text := range id.Options {
		list = append(list, Fact{name, text})
	}
	slices.SortStableFunc(list[15:], func(a, b Fact) int { return strings.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(list, func(f Fact) bool { return f.Text == "" })
}

// partsText is the command of the first shard of a run that was merged; those of the
// others differ from it in numbers of shards and names of folders.
func partsText(parts []trial.Part) string {
	if len(parts) == 0 {
		return ""
	}
	text := quote.Command(parts[0].About.Command)
	if n := len(parts) - 1; n > 0 {
		text += fmt.Sprintf(" (shard %d of %d; the others are in the manifest)", parts[0].Shard.Index, parts[0].Shard.Of)
	}
	return text
}

// sharedText names the settings that had their prompts read together.
func sharedText(groups [][]string) string {
	var list []string
	for _, g := range groups {
		list = append(list, strings.Join(g, ", "))
	}
	return strings.Join(list, "; ")
}
