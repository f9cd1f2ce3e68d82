package cpu

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
)

// scoredStep is a decode step that selects by exact scores and attends to the selection.
type scoredStep struct {
	t              *testing.T
	d              *dev
	kv             device.KV
	q, dst, scores device.Tensor
	plan           device.Plan
	rng            *rand.Rand
}

const scoredHeads, scoredKVHeads, scoredDim, scoredLen = 4, 2, 16, 300

func newScoredStep(t *testing.T) *scoredStep {
	s := &scoredStep{t: t, d: open(2, vec.Best()), rng: rand.New(rand.NewPCG(8, 8))}
	pages := (scoredLen + device.PageLen - 1) / device.PageLen
	s.kv = device.KV{
		K: s.floats(2*pages, scoredKVHeads, device.PageLen, scoredDim), V: s.floats(2*pages, scoredKVHeads, device.PageLen, scoredDim),
		Pages: s.ints(1, pages), Len: s.ints(1),
	}
	for b := range pages {
		s.write(s.kv.Pages, b, uint32(b))
	}
	s.write(s.kv.Len, 0, scoredLen)
	s.q, s.dst = s.floats(1, scoredHeads, scoredDim), s.floats(1, scoredHeads, scoredDim)
	s.scores = s.floats(1, scoredHeads, pages*device.PageLen)
	s.plan = device.Plan{Sink: 4, Recent: 8, Selected: device.Tokens, List: device.List{
		Index: s.ints(1, scoredHeads, scoredLen), Count: s.ints(1, scoredHeads),
	}}
	return s
}

func (s *scoredStep) alloc(dt device.DType, dims ...int) device.Tensor {
	x, err := s.d.Alloc(dt, dims...)
	if err != nil {
		s.t.Fatal(err)
	}
	return x
}

func (s *scoredStep) ints(dims ...int) device.Tensor { return s.alloc(device.I32, dims...) }

// floats is a tensor of normal numbers.
func (s *scoredStep) floats(dims ...int) device.Tensor {
	x := s.alloc(device.F32, dims...)
	for i := range f32s(x) {
		f32s(x)[i] = float32(s.rng.NormFloat64())
	}
	return x
}

// write writes element i of a tensor through the device.
func (s *scoredStep) write(x device.Tensor, i int, bits uint32) {
	raw := make([]byte, x.Size())
	if err := s.d.Read(raw, x); err != nil {
		s.t.Fatal(err)
	}
	binary.LittleEndian.PutUint32(raw[4*i:], bits)
	s.d.Write(x, raw)
}

// choose scores and selects.
func (s *scoredStep) choose() {
	device.Do(s.d.Queue(), device.Score{Rule: device.ExactScores, Dst: s.scores, Q: s.q, KV: s.kv, Plan: s.plan, Region: device.SelectedRegion})
	device.Do(s.d.Queue(), device.Select{Rule: device.TopK, List: s.plan.List, Scores: s.scores, KV: s.kv, K: device.Amount{Count: 100}})
}

// attend is the attention of queries, and whether it read scores.
func (s *scoredStep) attend(q device.Tensor, plan device.Plan) (out []float32, read bool) {
	device.Do(s.d.Queue(), device.Attend{Dst: s.dst, Q: q, KV: s.kv, Plan: plan})
	if err := s.d.Sync(); err != nil {
		s.t.Fatal(err)
	}
	return append([]float32(nil), f32s(s.dst)...), s.d.ops.tasks.attention.known.scores != nil
}

// TestAttendReadsScores: attention of a selection by exact scores reads them, and is that of the
// keys.
func TestAttendReadsScores(t *testing.T) {
	s := newScoredStep(t)
	defer s.d.Close()
	s.choose()
	got, read := s.attend(s.q, s.plan)
	if !read {
		t.Error("attention behind a selection by exact scores read the keys")
	}
	s.d.ops.scored.known = false
	want, read := s.attend(s.q, s.plan)
	if read {
		t.Error("attention read scores that are not known")
	}
	for i, x := range want {
		if !(math.Abs(float64(got[i]-x)) <= 1e-6) {
			t.Fatalf("element %d is %v with scores, %v with keys", i, got[i], x)
		}
	}
}

// TestChangesEndScores: what changes the scores, or what they were made of, ends them, whether a
// call or a write did it.
func TestChangesEndScores(t *testing.T) {
	for name, change := range map[string]func(s *scoredStep) (q device.Tensor, plan device.Plan){
		"a query is written": func(s *scoredStep) (device.Tensor, device.Plan) {
			s.write(s.q, 3, math.Float32bits(9))
			return s.q, s.plan
		},
		"a key is written": func(s *scoredStep) (device.Tensor, device.Plan) {
			s.write(s.kv.K, 700, math.Float32bits(9))
			return s.q, s.plan
		},
		"a score is written": func(s *scoredStep) (device.Tensor, device.Plan) {
			s.write(s.scores, 99, math.Float32bits(9))
			return s.q, s.plan
		},
		"a page is another": func(s *scoredStep) (device.Tensor, device.Plan) { s.write(s.kv.Pages, 1, 7); return s.q, s.plan },
		"a sequence is longer": func(s *scoredStep) (device.Tensor, device.Plan) {
			s.write(s.kv.Len, 0, scoredLen+1)
			return s.q, s.plan
		},
		"a call adds to queries": func(s *scoredStep) (device.Tensor, device.Plan) {
			device.Do(s.d.Queue(), device.Add{Dst: s.q, X: s.floats(1, scoredHeads, scoredDim)})
			return s.q, s.plan
		},
		"a product is new queries": func(s *scoredStep) (device.Tensor, device.Plan) {
			device.Do(s.d.Queue(), device.MatMul{Dst: s.q.Reshape(1, scoredHeads*scoredDim), X: s.floats(1, 8), W: s.floats(scoredHeads*scoredDim, 8)})
			return s.q, s.plan
		},
		"a call appends": func(s *scoredStep) (device.Tensor, device.Plan) {
			device.Do(s.d.Queue(), device.Append{KV: s.kv, K: s.floats(1, scoredKVHeads, scoredDim), V: s.floats(1, scoredKVHeads, scoredDim)})
			return s.q, s.plan
		},
		"other queries attend": func(s *scoredStep) (device.Tensor, device.Plan) { return s.floats(1, scoredHeads, scoredDim), s.plan },
		"another region is attended to": func(s *scoredStep) (device.Tensor, device.Plan) {
			wide := s.plan
			wide.Sink = 0
			return s.q, wide
		},
		"other scores are made there": func(s *scoredStep) (device.Tensor, device.Plan) {
			device.Do(s.d.Queue(), device.Score{Rule: device.ExactScores, Dst: s.scores, Q: s.floats(1, scoredHeads, scoredDim), KV: s.kv, Plan: s.plan, Region: device.SelectedRegion})
			return s.q, s.plan
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScoredStep(t)
			defer s.d.Close()
			s.choose()
			q, plan := change(s)
			if _, read := s.attend(q, plan); read {
				t.Error("attention read scores of before")
			}
		})
	}
}

// TestResidualReadsScores: the residual behind a selection by exact scores is sampled by them, and
// as from the keys.
func TestResidualReadsScores(t *testing.T) {
	s := newScoredStep(t)
	defer s.d.Close()
	sample := device.List{Index: s.ints(1, scoredHeads, scoredLen), Count: s.ints(1, scoredHeads), Weight: s.alloc(device.F32, 1, scoredHeads, scoredLen)}
	run := func() (counts []int32, index []int32, known bool) {
		device.Do(s.d.Queue(), device.Sample{Rule: device.ResidualSample, List: sample, Q: s.q, KV: s.kv, Plan: s.plan,
			Residual: device.Residual{Pilot: device.Amount{Count: 40}, Eps: .2, Z: 1.5}})
		if err := s.d.Sync(); err != nil {
			t.Fatal(err)
		}
		return append(counts, i32s(sample.Count)...), append(index, i32s(sample.Index)...), s.d.ops.tasks.residual.known.scores != nil
	}
	s.choose()
	counts, index, known := run()
	if !known {
		t.Error("the residual behind a selection by exact scores was sampled from the keys")
	}
	s.d.ops.scored.known = false
	wantCounts, wantIndex, known := run()
	if known {
		t.Error("the residual was sampled by scores that are not known")
	}
	for h, n := range wantCounts {
		if counts[h] != n || n <= 100 || n == scoredLen-12 {
			t.Fatalf("head %d: %d positions with scores, %d with keys, want as many, more than are selected and not all", h, counts[h], n)
		}
		for i := range int(n) {
			if at := h*scoredLen + i; index[at] != wantIndex[at] {
				t.Fatalf("head %d: position %d with scores, %d with keys", h, index[at], wantIndex[at])
			}
		}
	}
}
