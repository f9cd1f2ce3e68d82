package engine

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/sparse"
)

// A recording holds the queries and keys of some layers of a runner's passes, and the
// selections of their last rows. Another device selects the same of the same queries and
// keys, but for entries that rounding decides:
//
//	rec := r.Record(engine.RecordConfig{Layers: []int{2, 31}, Rows: 8})
//	// one sequence of the runner: a prompt, then decode steps
//	rec.Stop()
//	c, err := rec.Compare(cpu)
//
// No weights and no values are needed for that, and no attention is computed.

// RecordConfig says which layers and rows are recorded.
type RecordConfig struct {
	Layers []int // ascending; a method with state across layers needs all that it plans
	Rows   int   // last rows of a prompt whose selections are recorded, besides those of decode steps
}

// Recording is a recording of one sequence, the only one of its runner meanwhile.
type Recording struct {
	runner *Runner
	conf   RecordConfig
	chunks []chunkInputs
	taken  selections
	err    error // the first failure
}

// chunkInputs are the queries and keys of a pass, in the layers recorded.
type chunkInputs struct {
	rows, prompt int
	decode       bool
	q, k         [][]float32 // by recorded layer: [rows, heads·dim] and [rows, kvheads·dim]
}

// Record begins to record the passes of the runner, which are eager from then on.
func (r *Runner) Record(c RecordConfig) *Recording {
	rec := &Recording{runner: r, conf: c}
	rec.taken = selections{dev: r.dev, conf: c, heads: r.shape.Heads, rows: map[rowOf]selected{}}
	r.watch(rec)
	return rec
}

// Stop ends the recording.
func (rec *Recording) Stop() { rec.runner.unwatch(rec) }

// Begin copies the queries and keys of a layer.
func (rec *Recording) Begin(p *sparse.Pass, layer int, q, k device.Tensor) {
	if !slices.Contains(rec.conf.Layers, layer) || rec.err != nil {
		return
	}
	if layer == rec.conf.Layers[0] {
		rec.chunks = append(rec.chunks, chunkInputs{rows: p.Rows(), prompt: p.Prompt, decode: p.Decode})
	}
	c := &rec.chunks[len(rec.chunks)-1]
	for _, x := range []struct {
		to   *[][]float32
		from device.Tensor
	}{{&c.q, q}, {&c.k, k}} {
		host := make([]float32, x.from.Len())
		rec.err = read(rec.runner.dev, host, x.from)
		*x.to = append(*x.to, host)
	}
}

// Planned records the selections of the last rows.
func (rec *Recording) Planned(p *sparse.Pass, layer int, plan device.Plan) {
	rec.taken.Planned(p, layer, plan)
}

// Attended does nothing.
func (*Recording) Attended(*sparse.Pass, int, device.Tensor, device.Tensor, device.Plan) {}

// rowOf is a row and a query head of a layer.
type rowOf struct{ layer, pos, head int }

// selected is the selection of a row: its plan without the tensors, and the entries of
// its list, ascending.
type selected struct {
	plan   device.Plan
	index  []int32
	weight []float32 // nil: one each
}

// selections records the selections of the last rows of a prompt and of decode steps.
type selections struct {
	dev   device.Device
	conf  RecordConfig
	heads int
	rows  map[rowOf]selected
}

// Begin does nothing.
func (*selections) Begin(*sparse.Pass, int, device.Tensor, device.Tensor) {}

// Attended does nothing.
func (*selections) Attended(*sparse.Pass, int, device.Tensor, device.Tensor, device.Plan) {}

// Planned reads a plan back.
func (s *selections) Planned(p *sparse.Pass, layer int, plan device.Plan) {
	first := p.Prompt - s.conf.Rows
	if !slices.Contains(s.conf.Layers, layer) || !p.Decode && p.First+p.Rows() <= first {
		return
	}
	sel := readSelection(s.dev, p.KV(layer), p.Rows(), plan)
	sel.Heads = s.heads
	bare := plan
	bare.List = device.List{Group: plan.List.Group}
	for row, pos := range sel.Pos {
		if pos < 0 || !p.Decode && pos < first {
			continue
		}
		for head := range s.heads {
			index, weight := sel.List(row, head)
			s.rows[rowOf{layer, pos, head}] = selected{bare, slices.Clone(index), slices.Clone(weight)}
		}
	}
}

// Comparison is selections of two devices beside each other. An entry is a position or a
// block of the list of one row and one query head, with its weight.
type Comparison struct {
	Rows      int `json:"rows"`      // of each head and layer
	Dense     int `json:"dense"`     // of these: read everything that the layer sees
	Entries   int `json:"entries"`   // of the lists of the others
	Undecided int `json:"undecided"` // entries of one device only, which rounding decides
	Wrong     int `json:"wrong"`     // entries and rows that differ otherwise

	First string `json:"first,omitempty"` // the first that is wrong
}

// inputNoise is by how much of itself a query and a key are moved to see what rounding
// decides: some 64 times what the sums of scores in float32 are off.
const inputNoise = 1. / (1 << 16)

// weightBound is how far weights of an entry may be apart, relative to the larger.
const weightBound = 1e-2

// Compare lets cpu select by the queries and keys that were recorded, and compares. Where
// an entry differs, cpu selects twice more, with every number of the queries and keys
// moved by 2⁻¹⁶ of itself, up or down at random, and then in the opposite directions; and
// twice again where that leaves something wrong. An entry that is in one of these
// selections and not in all of them is undecided.
func (rec *Recording) Compare(cpu device.Device) (Comparison, error) {
	if rec.err != nil {
		return Comparison{}, rec.err
	}
	want, err := rec.reread(cpu, 0)
	if err != nil {
		return Comparison{}, err
	}
	readings := []map[rowOf]selected{want}
	c := compareSelections(rec.taken.rows, readings)
	for _, seed := range []int{1, 2} {
		if c.Wrong == 0 {
			break
		}
		for _, s := range []int{seed, -seed} {
			moved, err := rec.reread(cpu, s)
			if err != nil {
				return c, err
			}
			readings = append(readings, moved)
		}
		c = compareSelections(rec.taken.rows, readings)
	}
	return c, nil
}

// compareSelections compares what was selected with readings of the same rows, the first
// of which is exact.
func compareSelections(got map[rowOf]selected, readings []map[rowOf]selected) Comparison {
	var c Comparison
	for _, at := range rowsInOrder(got, readings[0]) {
		g, ok := got[at]
		w, also := readings[0][at]
		if !ok || !also || g.plan != w.plan {
			c.wrong(1, fmt.Sprintf("%+v is planned %v and %v, as %+v and %+v", at, ok, also, g.plan, w.plan))
			continue
		}
		c.Rows++
		if g.plan.Selected != device.Blocks && g.plan.Selected != device.Tokens {
			if g.plan.Dense() {
				c.Dense++
			}
			continue
		}
		var all []selected
		for _, r := range readings {
			all = append(all, r[at])
		}
		c.row(at, g, all)
	}
	return c
}

// rowsInOrder are the rows that either has.
func rowsInOrder(a, b map[rowOf]selected) []rowOf {
	var all []rowOf
	for at := range a {
		all = append(all, at)
	}
	for at := range b {
		if _, both := a[at]; !both {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(x, y rowOf) int {
		for _, d := range []int{x.layer - y.layer, x.pos - y.pos, x.head - y.head} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	return all
}

// wrong counts something that is, and keeps the first.
func (c *Comparison) wrong(n int, what string) {
	c.Wrong += n
	if c.First == "" {
		c.First = what
	}
}

// row compares what one row selects with readings of it.
func (c *Comparison) row(at rowOf, got selected, readings []selected) {
	c.Entries += len(got.index)
	for i, j := range got.index {
		in := 0
		for _, r := range readings {
			if r.has(j, got.weightOf(i)) {
				in++
			}
		}
		switch {
		case readings[0].has(j, got.weightOf(i)):
		case in > 0:
			c.Undecided++
		default:
			c.wrong(1, fmt.Sprintf("layer %d, row %d, head %d reads %d with weight %g", at.layer, at.pos, at.head, j, got.weightOf(i)))
		}
	}
	for i, j := range readings[0].index {
		if _, found := slices.BinarySearch(got.index, j); found {
			continue
		}
		if slices.ContainsFunc(readings[1:], func(r selected) bool { return !r.has(j, readings[0].weightOf(i)) }) {
			c.Undecided++
		} else {
			c.wrong(1, fmt.Sprintf("layer %d, row %d, head %d does not read %d", at.layer, at.pos, at.head, j))
		}
	}
}

// has reports whether an entry is in a list, with about this weight.
func (s selected) has(j int32, weight float32) bool {
	i, found := slices.BinarySearch(s.index, j)
	if !found {
		return false
	}
	w := s.weightOf(i)
	return math.Abs(float64(w-weight)) <= weightBound*float64(max(w, weight))
}

// weightOf is the weight of an entry.
func (s selected) weightOf(i int) float32 {
	if s.weight == nil {
		return 1
	}
	return s.weight[i]
}

// planner queues all calls but attention, whose output is not needed.
type planner struct{ device.Queue }

// Do queues a call that is not an Attend.
func (q planner) Do(c device.Call) {
	if _, attends := c.(*device.Attend); !attends {
		q.Queue.Do(c)
	}
}

// reread is what dev selects by the recorded queries and keys, moved by the noise of a
// seed; 0 is none.
func (rec *Recording) reread(dev device.Device, seed int) (map[rowOf]selected, error) {
	c := rec.runner.config
	c.slots, c.kv = 1, device.F16
	if seed != 0 {
		c.kv = device.F32 // half precision would round the noise away
	}
	r := rereading{rec: rec, seed: seed, taken: selections{dev: dev, conf: rec.conf, heads: c.heads, rows: map[rowOf]selected{}}}
	free, err := dev.Scope(func() error { return r.alloc(dev, c) })
	if err != nil {
		return nil, fmt.Errorf("engine: a recording of %d positions: %w", c.maxLen, err)
	}
	err = r.run()
	if freeErr := free(); err == nil {
		err = freeErr
	}
	return r.taken.rows, err
}

// rereading is the passes of a recording on another device.
type rereading struct {
	passes
	rec   *Recording
	seed  int
	taken selections

	q, k, stored, v, out device.Tensor // f32 [rows, ...]; stored is k as the cache holds it
}

// alloc takes the device memory.
func (r *rereading) alloc(dev device.Device, c passConfig) error {
	err := r.copyRope(dev, &c.rope)
	if err == nil {
		err = r.passes.alloc(dev, c)
	}
	rows := 1
	for _, chunk := range r.rec.chunks {
		rows = max(rows, chunk.rows)
	}
	alloc := func(heads int) (t device.Tensor) {
		if err == nil {
			t, err = dev.Alloc(device.F32, rows, heads, c.headDim)
		}
		return t
	}
	r.q, r.k, r.stored, r.v, r.out = alloc(c.heads), alloc(c.kvHeads), alloc(c.kvHeads), alloc(c.kvHeads), alloc(c.heads)
	return err
}

// copyRope makes a rotation of the runner's one of dev.
func (r *rereading) copyRope(dev device.Device, rope *device.Rotation) error {
	if rope.Freqs.Absent() {
		return nil
	}
	freqs := make([]float32, rope.Freqs.Len())
	err := read(r.rec.runner.dev, freqs, rope.Freqs)
	if err != nil {
		return err
	}
	if rope.Freqs, err = dev.Alloc(device.F32, len(freqs)); err == nil {
		write(dev, rope.Freqs, freqs)
	}
	return err
}

// run makes the passes again.
func (r *rereading) run() error {
	s, err := r.openSeq()
	if err != nil {
		return err
	}
	r.policy.Trace = &r.taken
	for i := range r.rec.chunks {
		c := &r.rec.chunks[i]
		var p sparse.Pass
		if c.decode {
			p, err = r.step(1, func(int) (*kvcache.Seq, int32) { return s, 0 })
		} else {
			p, err = r.chunk(s, make([]int32, c.rows), c.prompt)
		}
		if err != nil {
			return err
		}
		p.Queue = planner{p.Queue}
		for j, layer := range r.rec.conf.Layers {
			r.layer(&p, layer, c.q[j], c.k[j], uint64(i*len(r.rec.conf.Layers)+j))
		}
		if err := r.dev.Sync(); err != nil {
			return err
		}
	}
	return nil
}

// layer gives a layer of a pass its queries and keys.
func (r *rereading) layer(p *sparse.Pass, layer int, q, k []float32, number uint64) {
	n := p.Rows()
	stored := k
	if r.seed != 0 {
		stored = moved(halves(k), r.seed, 3*number)
		q, k = moved(q, r.seed, 3*number+1), moved(k, r.seed, 3*number)
	}
	for _, x := range []struct {
		to   device.Tensor
		from []float32
	}{{r.q, q}, {r.k, k}, {r.stored, stored}} {
		write(r.dev, x.to.Rows(0, n), x.from)
	}
	r.policy.Append(p, layer, r.stored.Rows(0, n), r.v.Rows(0, n))
	rows := r.rec.conf.Rows
	if !p.Decode && p.First+n <= p.Prompt-rows {
		rows = 0
	}
	r.policy.AttendLast(p, layer, r.out.Rows(0, n), r.q.Rows(0, n), r.k.Rows(0, n), rows)
}

// moved is x with every number moved by [inputNoise] of itself; the negative seed moves
// each in the other direction.
func moved(x []float32, seed int, number uint64) []float32 {
	by := float32(inputNoise)
	if seed < 0 {
		seed, by = -seed, -by
	}
	y := make([]float32, len(x))
	state := uint64(seed)<<32 ^ number*0x9e3779b97f4a7c15 | 1
	for i, v := range x {
		state ^= state << 13 // xorshift
		state ^= state >> 7
		state ^= state << 17
		y[i] = v + v*by
		if state>>63 == 0 {
			y[i] = v - v*by
		}
	}
	return y
}

// halves is x rounded to half precision, to even.
func halves(x []float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		bits := math.Float32bits(v)
		if bits>>23&0xff < 127-14 { // subnormal: multiples of 2⁻²⁴
			y[i] = float32(math.RoundToEven(float64(v)*(1<<24)) / (1 << 24))
			continue
		}
		y[i] = math.Float32frombits((bits + 0xfff + bits>>13&1) &^ 0x1fff)
	}
	return y
}
