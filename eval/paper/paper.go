package paper

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// Paper is a publication.
type Paper struct {
	Name    string    `json:"name"`
	Title   string    `json:"title"`
	Short   string    `json:"short"`   // what others call it
	Source  string    `json:"source"`  // where it is, and which version
	Checked string    `json:"checked"` // how its figures were taken
	Tables  []Table   `json:"tables"`
	Missing []Missing `json:"missing"`
}

// Missing is a table or figure about quality that is no Table, or figures of one that
// are not there.
type Missing struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Table is a table of a paper.
type Table struct {
	Name   string  `json:"name"`
	Title  string  `json:"title"`
	Where  string  `json:"where"` // in the paper
	Models []Model `json:"models"`

	// One of them says how it is run.
	Suite   *Suite   `json:"suite"`
	Harness *Harness `json:"harness"`

	Rows     []Row    `json:"rows"` // the first is dense
	Columns  []Column `json:"columns"`
	Fraction bool     `json:"fraction"` // scores are of 1, not of 100
	// Figures are the published scores by model, row and column.
	Figures map[string]map[string]map[string]float64 `json:"figures"`
	Short   string                                   `json:"short"` // why less is run than in the paper
	Notes   []string                                 `json:"notes"` // what is a reading, and what is not kept
}

// Model is a model of a table, and what its prompts need.
type Model struct {
	Name string   `json:"name"`
	Args []string `json:"args"` // flags of the suite
}

// Suite is how a command of gollm eval runs a table.
type Suite struct {
	Name    string   `json:"name"` // of the command
	Tasks   []string `json:"tasks"`
	Lengths []int    `json:"lengths"` // tokens; empty where the suite has none
	Samples int      `json:"samples"` // of each task and length; 0 is all
	Phase   string   `json:"phase"`   // of --sparse-phase; empty is as the rows say
	Args    []string `json:"args"`    // more flags
}

// Harness is how lm-evaluation-harness runs a table.
type Harness struct {
	Tasks       []string `json:"tasks"`
	Fewshot     int      `json:"fewshot"`
	Chat        bool     `json:"chat"`       // in the chat template
	Runs        int      `json:"runs"`       // whose mean is the score; 0 is one
	MaxLength   int      `json:"max_length"` // tokens of prompt and answer; 0 is what the harness says
	Generate    string   `json:"generate"`   // of --gen_kwargs
	Args        []string `json:"args"`       // more flags
	Environment []string `json:"environment"`
}

// Row is a row: an attention method, or why it cannot be run.
type Row struct {
	Name    string `json:"name"`
	Attn    string `json:"attn"`    // a spec
	Hole    string `json:"hole"`    // why there is none
	Differs string `json:"differs"` // from the paper's, where it does
}

// Column is a column: the mean over some tasks and lengths, or a metric of the harness.
type Column struct {
	Name    string   `json:"name"`
	Tasks   []string `json:"tasks"`   // empty is all
	Without []string `json:"without"` // of them
	Length  int      `json:"length"`  // 0 is all
	Metric  string   `json:"metric"`  // task/metric,filter, as results of the harness name it
}

//go:embed *.json
var sources embed.FS

// order is that of the papers.
var order = []string{"sketchwalk", "vattention", "anchor", "santa", "cpe"}

// Papers reads the files, once.
var Papers = sync.OnceValue(func() []Paper {
	var list []Paper
	for _, name := range order {
		b, err := sources.ReadFile(name + ".json")
		if err != nil {
			panic("paper: " + err.Error()) // it is part of the program, and a test reads it
		}
		var p Paper
		d := json.NewDecoder(bytes.NewReader(b))
		d.DisallowUnknownFields()
		if err := d.Decode(&p); err != nil {
			panic("paper: " + name + ".json: " + err.Error())
		}
		list = append(list, p)
	}
	return list
})

// Found is a table and the paper that it is of.
type Found struct {
	Paper *Paper
	Table *Table
}

// All is every table.
func All() []Found {
	var list []Found
	papers := Papers()
	for i := range papers {
		for j := range papers[i].Tables {
			list = append(list, Found{&papers[i], &papers[i].Tables[j]})
		}
	}
	return list
}

// Names lists the papers and their tables.
func Names() []string {
	var names []string
	for _, p := range Papers() {
		names = append(names, p.Name)
		for _, t := range p.Tables {
			names = append(names, t.Name)
		}
	}
	return names
}

// Find is the table of that name, or the tables of the paper of that name.
func Find(name string) ([]Found, error) {
	list := slices.DeleteFunc(All(), func(f Found) bool { return f.Table.Name != name && f.Paper.Name != name })
	if len(list) == 0 {
		return nil, fmt.Errorf("paper: no paper or table is called %.60q; want one of %s", name, strings.Join(Names(), ", "))
	}
	return list, nil
}

// ModelOf is the model of the table that a file's name stands for, nil where it is none
// of the paper's. Names match by letters and digits alone, the longest first.
func (t *Table) ModelOf(names ...string) *Model {
	var best *Model
	for i := range t.Models {
		m := &t.Models[i]
		for _, name := range names {
			if strings.Contains(plain(name), plain(m.Name)) && (best == nil || len(m.Name) > len(best.Name)) {
				best = m
			}
		}
	}
	return best
}

// plain is the letters and digits of a name in lower case.
func plain(name string) string {
	return strings.Map(func(c rune) rune {
		if !unicode.IsLetter(c) && !unicode.IsDigit(c) {
			return -1
		}
		return unicode.ToLower(c)
	}, name)
}

// FindModel is the model of that name.
func (t *Table) FindModel(name string) (*Model, error) {
	var names []string
	for i := range t.Models {
		if plain(t.Models[i].Name) == plain(name) {
			return &t.Models[i], nil
		}
		names = append(names, t.Models[i].Name)
	}
	return nil, fmt.Errorf("paper: %s has no model %.60q; want one of %s", t.Name, name, strings.Join(names, ", "))
}

// Published is the published figure of a cell.
func (t *Table) Published(model, row, column string) (float64, bool) {
	x, ok := t.Figures[model][row][column]
	return x, ok
}

// tasks are the tasks of a column.
func (t *Table) tasks(c *Column) []string {
	list := c.Tasks
	if len(list) == 0 {
		list = t.Suite.Tasks
	}
	return slices.DeleteFunc(slices.Clone(list), func(name string) bool { return slices.Contains(c.Without, name) })
}

// lengths are the lengths of a column; one of 0 where the suite has none.
func (t *Table) lengths(c *Column) []int {
	switch {
	case c.Length > 0:
		return []int{c.Length}
	case len(t.Suite.Lengths) == 0:
		return []int{0}
	}
	return t.Suite.Lengths
}

// Count is how many published figures the table has.
func (t *Table) Count() int {
	n := 0
	for _, rows := range t.Figures {
		for _, columns := range rows {
			n += len(columns)
		}
	}
	return n
}
