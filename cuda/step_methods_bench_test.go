//go:build cuda && !cudaemu

package cuda

import (
	"fmt"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// sketchwalk is the attention of layer 2 and those after it by sketchwalk:paper-90.
func (m *stepModel) sketchwalk(b *testing.B) func(l int, y, q, k device.Tensor) {
	const width, dense = 64, 2
	d, pages := m.d, m.kv[0].K.Dim(0)
	blocks := ceil(pages, 8) * 8
	f := func(dims ...int) device.Tensor { return filled(b, d, device.F32, dims...) }
	basis := f(width, 128)
	basis.Memory().(*memory).constant = true
	states := make([]devtest.TailSketch, len(m.kv))
	for l := dense; l < len(states); l++ {
		states[l] = devtest.TailSketch{
			Keys: f(pages, 1, 128), Queries: f(pages, 1, 128), KeySketch: f(pages, 1, width), QuerySketch: f(pages, 1, width),
			Basis: basis, Pairs: f(pages, blocks), Compare: device.SketchProduct{Log: true},
		}
	}
	walk := [2]device.Tensor{f(1, blocks), f(1, blocks)}
	list := device.List{Index: benchAlloc(b, d, device.I32, 1, 1, blocks), Count: benchAlloc(b, d, device.I32, 1, 1), Group: device.PageLen}
	q, k := f(1, 32, 128), f(1, 8, 128) // random: the step has no real activations
	return func(l int, y, _, _ device.Tensor) {
		plan := device.Plan{}
		if l >= dense {
			src := walk[(l+1)%2]
			if l == dense {
				src = device.Tensor{}
			}
			devtest.SketchTail(d.ops, states[l], q, k, m.kv[l])
			devtest.WalkTop(d.ops, device.Walk{Dst: walk[l%2], Src: src, Pairs: states[l].Pairs, KV: m.kv[l], Rows: 1, Exponent: 8}, list, device.BlockBudget{Share: 0.1})
			plan = device.Plan{Selected: device.Blocks, List: list}
		}
		device.Do(d.ops, device.Attend{Dst: y, Q: q, KV: m.kv[l], Plan: plan})
	}
}

// santa is the attention by santa(samples=128,exec=prop).
func (m *stepModel) santa(b *testing.B) func(l int, y, q, k device.Tensor) {
	list := device.List{Index: benchAlloc(b, m.d, device.I32, 1, 32, 128), Count: benchAlloc(b, m.d, device.I32, 1, 32), Weight: benchAlloc(b, m.d, device.F32, 1, 32, 128)}
	return func(l int, y, q, _ device.Tensor) {
		devtest.SampleAttend(m.d.ops, y, list, q, m.kv[l], device.Plan{}, device.ValueDraws{Samples: 128})
	}
}

// BenchmarkSteered is decode steps of an 8B model on a long past: without attention, dense, and
// by sparse methods. The microseconds of attention are the difference to a step without.
func BenchmarkSteered(b *testing.B) {
	d := openBench(b)
	for _, depth := range []int{32 << 10, 128 << 10} {
		free, err := d.Scope(func() error {
			m := newStepModel(b, d, "Q4_K_M", 32, depth)
			dense, without := m.attend, 0.0
			for _, s := range []struct {
				name   string
				attend func(l int, y, q, k device.Tensor)
			}{
				{"without", func(int, device.Tensor, device.Tensor, device.Tensor) {}},
				{"dense", dense}, {"sketchwalk", m.sketchwalk(b)}, {"santa", m.santa(b)},
			} {
				m.attend = s.attend
				b.Run(fmt.Sprintf("%s/depth=%d", s.name, depth), func(b *testing.B) {
					seconds := measure(b, d, func() { m.step("") })
					if s.name == "without" {
						without = seconds
					}
					for b.Loop() { // measured with the device's own repetition
					}
					b.ReportMetric(0, "ns/op")
					b.ReportMetric(seconds*1e6, "us")
					b.ReportMetric((seconds-without)/float64(len(m.layers))*1e6, "us-attention")
				})
			}
			return nil
		})
		if err == nil {
			err = free()
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
