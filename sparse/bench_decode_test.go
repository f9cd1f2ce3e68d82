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

// decodeSpecs are the methods that read about a tenth of a long past in decode.
// Sketch&Walk has a benchmark of its own.
var decodeSpecs = []struct{ name, text string }{
	{"streaming", "streaming(sink=16,window=3260)"},
	{"psaw", "psaw(phi=0.1)"},
	{"topk", "topk(k=0.1)"},         // for each head: the four heads of a kv head read a third of its rows
	{"topk/union", "topk(k=0.026)"}, // they read a tenth of its rows
	{"topk/q8", "topk(k=0.1,index=q8)"},
	{"topk/q4", "topk(k=0.1,index=q4)"},
	{"topk/rescore", "topk(k=0.1,index=q4,rescore=2)"},
	{"topp", "topp(p=0.1)"},
	{"topp/q4", "topp(p=0.1,index=q4)"},
	{"cis/select", "cis(k=0.1,tau=2)"},
	{"cis/q4", "cis(k=0.1,tau=2,index=q4)"},
	{"cis/group-q4", "cis(k=0.1,tau=2,share=group,index=q4)"},
	{"cis/share", "cis(k=0.06,tau=-1,s=64)"}, // and neighbours of a third of them
	{"cis/group", "cis(k=0.1,tau=2,share=group)"},
	{"cis/group-share", "cis(k=0.06,tau=-1,s=64,share=group)"},
	{"cpe/select", "cpe(k=0.1,tau=2)"},
	{"cpe/share", "cpe(k=0.06,tau=-1,s=64)"},
	{"vattention", "vattention:tenth"},
	{"vattention/group", "vattention:tenth(share=group)"},
	{"vattention/q4", "vattention:tenth(index=q4)"},
	{"vattention/group-q4", "vattention:tenth(share=group,index=q4)"},
	{"santa/prop", "santa:prop"},
	{"santa/flash", "santa:flash"},
	{"quest", "quest(budget=0.1)"},
	{"quest/group", "quest(budget=0.1,share=group)"},
	{"h2o", "h2o(hh=0.05,recent=0.05)"},
	{"magicpig", "magicpig(bits=8,tables=75)"},
	{"random", "random(k=0.1)"},
	{"random/group", "random(k=0.1,share=group)"},
}

// benchLayers is how many layers' caches a benchmark goes through, so that what
// it reads is in memory and not in a processor's cache.
const benchLayers = 6

// BenchmarkDecode times the attention of a decode step at 32k positions, in a
// layer of the shape of Llama-3.2-1B, of every method beside dense attention,
// alternating. It reports the minimum time of each part, because other programs
// only add to it: dense, selecting, attending what was selected, how many times
// faster than dense attending alone and both together are, and how many positions
// a head's list has.
func BenchmarkDecode(b *testing.B) {
	const n = 32 << 10
	var past *decodePast
	for _, s := range decodeSpecs {
		b.Run("method="+s.name, func(b *testing.B) {
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
	dev       device.Device
	cache     *kvcache.Cache
	seq       *kvcache.Seq
	keys      device.Tensor // f32 [positions, kvheads, dim]: what the cache was given
	pos, end  device.Tensor // i32 [positions]
	q, k, dst device.Tensor
}

// benchChunk is how many positions the past grows by, and is observed, at once.
const benchChunk = 1024

// benchLayer is the layer that is timed: some methods read everything in the
// first two.
const benchLayer = 2

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
	p.keys = p.floats(b, n, benchKVHeads, benchDim)
	v := p.floats(b, benchChunk, benchKVHeads, benchDim)
	for p.seq.Len() < n {
		lo := p.seq.Len()
		must(b, p.seq.Extend(benchChunk, nil))
		p.cache.Flush(p.seq)
		p.random(v)
		for l := range benchLayers {
			device.Do(dev.Queue(), device.Append{KV: p.cache.Slots(l, 1), K: p.keys.Rows(lo, lo+benchChunk), V: v})
		}
	}
	p.pos, p.end = p.numbers(b, 0, n), p.numbers(b, 1, n)
	p.q, p.dst = p.floats(b, 1, benchHeads, benchDim), p.floats(b, 1, benchHeads, benchDim)
	p.k = p.floats(b, 1, benchKVHeads, benchDim)
	return p
}

// numbers is first, first+1 and on, n of them.
func (p *decodePast) numbers(b *testing.B, first, n int) device.Tensor {
	x, err := p.dev.Alloc(device.I32, n)
	must(b, err)
	raw := make([]byte, 0, x.Size())
	for i := range n {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(first+i))
	}
	p.dev.Write(x, raw)
	return x
}

// pass is a pass over rows lo to hi-1 with layer l of the cache as every layer.
func (p *decodePast) pass(lo, hi, l int, decode bool) *Pass {
	kv := p.cache.Slots(l, 1)
	return &Pass{
		Queue: p.dev.Queue(), IDs: p.pos.Rows(lo, hi), Pos: p.pos.Rows(lo, hi), End: p.end.Rows(lo, hi),
		Cache: []device.KV{kv, kv, kv}, First: lo, Prompt: p.seq.Len(), Decode: decode,
	}
}

// observe shows the past to methods that sort its keys. Its queries are not
// attended with: what they would have read is not known.
func (p *decodePast) observe(b *testing.B, c *Policy) {
	q := p.floats(b, benchChunk, benchHeads, benchDim)
	for _, o := range c.observers {
		if o.Name() == "h2o" { // would attend to all of it
			continue
		}
		for l := range benchLayers {
			whole := p.pass(0, p.seq.Len(), l, false)
			for lo := 0; lo < p.seq.Len(); lo += benchChunk {
				hi := min(lo+benchChunk, p.seq.Len())
				part := whole.Tile(lo, hi)
				o.Observe(&part, benchLayer, q.Rows(0, hi-lo), p.keys.Rows(lo, hi))
			}
		}
	}
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
			Layers: benchLayer + 1, Heads: benchHeads, KVHeads: benchKVHeads, HeadDim: benchDim, MaxLen: n, Slots: 1, Rows: benchChunk,
			Pages: p.cache.Config().Pages,
		}, 1))
		must(b, err)
		w := &stopwatch{selecting: time.Hour, attend: time.Hour}
		c.Trace = w
		return c, w
	}
	denseSpec, err := Parse("dense")
	must(b, err)
	dense, denseTime := build(denseSpec)
	own, ownTime := build(spec)
	layer := 0
	step := func(c *Policy) {
		c.Attend(p.pass(p.seq.Len()-1, p.seq.Len(), layer, true), benchLayer, p.dst, p.q, p.k)
		layer = (layer + 1) % benchLayers
	}
	p.observe(b, own)
	// a step before, so that what is shared between steps is there
	p.seq.Truncate(n - 1)
	p.cache.Flush(p.seq)
	step(own)
	must(b, p.seq.Extend(1, nil))
	p.cache.Flush(p.seq)
	denseTime.selecting, ownTime.selecting, ownTime.attend = time.Hour, time.Hour, time.Hour
	for b.Loop() {
		step(dense)
		step(own)
	}
	must(b, p.dev.Sync())
	report := func(d time.Duration, unit string) { b.ReportMetric(float64(d.Microseconds()), unit) }
	report(denseTime.attend, "us-dense")
	report(ownTime.selecting, "us-select")
	report(ownTime.attend, "us-attend")
	b.ReportMetric(float64(denseTime.attend)/float64(ownTime.attend), "x-attend")
	b.ReportMetric(float64(denseTime.attend)/float64(ownTime.selecting+ownTime.attend), "x-both")
	b.ReportMetric(0, "ns/op")
}
