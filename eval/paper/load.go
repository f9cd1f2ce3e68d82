package paper

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Load is how much a row of a table has to read, as far as it is known before its data is.
type Load struct {
	Rows    int    `json:"rows"`              // that run
	Prompts int    `json:"prompts,omitempty"` // of each row, at most; 0: as many as the data has
	Tokens  int    `json:"tokens,omitempty"`  // of these prompts with their answers, at most; 0: their lengths are those of the data
	Longest int    `json:"longest,omitempty"` // tokens of a prompt with its answer
	Note    string `json:"note"`              // what is not known, and who counts it
}

// load is what each row of the plan has to read; nil where nothing is run.
func (p *Plan) load() *Load {
	switch {
	case p.Hole != "":
		return nil
	case p.Table.Harness != nil:
		h := p.Table.Harness
		return &Load{Rows: len(p.Rows), Note: fmt.Sprintf("lm-evaluation-harness counts the samples of %s, of which it makes %d runs", strings.Join(h.Tasks, ", "), h.runs())}
	}
	l := &Load{Rows: len(p.Rows), Note: "the command above with --dry-run reads every prompt and counts its tokens"}
	each := len(p.Tasks) * p.Samples * p.depths()
	if len(p.Lengths) == 0 {
		l.Prompts = each // the files may have fewer
		return l
	}
	for _, n := range p.Lengths {
		l.Prompts += each
		l.Tokens += each * n
	}
	l.Longest = slices.Max(p.Lengths)
	return l
}

// depths is at how many places of a text a suite hides something: so many prompts is a sample.
func (p *Plan) depths() int {
	args := p.Table.Suite.Args
	if i := slices.Index(args, "--depths"); i >= 0 && i+1 < len(args) {
		if n, err := strconv.Atoi(args[i+1]); err == nil {
			return n
		}
	}
	return 1
}

// text is the load as a line.
func (l *Load) text() string {
	each := fmt.Sprintf("each of %d rows", l.Rows)
	switch {
	case l.Prompts == 0:
		return fmt.Sprintf("%s reads the prompts of its tasks; %s", each, l.Note)
	case l.Tokens == 0:
		return fmt.Sprintf("%s reads %s prompts at most; %s", each, grouped(l.Prompts), l.Note)
	}
	return fmt.Sprintf("%s reads %s prompts of up to %s tokens, %s tokens at most; rows that read prompts alike read them once; %s",
		each, grouped(l.Prompts), grouped(l.Longest), grouped(l.Tokens), l.Note)
}

// grouped is a number with commas.
func grouped(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// lengthsHere are the lengths of a column that run.
func (p *Plan) lengthsHere(c *Column) []int {
	if c.Length == 0 {
		return p.Lengths
	}
	return slices.DeleteFunc(slices.Clone(p.Lengths), func(n int) bool { return n != c.Length })
}

// Lengths are the tokens of the prompts of a column; none where the suite sets none.
type Lengths struct {
	Paper []int `json:"paper,omitempty"`
	Here  []int `json:"here,omitempty"`
}

// lengthsOf are those of a column.
func (p *Plan) lengthsOf(c *Column) Lengths {
	if p.Table.Suite == nil || len(p.Table.Suite.Lengths) == 0 {
		return Lengths{}
	}
	return Lengths{p.Table.lengths(c), p.lengthsHere(c)}
}

// differ reports whether ours are not the paper's.
func (l Lengths) differ() bool { return !slices.Equal(l.Paper, l.Here) }

// lengthsText is lengths as they are said: one, or the first and the last of several.
func lengthsText(list []int) string {
	switch len(list) {
	case 0:
		return "none"
	case 1:
		return grouped(list[0])
	}
	return fmt.Sprintf("%s to %s", grouped(slices.Min(list)), grouped(slices.Max(list)))
}
