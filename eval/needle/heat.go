package needle

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strings"
)

// Heat is the means of a grid, NaN where nothing was answered.
type Heat struct {
	Lengths []int
	Depths  []int
	Mean    [][]float64 // [depth][length], from 0 to 1
	Count   [][]int     // answers of each cell
}

// NewHeat is a map of a grid without answers.
func NewHeat(g Grid) *Heat {
	h := &Heat{Lengths: g.Lengths, Depths: g.Depths}
	for range g.Depths {
		row := make([]float64, len(g.Lengths))
		for i := range row {
			row[i] = math.NaN()
		}
		h.Mean, h.Count = append(h.Mean, row), append(h.Count, make([]int, len(g.Lengths)))
	}
	return h
}

// Add counts an answer to the cell of depth number d and length number l.
func (h *Heat) Add(d, l int, score float64) {
	n := float64(h.Count[d][l])
	if n == 0 {
		h.Mean[d][l] = 0
	}
	h.Mean[d][l] = (h.Mean[d][l]*n + score) / (n + 1)
	h.Count[d][l]++
}

// WriteCSV writes the map with a row for each depth.
func (h *Heat) WriteCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	header := []string{"depth_percent"}
	for _, n := range h.Lengths {
		header = append(header, fmt.Sprint(n))
	}
	if err := out.Write(header); err != nil {
		return err
	}
	for d, row := range h.Mean {
		line := []string{fmt.Sprint(h.Depths[d])}
		for _, x := range row {
			line = append(line, cell(x, "%.4f"))
		}
		if err := out.Write(line); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell is a mean, "" where there is none.
func cell(x float64, format string) string {
	if math.IsNaN(x) {
		return ""
	}
	return fmt.Sprintf(format, x)
}

// stops are the colours of 0, 1/2 and 1.
var stops = [3][3]float64{{0xf0, 0x49, 0x6e}, {0xeb, 0xb8, 0x39}, {0x0c, 0xd7, 0x9f}}

// colour is that of a mean; grey where there is none.
func colour(x float64) (r, g, b int) {
	if math.IsNaN(x) {
		return 0x99, 0x99, 0x99
	}
	x = min(max(x, 0), 1) * 2
	from, share := stops[0], x
	to := stops[1]
	if x > 1 {
		from, to, share = stops[1], stops[2], x-1
	}
	mix := func(i int) int { return int(math.Round(from[i] + (to[i]-from[i])*share)) }
	return mix(0), mix(1), mix(2)
}

// WriteSVG writes the map as a picture: scores in percent, depths downwards, lengths in
// tokens to the right.
func (h *Heat) WriteSVG(w io.Writer, title string) error {
	const side, left, top = 48, 80, 40
	var b strings.Builder
	width, height := left+side*len(h.Lengths)+8, top+side*len(h.Depths)+40
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/><text x="%d" y="20">%s</text>`+"\n", width, height, left, escape(title))
	for d, row := range h.Mean {
		y := top + d*side
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%d %%</text>`+"\n", left-8, y+side/2+4, h.Depths[d])
		for l, x := range row {
			r, g, bl := colour(x)
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#%02x%02x%02x"><title>depth %d %%, %d tokens: %s of %d</title></rect>`+"\n",
				left+l*side, y, side-2, side-2, r, g, bl, h.Depths[d], h.Lengths[l], cell(x, "%.2f"), h.Count[d][l])
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", left+l*side+side/2, y+side/2+4, cell(100*x, "%.0f"))
		}
	}
	for l, n := range h.Lengths {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%d</text>`+"\n", left+l*side+side/2, top+side*len(h.Depths)+16, n)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">tokens</text>`+"\n", left+side*len(h.Lengths)/2, height-8)
	fmt.Fprintf(&b, `<text transform="translate(20 %d) rotate(-90)" text-anchor="middle">depth</text>`+"\n", top+side*len(h.Depths)/2)
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

var escape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace

// WriteText writes the map for a terminal, with colours where it has them.
func (h *Heat) WriteText(w io.Writer, coloured bool) error {
	var b strings.Builder
	b.WriteString("depth  ")
	for _, n := range h.Lengths {
		fmt.Fprintf(&b, "%8d", n)
	}
	b.WriteByte('\n')
	for d, row := range h.Mean {
		fmt.Fprintf(&b, "%4d %%  ", h.Depths[d])
		for _, x := range row {
			text := fmt.Sprintf("%7s ", cell(100*x, "%.0f"))
			if coloured {
				r, g, bl := colour(x)
				text = fmt.Sprintf("\x1b[48;2;%d;%d;%dm\x1b[30m%s\x1b[0m", r, g, bl, text)
			}
			b.WriteString(text)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
