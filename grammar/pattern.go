package grammar

import (
	"encoding/binary"
	"errors"
	"slices"
	"unicode"
	"unicode/utf8"

	"regexp/syntax"
)

// errTooLarge is an automaton that exceeds maxStates, or for which no work is left.
var errTooLarge = errors.New("its automaton is too large")

// work is what automata may still cost to build, in steps of some ten nanoseconds. Those of one
// schema share it.
type work int

// maxWork bounds the automata of a schema.
const maxWork = 1 << 24

// spend takes n off w, and reports whether there was as much.
func (w *work) spend(n int) bool {
	*w -= work(n)
	return *w >= 0
}

// compilePattern makes the automaton of a regular expression in Go's syntax. With search it
// accepts every text in which the pattern is found, as JSON schema says, otherwise those that it
// matches whole. It is nil where there are none.
func compilePattern(pattern string, search bool, w *work) (*chars, error) {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(re.Simplify())
	if err != nil {
		return nil, err
	}
	p := &subsets{prog: prog, search: search, work: w, ids: map[string]int32{}, all: noLabel}
	p.looks = slices.ContainsFunc(prog.Inst, func(i syntax.Inst) bool {
		const inside = syntax.EmptyBeginLine | syntax.EmptyEndLine | syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary
		return i.Op == syntax.InstEmptyWidth && syntax.EmptyOp(i.Arg)&inside != 0
	})
	p.state([]uint32{uint32(prog.Start)}, atBegin)
	for s := 0; s < len(p.sets); s++ {
		if err := p.expand(int32(s)); err != nil {
			return nil, err
		}
	}
	return p.out.trim(), nil
}

// before is the character that precedes a state of a pattern, as far as a pattern can ask:
// one rune for each kind.
type before = rune

const (
	atBegin before = -1
	inLine  before = ' '
	inWord  before = 'a'
	newLine before = '\n'
)

// subsets determinizes a pattern: a state is a set of instructions, assertions not yet tested
// because they look at the next character, and the kind of the character before.
type subsets struct {
	prog   *syntax.Prog
	search bool
	looks  bool // it asks for more than the beginning and the end of the text
	out    chars
	ids    map[string]int32
	sets   []subset
	all    int32 // the state of a search that has found its pattern
	work   *work
}

type subset struct {
	pcs  []uint32
	prev before
}

// state is the number of a set of instructions behind prev.
func (p *subsets) state(pcs []uint32, prev before) int32 {
	slices.Sort(pcs)
	pcs = slices.Compact(pcs)
	key := binary.LittleEndian.AppendUint32(nil, uint32(prev))
	for _, pc := range pcs {
		key = binary.LittleEndian.AppendUint32(key, pc)
	}
	id, ok := p.ids[string(key)]
	if !ok {
		id = p.out.add(noLabel)
		p.ids[string(key)] = id
		p.sets = append(p.sets, subset{pcs, prev})
		if _, matched := p.closure(pcs, prev, -1); matched {
			p.out.label[id] = 0
		}
	}
	return id
}

// found is the state that accepts whatever follows.
func (p *subsets) found() int32 {
	if p.all == noLabel {
		p.all = p.out.add(0)
		p.sets = append(p.sets, subset{})
		p.out.edges[p.all] = allTo(p.all)
	}
	return p.all
}

// closure follows the instructions that take no character between prev and next, -1 for the end
// of the text. It returns those that take one, and whether the pattern has matched.
func (p *subsets) closure(pcs []uint32, prev, next rune) (takes []uint32, matched bool) {
	flags := syntax.EmptyOpContext(prev, next)
	seen := map[uint32]bool{}
	stack := slices.Clone(pcs)
	for len(stack) > 0 {
		pc := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		p.work.spend(1)
		switch i := &p.prog.Inst[pc]; i.Op {
		case syntax.InstAlt, syntax.InstAltMatch:
			stack = append(stack, i.Out, i.Arg)
		case syntax.InstCapture, syntax.InstNop:
			stack = append(stack, i.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(i.Arg)&^flags == 0 {
				stack = append(stack, i.Out)
			}
		case syntax.InstMatch:
			matched = true
		case syntax.InstFail:
		default:
			takes = append(takes, pc)
		}
	}
	return takes, matched
}

// expand makes the edges of state s.
func (p *subsets) expand(s int32) error {
	if s == p.all {
		return nil
	}
	set := p.sets[s]
	var edges []edge
	for _, next := range p.kinds() {
		takes, matched := p.closure(set.pcs, set.prev, next)
		if matched && p.search {
			edges = append(edges, p.ofKind(allTo(p.found()), next)...)
			continue
		}
		cuts := p.cuts(takes, next)
		for i := range len(cuts) - 1 {
			lo, hi := cuts[i], cuts[i+1]-1
			if p.kindOf(lo) != next {
				continue
			}
			if !p.work.spend(1+len(takes)) || len(p.sets) > maxStates {
				return errTooLarge
			}
			if to := p.after(takes, lo); len(to) > 0 {
				edges = append(edges, edge{lo, hi, p.state(to, next)})
			}
		}
	}
	slices.SortFunc(edges, func(a, b edge) int { return int(a.lo - b.lo) })
	p.out.edges[s] = encodable(edges)
	return nil
}

// after is where the instructions lead over r.
func (p *subsets) after(takes []uint32, r rune) (to []uint32) {
	for _, pc := range takes {
		if i := &p.prog.Inst[pc]; i.MatchRune(r) {
			to = append(to, i.Out)
		}
	}
	if p.search {
		to = append(to, uint32(p.prog.Start))
	}
	return to
}

// kinds is the kinds of characters that the pattern tells apart around an assertion.
func (p *subsets) kinds() []before {
	if p.looks {
		return []before{inLine, inWord, newLine}
	}
	return []before{inLine}
}

func (p *subsets) kindOf(r rune) before {
	switch {
	case p.looks && r == '\n':
		return newLine
	case p.looks && syntax.IsWordChar(r):
		return inWord
	}
	return inLine
}

// ofKind is the parts of edges whose characters are of a kind.
func (p *subsets) ofKind(edges []edge, k before) (out []edge) {
	cuts := p.cuts(nil, k)
	for _, e := range edges {
		for i := range len(cuts) - 1 {
			if lo, hi := max(e.lo, cuts[i]), min(e.hi, cuts[i+1]-1); lo <= hi && p.kindOf(lo) == k {
				out = append(out, edge{lo, hi, e.to})
			}
		}
	}
	return out
}

// cuts is the first characters of intervals whose characters the instructions treat alike,
// and one more than the last.
func (p *subsets) cuts(takes []uint32, k before) []rune {
	cuts := []rune{0, utf8.MaxRune + 1}
	if p.looks {
		cuts = append(cuts, '\n', '\n'+1, '0', '9'+1, 'A', 'Z'+1, '_', '_'+1, 'a', 'z'+1)
	}
	for _, pc := range takes {
		switch i := &p.prog.Inst[pc]; i.Op {
		case syntax.InstRuneAnyNotNL:
			cuts = append(cuts, '\n', '\n'+1)
		case syntax.InstRune, syntax.InstRune1:
			cuts = appendCuts(cuts, i)
		}
	}
	p.work.spend(len(cuts))
	slices.Sort(cuts)
	return slices.Compact(cuts)
}

func appendCuts(cuts []rune, i *syntax.Inst) []rune {
	if len(i.Rune) == 1 {
		r := i.Rune[0]
		cuts = append(cuts, r, r+1)
		for f := unicode.SimpleFold(r); f != r && syntax.Flags(i.Arg)&syntax.FoldCase != 0; f = unicode.SimpleFold(f) {
			cuts = append(cuts, f, f+1)
		}
		return cuts
	}
	for j := 0; j+1 < len(i.Rune); j += 2 {
		cuts = append(cuts, i.Rune[j], i.Rune[j+1]+1)
	}
	return cuts
}
