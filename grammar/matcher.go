package grammar

import (
	"context"
	"fmt"
	"slices"
)

// Matcher follows one answer. Make it with [Constraint.Matcher]. It belongs to one goroutine.
type Matcher struct {
	c     *Constraint
	state []thread // never changed in place: clones share it
	ended bool     // by a token that ends an answer
}

// Matcher is at the start of an answer.
func (c *Constraint) Matcher() *Matcher {
	return &Matcher{c: c, state: start()}
}

func start() []thread { return []thread{{local: local{phase: atStart}}} }

// Clone is a matcher in the same state, to come back to: it costs nothing but itself.
func (m *Matcher) Clone() *Matcher {
	clone := *m
	return &clone
}

// Mask is the tokens that may come next, one bit for each id, that of id in bit id%32 of word
// id/32. It has (vocabulary+31)/32 words, and at least one bit until an ending token was
// accepted. The matcher keeps it: it must not be changed.
func (m *Matcher) Mask() []uint32 {
	mask, err := m.MaskContext(context.Background())
	if err != nil {
		panic(err) // of a context that never ends
	}
	return mask
}

// MaskContext is Mask, given up once ctx is done, which is the error. Masks of much work, of alternatives
// that are open at the same time, are made one at a time for a vocabulary; others do not wait for them.
func (m *Matcher) MaskContext(ctx context.Context) ([]uint32, error) {
	m.c.g.mu.Lock()
	defer m.c.g.mu.Unlock()
	if m.ended {
		return make([]uint32, m.c.v.words()), nil
	}
	return m.c.mask(ctx, m.state)
}

// Done reports whether what was accepted is a whole value, so that the answer may end. More may
// be allowed all the same: digits of a number.
func (m *Matcher) Done() bool {
	m.c.g.mu.Lock()
	defer m.c.g.mu.Unlock()
	return done(m.state)
}

// Accept goes on with text. If it may not follow, the state stays as it is and Accept is false.
func (m *Matcher) Accept(text []byte) bool {
	m.c.g.mu.Lock()
	defer m.c.g.mu.Unlock()
	if m.ended {
		return len(text) == 0
	}
	next := m.c.g.accept(m.state, text)
	if len(next) == 0 {
		return false
	}
	m.state = next
	return true
}

// AcceptToken goes on with a token. The error is of a token that the mask does not allow, which
// leaves the state as it is.
func (m *Matcher) AcceptToken(id int32) error {
	v := m.c.v
	if slices.Contains(v.ends, id) {
		if m.ended || !m.Done() {
			return fmt.Errorf("grammar: token %d ends the answer before the JSON value is whole", id)
		}
		m.ended = true
		return nil
	}
	if id < 0 || int(id) >= v.size || v.texts[id] == "" || m.ended || !m.Accept([]byte(v.texts[id])) {
		return fmt.Errorf("grammar: token %d may not come next", id)
	}
	return nil
}

// accept is the state behind state over text, empty where it may not follow.
func (g *Grammar) accept(state []thread, text []byte) []thread {
	var buffers [2][]thread
	for i, x := range text {
		next := g.step(state, x, buffers[i%2][:0])
		if len(next) == 0 {
			return nil
		}
		buffers[i%2], state = next, next
	}
	return slices.Clone(state)
}
