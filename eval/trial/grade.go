package trial

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/gollm/gollm/eval/metric"
)

// Grader scores the lines that a suite has written, as they are now: what a run stored
// beside them is not taken for it, because files of answers are edited.
type Grader struct {
	// Subsets names what the samples of a unit are also averaged in, in the order of
	// tables; it may be nil.
	Subsets []string
	// Sparse leaves subsets without samples out of tables.
	Sparse bool
	// Grade reads a line of answers to a unit.
	Grade func(u Info, row []byte) (Verdict, error)
	// Lacks is what a score would need where a verdict has none.
	Lacks string
}

// Verdict is what a line of answers comes to.
type Verdict struct {
	Score   *float64 // from 0 to 1; nil where this program cannot score it here
	Null    bool     // nothing was answered
	Subsets []string // that the sample is in, of those of the grader
}

// stored is the verdict of the run itself.
func stored(a Answer) Verdict { return Verdict{Score: a.Score, Null: a.New == 0} }

// counts adds up the answers to a unit, which may be there several times.
type counts struct {
	unit    Info
	times   int // that each sample is answered
	scores  map[int]float64
	seen    map[int]int
	nulls   map[int]int
	subsets map[string][]int // samples, by their lines
	prompt  Range            // its mean is a sum
	notes   []string
	kept    int // scores that are those of the run
}

// readResult scores the answers of a unit, which may be there several times. A
// sample counts once all of its answers are there, with their mean. Its prompt is
// counted once. notes is what there is to say about the scores.
func readResult(folder string, names []string, u Info, g *Grader, prompts *Prompts) (r Result, notes []string, err error) {
	t := counts{unit: u, times: len(names), scores: map[int]float64{}, seen: map[int]int{}, nulls: map[int]int{}, subsets: map[string][]int{}}
	for _, name := range names {
		if err := t.read(folder, name, g, prompts); err != nil {
			return r, nil, err
		}
	}
	if g != nil && t.kept > 0 && !u.Unscored {
		t.notes = append(t.notes, fmt.Sprintf("the scores of %s are those that the run stored: to compute them needs %s", u.Task, g.Lacks))
	}
	r = t.result()
	if g != nil {
		for _, name := range g.Subsets {
			if g.Sparse && len(t.subsets[name]) == 0 {
				continue
			}
			r.Subsets = append(r.Subsets, t.subset(name))
		}
	}
	return r, t.notes, r.readTimes(folder, names)
}

// read adds the answers of a file.
func (t *counts) read(folder, name string, g *Grader, prompts *Prompts) error {
	path := filepath.Join(folder, name)
	answers, err := ReadAnswers(folder, name)
	if err != nil {
		return err
	}
	changed, first := 0, 0
	for line, a := range answers {
		if err := t.unit.check(path, a); err != nil {
			return err
		}
		v := stored(a)
		if g != nil {
			if v, err = g.Grade(t.unit, a.Row); err != nil {
				return fmt.Errorf("trial: %s:%d: %w", path, a.Number, err)
			}
		}
		switch {
		case v.Score == nil:
			v.Score = a.Score
			t.kept++
		case a.Score != nil && *v.Score != *a.Score:
			if changed++; changed == 1 || line < first {
				first = line
			}
		}
		t.add(line, a, v, prompts)
	}
	if changed > 0 && !t.unit.Unscored {
		t.notes = append(t.notes, fmt.Sprintf("%s: %d of %d answers have another score than the run stored, the first is that to sample %d: "+
			"they were changed since, or another version of gollm scored them; scores here are of the answers as they are", filepath.ToSlash(name), changed, len(answers), first))
	}
	return nil
}

// add adds an answer to the sample of a line.
func (t *counts) add(line int, a Answer, v Verdict, prompts *Prompts) {
	t.seen[line]++
	if v.Score != nil {
		t.scores[line] += *v.Score / float64(t.times)
	}
	if v.Null {
		t.nulls[line]++
	}
	if t.seen[line] > 1 {
		return
	}
	for _, name := range v.Subsets {
		t.subsets[name] = append(t.subsets[name], line)
	}
	if t.prompt.Least == 0 || a.Prompt < t.prompt.Least {
		t.prompt.Least = a.Prompt
	}
	t.prompt.Most = max(t.prompt.Most, a.Prompt)
	t.prompt.Mean += float64(a.Prompt)
	prompts.Add(t.unit, line, a.Prompt, a.Truncated, a.Alarms)
}

// result is that of the unit.
func (t *counts) result() Result {
	r := Result{Info: t.unit, Prompt: t.prompt}
	if len(t.seen) > 0 {
		r.Prompt.Mean /= float64(len(t.seen))
	}
	var all []int
	for line := range t.seen {
		all = append(all, line)
	}
	t.fill(&r, all)
	return r
}

// subset is that of some of its samples.
func (t *counts) subset(name string) Result {
	r := Result{Info: t.unit, Subset: name}
	t.fill(&r, t.subsets[name])
	r.Count = r.Done // of the rest nobody knows
	return r
}

// fill scores the samples of some lines.
func (t *counts) fill(r *Result, lines []int) {
	r.scores = map[int]float64{}
	for _, line := range lines {
		r.Nulls += t.nulls[line]
		if t.seen[line] < t.times {
			continue
		}
		r.Done++
		if !t.unit.Unscored {
			r.scores[line] = t.scores[line]
		}
	}
	r.Score = metric.Bootstrap(r.list(), metric.Draws, summarySeed)
}

// subset is the result of a subset, nil where there is none.
func (r *Result) subset(name string) *Result {
	if i := slices.IndexFunc(r.Subsets, func(s Result) bool { return s.Subset == name }); i >= 0 {
		return &r.Subsets[i]
	}
	return nil
}

// subsetOf is the results of a subset of each unit; where one has none, that of no
// samples.
func subsetOf(units []Result, name string) []Result {
	list := make([]Result, len(units))
	for i := range units {
		list[i] = Result{Info: units[i].Info}
		list[i].Count = 0
		if s := units[i].subset(name); s != nil {
			list[i] = *s
		}
	}
	return list
}

// against pairs a result and its subsets with those of another setting.
func (r *Result) against(a *Result) {
	r.Paired = pair(a, r)
	for i := range r.Subsets {
		if s := a.subset(r.Subsets[i].Subset); s != nil {
			r.Subsets[i].Paired = pair(s, &r.Subsets[i])
		}
	}
}
