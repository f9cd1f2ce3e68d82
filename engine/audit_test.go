package engine_test

import (
	"math"
	"testing"

	"github.com/gollm/gollm/engine"
)

// audited runs a spec over random tensors under an audit of every row.
func audited(t *testing.T, spec string, n, prompt int) engine.AuditReport {
	t.Helper()
	r := newReplay(t, spec, 2, n)
	a, err := r.Audit(engine.AuditConfig{Rows: n})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Open(randomLayers(1, n))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(prompt, 64); err != nil {
		t.Fatal(err)
	}
	for s.More() {
		if err := r.Step(s); err != nil {
			t.Fatal(err)
		}
	}
	return a.Report()
}

func TestAuditOfDenseIsExact(t *testing.T) {
	rep := audited(t, "dense", 100, 90)
	if len(rep.Phases) != 2 || rep.Phases[0].Rows != 90 || rep.Phases[1].Rows != 10 {
		t.Fatalf("%+v", rep)
	}
	for _, p := range rep.Phases {
		want := engine.AuditCell{Mass: 1, Recall01: 1, Recall005: 1, Density: 1, KRead: 1, VRead: 1}
		got := p.Mean
		for _, c := range [][2]float64{
			{got.Error, 0}, {got.Worst, 0}, {got.Mass, want.Mass}, {got.Recall01, 1}, {got.Recall005, 1},
			{got.Density, 1}, {got.KRead, 1}, {got.VRead, 1},
		} {
			if math.Abs(c[0]-c[1]) > 1e-6 {
				t.Errorf("%s: %+v, want %+v", p.Phase, got, want)
			}
		}
	}
	if past := rep.Phases[1].Past; past != 95.5 {
		t.Errorf("decode rows could see %v positions on average, want 95.5", past)
	}
}

// TestAuditCountsWhatIsRead compares with counts made by hand: streaming reads
// sink + window of K and V, the oracle scores all of K and reads its selection of V.
func TestAuditCountsWhatIsRead(t *testing.T) {
	const n, prompt = 120, 110
	var window, past float64
	for p := prompt; p < n; p++ {
		window += 24 / float64(p+1) / (n - prompt)
		past += float64(p+1) / (n - prompt)
	}
	rep := audited(t, "streaming(sink=4,window=20)", n, prompt)
	got := rep.Phases[1].Mean
	if math.Abs(got.Density-window) > 1e-9 || math.Abs(got.KRead-window) > 1e-9 || math.Abs(got.VRead-window) > 1e-9 {
		t.Errorf("streaming: %+v, want %v of everything", got, window)
	}
	if !(got.Mass > 0 && got.Mass < 0.9) || !(got.Error > 0.01) || got.Worst < got.Error {
		t.Errorf("streaming: %+v: neither exact nor empty is possible", got)
	}
	rep = audited(t, "topk(k=10,sink=4,window=20)", n, prompt)
	got = rep.Phases[1].Mean
	density := window * 34 / 24
	if math.Abs(got.Density-density) > 1e-9 || math.Abs(got.KRead-1) > 1e-9 {
		t.Errorf("topk: %+v, want density %v and all of K", got, density)
	}
	if !(got.VRead > density && got.VRead < density*44/34) {
		t.Errorf("topk: V read %v, want the union of two heads: above %v, below %v", got.VRead, density, density*44/34)
	}
	// cis selects at the first step of each block of 5 and reads its selection at
	// the others, which look at no other key.
	got = audited(t, "cis(k=10,sink=4,local=20,s=5,tau=-1,r=0,gap=drop)", n, prompt).Phases[1].Mean
	if want := 0.2 + 0.8*got.VRead; math.Abs(got.KRead-want) > 0.02 {
		t.Errorf("cis: %+v, want K read %v: all of it in one step of five", got, want)
	}
	// Low-bit keys are no rows of K.
	got = audited(t, "cis(k=10,sink=4,local=20,s=5,tau=-1,r=0,gap=drop,index=q4)", n, prompt).Phases[1].Mean
	if got.KRead != got.VRead {
		t.Errorf("cis with low-bit keys: %+v, want as much of K read as of V", got)
	}
	if top := rep.Phases[1].Mean.Mass; !(top > 0.3) {
		t.Errorf("topk keeps a mass of %v, less than streaming", top)
	}
}

// TestAuditCountsPatterns: the last row of a prompt has its scores with all keys
// computed to find a pattern, the first one has not; planning in tiles after that
// loses nothing.
func TestAuditCountsPatterns(t *testing.T) {
	for _, spec := range []string{"vslash(vertical=0,slash=0)", "flexprefill(gamma=0.1,tau=0,min=0,block=64)"} {
		const n, prompt = 450, 440
		one := func(rows int) (rep engine.AuditReport) {
			r := newReplay(t, spec, 2, n)
			a, err := r.Audit(engine.AuditConfig{Rows: rows})
			if err != nil {
				t.Fatal(err)
			}
			s, err := r.Open(randomLayers(1, n))
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Prefill(prompt, 0); err != nil {
				t.Fatal(err)
			}
			return a.Report()
		}
		last, all := one(1).Phases[0].Mean, one(prompt).Phases[0].Mean
		if math.Abs(last.KRead-1) > 1e-9 || !(last.VRead < 0.9) {
			t.Errorf("%s, the last row: %+v, want all of K and part of V", spec, last)
		}
		if more := all.KRead - all.VRead; !(more > 0.01 && more < 64.0/prompt) {
			t.Errorf("%s, all rows: K read %v, V read %v, want the last 64 rows alone to read more", spec, all.KRead, all.VRead)
		}
	}
}

// TestAuditMassAndErrorByHand checks one row against float64.
func TestAuditMassAndErrorByHand(t *testing.T) {
	const n = 50
	rep := audited(t, "streaming(sink=2,window=5)", n, n-1)
	layers := randomLayers(1, n)
	p := n - 1
	var all, few []int32
	ones := make([]float32, n)
	for j := range n {
		ones[j] = 1
		all = append(all, int32(j))
		if j < 2 || j > p-5 {
			few = append(few, int32(j))
		}
	}
	for l := range rLayers {
		for h := range rHeads {
			sparse, dense := attention(layers[l], n, p, h, few, ones), attention(layers[l], n, p, h, all, ones)
			var off, size float64
			within := 0.0
			for i := range dense {
				off += (sparse[i] - dense[i]) * (sparse[i] - dense[i])
				size += dense[i] * dense[i]
				if math.Abs(sparse[i]-dense[i]) < 0.01 {
					within += 1 / float64(rDim)
				}
			}
			c := rep.Phases[1].Cells[l][h]
			if math.Abs(c.Error-math.Sqrt(off/size)) > 1e-4 || math.Abs(c.Recall01-within) > 1e-6 {
				t.Errorf("layer %d head %d: error %v, want %v; recall %v, want %v", l, h, c.Error, math.Sqrt(off/size), c.Recall01, within)
			}
			if kept := keptMass(layers[l], n, p, h, few); math.Abs(c.Mass-kept) > 1e-5 {
				t.Errorf("layer %d head %d: mass %v, want %v", l, h, c.Mass, kept)
			}
		}
	}
}

// keptMass is the dense attention weight of keys.
func keptMass(t engine.QKV, n, p, head int, keys []int32) float64 {
	kv := head * rKVHeads / rHeads
	weight := func(j int) float64 {
		var s float64
		for c := range rDim {
			s += float64(t.Q[(head*n+p)*rDim+c]) * float64(t.K[(kv*n+j)*rDim+c])
		}
		return math.Exp(s / math.Sqrt(rDim))
	}
	var all, kept float64
	for j := range p + 1 {
		all += weight(j)
	}
	for _, j := range keys {
		kept += weight(int(j))
	}
	return kept / all
}

func TestAuditSamplesStepsAndRows(t *testing.T) {
	r := newReplay(t, "topk(k=10,sink=4,window=20)", 1, 200)
	a, err := r.Audit(engine.AuditConfig{Every: 4, Rows: 3})
	if err != nil {
		t.Fatal(err)
	}
	plain := newReplay(t, "topk(k=10,sink=4,window=20)", 1, 200)
	layers := randomLayers(1, 200)
	s, err := r.Open(layers)
	if err != nil {
		t.Fatal(err)
	}
	want, err := plain.Open(layers)
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range []*engine.ReplaySequence{s, want} {
		if err := run.Prefill(190, 64); err != nil {
			t.Fatal(err)
		}
	}
	for s.More() {
		if err := r.Step(s); err != nil {
			t.Fatal(err)
		}
		if err := plain.Step(want); err != nil {
			t.Fatal(err)
		}
	}
	rep := a.Report()
	if rep.Phases[0].Rows != 3*3 || rep.Phases[1].Rows != 3 {
		t.Errorf("%d rows and %d steps were looked at, want 9 (3 of each of 3 passes) and 3 of 10", rep.Phases[0].Rows, rep.Phases[1].Rows)
	}
	for l := range rLayers {
		if d := distance(s.Output(l), want.Output(l)); d != 0 {
			t.Errorf("layer %d: an audit changes the outputs by %g", l, d)
		}
	}
}

// TestAuditOfSomePasses: of a prompt of five passes the second, the fourth and the
// last are looked at.
func TestAuditOfSomePasses(t *testing.T) {
	r := newReplay(t, "dense", 2, 160)
	a, err := r.Audit(engine.AuditConfig{Rows: 1, Passes: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.Open(randomLayers(1, 160))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(160, 32); err != nil {
		t.Fatal(err)
	}
	p := a.Report().Phases[0]
	if p.Rows != 3 || p.Past != (64+128+160)/3. {
		t.Errorf("%d rows that see %v positions, want those of positions 63, 127 and 159", p.Rows, p.Past)
	}
}
