package metric

import (
	"slices"
	"strings"
)

// RougeSteps is how far the official ROUGE, which is recursive, gets before
// Python stops it.
const RougeSteps = 989

// RougeL is the F score of rouge 1.0.1 at the level of the summary. most is how
// many steps a common subsequence may take, [RougeSteps] in the official code;
// beyond it the official score is 0. 0 is no bound.
//
// Sentences end at every full stop, also in 3.5, and a piece of nothing but white
// space has one word, which is empty. All common words of all pairs of sentences
// go into one set, and sets are compared.
func RougeL(answer, reference string, most int) float64 {
	words := map[string]int32{}
	gold, pred := rougeSentences(reference, words), rougeSentences(answer, words)
	if len(gold) == 0 || len(pred) == 0 {
		return 0
	}
	common := make([]bool, len(words))
	var table []int32
	for _, x := range gold {
		for _, y := range pred {
			var ok bool
			if table, ok = markCommon(common, x, y, table, most); !ok {
				return 0
			}
		}
	}
	shared := 0.0
	for _, c := range common {
		if c {
			shared++
		}
	}
	precision, recall := shared/different(pred, len(words)), shared/different(gold, len(words))
	return 2 * (precision * recall / (precision + recall + 1e-8))
}

// rougeSentences cuts a text into sentences of numbered words.
func rougeSentences(text string, words map[string]int32) [][]int32 {
	var all [][]int32
	for piece := range strings.SplitSeq(text, ".") {
		if piece == "" {
			continue
		}
		list := Fields(piece)
		if len(list) == 0 {
			list = []string{""}
		}
		sentence := make([]int32, len(list))
		for i, w := range list {
			id, ok := words[w]
			if !ok {
				id = int32(len(words))
				words[w] = id
			}
			sentence[i] = id
		}
		all = append(all, sentence)
	}
	return all
}

// different counts the different words of sentences.
func different(sentences [][]int32, words int) float64 {
	seen := make([]bool, words)
	n := 0.0
	for _, s := range sentences {
		for _, w := range s {
			if !seen[w] {
				seen[w] = true
				n++
			}
		}
	}
	return n
}

// markCommon marks the words of a longest common subsequence: among several the
// one that a walk from the end finds which goes up where that is longer, and left
// where it is not. It returns the table for reuse, and false where the walk takes
// more than most steps.
func markCommon(common []bool, x, y []int32, table []int32, most int) ([]int32, bool) {
	width := len(y) + 1
	table = slices.Grow(table[:0], (len(x)+1)*width)[:(len(x)+1)*width]
	clear(table[:width])
	for i, a := range x {
		above, row := table[i*width:(i+1)*width], table[(i+1)*width:(i+2)*width]
		row[0] = 0
		for j, b := range y {
			if a == b {
				row[j+1] = above[j] + 1
			} else {
				row[j+1] = max(above[j+1], row[j])
			}
		}
	}
	steps := 0
	for i, j := len(x), len(y); i > 0 && j > 0; steps++ {
		if most > 0 && steps >= most {
			return table, false
		}
		switch {
		case x[i-1] == y[j-1]:
			common[x[i-1]] = true
			i, j = i-1, j-1
		case table[(i-1)*width+j] > table[i*width+j-1]:
			i--
		default:
			j--
		}
	}
	return table, true
}
