package main

import (
	"math/rand/v2"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
)

// samplingFlags say how a token is sampled.
type samplingFlags struct {
	sampling.Params
	order  string
	random bool // the seed was drawn, not given
}

func (s *samplingFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.Float32Var(&s.Temperature, "temp", 0.8, "temperature: 0 always takes the likeliest token, higher is more varied")
	f.IntVar(&s.TopK, "top-k", 40, "sample among this many likeliest tokens; 0 is all")
	f.Float32Var(&s.TopP, "top-p", 0.95, "sample among the likeliest tokens with this probability mass; 1 is all")
	f.Float32Var(&s.MinP, "min-p", 0.05, "leave out tokens less likely than this share of the likeliest; 0 is none")
	f.Float32Var(&s.RepeatPenalty, "repeat-penalty", 1, "make recent tokens less likely by this factor of their logits; 1 is off, 1.1 is usual")
	f.Float32Var(&s.PresencePenalty, "presence-penalty", 0, "subtract this from the logits of recent tokens")
	f.Float32Var(&s.FrequencyPenalty, "frequency-penalty", 0, "subtract this from the logits of recent tokens, each time that they occur")
	f.IntVar(&s.RepeatLastN, "repeat-last-n", 64, "how many of the last tokens, of prompt and text, are recent to the penalties; 0 is none, -1 the whole context")
	f.StringVar(&s.order, "sampler-order", sampling.DefaultOrder.String(), "the samplers in the order in which they work, with semicolons between them; one that is not named is off")
	f.Uint64Var(&s.Seed, "seed", 0, "same seed, same text (default: random, and printed)")
}

// check reports what is wrong with the flags, and draws a seed where none was
// given.
func (s *samplingFlags) check(cmd *cobra.Command) error {
	for _, f := range []struct {
		name         string
		value        float32
		least, limit float32
	}{
		{"temp", s.Temperature, 0, 100}, {"top-p", s.TopP, 0, 1}, {"min-p", s.MinP, 0, 1},
		{"repeat-penalty", s.RepeatPenalty, 0, 100}, {"presence-penalty", s.PresencePenalty, -100, 100}, {"frequency-penalty", s.FrequencyPenalty, -100, 100},
	} {
		if !(f.value >= f.least && f.value <= f.limit) {
			return usage.Errorf("--%s %v, want %v to %v", f.name, f.value, f.least, f.limit)
		}
	}
	switch {
	case s.RepeatPenalty < 0.01: // less makes logits infinite
		return usage.Errorf("--repeat-penalty %v, want 0.01 to 100; 1 is off", s.RepeatPenalty)
	case s.TopP == 0:
		return usage.Errorf("--top-p 0, want more than 0; 1 is all tokens, and --top-k 1 is the likeliest alone")
	case s.TopK < 0:
		return usage.Errorf("--top-k %d, want 0 or more", s.TopK)
	case s.RepeatLastN < -1 || s.RepeatLastN > openmodel.MaxContext:
		return usage.Errorf("--repeat-last-n %d, want 0 or more tokens, or -1 for the whole context", s.RepeatLastN)
	}
	if s.random = !cmd.Flags().Changed("seed"); s.random {
		s.Seed = uint64(rand.Uint32()) // short enough to type, exact in any JSON reader
	}
	return s.checkOrder(cmd)
}

// in makes --repeat-last-n -1 the length of the context, and is what the penalties look
// at.
func (s *samplingFlags) in(context int) int {
	if s.RepeatLastN < 0 {
		s.RepeatLastN = context
	}
	return s.RepeatLastN
}

// checkOrder reports what is wrong with --sampler-order, and flags that it makes useless.
func (s *samplingFlags) checkOrder(cmd *cobra.Command) (err error) {
	if s.Order, err = sampling.ParseOrder(s.order); err != nil {
		return usage.Errorf("--sampler-order: %v", err)
	}
	for _, of := range stageFlags {
		for _, name := range of.flags {
			if cmd.Flags().Changed(name) && !s.Order.Has(of.stage) {
				return usage.Errorf("--%s does nothing: --sampler-order %s leaves %v out", name, s.order, of.stage)
			}
		}
	}
	return nil
}

// stageFlags are the flags of a stage.
var stageFlags = []struct {
	stage sampling.Stage
	flags []string
}{
	{sampling.StagePenalties, []string{"repeat-penalty", "presence-penalty", "frequency-penalty", "repeat-last-n"}},
	{sampling.StageTopK, []string{"top-k"}},
	{sampling.StageTopP, []string{"top-p"}},
	{sampling.StageMinP, []string{"min-p"}},
	{sampling.StageTemperature, []string{"temp"}},
}
