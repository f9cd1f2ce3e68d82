package grammar

import (
	"slices"
	"sort"
	"unicode/utf8"
)

// chars is a deterministic automaton over characters: state 0 is the start. From every state
// some text leads to an accepting one, so that nothing that it allows ends nowhere.
type chars struct {
	edges [][]edge // of each state, ascending, not overlapping
	label []int32  // of each state: what is accepted there, noLabel for nothing
}

// edge leads over every character of lo to hi.
type edge struct {
	lo, hi rune
	to     int32
}

// noLabel is the label of a state that accepts nothing.
const noLabel = -1

// The characters that JSON text can have: no halves of surrogate pairs.
const (
	beforeSurrogates = 0xD7FF
	afterSurrogates  = 0xE000
)

// anyText accepts every text.
func anyText() *chars {
	return &chars{edges: [][]edge{allTo(0)}, label: []int32{0}}
}

// allTo is the edges that lead over every character to one state.
func allTo(to int32) []edge {
	return []edge{{0, beforeSurrogates, to}, {afterSurrogates, utf8.MaxRune, to}}
}

// maxStates bounds the states of an automaton over characters.
const maxStates = 20000

// lengths accepts every text of min to max characters; a negative max is no limit.
func lengths(min, max int) *chars {
	last := max
	if max < 0 {
		last = min
	}
	c := &chars{}
	for n := range last + 1 {
		label := int32(noLabel)
		if n >= min {
			label = 0
		}
		c.label = append(c.label, label)
		c.edges = append(c.edges, nil)
		if n < last {
			c.edges[n] = allTo(int32(n + 1))
		}
	}
	if max < 0 {
		c.edges[last] = allTo(int32(last))
	}
	return c
}

// word is a text that a trie accepts, with its label.
type word struct {
	text  string
	label int32
}

// trie accepts the words that have a label, and with other, unless it is noLabel, every text
// that is no word at all.
func trie(words []word, other int32) *chars {
	c := &chars{}
	rest := int32(noLabel)
	if other != noLabel {
		rest = c.add(other)
		c.edges[rest] = allTo(rest)
	}
	words = slices.Clone(words)
	sort.Slice(words, func(i, j int) bool { return words[i].text < words[j].text })
	root := c.branch(words, 0, other, rest)
	c.swap(0, root)
	return c.trim()
}

// add appends a state.
func (c *chars) add(label int32) int32 {
	c.label = append(c.label, label)
	c.edges = append(c.edges, nil)
	return int32(len(c.label) - 1)
}

// branch makes the state of a trie behind the first n bytes of words, which they share.
func (c *chars) branch(words []word, n int, other, rest int32) int32 {
	at := c.add(other)
	for len(words) > 0 && len(words[0].text) == n {
		c.label[at] = words[0].label
		words = words[1:]
	}
	var edges []edge
	for len(words) > 0 {
		r, size := utf8.DecodeRuneInString(words[0].text[n:])
		share := sort.Search(len(words), func(i int) bool { return words[i].text[n:n+size] != words[0].text[n:n+size] })
		edges = append(edges, edge{r, r, c.branch(words[:share], n+size, other, rest)})
		words = words[share:]
	}
	c.edges[at] = edges
	if rest != noLabel {
		c.edges[at] = fillGaps(edges, rest)
	}
	return at
}

// fillGaps leads every character that edges leave out to rest.
func fillGaps(edges []edge, rest int32) []edge {
	var out []edge
	next := rune(0)
	gap := func(to rune) {
		for _, e := range allTo(rest) {
			if lo, hi := max(e.lo, next), min(e.hi, to); lo <= hi {
				out = append(out, edge{lo, hi, rest})
			}
		}
	}
	for _, e := range edges {
		gap(e.lo - 1)
		out = append(out, e)
		next = e.hi + 1
	}
	gap(utf8.MaxRune)
	return out
}

// swap exchanges the numbers of two states.
func (c *chars) swap(a, b int32) {
	c.edges[a], c.edges[b] = c.edges[b], c.edges[a]
	c.label[a], c.label[b] = c.label[b], c.label[a]
	for _, edges := range c.edges {
		for i := range edges {
			switch edges[i].to {
			case a:
				edges[i].to = b
			case b:
				edges[i].to = a
			}
		}
	}
}

// trim removes the edges over characters that JSON cannot have and those to states from which
// nothing is accepted. It returns nil where nothing is accepted at all.
func (c *chars) trim() *chars {
	from := make([][]int32, len(c.edges))
	for s, edges := range c.edges {
		c.edges[s] = encodable(edges)
		for _, e := range c.edges[s] {
			from[e.to] = append(from[e.to], int32(s))
		}
	}
	live := make([]bool, len(c.edges))
	var queue []int32
	for s, label := range c.label {
		if label != noLabel {
			live[s] = true
			queue = append(queue, int32(s))
		}
	}
	for len(queue) > 0 {
		s := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, p := range from[s] {
			if !live[p] {
				live[p] = true
				queue = append(queue, p)
			}
		}
	}
	if len(live) == 0 || !live[0] {
		return nil
	}
	for s, edges := range c.edges {
		c.edges[s] = slices.DeleteFunc(edges, func(e edge) bool { return !live[e.to] })
	}
	return c
}

// encodable is edges without the halves of surrogate pairs, neighbors that lead to the same
// state joined.
func encodable(edges []edge) []edge {
	var out []edge
	for _, e := range edges {
		for _, part := range [2]edge{{e.lo, min(e.hi, beforeSurrogates), e.to}, {max(e.lo, afterSurrogates), e.hi, e.to}} {
			switch n := len(out); {
			case part.lo > part.hi:
			case n > 0 && out[n-1].to == part.to && out[n-1].hi+1 == part.lo:
				out[n-1].hi = part.hi
			default:
				out = append(out, part)
			}
		}
	}
	return out
}

// both accepts what a and b accept, with the labels of a. It is nil where that is nothing, and
// ok is false where it has too many states.
func both(a, b *chars, w *work) (c *chars, ok bool) {
	if a == nil || b == nil {
		return nil, true
	}
	type pair struct{ a, b int32 }
	c = &chars{}
	ids := map[pair]int32{}
	var pairs []pair
	id := func(p pair) int32 {
		i, seen := ids[p]
		if !seen {
			label := a.label[p.a]
			if b.label[p.b] == noLabel {
				label = noLabel
			}
			i = c.add(label)
			ids[p] = i
			pairs = append(pairs, p)
		}
		return i
	}
	id(pair{0, 0})
	for s := 0; s < len(pairs); s++ {
		if !w.spend(4) || len(pairs) > maxStates {
			return nil, false
		}
		x, y := a.edges[pairs[s].a], b.edges[pairs[s].b]
		for len(x) > 0 && len(y) > 0 {
			w.spend(1)
			if lo, hi := max(x[0].lo, y[0].lo), min(x[0].hi, y[0].hi); lo <= hi {
				c.edges[s] = append(c.edges[s], edge{lo, hi, id(pair{x[0].to, y[0].to})})
			}
			if x[0].hi < y[0].hi {
				x = x[1:]
			} else {
				y = y[1:]
			}
		}
	}
	return c.trim(), true
}

// reach says where the characters of lo to hi lead from state s: whether any leads on, and
// whether all do, to the same state.
func (c *chars) reach(s int32, lo, hi rune) (to int32, some, all bool) {
	edges := c.edges[s]
	i := 0
	if len(edges) > 8 {
		i = sort.Search(len(edges), func(i int) bool { return edges[i].hi >= lo })
	}
	all = true
	next := lo
	for ; i < len(edges) && edges[i].lo <= hi; i++ {
		e := edges[i]
		if e.hi < lo {
			continue
		}
		all = all && e.lo <= next && (!some || e.to == to)
		to, some = e.to, true
		next = e.hi + 1
	}
	return to, some, all && some && next > hi
}

// wide reports whether more than a few characters lead on from state s.
func (c *chars) wide(s int32) bool {
	n := 0
	for _, e := range c.edges[s] {
		n += int(e.hi-e.lo) + 1
	}
	return n > 8
}
