package devtest

import (
	"bytes"
	"math"
	"testing"

	"github.com/gollm/gollm/device"
)

// wholeLists: a list that leaves nothing out, each entry with weight one, gives
// the bits of dense attention.
func wholeLists(t *testing.T, d device.Device) {
	for _, a := range []attention{
		{lens: []int{1300}}, {lens: []int{70, 0, 3, 1}}, {lens: []int{200}, rows: 37}, {lens: []int{200}, rows: 130, group: 128, align: 128},
	} {
		all, shared := 8, []int{8, 2, 1}
		if a.rows > 0 {
			all, shared = 4, []int{4, 1} // rows of a prompt by kv head: the cases of attend have them
		}
		for _, heads := range shared {
			for _, weighted := range []bool{false, true} {
				for _, edges := range [][2]int{{0, 1}, {4, 20}} {
					for _, span := range []attention{{}, {back: 60}, {drop: .5, spanSink: 9}} {
						if a.group > 0 && (span.back > 0 || span.drop > 0) {
							continue // rows of a group see different pasts
						}
						if a.rows > 0 && weighted && (span.back > 0 || span.drop > 0) {
							continue
						}
						c := a
						c.heads, c.kvHeads, c.dim, c.selected, c.listHeads, c.weighted = all, 2, 64, device.Tokens, heads, weighted
						c.sink, c.recent = edges[0], edges[1]
						c.back, c.drop, c.spanSink = span.back, span.drop, span.spanSink
						b := newBed(t, d)
						c.random(b)
						c.fillLists()
						pages := b.shuffled(&c)
						got := b.run(b.attend(&c, pages))
						dense := c
						dense.selected, dense.listHeads = device.All, 0
						if !bytes.Equal(got, b.run(b.attend(&dense, pages))) {
							t.Errorf("lens %v, %d rows, lists for %d heads, weights %v, edges %v, span %+v: other bits than dense", c.lens, c.rows, heads, weighted, edges, span)
						}
						if !weighted {
							continue
						}
						for _, l := range c.lists {
							for i := range l {
								l[i].weight = 2
							}
						}
						if bytes.Equal(got, b.run(b.attend(&c, pages))) {
							t.Errorf("lens %v, %d rows, lists for %d heads, edges %v, span %+v: weights of 2 change nothing", c.lens, c.rows, heads, edges, span)
						}
					}
				}
			}
		}
	}
}

// fillLists lists everything that a group's last row sees in the selected region.
func (a *attention) fillLists() {
	everything, edges := *a, *a
	everything.selected, edges.selected = device.All, device.None
	for r := range a.queryRows() {
		slot, p := a.place(r)
		if a.lens[slot] == 0 {
			p = -1
		}
		var l []entry
		for j := range p + 1 {
			if everything.weight(p, j, nil) > 0 && edges.weight(p, j, nil) == 0 {
				l = append(l, entry{j, 1})
			}
		}
		g := r
		if a.rows > 0 {
			n := max(a.group, 1)
			g = p/n - (a.lens[0]-a.rows)/n
		}
		for h := range a.listHeads {
			a.lists[g*a.listHeads+h] = l
		}
	}
}

// nanScores: a backend that counts scores which are not numbers counts each that
// an op meets where it compares scores, and no other.
func nanScores(t *testing.T, d device.Device) {
	const n, heads, bad = 150, 4, 3 // positions, heads, keys that are broken
	a := attention{heads: heads, kvHeads: 2, dim: 16, lens: []int{n}, sink: 2, recent: 5, selected: device.Tokens, full: true}
	b := newBed(t, d)
	a.random(b)
	for _, j := range []int{20, 63, 100} {
		a.at(a.k, 0, j, 1)[j%a.dim] = float32(math.NaN())
	}
	c := b.attend(&a, b.shuffled(&a))
	list := func(weighted bool) device.List {
		l := device.List{Index: b.i32(filledI32(heads*n, 0), 1, heads, n), Count: b.i32(filledI32(heads, 0), 1, heads)}
		if weighted {
			l.Weight = b.out(1, heads, n)
		}
		return l
	}
	exactScores, top := b.out(1, heads, n), b.f32(filled(heads, 1), 1, heads)
	device.Do(d.Queue(), device.Score{Rule: device.ExactScores, Dst: exactScores, Q: c.q, KV: c.kv, Plan: c.plan, Region: device.SelectedRegion})
	near, values, tail := list(false), list(true), list(true)
	c.plan.List = list(false)
	empty := c.plan
	empty.Selected = device.None
	everything := device.Plan{}
	edges := c.plan
	edges.Sink = 70 // two of the three
	for _, tt := range []struct {
		op   string
		call func(ops device.Queue)
		want int64 // of the two heads that the broken keys belong to
	}{
		{"TopK", func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.TopK, List: near, Scores: exactScores, KV: c.kv, K: device.Amount{Count: 5}})
		}, 2 * bad},
		{"TopP", func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.TopP, List: near, Scores: exactScores, KV: c.kv, Mass: .5})
		}, 2 * bad},
		{"AnchorMax", func(ops device.Queue) {
			device.Do(ops, device.Score{Rule: device.AnchorMax, Dst: top, Q: c.q, KV: c.kv, Plan: edges})
		}, 2 * 2},
		{"WithinMargin", func(ops device.Queue) {
			device.Do(ops, device.Select{Rule: device.WithinMargin, List: near, Q: c.q, Scores: top, KV: c.kv, Plan: c.plan, Rows: 1, Block: 1})
		}, 2 * bad},
		{"ValueSample", func(ops device.Queue) {
			device.Do(ops, device.Sample{Rule: device.ValueSample, List: values, Q: c.q, KV: c.kv, Plan: everything, Draws: device.ValueDraws{Samples: 5}})
		}, 2 * bad},
		{"ResidualSample", func(ops device.Queue) {
			device.Do(ops, device.Sample{Rule: device.ResidualSample, List: tail, Q: c.q, KV: c.kv, Plan: empty, Residual: device.Residual{Pilot: device.Amount{Count: n}, Eps: .1, Z: 1}})
		}, 2 * bad},
		{"Attend", func(ops device.Queue) { device.Do(ops, device.Attend{Dst: c.dst, Q: c.q, KV: c.kv, Plan: everything}) }, 0},
	} {
		before, err := d.NaNScores()
		if err != nil {
			t.Fatal(err)
		}
		tt.call(d.Queue())
		b.sync()
		after, err := d.NaNScores()
		if err != nil {
			t.Fatal(err)
		}
		if got := after - before; got != tt.want {
			t.Errorf("%s: counted %d scores that are not numbers, want %d", tt.op, got, tt.want)
		}
	}
}
