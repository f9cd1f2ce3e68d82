package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/preset"
	"github.com/gollm/gollm/internal/usage"
)

// registerPreset registers --preset, for commands whose suite has presets.
func (e *runFlags) registerPreset(cmd *cobra.Command) {
	cmd.Flags().StringVar(&e.preset, "preset", "", "protocol of a publication; other flags override it: "+strings.Join(preset.Names(), ", "))
	usage.Complete(cmd, "preset", preset.Names)
}

// usePreset gives the flags that were not set the values of the preset, and
// returns what a report must say.
func (e *runFlags) usePreset(cmd *cobra.Command, suite string) ([]string, error) {
	if e.preset == "" {
		return nil, nil
	}
	p, err := preset.Find(e.preset)
	if err != nil {
		return nil, usage.Errorf("--preset: %v", err)
	}
	s := p.Of(suite)
	if s == nil {
		return nil, usage.Errorf("--preset %s has no protocol of %s", p.Name, suite)
	}
	for name, value := range map[string]string{
		"sparse-phase": p.Phase, "tasks": s.Tasks, "lengths": s.Lengths, "samples": countFlag(s.Samples), "max-new-tokens": countFlag(s.NewTokens),
		"max-length": countFlag(s.MaxLength), "ruler-template": s.Template, "answer-prefix": s.Prefix, "grader": s.Grader, "no-chat": boolFlag(s.Plain),
	} {
		f := cmd.Flags().Lookup(name)
		if value == "" || f == nil || f.Changed {
			continue
		}
		if err := f.Value.Set(value); err != nil {
			return nil, fmt.Errorf("--preset %s: --%s %s: %w", p.Name, name, value, err)
		}
	}
	if !cmd.Flags().Changed("attn") {
		e.attn = p.Attn
	}
	return p.Remarks(suite), nil
}

// countFlag is n as the text of a flag; 0 is not set.
func countFlag(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// boolFlag is the text of a flag that is set.
func boolFlag(on bool) string {
	if on {
		return "true"
	}
	return ""
}
