package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/sparse"
)

// listener is a device that notes the calls that it is given.
type listener struct {
	device.Device
	calls []string
}

// Info says that steps are not captured, which is beside the queue.
func (l *listener) Info() device.Info {
	info := l.Device.Info()
	info.Replays = false
	return info
}

func (l *listener) Queue() device.Queue { return listening{l.Device.Queue(), l} }

// listening notes calls that compute something.
type listening struct {
	device.Queue
	to *listener
}

func (l listening) Do(c device.Call) {
	if name := device.Name(c); name != "Discard" {
		l.to.calls = append(l.to.calls, name)
	}
	l.Queue.Do(c)
}

// listen opens the model on a device, and on another one that notes its calls.
func listen(t *testing.T) (plain, listened *engine.Engine, to *listener) {
	t.Helper()
	open := func() device.Device {
		dev, err := device.Open(devtest.Device, device.Config{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		return dev
	}
	load := func(dev device.Device) *engine.Engine {
		e, err := engine.Load(tracedFile(t), dev)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}
	to = &listener{Device: open()}
	return load(open()), load(to), to
}

// tracedLen is the tokens of the prompt of TestTrace: four blocks, of which a row may read
// fewer than it sees.
const tracedLen = 200

// passesOf makes a sequence's prompt and a step, and calls between before each of them and
// at the end.
func passesOf(t *testing.T, r *engine.Runner, between func()) {
	t.Helper()
	ids := make([]int32, tracedLen)
	for i := range ids {
		ids[i] = int32(i * 7 % 100)
	}
	s := sequence(t, r)
	between()
	prefill(t, s, ids)
	between()
	if err := s.Push(5); err != nil {
		t.Fatal(err)
	}
	if err := r.Step(s); err != nil {
		t.Fatal(err)
	}
	between()
	s.Close()
}

// TestTrace: a trace has every call of a prompt and of a step once, in order, with its layer;
// products read the weights of the file; units follow each other in time.
func TestTrace(t *testing.T) {
	traced, listened, l := listen(t)
	for _, text := range []string{"dense", "sketchwalk"} {
		t.Run(text, func(t *testing.T) {
			spec, err := sparse.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			conf := engine.Config{Context: 256, Attn: spec}
			var want [][]string
			l.calls = nil
			passesOf(t, runner(t, listened, conf), func() { want, l.calls = append(want, l.calls), nil })
			calls, units := traceOf(t, runner(t, traced, conf))
			for i, pass := range []string{"prefill", "step"} {
				if got := namesOf(calls[i]); !slices.Equal(got, want[i+1]) {
					t.Errorf("%s: calls %q, want %q", pass, got, want[i+1])
				}
				var all []engine.TracedCall
				for _, u := range units[i] {
					all = append(all, u.Calls...)
				}
				if got := namesOf(all); !slices.Equal(got, want[i+1]) {
					t.Errorf("%s, in units: calls %q, want %q", pass, got, want[i+1])
				}
				checkLayers(t, calls[i], traced.Model.Layers)
				checkTimes(t, units[i])
			}
			checkProducts(t, traced, units[1])
			checkAttention(t, traced, calls[1], text == "dense")
		})
	}
}

// traceOf is the calls and the units of a prompt and of a step.
func traceOf(t *testing.T, r *engine.Runner) (calls [][]engine.TracedCall, units [][]engine.Unit) {
	t.Helper()
	for range 2 {
		begun := 0
		var stop func() error
		passesOf(t, r, func() {
			if stop != nil {
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			}
			switch begun++; {
			case begun == 3: // behind the step
			case len(calls) < 2:
				trace, err := r.TraceCalls()
				if err != nil {
					t.Fatal(err)
				}
				stop = func() error { c, err := trace.Stop(); calls = append(calls, c); return err }
			default:
				trace, err := r.TraceUnits(calls[begun-1])
				if err != nil {
					t.Fatal(err)
				}
				stop = func() error { u, err := trace.Stop(); units = append(units, u); return err }
			}
		})
	}
	return calls, units
}

// namesOf is the names of calls that compute something.
func namesOf(calls []engine.TracedCall) (all []string) {
	for _, c := range calls {
		if name := device.Name(c.Call); name != "Discard" {
			all = append(all, name)
		}
	}
	return all
}

// checkLayers: the embedding, all layers in order, and what follows them.
func checkLayers(t *testing.T, calls []engine.TracedCall, layers int) {
	t.Helper()
	var order []int
	for _, c := range calls {
		if n := len(order); n == 0 || order[n-1] != c.Layer {
			order = append(order, c.Layer)
		}
	}
	want := []int{-1}
	for l := range layers {
		want = append(want, l)
	}
	if want = append(want, -1); !slices.Equal(order, want) {
		t.Errorf("layers %v, want %v", order, want)
	}
}

// checkTimes: no unit begins before the one before it ends.
func checkTimes(t *testing.T, units []engine.Unit) {
	t.Helper()
	for i, u := range units {
		if u.Time < 0 || u.Start < 0 {
			t.Errorf("unit %d, %s, starts at %v and takes %v", i, u.Name(), u.Start, u.Time)
		}
		if i > 0 && units[i-1].Start+units[i-1].Time > u.Start {
			t.Errorf("unit %d, %s, starts at %v, before the end of the one before it, at %v", i, u.Name(), u.Start, units[i-1].Start+units[i-1].Time)
		}
	}
	if last := units[len(units)-1]; last.Start+last.Time <= 0 {
		t.Error("the pass took no time")
	}
}

// checkProducts: the products of a step read every matrix of the file once, and units that
// are products and nothing else cost these and their rows.
func checkProducts(t *testing.T, e *engine.Engine, units []engine.Unit) {
	t.Helper()
	want, got := 0, 0
	for _, tensor := range e.File.Tensors() {
		if len(tensor.Shape) == 2 && (tensor.Name != "token_embd.weight" || !e.File.HasTensor("output.weight")) {
			want += len(tensor.Data)
		}
	}
	for _, u := range units {
		operands, products := 0, true
		for _, c := range u.Calls {
			m, ok := c.Call.(*device.MatMul)
			if products = products && ok; ok {
				operands += m.Dst.Size() + m.X.Size() + m.W.Size()
				got += m.W.Size()
			}
		}
		if products && u.Cost.Bytes != int64(operands) {
			t.Errorf("%s of layer %d: %d bytes, want the %d of its operands", u.Name(), u.Layer(), u.Cost.Bytes, operands)
		}
	}
	if got != want {
		t.Errorf("products of %d bytes of weights, want the %d of the file", got, want)
	}
}

// checkAttention: a step that is dense reads all keys and values, another one fewer in the
// layers that it steers.
func checkAttention(t *testing.T, e *engine.Engine, calls []engine.TracedCall, dense bool) {
	t.Helper()
	m, fewer := e.Model, 0
	ends := 2 * 4 * m.Heads * m.HeadDim
	all := int64(2*2*m.KVHeads*m.HeadDim*(tracedLen+1) + ends)
	for _, c := range calls {
		if device.Name(c.Call) != "Attend" {
			continue
		}
		if c.Cost.Bytes < all {
			fewer++
		}
		if dense && c.Cost.Bytes != all || c.Cost.Bytes > all || c.Cost.Bytes <= int64(ends) {
			t.Errorf("attention of layer %d: %d bytes, where all of them are %d", c.Layer, c.Cost.Bytes, all)
		}
	}
	if want := m.Layers - 2; !dense && fewer != want {
		t.Errorf("attention reads less in %d layers, want %d", fewer, want)
	}
}

// TestCosts: every call of every method costs something, and no more than all of what it
// reads and writes.
func TestCosts(t *testing.T) {
	traced, _, _ := listen(t)
	dir := t.TempDir()
	engine.Calibrate(t, dir, traced.Model)
	seen := map[string]bool{}
	for _, text := range costSpecs(dir) {
		spec, err := sparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		r, err := traced.NewRunner(engine.Config{Context: 256, Attn: spec})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var trace *engine.CallTrace
		passesOf(t, r, func() {
			if trace != nil {
				calls, err := trace.Stop()
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range calls {
					seen[device.Name(c.Call)] = true
					checkCost(t, text, c)
				}
			}
			if trace, err = r.TraceCalls(); err != nil {
				t.Fatal(err)
			}
		})
		if _, err := trace.Stop(); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range device.Rules() {
		if strings.Contains(name, "(") && !seen[name] {
			t.Errorf("no call of %s was seen", name)
		}
	}
}

// costSpecs is every method, with options that select in a short prompt. dir has the files of
// [engine.Calibrate].
func costSpecs(dir string) (all []string) {
	for _, m := range sparse.Methods() {
		switch m.Name {
		case "doublesparsity":
			all = append(all, "doublesparsity(dense=0,file="+dir+"/channels.npy)")
		case "hashattention":
			all = append(all, "hashattention(k=0.1,dir="+dir+")")
		default:
			all = append(all, m.Name)
		}
	}
	return append(all, "vattention + santa(scores=bernoulli)", "quest(budget=64,share=group)", "cis(share=group,index=q8)", "topk(index=q4,rescore=2)", "magicpig(dense=0)", "flexprefill(min=64,block=64)", "anchor(block=16,step=2)", "vattention(share=group)")
}

// checkCost holds a cost against the sizes of the operands.
func checkCost(t *testing.T, spec string, c engine.TracedCall) {
	t.Helper()
	var a device.Access
	c.Call.Access(&a)
	allBytes := int64(0)
	for _, x := range append(a.Reads, a.Writes...) {
		allBytes += int64(x.Size())
	}
	if bound := c.Call.Cost(nil); bound.Bytes > c.Cost.Bytes || bound.Ops > c.Cost.Ops {
		t.Errorf("%s: %s of layer %d costs %+v, and %+v where nothing is known of what is stored", spec, device.Name(c.Call), c.Layer, c.Cost, bound)
	}
	if _, discards := c.Call.(*device.Discard); !discards && c.Cost.Bytes <= 0 || c.Cost.Bytes > allBytes || c.Cost.Int8 > c.Cost.Ops || c.Cost.Ops < 0 {
		t.Errorf("%s: %s of layer %d costs %+v, where its operands have %d bytes", spec, device.Name(c.Call), c.Layer, c.Cost, allBytes)
	}
}
