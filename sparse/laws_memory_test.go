package sparse_test

import (
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/kvcache"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/sparse"
)

// meter is a device that only counts the memory that is allocated.
type meter struct {
	device.Device
	bytes int
}

// measured is memory that is not there.
type measured int

func (m measured) Size() int { return int(m) }

func (m *meter) Alloc(dt device.DType, dims ...int) (device.Tensor, error) {
	n, err := device.SizeOf(dt, dims...)
	m.bytes += n
	return device.NewTensor(measured(n), 0, dt, dims...), err
}

func (*meter) Write(device.Tensor, []byte) {}

// Info leaves every preference to its default.
func (*meter) Info() device.Info { return device.Info{} }

// 65,536 positions of Llama-3.2-1B fit in 16 GB with every method: weights in
// Q8_0, the cache, the buffers of a pass, and the state of the method.
func TestLongContextsFit(t *testing.T) {
	const context, limit = 65536, 16e9
	const weights = 1235814400 * 34 / 32 // what Q8_0 takes
	m := model.Model{Config: model.Config{Layers: 16, Dim: 2048, Heads: 32, KVHeads: 8, HeadDim: 64, FF: 8192, Vocab: 128256}}
	dir := t.TempDir()
	must(t, calibrate(dir, m.Layers, m.Heads, m.KVHeads, m.HeadDim))
	for _, e := range sparse.Methods() {
		spec := e.Name
		switch e.Name {
		case "doublesparsity":
			spec += "(file=" + dir + "/channels.npy)"
		case "hashattention":
			spec += "(dir=" + dir + ")"
		}
		s, err := sparse.Parse(spec)
		must(t, err)
		rows := engine.ChunkLen
		if s.Whole() {
			rows = context
		}
		dev := &meter{bytes: weights}
		cache, err := kvcache.New(dev, kvcache.Config{Layers: m.Layers, KVHeads: m.KVHeads, HeadDim: m.HeadDim, MaxLen: context, Slots: 1, DType: device.F16})
		must(t, err)
		_, err = m.NewScratch(dev, rows)
		must(t, err)
		policy, err := s.Build(sparse.NewEnv(dev, sparse.Shape{
			Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, HeadDim: m.HeadDim,
			MaxLen: context, Slots: 1, Rows: rows, Pages: cache.Config().Pages,
		}, 1))
		must(t, err)
		t.Logf("%-15s %5.2f GB, of which it keeps %.3f", e.Name, float64(dev.bytes)/1e9, float64(policy.Size())/1e9)
		if dev.bytes > limit {
			t.Errorf("%s: %d positions take %.1f GB, want at most %g", e.Name, context, float64(dev.bytes)/1e9, limit/1e9)
		}
	}
}
