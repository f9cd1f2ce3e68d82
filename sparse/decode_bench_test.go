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

// decodeSpecs are the systems that read about a tenth of a long past in decode.
// Those that read whole blocks have benchmarks of their own.
var decodeSpecs = []struct{ name, text string }{
	{"streaming", "streaming(sink=16,window=3260)"},
	{"psaw", "psaw(phi=0.1)"},
	{"topk", "topk(k=0.1)"},         // for each head: the four heads of a kv head read a third of its rows
	{"topk/union", "topk(k=0.026)"}, // they read a tenth of its rows
	{"cis/choose", "cis(k=0.1,tau=2)"},
	{"cis/share", "cis(k=0.06,tau=-1,s=64)"}, // and neighbours of a third of them
	{"cis/group", "cis(k=0.1,tau=2,share=group)"},
	{"cis/group-share", "cis(k=0.06,tau=-1,s=64,share=group)"},
	{"cpe/choose", "cpe(k=0.1,tau=2)"},
	{"cpe/share", "cpe(k=0.06,tau=-1,s=64)"},
	{"vattention", "vattention:tenth"},
	{"vattention/group", "vattention:tenth(share=group)"},
	{"santa/prop", "santa:prop"},
	{"santa/flash", "santa:flash"},
	{"quest", "quest"},
	{"h2o", "h2o"},
	{"magicpig", "magicpig"},
	{"random", "random"},
}

// benchLayers is how many layers' caches a benchmark goes through, so that what
// it reads is in memory and not in a processor's cache.
const benchLayers = 6

// BenchmarkDecode times the attention of a decode step at 32k positions, in a
// layer of the shape of Llama-3.2-1B, of every system beside dense attention,
// alternating. It reports the least time of each part, because other programs
// only add to it: dense, choosing, attending what was chosen, how many times
// faster than dense attending alone and both together are, and how many positions
// a head's list has.
func BenchmarkDecode(b *testing.B) {
	const n = 32 << 10
	var past *decodePast
	for _, s := range decodeSpecs {
		b.Run("system="+s.name, func(b *testing.B) {
			spec, err := Parse(s.text)
			if err != nil {
				b.Skip(err)
			}
			if past == nil {
				past = newDecodePast(b, n)
			}
			past.bench(b, spec)
		})
	}
	if past != nil {
		must(b, past.dev.Close())
	}
}

// decodePast is a cache of random keys and values, the same in each layer.
type decodePast struct {
	dev          device.Device
	cache        *kvcache.Cache
	seq          *kvcache.Seq
	row          device.Tensor
	q, k, v, dst device.Tensor
}

const benchHeads, benchKVHeads, benchDim = 32, 8, 64

func newDecodePast(b *testing.B, n int) *decodePast {
	dev, err := device.Open("cpu", device.Config{Threads: 2})
	must(b, err)
	p := &decodePast{dev: dev}
	p.cache, err = kvcache.New(dev, kvcache.Config{
		Layers: benchLayers, KVHeads: benchKVHeads, HeadDim: benchDim, MaxLen: n, Slots: 1, DType: device.F16})
	must(b, err)
	p.seq, err = p.cache.Open()
	must(b, err)
	const chunk = 1024
	k, v := p.floats(b, chunk, benchKVHeads, benchDim), p.floats(b, chunk, benchKVHeads, benchDim)
	for p.seq.Len() < n {
		must(b, p.seq.Extend(chunk, nil))
		p.cache.Flush(p.seq)
		p.random(k)
		p.random(v)
		for l := range benchLayers {
			dev.Ops().Append(p.cache.Slots(l, 1), k, v)
		}
	}
	p.row, err = dev.Alloc(device.I32, 1)
	must(b, err)
	p.q, p.dst = p.floats(b, 1, benchHeads, benchDim), p.floats(b, 1, benchHeads, benchDim)
	p.k, p.v = p.floats(b, 1, benchKVHeads, benchDim), p.floats(b, 1, benchKVHeads, benchDim)
	return p
}

func (p *decodePast) floats(b *testing.B, dims ...int) device.Tensor {
	x, err := p.dev.Alloc(device.F32, dims...)
	must(b, err)
	p.random(x)
	return x
}

// random fills a tensor with normal numbers.
func (p *decodePast) random(x device.Tensor) {
	raw := make([]byte, 0, x.Size())
	for range x.Len() {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(rand.NormFloat64())))
	}
	p.dev.Write(x, raw)
}

func (p *decodePast) bench(b *testing.B, spec *Spec) {
	n := p.seq.Len()
	build := func(s *Spec) (*Policy, *stopwatch) {
		c, err := s.Build(NewEnv(p.dev, Shape{
			Layers: 1, Heads: benchHeads, KVHeads: benchKVHeads, HeadDim: benchDim, MaxLen: n, Slots: 1, Rows: 1,
			Pages: p.cache.Config().Pages,
		}, 1))
		must(b, err)
		w := &stopwatch{choosing: time.Hour, attend: time.Hour}
		c.Trace = w
		return c, w
	}
	denseSpec, err := Parse("dense")
	must(b, err)
	dense, denseTime := build(denseSpec)
	own, ownTime := build(spec)
	layer := 0
	step := func(c *Policy) {
		pass := Pass{Ops: p.dev.Ops(), IDs: p.row, Pos: p.row, End: p.row, Cache: []device.KV{p.cache.Slots(layer, 1)}, Decode: true}
		c.Attend(&pass, 0, p.dst, p.q, p.k)
		layer = (layer + 1) % benchLayers
	}
	// a step before, so that what is shared between steps is there
	p.seq.Truncate(n - 1)
	p.cache.Flush(p.seq)
	step(own)
	must(b, p.seq.Extend(1, nil))
	p.cache.Flush(p.seq)
	denseTime.choosing, ownTime.choosing, ownTime.attend = time.Hour, time.Hour, time.Hour
	for b.Loop() {
		step(dense)
		step(own)
	}
	must(b, p.dev.Sync())
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds()), unit) }
	report(denseTime.attend, "us-dense")
	report(ownTime.choosing, "us-choose")
	report(ownTime.attend, "us-attend")
	b.ReportMetric(float64(denseTime.attend)/float64(ownTime.attend), "x-attend")
	b.ReportMetric(float64(denseTime.attend)/float64(ownTime.choosing+ownTime.attend), "x-both")
	b.ReportMetric(0, "ns/op")
}
