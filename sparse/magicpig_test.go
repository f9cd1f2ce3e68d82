package sparse_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// hashBench is one slot of keys and queries in all directions, one kv head.
type hashBench struct {
	*residualBench
	h    device.Hash
	plan device.Plan
	x    [][]float64 // keys
	y    [][]float64 // queries
}

const hashLen, hashHeads = 90, 4

// newHashBench draws keys of which some point towards the first query.
func newHashBench(t *testing.T, tables, bits, minTables int) *hashBench {
	t.Helper()
	b := &hashBench{residualBench: newResidualBench(t, hashHeads, make([]float64, hashLen), make([][2]float64, hashLen))}
	rng := rand.New(rand.NewPCG(5, 6))
	vector := func() (x []float64) {
		for range tailDim {
			x = append(x, float64(float32(rng.NormFloat64())))
		}
		return x
	}
	var q, k []float32
	for range hashHeads {
		b.y = append(b.y, vector())
	}
	for j := range hashLen {
		x := vector()
		for i := range x {
			x[i] = float64(float32(x[i] + float64(j%10)/4*b.y[0][i]))
			k = append(k, float32(x[i]))
		}
		b.x = append(b.x, x)
	}
	for _, y := range b.y {
		for _, v := range y {
			q = append(q, float32(v))
		}
	}
	b.q = b.tensor(device.F32, q, 1, hashHeads, tailDim)
	b.kv.K = b.tensor(device.F32, append(k, make([]float32, (128-hashLen)*tailDim)...), 2, 1, device.PageLen, tailDim)
	n := tables * bits
	b.h = device.Hash{
		Planes: b.tensor(device.F32, make([]float32, n*tailDim), n, tailDim),
		Codes:  b.tensor(device.I32, make([]int32, 2*2*n), 1, 2, 2*n),
		Norm:   b.tensor(device.F32, make([]float32, hashLen), 1, 1, hashLen),
		Center: b.tensor(device.F32, make([]float32, tailDim), 1, 1, tailDim),
		Since:  b.tensor(device.I32, []int32{0}, 1, 1), Done: b.tensor(device.I32, []int32{0}, 1, 1),
		Tables: tables, MinCollisions: minTables,
	}
	b.plan = device.Plan{Sink: 2, Recent: 3, Selected: device.None}
	return b
}

// collide hashes with the planes of a seed and returns what heads list.
func (b *hashBench) collide(seed uint64) (index [][]int32, weight [][]float32) {
	b.t.Helper()
	planes := b.h.Planes.Len()
	b.dev.Write(b.h.Planes, raw(sparse.Normals(seed, 1, planes)))
	b.dev.Write(b.h.Done, raw([]float32{0}))
	device.Do(b.dev.Queue(), device.Summarize{Rule: device.KeyHashes, Hash: b.h, KV: b.kv})
	device.Do(b.dev.Queue(), device.Select{Rule: device.Collisions, List: b.list, Hash: b.h, Q: b.q, KV: b.kv, Plan: b.plan})
	return b.lists()
}

// raw is the bytes of numbers.
func raw(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		u := math.Float32bits(v)
		b = append(b, byte(u), byte(u>>8), byte(u>>16), byte(u>>24))
	}
	return b
}

// product is a·b.
func product(a, b []float64) (s float64) {
	for i := range a {
		s += a[i] * b[i]
	}
	return s
}

// Positions collide as often as their angle says, and the weighted sum of
// exponentials is that of all positions in the mean: 4096 draws of planes.
func TestMagicpigCollides(t *testing.T) {
	aboutNumbers(t)
	const seeds = 4096
	for _, c := range []struct{ tables, bits, minTables int }{{12, 3, 2}, {5, 4, 1}} {
		b := newHashBench(t, c.tables, c.bits, c.minTables)
		var times [hashHeads][hashLen]float64
		var sum, square [hashHeads]float64
		exp := func(h, j int) float64 { return math.Exp(product(b.y[h], b.x[j]) / math.Sqrt(tailDim)) }
		for seed := range uint64(seeds) {
			index, weight := b.collide(seed)
			for h := range index {
				var s float64
				for i, j := range index[h] {
					times[h][j]++
					s += float64(weight[h][i]) * exp(h, int(j))
				}
				sum[h] += s / seeds
				square[h] += s * s / seeds
			}
		}
		likely, unlikely := 0.0, 1.0
		for h := range hashHeads {
			var want float64
			for j := b.plan.Sink; j < hashLen-b.plan.Recent; j++ {
				cosine := product(b.y[h], b.x[j]) / math.Sqrt(product(b.y[h], b.y[h])*product(b.x[j], b.x[j]))
				w := chance(math.Acos(cosine), c.tables, c.bits, c.minTables)
				want += exp(h, j) * w / (w + 1e-4)
				likely, unlikely = max(likely, w), min(unlikely, w)
				if z := (times[h][j] - seeds*w) / math.Sqrt(seeds*w*(1-w)+1); math.Abs(z) > 4.5 {
					t.Errorf("%+v: head %d, position %d collides %v times, expected %.1f: %.1f standard errors", c, h, j, times[h][j], seeds*w, z)
				}
			}
			if z := (sum[h] - want) / math.Sqrt((square[h]-sum[h]*sum[h])/seeds); math.Abs(z) > 4.5 {
				t.Errorf("%+v: head %d: the sum is %v in the mean, want %v: %.1f standard errors", c, h, sum[h], want, z)
			}
		}
		if likely < 0.8 || unlikely > 0.1 {
			t.Errorf("%+v: chances from %v to %v say little", c, unlikely, likely)
		}
	}
}

// chance is the probability of at least minTables collisions, added up over the others.
func chance(angle float64, tables, bits, minTables int) float64 {
	one := math.Pow(1-angle/math.Pi, float64(bits))
	p, binomial := 1.0, 1.0
	for hits := range minTables {
		p -= binomial * math.Pow(one, float64(hits)) * math.Pow(1-one, float64(tables-hits))
		binomial *= float64(tables-hits) / float64(hits+1)
	}
	return p
}

// The published options, and what no angle leaves open.
func TestMagicpigChance(t *testing.T) {
	b := newHashBench(t, 150, 10, 2)
	for _, cosine := range []float64{-1, -.5, 0, .3, .9, 1, 1.0000001, -1.0000001} {
		got, want := b.h.Chance(cosine), chance(math.Acos(max(-1, min(1, cosine))), 150, 10, 2)
		if math.Abs(got-want) > 1e-12 {
			t.Errorf("cosine %v: chance %v, want %v", cosine, got, want)
		}
	}
	if b.h.Chance(1) != 1 || b.h.Chance(-1) != 0 || b.h.Weight(-1) != 10000 {
		t.Errorf("chances of 1 and -1: %v, %v, and weight %v", b.h.Chance(1), b.h.Chance(-1), b.h.Weight(-1))
	}
	// cosine 0: c = 2^-10, so two of 150 tables collide for 1 position in 105
	if got := b.h.Chance(0); math.Abs(got-0.0095) > 5e-4 {
		t.Errorf("chance of a right angle: %v", got)
	}
}

// Keys that all move by the same vector are selected, weighed and read as before:
// the mean takes it away, and the softmax does not see it.
func TestMagicpigTakesTheMeanAway(t *testing.T) {
	const prompt = lawLen - lawSteps
	layers, moved := lawTensors(1, lawLen), lawTensors(1, lawLen)
	for l := range moved {
		for i := range moved[l].K {
			moved[l].K[i] += 3 * float32(math.Cos(float64(i%lawDim)))
		}
	}
	reads := func(center string, x []engine.QKV) (sets [][]int32, y []float32) {
		b := openBench(t, "magicpig(bits=3,tables=20,local=16,dense=0,center="+center+")", lawLen, nil)
		b.Observe = func(sel engine.Selection) {
			for h := range lawHeads {
				if keys, _ := sel.Keys(0, h); sel.Decode {
					sets = append(sets, keys)
				}
			}
		}
		y = outputs(b.run(x, prompt, 0))
		return sets, y
	}
	same := func(a, b [][]int32) (n int) {
		for i := range a {
			if slices.Equal(a[i], b[i]) {
				n++
			}
		}
		return n
	}
	for center, want := range map[string]bool{"keys": true, "none": false} {
		a, y := reads(center, layers)
		b, z := reads(center, moved)
		if n := same(a, b); (n >= len(a)*99/100) != want {
			t.Errorf("center=%s: %d of %d sets stay", center, n, len(a))
		}
		if d := furthest(rowsOf(y, lawLen, 0, prompt), rowsOf(z, lawLen, 0, prompt)); d > 1e-3 {
			t.Errorf("dense rows differ by %v, so the test is wrong", d)
		}
	}
}

// Layers 0, dense, 2·dense ... read everything.
func TestMagicpigDenseLayers(t *testing.T) {
	for spec, want := range map[string][]bool{
		"magicpig(bits=4,tables=4,dense=2)": {true, false, true, false},
		"magicpig(bits=4,tables=4,dense=0)": {false, false, false, false},
		"magicpig(bits=4,tables=4)":         {true, false, false, false},
	} {
		got := make([]bool, lawLayers)
		b := openBench(t, spec, lawLen, nil)
		b.Observe = func(sel engine.Selection) { got[sel.Layer] = sel.Dense() }
		b.run(lawTensors(1, lawLen), lawLen-lawSteps, 0)
		if !slices.Equal(got, want) {
			t.Errorf("%s: dense layers %v, want %v", spec, got, want)
		}
	}
}

// Steps after a cut into the prompt are those of the shorter prompt: codes and
// mean are made anew.
func TestMagicpigCutPrompt(t *testing.T) {
	layers := lawTensors(1, lawLen)
	run := func(prompt int, cut bool) []float32 {
		b := openBench(t, "magicpig(bits=3,tables=20,local=16,dense=0)", lawLen, nil)
		s := b.open(layers)
		must(t, s.Prefill(prompt, 0))
		if cut {
			must(t, b.Step(s))
			s.Truncate(120)
		}
		for s.Len() < 140 {
			must(t, b.Step(s))
		}
		return rowsOf(outputs(s), lawLen, 120, 140)
	}
	want := run(120, false)
	same(t, "cut back from 180", run(180, true), want)
	if slices.Equal(run(100, false), want) {
		t.Error("the length of the prompt does not matter at all")
	}
}

// Buckets find what the comparison of all signs finds, in every layer and step.
func TestMagicpigFindsTheSame(t *testing.T) {
	const prompt = lawLen - lawSteps
	layers := lawTensors(1, lawLen)
	sets := func(options string) [][]int32 {
		return openBench(t, "magicpig(tables=20,local=16,dense=0,"+options+")", lawLen, nil).lists(layers, prompt)
	}
	buckets, codes := sets("bits=3"), sets("bits=3,find=codes")
	if !slices.EqualFunc(buckets, codes, slices.Equal) {
		t.Error("buckets find others than codes do")
	}
	if more := sets("bits=2"); slices.EqualFunc(buckets, more, slices.Equal) {
		t.Error("codes of fewer bits find the same, so the test says nothing")
	}
}
