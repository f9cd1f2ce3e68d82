package sparse

import (
	"math"

	"github.com/gollm/gollm/device"
)

// reacher is options that say what the plan of a row of a prompt depends on besides the
// positions before it: the other rows of its unit, so many positions from an absolute
// multiple of them on, and the end of the prompt. Without it both are none.
type reacher interface {
	reach() (unit int, end bool)
}

// wholeChunk is the unit of options whose plan is one for all rows of a pass.
const wholeChunk = math.MaxInt

// Unit is the number of positions that are planned as one in a prompt, at least a page:
// where a prompt is cut between passes at other positions than its multiples, what is
// read changes. Specs that plan all rows of a pass as one have the largest int: another
// cut always changes what is read.
func (s *Spec) Unit() int {
	unit := device.PageLen
	for _, it := range s.prefillItems() {
		if r, ok := it.opts.(reacher); ok {
			n, _ := r.reach()
			unit = multiple(unit, n)
		}
	}
	return unit
}

// multiple is the least common multiple of two units, wholeChunk where it is too large.
func multiple(a, b int) int {
	if a == wholeChunk || b == wholeChunk {
		return wholeChunk
	}
	gcd, rest := a, b
	for rest > 0 {
		gcd, rest = rest, gcd%rest
	}
	if a /= gcd; a > math.MaxInt32/b {
		return wholeChunk
	}
	return a * b
}

// PrefixUnit says where a prompt may be cut so that another prompt with the same
// beginning can take its pages, with the state beside them, instead of computing them: at
// multiples of so many positions, a multiple of a page. 0 is nowhere, and why says what
// stands against it.
func (s *Spec) PrefixUnit() (unit int, why string) {
	if s.Whole() {
		return 0, "the prompt is one pass"
	}
	for _, it := range s.expanded() {
		if it.entry.Carries {
			return 0, it.name() + " keeps state of the sequence, not of its pages"
		}
	}
	for _, it := range s.prefillItems() {
		if r, ok := it.opts.(reacher); ok {
			if _, end := r.reach(); end {
				return 0, "what " + it.name() + " reads depends on the end of the prompt"
			}
		}
	}
	return s.Unit(), ""
}
