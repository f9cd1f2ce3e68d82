package page

import (
	"fmt"
	"html/template"
	"strings"
)

// Figure is a picture of a page.
type Figure struct {
	File  string // name of its file, without an ending
	Title string
	Text  string // what it says in numbers; may be empty
	SVG   template.HTML

	width, height int
	legend        []Series // of a plot, whose points have no names
}

// figureStyle is what the page gives its pictures, for a white paper.
const figureStyle = `svg{font:12px sans-serif;color:#1b1f24}text{fill:#1b1f24}.grid{stroke:#d5dae0}.line{fill:none;stroke-width:2;stroke:var(--c)}` +
	`.join{stroke-dasharray:2 4;stroke-width:1.5}.bar{stroke:var(--c);stroke-opacity:.5}.dot{fill:var(--c);stroke:#fff}` + colours

// colours are those of the settings.
const colours = `.s0{--c:#3b7dd8}.s1{--c:#e2711d}.s2{--c:#2a9d4e}.s3{--c:#b5409b}.s4{--c:#c2a11b}.s5{--c:#14a3a8}.s6{--c:#d84a4a}.s7{--c:#8a6fd1}`

// paperColours is colours for programs that know no variables of CSS: rules for
// what is drawn and for what is filled.
func paperColours() string {
	var b strings.Builder
	for i, rule := range strings.SplitAfter(strings.TrimSuffix(colours, "}"), "}") {
		_, value, _ := strings.Cut(strings.TrimSuffix(rule, "}"), "--c:")
		fmt.Fprintf(&b, ".line.s%d,.bar.s%d{stroke:%s}.dot.s%d{fill:%s}", i, i, value, i, value)
	}
	return b.String()
}

// Paper is the figure as a file of its own: with a white ground, its title, and
// the names of what it shows.
func (f *Figure) Paper() string {
	const top, line = 28, 18
	columns := 2
	for _, s := range f.legend {
		if len(s.Name) > 34 {
			columns = 1
		}
	}
	inner := string(f.SVG)
	inner = inner[strings.IndexByte(inner, '>')+1 : strings.LastIndex(inner, "</svg>")]
	height := top + f.height + line*((len(f.legend)+columns-1)/columns) + 8
	if f.Text != "" {
		height += line
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d"><style>%s</style>`,
		f.width, height, f.width, height, strings.ReplaceAll(strings.TrimSuffix(figureStyle, colours), "var(--c)", "#000")+paperColours())
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><text x="8" y="18" font-weight="600">%s</text><g transform="translate(0 %d)">%s</g>`,
		f.width, height, template.HTMLEscapeString(f.Title), top, inner)
	y := top + f.height + line
	if f.Text != "" {
		fmt.Fprintf(&b, `<text x="8" y="%d">%s</text>`, y-6, template.HTMLEscapeString(f.Text))
		y += line
	}
	for i, s := range f.legend {
		x := 16 + (i%columns)*(f.width/2)
		mark(&b, s.Colour, float64(x), float64(y-4), "")
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, x+12, y, template.HTMLEscapeString(s.Name))
		if (i+1)%columns == 0 {
			y += line
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// Figures are the pictures that the page draws, each as a file of its own.
func (p *Page) Figures() []Figure {
	var list []Figure
	for i := range p.Plots {
		q := &p.Plots[i]
		f := Figure{File: q.File, Title: q.Title, SVG: q.SVG(), width: plotWidth, height: plotHeight}
		for _, s := range q.Series {
			if len(s.Points) > 0 {
				f.legend = append(f.legend, s)
			}
		}
		list = append(list, f)
	}
	return append(list, p.Layers...)
}
