package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
)

// auditFlags say whether dense attention is computed beside that of --attn.
type auditFlags struct {
	every string
	out   []string

	audit *engine.Audit // while the command runs
	files auditFiles    // nil: not begun yet
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

// checkOutputs refuses to write an audit over a file that is read.
func (a *auditFlags) checkOutputs(inputs ...userfile.Named) error {
	return userfile.CheckOutputs(inputs, a.outputs()...)
}

// outputs is the files that are written.
func (a *auditFlags) outputs() []userfile.Named {
	var list []userfile.Named
	for _, path := range a.out {
		list = append(list, userfile.Named{Flag: "--audit-out", Path: path})
	}
	return list
}

// steps is one of how many decode steps is looked at.
func (a *auditFlags) steps() (int, error) {
	if a.every == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(a.every, "every ")))
	if err != nil || n < 1 {
		return 0, usage.Errorf("--audit=%s, want --audit, or --audit=N with N at least 1", a.every)
	}
	return n, nil
}

// Check reports what is wrong with the flags.
func (a *auditFlags) Check() error {
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
			return usage.Errorf("%s: an audit is written as .json or .html", path)
		}
		if dir, err := os.Stat(filepath.Dir(path)); err != nil || !dir.IsDir() {
			return usage.Errorf("%s: there is no folder %s to write the audit to", path, filepath.Dir(path))
		}
	}
	return nil
}

// Watch begins the audit of a runner, where there is to be one.
func (a *auditFlags) Watch(r *engine.Runner) error {
	if !a.on() {
		return nil
	}
	every, err := a.steps()
	if err != nil {
		return err
	}
	a.audit, err = r.Audit(engine.AuditConfig{Every: every})
	return err
}

// finish prints the audit on stderr and writes its files; it does nothing where
// there was none.
func (a *auditFlags) finish(cmd *cobra.Command, m *openmodel.Model) error {
	if a.audit == nil {
		return nil
	}
	report := eval.Audit{Model: filepath.Base(m.File.Path()), Device: m.Device.Info().Name, AuditReport: a.audit.Report()}
	if _, err := fmt.Fprint(cmd.ErrOrStderr(), auditTable(report)); err != nil {
		return err
	}
	if a.files == nil {
		var err error
		if a.files, err = openAudit(a.out); err != nil {
			return err
		}
	}
	return a.files.write(report)
}

// open begins the files, for commands that work long before they are written; the
// caller drops them.
func (a *auditFlags) open() (err error) {
	a.files, err = openAudit(a.out)
	return err
}

// auditFiles are the files of an audit, by their names.
type auditFiles map[string]*userfile.Out

// openAudit begins them.
func openAudit(paths []string) (auditFiles, error) {
	all := auditFiles{}
	for _, path := range paths {
		f, err := userfile.Create("", path)
		if err != nil {
			all.drop()
			return nil, err
		}
		all[path] = f
	}
	return all, nil
}

// drop removes what was not written.
func (all auditFiles) drop() {
	for _, f := range all {
		f.Drop()
	}
}

// write writes an audit, in the form that each name says.
func (all auditFiles) write(a eval.Audit) error {
	for _, path := range slices.Sorted(maps.Keys(all)) {
		f, err := all[path], error(nil)
		if filepath.Ext(path) == ".html" {
			err = a.WriteHTML(f)
		} else {
			err = console.WriteJSON(f, a)
		}
		if err := f.Finish(err); err != nil {
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
	t := console.NewTable(columns...)
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
	text := t.Render() + "\n"
	if a.NaNRows > 0 {
		text += fmt.Sprintf("%s of a layer could not be compared and are in no mean: an output is not a number, or dense attention is zero\n", console.Plural(a.NaNRows, "row"))
	}
	return text + nanText(a.NaNScores)
}

// auditLine is one line of the table.
func auditLine(p engine.AuditPhase, layer string, c engine.AuditCell) table.Row {
	percent := func(x float64) string { return fmt.Sprintf("%.2f", 100*x) }
	if c.Unmeasured {
		return table.Row{p.Phase, layer, 0, "-", "-", "-", "-", "-", "-", "-", "-", "-"}
	}
	return table.Row{
		p.Phase, layer, p.Rows, fmt.Sprintf("%.0f", p.Past),
		fmt.Sprintf("%.3g", c.Error), fmt.Sprintf("%.3g", c.Worst),
		percent(c.Mass), percent(c.Recall01), percent(c.Recall005), percent(c.Density), percent(c.KRead), percent(c.VRead),
	}
}
