package paper

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/page"
	"github.com/gollm/gollm/internal/quote"
)

// The marks of cells whose figure of ours is not of what the paper's is.
const (
	markReduced = "†"
	markDiffers = "‡"
)

// number is a score as the table has them.
func (r *Report) number(x float64) string {
	if r.Fraction {
		return fmt.Sprintf("%.4f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// published is what the paper has of a cell: dense, and the row where it is another.
func (r *Report) published(c *Cell) string {
	row := "–"
	if c.Published != nil {
		row = r.number(*c.Published)
	}
	if c.Row == r.Rows[0].Name {
		return row
	}
	dense := "–"
	if c.PublishedDense != nil {
		dense = r.number(*c.PublishedDense)
	}
	return dense + " → " + row
}

// ours is what was found here, with its interval and marks; "–" where nothing was.
func (r *Report) ours(c *Cell) string {
	if c.Ours == nil {
		return "–"
	}
	text := r.number(c.Ours.Mean)
	if c.Row != r.Rows[0].Name {
		dense := "–"
		if c.OursDense != nil {
			dense = r.number(c.OursDense.Mean)
		}
		text = dense + " → " + text
	}
	if !c.Ours.Bare {
		text += fmt.Sprintf(" [%s, %s]", r.number(c.Ours.Low), r.number(c.Ours.High))
	}
	return text + r.marks(c)
}

// marks are those of a cell.
func (r *Report) marks(c *Cell) string {
	text := ""
	if c.Reduced {
		text += markReduced
	}
	if r.row(c.Row).Differs != "" {
		text += markDiffers
	}
	return text
}

// row is the row of that name.
func (r *Report) row(name string) *Row {
	return &r.Rows[slices.IndexFunc(r.Rows, func(row Row) bool { return row.Name == name })]
}

// holes are the reasons of all cells, each once, and the number of each from 1 on.
func (r *Report) holes() (list []string, number map[string]int) {
	number = map[string]int{}
	for i := range r.Cells {
		for _, h := range r.Cells[i].Holes {
			if number[h] == 0 {
				list = append(list, h)
				number[h] = len(list)
			}
		}
	}
	return list, number
}

// Markdown writes the table as the paper has it: in each cell what was published, then
// what was found here.
func (r *Report) Markdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s: %s\n\n%s; %s. Figures: %s.\n\n", cellText(r.Table), cellText(r.Title), cellText(r.Paper), cellText(r.Source), cellText(r.Checked))
	fmt.Fprintf(&b, "Paper: %s; here: %s.\n\n", r.Published, cellText(r.Here))
	if len(r.Reduced) > 0 {
		fmt.Fprintf(&b, "**Reduced** (%s): %s.\n\n", markReduced, cellText(strings.Join(r.Reduced, "; ")))
	}
	reasons, numbers := r.holes()
	r.rowsOf(&b, numbers)
	fmt.Fprintf(&b, "\nIn a cell: the paper's figures, then ours with a 95 %% interval; dense → the row's.\n")
	for _, row := range r.Rows {
		if row.Differs != "" {
			fmt.Fprintf(&b, "\n%s %s: %s.\n", markDiffers, cellText(row.Name), cellText(row.Differs))
		}
	}
	bullets(&b, "Holes", numbered(reasons))
	bullets(&b, "Left out", r.Left)
	bullets(&b, "Notes", r.Notes)
	r.commands(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// rowsOf writes the rows of the table.
func (r *Report) rowsOf(b *strings.Builder, numbers map[string]int) {
	fmt.Fprintf(b, "| |")
	for i, c := range r.Columns {
		fmt.Fprintf(b, " %s%s |", cellText(c), r.lengths(i))
	}
	fmt.Fprintf(b, "\n|---|%s\n", strings.Repeat("---|", len(r.Columns)))
	for i, row := range r.Rows {
		fmt.Fprintf(b, "| %s |", cellText(row.Name))
		for j := range r.Columns {
			c := &r.Cells[i*len(r.Columns)+j]
			fmt.Fprintf(b, " paper %s<br>here %s", r.published(c), r.ours(c))
			for _, h := range c.Holes {
				fmt.Fprintf(b, " (%d)", numbers[h])
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
}

// lengths says under the name of a column at which lengths the figures are, where ours are others.
func (r *Report) lengths(column int) string {
	l := r.Lengths[column]
	if !l.differ() {
		return ""
	}
	return fmt.Sprintf("<br>paper %s tokens<br>here %s", lengthsText(l.Paper), lengthsText(l.Here))
}

// numbered puts numbers before reasons.
func numbered(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i] = fmt.Sprintf("(%d) %s", i+1, text)
	}
	return out
}

// bullets writes a list under a heading, nothing where it is empty.
func bullets(b *strings.Builder, heading string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n", heading)
	for _, text := range list {
		fmt.Fprintf(b, "- %s\n", cellText(text))
	}
}

// commands writes what runs the table.
func (r *Report) commands(b *strings.Builder) {
	if r.Command != "" {
		fmt.Fprintf(b, "\nRun by:\n\n    %s\n", cellText(r.Command))
	}
	if len(r.Servers) > 0 {
		fmt.Fprintf(b, "\nRun by %s, each row with its own server (Ctrl-C stops one before the next):\n", HarnessVersion)
	}
	for _, s := range r.Servers {
		fmt.Fprintf(b, "\n%s:\n\n    %s\n", cellText(s.Row), quote.Command(s.Serve))
		for _, c := range s.LMEval {
			fmt.Fprintf(b, "    %s\n", quote.Command(c))
		}
	}
}

// cellText is a text that stays in its place in Markdown: in its line, and its cell.
func cellText(text string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`, "|", `\|`, "<", "&lt;").Replace(text)
}

// oneLine is a text that stays in its line; what a terminal obeys is escaped where it is printed.
func oneLine(text string) string { return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text) }

// pageColumns name the cells of the page.
var pageColumns = []string{"row", "column", "paper: tokens", "here: tokens", "paper: dense", "paper", "here: dense", "here", "its interval", "difference to dense", "its interval", "n", "what is not there"}

// Page is the report as a page: a line for each cell, which sorts.
func (r *Report) Page() *page.Page {
	p := &page.Page{
		Title: r.Table + ": " + r.Title, Model: r.Here, Complete: r.Complete, Columns: pageColumns,
		About: "The paper's figures and ours, with 95 % intervals, of " + r.unitText() + ". " + markReduced + " ours is of less than in the paper; " + markDiffers + " the method is not quite the paper's. A click on a column sorts by it.",
		Facts: []page.Fact{{Name: "paper", Text: r.Paper}, {Name: "source", Text: r.Source}, {Name: "figures", Text: r.Checked}, {Name: "model of the paper", Text: r.Published}},
	}
	if len(r.Reduced) > 0 {
		p.Notes = append(p.Notes, "REDUCED: "+strings.Join(r.Reduced, "; "))
	}
	for _, left := range r.Left {
		p.Notes = append(p.Notes, "left out: "+left)
	}
	for _, row := range r.Rows {
		if row.Differs != "" {
			p.Notes = append(p.Notes, markDiffers+" "+row.Name+": "+row.Differs)
		}
	}
	p.Notes = append(p.Notes, r.Notes...)
	for i := range r.Cells {
		p.Rows = append(p.Rows, r.pageRow(&r.Cells[i], r.Lengths[i%len(r.Columns)]))
	}
	if r.Command != "" {
		p.Facts = append(p.Facts, page.Fact{Name: "command", Text: r.Command})
	}
	for _, s := range r.Servers {
		p.Facts = append(p.Facts, page.Fact{Name: s.Row + ", server", Text: quote.Command(s.Serve)})
		for _, c := range s.LMEval {
			p.Facts = append(p.Facts, page.Fact{Name: s.Row + ", harness", Text: quote.Command(c)})
		}
	}
	return p
}

// unitText says what scores are of.
func (r *Report) unitText() string {
	if r.Fraction {
		return "1"
	}
	return "100"
}

// pageRow is the line of a cell.
func (r *Report) pageRow(c *Cell, l Lengths) page.Row {
	figure := func(x *float64) page.Cell {
		if x == nil {
			return page.Cell{}
		}
		return page.Cell{Text: r.number(*x), Value: fmt.Sprint(*x)}
	}
	score := func(s *Score, marks string) (mean, interval, n page.Cell) {
		if s == nil {
			return
		}
		mean = page.Cell{Text: r.number(s.Mean) + marks, Value: fmt.Sprint(s.Mean)}
		if !s.Bare {
			interval = page.Cell{Text: fmt.Sprintf("[%s, %s]", r.number(s.Low), r.number(s.High)), Value: fmt.Sprint(s.Low)}
		}
		return mean, interval, page.Cell{Text: fmt.Sprint(s.N), Value: fmt.Sprint(s.N)}
	}
	tokens := func(list []int) page.Cell {
		if len(list) == 0 {
			return page.Cell{}
		}
		return page.Cell{Text: lengthsText(list), Value: fmt.Sprint(slices.Max(list))}
	}
	dense, _, _ := score(c.OursDense, "")
	mean, interval, n := score(c.Ours, r.marks(c))
	difference, its, _ := score(c.Difference, "")
	if c.Difference != nil && c.Difference.High < 0 {
		difference.Class = "worse"
	}
	if c.Difference != nil && c.Difference.Low > 0 {
		difference.Class = "better"
	}
	why := strings.Join(c.Holes, "; ")
	return page.Row{Cells: []page.Cell{
		{Text: c.Row, Value: c.Row}, {Text: c.Column, Value: c.Column}, tokens(l.Paper), tokens(l.Here), figure(c.PublishedDense), figure(c.Published),
		dense, mean, interval, difference, its, n, {Text: why, Value: why},
	}}
}

// Dry writes what would be run, and what is a hole.
func (r *Report) Dry(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s (paper: %s; here: %s)\n", r.Table, r.Title, r.Published, oneLine(r.Here))
	if r.Command != "" {
		fmt.Fprintf(&b, "  %s\n", oneLine(r.Command))
	}
	for _, s := range r.Servers {
		fmt.Fprintf(&b, "  %s\n", oneLine(quote.Command(s.Serve)))
		for _, c := range s.LMEval {
			fmt.Fprintf(&b, "  %s\n", oneLine(quote.Command(c)))
		}
	}
	line := func(what string, list ...string) {
		for _, text := range list {
			fmt.Fprintf(&b, "  %s: %s\n", what, oneLine(text))
		}
	}
	if r.Load != nil {
		line("load", r.Load.text())
	}
	if r.Hole != "" {
		line("not run", r.Hole)
	}
	line("reduced", r.Reduced...)
	line("left out", r.Left...)
	for _, row := range r.Rows {
		if row.Hole != "" {
			line("hole", row.Name+": "+row.Hole)
		}
		if row.Differs != "" {
			line("differs", row.Name+": "+row.Differs)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
