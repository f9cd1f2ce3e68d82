package sparse

import (
	"math"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
)

// paperPSAW is psaw of a model of 32 layers with the options given.
func paperPSAW(t *testing.T, options ...string) *psaw {
	t.Helper()
	o, err := with(psawEntry.defaults, options)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newPSAW(o.(psawOptions), &Env{Shape: Shape{Layers: 32}})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*psaw)
}

// paperETF is the same of etf.
func paperETF(t *testing.T, options ...string) *etf {
	t.Helper()
	o, err := with(etfEntry.defaults, options)
	if err != nil {
		t.Fatal(err)
	}
	m, err := newETF(o.(etfOptions), &Env{Shape: Shape{Layers: 32}})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*etf)
}

// bounds is P_l(at) of layers l = 24 to 32, counted from 1.
func (w *psaw) bounds(at int) []int {
	var p []int
	for l := 24; l <= 32; l++ {
		s := w.Span(l - 1)
		if s.Drop == 0 {
			p = append(p, 0)
			continue
		}
		p = append(p, s.Bound(at-1)+1)
	}
	return p
}

// ends is E_l of the same layers.
func (e *etf) ends(prompt int) []int {
	var to []int
	for l := 24; l <= 32; l++ {
		to = append(to, e.Frozen(l-1, prompt).To)
	}
	return to
}

// C-1: 32 layers, ls = 24, phi = 0.7, psi = 0.5.
func TestScheduleOfPaper(t *testing.T) {
	w, e := paperPSAW(t), paperETF(t, "sink=0")
	for i, want := range []float64{1, .956395, .914691, .874806, .836660, .800177, .765286, .731915, .700000} {
		if got := 1 - w.Span(23+i).Drop; math.Abs(got-want) > 5e-7 {
			t.Errorf("layer %d keeps %.6f, want %.6f", 24+i, got, want)
		}
	}
	for l := 1; l < 24; l++ {
		if s := w.Span(l - 1); s != (device.Span{}) {
			t.Errorf("layer %d drops %v, want nothing before layer 25", l, s)
		}
		if f := e.Frozen(l-1, 1000); f.To > f.From {
			t.Errorf("layer %d freezes %v, want nothing before layer 25", l, f)
		}
	}
	tests := []struct {
		name      string
		got, want []int
	}{
		{"P(100)", w.bounds(100), []int{0, 4, 8, 12, 16, 19, 23, 26, 30}},
		{"P(1000)", w.bounds(1000), []int{0, 43, 85, 125, 163, 199, 234, 268, 300}},
		{"P(32768)", w.bounds(32768), []int{0, 1428, 2795, 4102, 5352, 6547, 7691, 8784, 9830}},
		{"E(1000)", e.ends(1000), []int{0, 82, 159, 228, 292, 351, 405, 454, 500}},
		{"E(32768)", e.ends(32768), []int{0, 2719, 5213, 7500, 9597, 11520, 13284, 14901, 16384}},
	}
	for _, tt := range tests {
		for i := range tt.want {
			if tt.got[i] != tt.want[i] {
				t.Errorf("%s = %v, want %v", tt.name, tt.got, tt.want)
				break
			}
		}
	}
}

// Both schedules never go back with depth or with position, and a window never
// moves by more than a position at a time.
func TestSchedulesNeverGoBack(t *testing.T) {
	w, e := paperPSAW(t, "phi=0.3", "alpha=1.7", "ls=5"), paperETF(t, "psi=0.1", "gamma=0.6", "ls=3")
	for l := range 32 {
		s := w.Span(l)
		for at := 1; at < 600; at++ {
			if l > 0 && s.Bound(at-1) < w.Span(l-1).Bound(at-1) && w.Span(l-1).Drop > 0 {
				t.Fatalf("layer %d at %d: the window opens with depth", l, at)
			}
			if step := s.Bound(at) - s.Bound(at-1); step < 0 || step > 1 {
				t.Fatalf("layer %d: P(%d) - P(%d) = %d, want 0 or 1", l, at+1, at, step)
			}
			f, before := e.Frozen(l, at+1), e.Frozen(l, at)
			if f.To < before.To || l > 0 && f.To < e.Frozen(l-1, at+1).To || f.To > max(at, f.From) {
				t.Fatalf("layer %d, prompt of %d: frozen to %d", l, at+1, f.To)
			}
		}
	}
}

func TestLastPositionOfAPromptIsNeverFrozen(t *testing.T) {
	e := paperETF(t, "psi=1e-300", "sink=0", "ls=0")
	for _, n := range []int{1, 2, 100, 100000} {
		if f := e.Frozen(31, n); f.To != n-1 {
			t.Errorf("prompt of %d: frozen to %d, want %d", n, f.To, n-1)
		}
	}
}

// The reductions that the paper's options give: PSAW sees .8225 of the past in
// the eight last layers and .9556 over all, ETF updates .9226 of all rows.
func TestSavingsOfPaperOptions(t *testing.T) {
	w, e := paperPSAW(t), paperETF(t, "sink=0")
	const n = 1 << 20
	var last, all, rows float64
	for l := range 32 {
		seen := 1 - w.Span(l).Drop
		all += seen / 32
		if l >= 24 {
			last += seen / 8
		}
		rows += (1 - float64(e.Frozen(l, n).To)/n) / 32
	}
	for name, pair := range map[string][2]float64{
		"visible in the last eight": {last, .8225}, "visible in all": {all, .9556}, "rows": {rows, .9226},
	} {
		if math.Abs(pair[0]-pair[1]) > 5e-5 {
			t.Errorf("%s: %.4f, want %.4f", name, pair[0], pair[1])
		}
	}
}

func TestScheduleErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"psaw(phi=1.1)":                 "phi",
		"psaw(alpha=-1)":                "alpha",
		"psaw(sink=-1)":                 "sink",
		"etf(psi=0)":                    "psi",
		"etf(etf=both)":                 "hidden, kv",
		"etf(etf_mlp=no)":               "skip, run",
		"cis(s=0)":                      "option s",
		"cis(local=0)":                  "option local",
		"cis(gap=fill)":                 "keep, drop",
		"cpe(psi=0)":                    "psi",
		"cpe(tau=x)":                    "want a number",
		"cpe(thau=1)":                   "it has: s, tau",
		"decode=etf":                    "etf does not work in decode",
		"prefill=cis":                   "cis does not work in prefill",
		"cpe + psaw":                    "psaw and psaw (of cpe)",
		"cpe + topk":                    "cis (of cpe) and topk",
		"etf + sketchwalk":              "sketchwalk must see all of them",
		"prefill=cpe + sketchwalk":      "sketchwalk must see all of them",
		"prefill=etf decode=sketchwalk": "etf skips rows of a prompt",
	} {
		if _, err := Parse(spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): err = %v, want it to contain %q", spec, err, want)
		}
	}
	s, err := Parse("psaw(ls=40)")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Build(testEnv(t)); err == nil || !strings.Contains(err.Error(), "the model has 4 layers") {
		t.Errorf("ls beyond the last layer: %v", err)
	}
	if s, err = Parse("cis(rope=pre)"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Build(testEnv(t)); err == nil || !strings.Contains(err.Error(), "rotation of a model") {
		t.Errorf("rope=pre without a model: %v", err)
	}
}

// testEnv is a small environment on a cpu.
func testEnv(t *testing.T) *Env {
	t.Helper()
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return NewEnv(dev, Shape{Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 16, MaxLen: 128, Slots: 1, Rows: 64, Pages: 8}, 1)
}

// A combination works where its parts do: what it is used for decides which.
func TestCombinationTakesItsPhases(t *testing.T) {
	for _, tt := range []struct {
		spec                       string
		frozen, prefill, decode    bool
		decoders, methods, spanned int
	}{
		{"cpe", true, true, true, 1, 3, 2},
		{"prefill=cpe decode=dense", true, true, false, 0, 3, 1},
		{"prefill=dense decode=cpe", false, false, true, 1, 3, 1},
		{"prefill=psaw + topk decode=cis", false, true, true, 1, 3, 1},
		{"prefill=cpe + streaming decode=cpe", true, true, true, 1, 4, 2},
		{"etf", true, true, false, 0, 1, 0},
	} {
		s, err := Parse(tt.spec)
		if err != nil {
			t.Errorf("%s: %v", tt.spec, err)
			continue
		}
		c, err := s.Build(testEnv(t))
		if err != nil {
			t.Errorf("%s: %v", tt.spec, err)
			continue
		}
		spanned := 0
		for _, s := range c.spans {
			if s != nil {
				spanned++
			}
		}
		if (c.freezer != nil) != tt.frozen || len(c.decoders) != tt.decoders || len(s.expanded()) != tt.methods || spanned != tt.spanned {
			t.Errorf("%s: freezer %v, %d decoders, %d methods, %d phases with spans", tt.spec, c.freezer, len(c.decoders), len(s.expanded()), spanned)
		}
	}
}

// The options of a combination are those of its parts.
func TestCombinationPassesOptionsOn(t *testing.T) {
	text := "cpe(s=8,tau=0.7,k=72,sink=8,ls=20,phi=0.6,psi=0.4,etf=kv,etf_mlp=run)"
	s, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.String() != text {
		t.Errorf("%s is %s", text, s)
	}
	parts := s.expanded()
	e, w, c := parts[0].opts.(etfOptions), parts[1].opts.(psawOptions), parts[2].opts.(cisOptions)
	ls := device.Amount{Count: 20}
	if e != (etfOptions{Psi: 0.4, Gamma: 1, LS: ls, Sink: 8, ETF: "kv", MLP: "run"}) || w != (psawOptions{Phi: 0.6, Alpha: 1, LS: ls, Sink: 8}) {
		t.Errorf("etf %+v, psaw %+v", e, w)
	}
	if c.Step != 8 || c.Tau != 0.7 || c.K != (device.Amount{Count: 72}) || c.Sink != 8 {
		t.Errorf("cis %+v", c)
	}
}
