package longbench

import (
	"regexp"
	"strings"
)

var (
	// splitText is a run of characters that words are made of.
	splitText = regexp.MustCompile(`[\x{4E00}-\x{9FD5}a-zA-Z0-9+#&._%\-]+`)
	// splitHan is a run of Chinese characters.
	splitHan = regexp.MustCompile(`[\x{4E00}-\x{9FD5}]+`)
	// splitLatin is a word or a number among what is no Chinese.
	splitLatin = regexp.MustCompile(`[a-zA-Z0-9]+(?:\.[0-9]+)?%?`)
)

// pieces calls inside for the matches of a pattern in a text, and outside for what is
// between them, in order, without the empty ones.
func pieces(text string, pattern *regexp.Regexp, inside, outside func(piece string)) {
	at := 0
	for _, m := range pattern.FindAllStringIndex(text, -1) {
		if at < m[0] {
			outside(text[at:m[0]])
		}
		inside(text[m[0]:m[1]])
		at = m[1]
	}
	if at < len(text) {
		outside(text[at:])
	}
}

// Split splits a text into words; all of it is in one of them.
func (s *Splitter) Split(text string) []string {
	var words []string
	pieces(text, splitText, func(piece string) { words = s.along(words, piece) }, func(piece string) {
		for len(piece) > 0 {
			n := 2
			if !strings.HasPrefix(piece, "\r\n") { // which is one
				for n = 1; n < len(piece) && piece[n]&0xc0 == 0x80; n++ {
				}
			}
			words, piece = append(words, piece[:n]), piece[n:]
		}
	})
	return words
}

// along appends the words of the likeliest path through the dictionary. Single
// characters that follow each other are split again: the dictionary may not know their
// word.
func (s *Splitter) along(words []string, text string) []string {
	ends := s.path(text)
	single := 0 // where the single characters begin
	flush := func(end int) {
		part := text[single:end]
		if part == "" {
			return
		}
		if x, ok := s.logs[part]; ok && x == x || len([]rune(part)) == 1 {
			words = append(words, strings.Split(part, "")...)
			return
		}
		pieces(part, splitHan, func(han string) { words = s.tagged(words, []rune(han)) }, func(rest string) {
			keep := func(piece string) { words = append(words, piece) }
			pieces(rest, splitLatin, keep, keep)
		})
	}
	for at := 0; at < len(text); {
		end := ends[at]
		if len([]rune(text[at:end])) > 1 {
			flush(at)
			words = append(words, text[at:end])
			single = end
		}
		at = end
	}
	flush(len(text))
	return words
}

// path is where the word that begins at each character of the likeliest path ends: the
// longest among equals. What the dictionary does not have is a character by itself.
func (s *Splitter) path(text string) []int {
	ends, best := make([]int, len(text)), make([]float64, len(text)+1)
	var starts []int
	for i := range text {
		starts = append(starts, i)
	}
	starts = append(starts, len(text))
	for k := len(starts) - 2; k >= 0; k-- {
		from, found := starts[k], false
		for _, to := range starts[k+1:] {
			x, ok := s.logs[text[from:to]]
			if !ok {
				break
			}
			if x != x { // only words begin with it
				continue
			}
			if x += best[to]; !found || x >= best[from] {
				ends[from], best[from], found = to, x, true
			}
		}
		if !found {
			to := starts[k+1]
			ends[from], best[from] = to, s.once+best[to]
		}
	}
	return ends
}

// before is the tags that may stand before each.
var before = [tags][]int{
	{1, 3}, // begin: end, single
	{0, 2}, // end: begin, middle
	{0, 2}, // middle: begin, middle
	{1, 3}, // single: end, single
}

// tagged appends the words of the likeliest tags, the last by its letter among equals.
func (s *Splitter) tagged(words []string, text []rune) []string {
	emitted := func(tag int, c rune) float64 {
		if x, ok := s.emit[tag][c]; ok {
			return x
		}
		return unlikely
	}
	var score [tags]float64
	from := make([][tags]int, len(text))
	for tag := range score {
		score[tag] = s.start[tag] + emitted(tag, text[0])
	}
	for i, c := range text[1:] {
		var next [tags]float64
		for tag := range next {
			e := emitted(tag, c)
			for k, old := range before[tag] {
				if x := score[old] + s.trans[old][tag] + e; k == 0 || x >= next[tag] {
					next[tag], from[i+1][tag] = x, old
				}
			}
		}
		score = next
	}
	const end, single = 1, 3
	tag := end
	if score[single] >= score[end] {
		tag = single
	}
	cuts := make([]bool, len(text)) // after a character
	for i := len(text) - 1; i >= 0; i-- {
		cuts[i] = tag == end || tag == single
		tag = from[i][tag]
	}
	start := 0
	for i := range text {
		if cuts[i] {
			words = append(words, string(text[start:i+1]))
			start = i + 1
		}
	}
	return words
}
