package sparse

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/kvcache"
)

// decodeLayer is one layer of the shape of Llama-3.2-1B with a cache of random keys and values, and a
// row of a decode step behind them.
type decodeLayer struct {
	b         *testing.B
	dev       device.Device
	cache     *kvcache.Cache
	seq       *kvcache.Seq
	shape     Shape
	row       device.Tensor // i32 [1]
	q, k, dst device.Tensor // f32 [1, heads, dim], k [1, kv heads, dim]
}

// newDecodeLayer fills a cache with n positions.
func newDecodeLayer(b *testing.B, n int) *decodeLayer {
	b.Helper()
	const heads, kvHeads, dim = 32, 8, 64
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	must(b, err)
	b.Cleanup(func() { _ = dev.Close() }) // what was measured is reported already
	cache, err := kvcache.New(dev, kvcache.Config{Layers: 1, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, DType: device.F16})
	must(b, err)
	l := &decodeLayer{b: b, dev: dev, cache: cache, shape: Shape{Layers: 1, Heads: heads, KVHeads: kvHeads, HeadDim: dim, MaxLen: n, Slots: 1, Rows: 1, Pages: cache.Config().Pages}}
	l.seq, err = cache.Open()
	must(b, err)
	for l.seq.Len() < n {
		must(b, l.seq.Extend(1024, nil))
		cache.Flush(l.seq)
		device.Do(dev.Queue(), device.Append{KV: cache.Slots(0, 1), K: l.floats(1024, kvHeads, dim), V: l.floats(1024, kvHeads, dim)})
	}
	l.row, err = dev.Alloc(device.I32, 1)
	must(b, err)
	l.q, l.k, l.dst = l.floats(1, heads, dim), l.floats(1, kvHeads, dim), l.floats(1, heads, dim)
	return l
}

// floats is a tensor of normally distributed numbers.
func (l *decodeLayer) floats(dims ...int) device.Tensor {
	x, err := l.dev.Alloc(device.F32, dims...)
	must(l.b, err)
	raw := make([]byte, 0, x.Size())
	for range x.Len() {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rand.NormFloat64())))
	}
	l.dev.Write(x, raw)
	return x
}

// policy builds a spec and the stopwatch of its least times.
func (l *decodeLayer) policy(text string) (*Policy, *stopwatch) {
	s, err := Parse(text)
	must(l.b, err)
	c, err := s.Build(NewEnv(l.dev, l.shape, 1))
	must(l.b, err)
	w := &stopwatch{selecting: time.Hour, attend: time.Hour}
	c.Trace = w
	return c, w
}

// step is the attention of the row.
func (l *decodeLayer) step(c *Policy) {
	p := Pass{Queue: l.dev.Queue(), IDs: l.row, Pos: l.row, End: l.row, Cache: []device.KV{l.cache.Slots(0, 1)}, Decode: true}
	c.Attend(&p, 0, l.dst, l.q, l.k)
}

// report adds a time to the results, in milliseconds.
func (l *decodeLayer) report(d time.Duration, unit string) {
	l.b.ReportMetric(float64(d.Microseconds())/1000, unit)
}

// must ends the benchmark on an error.
func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
