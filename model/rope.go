package model

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/internal/quote"
)

// Scaling is a rule that extends rotary embedding beyond the trained context.
type Scaling string

// The rules. Llama-3.1's own rule is not among them: its GGUF files carry the
// finished factors in the tensor rope_freqs.weight.
const (
	NoScaling     Scaling = "none"
	LinearScaling Scaling = "linear"
	YaRNScaling   Scaling = "yarn"
)

// RopeConfig is the rotary position embedding of a model.
type RopeConfig struct {
	Base     float64 // frequency of pair i is Base^(-2i/Dims)
	Dims     int     // leading dimensions of a head that are rotated
	Halves   bool    // pair i is elements i and i + Dims/2 of a head, otherwise 2i and 2i + 1
	Scaling  Scaling
	Factor   float64 // factor by which the context is extended
	Original int     // trained context in positions (YaRN)

	// YaRN's ramp: pairs that rotate more often than BetaFast within Original keep their
	// frequency, those that rotate less than BetaSlow are interpolated.
	BetaFast, BetaSlow float64
	AttnFactor         float64 // multiplies the rotated values besides, under every rule
}

// RopeOptions are what a user wants of the rotary embedding instead of what the file says; a
// zero field keeps that. Models such as Qwen2.5 and Qwen3 are made for YaRN beyond their
// trained context, and their files leave it off.
type RopeOptions struct {
	Scaling            Scaling
	Factor             float64 // above 0
	Base               float64 // above 1
	Original           int     // positions
	BetaFast, BetaSlow float64 // above 0
	AttnFactor         float64 // above 0
}

// apply changes a configuration, whose context becomes what the rule extends the trained one
// to. What is asked for must change something.
func (o RopeOptions) apply(c *Config) error {
	rc := &c.Rope
	set := func(x *float64, to float64) {
		if to != 0 {
			*x = to
		}
	}
	set(&rc.Base, o.Base)
	set(&rc.Factor, o.Factor)
	set(&rc.BetaFast, o.BetaFast)
	set(&rc.BetaSlow, o.BetaSlow)
	set(&rc.AttnFactor, o.AttnFactor)
	if o.Original != 0 {
		rc.Original = o.Original
	}
	if o.Scaling != "" {
		rc.Scaling = o.Scaling
	}
	switch yarn := o.Original != 0 || o.BetaFast != 0 || o.BetaSlow != 0; {
	case rc.Scaling == NoScaling && o.Factor != 0 && o.Factor != 1:
		return fmt.Errorf("a RoPE scale of %g, but the rule is none: name one, linear or yarn", o.Factor)
	case o.Scaling != "" && o.Scaling != NoScaling && rc.Factor == 1 && o.Factor == 0:
		return fmt.Errorf("RoPE scaling %s without a factor, which the file does not have either: name a scale, such as 4", o.Scaling)
	case yarn && rc.Scaling != YaRNScaling:
		return fmt.Errorf("settings of YaRN, but the RoPE scaling is %s", rc.Scaling)
	}
	if o.Scaling != "" || o.Factor != 0 || o.Original != 0 {
		c.Context = rc.Original
		if rc.Rule() != NoScaling {
			c.Context = int(min(max(float64(rc.Original)*rc.Factor, 1), maxTokens))
		}
	}
	return nil
}

// rope reads the rotary embedding of a configuration.
func (r *reader) rope(c Config) RopeConfig {
	rc := RopeConfig{
		Base:       r.floatOr("rope.freq_base", 10000),
		Dims:       r.uintOr("rope.dimension_count", c.HeadDim, 1, maxWidth),
		Scaling:    Scaling(r.stringOr("rope.scaling.type", "")),
		Factor:     r.floatOr("rope.scaling.factor", r.floatOr("rope.scale_linear", 1)),
		Original:   r.uintOr("rope.scaling.original_context_length", c.Context, 1, maxTokens),
		BetaFast:   r.floatOr("rope.scaling.yarn_beta_fast", 32),
		BetaSlow:   r.floatOr("rope.scaling.yarn_beta_slow", 1),
		AttnFactor: r.floatOr("rope.scaling.attn_factor", r.floatOr("rope.scaling.yarn_attn_factor", 1)),
	}
	if r.err == nil && rc.Base <= 1 { // frequencies must fall, and YaRN divides by the logarithm
		r.keep(fmt.Errorf("%s: key %s is %v, want a number above 1, such as 10000", r.file.Path(), r.key("rope.freq_base"), rc.Base))
	}
	switch rc.Scaling {
	case NoScaling, LinearScaling, YaRNScaling:
	case "": // files older than the key: a factor alone means linear
		rc.Scaling = LinearScaling
	default:
		r.keep(fmt.Errorf("%s: key %s is %s, want none, linear or yarn", r.file.Path(), r.key("rope.scaling.type"), quote.Short(string(rc.Scaling))))
	}
	ext := 0.0
	if rc.Scaling == YaRNScaling {
		ext = 1
	}
	r.only("rope.scaling.yarn_ext_factor", ext, -1) // a negative one stands for the rule's own
	r.only("rope.scaling.yarn_log_multiplier", 0)
	return rc
}

// only refuses a value that would change the formula: it must be want, or an equivalent.
func (r *reader) only(name string, want float64, same ...float64) {
	x, err := r.file.FloatOr(r.key(name), want)
	if err == nil && x != want && !slices.Contains(same, x) {
		err = fmt.Errorf("%s: key %s is %v, want %v: gollm does not compute what it asks for", r.file.Path(), r.key(name), x, want)
	}
	r.keep(err)
}

// Rule is the scaling in effect: a factor of 1 scales nothing.
func (rc RopeConfig) Rule() Scaling {
	if rc.Factor == 1 {
		return NoScaling
	}
	return rc.Scaling
}

// Freqs is radians per position for each of the Dims/2 pairs. factors divides
// pair by pair (the tensor rope_freqs.weight); nil is all ones.
func (rc RopeConfig) Freqs(factors []float32) []float32 {
	freqs := make([]float32, rc.Dims/2)
	lo, hi := rc.ramp()
	for i := range freqs {
		f := math.Pow(rc.Base, -2*float64(i)/float64(rc.Dims))
		if factors != nil {
			f /= float64(factors[i])
		}
		switch rc.Scaling {
		case LinearScaling:
			f /= rc.Factor
		case YaRNScaling:
			keep := 1 - min(1, max(0, (float64(i)-lo)/max(0.001, hi-lo)))
			f = f*keep + f/rc.Factor*(1-keep)
		}
		freqs[i] = float32(f)
	}
	return freqs
}

// Scale multiplies the rotated values: AttnFactor times YaRN's attention temperature (Peng
// et al., YaRN, 2023, equation 22), which is 1 for the other rules.
func (rc RopeConfig) Scale() float32 {
	if rc.Scaling != YaRNScaling || rc.Factor <= 1 {
		return float32(rc.AttnFactor)
	}
	return float32(rc.AttnFactor * (1 + 0.1*math.Log(rc.Factor)))
}

// ramp is the pairs between which YaRN goes from keeping to interpolating.
func (rc RopeConfig) ramp() (lo, hi float64) {
	// pair is the index of the pair with this many rotations within the trained context.
	pair := func(rotations float64) float64 {
		n := float64(rc.Dims)
		return n * math.Log(float64(rc.Original)/(rotations*2*math.Pi)) / (2 * math.Log(rc.Base))
	}
	lo = max(0, math.Floor(pair(rc.BetaFast)))
	hi = min(float64(rc.Dims-1), math.Ceil(pair(rc.BetaSlow)))
	return lo, hi
}
