package engine

import "encoding/json"

// AuditReport is the figures of an audit.
type AuditReport struct {
	Attn    string `json:"attn"`
	Layers  int    `json:"layers"`
	Heads   int    `json:"heads"`
	KVHeads int    `json:"kv_heads"`
	HeadDim int    `json:"head_dim"`

	Every int `json:"every"`        // one in so many decode steps was compared
	Rows  int `json:"rows_of_pass"` // rows of each prefill pass that were compared
	// NaNScores is the number of NaN scores, which count as -Inf, in all rows since
	// the audit began.
	NaNScores int64 `json:"nan_scores"`
	// NaNRows is how many rows of a layer are left out of all means, because
	// there is no error relative to dense: an output or a score is not finite, or
	// dense is zero and sparse is not.
	NaNRows int          `json:"nan_rows"`
	Phases  []AuditPhase `json:"phases"` // those with rows
}

// AuditPhase is the rows of prefill passes or of decode steps.
type AuditPhase struct {
	Phase string        `json:"phase"` // "prefill" or "decode"
	Rows  int           `json:"rows"`  // compared
	Past  float64       `json:"past"`  // mean number of positions that such a row could see
	Mean  AuditCell     `json:"mean"`
	Layer []AuditCell   `json:"layer"` // by layer, over its heads
	Cells [][]AuditCell `json:"cells"` // by layer and query head
}

// AuditCell compares sparse with dense attention: means over rows. Its JSON is
// null where it is unmeasured.
type AuditCell struct {
	// Unmeasured says that no row was compared: the figures are undefined.
	Unmeasured bool `json:"-"`
	// Error is ‖sparse - dense‖ / ‖dense‖ of a row's output.
	Error float64 `json:"error"`
	// Worst is the largest Error of a row.
	Worst float64 `json:"worst"`
	// Mass is the softmax mass of dense attention on the keys that were read.
	Mass float64 `json:"mass"`
	// Recall01 and Recall005 are the shares of output elements that are within
	// 0.01 and 0.005 of dense (the recall of the AnchorAttention repository).
	Recall01  float64 `json:"recall_01"`
	Recall005 float64 `json:"recall_005"`
	// Density is the selected pairs of query and key over the causal ones.
	Density float64 `json:"density"`
	// KRead and VRead are the stored rows of K and of V that were read, those
	// read to select included, over the positions of the past: of a kv head, the
	// union over the query heads that share it.
	KRead float64 `json:"k_read"`
	VRead float64 `json:"v_read"`
}

// Report is the figures so far.
func (a *Audit) Report() AuditReport {
	s := a.shape
	r := AuditReport{
		Attn: a.attn, Layers: s.Layers, Heads: s.Heads, KVHeads: s.KVHeads, HeadDim: s.HeadDim,
		Every: a.conf.Every, Rows: a.conf.Rows, Phases: []AuditPhase{},
	}
	r.NaNRows = a.broken
	if n, err := a.nans(); err == nil { // a failure sticks to the device
		r.NaNScores = n - a.before
	}
	for i, name := range []string{"prefill", "decode"} {
		if a.seen[i] == 0 {
			continue
		}
		ph := AuditPhase{Phase: name, Rows: a.seen[i], Past: a.past[i] / float64(a.seen[i])}
		for l := range s.Layers {
			var cells []AuditCell
			for h := range s.Heads {
				cells = append(cells, a.cells[i][l*s.Heads+h].mean())
			}
			ph.Cells = append(ph.Cells, cells)
			ph.Layer = append(ph.Layer, meanCell(cells))
		}
		ph.Mean = meanCell(ph.Layer)
		r.Phases = append(r.Phases, ph)
	}
	return r
}

// Take is Report, and resets the figures.
func (a *Audit) Take() AuditReport {
	r := a.Report()
	for i := range a.cells {
		clear(a.cells[i])
	}
	a.steps, a.broken, a.past, a.seen = 0, 0, [2]float64{}, [2]int{}
	a.before += r.NaNScores
	return r
}

// mean turns sums into means.
func (s *auditSums) mean() AuditCell {
	if s.n == 0 {
		return AuditCell{Unmeasured: true}
	}
	c := s.AuditCell
	c.scale(1 / float64(s.n))
	return c
}

// meanCell is the mean of the cells that were measured, and the worst of their
// worst.
func meanCell(cells []AuditCell) AuditCell {
	var m AuditCell
	n := 0
	for _, c := range cells {
		if c.Unmeasured {
			continue
		}
		n++
		m.Error += c.Error
		m.Worst = max(m.Worst, c.Worst)
		m.Mass += c.Mass
		m.Recall01 += c.Recall01
		m.Recall005 += c.Recall005
		m.Density += c.Density
		m.KRead += c.KRead
		m.VRead += c.VRead
	}
	if n == 0 {
		return AuditCell{Unmeasured: true}
	}
	m.scale(1 / float64(n))
	return m
}

// auditFigures is a cell that was measured, as JSON has it.
type auditFigures AuditCell

// MarshalJSON writes the figures, or null.
func (c AuditCell) MarshalJSON() ([]byte, error) {
	if c.Unmeasured {
		return []byte("null"), nil
	}
	return json.Marshal(auditFigures(c))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *AuditCell) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*c = AuditCell{Unmeasured: true}
		return nil
	}
	return json.Unmarshal(b, (*auditFigures)(c))
}

// scale multiplies all but the worst.
func (c *AuditCell) scale(x float64) {
	for _, v := range []*float64{&c.Error, &c.Mass, &c.Recall01, &c.Recall005, &c.Density, &c.KRead, &c.VRead} {
		*v *= x
	}
}
