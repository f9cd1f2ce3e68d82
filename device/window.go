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
	observer Observer // nil: nobody
	apart    bool     // no calls are fused
}

// Observer is told what a window runs, unit by unit: calls that one pattern computes at
// once, or one call.
type Observer interface {
	// Queued comes when a call is taken, in order.
	Queued(c Call)
	// Begin comes before a unit is begun; more than once, where a pattern does not suit
	// the calls that it matches.
	Begin()
	// End comes when a unit has been begun, and on a device whose calls return when they
	// are done, is done. The calls, in the order of Queued, may be looked at until it
	// returns. pattern is empty for a call that none takes.
	End(pattern string, calls []Call)
}

// Observe lets o see what the queue of a backend runs from here on, nil nobody, and with
// apart every call by itself. It returns what runs a [Mark] at once, for Begin and End of o
// to call, or nil where the queue has no [Window], which can be observed.
func Observe(q Queue, o Observer, apart bool) (mark func(i int)) {
	h, ok := q.(interface{ window() *Window })
	if !ok {
		return nil
	}
	w := h.window()
	w.Flush()
	w.observer, w.apart = o, apart
	return func(i int) { w.run(&Mark{i}) }
}

func (w *Window) window() *Window { return w }

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
	if w.observer != nil {
		w.observer.Queued(c)
	}
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
		if n > 0 && w.begin(p, n) {
			return n
		}
	}
	w.begin(nil, 1)
	return 1
}

// begin computes the first n calls by a pattern, or the first one without. It reports
// false where they do not suit the pattern.
func (w *Window) begin(p *Pattern, n int) bool {
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
