package page

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Point is a place on a plot and what is said about it.
type Point struct {
	X, Y float64
	Note string

	Low, High float64 // of a bar through the point; none where they are equal
}

// Series is the points of one setting.
type Series struct {
	Name   string
	Colour int // a colour and a mark, counted from 0
	Points []Point
}

// Plot is lines or points of several settings.
type Plot struct {
	File   string // name of a file of it, without an ending
	Title  string
	X, Y   string  // names of the axes, with units
	Log    bool    // the x axis doubles at equal distances
	Lines  bool    // points of a series are joined
	Most   float64 // that the y axis reaches at least
	Series []Series
	Joins  []Series // thin lines under the points
}

// The size of a plot and of its margins, in pixels of its own.
const (
	plotWidth, plotHeight = 560, 320
	plotLeft, plotRight   = 68, 16
	plotTop, plotBottom   = 16, 48
)

// Empty reports whether there is nothing to draw.
func (p *Plot) Empty() bool {
	return !slices.ContainsFunc(p.Series, func(s Series) bool { return len(s.Points) > 0 })
}

// axis maps values to pixels.
type axis struct {
	low, high float64
	from, to  float64 // pixels
	log       bool
}

func (a axis) at(x float64) float64 {
	low, high := a.low, a.high
	if a.log {
		x, low, high = math.Log2(x), math.Log2(low), math.Log2(high)
	}
	if high == low {
		return (a.from + a.to) / 2
	}
	return a.from + (a.to-a.from)*(x-low)/(high-low)
}

// SVG draws the plot.
func (p *Plot) SVG() template.HTML {
	x, y := p.axes()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="plot" viewBox="0 0 %d %d" role="img" aria-label="%s">`, plotWidth, plotHeight, template.HTMLEscapeString(p.Title))
	for _, v := range ticks(y) {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, plotWidth-plotRight, y.at(v), y.at(v), plotLeft-8, y.at(v)+4, y.tickText(v))
	}
	for _, v := range p.columns(x) {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x.at(v), x.at(v), plotTop, plotHeight-plotBottom, x.at(v), plotHeight-plotBottom+18, x.tickText(v))
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`, (plotLeft+plotWidth-plotRight)/2, plotHeight-8, template.HTMLEscapeString(p.X))
	fmt.Fprintf(&b, `<text transform="translate(14 %d) rotate(-90)" text-anchor="middle">%s</text>`, (plotTop+plotHeight-plotBottom)/2, template.HTMLEscapeString(p.Y))
	for _, s := range p.Joins {
		s.line(&b, x, y, "line join")
	}
	for _, s := range p.Series {
		if p.Lines {
			s.line(&b, x, y, "line")
		}
		s.draw(&b, x, y)
	}
	b.WriteString("</svg>")
	return template.HTML(b.String()) // names are escaped above and in draw
}

// line joins the points of a series.
func (s *Series) line(b *strings.Builder, x, y axis, class string) {
	if len(s.Points) < 2 {
		return
	}
	fmt.Fprintf(b, `<polyline class="%s s%d" points="`, class, s.Colour%palette)
	for _, p := range s.Points {
		fmt.Fprintf(b, "%.1f,%.1f ", x.at(p.X), y.at(p.Y))
	}
	b.WriteString(`"/>`)
}

// draw writes the points of a series, and their bars.
func (s *Series) draw(b *strings.Builder, x, y axis) {
	for _, p := range s.Points {
		if p.High > p.Low {
			fmt.Fprintf(b, `<line class="bar s%d" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, s.Colour%palette, x.at(p.X), x.at(p.X), y.at(p.Low), y.at(p.High))
		}
		mark(b, s.Colour, x.at(p.X), y.at(p.Y), s.Name+": "+p.Note)
	}
}

// marks are the outlines of points: every colour has each of them in turn.
var marks = [...]string{"m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0z", "m-4.5-4.5h9v9h-9z", "m0-6l5.5 9.5h-11z", "m0-6l6 6l-6 6l-6-6z"}

// mark draws a point; title is what is said about it, "" for nothing.
func mark(b *strings.Builder, colour int, x, y float64, title string) {
	fmt.Fprintf(b, `<path class="dot s%d" d="M%.1f %.1f%s">`, colour%palette, x, y, marks[colour/palette%len(marks)])
	if title != "" {
		fmt.Fprintf(b, `<title>%s</title>`, template.HTMLEscapeString(title))
	}
	b.WriteString(`</path>`)
}

// axes are the ranges of what is drawn.
func (p *Plot) axes() (x, y axis) {
	x = axis{low: math.Inf(1), high: math.Inf(-1), from: plotLeft, to: plotWidth - plotRight, log: p.Log}
	y = axis{low: 0, high: max(p.Most, 1), from: plotHeight - plotBottom, to: plotTop}
	for _, s := range p.Series {
		for _, q := range s.Points {
			x.low, x.high = min(x.low, q.X), max(x.high, q.X)
			y.high = max(y.high, q.Y)
		}
	}
	if !p.Log {
		x.low, x.high = 0, max(x.high, 1)
	}
	step := tickStep(y.high)
	y.high = math.Ceil(y.high/step) * step
	return x, y
}

// columns are the values of the x axis that have a line: those of the points
// where it doubles.
func (p *Plot) columns(x axis) []float64 {
	if !p.Log {
		return ticks(x)
	}
	var list []float64
	for _, s := range p.Series {
		for _, q := range s.Points {
			if !slices.Contains(list, q.X) {
				list = append(list, q.X)
			}
		}
	}
	return list
}

// tickStep is a round distance that cuts a range from 0 into four to ten.
func tickStep(high float64) float64 {
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for high/step < 4 {
		step /= 2
	}
	return step
}

// ticks are round values from 0 to the end of an axis.
func ticks(a axis) []float64 {
	var list []float64
	step := tickStep(a.high)
	for v := 0.0; v <= a.high+step/1e6; v += step {
		list = append(list, v)
	}
	return list
}

// tickText writes a value of an axis; where that doubles, 4096 is 4k.
func (a axis) tickText(v float64) string {
	if a.log && v >= 1024 && math.Mod(v, 1024) == 0 {
		return fmt.Sprintf("%.0fk", v/1024)
	}
	return number(v)
}

// number writes a value with four digits that count, more where they stand before the
// point, and no exponent.
func number(v float64) string {
	x := math.Round(v)
	if math.Abs(v) < 1000 {
		x, _ = strconv.ParseFloat(fmt.Sprintf("%.4g", v), 64) // which was just written
	}
	return strconv.FormatFloat(x, 'f', -1, 64)
}
