package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
)

// auditFlags say whether dense attention is computed beside that of --attn.
type auditFlags struct {
	every string
	out   []string

	audit *engine.Audit // while the command runs
}

func (a *auditFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.every, "audit", "", "compare with dense attention in one of `N` decode steps (every one without =N) and some rows of each prefill pass")
	f.Lookup("audit").NoOptDefVal = "1"
	f.StringArrayVar(&a.out, "audit-out", nil, "write the audit to this .json or .html file (repeatable); implies --audit")
	_ = cmd.MarkFlagFilename("audit-out", "json", "html") // fails only for a flag that does not exist
}

// on reports whether there is something to do.
func (a *auditFlags) on() bool { return a.every != "" || len(a.out) > 0 }

// steps is one of how many decode steps is looked at.
func (a *auditFlags) steps() (int, error) {
	if a.every == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(a.every, "every ")))
	if err != nil || n < 1 {
		return 0, usagef("--audit=%s, want --audit, or --audit=N with N at least 1", a.every)
	}
	return n, nil
}

// check reports what is wrong with the flags.
func (a *auditFlags) check() error {
	if err := checkAuditFiles(a.out); err != nil {
		return err
	}
	_, err := a.steps()
	return err
}

// checkAuditFiles refuses names that are of no known kind or in no folder, before
// the work that they are to report.
func checkAuditFiles(paths []string) error {
	for _, path := range paths {
		if ext := filepath.Ext(path); ext != ".json" && ext != ".html" {
			return usagef("%s: an audit is written as .json or .html", path)
		}
		if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
			return usagef("%s: there is no folder %s to write the audit to", path, filepath.Dir(path))
		}
	}
	return nil
}

// watch begins the audit of a runner.
func (a *auditFlags) watch(r *engine.Runner) error {
	every, err := a.steps()
	if err != nil {
		return err
	}
	a.audit, err = r.Audit(engine.AuditConfig{Every: every})
	return err
}

// finish prints the audit on stderr and writes its files; it does nothing where
// there was none.
func (a *auditFlags) finish(cmd *cobra.Command, m *openModel) error {
	if a.audit == nil {
		return nil
	}
	report := eval.Audit{Model: filepath.Base(m.File.Path()), Device: m.Device.Name(), AuditReport: a.audit.Report()}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), auditTable(report)); err != nil {
		return err
	}
	return writeAudit(report, a.out)
}

// writeAudit writes an audit to files, each in the form that its name says.
func writeAudit(a eval.Audit, paths []string) error {
	for _, path := range paths {
		f, err := os.Create(path)
		if err != nil {
			return fileError("", path, "a file that can be written", err)
		}
		if filepath.Ext(path) == ".html" {
			err = a.WriteHTML(f)
		} else {
			err = writeJSON(f, a)
		}
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// auditTable is the means of each layer.
func auditTable(a eval.Audit) string {
	if len(a.Phases) == 0 {
		return "audit: nothing was looked at\n"
	}
	columns := []string{"layer", "rows", "past", "error", "worst", "mass %", "recall 0.01 %", "recall 0.005 %", "density %", "K read %", "V read %"}
	t := newTable(columns...)
	header := table.Row{"audit of " + a.Attn}
	for _, c := range columns {
		header = append(header, c)
	}
	t.AppendHeader(header)
	for _, p := range a.Phases {
		for l, c := range p.Layer {
			t.AppendRow(auditLine(p, strconv.Itoa(l), c))
		}
		t.AppendRow(auditLine(p, "all", p.Mean))
	}
	return t.Render() + "\n" + nanText(a.NaNScores)
}

// nanText is a line about scores that were not numbers, empty where there were
// none.
func nanText(n int64) string {
	if n == 0 {
		return ""
	}
	verb := "were"
	if n == 1 {
		verb = "was"
	}
	return fmt.Sprintf("%s %s not a number: a query or a key is broken, and the output is not to be trusted\n", plural(int(n), "score"), verb)
}

// auditLine is one line of the table.
func auditLine(p engine.AuditPhase, layer string, c engine.AuditCell) table.Row {
	percent := func(x float64) string { return fmt.Sprintf("%.2f", 100*x) }
	return table.Row{
		p.Phase, layer, p.Rows, fmt.Sprintf("%.0f", p.Past),
		fmt.Sprintf("%.3g", c.Error), fmt.Sprintf("%.3g", c.Worst),
		percent(c.Mass), percent(c.Recall01), percent(c.Recall005), percent(c.Density), percent(c.KRead), percent(c.VRead),
	}
}
