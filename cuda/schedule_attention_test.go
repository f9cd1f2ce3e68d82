//go:build cudaemu

package cuda

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// TestSchedulesOfAttention is TestSchedules for the rules of Summarize, Score, Select and Sample.
func TestSchedulesOfAttention(t *testing.T) {
	want := scheduledAttention(t, 0)
	for seed := range uint64(4) {
		for name, got := range scheduledAttention(t, seed+1) {
			if !bytes.Equal(got, want[name]) {
				t.Errorf("%s with seed %d: results differ from those in the threads' own order", name, seed+1)
			}
		}
	}
}

// attentionBed makes operands.
type attentionBed struct {
	t   *testing.T
	d   *dev
	rng *rand.Rand
}

func (b *attentionBed) f(dims ...int) device.Tensor {
	x := alloc(b.t, b.d, device.F32, dims...)
	b.d.Write(x, normal(b.rng, x.Len()))
	return x
}

func (b *attentionBed) i(dims ...int) device.Tensor { return alloc(b.t, b.d, device.I32, dims...) }

func (b *attentionBed) list(groups, heads, limit int) device.List {
	return device.List{Index: b.i(groups, heads, limit), Count: b.i(groups, heads), Weight: alloc(b.t, b.d, device.F32, groups, heads, limit), Group: 1}
}

// scheduledAttention is the results of each rule when threads run in the order of a seed.
func scheduledAttention(t *testing.T, seed uint64) map[string][]byte {
	t.Helper()
	Shuffle(seed)
	defer Shuffle(0)
	d := openTest(t).(*dev)
	defer d.Close()
	b := &attentionBed{t, d, rand.New(rand.NewPCG(3, 4))}
	const rows, heads, kvHeads, dim, n = 40, 4, 2, 32, 200
	kv := filledCache(t, d, b.rng, n, kvHeads, dim)
	pages, width, o := kv.K.Dim(0), n+1, d.ops
	q, one := b.f(rows, heads, dim), b.f(1, heads, dim)
	plan := device.Plan{Selected: device.None, Sink: 3, Recent: 9}
	all := map[string][]byte{}
	keep := func(name string, results ...device.Tensor) {
		t.Helper()
		for _, x := range results {
			raw := make([]byte, x.Size())
			if err := d.Read(raw, x); err != nil {
				t.Fatal(err)
			}
			all[name] = append(all[name], raw...)
		}
	}

	features := b.f(rows, heads, dim)
	device.Do(o, device.Sample{Rule: device.QueryFeatureSample, Dst: features, Q: q, KV: kv, Features: device.QueryFeatures{Draws: 5}})
	keep("features", features)

	drawn := b.list(1, heads, n)
	device.Do(o, device.Sample{Rule: device.ValueSample, List: drawn, Q: one, KV: kv, Plan: device.Plan{}, Draws: device.ValueDraws{Samples: 50, Sampler: device.Independent, Tiles: device.Remainder}})
	keep("values", drawn.Index, drawn.Count, drawn.Weight)

	long, wide, attended := filledCache(t, d, b.rng, n, kvHeads, 64), b.f(1, heads, 64), b.f(1, heads, 64)
	for _, draws := range []device.ValueDraws{{Samples: 50}, {Samples: 200, Sampler: device.Stratified}, {Samples: 20, Sampler: device.Stratified, Tiles: device.Equal}} {
		device.Do(o, device.Sample{Rule: device.ValueSample, List: drawn, Q: wide, KV: long, Plan: device.Plan{}, Draws: draws})
		if !o.sampleDecode(&device.Sample{Q: wide, KV: long, Draws: draws}, attended) {
			t.Fatal("the operands do not suit sample_decode")
		}
		keep("values of a row", drawn.Index, drawn.Count, drawn.Weight, attended)
	}
	ranked := b.f(1, heads, n)
	device.Do(o, device.Score{Rule: device.ExactScores, Dst: ranked, Q: wide, KV: long, Plan: device.Plan{}, Region: device.Visible})
	keep("scores of a row", ranked)

	sampled := b.list(1, heads, n)
	device.Do(o, device.Sample{Rule: device.ResidualSample, List: sampled, Q: one, KV: kv, Plan: plan, Residual: device.Residual{Pilot: device.Amount{Count: 20}, Eps: .3, Z: 2}})
	keep("residual", sampled.Index, sampled.Count, sampled.Weight)
	device.Do(o, device.Sample{Rule: device.ResidualSample, List: sampled, Q: wide, KV: long, Plan: plan, Residual: device.Residual{Pilot: device.Amount{Count: 20}, Eps: .3, Z: 2}})
	keep("residual of parts", sampled.Index, sampled.Count, sampled.Weight)

	bounds, scores, l := alloc(t, d, device.F16, pages, kvHeads, 4, 2*dim), b.f(1, heads, 4*pages), b.list(1, heads, n)
	device.Do(o, device.Summarize{Rule: device.KeyBounds, Dst: bounds, KV: kv, Rows: n})
	device.Do(o, device.Score{Rule: device.BoundScores, Dst: scores, Q: one, Keys: bounds, KV: kv})
	device.Do(o, device.Select{Rule: device.TopParts, List: l, Scores: scores, KV: kv, PerPage: 4, K: device.Amount{Count: 70}})
	keep("bounds", scores.Reshape(heads, 4*pages).Rows(0, 1), l.Index, l.Count)

	columns, diagonals, means := b.f(heads, width), b.f(heads, width), device.Select{
		Rule: device.ExpandBlocks, KV: kv, Block: 64, Q: b.f(4, heads, dim), Keys: b.f(4, kvHeads, dim), Rows: n, Agreement: b.i(heads), Mass: .6}
	device.Do(o, device.Score{Rule: device.VerticalSlash, Dst: columns, Diagonals: diagonals, Q: q, KV: kv})
	device.Do(o, device.Summarize{Rule: device.MeanKeys, Dst: means.Keys, KV: kv, Block: 64})
	device.Do(o, device.Score{Rule: device.PooledAgreement, Dst: means.Agreement, Columns: columns, Q: one, Keys: means.Keys, Block: means.Block, KV: kv, MaxDivergence: .5})
	vertical, slash, lines, tiles := b.list(1, heads, 4), b.list(1, heads, 4), b.list(4, heads, n), b.list(4, heads, pages)
	none := b.i(heads)
	device.Do(o, device.Select{Rule: device.TopLines, List: vertical, Scores: columns, KV: kv, Block: 64, Mass: .5, Agreement: none})
	device.Do(o, device.Select{Rule: device.TopLines, List: slash, Scores: diagonals, KV: kv, Block: 64, Mass: .5, Agreement: none})
	ones := make([]byte, 0, 4*heads)
	for range heads {
		ones = binary.LittleEndian.AppendUint32(ones, 1)
	}
	d.Write(means.Agreement, ones)
	lines.Group, tiles.Group = 64, 64
	device.Do(o, device.Select{Rule: device.ExpandLines, List: lines, Columns: vertical, Diagonals: slash, KV: kv, Rows: n})
	means.List, means.Columns, means.Diagonals = tiles, vertical, slash
	device.Do(o, means)
	keep("lines", columns, diagonals, vertical.Index, slash.Index, lines.Index, lines.Count, tiles.Index, tiles.Count)

	sum, since, kept := b.f(1, kvHeads, width), b.i(1, 1), b.list(1, kvHeads, n)
	device.Do(o, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: q, KV: kv, Plan: device.Plan{}})
	device.Do(o, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: one, KV: kv, Plan: device.Plan{}})
	device.Do(o, device.Select{Rule: device.HeavyHitters, List: kept, Scores: sum, KV: kv, Plan: plan, K: device.Amount{Count: 30}, Recent: device.Amount{Count: 8}, Since: since})
	device.Do(o, device.Select{Rule: device.HeavyHitters, List: kept, Scores: sum, KV: kv, Plan: plan, K: device.Amount{Count: 29}, Recent: device.Amount{Count: 8}, Since: since})
	keep("heavy hitters", sum, kept.Index, kept.Count)
	kept.Weight = device.Tensor{}
	hitters := device.Plan{Recent: 1, Selected: device.Tokens, List: kept}
	device.Do(o, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: wide, KV: long, Plan: hitters})
	o.Flush()
	device.Do(o, device.Summarize{Rule: device.AttentionMass, Dst: sum, X: wide, KV: long, Plan: hitters})
	device.Do(o, device.Attend{Dst: attended, Q: wide, KV: long, Plan: hitters})
	keep("mass and attention", sum, attended)

	h := device.Hash{Planes: b.f(24, dim), Codes: b.i(1, kvHeads*pages, 48), Norm: b.f(1, kvHeads, width), Center: b.f(1, kvHeads, dim),
		Since: b.i(1, 1), Done: b.i(1, 1), Tables: 8, MinCollisions: 1, Mean: true, Sink: 3, Recent: 9}
	d.Write(h.Since, binary.LittleEndian.AppendUint32(nil, n-1))
	met := b.list(1, heads, n)
	device.Do(o, device.Summarize{Rule: device.KeyHashes, Hash: h, KV: kv})
	device.Do(o, device.Select{Rule: device.Collisions, List: met, Hash: h, Q: one, KV: kv, Plan: plan})
	keep("hashes", h.Norm, h.Center, h.Codes, met.Index, met.Count, met.Weight)
	h.Sorted, h.Buckets, h.Members = b.i(1, 1), b.i(1, kvHeads, 8<<3), b.i(1, kvHeads*8, (width+1)/2)
	d.Write(h.Done, make([]byte, 4))
	device.Do(o, device.Summarize{Rule: device.KeyHashes, Hash: h, KV: kv})
	device.Do(o, device.Select{Rule: device.Collisions, List: met, Hash: h, Q: one, KV: kv, Plan: plan})
	keep("buckets", h.Sorted, h.Members, met.Index, met.Count, met.Weight)

	channels := device.Channels{Index: b.i(kvHeads, 4), Levels: 8}
	labels, signs, k := alloc(t, d, device.F16, pages, kvHeads, 4, device.PageLen), b.i(pages, kvHeads, device.PageLen, 1), b.f(n, kvHeads, dim)
	net := func(groups int) device.Net {
		return device.Net{Weight: [device.MaxLayers]device.Tensor{b.f(groups, 20, dim), b.f(groups, 30, 20)}, Bias: [device.MaxLayers]device.Tensor{b.f(groups, 20), b.f(groups, 30)}}
	}
	keys, queries, byLabel, bySign := net(kvHeads), net(heads), b.f(1, heads, width), b.f(1, heads, width)
	device.Do(o, device.Summarize{Rule: device.KeyChannels, Dst: labels, X: k, Channels: channels, KV: kv})
	device.Do(o, device.Score{Rule: device.ChannelScores, Dst: byLabel, Q: one, Keys: labels, Channels: channels, KV: kv, Plan: plan})
	device.Do(o, device.Summarize{Rule: device.KeySigns, Dst: signs, X: k, Net: keys, KV: kv})
	device.Do(o, device.Score{Rule: device.SignScores, Dst: bySign, Q: one, Keys: signs, Net: queries, KV: kv, Plan: plan})
	keep("labels", byLabel, signs, bySign)

	mirror, byMirror := b.i(pages, kvHeads, device.MirrorWords(dim, 4), device.PageLen), b.f(1, heads, width)
	device.Do(o, device.Summarize{Rule: device.KeyMirror, Dst: mirror, KV: kv, Rows: n})
	device.Do(o, device.Score{Rule: device.MirrorScores, Dst: byMirror, Q: one, Keys: mirror, KV: kv, Plan: plan})
	keep("mirror", mirror, byMirror)

	m := device.SelectionCache{Query: b.f(1, heads*8, dim), Entry: b.i(1, heads*8, 3), Index: b.i(1, heads*8, 40), Since: b.i(1, 1),
		Found: b.i(1, heads), Counters: b.i(1, heads, 4), Block: 8, MinCosine: 0.9, K: device.Amount{Count: 40}}
	reused, again, ranks := b.list(1, heads, 150), b.list(1, heads, 150), b.f(1, heads, width)
	widen := device.Neighbors{Best: device.Amount{Count: 20}, Each: 1, KeepSlid: true}
	d.Write(kv.Len, binary.LittleEndian.AppendUint32(nil, n-1))
	device.Do(o, device.ReuseSelection{List: reused, Cache: m, Scores: ranks, Compared: one, Q: one, KV: kv, Plan: plan, Neighbors: widen})
	keep("selection cache", m.Found, m.Index, m.Entry)
	d.Write(kv.Len, binary.LittleEndian.AppendUint32(nil, n))
	device.Do(o, device.ReuseSelection{List: again, Cache: m, Scores: ranks, Compared: one, Q: one, KV: kv, Plan: plan, Neighbors: widen})
	keep("reuse", reused.Index, reused.Count, again.Index, again.Count, m.Found, m.Entry, m.Counters)

	const many = 12 // heads, without GQA
	mha, query, attended := filledCache(t, d, b.rng, n, many, 64), b.f(1, many, 64), b.f(1, many, 64)
	m = device.SelectionCache{Query: b.f(1, many*8, 64), Entry: b.i(1, many*8, 3), Index: b.i(1, many*8, 40), Since: b.i(1, 1),
		Found: b.i(1, many), Counters: b.i(1, many, 4), Block: 8, MinCosine: 0.9, K: device.Amount{Count: 40}}
	l, ranks = device.List{Index: b.i(1, many, 150), Count: b.i(1, many)}, b.f(1, many, width)
	for more := range 2 { // the first one selects, the second one reuses
		d.Write(mha.Len, binary.LittleEndian.AppendUint32(nil, uint32(n-1+more)))
		p := plan
		p.Selected, p.List = device.Tokens, l
		if !o.reuseAttend(attended, &device.ReuseSelection{List: l, Cache: m, Scores: ranks, Compared: query, Q: query, KV: mha, Plan: p, Neighbors: widen}) {
			t.Fatal("the operands do not suit reuse_attend")
		}
		keep("reuse and attention", attended, l.Count, m.Found, m.Entry, m.Counters)
	}

	walk, picked := b.f(1, pages), b.list(1, 1, pages)
	device.Do(o, device.Walk{Dst: walk, Src: b.f(1, pages), Pairs: b.f(pages, pages), KV: kv, Rows: 1, Exponent: 2})
	device.Do(o, device.Select{Rule: device.TopBlocks, List: picked, Scores: walk, KV: kv, Rows: 1, Blocks: device.BlockBudget{Count: 3}})
	keep("walks", walk, picked.Index)

	f, across := func() device.Tensor { return b.f(pages, 1, dim) }, (pages+7)/8*8
	state := devtest.TailSketch{Keys: f(), Queries: f(), KeySketch: b.f(pages, 1, 8), QuerySketch: b.f(pages, 1, 8), Basis: b.f(8, dim), Pairs: b.f(pages, across)}
	step, steps, best := b.f(1, across), b.f(rows, across), b.list(rows, 1, pages)
	devtest.SketchTail(o, state, one, b.f(1, kvHeads, dim), kv)
	devtest.WalkTop(o, device.Walk{Dst: step, Src: b.f(1, across), Pairs: state.Pairs, KV: kv, Rows: 1, Exponent: 2}, picked, device.BlockBudget{Count: 3})
	devtest.WalkTop(o, device.Walk{Dst: steps, Src: b.f(rows, across), Pairs: state.Pairs, KV: kv, Rows: 130, Exponent: 2}, best, device.BlockBudget{Count: 3})
	keep("steps of a walk", state.Keys, state.QuerySketch, state.Pairs, step, picked.Index, steps, best.Index)
	devtest.SketchTail(o, state, one, b.f(1, kvHeads, dim), kv)
	devtest.WalkTop(o, device.Walk{Dst: step, Src: b.f(1, across), Pairs: state.Pairs, KV: kv, Rows: 1, Exponent: 2}, picked, device.BlockBudget{Count: 3})
	keep("a step that compares and walks", state.Keys, state.QuerySketch, state.Pairs, step, picked.Index)
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	return all
}
