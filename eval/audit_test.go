package eval_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/eval"
)

// someAudit is an audit with a figure of its own in each cell.
func someAudit(layers, heads int) eval.Audit {
	a := eval.Audit{Model: "</script><b>x", AuditReport: engine.AuditReport{
		Attn: "topk(k=10)", Layers: layers, Heads: heads, KVHeads: heads / 2, HeadDim: 16, Every: 3, Rows: 8,
	}}
	for i, name := range []string{"prefill", "decode"} {
		p := engine.AuditPhase{Phase: name, Rows: 7, Past: 100}
		for l := range layers {
			var row []engine.AuditCell
			for h := range heads {
				x := float64(l*heads+h) / float64(layers*heads)
				row = append(row, engine.AuditCell{Error: x, Worst: 2 * x, Mass: 1 - x/2, Recall01: 1 - x*x, Density: 0.1, KRead: 1, VRead: float64(i)})
			}
			p.Cells, p.Layer = append(p.Cells, row), append(p.Layer, row[0])
		}
		p.Mean = p.Cells[layers-1][heads-1]
		a.Phases = append(a.Phases, p)
	}
	return a
}

func TestAuditPageStandsAlone(t *testing.T) {
	var page strings.Builder
	a := someAudit(3, 4)
	if err := a.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	for _, outside := range []string{`src=`, `href=`, `@import`, `url(`, `fetch(`, `</script><b>`} {
		if strings.Contains(text, outside) {
			t.Errorf("the page has %q", outside)
		}
	}
	for _, want := range []string{"topk(k=10)", "one of 3 decode steps", "Means of each layer, decode", `name="viewport"`, "prefers-color-scheme: dark"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, c := range []struct {
		layers, heads int
		want          string
	}{{1, 2, "1 layer, 2 query heads, 1 kv head of width 16"}, {3, 4, "3 layers, 4 query heads, 2 kv heads of width 16"}} {
		page.Reset()
		if err := someAudit(c.layers, c.heads).WriteHTML(&page); err != nil || !strings.Contains(page.String(), c.want) {
			t.Errorf("%v: the page lacks %q", err, c.want)
		}
	}
	data := regexp.MustCompile(`(?m)^const report = (.*);$`).FindStringSubmatch(text)
	if data == nil {
		t.Fatal("the page has no data")
	}
	var back eval.Audit
	if err := json.Unmarshal([]byte(data[1]), &back); err != nil {
		t.Fatal(err)
	}
	if got, want := back.Phases[1].Cells[2][3].Error, a.Phases[1].Cells[2][3].Error; got != want {
		t.Errorf("the page's data has an error of %v, want %v", got, want)
	}
}

func TestAuditPageOfNothing(t *testing.T) {
	var page strings.Builder
	if err := (eval.Audit{AuditReport: engine.AuditReport{Phases: []engine.AuditPhase{}}}).WriteHTML(&page); err != nil || !strings.Contains(page.String(), "Nothing was looked at") {
		t.Errorf("%v: %s", err, page.String())
	}
}

// What was not measured has no figures on the page.
func TestAuditPageOfWhatWasNotMeasured(t *testing.T) {
	cell := engine.AuditCell{Unmeasured: true}
	a := eval.Audit{AuditReport: engine.AuditReport{Layers: 1, Heads: 1, Phases: []engine.AuditPhase{{
		Phase: "prefill", Rows: 3, Mean: cell, Layer: []engine.AuditCell{cell}, Cells: [][]engine.AuditCell{{cell}},
	}}}}
	var page strings.Builder
	if err := a.WriteHTML(&page); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if strings.Count(text, `<td colspan="8">not measured</td>`) != 2 || strings.Contains(text, "<td>0.00</td>") || !strings.Contains(text, `"cells":[[null]]`) {
		t.Error(text[strings.Index(text, "<h2>"):])
	}
}
