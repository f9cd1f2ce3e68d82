package devtest

import (
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/sampling"
)

// positionsAreTensors: a decode step captured once and launched several times
// does what the same number of eager steps do, because its position is a tensor
// that is written between launches.
func positionsAreTensors(t *testing.T, d device.Device) {
	const steps, heads, dim, vocab = 70, 2, 16, 12
	run := func(replayed bool) []byte {
		b := newBed(t, d)
		table, x := b.f32(b.normal(vocab*heads*dim), vocab, heads*dim), b.out(2, heads, dim)
		next, pos := b.i32([]int32{3, 0}, 2), b.i32([]int32{0, 0}, 2)
		kv := device.KV{
			K: b.tensor(device.F16, make([]byte, 2*4*heads*page*dim), 4, heads, page, dim),
			V: b.tensor(device.F16, make([]byte, 2*4*heads*page*dim), 4, heads, page, dim),
			// the second slot is idle
			Pages: b.i32([]int32{2, 1, 0, 3}, 2, 2), Len: b.i32([]int32{1, 0}, 2),
		}
		y, logits, history := b.out(2, heads, dim), b.out(2, vocab), b.i32(filledI32(2*3, -1), 2, 3)
		freqs := b.f32([]float32{1, 0.5, 0.1, 0.01}, 4)
		step := func(ops device.Queue) {
			device.Do(ops, device.Embed{Dst: x.Reshape(2, heads*dim), Table: table, IDs: next})
			device.Do(ops, device.Rope{X: x, Pos: pos, Rotation: device.Rotation{Freqs: freqs, Scale: 1}})
			device.Do(ops, device.Append{KV: kv, K: x, V: x})
			device.Do(ops, device.Attend{Dst: y, Q: x, KV: kv, Plan: device.Plan{Selected: device.None, Sink: 2, Recent: 40}})
			device.Do(ops, device.MatMul{Dst: logits, X: y.Reshape(2, heads*dim), W: table})
			device.Do(ops, device.SampleTokens{Next: next, Logits: logits, History: history, Pos: pos, Params: []sampling.Params{{Temperature: 3, Seed: 5}, {}}})
		}
		launch := func() { step(d.Queue()) }
		if replayed {
			g, err := d.Capture(step)
			if err != nil {
				t.Fatalf("Capture: %v", err)
			}
			defer g.Close()
			launch = g.Launch
		}
		var tokens []byte
		for i := range int32(steps) {
			d.Write(pos, encode([]int32{i, 0}))
			d.Write(kv.Len, encode([]int32{i + 1, 0}))
			launch()
			tokens = append(tokens, b.raw(next)[:4]...)
		}
		b.sync()
		return append(append(tokens, b.raw(kv.K)...), b.raw(history)...)
	}
	if string(run(false)) != string(run(true)) {
		t.Error("eager and replayed steps choose other tokens or keep other keys")
	}
}
