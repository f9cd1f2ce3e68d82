package trial

import (
	"encoding/json"
	"errors"
	"fmt"
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
	KRead   float64 `json:"k_read"`
	VRead   float64 `json:"v_read"`
}

// Audited is the readings of a unit.
type Audited struct {
	Samples int      `json:"samples"`
	Prefill *Reading `json:"prefill,omitempty"`
	Decode  *Reading `json:"decode,omitempty"`
}

// Between is what an audit saw from one report to a later one: the difference of
// their sums.
func Between(before, after engine.AuditReport, samples int) Audited {
	a := Audited{Samples: samples}
	a.Prefill = readingBetween(phase(before, "prefill"), phase(after, "prefill"))
	a.Decode = readingBetween(phase(before, "decode"), phase(after, "decode"))
	return a
}

// phase finds a phase of a report; one without rows where there is none.
func phase(r engine.AuditReport, name string) engine.AuditPhase {
	for _, p := range r.Phases {
		if p.Phase == name {
			return p
		}
	}
	return engine.AuditPhase{}
}

func readingBetween(a, b engine.AuditPhase) *Reading {
	n := b.Rows - a.Rows
	if n <= 0 || b.Mean.Unmeasured {
		return nil
	}
	mean := func(x, y float64) float64 { return (y*float64(b.Rows) - x*float64(a.Rows)) / float64(n) }
	return &Reading{
		Rows: n, Density: mean(a.Mean.Density, b.Mean.Density), Mass: mean(a.Mean.Mass, b.Mean.Mass),
		Error: mean(a.Mean.Error, b.Mean.Error), KRead: mean(a.Mean.KRead, b.Mean.KRead), VRead: mean(a.Mean.VRead, b.Mean.VRead),
	}
}

// auditName is the file of the readings of a setting.
const auditName = "audit.json"

// ReadAudit reads the readings of a setting, by unit; it is empty where none were
// taken.
func ReadAudit(folder string, setting int, attn string) (map[string]Audited, error) {
	name := filepath.Join(folder, SettingName(setting, attn), auditName)
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return map[string]Audited{}, nil
	}
	if err != nil {
		return nil, err
	}
	all := map[string]Audited{}
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("trial: %s: %w; without the file the readings are taken again", name, jsonError(b, err))
	}
	return all, nil
}

// WriteAudit writes them.
func WriteAudit(folder string, setting int, attn string, all map[string]Audited) error {
	dir := filepath.Join(folder, SettingName(setting, attn))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, auditName), all)
}
