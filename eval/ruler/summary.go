package ruler

import (
	"encoding/csv"
	"fmt"
	"io"
	"slices"

	"github.com/gollm/gollm/eval/metric"
)

// EffectiveScore is what a length must reach to count as usable: that of
// Llama-2-7B-chat at 4k tokens.
const EffectiveScore = 85.6

// WriteSummary writes the scores of a length as the official summary.csv.
func WriteSummary(w io.Writer, scored []Scored) error {
	rows := [][]string{make([]string, len(scored)+1), {"Tasks"}, {"Score"}, {"Nulls"}}
	for i := range rows[0] {
		rows[0][i] = fmt.Sprint(i)
	}
	for _, s := range scored {
		rows[1] = append(rows[1], s.Task)
		rows[2] = append(rows[2], pythonFloat(s.Score))
		rows[3] = append(rows[3], fmt.Sprintf("%d/%d", s.Nulls, len(s.Samples)))
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// WriteSubmission writes the answers of a length as the official submission.csv.
func WriteSubmission(w io.Writer, scored []Scored) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"Task", "ID", "Prediction"}); err != nil {
		return err
	}
	for _, s := range scored {
		for i, answer := range s.Answers {
			if err := out.Write([]string{s.Task, s.IDs[i], answer}); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// pythonFloat writes a score as Python prints it: with one decimal at least.
func pythonFloat(x float64) string {
	s := fmt.Sprint(x)
	if x == float64(int(x)) {
		s += ".0"
	}
	return s
}

// SummaryName is how the official scorer calls its summary: by the task where
// there is only one.
func SummaryName(scored []Scored) string {
	if len(scored) == 1 {
		return "summary-" + scored[0].Task + ".csv"
	}
	return "summary.csv"
}

// LengthScore is the mean of the tasks of one length.
type LengthScore struct {
	Length     int                  `json:"length"`
	Mean       float64              `json:"mean"` // of the tasks that there are
	Complete   bool                 `json:"complete"`
	Categories map[Category]float64 `json:"categories"`
}

// Summarize averages the tasks of a length, all alike, and those of each
// category.
func Summarize(length int, scored []Scored) LengthScore {
	l := LengthScore{Length: length, Categories: map[Category]float64{}}
	count := map[Category]int{}
	for _, s := range scored {
		l.Mean += s.Score
		if t, err := FindTask(s.Task); err == nil {
			l.Categories[t.Category] += s.Score
			count[t.Category]++
		}
	}
	if len(scored) > 0 {
		l.Mean /= float64(len(scored))
	}
	for c, n := range count {
		l.Categories[c] /= float64(n)
	}
	l.Complete = len(scored) == len(tasks)
	return l
}

// Weighted is the averages over lengths: each alike, with weights that rise
// towards long ones, and with weights that fall. The lengths must be in order.
type Weighted struct {
	Mean, Rising, Falling float64
	Effective             int // the longest length that reaches [EffectiveScore]; 0 is none
}

// Weigh averages over lengths.
func Weigh(lengths []LengthScore) Weighted {
	lengths = slices.Clone(lengths)
	slices.SortFunc(lengths, func(a, b LengthScore) int { return a.Length - b.Length })
	var w Weighted
	n := len(lengths)
	sum := float64(n*(n+1)) / 2
	for i, l := range lengths {
		w.Mean += l.Mean / float64(n)
		w.Rising += l.Mean * float64(i+1) / sum
		w.Falling += l.Mean * float64(n-i) / sum
		if metric.Round(l.Mean, 1) >= EffectiveScore {
			w.Effective = l.Length
		}
	}
	return w
}
