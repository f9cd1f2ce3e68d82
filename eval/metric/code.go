package metric

import (
	"math"
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
// nor a code fence with a reference, in steps of a hundredth.
func CodeSimilarity(answer, reference string, backend CodeBackend) float64 {
	line := ""
	for l := range strings.SplitSeq(strings.TrimLeft(answer, "\n"), "\n") {
		if !strings.ContainsAny(l, "`#") && !strings.Contains(l, "//") {
			line = l
			break
		}
	}
	switch {
	case line == reference:
		return 1
	case line == "" || reference == "":
		return 0
	}
	a, b := []rune(line), []rune(reference)
	matched := 0
	if backend == Levenshtein {
		matched = commonLength(a, b)
	} else {
		matched = newMatcher(a, b).count(0, len(a), 0, len(b))
	}
	return math.RoundToEven(100*(2*float64(matched)/float64(len(a)+len(b)))) / 100
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
	ends  []int          // scratch of longest: by j, the match that ends there
	next  []int
}

// popularFrom is the length of b from which characters that make up more than a
// hundredth of it begin no match.
const popularFrom = 200

func newMatcher(a, b []rune) *matcher {
	m := &matcher{a: a, b: b, where: map[rune][]int{}, ends: make([]int, len(b)+1), next: make([]int, len(b)+1)}
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
	if n == 0 {
		return 0
	}
	return n + m.count(alo, i, blo, j) + m.count(i+n, ahi, j+n, bhi)
}

// longest is the longest matching block: the first in a, then in b, among equals,
// and then longer by equal characters on both sides, popular ones too.
func (m *matcher) longest(alo, ahi, blo, bhi int) (besti, bestj, best int) {
	besti, bestj = alo, blo
	clear(m.ends)
	for i := alo; i < ahi; i++ {
		clear(m.next)
		for _, j := range m.where[m.a[i]] {
			if j < blo {
				continue
			}
			if j >= bhi {
				break
			}
			k := m.ends[j] + 1 // ends[j] is the match that ends before j
			m.next[j+1] = k
			if k > best {
				besti, bestj, best = i-k+1, j-k+1, k
			}
		}
		m.ends, m.next = m.next, m.ends
	}
	for besti > alo && bestj > blo && m.a[besti-1] == m.b[bestj-1] {
		besti, bestj, best = besti-1, bestj-1, best+1
	}
	for besti+best < ahi && bestj+best < bhi && m.a[besti+best] == m.b[bestj+best] {
		best++
	}
	return besti, bestj, best
}
