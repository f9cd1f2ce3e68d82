package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/weights"
)

// faulty is a device whose Sync fails when it is told to.
type faulty struct {
	device.Device
	fail bool
	ops  device.Queue // instead of the device's own; may be nil
}

// Queue is the device's set of operations, or another one in its place.
func (d *faulty) Queue() device.Queue {
	if d.ops != nil {
		return d.ops
	}
	return d.Device.Queue()
}

// Until passes on what the engine asks for.
var errFault = errors.New("the device has failed")

func (d *faulty) Sync() error {
	if err := d.Device.Sync(); err != nil || !d.fail {
		return err
	}
	return errFault
}

// storyFile opens the file of the story model.
func storyFile(t *testing.T) *weights.File {
	t.Helper()
	f, err := weights.Open("../testdata/stories260K.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// openFaulty opens the story model on a faulty device.
func openFaulty(t *testing.T) (*engine.Engine, *faulty) {
	t.Helper()
	f := storyFile(t)
	cpu, err := device.Open("cpu", device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	d := &faulty{Device: cpu}
	e, err := engine.Load(f, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, d
}

// A step or a prefill that the device fails leaves no position behind, in any
// of its sequences, and what follows is what it would have been without it.
func TestAFailedPassLeavesNothing(t *testing.T) {
	e, d := openFaulty(t)
	ids := make([]int32, 140)
	for i := range ids {
		ids[i] = int32(300 + i%40)
	}
	for _, attn := range []string{"dense", "cis(k=8,sink=2,local=4,tau=-1)", "sketchwalk(tau=3)"} {
		spec, err := sparse.Parse(attn)
		if err != nil {
			t.Fatal(err)
		}
		r := runner(t, e, engine.Config{Context: 256, Slots: 3, Attn: spec})
		plain, a, b := sequence(t, r), sequence(t, r), sequence(t, r)
		prefill(t, plain, ids[:100])
		stepEach(t, r, plain, ids[100:])
		want := logits(t, e, plain)

		prefill(t, a, ids[:100])
		prefill(t, b, ids[:70])
		stepEach(t, r, a, ids[100:110])
		d.fail = true
		for _, s := range []*engine.Sequence{a, b} {
			if err := s.Push(ids[0]); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Step(a, b); !errors.Is(err, errFault) {
			t.Fatalf("%s: the failed step gives %v", attn, err)
		}
		if err := b.Prefill(context.Background(), ids[:20], engine.PrefillOptions{}); !errors.Is(err, errFault) {
			t.Fatalf("%s: the failed prefill gives %v", attn, err)
		}
		d.fail = false
		lens := []int{110, 70}
		if strings.HasPrefix(attn, "sketchwalk") { // it keeps sums beside each page
			lens = []int{64, 64}
		}
		for i, s := range []*engine.Sequence{a, b} {
			if s.Len() != lens[i] || len(s.Tokens()) != s.Len() || !slices.Equal(s.Tokens(), ids[:s.Len()]) {
				t.Errorf("%s: %d positions and %d tokens stay in sequence %d, want %d", attn, s.Len(), len(s.Tokens()), i, lens[i])
			}
		}
		if a.Len() < 100 {
			prefill(t, a, ids[a.Len():100])
		}
		stepEach(t, r, a, ids[a.Len():])
		if got := logits(t, e, a); !slices.Equal(got, want) {
			t.Errorf("%s: after a failed step the logits differ by %g", attn, distance(got, want))
		}
	}
}

// cancelling calls cancel after the fourth SwiGLU, the last of the second layer, and notes what the next Add
// changes.
type cancelling struct {
	device.Queue
	dev    device.Device
	cancel func()
	gates  int
	adds   int
	worked bool // the Add after it changed something
}

func (c *cancelling) Do(call device.Call) {
	switch call := call.(type) {
	case *device.SwiGLU:
		c.Queue.Do(call)
		if c.gates++; c.gates == 4 {
			c.cancel()
		}
	case *device.Add:
		c.add(call)
	default:
		c.Queue.Do(call)
	}
}

func (c *cancelling) add(call *device.Add) {
	if c.gates < 4 {
		c.Queue.Do(call)
		return
	}
	c.adds++
	before, after := make([]byte, call.Dst.Size()), make([]byte, call.Dst.Size())
	_ = c.dev.Read(before, call.Dst) // errors stick to the device
	c.Queue.Do(call)
	_ = c.dev.Read(after, call.Dst)
	c.worked = c.worked || !slices.Equal(before, after)
}

// A prefill that is cancelled in the middle of a layer does no more work, and
// what follows is what it would have been without it.
func TestCancelInsideALayer(t *testing.T) {
	e, d := openFaulty(t)
	ids := make([]int32, 1200)
	for i := range ids {
		ids[i] = int32(300 + i%50)
	}
	r := runner(t, e, engine.Config{Context: 1300, Slots: 2})
	plain, s := sequence(t, r), sequence(t, r)
	prefill(t, plain, ids)
	want := logits(t, e, plain)

	prefill(t, s, ids[:70])
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ops := &cancelling{Queue: d.Device.Queue(), dev: d.Device, cancel: cancel}
	d.ops = ops
	err := s.Prefill(ctx, ids[:900], engine.PrefillOptions{})
	d.ops = nil
	if !errors.Is(err, context.Canceled) || s.Len() != 70 || len(s.Tokens()) != 70 {
		t.Fatalf("err %v, %d positions and %d tokens stay, want 70", err, s.Len(), len(s.Tokens()))
	}
	if ops.adds != 1 || ops.worked {
		t.Errorf("after the cancel %d additions in the layer, want 1; one of them did its work: %v", ops.adds, ops.worked)
	}
	prefill(t, s, ids[70:])
	if got := logits(t, e, s); !slices.Equal(got, want) {
		t.Errorf("after a cancelled prefill the logits differ by %g", distance(got, want))
	}
}

// The logits of a chunk's positions take as long as the chunk: they end too.
func TestCancelBetweenLogits(t *testing.T) {
	e, story := stories(t)
	ids := append(slices.Clone(story.IDs), story.Greedy[:100]...)
	s := sequence(t, runner(t, e, engine.Config{}))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	rows := 0
	err := s.Prefill(ctx, ids, engine.PrefillOptions{Logits: func(int, []float32) error {
		if rows++; rows == 10 {
			cancel()
		}
		return nil
	}})
	if !errors.Is(err, context.Canceled) || rows >= len(ids) || len(s.Tokens()) != s.Len() {
		t.Errorf("err %v after the logits of %d of %d positions; %d positions and %d tokens stay", err, rows, len(ids), s.Len(), len(s.Tokens()))
	}
}
