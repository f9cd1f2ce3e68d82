package trial

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/metric"
)

// Summary is what the answers of a folder come to.
type Summary struct {
	Manifest Manifest  `json:"manifest"`
	Settings []Setting `json:"settings"`
	Complete bool      `json:"complete"` // every sample has an answer
	// Doubts is those of the manifest's notes that say which scores are not those that
	// the run stored, or cannot be told from them.
	Doubts []string `json:"-"`
	// Alarms are what looks like a mistake of the comparison: prompts that are not what they
	// should be, and sparse attention that is better than dense.
	Alarms []string `json:"alarms,omitempty"`
}

// Setting is the results of one attention.
type Setting struct {
	Attn  string   `json:"attn"`
	Units []Result `json:"units"`
	Maps  *Maps    `json:"maps,omitempty"` // of the audits of all units
	// Means are the means over the units of each length, all alike, and over those
	// of each of its groups; of length 0 where the suite has none.
	Means []Result `json:"means"`
}

// Result is the score of a unit, or the mean of several.
type Result struct {
	Info
	Subset string          `json:"subset,omitempty"` // whose samples these are; empty is all
	Done   int             `json:"done"`             // samples with an answer
	Score  metric.Interval `json:"score"`
	Paired *metric.Paired  `json:"paired,omitempty"` // against the first setting, on the samples that both answered
	Nulls  int             `json:"nulls"`            // answers that are none
	Prompt Range           `json:"prompt_tokens"`

	PrefillTokS float64  `json:"prefill_tok_s"` // 0 is unknown
	DecodeTokS  float64  `json:"decode_tok_s"`
	Shared      int      `json:"shared_prefill,omitempty"` // settings that PrefillTokS is of, where a prompt was read once for several
	Audit       *Audited `json:"audit,omitempty"`
	// Subsets are the results of samples of a kind, such as those of a length; a mean
	// has them where it is over several units.
	Subsets []Result `json:"subsets,omitempty"`

	scores map[int]float64 // by line
}

// Range is the tokens of prompts.
type Range struct {
	Least int     `json:"least"`
	Mean  float64 `json:"mean"`
	Most  int     `json:"most"`
}

// summarySeed is that of the bootstrap.
const summarySeed = 42

// Summarize reads the answers of a folder and scores them with the grader that its
// manifest asks for; without one, where grader is nil, scores are those that the run
// stored. The first setting is what the others are compared with. It ends when ctx is
// done: the intervals of a large run take a while.
func Summarize(ctx context.Context, folder string, grader func(*Manifest) (*Grader, error)) (*Summary, error) {
	m, err := ReadManifest(folder)
	if err != nil {
		return nil, err
	}
	var g *Grader
	if grader != nil {
		if g, err = grader(&m); err != nil {
			return nil, fmt.Errorf("trial: %s: %w", filepath.Join(folder, manifestName), err)
		}
	}
	s := &Summary{Manifest: m, Complete: true}
	var prompts Prompts
	var notes []string
	for i, attn := range m.Identity.Settings {
		audits, err := ReadAudit(folder, i, attn)
		if err != nil {
			return nil, err
		}
		set := Setting{Attn: attn, Maps: audits.Maps}
		for n, u := range m.Units {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			var names []string
			for k := range m.Identity.Times(i) {
				names = append(names, LogName(i, attn, k, u.Name))
			}
			count := &prompts
			if i > 0 { // the same prompts
				count = new(Prompts)
			}
			r, more, err := readResult(folder, names, u, g, count)
			if err != nil {
				return nil, err
			}
			for _, note := range more {
				if !slices.Contains(notes, note) {
					notes = append(notes, note)
				}
			}
			r.Audit = audits.Units[u.Name]
			if i > 0 {
				r.against(&s.Settings[0].Units[n])
			}
			s.Complete = s.Complete && r.Done == u.Count
			set.Units = append(set.Units, r)
		}
		set.Means = means(set.Units)
		if i > 0 {
			pairMeans(s.Settings[0].Units, &set)
			if s.Settings[0].Attn == "dense" {
				s.Alarms = append(s.Alarms, betterAlarms("dense", &set)...)
			}
		}
		s.Settings = append(s.Settings, set)
	}
	s.Manifest.Notes = slices.Concat(m.Notes, prompts.Notes(m.Identity), notes)
	s.Doubts, s.Alarms = notes, append(prompts.Alarms(), s.Alarms...)
	return s, nil
}

// check refuses an answer that is none to this unit; path is that of its file.
func (i Info) check(path string, a Answer) error {
	switch {
	case a.Line >= i.Count:
		return fmt.Errorf("trial: %s:%d: an answer to sample %d, but there are %d, from 0 on", path, a.Number, a.Line, i.Count)
	case a.Score == nil && !i.Unscored:
		return fmt.Errorf("trial: %s:%d: no field %s.score", path, a.Number, extraKey)
	}
	return nil
}

// Scores is the score of each sample that has one, by its line. The caller must not
// change it.
func (r *Result) Scores() map[int]float64 { return r.scores }

// lines is the samples that have a score, in order.
func (r *Result) lines() []int { return slices.Sorted(maps.Keys(r.scores)) }

// list is the scores in the order of the samples.
func (r *Result) list() []float64 {
	lines := r.lines()
	list := make([]float64, len(lines))
	for i, line := range lines {
		list[i] = r.scores[line]
	}
	return list
}

// readTimes adds up the times beside some logs; a torn line at the end is left out.
func (r *Result) readTimes(folder string, names []string) error {
	var sum Times
	for _, name := range names {
		if err := r.addTimes(folder, timesPath(name), &sum); err != nil {
			return err
		}
	}
	if sum.PrefillMs > 0 {
		r.PrefillTokS = 1000 * float64(sum.Prompt) / sum.PrefillMs
	}
	if sum.DecodeMs > 0 {
		r.DecodeTokS = 1000 * float64(sum.Steps) / sum.DecodeMs
	}
	return nil
}

// addTimes adds a file of times to a sum.
func (r *Result) addTimes(folder, name string, sum *Times) error {
	b, err := ReadFile(folder, name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	in := jsonl.NewReader(bytes.NewReader(b))
	for {
		line, _, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("trial: %s: %w", filepath.Join(folder, name), err)
		}
		var t Times
		if json.Unmarshal(line, &t) != nil {
			continue
		}
		r.Shared = max(r.Shared, t.Shared)
		sum.Prompt, sum.Steps = sum.Prompt+t.Prompt, sum.Steps+t.Steps
		sum.PrefillMs, sum.DecodeMs = sum.PrefillMs+t.PrefillMs, sum.DecodeMs+t.DecodeMs
	}
}

// pair compares b with a on the samples that both answered.
func pair(a, b *Result) *metric.Paired {
	x, y := common(a, b)
	if len(x) == 0 {
		return nil
	}
	p := metric.Compare(x, y, metric.Draws, summarySeed)
	return &p
}

// common is the scores of the samples that both have, in order.
func common(a, b *Result) (x, y []float64) {
	for _, line := range a.lines() {
		if t, also := b.scores[line]; also {
			x, y = append(x, a.scores[line]), append(y, t)
		}
	}
	return x, y
}

// means averages the units of each length, and of each group where there are
// several.
func means(units []Result) []Result {
	var lengths []int
	var groups []string
	for _, u := range units {
		if !slices.Contains(lengths, u.Length) {
			lengths = append(lengths, u.Length)
		}
		if u.Group != "" && !slices.Contains(groups, u.Group) {
			groups = append(groups, u.Group)
		}
	}
	slices.Sort(lengths)
	var list []Result
	for _, length := range lengths {
		list = append(list, meanOf(units, Info{Name: "mean", Task: "mean", Length: length}))
		for _, g := range groups {
			if m := meanOf(units, Info{Name: "mean of " + g, Task: "mean of " + g, Group: g, Length: length}); len(groups) > 1 && m.Count > 0 {
				list = append(list, m)
			}
		}
	}
	return list
}

// within reports whether a unit is part of a mean.
func (i Info) within(mean Info) bool {
	return !i.Unscored && i.Length == mean.Length && (mean.Group == "" || i.Group == mean.Group)
}

// meanOf is one mean, with those of the subsets where it is over several units.
func meanOf(units []Result, what Info) Result {
	m := Result{Info: what}
	var scores [][]float64
	var names []string
	for i := range units {
		if units[i].within(what) {
			m.Count, m.Done, m.Nulls = m.Count+units[i].Count, m.Done+units[i].Done, m.Nulls+units[i].Nulls
			scores = append(scores, units[i].list())
			for _, s := range units[i].Subsets {
				if !slices.Contains(names, s.Subset) {
					names = append(names, s.Subset)
				}
			}
		}
	}
	m.Score = metric.BootstrapMean(scores, metric.Draws, summarySeed)
	for _, name := range names {
		if len(scores) > 1 {
			s := meanOf(subsetOf(units, name), what)
			s.Subset = name
			m.Subsets = append(m.Subsets, s)
		}
	}
	return m
}

// Over is the mean under a setting, by its number, over the units that accepts takes, of
// whatever lengths, and its difference to that of the first setting.
func (s *Summary) Over(setting int, accepts func(Info) bool) Result {
	pick := func(units []Result) (list []Result) {
		for _, u := range units {
			if accepts(u.Info) {
				u.Length = 0
				list = append(list, u)
			}
		}
		return list
	}
	units := pick(s.Settings[setting].Units)
	m := meanOf(units, Info{Name: "mean", Task: "mean"})
	if setting > 0 {
		m.Paired = pairMean(pick(s.Settings[0].Units), units, m.Info)
	}
	return m
}

// pairMeans compares the means of a setting with those of another, whose units a is.
func pairMeans(a []Result, b *Setting) {
	for i := range b.Means {
		m := &b.Means[i]
		m.Paired = pairMean(a, b.Units, m.Info)
		for n := range m.Subsets {
			name := m.Subsets[n].Subset
			m.Subsets[n].Paired = pairMean(subsetOf(a, name), subsetOf(b.Units, name), m.Info)
		}
	}
}

// pairMean compares the means over the same units of two settings, nil where they have
// no sample in common: the differences are drawn inside each unit.
func pairMean(a, b []Result, mean Info) *metric.Paired {
	p := metric.Paired{McNemar: 1}
	var diffs [][]float64
	for n := range b {
		if !b[n].within(mean) || b[n].Paired == nil {
			continue
		}
		x, y := common(&a[n], &b[n])
		diff := make([]float64, len(x))
		for j := range x {
			diff[j] = y[j] - x[j]
		}
		diffs = append(diffs, diff)
		q := b[n].Paired
		p.Win, p.Tie, p.Loss = p.Win+q.Win, p.Tie+q.Tie, p.Loss+q.Loss
	}
	if len(diffs) == 0 {
		return nil
	}
	p.Difference, p.Sign = metric.BootstrapMean(diffs, metric.Draws, summarySeed), metric.SignTest(p.Win, p.Loss)
	return &p
}

// Compared is a unit of two settings, on the samples that both answered.
type Compared struct {
	// Result is that of b, over all of its samples: its score is not what the
	// difference is of where OnlyB is not 0. Paired is over the shared ones.
	Result
	A     metric.Interval `json:"a"`      // score of a over the shared samples
	B     metric.Interval `json:"b"`      // that of b
	OnlyA int             `json:"only_a"` // samples that only a has
	OnlyB int             `json:"only_b"` // samples that only b has
	// Subsets are the same of the subsets that both have.
	Subsets []Compared `json:"subsets,omitempty"`
}

// Compare pairs two settings of the same or of different folders, unit by unit,
// by the numbers of their samples. Units that only one has are left out.
func Compare(a, b *Setting) []Compared {
	var list []Compared
	for i := range b.Units {
		for j := range a.Units {
			if a.Units[j].Name == b.Units[i].Name {
				list = appendCompared(list, &a.Units[j], b.Units[i])
			}
		}
	}
	return list
}

// appendCompared appends two results as a pair, where they have a sample in common.
func appendCompared(list []Compared, a *Result, b Result) []Compared {
	c := Compared{Result: b}
	c.Count = max(c.Count, a.Count)
	if c.Paired = pair(a, &c.Result); c.Paired == nil {
		return list
	}
	c.pair(a)
	for _, s := range b.Subsets {
		if other := a.subset(s.Subset); other != nil {
			c.Subsets = appendCompared(c.Subsets, other, s)
		}
	}
	return append(list, c)
}

// pair fills what is about the samples that a shares.
func (c *Compared) pair(a *Result) {
	x, y := common(a, &c.Result)
	c.A = metric.Bootstrap(x, metric.Draws, summarySeed)
	c.B = metric.Bootstrap(y, metric.Draws, summarySeed)
	c.OnlyA, c.OnlyB = len(a.scores)-len(x), len(c.scores)-len(y)
}

// Write writes summary.json and summary.csv into the folder.
func (s *Summary) Write(folder string) error {
	if err := writeFile(folder, "summary.json", s); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := s.writeCSV(&b); err != nil {
		return err
	}
	return WriteFile(folder, "summary.csv", b.Bytes())
}

// csvHeader names the columns of summary.csv.
var csvHeader = []string{
	"attn", "task", "length", "n", "score", "low", "high", "difference", "difference_low", "difference_high",
	"win", "tie", "loss", "nulls", "prompt_mean", "prefill_tok_s", "decode_tok_s",
	"prefill_density", "prefill_mass", "prefill_k_read", "decode_density", "decode_mass", "decode_k_read", "decode_v_read",
	"subset",
}

func (s *Summary) writeCSV(w io.Writer) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvHeader); err != nil {
		return err
	}
	for _, set := range s.Settings {
		for _, r := range set.Results() {
			if err := out.Write(append(r.csv(set.Attn), r.Subset)); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// Results is all that a table of the setting has: units and means, each with its
// subsets behind it.
func (s *Setting) Results() []Result {
	var list []Result
	for _, r := range slices.Concat(s.Units, s.Means) {
		list = append(append(list, r), r.Subsets...)
	}
	return list
}

// csv is a row of summary.csv; what is unknown is empty.
func (r *Result) csv(attn string) []string {
	percent := func(x float64) string { return fmt.Sprintf("%.2f", 100*x) }
	row := []string{attn, r.Task, fmt.Sprint(r.Length), fmt.Sprint(r.Done)}
	if r.Score.N > 0 {
		row = append(row, percent(r.Score.Mean), percent(r.Score.Low), percent(r.Score.High))
	} else {
		row = append(row, "", "", "")
	}
	if p := r.Paired; p != nil {
		d := p.Difference
		row = append(row, percent(d.Mean), percent(d.Low), percent(d.High), fmt.Sprint(p.Win), fmt.Sprint(p.Tie), fmt.Sprint(p.Loss))
	} else {
		row = append(row, "", "", "", "", "", "")
	}
	known := func(x float64) string { // of what is never 0 where it is there, as it is not in a mean
		if x <= 0 {
			return ""
		}
		return fmt.Sprintf("%.1f", x)
	}
	row = append(row, fmt.Sprint(r.Nulls), known(r.Prompt.Mean), known(r.PrefillTokS), known(r.DecodeTokS))
	audit := r.Audit
	if attn == "dense" { // is not audited: it reads everything
		all := &Reading{Density: 1, Mass: 1, KRead: 1, VRead: 1}
		audit = &Audited{Prefill: all, Decode: all}
	}
	if audit == nil {
		audit = new(Audited)
	}
	if p := audit.Prefill; p != nil {
		row = append(row, percent(p.Density), percent(p.Mass), percent(p.KRead))
	} else {
		row = append(row, "", "", "")
	}
	if p := audit.Decode; p != nil {
		return append(row, percent(p.Density), percent(p.Mass), percent(p.KRead), percent(p.VRead))
	}
	return append(row, "", "", "", "")
}
