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

// BenchmarkSampling times the attention of a decode step in one layer of the
// shape of Llama-3.2-1B, of methods that sample beside dense attention,
// alternating. It reports the minimum time of each: what planning takes, and the
// attention of the plan.
func BenchmarkSampling(b *testing.B) {
	for _, n := range []int{8 << 10, 32 << 10} {
		for _, spec := range []string{
			"vattention", "vattention(share=group)", "streaming(sink=128,window=1600) + vattention", "santa", "santa:flash",
		} {
			b.Run(fmt.Sprintf("positions=%d/%s", n, spec), func(b *testing.B) { benchDecode(b, n, spec) })
		}
	}
}

func benchDecode(b *testing.B, n int, spec string) {
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
		var raw []byte
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
	policy := func(text string) (*Policy, *stopwatch) {
		s, err := Parse(text)
		must(b, err)
		c, err := s.Build(NewEnv(dev, Shape{Layers: 1, Heads: heads, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, Rows: 1, Pages: cache.Config().Pages}, 1))
		must(b, err)
		w := &stopwatch{selecting: time.Hour, attend: time.Hour}
		c.Trace = w
		return c, w
	}
	dense, denseTime := policy("dense")
	own, ownTime := policy(spec)
	for b.Loop() {
		for _, c := range []*Policy{dense, own} {
			p := Pass{Queue: dev.Queue(), IDs: row, Pos: row, End: row, Cache: []device.KV{cache.Slots(0, 1)}, Decode: true}
			c.Attend(&p, 0, dst, q, k)
		}
	}
	must(b, dev.Sync())
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds())/1000, unit) }
	report(denseTime.attend, "ms-dense")
	report(ownTime.selecting, "ms-plan")
	report(ownTime.attend, "ms-attend")
}
