package paper

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// HarnessVersion is the lm-evaluation-harness whose flags and names the commands have.
const HarnessVersion = "lm_eval[api]==0.4.13"

// Results is what the harness writes at the end of a run, as far as it is read.
type Results struct {
	Results map[string]map[string]any `json:"results"`
	Samples map[string]struct {
		Effective int `json:"effective"`
	} `json:"n-samples"`
}

// ReadResults reads such a file.
func ReadResults(name string, b []byte) (Results, error) {
	var r Results
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("paper: %s is no file of results of lm-evaluation-harness: %w", name, err)
	}
	if len(r.Results) == 0 {
		return r, fmt.Errorf("paper: %s has no field results, want a file of results of lm-evaluation-harness", name)
	}
	return r, nil
}

// z95 is the normal quantile of a 95 % interval.
const z95 = 1.959964

// meanOfRuns is the mean of a metric over runs, with the interval that the standard
// errors of the harness make; the hole says why there is none.
func meanOfRuns(runs []Results, metric string, unit float64) (s *Score, hole string) {
	task, name, _ := strings.Cut(metric, "/")
	value, filter, _ := strings.Cut(name, ",")
	if len(runs) == 0 {
		return nil, "not run yet: its two commands are below, and the table reads what they write"
	}
	s = &Score{}
	variance, known := 0.0, true
	for _, r := range runs {
		x, ok := r.score(task, value, filter)
		if !ok {
			return nil, fmt.Sprintf("the results of the harness have no %s of %s", name, task)
		}
		known = known && !x.Bare
		s.Mean, variance, s.N = s.Mean+x.Mean, variance+x.High*x.High, max(s.N, x.N)
	}
	n := float64(len(runs))
	s.Mean *= unit / n
	// The runs are of the same questions: their errors do not average out.
	wide := z95 * unit * math.Sqrt(variance/n)
	if s.Bare = !known; s.Bare {
		wide = 0
	}
	s.Low, s.High = s.Mean-wide, s.Mean+wide
	return s, ""
}

// score is a metric of a task, with its standard error as High. Of a group whose own mean
// the harness did not make it is that of its tasks, by their samples: their names begin
// with the group's.
func (r Results) score(task, value, filter string) (Score, bool) {
	if s, ok := r.of(task, value, filter); ok {
		return s, true
	}
	var sum Score
	variance := 0.0
	for _, name := range slices.Sorted(maps.Keys(r.Results)) {
		s, ok := r.of(name, value, filter)
		if !ok || s.N == 0 || !strings.HasPrefix(name, task+"_") {
			continue
		}
		n := float64(s.N)
		sum.Mean, variance, sum.N, sum.Bare = sum.Mean+n*s.Mean, variance+n*n*s.High*s.High, sum.N+s.N, sum.Bare || s.Bare
	}
	if sum.N == 0 {
		return sum, false
	}
	sum.Mean, sum.High = sum.Mean/float64(sum.N), math.Sqrt(variance)/float64(sum.N)
	return sum, true
}

// of is a metric that the harness made, with its standard error as High.
func (r Results) of(task, value, filter string) (Score, bool) {
	x, ok := r.Results[task][value+","+filter].(float64)
	e, known := r.Results[task][value+"_stderr,"+filter].(float64)
	return Score{Mean: x, High: e, N: r.Samples[task].Effective, Bare: !known}, ok
}

// Serving is what the commands of a harness depend on besides the table.
type Serving struct {
	Program string   // gollm
	File    string   // of the model
	Args    []string // more flags of gollm serve
	Out     string   // folder of the table
	Port    int
	Limit   int // questions of a task; 0 is all
}

// Serve makes the commands of the rows that run.
func (p *Plan) Serve(s Serving) {
	for _, row := range p.Rows {
		r := p.Table.Rows[row]
		v := Server{Row: r.Name, Results: path.Join(filepath.ToSlash(s.Out), "harness", fmt.Sprintf("%d-%s", row, slug(r.Name)))}
		v.Serve = append([]string{s.Program, "serve", "-m", s.File, "--attn", r.Attn, "--port", strconv.Itoa(s.Port)}, s.Args...)
		for run := range p.Table.Harness.runs() {
			v.LMEval = append(v.LMEval, p.Table.Harness.command(s, v.Results, run))
		}
		p.Servers = append(p.Servers, v)
	}
}

// command is the harness's command of a run.
func (h *Harness) command(s Serving, results string, run int) []string {
	kind, endpoint := "local-completions", "completions"
	if h.Chat {
		kind, endpoint = "local-chat-completions", "chat/completions"
	}
	name := strings.TrimSuffix(filepath.Base(s.File), ".gguf")
	args := fmt.Sprintf("model=%s,base_url=http://127.0.0.1:%d/v1/%s,num_concurrent=16", name, s.Port, endpoint)
	if !h.Chat {
		args += ",tokenizer_backend=remote" // a chat is sent as text
	}
	if h.MaxLength > 0 {
		args += fmt.Sprintf(",max_length=%d", h.MaxLength)
	}
	if h.runs() > 1 {
		args += fmt.Sprintf(",seed=%d", run+1)
	}
	var words []string
	if len(h.Environment) > 0 {
		words = append([]string{"env"}, h.Environment...)
	}
	words = append(words, "lm_eval", "--model", kind, "--tasks", strings.Join(h.Tasks, ","), "--num_fewshot", strconv.Itoa(h.Fewshot), "--model_args", args)
	if h.Chat {
		words = append(words, "--apply_chat_template")
	}
	if h.Generate != "" {
		words = append(words, "--gen_kwargs", h.Generate)
	}
	if s.Limit > 0 {
		words = append(words, "--limit", strconv.Itoa(s.Limit))
	}
	words = append(words, h.Args...)
	return append(words, "--log_samples", "--output_path", RunFolder(results, run))
}

// RunFolder is the folder of a run in that of a row's results.
func RunFolder(results string, run int) string {
	return path.Join(results, fmt.Sprintf("run-%d", run+1))
}

// slug is a name as a part of a path.
func slug(name string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' {
			return c
		}
		return '-'
	}, name), "-")
}
