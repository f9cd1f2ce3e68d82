package engine_test

import (
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/randommodel"
	"github.com/gollm/gollm/weights"
)

// openRandom opens a random model.
func openRandom(t *testing.T, shape, kind string) *engine.Engine {
	t.Helper()
	w, err := randommodel.Make(randommodel.Options{Shape: shape, Type: kind, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	data, err := w.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	f, err := weights.Parse(shape+"-"+kind, data)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(f, dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func TestLogitsAgainstExactOfFamilies(t *testing.T) {
	ids := []int32{1, 77, 200, 31, 5, 300, 9, 142, 260, 11}
	for _, shape := range []string{"tiny-nemo", "tiny-qwen2", "tiny-qwen3", "tiny-yarn"} {
		for _, kind := range randommodel.Types() {
			t.Run(shape+"/"+kind, func(t *testing.T) {
				e := openRandom(t, shape, kind)
				want := newExactModel(t, e).logits(ids)
				got := allLogits(t, e, ids)
				narrow := make([]float32, len(want))
				for i := range want {
					narrow[i] = float32(want[i])
				}
				t.Logf("relative error %.5f", distance(got, narrow))
			})
		}
	}
}
