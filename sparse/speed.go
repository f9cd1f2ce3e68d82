package sparse

import (
	"fmt"
	"strings"
)

// StepSpeed is how many times as fast as with dense attention a decode step was, with the prompt
// read and everything but attention included. A time of 0 was not measured.
type StepSpeed struct {
	Spec    string  // the setting
	At32k   float64 // one sequence behind 32,768 tokens
	At128k  float64 // one sequence behind 131,072 tokens
	Batched float64 // 16 sequences behind 32,768 tokens each
}

// SpeedMeasured is where, with what and when the speeds of methods were measured.
const SpeedMeasured = "Llama-3.1-8B's shape in Q8_0 on one NVIDIA H200, 2026-11-23, scripts/gpu-report.sh"

// stepSpeeds are those of docs/performance.md, "Whole steps of every method", by method: of several
// settings the fastest behind 128k that reads about a tenth. h2o is not among them: its budgets are
// shares of the prompt, of which the benchmark computes 512 tokens, so that it read next to nothing.
var stepSpeeds = map[string]StepSpeed{
	"streaming":      {"streaming", 1.40, 2.60, 4.46},
	"sketchwalk":     {"sketchwalk:paper-90", 1.09, 1.64, 2.66},
	"santa":          {"santa(samples=128,exec=prop)", 1.08, 1.33, 0.69},
	"quest":          {"quest(budget=0.1,share=group)", 0.86, 1.26, 2.19},
	"random":         {"random(k=0.1,share=group)", 1.06, 1.68, 3.03},
	"doublesparsity": {"doublesparsity(k=0.1)", 0.76, 0.90, 1.23},
	"hashattention":  {"hashattention(k=0.1)", 0.51, 0.55, 0.63},
	"topk":           {"topk(k=0.1,index=q4)", 0.74, 0.88, 1.16},
	"topp":           {"topp(index=q4)", 0.47, 0.39, 0.36},
	"psaw":           {"psaw", 1.01, 1.03, 1.04},
	"cis":            {"cis(k=0.1,share=group,index=q4)", 0.67, 0.77, 1.55},
	"cpe":            {"cpe(k=0.1,share=group,index=q4)", 0.68, 0.77, 1.56},
	"vattention":     {"vattention(share=group,index=q4)", 0.63, 0.88, 1.35},
	"magicpig":       {"magicpig", 0.51, 0.83, 0},
}

// Speed is how a method's decode step compares with dense; of a method that plans no decode
// steps there is none.
func (e Entry) Speed() (s StepSpeed, ok bool) {
	s, ok = stepSpeeds[e.Name]
	return s, ok
}

// String says what was measured, and from where on the method pays.
func (s StepSpeed) String() string {
	var measured, pays []string
	for _, x := range []struct {
		times float64
		where string
	}{{s.At32k, "behind 32k"}, {s.At128k, "behind 128k"}, {s.Batched, "with 16 sequences of 32k"}} {
		if x.times == 0 {
			continue
		}
		measured = append(measured, fmt.Sprintf("%.2f times dense %s", x.times, x.where))
		if x.times > 1 {
			pays = append(pays, x.where)
		}
	}
	from := "slower than dense at all of them"
	if len(pays) > 0 {
		from = "faster " + strings.Join(pays, " and ")
	}
	return fmt.Sprintf("%s: %s; %s (%s)", s.Spec, strings.Join(measured, ", "), from, SpeedMeasured)
}
