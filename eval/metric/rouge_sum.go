package metric

import (
	"fmt"
	"strings"
)

// maxTable is the pairs of words of two lines that are compared at most: their table is
// kept in whole.
const maxTable = 1 << 26

// RougeLSum is the F score rougeLsum of the package rouge_score without a stemmer: lines are
// sentences, words are runs of a-z and 0-9, and a word of a reference counts once where it is
// in a longest common subsequence of its line and any line of the answer.
//
// It is an error where that takes more than some seconds or all memory.
func RougeLSum(answer, reference string) (float64, error) {
	if err := checkSize(answer, reference); err != nil {
		return 0, err
	}
	gold, pred := sumLines(reference), sumLines(answer)
	x, y := countTexts(gold), countTexts(pred)
	total := func(count map[string]int) (n int) {
		for _, k := range count {
			n += k
		}
		return n
	}
	m, n := total(x), total(y)
	if m == 0 || n == 0 {
		return 0, nil
	}
	if m*n > maxWork {
		return 0, fmt.Errorf("metric: an answer of %d words and a reference of %d: comparing all pairs takes too long, want %d pairs at most", n, m, maxWork)
	}
	hits := 0
	for _, line := range gold {
		found := make([]bool, len(line))
		for _, other := range pred {
			if len(line)*len(other) > maxTable {
				return 0, fmt.Errorf("metric: lines of %d and %d words: comparing all pairs takes too much memory, want %d pairs at most", len(other), len(line), maxTable)
			}
			markCommon(found, line, other)
		}
		for i, w := range line {
			if found[i] && x[w] > 0 && y[w] > 0 {
				x[w], y[w] = x[w]-1, y[w]-1
				hits++
			}
		}
	}
	if hits == 0 {
		return 0, nil
	}
	recall, precision := float64(hits)/float64(m), float64(hits)/float64(n)
	return 2 * precision * recall / (precision + recall), nil
}

// sumLines is the words of each line of a text.
func sumLines(text string) [][]string {
	var all [][]string
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" {
			all = append(all, strings.FieldsFunc(Lower(line), func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') }))
		}
	}
	return all
}

// countTexts counts the words of lines.
func countTexts(all [][]string) map[string]int {
	count := map[string]int{}
	for _, line := range all {
		for _, w := range line {
			count[w]++
		}
	}
	return count
}

// markCommon marks the places in a of a longest common subsequence with b: of several the
// one that a walk from the end finds which goes left in b where that is longer, and up in a
// where it is not.
func markCommon(found []bool, a, b []string) {
	width := len(b) + 1
	table := make([]int32, (len(a)+1)*width)
	for i, x := range a {
		for j, y := range b {
			at := (i+1)*width + j + 1
			if x == y {
				table[at] = table[at-width-1] + 1
			} else {
				table[at] = max(table[at-width], table[at-1])
			}
		}
	}
	for i, j := len(a), len(b); i > 0 && j > 0; {
		switch at := i*width + j; {
		case a[i-1] == b[j-1]:
			found[i-1] = true
			i, j = i-1, j-1
		case table[at-1] > table[at-width]:
			j--
		default:
			i--
		}
	}
}
