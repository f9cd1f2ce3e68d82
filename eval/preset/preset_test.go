package preset

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/sparse"
)

// TestPresets checks that presets name what there is.
func TestPresets(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range presets() {
		if seen[p.Name] || p.Paper == "" || len(p.Attn) < 2 || p.Attn[0] != "dense" {
			t.Errorf("%s: twice, or without a paper or something to compare dense with", p.Name)
		}
		seen[p.Name] = true
		for _, a := range p.Attn {
			if _, err := sparse.Parse(a); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
		if !slices.Contains([]string{"prefill", "decode", "question+decode", "all"}, p.Phase) {
			t.Errorf("%s: phase %s", p.Name, p.Phase)
		}
		for _, f := range p.Published {
			if p.Of(f.Suite) == nil || f.Dense <= 0 || f.Sparse <= 0 || f.Model == "" {
				t.Errorf("%s: a figure of %s, which it does not run, or an empty one", p.Name, f.Suite)
			}
		}
		checkSuites(t, &p)
	}
}

func checkSuites(t *testing.T, p *Preset) {
	t.Helper()
	if s := p.Ruler; s != nil {
		if _, err := ruler.PickTasks(s.Tasks); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		if s.Template != "" {
			if _, err := ruler.FindTemplate(s.Template); err != nil {
				t.Errorf("%s: %v", p.Name, err)
			}
		}
	}
	if s := p.Longbench; s != nil {
		if _, err := longbench.Pick(s.Tasks); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

func TestFind(t *testing.T) {
	p, err := Find("santa")
	if err != nil || p.Of("ruler").Grader != "santa" || p.Of("niah") != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if remarks := strings.Join(p.Remarks("longbench2"), "\n"); !strings.Contains(remarks, "28.36") || strings.Contains(remarks, "95.60") {
		t.Errorf("remarks %s, want the figures of longbench2 only", remarks)
	}
	if _, err := Find("nope"); err == nil || !strings.Contains(err.Error(), "sketchwalk-prefill") {
		t.Errorf("error %v", err)
	}
}
