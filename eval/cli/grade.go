package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/metric"
	"github.com/gollm/gollm/eval/needle"
	"github.com/gollm/gollm/eval/published"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
)

// summarize reads a run and scores its answers as they are now. words is what Chinese
// is split into, nil where that is not known here.
func summarize(ctx context.Context, folder string, words *longbench.Splitter) (*trial.Summary, error) {
	return trial.Summarize(ctx, folder, func(m *trial.Manifest) (*trial.Grader, error) { return graderOf(m, words) })
}

// graderOf is the grader of the suite and the options of a run.
func graderOf(m *trial.Manifest, words *longbench.Splitter) (*trial.Grader, error) {
	switch id := &m.Identity; id.Suite {
	case "ruler":
		return rulerGrader(id)
	case "longbench":
		return longbenchGrader(m, words)
	case "longbench2":
		return &trial.Grader{Subsets: longbench.Groups(), Grade: gradeItem}, nil
	case "niah":
		return &trial.Grader{Grade: gradeNeedle}, nil
	case "recite":
		return &trial.Grader{Grade: gradeRecited}, nil
	}
	if p := published.Find(m.Identity.Suite); p != nil {
		return publishedGrader(p), nil
	}
	return nil, fmt.Errorf("a run of the suite %.60q, want ruler, longbench, longbench2, niah, recite or one of %s", m.Identity.Suite, strings.Join(published.Names(), ", "))
}

// publishedGrader scores by data set; of MRCR also by bins, of SCBench by the number of a
// question.
func publishedGrader(p *published.Suite) *trial.Grader {
	g := &trial.Grader{Subsets: p.Subsets, Sparse: true, Lacks: "the official code"}
	g.Grade = func(u trial.Info, row []byte) (v trial.Verdict, err error) {
		d, err := p.Set(u.Task)
		if err != nil {
			return v, err
		}
		a, score, null, err := d.GradeLine(row)
		v = trial.Verdict{Null: null}
		if d.Unscored == "" {
			v.Score = &score
		}
		switch {
		case a.Marker != nil:
			v.Subsets = []string{published.Bin(a.Tokens)}
		case a.Turn != nil:
			v.Subsets = []string{published.TurnName(*a.Turn)}
		}
		return v, err
	}
	return g
}

// rulerGrader scores as --grader of the run says.
func rulerGrader(id *trial.Identity) (*trial.Grader, error) {
	g := ruler.Grader(id.Options["grader"])
	if g != ruler.Official && g != ruler.Santa {
		return nil, fmt.Errorf("option grader is %.60q, want official or santa", g)
	}
	return &trial.Grader{Grade: func(u trial.Info, row []byte) (v trial.Verdict, err error) {
		t, err := ruler.FindTask(u.Task)
		if err != nil {
			return v, err
		}
		score, null, err := t.GradeLine(row, g)
		return trial.Verdict{Score: &score, Null: null}, err
	}}, nil
}

// longbenchGrader scores with the options of the run, Chinese only over the words that
// the run had.
func longbenchGrader(m *trial.Manifest, words *longbench.Splitter) (*trial.Grader, error) {
	options := m.Identity.Options
	o := longbench.Options{Code: metric.CodeBackend(options["code_sim"]), Words: words}
	if err := checkCodeSim(options["code_sim"]); err != nil {
		return nil, fmt.Errorf("option code_sim is %.60q, want difflib or levenshtein", options["code_sim"])
	}
	var err error
	if o.RougeSteps, err = strconv.Atoi(options["rouge_recursion_limit"]); err != nil {
		return nil, fmt.Errorf("option rouge_recursion_limit is %.60q, want a whole number", options["rouge_recursion_limit"])
	}
	if words != nil && words.Hash != options["jieba_sha256"] {
		return nil, fmt.Errorf("--jieba names other tables than those of the run, whose SHA-256 is %.64q", options["jieba_sha256"])
	}
	g := &trial.Grader{Lacks: "the words of jieba, which --jieba of eval show names"}
	if o.E = slices.ContainsFunc(m.Units, byLength); o.E {
		g.Subsets = longbench.Buckets
	}
	g.Grade = func(u trial.Info, row []byte) (v trial.Verdict, err error) {
		d, err := longbench.Find(u.Task)
		if err != nil {
			return v, err
		}
		graded, err := d.GradeLine(row, o)
		v = trial.Verdict{Score: graded.Score, Null: graded.Null}
		if o.E {
			v.Subsets = []string{graded.Bucket}
		}
		return v, err
	}
	return g, nil
}

// longbenchE is the folder of the answers to LongBench-E, whose scores are by length.
const longbenchE = "pred_e"

// byLength reports whether a unit is of LongBench-E.
func byLength(u trial.Info) bool { return strings.HasPrefix(u.Name, longbenchE+"/") }

// gradeItem scores a line of LongBench 2.
func gradeItem(_ trial.Info, row []byte) (trial.Verdict, error) {
	graded, err := longbench.GradeItem(row)
	return trial.Verdict{Score: &graded.Score, Null: graded.Null, Subsets: graded.Groups}, err
}

// gradeNeedle scores a line of a needle run.
func gradeNeedle(_ trial.Info, row []byte) (v trial.Verdict, err error) {
	var a struct {
		Response *string `json:"response"`
		Answer   string  `json:"answer"`
	}
	if err := jsonl.Decode(row, &a); err != nil {
		return v, jsonl.Explain(row, err)
	}
	if a.Response == nil {
		return v, jsonl.Missing(row, "response", "the answer as a string")
	}
	if a.Answer == "" {
		return v, jsonl.Missing(row, "answer", "the number that was hidden")
	}
	score := (&needle.Case{Answer: a.Answer}).Correct(*a.Response)
	return trial.Verdict{Score: &score, Null: metric.Strip(*a.Response) == ""}, nil
}
