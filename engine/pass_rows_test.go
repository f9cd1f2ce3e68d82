package engine_test

import (
	"context"
	"errors"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
)

// roomy is a device that prefers passes of some rows, and may be short of memory for
// them.
type roomy struct {
	device.Device
	rows  int
	short bool
}

func (d roomy) Info() device.Info {
	return device.Info{ProductRows: engine.ChunkLen, PassRows: d.rows}
}

func (d roomy) Alloc(dt device.DType, dims ...int) (device.Tensor, error) {
	if d.short && len(dims) == 2 && dims[0] > engine.ChunkLen {
		return device.Tensor{}, errors.New("no memory")
	}
	return d.Device.Alloc(dt, dims...)
}

// A prompt in longer passes leaves what it leaves in short ones, and one that is
// cancelled keeps the passes that were finished. Without memory for them passes are
// short.
func TestLongPasses(t *testing.T) {
	const long = 2 * engine.ChunkLen
	dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	shape := modeltest.Shape{Layers: 2, Dim: 16, Heads: 1, KVHeads: 1, HeadDim: 16, FF: 16, Context: long + 200}
	e, err := engine.Load(modeltest.File(t, modeltest.Writer(shape)), dev)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	ids := make([]int32, long+100)
	for i := range ids {
		ids[i] = int32(i * 7 % e.Model.Vocab)
	}
	var short []float32
	for _, c := range []struct {
		prefers, rows int
		short         bool
	}{{engine.ChunkLen, engine.ChunkLen, false}, {long + 1, long, false}, {long, engine.ChunkLen, true}} {
		e.Device = roomy{dev, c.prefers, c.short}
		r := runner(t, e, engine.Config{})
		e.Device = dev
		if r.PassRows() != c.rows {
			t.Fatalf("passes of %d rows, want %d", r.PassRows(), c.rows)
		}
		if c.short {
			break
		}
		s := sequence(t, r)
		ctx, cancel := context.WithCancel(context.Background())
		err := s.Prefill(ctx, ids, engine.PrefillOptions{Progress: func(done float64) {
			if done*float64(len(ids)) > 0.49*long {
				cancel()
			}
		}})
		cancel()
		if want := long - c.rows; !errors.Is(err, context.Canceled) || s.Len() != want {
			t.Fatalf("passes of %d rows: %d positions stay, want %d; %v", c.rows, s.Len(), want, err)
		}
		prefill(t, s, ids[s.Len():])
		got := logits(t, e, s)
		if short == nil {
			short = got
		} else if d := distance(got, short); d > 1e-3 {
			t.Errorf("passes of %d rows: logits differ by %g", c.rows, d)
		}
	}
}
