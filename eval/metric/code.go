package metric

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// CodeBackend is which ratio compares two lines of code. The official code takes
// the one that happens to be installed.
type CodeBackend string

// The backends.
const (
	Difflib     CodeBackend = "difflib"     // that of the official requirements
	Levenshtein CodeBackend = "levenshtein" // where python-Levenshtein is installed too
)

// CodeSimilarity compares the first line of an answer that is neither a comment
// nor a code fence with a reference, in steps of a hundredth. It is an error where
// that takes more than some seconds.
func CodeSimilarity(answer, reference string, backend CodeBackend) (float64, error) {
	line := ""
	for l := range strings.SplitSeq(strings.TrimLeft(answer, "\n"), "\n") {
		if !strings.ContainsAny(l, "`#") && !strings.Contains(l, "//") {
			line = l
			break
		}
	}
	switch {
	case line == reference:
		return 1, nil
	case line == "" || reference == "":
		return 0, nil
	}
	if err := checkSize(line, reference); err != nil {
		return 0, err
	}
	a, b := []rune(line), []rune(reference)
	matched, ok := 0, true
	if backend == Levenshtein {
		if ok = len(a)*len(b) <= maxWork; ok {
			matched = commonLength(a, b)
		}
	} else {
		m := newMatcher(a, b)
		matched = m.count(0, len(a), 0, len(b))
		ok = m.left >= 0
	}
	if !ok {
		return 0, fmt.Errorf("metric: an answer of %d characters and a reference of %d: comparing lines of code of that length takes too long", len(a), len(b))
	}
	return math.RoundToEven(100*(2*float64(matched)/float64(len(a)+len(b)))) / 100, nil
}

// Ratio is the ratio of Python's difflib.SequenceMatcher(None, a, b): twice the characters
// in matching blocks over those of both. It is an error where that takes more than some
// seconds.
func Ratio(a, b string) (float64, error) {
	if err := checkSize(a, b); err != nil {
		return 0, err
	}
	x, y := []rune(a), []rune(b)
	if len(x)+len(y) == 0 {
		return 1, nil
	}
	m := newMatcher(x, y)
	matched := m.count(0, len(x), 0, len(y))
	if m.left < 0 {
		return 0, fmt.Errorf("metric: texts of %d and %d characters: comparing them takes too long", len(x), len(y))
	}
	return 2 * float64(matched) / float64(len(x)+len(y)), nil
}

// commonLength is the length of a longest common subsequence.
func commonLength(a, b []rune) int {
	row := make([]int, len(b)+1)
	for _, x := range a {
		diagonal := 0
		for j, y := range b {
			above := row[j+1]
			if x == y {
				row[j+1] = diagonal + 1
			} else {
				row[j+1] = max(above, row[j])
			}
			diagonal = above
		}
	}
	return row[len(b)]
}

// matcher is Python's difflib.SequenceMatcher without junk.
type matcher struct {
	a, b  []rune
	where map[rune][]int // places of a character in b, popular ones left out
	ends  []int          // scratch of longest, all 0 between calls: by j, the match that ends there
	next  []int          // the same
	left  int            // pairs that may still be looked at; below 0 the count is wrong
}

// popularFrom is the length of b from which characters that make up more than a
// hundredth of it begin no match.
const popularFrom = 200

// matcherWork is the pairs that a matcher looks at, some seconds: they are in no
// order in memory. rowWork is the time that a character of a takes, in pairs.
const (
	matcherWork = maxWork / 16
	rowWork     = 16
)

func newMatcher(a, b []rune) *matcher {
	m := &matcher{a: a, b: b, where: map[rune][]int{}, ends: make([]int, len(b)+1), next: make([]int, len(b)+1), left: matcherWork}
	for j, c := range b {
		m.where[c] = append(m.where[c], j)
	}
	if n := len(b); n >= popularFrom {
		for c, places := range m.where {
			if len(places) > n/100+1 {
				delete(m.where, c)
			}
		}
	}
	return m
}

// count is the characters in matching blocks of a[alo:ahi] and b[blo:bhi].
func (m *matcher) count(alo, ahi, blo, bhi int) int {
	if alo >= ahi || blo >= bhi {
		return 0
	}
	i, j, n := m.longest(alo, ahi, blo, bhi)
	if n == 0 || m.left < 0 {
		return 0
	}
	return n + m.count(alo, i, blo, j) + m.count(i+n, ahi, j+n, bhi)
}

// longest is the longest matching block: the first in a, then in b, among equals,
// and then longer by equal characters on both sides, popular ones too.
func (m *matcher) longest(alo, ahi, blo, bhi int) (besti, bestj, best int) {
	besti, bestj = alo, blo
	var before []int // places of the character before
	for i := alo; i < ahi && m.left >= 0; i++ {
		places := m.places(m.a[i], blo, bhi)
		for _, j := range places {
			k := m.ends[j] + 1 // ends[j] is the match that ends before j
			m.next[j+1] = k
			if k > best {
				besti, bestj, best = i-k+1, j-k+1, k
			}
		}
		m.forget(before)
		m.ends, m.next, before = m.next, m.ends, places
		m.left -= rowWork + len(places)
	}
	m.forget(before)
	for besti > alo && bestj > blo && m.a[besti-1] == m.b[bestj-1] {
		besti, bestj, best = besti-1, bestj-1, best+1
	}
	for besti+best < ahi && bestj+best < bhi && m.a[besti+best] == m.b[bestj+best] {
		best++
	}
	return besti, bestj, best
}

// places is where a character is in b[blo:bhi].
func (m *matcher) places(c rune, blo, bhi int) []int {
	all := m.where[c]
	low, _ := slices.BinarySearch(all, blo)
	high, _ := slices.BinarySearch(all, bhi)
	return all[low:high]
}

// forget clears the matches that end at places.
func (m *matcher) forget(places []int) {
	for _, j := range places {
		m.ends[j+1] = 0
	}
}
