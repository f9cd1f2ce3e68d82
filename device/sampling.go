package device

import (
	"fmt"
	"slices"
	"strings"
)

// Sampling says how a token is chosen from a row of logits: the stages of Order, one
// after the other, and then one draw addressed by (Seed, pos), with the softmax of what
// is left. The zero Sampling is greedy: the largest logit, the lowest id among equals.
// The names, the stages and what each does are llama.cpp's.
type Sampling struct {
	Temperature float32 // divides the logits; 0 or less leaves the largest alone
	TopK        int     // keep the k largest; 0 keeps all
	TopP        float32 // keep the fewest whose softmax over what is left reaches this; 0 or 1 keeps all
	MinP        float32 // keep what has at least this share of the likeliest; 0 keeps all

	// The penalties make tokens less likely that are among the newest RepeatLastN of the
	// history: RepeatPenalty divides positive logits and multiplies the others, once, then
	// PresencePenalty is subtracted once and FrequencyPenalty once for each occurrence.
	RepeatPenalty    float32 // 0 or 1 is none
	PresencePenalty  float32
	FrequencyPenalty float32
	RepeatLastN      int // 0 is none; no more than the history has are seen

	Order SamplerOrder // zero is DefaultOrder
	Seed  uint64
}

// SamplerStage is a stage of the choice of a token.
type SamplerStage uint8

// The stages.
const (
	StagePenalties SamplerStage = iota + 1
	StageTopK
	StageTopP
	StageMinP
	StageTemperature
	samplerStages = iota
)

// SamplerOrder is stages in their order, each at most once; 0 ends it. What is not among
// them is not done, whatever its setting: without StageTemperature the temperature is 1.
type SamplerOrder [samplerStages]SamplerStage

// DefaultOrder is llama.cpp's: what is kept does not depend on the temperature.
var DefaultOrder = SamplerOrder{StagePenalties, StageTopK, StageTopP, StageMinP, StageTemperature}

// stageNames are the names of the stages, the first one that of String.
var stageNames = map[SamplerStage][]string{
	StagePenalties:   {"penalties"},
	StageTopK:        {"top_k", "top-k", "topk"},
	StageTopP:        {"top_p", "top-p", "topp", "nucleus"},
	StageMinP:        {"min_p", "min-p", "minp"},
	StageTemperature: {"temperature", "temp"},
}

// foreignStages are stages of llama.cpp that are not here.
var foreignStages = []string{"dry", "top_n_sigma", "typ_p", "xtc", "infill", "adaptive_p"}

// ParseSamplerOrder reads names of stages with semicolons between them, as llama.cpp
// does: "penalties;top_k;top_p;min_p;temperature".
func ParseSamplerOrder(text string) (SamplerOrder, error) {
	var o SamplerOrder
	names := strings.Split(strings.ToLower(text), ";")
	if foreign := foreignIn(names); len(foreign) > 0 {
		return o, fmt.Errorf("leave out %s: not supported, and off by default in llama.cpp; the samplers are %v", strings.Join(foreign, ", "), DefaultOrder)
	}
	for i, name := range names {
		s := stageNamed(strings.TrimSpace(name))
		switch {
		case s == 0:
			return o, fmt.Errorf("unknown sampler %.40q; the samplers are %v, with semicolons between them", strings.TrimSpace(name), DefaultOrder)
		case slices.Contains(o[:], s):
			return o, fmt.Errorf("%v is there twice", s)
		}
		o[i] = s
	}
	return o, nil
}

// foreignIn is the names that are those of foreignStages, each once.
func foreignIn(names []string) []string {
	return slices.DeleteFunc(slices.Clone(foreignStages), func(stage string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == stage })
	})
}

// stageNamed is the stage with a name, 0 for none.
func stageNamed(name string) SamplerStage {
	for s, names := range stageNames {
		if slices.Contains(names, name) {
			return s
		}
	}
	return 0
}

// String is the name of s.
func (s SamplerStage) String() string {
	if names := stageNames[s]; names != nil {
		return names[0]
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

// Has reports whether s is among the stages of o.
func (o SamplerOrder) Has(s SamplerStage) bool { return slices.Contains(o.stages(), s) }

// String is what ParseSamplerOrder reads.
func (o SamplerOrder) String() string {
	var names []string
	for _, s := range o.stages() {
		names = append(names, s.String())
	}
	return strings.Join(names, ";")
}

// stages are the stages of o, none of them 0.
func (o *SamplerOrder) stages() []SamplerStage {
	if *o == (SamplerOrder{}) {
		return DefaultOrder[:]
	}
	if n := slices.Index(o[:], 0); n >= 0 {
		return o[:n]
	}
	return o[:]
}

// Stages are the n stages of s that may change something, in their order.
func (s *Sampling) Stages() (list [samplerStages]SamplerStage, n int) {
	for _, stage := range s.Order.stages() {
		if s.does(stage) {
			list[n] = stage
			n++
		}
	}
	return list, n
}

// does reports whether a stage may change something.
func (s *Sampling) does(stage SamplerStage) bool {
	switch stage {
	case StagePenalties:
		return s.RepeatLastN > 0 && (s.RepeatPenalty != 0 && s.RepeatPenalty != 1 || s.PresencePenalty != 0 || s.FrequencyPenalty != 0)
	case StageTopK:
		return s.TopK > 0
	case StageTopP:
		return s.TopP > 0 && s.TopP < 1
	case StageMinP:
		return s.MinP > 0
	}
	return true
}

// Greedy reports whether the largest logit is chosen, whatever is drawn.
func (s *Sampling) Greedy() bool { return s.Temperature <= 0 && s.Order.Has(StageTemperature) }

// SampleTokens chooses the token that follows each row, and writes it into the row's history.
type SampleTokens struct {
	Next   Tensor // i32 [rows]
	Logits Tensor // f32 [rows, vocab]; may be overwritten
	// History is a ring of the newest tokens, i32 [rows, window]: that of position p at
	// p mod window, -1 where there is none. The chosen token is written at Pos+1.
	History   Tensor
	Pos       Tensor     // i32 [rows]: the rows' positions, which address the randomness
	Samplings []Sampling // of each row
}

// Check panics unless the operands fit together.
func (c *SampleTokens) Check() {
	const op = "SampleTokens"
	CheckShape(op, "logits", c.Logits, F32, -1, -1)
	rows := c.Logits.Dim(0)
	CheckShape(op, "next", c.Next, I32, rows)
	CheckShape(op, "history", c.History, I32, rows, -1)
	CheckShape(op, "pos", c.Pos, I32, rows)
	if c.Logits.Dim(1) == 0 {
		Check(false, op, "logits %v, want a token to choose", c.Logits)
	}
	if len(c.Samplings) != rows {
		Check(false, op, "%d settings, want %d, one of each row", len(c.Samplings), rows)
	}
}

// Access names what is read and written.
func (c *SampleTokens) Access(a *Access) {
	a.Read(c.Logits, c.History, c.Pos)
	a.Write(c.Next, c.Logits, c.History)
}

// Cost is the logits once.
func (c *SampleTokens) Cost(Stored) Cost { return moved(c.Logits, c.Next, c.History, c.Pos) }

func (*SampleTokens) kind() kind { return kindSampleTokens }
