package sparse

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
)

// BenchmarkSketchwalk times the attention of one layer of Llama-3.2-1B's shape,
// selecting included, with dense attention of the same rows before each run. It
// reports the minimum time of both, because other programs only add to it.
func BenchmarkSketchwalk(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10, 64 << 10} {
		for _, rows := range []int{1, 2048} {
			b.Run(fmt.Sprintf("positions=%d/rows=%d", n, rows), func(b *testing.B) { benchSpec(b, "sketchwalk:paper-90", n, rows) })
		}
	}
}

// stopwatch keeps the minimum time of selecting and of attending.
type stopwatch struct {
	last              time.Time
	selecting, attend time.Duration
}

func (s *stopwatch) Begin(*Pass, int, device.Tensor, device.Tensor) { s.last = time.Now() }
func (s *stopwatch) Planned(*Pass, int, device.Plan) {
	s.selecting = min(s.selecting, time.Since(s.last))
	s.last = time.Now()
}
func (s *stopwatch) Attended(*Pass, int, device.Tensor, device.Tensor, device.Plan) {
	s.attend = min(s.attend, time.Since(s.last))
}

// benchSpec times a spec on the newest rows of n positions.
func benchSpec(b *testing.B, text string, n, rows int) {
	const layers, heads, kvHeads, dim, chunk = denseLayers + 2, 32, 8, 64, 2048
	dev, err := cpu.Open(device.Config{Threads: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer dev.Close()
	cache, err := kvcache.New(dev, kvcache.Config{Layers: layers, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, DType: device.F16})
	if err != nil {
		b.Fatal(err)
	}
	spec, err := Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	env := NewEnv(dev, Shape{Layers: layers, Heads: heads, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, Rows: chunk, Pages: cache.Config().Pages}, 1)
	policy, err := spec.Build(env)
	if err != nil {
		b.Fatal(err)
	}
	dense, watch := &Policy{}, &stopwatch{selecting: time.Hour, attend: time.Hour}
	policy.Trace = watch
	alloc := func(dims ...int) device.Tensor {
		t, err := dev.Alloc(device.F32, dims...)
		if err != nil {
			b.Fatal(err)
		}
		return t
	}
	q, k, v, dst := alloc(chunk, heads, dim), alloc(chunk, kvHeads, dim), alloc(chunk, kvHeads, dim), alloc(chunk, heads, dim)
	ints, err := dev.Alloc(device.I32, chunk)
	if err != nil {
		b.Fatal(err)
	}
	random := func(t device.Tensor) {
		raw := make([]byte, t.Size())
		for i := 3; i < len(raw); i += 4 { // f32 from -2 to 2
			raw[i-1], raw[i] = byte(rand.IntN(256)), byte(0x3f|rand.IntN(2)<<7)
		}
		dev.Write(t, raw)
	}
	seq, err := cache.Open()
	if err != nil {
		b.Fatal(err)
	}
	pass := func(rows int, decode bool) *Pass {
		p := &Pass{Queue: dev.Queue(), IDs: ints.Rows(0, rows), Pos: ints.Rows(0, rows), End: ints.Rows(0, rows),
			First: seq.Len() - rows, Prompt: n, Decode: decode}
		cache.Flush(seq)
		for l := range layers {
			p.Cache = append(p.Cache, cache.Slot(l, 0))
		}
		return p
	}
	for seq.Len() < n {
		if err := seq.Extend(chunk, nil); err != nil {
			b.Fatal(err)
		}
		p := pass(chunk, false)
		for l := range layers {
			random(q)
			random(k)
			random(v)
			device.Do(p.Queue, device.Append{KV: p.KV(l), K: k, V: v})
			for _, o := range policy.observers {
				o.Observe(p, l, q, k)
			}
		}
	}
	p := pass(rows, rows == 1)
	q, k, dst = q.Rows(0, rows), k.Rows(0, rows), dst.Rows(0, rows)
	random(q)
	fastest := [2]time.Duration{time.Hour, time.Hour}
	for b.Loop() {
		for i, c := range []*Policy{dense, policy} {
			for l := denseLayers; l < layers; l++ {
				begin := time.Now()
				c.Attend(p, l, dst, q, k)
				fastest[i] = min(fastest[i], time.Since(begin))
			}
		}
	}
	if err := dev.Sync(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(fastest[0].Microseconds()), "dense-us")
	b.ReportMetric(float64(fastest[1].Microseconds()), "sparse-us")
	b.ReportMetric(float64(watch.selecting.Microseconds()), "select-us")
	b.ReportMetric(float64(watch.attend.Microseconds()), "attend-us")
	b.ReportMetric(float64(fastest[0])/float64(fastest[1]), "faster")
}
