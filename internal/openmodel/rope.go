package openmodel

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/model"
)

// RopeFlags are the flags that change a model's rotary embedding, with llama.cpp's names.
type RopeFlags struct {
	model.RopeOptions
	scaling string
}

// maxRopeContext bounds --yarn-orig-ctx, in tokens.
const maxRopeContext = 1 << 27

// Register registers them.
func (r *RopeFlags) Register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.scaling, "rope-scaling", "", "how RoPE goes beyond the trained context: none, linear or yarn (default: what the file says)")
	f.Float64Var(&r.Factor, "rope-scale", 0, "factor by which that extends the context, for example 4 (default: the file's)")
	f.Float64Var(&r.Base, "rope-freq-base", 0, "base of RoPE's frequencies (default: the file's)")
	f.IntVar(&r.Original, "yarn-orig-ctx", 0, "YaRN: context before it was extended, in tokens (default: the file's)")
	f.Float64Var(&r.AttnFactor, "yarn-attn-factor", 0, "factor on the rotated queries and keys, beside YaRN's own (default: the file's)")
	f.Float64Var(&r.BetaFast, "yarn-beta-fast", 0, "YaRN: more rotations than so many stay as they are (default: the file's, or 32)")
	f.Float64Var(&r.BetaSlow, "yarn-beta-slow", 0, "YaRN: fewer than so many are interpolated (default: the file's, or 1)")
	usage.Complete(cmd, "rope-scaling", func() []string { return []string{"none", "linear", "yarn"} })
}

// Check reports what is wrong with the flags.
func (r *RopeFlags) Check() error {
	switch r.Scaling = model.Scaling(r.scaling); r.Scaling {
	case "", model.NoScaling, model.LinearScaling, model.YaRNScaling:
	default:
		return usage.Errorf("--rope-scaling %q, want none, linear or yarn", r.scaling)
	}
	for _, n := range []struct {
		name  string
		x, lo float64
	}{
		{"rope-scale", r.Factor, 0}, {"rope-freq-base", r.Base, 1}, {"yarn-attn-factor", r.AttnFactor, 0},
		{"yarn-beta-fast", r.BetaFast, 0}, {"yarn-beta-slow", r.BetaSlow, 0},
	} {
		if n.x != 0 && !(n.x > n.lo && n.x < 1e12) {
			return usage.Errorf("--%s %g, want a number above %g and below 1e12", n.name, n.x, n.lo)
		}
	}
	if r.Original < 0 || r.Original > maxRopeContext {
		return usage.Errorf("--yarn-orig-ctx %d, want a number of tokens from 1 to %d", r.Original, maxRopeContext)
	}
	if r.BetaFast != 0 && r.BetaSlow != 0 && r.BetaFast < r.BetaSlow {
		return usage.Errorf("--yarn-beta-fast %g is below --yarn-beta-slow %g", r.BetaFast, r.BetaSlow)
	}
	return nil
}

// Text is what the flags ask for, "" for nothing: what makes a run another run.
func (r *RopeFlags) Text() string {
	if r.RopeOptions == (model.RopeOptions{}) {
		return ""
	}
	b, err := json.Marshal(r.RopeOptions)
	if err != nil {
		panic("openmodel: RopeOptions: " + err.Error()) // Check refuses what is no number
	}
	return string(b)
}
