package paper

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/trial"
)

// Plan is what of a table is run, on what.
type Plan struct {
	Found
	Model   *Model   // of the paper, whose figures stand beside ours
	Same    bool     // the file is that model, by its name or because somebody said so
	Here    string   // the file and what it calls itself
	Rows    []int    // that run, dense first
	Tasks   []string // of the suite that run
	Lengths []int
	Samples int      // of each task and length; 0 is all
	Command []string // what runs the suite
	Servers []Server // what runs each row by the harness
	Hole    string   // why nothing is run
	Left    []string // what is left out, and why
	Reduced []string // what is less than in the paper
	Notes   []string // that depend on the machine
}

// Server is the commands of a row that the harness runs.
type Server struct {
	Row     string     `json:"row"`
	Serve   []string   `json:"serve"`
	LMEval  [][]string `json:"lm_eval"` // one for each run
	Results string     `json:"results"` // folder of what they write
}

// Score is our figure of a cell, in the unit of the table.
type Score struct {
	Mean float64 `json:"mean"`
	Low  float64 `json:"low"` // of the 95 % interval
	High float64 `json:"high"`
	N    int     `json:"n"` // samples
	// Bare is true where the interval is not known; Low and High are then the mean.
	Bare bool `json:"no_interval,omitempty"`
}

// Cell is a cell of a table.
type Cell struct {
	Row            string   `json:"row"`
	Column         string   `json:"column"`
	Source         string   `json:"source"`
	PublishedDense *float64 `json:"published_dense"`
	Published      *float64 `json:"published"`
	OursDense      *Score   `json:"ours_dense"`
	Ours           *Score   `json:"ours"`
	Difference     *Score   `json:"difference,omitempty"` // to dense, on the same samples
	Reduced        bool     `json:"reduced"`              // ours is of less than in the paper
	Holes          []string `json:"holes,omitempty"`      // what is not there, and why
}

// Report is a table with our figures beside the published ones.
type Report struct {
	Table     string    `json:"table"`
	Title     string    `json:"title"`
	Paper     string    `json:"paper"`
	Source    string    `json:"source"`
	Checked   string    `json:"checked"`
	Published string    `json:"published_model"` // whose figures stand beside ours
	Here      string    `json:"here"`            // the model that ran
	Same      bool      `json:"same_model"`
	Command   string    `json:"command,omitempty"`
	Servers   []Server  `json:"servers,omitempty"`
	Complete  bool      `json:"complete"` // every sample that was asked for has an answer
	Hole      string    `json:"hole,omitempty"`
	Left      []string  `json:"left_out"`
	Reduced   []string  `json:"reduced"`
	Notes     []string  `json:"notes"`
	Fraction  bool      `json:"fraction"`
	Rows      []Row     `json:"rows"`
	Columns   []string  `json:"columns"`
	Lengths   []Lengths `json:"lengths"` // by columns
	Load      *Load     `json:"load,omitempty"`
	Cells     []Cell    `json:"cells"` // by rows
}

// scorer is our figure of a cell and its difference to dense, or why there is none. whole
// is false where it is of less than in the paper.
type scorer func(row int, c *Column) (ours, difference *Score, whole bool, hole string)

// Report makes the table of a run of its suite; s is nil where nothing was run.
func (p *Plan) Report(s *trial.Summary) *Report {
	r := p.begin()
	r.Complete = s != nil && s.Complete
	if s != nil {
		r.Notes = append(r.Notes, s.Manifest.Notes...)
		if !s.Complete {
			r.Reduced = append(r.Reduced, "some samples have no answer yet")
		}
	}
	p.fill(r, func(row int, c *Column) (ours, difference *Score, whole bool, hole string) {
		k := slices.Index(p.Rows, row)
		if s == nil || k < 0 {
			return nil, nil, false, p.whyNot(row)
		}
		return p.suiteScore(s, k, c)
	})
	return r
}

// suiteScore is the mean over the units of a column, of the setting k of a run.
func (p *Plan) suiteScore(s *trial.Summary, k int, c *Column) (ours, difference *Score, whole bool, hole string) {
	tasks, lengths := p.Table.tasks(c), p.Table.lengths(c)
	within := func(i trial.Info) bool {
		// A length that is none of the paper's is in the columns of all lengths: the
		// report says that they are reduced.
		return slices.Contains(tasks, i.Task) && (slices.Contains(lengths, i.Length) || c.Length == 0 && len(p.Table.Suite.Lengths) > 0)
	}
	m := s.Over(k, within)
	if m.Score.N == 0 {
		return nil, nil, false, p.noUnits(c)
	}
	units := 0
	for _, i := range s.Manifest.Units {
		if within(i) {
			units++
		}
	}
	whole = units == len(tasks)*len(lengths) && m.Done == m.Count && len(p.Reduced) == 0 && p.Table.Short == ""
	ours = p.scaled(m.Score)
	if m.Paired != nil {
		difference = p.scaled(m.Paired.Difference)
	}
	return ours, difference, whole, ""
}

// noUnits says why a column has no figure of ours.
func (p *Plan) noUnits(c *Column) string {
	if c.Length > 0 && !slices.Contains(p.Lengths, c.Length) {
		return fmt.Sprintf("not run at %d tokens", c.Length)
	}
	for _, left := range p.Left {
		for _, task := range p.Table.tasks(c) {
			if strings.HasPrefix(left, task+":") {
				return "not run: " + left
			}
		}
	}
	return "not run: none of its tasks was asked for, or none has an answer"
}

// whyNot says why a row is not run.
func (p *Plan) whyNot(row int) string {
	switch {
	case p.Table.Rows[row].Hole != "":
		return "not run: " + p.Table.Rows[row].Hole
	case p.Hole != "":
		return "not run: " + p.Hole
	}
	return "not run: --row leaves it out"
}

// scaled is an interval in the unit of the table.
func (p *Plan) scaled(i metric.Interval) *Score {
	f := p.Table.unit()
	return &Score{Mean: f * i.Mean, Low: f * i.Low, High: f * i.High, N: i.N}
}

// unit is what a score of 1 is in the table.
func (t *Table) unit() float64 {
	if t.Fraction {
		return 1
	}
	return 100
}

// begin is the report without cells.
func (p *Plan) begin() *Report {
	t := p.Table
	r := &Report{
		Table: t.Name, Title: t.Title, Paper: p.Paper.Short + ", " + p.Paper.Title, Source: p.Paper.Source + ", " + t.Where, Checked: p.Paper.Checked,
		Published: p.Model.Name, Here: p.Here, Same: p.Same, Hole: p.Hole, Left: slices.Clone(p.Left), Reduced: slices.Clone(p.Reduced),
		Notes: slices.Concat(t.Notes, p.Notes), Fraction: t.Fraction, Rows: t.Rows,
	}
	if t.Short != "" {
		r.Reduced = append(r.Reduced, t.Short)
	}
	if !p.Same {
		r.Notes = append([]string{fmt.Sprintf("another model: the paper's figures are of %s, ours of %s, so only the differences to dense say something", p.Model.Name, p.Here)}, r.Notes...)
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		r.Columns, r.Lengths = append(r.Columns, c.Name), append(r.Lengths, p.lengthsOf(c))
	}
	r.Load = p.load()
	return r
}

// fill makes the cells.
func (p *Plan) fill(r *Report, score scorer) {
	dense := map[string]*Score{}
	for row := range p.Table.Rows {
		for c := range p.Table.Columns {
			column := &p.Table.Columns[c]
			cell := p.cell(row, column)
			ours, difference, whole, hole := score(row, column)
			cell.Ours, cell.Difference, cell.Reduced = ours, difference, ours != nil && !whole
			if hole != "" {
				cell.Holes = append(cell.Holes, hole)
			}
			if row == 0 {
				dense[column.Name] = ours
			}
			cell.OursDense = dense[column.Name]
			r.Cells = append(r.Cells, cell)
		}
	}
}

// noFigure is the hole of a cell without a published figure.
const noFigure = "published figure not at hand"

// cell is a cell with what was published.
func (p *Plan) cell(row int, c *Column) Cell {
	t := p.Table
	cell := Cell{Row: t.Rows[row].Name, Column: c.Name}
	cell.Source = fmt.Sprintf("%s, %s, %s, row %s, column %s", p.Paper.Source, t.Where, p.Model.Name, cell.Row, cell.Column)
	if x, ok := t.Published(p.Model.Name, cell.Row, c.Name); ok {
		cell.Published = &x
	} else {
		cell.Holes = append(cell.Holes, noFigure)
	}
	if x, ok := t.Published(p.Model.Name, t.Rows[0].Name, c.Name); ok {
		cell.PublishedDense = &x
	}
	return cell
}

// HarnessReport makes the table of what the harness wrote: results are the runs of each
// row, by its number.
func (p *Plan) HarnessReport(results map[int][]Results) *Report {
	r := p.begin()
	r.Servers = p.Servers
	r.Complete = true
	for _, row := range p.Rows {
		r.Complete = r.Complete && len(results[row]) == p.Table.Harness.runs()
	}
	p.fill(r, func(row int, c *Column) (ours, difference *Score, whole bool, hole string) {
		if !slices.Contains(p.Rows, row) {
			return nil, nil, false, p.whyNot(row)
		}
		ours, err := meanOfRuns(results[row], c.Metric, p.Table.unit())
		if err != "" {
			return nil, nil, false, err
		}
		return ours, nil, len(results[row]) == p.Table.Harness.runs() && len(p.Reduced) == 0, ""
	})
	return r
}

// runs is how often the harness runs a row.
func (h *Harness) runs() int { return max(1, h.Runs) }
