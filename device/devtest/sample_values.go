package devtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/rng"
)

// valueCase is a call of ValueSample in plain Go, and its definition.
type valueCase struct {
	attention
	draws  device.ValueDraws
	levels []float32 // the scores of the positions, for all heads; nil: random ones
}

// valueDraws are the parameters.
var valueDraws = []device.ValueDraws{
	{Samples: 16},
	{Samples: 50, Shared: true},
	{Samples: 0},
	{Samples: 300},
	{Samples: 16, Sampler: device.Stratified},
	{Samples: 40, Sampler: device.Independent},
	{Samples: 16, Tiles: device.Remainder, Tile: 64},
	{Samples: 40, Tiles: device.Remainder, Sampler: device.Stratified},
	{Samples: 16, Tiles: device.Equal, Tile: 96},
	{Samples: 40, Tiles: device.Equal},
	{Samples: 40, Tiles: device.Equal, Sampler: device.Independent, Tile: 64},
}

// valuePlans are the plans that are sampled from.
var valuePlans = map[string]attention{
	"dense":         {selected: device.All, lens: []int{200, 0, 1, 64, 65}},
	"dense/prefill": {selected: device.All, lens: []int{150}, rows: 3},
	"dense/long":    {selected: device.All, lens: []int{700}},
	"dense/full":    {selected: device.All, full: true, lens: []int{130}},
	"dense/rest":    {selected: device.All, rest: 100, lens: []int{200, 0, 1, 64, 65}},
	"drop":          {selected: device.All, drop: .6, spanSink: 5, lens: []int{200}},
	"none":          {selected: device.None, sink: 3, recent: 40, lens: []int{200, 30}},
	"tokens":        {selected: device.Tokens, sink: 4, recent: 20, listHeads: 4, weighted: true, lens: []int{200, 0, 70}},
	"tokens/shared": {selected: device.Tokens, recent: 1, listHeads: 2, lens: []int{300}},
	"blocks":        {selected: device.Blocks, sink: 1, recent: 1, listHeads: 1, lens: []int{330, 64}},
}

func valueCases() []testCase {
	var cases []testCase
	for i, d := range valueDraws {
		d.Draw = rng.Address{Seed: 9, Request: 3, Layer: 2}
		shapes := [][3]int{{4, 2, 16}, {4, 4, 20}}
		if i%4 == 1 { // shapes that devices have kernels of their own for
			shapes = append(shapes, [3]int{12, 2, 64}, [3]int{8, 2, 128})
		}
		for plan, a := range valuePlans {
			for _, s := range shapes {
				c := valueCase{attention: a, draws: d}
				c.heads, c.kvHeads, c.dim = s[0], s[1], s[2]
				c.numbered()
				at := fmt.Sprintf("op=ValueSample/%s/heads=%d of %d/dim=%d/samples=%d/sampler=%d/tiles=%d of %d/shared=%v",
					plan, s[1], s[0], s[2], d.Samples, d.Sampler, d.Tiles, d.Tile, d.Shared)
				cases = append(cases, testCase{at, c.job})
			}
		}
	}
	return append(cases, testCase{"op=ValueSample/low tile", lowTile().job})
}

// lowTile has in each of three tiles one position that has all the weight there. That of
// the tile in the middle is so low that adding its parts to what is before it is rounded.
func lowTile() valueCase {
	const tile = 96
	c := valueCase{draws: device.ValueDraws{Samples: 40, Tiles: device.Equal, Tile: tile}}
	c.heads, c.kvHeads, c.dim, c.lens = 12, 2, 64, []int{3 * tile}
	c.levels = filled(3*tile, -200) // which weighs nothing beside any of these
	c.levels[5], c.levels[tile+70], c.levels[2*tile+40] = 0, -33, -1
	return c
}

// level gives the positions the scores of the case.
func (c *valueCase) level() {
	clear(c.q)
	for i := 0; i < len(c.q); i += c.dim {
		c.q[i] = float32(math.Sqrt(float64(c.dim)))
	}
	for j, s := range c.levels {
		for h := range c.kvHeads {
			k := c.at(c.k, 0, j, h)
			clear(k)
			k[0] = s
		}
	}
}

// job makes tensors until no draw is so near the border of two positions
// that rounding decides it.
func (c valueCase) job(b *bed) job {
	var index, count []int32
	var weight []float64
	rows, limit := c.queryRows(), c.draws.MaxPositions(c.longest())
	for sound := false; !sound; {
		c.q, c.lists = nil, nil
		c.random(b)
		if c.levels != nil {
			c.level()
		}
		index, count, sound = filledI32(rows*c.heads*limit, -9), filledI32(rows*c.heads, -9), true
		weight = widen(filled(len(index), before))
		for i := range count {
			slot, p := c.place(i / c.heads)
			if c.lens[slot] == 0 {
				continue
			}
			list, clear := c.list(i/c.heads, i%c.heads, slot, p)
			sound = sound && clear
			count[i] = int32(len(list))
			for j, e := range list {
				index[i*limit+j], weight[i*limit+j] = int32(e.index), float64(e.weight)
			}
		}
	}
	at := b.attend(&c.attention, b.shuffled(&c.attention))
	c.draws.Requests = b.of(&c.attention)
	l := device.List{Index: b.i32(filledI32(len(index), -9), rows, c.heads, limit), Count: b.i32(filledI32(len(count), -9), rows, c.heads), Weight: b.out(rows, c.heads, limit)}
	scratch := device.List{Index: b.i32(index, rows, c.heads, limit), Count: b.i32(count, rows, c.heads), Weight: b.out(rows, c.heads, limit)}
	dst := b.out(rows, c.heads, c.dim)
	return job{
		step: func(ops device.Queue) {
			device.Do(ops, device.Sample{Rule: device.ValueSample, List: l, Q: at.q, KV: at.kv, Plan: at.plan, Draws: c.draws})
			SampleAttend(ops, dst, scratch, at.q, at.kv, at.plan, c.draws)
		},
		expect: []expectation{
			{name: "count", got: l.Count, ids: count}, {name: "index", got: l.Index, ids: index},
			{name: "weight", got: l.Weight, want: weight, bound: 1e-6, scale: 1},
			{name: "attention", got: dst, want: c.mixed(index, count, weight, limit), bound: 1e-5, scale: 4},
		},
	}
}

// mixed is the sum of the values on the lists of all rows and heads.
func (c *valueCase) mixed(index, count []int32, weight []float64, limit int) []float64 {
	y := widen(filled(len(count)*c.dim, before))
	for i, n := range count {
		slot, _ := c.place(i / c.heads)
		if c.lens[slot] == 0 {
			continue
		}
		row := y[i*c.dim:][:c.dim]
		clear(row)
		for e := range max(n, 0) {
			j := int(index[i*limit+int(e)])
			for d, v := range c.at(c.v, slot, j, i%c.heads*c.kvHeads/c.heads) {
				row[d] += weight[i*limit+int(e)] * float64(v)
			}
		}
	}
	return y
}

// softmax is the positions that a row and head read, and their probabilities.
func (c *valueCase) softmax(r, h, slot, p int) (read []int, share []float64) {
	var sum float64
	kvHead := h * c.kvHeads / c.heads
	for j := range p + 1 {
		w := c.weight(p, j, c.listOf(r, h))
		if w == 0 {
			continue
		}
		var s float64
		for i, k := range c.at(c.k, slot, j, kvHead) {
			s += float64(c.q[(r*c.heads+h)*c.dim+i]) * float64(k)
		}
		read, share = append(read, j), append(share, w*math.Exp(s/math.Sqrt(float64(c.dim))))
		sum += share[len(share)-1]
	}
	for i := range share {
		share[i] /= sum
	}
	return read, share
}

// list is the sample of a row and head; sound is false where rounding could decide.
func (c *valueCase) list(r, h, slot, p int) (list []entry, sound bool) {
	read, share := c.softmax(r, h, slot, p)
	d := c.address(c.draws.Draw, slot)
	d.Head, d.Pos, d.Purpose = uint32(h), uint32(p), rng.ForValue
	if c.draws.Shared {
		d.Head = uint32(h * c.kvHeads / c.heads)
	}
	tile := len(read)
	if c.draws.Tiles != device.OneTile {
		tile = c.draws.TileSize(len(read))
	}
	shares, samples, sound := c.samples(share, tile)
	before := 0
	for t, n := range samples {
		part := share[t*tile : min((t+1)*tile, len(share))]
		counts := make([]int, len(part))
		for k := range n {
			var at float64
			switch c.draws.Sampler {
			case device.Systematic:
				at = float64(k) + float64(d.Uniform(uint32(t)))
			case device.Stratified:
				at = float64(k) + float64(d.Uniform(uint32(before+k)))
			case device.Independent:
				at = float64(n) * float64(d.Uniform(uint32(before+k)))
			}
			j, sum := -1, 0.0
			for sum < at || j < 0 {
				if j++; j == len(part)-1 {
					break
				}
				sum += part[j] / shares[t] * float64(n)
			}
			sound = sound && math.Abs(sum-at) > 2e-5 && math.Abs(sum-part[j]/shares[t]*float64(n)-at) > 2e-5
			counts[j]++
		}
		before += n
		each := 1 / float64(c.draws.Samples)
		if c.draws.Tiles == device.Equal {
			each = shares[t] / float64(n)
		}
		for i, n := range counts {
			if n > 0 {
				list = append(list, entry{read[t*tile+i], float32(float64(n) * each)})
			}
		}
	}
	return list, sound
}

// samples is the softmax of each tile and how many samples it gets.
func (c *valueCase) samples(share []float64, tile int) (shares []float64, samples []int, sound bool) {
	sound = true
	for i, w := range share {
		if i%tile == 0 {
			shares = append(shares, 0)
		}
		shares[i/tile] += w
	}
	samples = make([]int, len(shares))
	left, rest := c.draws.Samples, make([]float64, len(shares))
	for t, w := range shares {
		switch c.draws.Tiles {
		case device.OneTile:
			samples[t] = c.draws.Samples
		case device.Equal:
			samples[t] = max(1, c.draws.Samples/len(shares))
		case device.Remainder:
			want := w * float64(c.draws.Samples)
			samples[t] = int(want + 1e-9)
			rest[t] = want - float64(samples[t])
			sound = sound && math.Abs(want-math.Round(want)) > 1e-5 || len(shares) == 1
		}
		left -= samples[t]
	}
	for ; c.draws.Tiles == device.Remainder && left > 0; left-- {
		best := slices.Index(rest, slices.Max(rest))
		samples[best]++
		rest[best] = -1
	}
	return shares, samples, sound
}
