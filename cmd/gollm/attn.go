package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/sparse"
)

const attnLong = `List the attention methods that --attn takes, or tell about one of them.

An attention method says which of the stored tokens each new one reads. dense
reads all of them and is exact.

` + openmodel.AttnHelp + `

Methods that are combined work in the order of their stages: rows, window,
select, sample, value; a phase takes one of each stage.`

func newAttn() *cobra.Command {
	return &cobra.Command{
		Use:        "attn [NAME]",
		Short:      "List the attention methods, or tell about one",
		Long:       attnLong,
		Example:    "  gollm attn\n  gollm attn dense",
		GroupID:    groupAbout,
		Args:       oneMethod,
		SuggestFor: []string{"attention", "systems", "methods"},
		ValidArgs:  openmodel.AttnNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := attnTable()
			if len(args) == 1 {
				text = attnDoc(openmodel.FindAttn(args[0]))
			}
			_, err := io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
}

// oneMethod wants no argument or the name of a method.
func oneMethod(_ *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usage.Errorf("%d names, want one: gollm attn NAME", len(args))
	}
	if len(args) == 1 && openmodel.FindAttn(args[0]) == nil {
		if i := strings.IndexAny(args[0], ":("); i > 0 && openmodel.FindAttn(args[0][:i]) != nil {
			return usage.Errorf("%q has settings, want a name: gollm attn %s tells about it and its presets", args[0], args[0][:i])
		}
		if near := usage.Nearest(args[0], openmodel.AttnNames()); near != "" {
			return usage.Errorf("no attention method is called %q; did you mean %s?", args[0], near)
		}
		return usage.Errorf("no attention method is called %q; there are: %s", args[0], strings.Join(openmodel.AttnNames(), ", "))
	}
	return nil
}

// attnTable is one line for each method.
func attnTable() string {
	t := console.NewTable()
	t.AppendHeader(table.Row{"name", "used in", "stage", "x dense", "what it is"})
	for _, e := range sparse.Methods() {
		t.AppendRow(table.Row{e.Name, phasesText(e.Doc), stageText(e.Doc), timesText(e), e.Title})
	}
	return t.Render() + "\n\nx dense: the speed of a decode step behind 128k tokens beside dense attention, " + sparse.SpeedMeasured +
		".\n*: slower than dense there; gollm attn NAME says with what setting, and where it is faster.\n"
}

// timesText is how many times as fast as dense a method's decode step is, marked where it is slower.
func timesText(e sparse.Entry) string {
	s, ok := e.Speed()
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%.2f", s.At128k)
	if s.At128k < 1 {
		text += " *"
	}
	return text
}

// speedText is all that was measured of it.
func speedText(e *sparse.Entry) string {
	if s, ok := e.Speed(); ok {
		return s.String()
	}
	return ""
}

// phasesText is the phases that a method works in.
func phasesText(d sparse.Doc) string {
	switch {
	case d.Prefill && d.Decode:
		return "prefill, decode"
	case d.Prefill:
		return "prefill"
	}
	return "decode"
}

// attnDoc is all there is to know about a method.
func attnDoc(e *sparse.Entry) string {
	t := console.NewTable()
	for _, row := range []table.Row{
		{"name", e.Name}, {"what it is", e.Title}, {"source", e.Source}, {"used in", phasesText(e.Doc)},
		{"stage", stageText(e.Doc)}, {"selects", e.Granularity}, {"reads", e.Reads}, {"speed", speedText(e)}, {"prompt", wholeText(e.Doc)},
	} {
		if fmt.Sprint(row[1]) != "" {
			t.AppendRow(row)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Presets)) {
		t.AppendRow(table.Row{"preset " + name, e.Presets[name]})
	}
	text := t.Render() + "\n"
	if options := e.Options(); len(options) > 0 {
		o := console.NewTable()
		o.AppendHeader(table.Row{"option", "default", "unit or values", "meaning"})
		for _, opt := range options {
			allowed := opt.Unit
			if len(opt.Values) > 0 {
				allowed = strings.Join(opt.Values, ", ")
			}
			o.AppendRow(table.Row{opt.Name, opt.Default, allowed, opt.Doc})
		}
		text += "\n" + o.Render() + "\n"
	}
	return text
}

// wholeText says when a prompt cannot be read in parts.
func wholeText(d sparse.Doc) string {
	if d.Whole {
		return "is read in one pass over all of it"
	}
	return ""
}

// stageText is the place of a method among those that it is combined with.
func stageText(d sparse.Doc) string {
	if d.Stage == 0 {
		return ""
	}
	return d.Stage.String()
}
