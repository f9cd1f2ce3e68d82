package grammar

import (
	"hash/maphash"
	"slices"
)

// phase is the place in an object or array. Behind each that allows white space is one for
// having had it.
type phase uint8

const (
	atStart phase = iota // the value of the schema itself follows
	opened
	openedGap
	inKey
	atColon // it follows
	atValue // a value follows
	atValueGap
	valueDone // a comma or the end follows
	valueDoneGap
	commaDone // a property or item follows
	commaDoneGap
	finished // the value of the schema is complete
)

// thread is one way to read what was written: a state is a set of them, since alternatives of
// anyOf may begin alike. Where leaf is not nil it is inside a string or scalar, where phase is
// inKey inside the name of a property, otherwise between values.
type thread struct {
	local
	ups []*frame // what the value here is inside of; several where threads have met
}

// local is a thread without what is outside of the innermost object or array.
type local struct {
	at    *atom // the innermost object or array, nil at the root and inside a string or scalar
	phase phase
	pos   int32 // the property or item
	leaf  *atom
	state int32 // of the lexeme
	n     int32 // characters of a string that were begun
}

// lexeme is what a thread is inside of, nil between values.
func (t *local) lexeme() *lexeme {
	switch {
	case t.leaf != nil:
		return t.leaf.lex
	case t.phase == inKey:
		return t.at.keys[t.pos]
	}
	return nil
}

// frame is an object or array that is open around another value, its property or item pos.
// Frames are never changed: threads, states and clones share them.
type frame struct {
	at   *atom
	pos  int32
	ups  []*frame
	hash uint64 // 0 where it has not been asked for
}

// step is the state behind state over b, empty where b may not follow. It appends to out.
func (g *Grammar) step(state []thread, b byte, out []thread) []thread {
	for i := range state {
		out = g.advance(&state[i], b, out)
	}
	return join(out)
}

// advance appends the threads behind t over b.
func (g *Grammar) advance(t *thread, b byte, out []thread) []thread {
	if t.lexeme() != nil {
		return g.advanceLexeme(t, b, out)
	}
	switch t.phase {
	case atStart:
		return g.value(g.root, nil, b, out)
	case opened, openedGap:
		if g.white(b) && t.phase == opened {
			return append(out, t.to(openedGap))
		}
		if t.ends(b) {
			return t.pop(out)
		}
		return g.element(t, b, out)
	case atColon:
		if b == ':' {
			return append(out, t.to(atValue))
		}
	case atValue, atValueGap:
		if g.white(b) && t.phase == atValue {
			return append(out, t.to(atValueGap))
		}
		return g.value(t.at.of(t.pos), t, b, out)
	case valueDone, valueDoneGap:
		switch {
		case t.ends(b):
			return t.pop(out)
		case t.phase == valueDoneGap:
		case b == ',' && t.at.continues(t.pos):
			return append(out, t.to(commaDone))
		case g.white(b) && t.at.closes(t.pos):
			return append(out, t.to(valueDoneGap))
		}
	case commaDone, commaDoneGap:
		if g.white(b) && t.phase == commaDone {
			return append(out, t.to(commaDoneGap))
		}
		return g.element(t, b, out)
	}
	return out
}

func (g *Grammar) white(b byte) bool { return g.space && (b == ' ' || b == '\n') }

// to is t in another phase.
func (t *thread) to(p phase) thread {
	next := *t
	next.phase = p
	return next
}

// ends reports whether b closes the object or array here.
func (t *thread) ends(b byte) bool {
	if t.at.shape == anObject {
		return b == '}' && t.at.closes(t.pos)
	}
	return b == ']' && t.at.closes(t.pos)
}

// element appends what begins with b as the next property or item.
func (g *Grammar) element(t *thread, b byte, out []thread) []thread {
	if !t.at.continues(t.pos) {
		return out
	}
	if t.at.shape == anArray {
		return g.value(t.at.of(t.pos), t, b, out)
	}
	if b != '"' {
		return out
	}
	t.at.key(t.pos)
	next := t.to(inKey)
	next.state = 0
	return append(out, next)
}

// value appends what begins with b as a value of n, inside the object or array of t; a nil t is
// the root.
func (g *Grammar) value(n *node, t *thread, b byte, out []thread) []thread {
	var ups []*frame
	inside := func() []*frame {
		if ups == nil && t != nil {
			ups = []*frame{{at: t.at, pos: t.pos, ups: t.ups}}
		}
		return ups
	}
	for _, a := range n.atoms {
		switch {
		case a.shape == aString && b == '"':
			out = append(out, thread{local{leaf: a}, inside()})
		case a.shape == aScalar:
			if to := a.lex.next(0, b); to > 0 {
				out = append(out, thread{local{leaf: a, state: to - 1}, inside()})
			}
		case a.shape == anObject && b == '{', a.shape == anArray && b == '[':
			out = append(out, thread{local{at: a, phase: opened}, inside()})
		}
	}
	return out
}

// pop appends the threads behind the value that t is in.
func (t *thread) pop(out []thread) []thread {
	if len(t.ups) == 0 {
		return append(out, thread{local: local{phase: finished}})
	}
	for _, f := range t.ups {
		out = append(out, thread{local{at: f.at, phase: valueDone, pos: f.at.after(f.pos)}, f.ups})
	}
	return out
}

// advanceLexeme is advance inside a string, scalar or name.
func (g *Grammar) advanceLexeme(t *thread, b byte, out []thread) []thread {
	lex := t.lexeme()
	to := lex.next(t.state, b)
	next := *t
	switch {
	case to == noStep:
	case to <= endStep:
		if t.leaf == nil || t.n >= int32(t.leaf.min) {
			return t.leave(endStep-to, out)
		}
	case t.begins():
		if next.n++; t.full() {
			break
		}
		fallthrough
	default:
		if t.uncounted() {
			next.n = int32(min(int(next.n), t.leaf.min))
		}
		next.state = to - 1
		out = append(out, next)
	}
	if lex.label(t.state) == noLabel {
		return out
	}
	// A scalar ends before what cannot be a part of it.
	var around [4]thread
	for _, up := range t.pop(around[:0]) {
		out = g.advance(&up, b, out)
	}
	return out
}

// leave appends the threads behind the string or name that ends here.
func (t *thread) leave(label int32, out []thread) []thread {
	if t.leaf != nil {
		return t.pop(out)
	}
	next := t.to(atColon)
	next.pos, next.state = label, 0
	return append(out, next)
}

// counts reports whether t is inside a string whose characters are counted.
func (t *local) counts() bool { return t.leaf != nil && (t.leaf.min > 0 || t.leaf.max >= 0) }

// begins reports whether the next byte of a counted string begins a character.
func (t *local) begins() bool {
	return t.counts() && t.leaf.lex.states[t.state].part == between
}

// full reports whether a counted string may have no more characters.
func (t *local) full() bool { return t.leaf.max >= 0 && int(t.n) >= t.leaf.max }

// uncounted reports whether a string has a least length only, beyond which nothing is counted.
func (t *local) uncounted() bool { return t.counts() && t.leaf.max < 0 }

// join makes one thread of those that differ only in what is around them.
func join(threads []thread) []thread {
	if len(threads) < 2 {
		return threads
	}
	if len(threads) > 16 {
		return joinMany(threads)
	}
	out := threads[:1]
	for _, t := range threads[1:] {
		i := slices.IndexFunc(out, func(o thread) bool { return o.local == t.local })
		if i < 0 {
			out = append(out, t)
			continue
		}
		out[i].ups = union(out[i].ups, t.ups)
	}
	return out
}

func joinMany(threads []thread) []thread {
	index := make(map[local]int, len(threads))
	out := threads[:0]
	for _, t := range threads {
		if i, ok := index[t.local]; ok {
			out[i].ups = union(out[i].ups, t.ups)
			continue
		}
		index[t.local] = len(out)
		out = append(out, t)
	}
	return out
}

// union is a and what of b is not in it, in memory of its own.
func union(a, b []*frame) []*frame {
	out := a
	for _, f := range b {
		if !slices.Contains(a, f) {
			out = append(slices.Clip(out), f)
		}
	}
	return out
}

// done reports whether what led to state is a whole value.
func done(state []thread) bool {
	for i := range state {
		t := &state[i]
		if t.phase == finished || t.leaf != nil && len(t.ups) == 0 && t.leaf.lex.label(t.state) != noLabel {
			return true
		}
	}
	return false
}

// hashSeed keys the hashes of states: nobody can make two that collide.
var hashSeed = maphash.MakeSeed()

// stateHash is the same for states that are equal.
func stateHash(state []thread) (h uint64) {
	for i := range state {
		t := &state[i]
		h += maphash.Comparable(hashSeed, struct {
			local
			ups uint64
		}{t.local, framesHash(t.ups)})
	}
	return h
}

func framesHash(frames []*frame) (h uint64) {
	for _, f := range frames {
		if f.hash == 0 {
			f.hash = maphash.Comparable(hashSeed, struct {
				at  *atom
				pos int32
				ups uint64
			}{f.at, f.pos, framesHash(f.ups)}) | 1
		}
		h += f.hash
	}
	return h
}
