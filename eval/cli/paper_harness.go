package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gollm/gollm/eval/paper"
	"github.com/gollm/gollm/internal/userfile"
)

// served reports whether a flag that is passed on is one of gollm serve.
func served(name string) bool { return name == "kv" || name == "ctx" }

// planHarness makes the commands of a table that lm-evaluation-harness runs.
func (p *paperFlags) planHarness(cmd *cobra.Command, plan *paper.Plan) {
	s := paper.Serving{Program: "gollm", File: p.model.Path, Out: filepath.Join(p.out, plan.Table.Name), Port: p.port, Limit: p.samples}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if served(f.Name) || ofModel(f.Name) {
			s.Args = append(s.Args, "--"+f.Name, f.Value.String())
		}
	})
	if p.samples > 0 {
		plan.Reduced = append(plan.Reduced, fmt.Sprintf("--limit %d questions of each task, not all of them", p.samples))
	}
	plan.Serve(s)
}

// harnessReport is the table with what the harness wrote of it so far.
func (p *paperFlags) harnessReport(plan *paper.Plan) (*paper.Report, error) {
	results := map[int][]paper.Results{}
	for i, row := range plan.Rows {
		for run := range plan.Servers[i].LMEval {
			path, err := lastResults(filepath.FromSlash(paper.RunFolder(plan.Servers[i].Results, run)))
			if err != nil {
				return nil, err
			}
			if path == "" {
				continue
			}
			b, err := userfile.ReadLimited(path, userfile.MaxText)
			if err != nil {
				return nil, err
			}
			r, err := paper.ReadResults(path, b)
			if err != nil {
				return nil, err
			}
			results[row] = append(results[row], r)
		}
	}
	return plan.HarnessReport(results), nil
}

// lastResults is the last file of results in a folder of the harness, whose names have
// the time in them; "" where it has none.
func lastResults(folder string) (string, error) {
	last := ""
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		name := filepath.Base(path)
		if err == nil && d.Type().IsRegular() && strings.HasPrefix(name, "results_") && strings.HasSuffix(name, ".json") && (last == "" || name > filepath.Base(last)) {
			last = path
		}
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return last, err
}
