//go:build cudaemu

package cuda

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// TestSchedules runs kernels of every kind with threads and blocks in random orders: a result
// that depends on the order is a race.
func TestSchedules(t *testing.T) {
	want := scheduled(t, 0)
	for seed := range uint64(4) {
		if got := scheduled(t, seed+1); !slices.Equal(got, want) {
			t.Errorf("seed %d: results differ from those in the threads' own order", seed+1)
		}
	}
}

// scheduled is the results of a step when threads run in the order of a seed.
func scheduled(t *testing.T, seed uint64) []float32 {
	t.Helper()
	Shuffle(seed)
	defer Shuffle(0)
	d := openTest(t).(*dev)
	defer d.Close()
	rng := rand.New(rand.NewPCG(7, 8))
	const rows, heads, dim, n, vocab = 70, 4, 64, 200, 300
	f := func(dims ...int) device.Tensor {
		x := alloc(t, d, device.F32, dims...)
		d.Write(x, normal(rng, x.Len()))
		return x
	}
	x, w, logits, scores := f(rows, heads*dim), f(heads*dim), f(rows, vocab), f(rows, heads, 256)
	m := alloc(t, d, device.Q6_K, vocab, heads*dim)
	d.Write(m, randomMatrix(rng, device.Q6_K, vocab, heads*dim))
	kv := filledCache(t, d, rng, n, 2, dim)
	q, y, z := x.Reshape(rows, heads, dim), f(rows, heads, dim), f(rows, heads, dim)
	next, history, pos := alloc(t, d, device.I32, rows), alloc(t, d, device.I32, rows, 8), alloc(t, d, device.I32, rows)
	l := device.List{Index: alloc(t, d, device.I32, rows, heads, 32), Count: alloc(t, d, device.I32, rows, heads)}

	o := d.ops
	device.Do(o, device.RMSNorm{Dst: x, X: x, W: w, Eps: 1e-5})
	device.Do(o, device.Attend{Dst: y, Q: q, KV: kv, Plan: device.Plan{}})
	device.Do(o, device.Score{Rule: device.ExactScores, Dst: scores, Q: q, KV: kv, Plan: device.Plan{}, Region: device.Visible})
	device.Do(o, device.Select{Rule: device.TopK, List: l, Scores: scores, KV: kv, K: device.Amount{Count: 32}})
	o.Flush()
	o.flash(&device.Attend{Dst: z, Q: q, KV: kv})
	device.Do(o, device.MatMul{Dst: logits, X: x, W: m})
	device.Do(o, device.MatMul{Dst: logits.Rows(0, 3), X: x.Rows(0, 3), W: m})
	few, short := logits.Rows(0, 3), kv
	short.Short = true
	one, feed, m4 := f(1, vocab), f(1, vocab), alloc(t, d, device.Q4_K, vocab, heads*dim)
	o.Flush()
	d.Write(m4, randomMatrix(rng, device.Q4_K, vocab, heads*dim))
	if !o.skinny([]device.Tensor{one}, x.Rows(0, 1), fusedNorm{W: w, Eps: 1e-5}, []device.Tensor{m4}, epilogueStore) ||
		!o.skinny([]device.Tensor{feed}, x.Rows(0, 1), fusedNorm{W: w, Eps: 1e-5}, []device.Tensor{m4, m4}, epilogueSwiGLU) ||
		!o.decode(&device.Attend{Dst: q.Rows(0, 1), Q: q.Rows(1, 2), KV: kv}) || !o.decode(&device.Attend{Dst: q.Rows(3, 4), Q: q.Rows(2, 3), KV: short}) {
		t.Fatal("the operands do not suit the kernels for one row")
	}
	long, some, more, m16 := f(9, 2304), f(9, 50), f(9, 25), alloc(t, d, device.F16, 50, 2304)
	d.Write(m16, randomMatrix(rng, device.F16, 50, 2304))
	if !o.skinny([]device.Tensor{some}, long, fusedNorm{}, []device.Tensor{m16}, epilogueAdd) ||
		!o.skinny([]device.Tensor{more}, long, fusedNorm{W: long.Reshape(9*2304).Rows(0, 2304), Eps: 1e-5}, []device.Tensor{m16.Rows(0, 25), m16.Rows(25, 50)}, epilogueSwiGLU) {
		t.Fatal("the operands do not suit skinny_gemm")
	}
	results := []device.Tensor{y, z, logits, few, one, feed, q.Rows(0, 1), q.Rows(3, 4), some, more}
	results = append(results, scheduledRings(t, d, rng, long)...)
	var all []float32
	for _, x := range results {
		all = append(all, read(t, d, x)...)
	}
	device.Do(o, device.SampleTokens{Next: next, Logits: logits, History: history, Pos: pos, Params: slices.Repeat([]sampling.Params{{Temperature: 0.8, TopK: 40, TopP: 0.9, Seed: 3}}, rows)})
	many, drawn, first := f(2, 9001), alloc(t, d, device.I32, 2), alloc(t, d, device.I32, 2)
	device.Do(o, device.SampleTokens{Next: first, Logits: many, History: history.Rows(0, 2), Pos: pos.Rows(0, 2), Params: slices.Repeat([]sampling.Params{{Temperature: 0.8, TopK: 40, TopP: 0.9, RepeatPenalty: 1.1, RepeatLastN: 8, Seed: 3}}, 2)})
	device.Do(o, device.SampleTokens{Next: drawn, Logits: many, History: history.Rows(0, 2), Pos: pos.Rows(0, 2), Params: slices.Repeat([]sampling.Params{{Temperature: 3, Seed: 3}}, 2)})
	for _, ids := range []device.Tensor{next, l.Index, l.Count, first, drawn} {
		all = append(all, read(t, d, ids)...)
	}
	for i, v := range all {
		if v != v {
			t.Fatalf("result %d is not a number", i)
		}
	}
	return all
}

// scheduledRings is the results of calls that use every stage of their pipelines several times.
// long is the rows of a decode batch.
func scheduledRings(t *testing.T, d *dev, rng *rand.Rand, long device.Tensor) []device.Tensor {
	t.Helper()
	f := func(dims ...int) device.Tensor {
		x := alloc(t, d, device.F32, dims...)
		d.Write(x, normal(rng, x.Len()))
		return x
	}
	o := d.ops
	// Each block computes two tiles with one buffer of partial sums.
	eight, m8 := f(9, 190), alloc(t, d, device.Q8_0, 190, 2304)
	d.Write(m8, randomMatrix(rng, device.Q8_0, 190, 2304))
	if !o.skinny([]device.Tensor{eight}, long, fusedNorm{}, []device.Tensor{m8}, epilogueStore) {
		t.Fatal("the operands of nine rows do not suit skinny_gemm")
	}
	product, m16 := f(64, 50), alloc(t, d, device.F16, 50, 512)
	d.Write(m16, randomMatrix(rng, device.F16, 50, 512))
	device.Do(o, device.MatMul{Dst: product, X: f(64, 512), W: m16})

	const n, many, dim = 2300, 12, 64 // heads, without GQA
	kv, q, each := filledCache(t, d, rng, n, many, dim), f(1, many, dim), f(1, many, dim)
	l := device.List{Index: alloc(t, d, device.I32, 1, many, 100), Count: alloc(t, d, device.I32, 1, many)}
	device.Do(o, device.Select{Rule: device.TopK, List: l, Scores: f(1, many, kv.Pages.Dim(1)*device.PageLen), KV: kv, K: device.Amount{Count: 100}})
	device.Do(o, device.Attend{Dst: each, Q: q, KV: kv, Plan: device.Plan{Selected: device.Tokens, List: l, Sink: 3, Recent: 2100}})

	past, rows := filledCache(t, d, rng, 700, 1, dim), f(70, 2, dim)
	seen := f(70, 2, dim)
	o.flash(&device.Attend{Dst: seen, Q: rows, KV: past})
	return []device.Tensor{eight, product, each, seen}
}
