package grammar

import "slices"

// node is a compiled schema: the union of its atoms.
type node struct {
	path  string
	alts  []*node // schemas whose atoms are this one's too
	atoms []*atom // own ones, and after flatten those of alts
	state visit
	live  bool // some value matches
}

// visit is how far flatten has come with a node.
type visit uint8

const (
	unvisited visit = iota
	visiting
	visited
)

// shape says what an atom is.
type shape uint8

const (
	aString  shape = iota // a lexeme in quotes
	aScalar               // a lexeme without: a number, true, false or null
	anObject              // properties in their order, and then others
	anArray
)

// atom is the values of one type that a schema allows.
type atom struct {
	id    int32
	shape shape
	lex   *lexeme // of a string or scalar

	// The characters of a string that may be anything, the items of an array. A negative max is
	// no limit.
	min, max int

	props []property // of an object
	rest  *node      // the schema of other properties, or of items behind prefix; nil allows none
	need  []int32    // [len(props)+1]: the first required property from each on, len(props) for none
	last  int32      // the last property that may be there, len(props) where others may, -1 for none
	keys  []*lexeme  // [len(props)+1]: the names that may follow from each property on, made when asked for

	prefix []*node // the first items of an array
}

// property is a property of an object. One without a node may not be there.
type property struct {
	name     string
	node     *node
	required bool
}

// of is the schema of the value of property or item i, nil where there can be none.
func (a *atom) of(i int32) *node {
	n := a.rest
	switch {
	case a.shape == anObject && int(i) < len(a.props):
		n = a.props[i].node
	case a.shape == anArray && int(i) < len(a.prefix):
		n = a.prefix[i]
	}
	if n == nil || !n.live {
		return nil
	}
	return n
}

// closes reports whether the object or array may end before property or item i.
func (a *atom) closes(i int32) bool {
	if a.shape == anObject {
		return int(a.need[i]) == len(a.props)
	}
	return int(i) >= a.min
}

// continues reports whether property i or a later one, or item i, may follow.
func (a *atom) continues(i int32) bool {
	if a.shape == anArray {
		return (a.max < 0 || int(i) < a.max) && a.of(i) != nil
	}
	return i <= a.last
}

// after is the number of the property or item behind i. Items are counted as far as they matter.
func (a *atom) after(i int32) int32 {
	limit := len(a.props)
	if a.shape == anArray {
		if limit = a.max; limit < 0 {
			limit = max(a.min, len(a.prefix))
		}
	}
	return int32(min(int(i)+1, limit))
}

// candidates is the names of the properties that may follow from i on: those up to the first
// required one, and the label of every other name, noLabel where none may follow.
func (a *atom) candidates(i int32) (words []word, other int32) {
	last := a.need[i]
	other = noLabel
	end := int32(len(a.props))
	if last == end && a.of(end) != nil {
		other = end
	}
	for j, p := range a.props {
		switch {
		case int32(j) >= i && int32(j) <= last && a.of(int32(j)) != nil:
			words = append(words, word{p.name, int32(j)})
		case other != noLabel:
			words = append(words, word{p.name, noLabel})
		}
	}
	return words, other
}

// key is the lexeme of the names that may follow from property i on.
func (a *atom) key(i int32) *lexeme {
	if a.keys[i] == nil {
		words, other := a.candidates(i)
		if len(words) == 0 && other == 0 {
			a.keys[i] = freeText()
		} else {
			a.keys[i] = newLexeme(trie(words, other), true)
		}
	}
	return a.keys[i]
}

// requires is the schemas of what every value of a has: it has no value where one of them has
// none. Where ok is false it has none at all.
func (a *atom) requires() (nodes []*node, ok bool) {
	if a.shape == anObject {
		for _, p := range a.props {
			if p.required {
				nodes = append(nodes, p.node)
			}
		}
	}
	if a.shape == anArray {
		nodes = append(nodes, a.prefix[:min(a.min, len(a.prefix))]...)
		if a.min > len(a.prefix) {
			nodes = append(nodes, a.rest)
		}
	}
	return nodes, !slices.Contains(nodes, nil) && (a.shape != anArray || a.max < 0 || a.min <= a.max)
}

// flatten makes the atoms of n those of its alternatives too. It reports a schema that is its
// own alternative.
func (n *node) flatten(budget *int) error {
	switch n.state {
	case visited:
		return nil
	case visiting:
		return refuse(n.path, "the schema refers to itself with no object or array between, so that no value can be told from it")
	}
	n.state = visiting
	seen := map[*atom]bool{}
	var atoms []*atom
	add := func(more []*atom) {
		for _, a := range more {
			if !seen[a] {
				seen[a] = true
				atoms = append(atoms, a)
			}
		}
	}
	add(n.atoms)
	for _, alt := range n.alts {
		if err := alt.flatten(budget); err != nil {
			return err
		}
		add(alt.atoms)
	}
	if *budget -= len(atoms); *budget < 0 {
		return refuse(n.path, "the alternatives of the schema are more than %d in all", maxAtoms)
	}
	n.atoms, n.alts, n.state = atoms, nil, visited
	return nil
}

// maxAlike bounds the objects, arrays and free strings of a schema that are alternatives to each
// other. What is written may be the beginning of all of them at once, and each is followed
// through every token: their number bounds the time of a mask.
const maxAlike = 256

// checkAlike refuses schemas of too many alternatives that begin alike.
func checkAlike(nodes []*node) error {
	alike := map[*atom]bool{}
	for _, n := range nodes {
		var same [anArray + 1][]*atom
		for _, a := range n.atoms {
			if a.shape != aScalar && (a.shape != aString || a.lex == freeText()) {
				same[a.shape] = append(same[a.shape], a)
			}
		}
		for _, list := range same {
			for _, a := range list {
				if len(list) > 1 {
					alike[a] = true
				}
			}
		}
		if len(alike) > maxAlike {
			return refuse(n.path, "more than %d objects, arrays or strings of the schema are alternatives to each other: join them", maxAlike)
		}
	}
	return nil
}

// maxAtoms bounds the sum of the alternatives of all schemas inside a schema, and with it the memory
// of a grammar: an atom with its lexeme has up to a kilobyte.
const maxAtoms = 1 << 16

// prune leaves in nodes only what has values. An atom has some when every schema that it
// requires has, and a schema when one of its atoms has.
func prune(nodes []*node) {
	owners := map[*atom][]*node{}
	users := map[*node][]*atom{}
	waits := map[*atom]int{} // required schemas of which it is not known that they have values
	var live []*atom
	for _, n := range nodes {
		for _, a := range n.atoms {
			if owners[a] = append(owners[a], n); len(owners[a]) > 1 {
				continue
			}
			required, ok := a.requires()
			if !ok {
				waits[a] = 1
				continue
			}
			if waits[a] = len(required); len(required) == 0 {
				live = append(live, a)
			}
			for _, r := range required {
				users[r] = append(users[r], a)
			}
		}
	}
	for len(live) > 0 {
		a := live[len(live)-1]
		live = live[:len(live)-1]
		for _, n := range owners[a] {
			if n.live {
				continue
			}
			n.live = true
			for _, u := range users[n] {
				if waits[u]--; waits[u] == 0 {
					live = append(live, u)
				}
			}
		}
	}
	for _, n := range nodes {
		n.atoms = slices.DeleteFunc(n.atoms, func(a *atom) bool { return waits[a] > 0 })
		for _, a := range n.atoms {
			a.findLast()
		}
	}
}

// findLast finds the last property that may be there, when it is known which schemas have
// values.
func (a *atom) findLast() {
	for a.last = int32(len(a.props)); a.last >= 0 && a.of(a.last) == nil; {
		a.last--
	}
}
