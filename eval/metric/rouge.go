package metric

import (
	"fmt"
	"math"
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
//
// It is an error where that takes more than some seconds or all memory.
func RougeL(answer, reference string, most int) (float64, error) {
	if err := checkSize(answer, reference); err != nil {
		return 0, err
	}
	words := map[string]int32{}
	gold, pred := rougeSentences(reference, words), rougeSentences(answer, words)
	if len(gold) == 0 || len(pred) == 0 {
		return 0, nil
	}
	// A walk takes as many steps as the shorter sentence has words, or more.
	if most > 0 && min(longestSentence(gold), longestSentence(pred)) > most {
		return 0, nil
	}
	if x, y := countWords(gold), countWords(pred); x*y > maxWork {
		return 0, fmt.Errorf("metric: an answer of %d words and a reference of %d: comparing all pairs takes too long, want %d pairs at most", y, x, maxWork)
	}
	c := commonWords{marked: make([]bool, len(words)), cells: tableCells}
	for _, x := range gold {
		for _, y := range pred {
			if !c.mark(x, y, most) {
				return 0, nil
			}
		}
	}
	shared := 0.0
	for _, m := range c.marked {
		if m {
			shared++
		}
	}
	precision, recall := shared/different(pred, len(words)), shared/different(gold, len(words))
	return 2 * (precision * recall / (precision + recall + 1e-8)), nil
}

// What is compared at most: nothing that a model writes comes near.
const (
	maxBytes = 1 << 22 // of a text
	maxWork  = 1 << 30 // pairs of words or characters, some seconds
)

// checkSize refuses texts that no sample has.
func checkSize(answer, reference string) error {
	if n, m := len(answer), len(reference); max(n, m) > maxBytes {
		return fmt.Errorf("metric: an answer of %d bytes and a reference of %d, want %d bytes at most", n, m, maxBytes)
	}
	return nil
}

// longestSentence is the most words of a sentence.
func longestSentence(sentences [][]int32) int {
	n := 0
	for _, s := range sentences {
		n = max(n, len(s))
	}
	return n
}

// countWords is the words of all sentences.
func countWords(sentences [][]int32) int {
	n := 0
	for _, s := range sentences {
		n += len(s)
	}
	return n
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

// tableCells is how large a table of lengths may be to be kept in whole.
const tableCells = 1 << 20

// commonWords marks the words of longest common subsequences. The table of their
// lengths has a row for each word of one sentence; where it is large only some
// rows of it are kept, and the walk through it makes the others again, block by
// block.
type commonWords struct {
	marked []bool // by number of the word
	cells  int    // a table of so many is kept in whole

	kept  []int32 // every stride-th row, the first is 0
	block []int32 // stride rows and the one above them
	two   []int32 // scratch: two rows
}

// mark marks the words of a longest common subsequence of x and y: among several
// the one that a walk from the end finds which goes up where that is longer, and
// left where it is not. It returns false where the walk takes more than most
// steps.
func (c *commonWords) mark(x, y []int32, most int) bool {
	width, stride := len(y)+1, len(x)
	if (len(x)+1)*width > c.cells {
		stride = int(math.Ceil(math.Sqrt(float64(len(x)))))
	}
	c.keep(x, y, stride)
	at := -1 // number of the block that is made
	for i, j, steps := len(x), len(y), 0; i > 0 && j > 0; steps++ {
		if most > 0 && steps >= most {
			return false
		}
		if b := (i - 1) / stride; b != at {
			c.fill(x, y, b, stride)
			at = b
		}
		row := c.block[(i-at*stride)*width:]
		above := c.block[(i-1-at*stride)*width:]
		switch {
		case x[i-1] == y[j-1]:
			c.marked[x[i-1]] = true
			i, j = i-1, j-1
		case above[j] > row[j-1]:
			i--
		default:
			j--
		}
	}
	return true
}

// keep makes every stride-th row of the table but for the last block, which the
// walk makes first.
func (c *commonWords) keep(x, y []int32, stride int) {
	width := len(y) + 1
	blocks := (len(x) + stride - 1) / stride
	c.kept = slices.Grow(c.kept[:0], blocks*width)[:blocks*width]
	clear(c.kept[:width])
	if blocks == 1 {
		return
	}
	c.two = slices.Grow(c.two[:0], 2*width)[:2*width]
	above, row := c.two[:width], c.two[width:]
	clear(above)
	for i := range (blocks - 1) * stride {
		lengthsRow(row, above, x[i], y)
		if (i+1)%stride == 0 {
			copy(c.kept[(i+1)/stride*width:], row)
		}
		above, row = row, above
	}
}

// fill makes the rows of block number b.
func (c *commonWords) fill(x, y []int32, b, stride int) {
	width := len(y) + 1
	from, to := b*stride, min((b+1)*stride, len(x))
	n := (to - from + 1) * width
	c.block = slices.Grow(c.block[:0], n)[:n]
	copy(c.block, c.kept[b*width:(b+1)*width])
	for i := from; i < to; i++ {
		at := (i - from) * width
		lengthsRow(c.block[at+width:at+2*width], c.block[at:at+width], x[i], y)
	}
}

// lengthsRow makes a row of the table from the one above: the lengths of common
// subsequences of what ends with word a and of the beginnings of y.
func lengthsRow(row, above []int32, a int32, y []int32) {
	row[0] = 0
	for j, b := range y {
		if a == b {
			row[j+1] = above[j] + 1
		} else {
			row[j+1] = max(above[j+1], row[j])
		}
	}
}
