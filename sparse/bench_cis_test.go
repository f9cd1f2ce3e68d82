package sparse

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
)

// BenchmarkCIS times the attention of a decode step in one layer of the shape of
// Llama-3.2-1B beside dense attention, alternating: when every head selects, and
// when every head reuses. It reports the minimum time of each.
func BenchmarkCIS(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10} {
		for _, options := range []string{"k=432", "k=0.1", "k=432,share=group", "k=0.1,share=group"} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, options), func(b *testing.B) { benchCIS(b, n, options) })
		}
	}
}

func benchCIS(b *testing.B, n int, options string) {
	const heads, kvHeads, dim = 32, 8, 64
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	must(b, err)
	defer dev.Close()
	cache, err := kvcache.New(dev, kvcache.Config{Layers: 1, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, DType: device.F16})
	must(b, err)
	seq, err := cache.Open()
	must(b, err)
	floats := func(dims ...int) device.Tensor {
		x, err := dev.Alloc(device.F32, dims...)
		must(b, err)
		raw := make([]byte, 0, x.Size())
		for range x.Len() {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rand.NormFloat64())))
		}
		dev.Write(x, raw)
		return x
	}
	for seq.Len() < n {
		must(b, seq.Extend(1024, nil))
		cache.Flush(seq)
		device.Do(dev.Queue(), device.Append{KV: cache.Slots(0, 1), K: floats(1024, kvHeads, dim), V: floats(1024, kvHeads, dim)})
	}
	row, err := dev.Alloc(device.I32, 1)
	must(b, err)
	q, k, dst := floats(1, heads, dim), floats(1, kvHeads, dim), floats(1, heads, dim)
	step := func(c *Policy) {
		p := Pass{Queue: dev.Queue(), IDs: row, Pos: row, End: row, Cache: []device.KV{cache.Slots(0, 1)}, Decode: true}
		c.Attend(&p, 0, dst, q, k)
	}
	policy := func(text string) (*Policy, *stopwatch) {
		s, err := Parse(text)
		must(b, err)
		c, err := s.Build(NewEnv(dev, Shape{Layers: 1, Heads: heads, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, Rows: 1}, 1))
		must(b, err)
		w := &stopwatch{selecting: time.Hour, attend: time.Hour}
		c.Trace = w
		return c, w
	}
	dense, denseTime := policy("dense")
	alone, aloneTime := policy("cis(s=64,tau=2," + options + ")")
	shared, sharedTime := policy("cis(s=64,tau=-1," + options + ")")
	seq.Truncate(n - 1)
	cache.Flush(seq)
	step(shared) // selects
	*sharedTime = stopwatch{selecting: time.Hour, attend: time.Hour}
	must(b, seq.Extend(1, nil))
	cache.Flush(seq)
	for b.Loop() {
		step(dense)
		step(alone)
		step(shared)
	}
	must(b, dev.Sync())
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds())/1000, unit) }
	report(denseTime.attend, "ms-dense")
	report(aloneTime.selecting, "ms-select")
	report(sharedTime.selecting, "ms-share")
	report(sharedTime.attend, "ms-attend")
}

// must ends the benchmark on an error.
func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
