package grammar

import (
	"context"
	"math"
	"slices"
)

// A mask is found in three ways, the fast ones first. The mask of a state that was there before
// is kept. Inside a string most tokens stay inside of it, whatever is around: which ones is kept
// by the state of the lexeme, and only those that end it (exits) are followed outside. Between
// values few bytes may come, and the trie is walked.

// lexemeMask says which tokens are allowed in a state of a lexeme as far as it alone is asked.
type lexemeMask struct {
	mask  []uint32 // of the tokens that stay inside it or end with it
	exits []exit
	// counts is the tokens of mask, those with most characters first, of freeText where somebody
	// counts them.
	counts []tokenCount
	ends   []tokenCount // those of counts that end the string
}

// exit is a node at which a lexeme has ended, or may end, with more tokens under it.
type exit struct {
	node  int32
	label int32
	chars int16 // that it begins before, of freeText
}

// tokenCount is the characters that a token begins in a string.
type tokenCount struct {
	id    int32
	chars int16
	ends  bool // it ends the string
}

// stateMasks and lexemeMasks are how many masks a constraint keeps, of vocab/8 bytes each.
const (
	stateMasks  = 512
	lexemeMasks = 256
)

// lexemeState is the key of a lexemeMask.
type lexemeState struct {
	lex   *lexeme
	state int32
}

// Constraint is a grammar over the tokens of a vocabulary. Make it with [Vocabulary.Bind]. It may
// be used from several goroutines.
type Constraint struct {
	g       *Grammar
	v       *Vocabulary
	states  *recent[uint64, []uint32]         // by stateHash
	lexemes *recent[lexemeState, *lexemeMask] // of all but freeText
}

// Bind joins a grammar and a vocabulary.
func (v *Vocabulary) Bind(g *Grammar) *Constraint {
	return &Constraint{g, v, newRecent[uint64, []uint32](stateMasks), newRecent[lexemeState, *lexemeMask](lexemeMasks)}
}

// mask is the tokens that may follow state. It is kept, and must not be changed. The error is that of
// ctx, with which it ends early.
func (c *Constraint) mask(ctx context.Context, state []thread) ([]uint32, error) {
	key := stateHash(state)
	if mask, ok := c.states.get(key); ok {
		return mask, nil
	}
	e := effort{ctx: ctx, slow: c.v.slow, look: quickWork}
	defer e.end()
	w := walker{c: c, mask: make([]uint32, c.v.words()), effort: &e}
	var between []thread
	for i := range state {
		if t := &state[i]; t.lexeme() != nil {
			w.insideLexeme(t)
		} else {
			between = append(between, *t)
		}
	}
	w.under(0, between, 0)
	if e.err != nil {
		return nil, e.err
	}
	if done(state) {
		for _, id := range c.v.ends {
			w.mask[id>>5] |= 1 << (id & 31)
		}
	}
	c.states.put(key, w.mask)
	return w.mask, nil
}

// How much work a mask is: threads that take a byte. quickWork is a few milliseconds; what is more is done
// for one mask of a vocabulary at a time, and asks every lookWork whether anybody still wants it.
const (
	quickWork = 1 << 19
	lookWork  = 1 << 16
)

// effort counts the work for a mask.
type effort struct {
	ctx  context.Context
	slow chan struct{} // see [Vocabulary]
	work int
	look int   // work at which to see whether and when it goes on
	turn bool  // this mask is the one
	err  error // nobody wants the mask any more
}

// spend counts work and reports whether there is to be more.
func (e *effort) spend(n int) bool {
	if e.work += n; e.work < e.look || e.err != nil {
		return e.err == nil
	}
	e.look = e.work + lookWork
	if !e.turn {
		select {
		case e.slow <- struct{}{}:
			e.turn = true
		case <-e.ctx.Done():
		}
	}
	e.err = e.ctx.Err()
	return e.err == nil
}

// end lets another mask be slow.
func (e *effort) end() {
	if e.turn {
		<-e.slow
	}
}

// lexemeMask is the mask of a lexeme alone, and the work that it was: none where it is kept.
func (c *Constraint) lexemeMask(lex *lexeme, state int32) (m *lexemeMask, work int) {
	if lex == freeText() {
		c.v.mu.Lock()
		defer c.v.mu.Unlock()
		if m = c.v.free[state]; m == nil {
			m, work = c.newLexemeMask(lex, state)
			c.v.free[state] = m
		}
		return m, work
	}
	key := lexemeState{lex, state}
	m, ok := c.lexemes.get(key)
	if !ok {
		m, work = c.newLexemeMask(lex, state)
		c.lexemes.put(key, m)
	}
	return m, work
}

func (c *Constraint) newLexemeMask(lex *lexeme, state int32) (*lexemeMask, int) {
	m, e := &lexemeMask{}, effort{look: math.MaxInt} // it is kept, so it is made whole
	w := walker{c: c, mask: make([]uint32, c.v.words()), effort: &e}
	w.scan(0, lex, state, func(node, label int32) {
		e := exit{node: node, label: label}
		if lex == freeText() {
			e.chars = c.v.charsTo(node, lex, state)
		}
		m.exits = append(m.exits, e)
	})
	m.mask = w.mask
	return m, e.work
}

// charCounts is the counts of a state of freeText.
func (c *Constraint) charCounts(state int32, m *lexemeMask) []tokenCount {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	if m.counts == nil {
		m.counts = c.v.countChars(freeText(), state)
		for _, n := range m.counts {
			if n.ends {
				m.ends = append(m.ends, n)
			}
		}
	}
	return m.counts
}

// countChars lists the tokens that a string allows, those with most characters first.
func (v *Vocabulary) countChars(lex *lexeme, state int32) (counts []tokenCount) {
	var states [maxToken + 1]int32
	var chars [maxToken + 1]int16
	states[0] = state
	for n := int32(1); n < v.nodes[0].after; {
		d := v.nodes[n].depth
		s := states[d-1]
		to := lex.next(s, v.nodes[n].byte)
		chars[d] = chars[d-1]
		if to > 0 && lex.states[s].part == between {
			chars[d]++
		}
		if id := v.nodes[n].id; id >= 0 && to != noStep {
			counts = append(counts, tokenCount{id, chars[d], to <= endStep})
			for _, id := range v.alike[n] {
				counts = append(counts, tokenCount{id, chars[d], to <= endStep})
			}
		}
		if to < 0 {
			n = v.nodes[n].after
			continue
		}
		states[d] = to - 1
		n++
	}
	slices.SortStableFunc(counts, func(a, b tokenCount) int { return int(b.chars - a.chars) })
	return counts
}

// walker collects the tokens that a state allows.
type walker struct {
	c     *Constraint
	mask  []uint32
	spare [][]thread // by the depth of recursion
	*effort
}

// buffer is empty memory for the states at a depth of recursion.
func (w *walker) buffer(depth int) []thread {
	for len(w.spare) <= depth {
		w.spare = append(w.spare, make([]thread, 0, 4))
	}
	return w.spare[depth][:0]
}

// under allows the tokens under a node that state takes.
func (w *walker) under(node int32, state []thread, depth int) {
	if len(state) == 0 {
		return
	}
	if t := &state[0]; len(state) == 1 && t.lexeme() != nil && !t.counts() {
		w.inLexeme(node, t, depth)
		return
	}
	v := w.c.v
	for n := node + 1; n < v.nodes[node].after && w.spend(len(state)); n = v.nodes[n].after {
		next := w.c.g.step(state, v.nodes[n].byte, w.buffer(depth))
		w.spare[depth] = next
		if len(next) > 0 {
			v.allow(w.mask, n)
			w.under(n, next, depth+1)
		}
	}
}

// inLexeme is under for one thread inside a lexeme.
func (w *walker) inLexeme(node int32, t *thread, depth int) {
	in := *t
	w.scan(node, t.lexeme(), t.state, func(n, label int32) {
		next := in.leave(label, w.buffer(depth))
		w.spare[depth] = next
		w.under(n, next, depth+1)
	})
}

// insideLexeme allows the tokens that may follow a thread inside a lexeme.
func (w *walker) insideLexeme(t *thread) {
	m, work := w.c.lexemeMask(t.lexeme(), t.state)
	if !w.spend(work + w.c.v.words()/16) { // to merge it
		return
	}
	if t.counts() {
		w.counted(t, m)
	} else {
		merge(w.mask, m.mask)
	}
	for _, e := range m.exits {
		if t.counts() && !t.mayEnd(e.chars) {
			continue
		}
		next := t.leave(e.label, w.buffer(0))
		w.spare[0] = next
		w.under(e.node, next, 1)
	}
}

// counted allows the tokens that stay in a string of limited length, or end with it.
func (w *walker) counted(t *thread, m *lexemeMask) {
	counts := w.c.charCounts(t.state, m)
	tooLong := 0
	if t.leaf.max >= 0 {
		tooLong = sortedFrom(counts, t.leaf.max-int(t.n))
	}
	if tooLong > len(counts)/2 {
		for _, c := range counts[tooLong:] {
			if !c.ends || t.n+int32(c.chars) >= int32(t.leaf.min) {
				w.mask[c.id>>5] |= 1 << (c.id & 31)
			}
		}
		return
	}
	mask := slices.Clone(m.mask)
	for _, c := range counts[:tooLong] {
		mask[c.id>>5] &^= 1 << (c.id & 31)
	}
	for _, c := range m.ends {
		if t.n+int32(c.chars) < int32(t.leaf.min) {
			mask[c.id>>5] &^= 1 << (c.id & 31)
		}
	}
	merge(w.mask, mask)
}

// merge sets in mask the bits of another.
func merge(mask, other []uint32) {
	for i, bits := range other {
		mask[i] |= bits
	}
}

// sortedFrom is the index of the first of counts with at most so many characters.
func sortedFrom(counts []tokenCount, chars int) int {
	i, _ := slices.BinarySearchFunc(counts, chars, func(c tokenCount, chars int) int { return chars - int(c.chars) })
	return i
}

// mayEnd reports whether a string of limited length may end with so many characters more.
func (t *local) mayEnd(chars int16) bool {
	n := int(t.n) + int(chars)
	return n >= t.leaf.min && (t.leaf.max < 0 || n <= t.leaf.max)
}

// charsTo is how many characters the text of a node begins in a string.
func (v *Vocabulary) charsTo(node int32, lex *lexeme, state int32) (chars int16) {
	for n := int32(0); n != node; {
		n++
		for node >= v.nodes[n].after {
			n = v.nodes[n].after
		}
		to := lex.next(state, v.nodes[n].byte)
		if to > 0 && lex.states[state].part == between {
			chars++
		}
		state = to - 1
	}
	return chars
}

// scan allows the tokens under a node that stay in a lexeme or end with it, and reports the
// nodes at which it ends, or may end, and that have others under them.
func (w *walker) scan(node int32, lex *lexeme, state int32, found func(node, label int32)) {
	v := w.c.v
	var states [maxToken + 1]int32 // by depth
	steps := 0
	states[v.nodes[node].depth] = state
	if label := lex.label(state); label != noLabel {
		found(node, label)
	}
	for n, end := node+1, v.nodes[node].after; n < end; {
		at := &v.nodes[n]
		s := states[at.depth-1]
		to := int32(0)
		if dense := lex.states[s].dense; dense != nil {
			to = dense[at.byte]
		}
		if to == 0 {
			to = lex.next(s, at.byte)
		}
		if to == noStep {
			n = at.after
			continue
		}
		v.allow(w.mask, n)
		if to <= endStep {
			if n+1 < at.after {
				found(n, endStep-to)
			}
			n = at.after
			continue
		}
		states[at.depth] = to - 1
		steps++
		if !lex.quoted && n+1 < at.after {
			if label := lex.label(to - 1); label != noLabel {
				found(n, label)
			}
		}
		n++
	}
	w.spend(steps)
}
