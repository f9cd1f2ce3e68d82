// Package fusion is the peephole optimizer of a backend's queue: a window of calls, and a table
// of patterns that replace a sequence of them by one kernel.
//
// A [Window] is the [device.Queue] of a backend. It checks a call, holds it back while it may be
// the start of a [Pattern], and launches calls in order: the calls of the first pattern that
// matches at once, or the first call alone. A pattern is a function that matches a sequence, and
// one that launches the kernel for it, which may decline (shapes, types or alignment that the
// kernel does not support). So a pattern that does not match costs speed, never correctness.
// Whatever is no call (a read, a write, the end of a capture) flushes the window first.
//
// An [Observer] sees what is launched, call by call or pattern by pattern.
package fusion

import "github.com/gollm/gollm/device"

// Window is the queue of a backend: calls that were queued and not launched yet, because they
// may be the start of a sequence that one kernel computes.
type Window struct {
	arena    device.Arena
	calls    []device.Call
	patterns []Pattern
	run      func(device.Call)
	running  bool
	observer Observer // nil: nobody
	apart    bool     // no calls are fused
}

// Observer is told what a window launches: the calls of a pattern, or one call.
type Observer interface {
	// Queued is called for every call, in order, when it is queued.
	Queued(c device.Call)
	// Begin is called before a launch, and again where a pattern declined the calls.
	Begin()
	// End is called after a launch; on a synchronous device the calls are done by then.
	// calls are in the order of Queued and valid until End returns. pattern is empty for a
	// call that is launched alone.
	End(pattern string, calls []device.Call)
}

// Observe sets the observer of a backend's queue, nil for none. With apart nothing is fused
// and every call is launched alone. It returns a function that launches a [device.Mark] at
// once, for Begin and End to use, or nil where q has no [Window].
func Observe(q device.Queue, o Observer, apart bool) (mark func(i int)) {
	h, ok := q.(interface{ window() *Window })
	if !ok {
		return nil
	}
	w := h.window()
	w.Flush()
	w.observer, w.apart = o, apart
	return func(i int) { w.run(&device.Mark{I: i}) }
}

func (w *Window) window() *Window { return w }

// Pattern is a sequence of calls that one kernel computes.
type Pattern struct {
	Name string
	// Match returns the length of the sequence at the head of calls, 0 where there is none.
	// more means undecided: it depends on the calls to come.
	Match func(calls []device.Call) (n int, more bool)
	// Run launches the kernel for the n calls that Match returned. It returns false, having
	// launched nothing, where the kernel does not support their shapes, types or addresses.
	Run func(calls []device.Call) bool
}

// Open sets the patterns, longest first, and the function that launches one call.
func (w *Window) Open(run func(device.Call), patterns ...Pattern) {
	w.run, w.patterns = run, patterns
}

// Arena holds the queued calls.
func (w *Window) Arena() *device.Arena { return &w.arena }

// Do checks and queues a call.
func (w *Window) Do(c device.Call) {
	c.Check()
	w.Again(c)
}

// Again queues a call that was checked before: a recorded one.
func (w *Window) Again(c device.Call) {
	if w.observer != nil {
		w.observer.Queued(c)
	}
	w.calls = append(w.calls, c)
	w.advance(false)
}

// Flush launches all queued calls. A backend flushes before anything that is no call: a read,
// a write, the end of a capture.
func (w *Window) Flush() {
	if len(w.calls) > 0 && !w.running {
		w.advance(true)
	}
}

// Drop forgets the calls that were not launched.
func (w *Window) Drop() { w.calls = w.calls[:0] }

// advance launches calls until a pattern is undecided; with all it leaves none.
func (w *Window) advance(all bool) {
	w.running = true
	panicked := true
	defer func() {
		w.running = false
		if panicked { // misuse that only the backend detects: the call is not launched again
			w.Drop()
		}
	}()
	for n := 1; n > 0 && len(w.calls) > 0; {
		n = w.first(all)
		w.calls = w.calls[:copy(w.calls, w.calls[n:])]
	}
	panicked = false
	if len(w.calls) == 0 {
		w.arena.Reset()
	}
}

// first launches the first call, alone or fused with those after it, and returns how many
// calls that were; 0 when a pattern is undecided.
func (w *Window) first(all bool) int {
	calls := w.calls
	if w.apart {
		calls, all = calls[:1], true
	}
	for i := range w.patterns {
		p := &w.patterns[i]
		n, more := p.Match(calls)
		if more && !all {
			return 0
		}
		if n > 0 && w.launch(p, n) {
			return n
		}
	}
	w.launch(nil, 1)
	return 1
}

// launch launches the first n calls by a pattern, or the first one alone without. It returns
// false where the pattern declines.
func (w *Window) launch(p *Pattern, n int) bool {
	if w.observer != nil {
		w.observer.Begin()
	}
	name := ""
	if p == nil {
		w.run(w.calls[0])
	} else if name = p.Name; !p.Run(w.calls[:n]) {
		return false
	}
	if w.observer != nil {
		w.observer.End(name, w.calls[:n])
	}
	return true
}

// Products matches consecutive products of the same activations, none of which depends on the
// result of another: Q, K and V, or gate and up.
func Products(calls []device.Call) (n int, more bool) {
	first, ok := calls[0].(*device.MatMul)
	if !ok {
		return 0, false
	}
	for n = 1; n < len(calls); n++ {
		if m, ok := calls[n].(*device.MatMul); !ok || m.X != first.X || depends(m, calls[:n]) {
			return n, false
		}
	}
	return n, true
}

// depends reports whether a product reads as its matrix, or overwrites, the result of one of
// the products before it.
func depends(m *device.MatMul, before []device.Call) bool {
	for _, b := range before {
		if dst := b.(*device.MatMul).Dst; dst.Overlaps(m.W) || dst.Overlaps(m.Dst) {
			return true
		}
	}
	return false
}
