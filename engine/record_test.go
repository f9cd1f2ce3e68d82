package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/internal/npy"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/sparse"
)

// recorded are methods of each kind: with and without state, in prompts and in steps,
// drawn, weighted, by blocks, with frozen rows.
var recorded = []string{
	"dense", "topk(k=20,sink=4,window=10)", "quest(budget=48)", "h2o(hh=20,recent=16)", "cpe(k=20,sink=4,local=16,s=4,ls=1)",
	"vslash(vertical=40,slash=50)", "sketchwalk(density=0.4)", "vattention(sink=4,local=16,top=0.05,fb=0.1,eps=0.3)",
	"santa(samples=24)", "magicpig(bits=3,tables=20,sink=4,local=16,dense=0)", "anchor(theta=1,block=16,step=4)",
}

// record runs a prompt and some steps of a small model under a spec.
func record(t *testing.T, spec string, layers ...int) *engine.Recording {
	t.Helper()
	path := filepath.Join(t.TempDir(), "random.gguf")
	if err := modeltest.Writer(modeltest.Shape{Layers: 4, Vocab: 100}).WriteFile(path); err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(path, devtest.Device, device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	attn, err := sparse.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	r := runner(t, e, engine.Config{Context: 400, Attn: attn, Seed: 3})
	rec := r.Record(engine.RecordConfig{Layers: layers, Rows: 5})
	ids := make([]int32, 330)
	for i := range ids {
		ids[i] = int32((i*i*7 + i*13) % e.Model.Vocab)
	}
	s := sequence(t, r)
	prefill(t, s, ids)
	stepEach(t, r, s, ids[:4])
	rec.Stop()
	return rec
}

// compare compares a recording with the CPU.
func compare(t *testing.T, rec *engine.Recording) engine.Comparison {
	t.Helper()
	cpu, err := device.Open("cpu", device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	c, err := rec.Compare(cpu)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestRecordings: given the queries and keys of a run, the CPU selects what was selected.
func TestRecordings(t *testing.T) {
	channels := filepath.Join(t.TempDir(), "channels.npy")
	if err := writeChannels(channels, 4, 4, 16); err != nil {
		t.Fatal(err)
	}
	for _, spec := range append(recorded, "doublesparsity(file="+channels+",factor=4,k=30,window=16,dense=1)") {
		t.Run(strings.FieldsFunc(spec, func(r rune) bool { return r == '(' })[0], func(t *testing.T) {
			c := compare(t, record(t, spec, 2, 3))
			if c.Wrong > 0 || c.Undecided > 2 {
				t.Errorf("%+v", c)
			}
			if want := 2 * 4 * (5 + 4); c.Rows != want {
				t.Errorf("%d rows were compared, want %d", c.Rows, want)
			}
			if spec != "dense" && c.Dense == c.Rows {
				t.Error("everything was read: nothing was compared")
			}
		})
	}
}

// writeChannels writes a ranking of channels in which heads differ. The numbers are those
// of Hugging Face models, which the rotation of a model decides the meaning of.
func writeChannels(path string, shape ...int) error {
	a := npy.Array{Shape: shape}
	for h := range shape[0] * shape[1] {
		for i := range shape[2] {
			a.Data = append(a.Data, float32((5*i+h)%shape[2]))
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(npy.Write(f, &a), f.Close())
}

// TestRecordingsDiffer: another query, an entry more and one less are not taken for
// rounding.
func TestRecordingsDiffer(t *testing.T) {
	for name, spoil := range map[string]func(*engine.Recording){
		"another query": (*engine.Recording).SpoilQuery, "another entry": (*engine.Recording).SpoilEntry, "an entry less": (*engine.Recording).DropEntry,
	} {
		rec := record(t, "topk(k=20,sink=4,window=10)", 2, 3)
		spoil(rec)
		if c := compare(t, rec); c.Wrong == 0 || c.First == "" {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// attendCounter is a device that counts the Attend calls of its queue.
type attendCounter struct {
	device.Device
	attends int
}

type countingQueue struct {
	device.Queue
	d *attendCounter
}

// Queue is the device's, counted.
func (d *attendCounter) Queue() device.Queue { return countingQueue{d.Device.Queue(), d} }

// Do counts an Attend.
func (q countingQueue) Do(c device.Call) {
	if _, attends := c.(*device.Attend); attends {
		q.d.attends++
	}
	q.Queue.Do(c)
}

// TestRecordingsAttendNothing: a comparison selects, and computes no attention.
func TestRecordingsAttendNothing(t *testing.T) {
	rec := record(t, "topk(k=20,sink=4,window=10)", 2, 3)
	cpu, err := device.Open("cpu", device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer cpu.Close()
	d := &attendCounter{Device: cpu}
	if c, err := rec.Compare(d); err != nil || c.Rows == 0 || c.Wrong > 0 {
		t.Fatalf("%+v, %v", c, err)
	}
	if d.attends > 0 {
		t.Errorf("%d calls of Attend, want none", d.attends)
	}
}
