package engine

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/sparse"
)

// AuditConfig says which rows an audit compares.
type AuditConfig struct {
	Every int // one in so many decode steps; 0 is every step
	Rows  int // rows of each prefill pass, spread evenly, its last among them; 0 is 8

	Passes int // one in so many prefill passes, and a prompt's last; 0 is every pass
}

// Audit computes dense attention beside that of a policy, for some rows of each
// pass, on the same queries and the same cache: the error of the sparse output, its
// softmax mass, and the keys and values that it read. The error of a layer is its own:
// those of earlier layers are in the queries and the cache of both.
type Audit struct {
	dev    device.Device
	nans   func() (int64, error) // of the passes
	before int64                 // nans when the audit began
	shape  sparse.Shape
	window int
	conf   AuditConfig
	attn   string

	dense  device.Tensor // f32 [1, heads, dim]
	scores device.Tensor // f32 [1, heads, maxlen]

	steps int         // decode steps seen
	parts int         // prefill passes seen
	on    bool        // this pass is compared
	rows  map[int]int // prefill: positions compared → 1
	scans []scan      // keys that the planning of these rows has read
	pass  *sparse.Pass
	ops   device.Queue // of the pass, behind keyReads

	cells  [2][]auditSums // prefill, decode: [layer·heads + head]
	broken int            // rows of a layer that cannot be compared
	past   [2]float64     // positions in the past of these rows, summed
	seen   [2]int         // rows compared
}

// auditSums adds up what [AuditCell] averages.
type auditSums struct {
	n int
	AuditCell
}

// Audit begins to trace the attention; [Audit.Report] has the figures. Passes are
// slower from then on.
func (p *passes) Audit(c AuditConfig) (*Audit, error) {
	if c.Every < 1 {
		c.Every = 1
	}
	if c.Rows < 1 {
		c.Rows = 8
	}
	s := p.shape
	a := &Audit{dev: p.dev, nans: p.nanScores, shape: s, window: p.policy.Window, conf: c, attn: p.policy.String()}
	for i := range a.cells {
		a.cells[i] = make([]auditSums, s.Layers*s.Heads)
	}
	var err error
	if a.before, err = a.nans(); err != nil {
		return nil, err
	}
	if a.dense, err = p.dev.Alloc(device.F32, 1, s.Heads, s.HeadDim); err != nil {
		return nil, err
	}
	if a.scores, err = p.dev.Alloc(device.F32, 1, s.Heads, s.MaxLen); err != nil {
		return nil, err
	}
	p.watch(a)
	return a, nil
}

// Begin picks, at the first layer of a pass, the rows to compare.
func (a *Audit) Begin(p *sparse.Pass, layer int, _, _ device.Tensor) {
	if layer == 0 {
		a.pickRows(p)
	}
	a.scans = a.scans[:0]
	if old, ok := p.Queue.(*keyReads); ok { // of a layer without rows
		p.Queue = old.Queue
	}
	if a.on {
		a.pass, a.ops = p, p.Queue
		p.Queue = &keyReads{Queue: p.Queue, dev: a.dev, scans: &a.scans, read: readSelection}
	}
}

// pickRows picks the rows of a pass to compare.
func (a *Audit) pickRows(p *sparse.Pass) {
	if p.Decode {
		a.on = a.steps%a.conf.Every == 0
		a.steps++
		return
	}
	n := p.Rows()
	a.parts++
	a.on, a.rows = a.parts%max(a.conf.Passes, 1) == 0 || p.First+n == p.Prompt, map[int]int{}
	for i := range min(a.conf.Rows, n) {
		a.rows[p.First+n-1-i*n/min(a.conf.Rows, n)] = 1
	}
}

// Planned does nothing.
func (*Audit) Planned(*sparse.Pass, int, device.Plan) {}

// Attended compares the rows of a pass, or of a tile of one, with dense ones.
func (a *Audit) Attended(p *sparse.Pass, layer int, dst, q device.Tensor, plan device.Plan) {
	if !a.on {
		return
	}
	kv := p.KV(layer)
	sel := readSelection(a.dev, kv, p.Rows(), plan)
	sel.Heads = a.shape.Heads
	for row, pos := range sel.Pos {
		if pos >= 0 && (p.Decode || a.rows[pos] > 0) {
			a.row(p, layer, row, &sel, dst.Rows(row, row+1), q.Rows(row, row+1))
		}
	}
	a.scans = slices.DeleteFunc(a.scans, func(s scan) bool { return !s.pass })
	if last := a.pass; p.Decode || sel.Pos[len(sel.Pos)-1] == last.First+last.Rows()-1 {
		last.Queue = a.ops
	}
}

// row compares one row. dst, q f32 [1, heads, dim].
func (a *Audit) row(p *sparse.Pass, layer, row int, sel *Selection, dst, q device.Tensor) {
	s, pos := a.shape, sel.Pos[row]
	var kv device.KV
	if p.Decode {
		kv = p.KV(layer)
		kv.Pages, kv.Len = kv.Pages.Rows(row, row+1), kv.Len.Rows(row, row+1)
	} else {
		one := p.Tile(row, row+1)
		kv = one.KV(layer)
	}
	everything := device.Plan{Span: device.Span{Back: a.window}}
	device.Do(a.ops, device.Attend{Dst: a.dense, Q: q, KV: kv, Plan: everything})
	device.Do(a.ops, device.Score{Rule: device.ExactScores, Dst: a.scores, Q: q, KV: kv, Plan: everything, Region: device.Visible})
	r := auditRow{
		pos: pos, got: make([]float32, dst.Len()), want: make([]float32, dst.Len()),
		scores: make([]float32, a.scores.Len()), width: s.MaxLen, dim: s.HeadDim,
	}
	// A failure sticks to the device and is reported by its next Sync.
	_ = read(a.dev, r.got, dst)
	_ = read(a.dev, r.want, a.dense)
	_ = read(a.dev, r.scores, a.scores)
	phase := 0
	if p.Decode {
		phase = 1
	}
	if layer == 0 {
		a.seen[phase]++
		a.past[phase] += float64(pos + 1)
	}
	if r.broken() {
		a.broken++
		return
	}
	a.compare(&r, sel, row, a.cells[phase][layer*s.Heads:(layer+1)*s.Heads])
}

// auditRow is one row of one layer on the host.
type auditRow struct {
	pos       int
	got, want []float32 // [heads, dim]
	scores    []float32 // [heads, width]
	width     int
	dim       int
}

// broken reports whether the row has no error relative to dense: a number is
// none, or a head's dense output is zero and its sparse one is not.
func (r *auditRow) broken() bool {
	for _, x := range [][]float32{r.got, r.want} {
		if slices.ContainsFunc(x, func(v float32) bool { return !finite(v) }) {
			return true
		}
	}
	some := func(v float32) bool { return v != 0 }
	for at := 0; at < len(r.want); at += r.dim {
		if !slices.ContainsFunc(r.want[at:at+r.dim], some) && slices.ContainsFunc(r.got[at:at+r.dim], some) {
			return true
		}
		best := slices.Max(r.scores[at/r.dim*r.width:][:r.pos+1]) // NaN where one is
		if !finite(best) {
			return true
		}
	}
	return false
}

// compare adds a row to the sums of its layer's heads.
func (a *Audit) compare(r *auditRow, sel *Selection, row int, sums []auditSums) {
	group := a.shape.Group()
	for g := range a.shape.KVHeads {
		values, keys := newSet(r.pos), newSet(r.pos)
		for h := g * group; h < (g+1)*group; h++ {
			c := auditCell(r, h)
			read, _ := sel.Keys(row, h)
			c.Density = float64(len(read)) / float64(r.pos+1)
			c.Mass = mass(r.scores[h*r.width:][:r.pos+1], read)
			values.add(read)
			if !sel.plan.Mixture {
				keys.add(read)
			}
			for i := range a.scans {
				keys.add(a.scans[i].of(row, r.pos, h))
			}
			sums[h].add(c)
		}
		for h := g * group; h < (g+1)*group; h++ {
			sums[h].KRead += keys.share()
			sums[h].VRead += values.share()
		}
	}
}

// auditCell is how far one head of a row is from dense.
func auditCell(r *auditRow, head int) AuditCell {
	var c AuditCell
	var off, size float64
	got, want := r.got[head*r.dim:][:r.dim], r.want[head*r.dim:][:r.dim]
	for i := range got {
		d := float64(got[i]) - float64(want[i])
		off += d * d
		size += float64(want[i]) * float64(want[i])
		if math.Abs(d) < 0.01 {
			c.Recall01 += 1 / float64(r.dim)
		}
		if math.Abs(d) < 0.005 {
			c.Recall005 += 1 / float64(r.dim)
		}
	}
	if off > 0 {
		c.Error = math.Sqrt(off / size)
	}
	c.Worst = c.Error
	return c
}

// mass is the share of softmax(scores) on keys.
func mass(scores []float32, keys []int32) float64 {
	top := float32(math.Inf(-1))
	for _, s := range scores {
		top = max(top, s)
	}
	var all, kept float64
	for _, s := range scores {
		all += math.Exp(float64(s - top))
	}
	for _, j := range keys {
		kept += math.Exp(float64(scores[j] - top))
	}
	return kept / all
}

// add counts a row in; what is read follows.
func (s *auditSums) add(c AuditCell) {
	s.n++
	s.Error += c.Error
	s.Worst = max(s.Worst, c.Worst)
	s.Mass += c.Mass
	s.Recall01 += c.Recall01
	s.Recall005 += c.Recall005
	s.Density += c.Density
}

// set is positions of a row's past.
type set struct {
	has []bool
	n   int
}

func newSet(pos int) *set { return &set{has: make([]bool, pos+1)} }

func (s *set) add(keys []int32) {
	for _, j := range keys {
		if !s.has[j] {
			s.has[j] = true
			s.n++
		}
	}
}

// share is the part of the past that the set has.
func (s *set) share() float64 { return float64(s.n) / float64(len(s.has)) }
