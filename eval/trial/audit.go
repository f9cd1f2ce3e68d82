package trial

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/gollm/gollm/engine"
)

// Reading is how much of the past attention read in one phase, by an audit of
// some samples: means over layers, heads and looked-at rows.
type Reading struct {
	Rows    int     `json:"rows"` // query positions looked at, in every layer and head
	Density float64 `json:"density"`
	Mass    float64 `json:"mass"` // dense attention weight of what was read
	Error   float64 `json:"error"`
	// Recall01 is the share of output elements within 0.01 of dense; 0 in what was
	// written before November 2026.
	Recall01 float64 `json:"recall_01"`
	KRead    float64 `json:"k_read"`
	VRead    float64 `json:"v_read"`
}

// Audited is the readings of a unit.
type Audited struct {
	Samples int      `json:"samples"`
	Prefill *Reading `json:"prefill,omitempty"`
	Decode  *Reading `json:"decode,omitempty"`
}

// Audits is what was read of the past under one setting.
type Audits struct {
	Units map[string]*Audited `json:"units"`
	Maps  *Maps               `json:"maps,omitempty"`
}

// Maps is where in the model something was lost, over all units.
type Maps struct {
	Prefill *Map `json:"prefill,omitempty"`
	Decode  *Map `json:"decode,omitempty"`
}

// Map is a figure for each layer and query head: means over looked-at rows, to
// four decimals; null where nothing was measured.
type Map struct {
	Rows  int          `json:"rows"`
	Mass  [][]*float64 `json:"mass"`
	Error [][]*float64 `json:"error"`
}

// Add counts what an audit saw of the samples of a unit in.
func (a *Audits) Add(unit string, samples int, r engine.AuditReport) {
	if a.Units == nil {
		a.Units = map[string]*Audited{}
	}
	if a.Maps == nil {
		a.Maps = &Maps{}
	}
	u := a.Units[unit]
	if u == nil {
		u = &Audited{}
		a.Units[unit] = u
	}
	u.Samples += samples
	for _, p := range r.Phases {
		if p.Mean.Unmeasured {
			continue
		}
		if p.Phase == "prefill" {
			u.Prefill, a.Maps.Prefill = u.Prefill.with(p), a.Maps.Prefill.with(p)
		} else {
			u.Decode, a.Maps.Decode = u.Decode.with(p), a.Maps.Decode.with(p)
		}
	}
}

// with is the mean of r and p, by their rows. r may be nil.
func (r *Reading) with(p engine.AuditPhase) *Reading {
	if r == nil {
		r = &Reading{}
	}
	n := float64(r.Rows + p.Rows)
	mean := func(x, y float64) float64 { return (x*float64(r.Rows) + y*float64(p.Rows)) / n }
	m := p.Mean
	return &Reading{
		Rows: r.Rows + p.Rows, Density: mean(r.Density, m.Density), Mass: mean(r.Mass, m.Mass),
		Error: mean(r.Error, m.Error), Recall01: mean(r.Recall01, m.Recall01), KRead: mean(r.KRead, m.KRead), VRead: mean(r.VRead, m.VRead),
	}
}

// with is the mean of m and the cells of p, by their rows. m may be nil.
func (m *Map) with(p engine.AuditPhase) *Map {
	sum := &Map{Rows: p.Rows}
	if m != nil {
		sum.Rows += m.Rows
	}
	for l, cells := range p.Cells {
		var mass, wrong []*float64
		for h, c := range cells {
			var x, y *float64
			if m != nil {
				x, y = cellAt(m.Mass, l, h), cellAt(m.Error, l, h)
			}
			if c.Unmeasured {
				mass, wrong = append(mass, x), append(wrong, y)
				continue
			}
			mass, wrong = append(mass, meanCell(x, c.Mass, p.Rows, sum.Rows)), append(wrong, meanCell(y, c.Error, p.Rows, sum.Rows))
		}
		sum.Mass, sum.Error = append(sum.Mass, mass), append(sum.Error, wrong)
	}
	return sum
}

// cellAt is a cell of a map that was read from a file, nil where that has none.
func cellAt(cells [][]*float64, layer, head int) *float64 {
	if layer >= len(cells) || head >= len(cells[layer]) {
		return nil
	}
	return cells[layer][head]
}

// meanCell is the mean of x, which stands for all rows but some, and of y, which
// stands for those; x may be nil.
func meanCell(x *float64, y float64, some, all int) *float64 {
	if x != nil {
		y = (*x*float64(all-some) + y*float64(some)) / float64(all)
	}
	y = math.Round(1e4*y) / 1e4
	return &y
}

// AuditName is the file of the readings of a setting, in its folder.
const AuditName = "audit.json"

// ReadAudit reads the readings of a setting; it has none where none were taken.
func ReadAudit(folder string, setting int, attn string) (Audits, error) {
	var all Audits
	name := filepath.Join(SettingName(setting, attn), AuditName)
	b, err := ReadFile(folder, name)
	if errors.Is(err, os.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	if err := json.Unmarshal(b, &all); err != nil {
		return all, fmt.Errorf("trial: %s: %w; without the file the readings are taken again", filepath.Join(folder, name), jsonError(b, err))
	}
	return all, nil
}

// WriteAudit writes them.
func WriteAudit(folder string, setting int, attn string, all Audits) error {
	return writeFile(folder, filepath.Join(SettingName(setting, attn), AuditName), all)
}
