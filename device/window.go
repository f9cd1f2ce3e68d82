package device

// Window is the peephole of a backend: calls that it was given and has not begun,
// because they may be the start of a sequence that one kernel computes. Calls leave
// it in order, fused by the first pattern that takes them, or one by one.
//
// A pattern that does not match costs speed, never correctness.
type Window struct {
	arena    Arena
	calls    []Call
	patterns []Pattern
	run      func(Call)
	running  bool
}

// Pattern is a sequence of calls that a backend computes at once.
type Pattern struct {
	Name string
	// Match is how many of the calls, from the first on, are the sequence; 0 when
	// they are not. more says that the calls after these decide.
	Match func(calls []Call) (n int, more bool)
	// Run computes the calls that Match took. It reports false, having done
	// nothing, where their shapes, types or addresses do not suit the kernel.
	Run func(calls []Call) bool
}

// Open gives the window its patterns, the longest first, and what computes a call
// that no pattern takes.
func (w *Window) Open(run func(Call), patterns ...Pattern) {
	w.run, w.patterns = run, patterns
}

// Arena is where the calls of the window lie.
func (w *Window) Arena() *Arena { return &w.arena }

// Do checks a call and takes it into the window.
func (w *Window) Do(c Call) {
	c.Check()
	w.Again(c)
}

// Again takes a call that was checked before into the window.
func (w *Window) Again(c Call) {
	w.calls = append(w.calls, c)
	w.advance(false)
}

// Flush begins all calls. A backend does so before anything that is no call: a
// read, a write, the end of a capture.
func (w *Window) Flush() {
	if len(w.calls) > 0 && !w.running {
		w.advance(true)
	}
}

// Drop forgets the calls that have not begun.
func (w *Window) Drop() { w.calls = w.calls[:0] }

// advance begins calls until a pattern waits for more of them, unless all must go.
func (w *Window) advance(all bool) {
	w.running = true
	panicked := true
	defer func() {
		w.running = false
		if panicked { // misuse that only the backend sees: the call is not tried again
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

// first begins the first call, with those that a pattern fuses it with, and is how
// many they are; 0 when a pattern waits.
func (w *Window) first(all bool) int {
	for i := range w.patterns {
		p := &w.patterns[i]
		n, more := p.Match(w.calls)
		if more && !all {
			return 0
		}
		if n > 0 && p.Run(w.calls[:n]) {
			return n
		}
	}
	w.run(w.calls[0])
	return 1
}

// Products matches products of the same activations that follow each other, none of
// which reads or overwrites what one before it has made.
func Products(calls []Call) (n int, more bool) {
	first, ok := calls[0].(*MatMul)
	if !ok {
		return 0, false
	}
	for n = 1; n < len(calls); n++ {
		if m, ok := calls[n].(*MatMul); !ok || m.X != first.X || m.meets(calls[:n]) {
			return n, false
		}
	}
	return n, true
}

// meets reports whether a product reads as its matrix, or overwrites, the result of one of
// the products before it.
func (c *MatMul) meets(before []Call) bool {
	for _, b := range before {
		if dst := b.(*MatMul).Dst; dst.Overlaps(c.W) || dst.Overlaps(c.Dst) {
			return true
		}
	}
	return false
}
