// Package sampling has the parameters of token sampling. Names, defaults and semantics are
// llama.cpp's.
package sampling

import (
	"fmt"
	"slices"
	"strings"
)

// Params says how the next token is sampled from a row of logits: the stages of Order are
// applied one after the other, and one random number, addressed by (Seed, position), samples
// the softmax of what is left. The zero Params is greedy: the largest logit, ties to the lowest
// id.
type Params struct {
	Temperature float32 // divides the logits; 0 or less leaves the largest alone
	TopK        int     // keep the k largest; 0 keeps all
	TopP        float32 // keep the fewest whose softmax mass over what is left reaches TopP; 0 or 1 keeps all
	MinP        float32 // keep what has at least MinP times the probability of the likeliest; 0 keeps all

	// Penalties apply to tokens among the last RepeatLastN of the history: RepeatPenalty
	// divides positive logits and multiplies the others, then PresencePenalty is subtracted
	// once and FrequencyPenalty once for each occurrence.
	RepeatPenalty    float32 // 0 or 1 is none
	PresencePenalty  float32
	FrequencyPenalty float32
	RepeatLastN      int // 0 disables penalties; at most the length of the history counts

	Order Order // zero is DefaultOrder
	Seed  uint64
}

// Stage is one sampler of the chain.
type Stage uint8

// The stages.
const (
	StagePenalties Stage = iota + 1
	StageTopK
	StageTopP
	StageMinP
	StageTemperature
	numStages = iota
)

// Order is the sampler chain, each stage at most once; 0 ends it. A stage that is not in it is
// off whatever its parameter: without StageTemperature the temperature is 1.
type Order [numStages]Stage

// DefaultOrder is llama.cpp's: the temperature comes last, so that it does not change which
// tokens are kept.
var DefaultOrder = Order{StagePenalties, StageTopK, StageTopP, StageMinP, StageTemperature}

// stageNames are the names of the stages, the first one that of String.
var stageNames = map[Stage][]string{
	StagePenalties:   {"penalties"},
	StageTopK:        {"top_k", "top-k", "topk"},
	StageTopP:        {"top_p", "top-p", "topp", "nucleus"},
	StageMinP:        {"min_p", "min-p", "minp"},
	StageTemperature: {"temperature", "temp"},
}

// foreignStages are samplers of llama.cpp that are not implemented.
var foreignStages = []string{"dry", "top_n_sigma", "typ_p", "xtc", "infill", "adaptive_p"}

// ParseOrder reads names of stages with semicolons between them, as llama.cpp
// does: "penalties;top_k;top_p;min_p;temperature".
func ParseOrder(text string) (Order, error) {
	var o Order
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

// foreignIn is the foreignStages among names, each once.
func foreignIn(names []string) []string {
	return slices.DeleteFunc(slices.Clone(foreignStages), func(stage string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return strings.TrimSpace(name) == stage })
	})
}

// stageNamed is the stage with a name, 0 for none.
func stageNamed(name string) Stage {
	for s, names := range stageNames {
		if slices.Contains(names, name) {
			return s
		}
	}
	return 0
}

// String is the name of s.
func (s Stage) String() string {
	if names := stageNames[s]; names != nil {
		return names[0]
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

// Has reports whether s is among the stages of o.
func (o Order) Has(s Stage) bool { return slices.Contains(o.stages(), s) }

// String is what ParseOrder reads.
func (o Order) String() string {
	var names []string
	for _, s := range o.stages() {
		names = append(names, s.String())
	}
	return strings.Join(names, ";")
}

// stages are the stages of o, none of them 0.
func (o *Order) stages() []Stage {
	if *o == (Order{}) {
		return DefaultOrder[:]
	}
	if n := slices.Index(o[:], 0); n >= 0 {
		return o[:n]
	}
	return o[:]
}

// Stages are the n stages of s that may change something, in their order.
func (s *Params) Stages() (list [numStages]Stage, n int) {
	for _, stage := range s.Order.stages() {
		if s.does(stage) {
			list[n] = stage
			n++
		}
	}
	return list, n
}

// does reports whether a stage may change something.
func (s *Params) does(stage Stage) bool {
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

// Greedy reports whether the largest logit is taken whatever the random number is.
func (s *Params) Greedy() bool { return s.Temperature <= 0 && s.Order.Has(StageTemperature) }
