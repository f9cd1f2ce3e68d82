package devtest

import (
	"fmt"
	"math"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// featureCases are calls of QueryFeatureSample.
func featureCases() []testCase {
	var cases []testCase
	for _, a := range []attention{
		{lens: []int{70}}, {lens: []int{3, 0, 66, 1}}, {lens: []int{150}, rows: 5},
	} {
		for _, s := range [][3]int{{4, 2, 16}, {3, 3, 20}, {5, 1, 8}} {
			for _, f := range []device.QueryFeatures{
				{Draws: 1}, {Draws: 7}, {Draws: 1, Strata: true}, {Draws: 8, Strata: true},
				{Draws: 4, Mean: true}, {Draws: 5, Strata: true, Mean: true},
			} {
				a.heads, a.kvHeads, a.dim = s[0], s[1], s[2]
				a.requests = nil
				a.numbered()
				f.Draw = rng.Address{Seed: 7, Request: 3, Layer: 2}
				name := fmt.Sprintf("op=QueryFeatureSample/lens=%v/rows=%d/heads=%d of %d/draws=%d/strata=%v/mean=%v", a.lens, a.rows, s[1], s[0], f.Draws, f.Strata, f.Mean)
				cases = append(cases, testCase{name, func(b *bed) job { return queryFeatures(b, a, f) }})
			}
		}
	}
	return cases
}

// queryFeatures is a job whose first query is zero, and whose others have a zero
// among their features.
func queryFeatures(b *bed, a attention, f device.QueryFeatures) job {
	want := widen(filled(a.queryRows()*a.heads*a.dim, before))
	for sound := false; !sound; {
		sound = true
		a.q = nil
		a.random(b)
		clear(a.q[:a.heads*a.dim])
		for i := 3; i < len(a.q); i += a.dim {
			a.q[i] = 0
		}
		group := 1
		if f.Mean {
			group = a.heads / a.kvHeads
		}
		for set := range a.queryRows() * a.heads / group {
			r, n := set/(a.heads/group), group*a.dim
			if slot, _ := a.place(r); a.lens[slot] > 0 {
				sound = a.estimate(want[set*n:(set+1)*n], a.q[set*n:(set+1)*n], r, set%(a.heads/group), f) && sound
			}
		}
	}
	c := b.attend(&a, b.shuffled(&a))
	f.Requests = b.of(&a)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Sample{Rule: device.QueryFeatureSample, Dst: c.dst, Q: c.q, KV: c.kv, Features: f})
		},
		expect: []expectation{{name: "dst", got: c.dst, want: want, bound: 1e-6, scale: 1}},
	}
}

// estimate is the estimate of the queries of a head group, [heads, dim]; sound
// is false where rounding could decide a hit.
func (a *attention) estimate(y []float64, q []float32, r, set int, f device.QueryFeatures) (sound bool) {
	slot, p := a.place(r)
	d := a.address(f.Draw, slot)
	d.Head, d.Pos, d.Purpose = uint32(set), uint32(p), rng.ForFeatures
	size, norm := make([]float64, a.dim), 0.0
	for i := range size {
		for h := i; h < len(q); h += a.dim {
			size[i] += math.Abs(float64(q[h])) / float64(len(q)/a.dim)
		}
		norm = max(norm, size[i])
	}
	sound = true
	for i, s := range size {
		hits := 0.0
		for t := range f.Draws {
			u := float64(d.Uniform(uint32(t*a.dim + i)))
			if f.Strata {
				u = (float64(t) + u) / float64(f.Draws)
			}
			if norm > 0 && u < s/norm {
				hits++
			}
			sound = sound && !(math.Abs(u-s/norm) < 1e-9)
		}
		for h := i; h < len(q); h += a.dim {
			if y[h] = 0; s > 0 {
				y[h] = norm * hits / float64(f.Draws) * float64(q[h]) / s
			}
		}
	}
	return sound
}
