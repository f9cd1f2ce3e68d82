package tokenizer

import (
	"sort"
	"unicode"
	"unicode/utf8"
)

// preTokenizer cuts text into the words whose bytes are merged.
type preTokenizer struct {
	split      func(text string, emit func(word string))
	wholeWords bool // a word that is a token is that token, whatever the merges say
	addBOS     bool // default of add_bos_token
}

// preTokenizers has one entry for each supported value of tokenizer.ggml.pre.
var preTokenizers = map[string]preTokenizer{
	"":          {split: splitDefault},
	"default":   {split: splitDefault},
	"gpt-2":     {split: splitGPT2},
	"llama-bpe": {split: splitLlama3, wholeWords: true, addBOS: true},
	"llama3":    {split: splitLlama3, wholeWords: true, addBOS: true},
	"llama-v3":  {split: splitLlama3, wholeWords: true, addBOS: true},
	"smaug-bpe": {split: splitLlama3},
	"tekken":    {split: splitTekken, wholeWords: true, addBOS: true},

	"qwen2":            {split: splitQwen2}, // of Qwen3 too
	"deepseek-r1-qwen": {split: splitQwen2},
	"smollm":           {split: splitSmolLM},
}

// PreTokenizers returns the supported values of [Vocab.Pre], sorted.
func PreTokenizers() []string {
	var names []string
	for name := range preTokenizers {
		if name != "" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// class is a set of character classes, as bits.
type class uint8

const (
	letter  class = 1 << iota // \p{L}
	number                    // \p{N}
	space                     // \s
	newline                   // [\r\n]
	upper                     // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                     // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	punct                     // [\p{P}$+<=>^~|]
)

// ascii has the classes of the first 128 characters.
var ascii = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = classify(rune(r))
	}
	return t
}()

// classify looks a character up in the Unicode tables.
func classify(r rune) class {
	var c class
	switch {
	case unicode.IsLetter(r) || 0x2EBF0 <= r && r <= 0x2EE5D: // the range is new in Unicode 15.1
		c = letter | letterCase(r)
	case unicode.IsNumber(r):
		c = number
	case unicode.IsSpace(r):
		c = space
		if r == '\r' || r == '\n' {
			c |= newline
		}
	case unicode.IsMark(r):
		c = upper | lower
	case unicode.IsPunct(r) || r < utf8.RuneSelf && isPunctSymbol(byte(r)):
		c = punct
	}
	return c
}

func letterCase(r rune) class {
	switch {
	case unicode.IsUpper(r) || unicode.IsTitle(r):
		return upper
	case unicode.IsLower(r):
		return lower
	}
	return upper | lower
}

func isPunctSymbol(b byte) bool {
	switch b {
	case '$', '+', '<', '=', '>', '^', '~', '|':
		return true
	}
	return false
}

// classAt returns the classes of the character at text[i:] and its length; 0 and 0
// at the end. A stray byte is a character of no class.
func classAt(text string, i int) (class, int) {
	if i >= len(text) {
		return 0, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return ascii[b], 1
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	return classify(r), n
}

// skip returns the end of the run of characters of any of the classes from i on.
func skip(text string, i int, any class) int {
	for {
		c, n := classAt(text, i)
		if c&any == 0 {
			return i
		}
		i += n
	}
}

// skipNot returns the end of the run of characters of none of the classes.
func skipNot(text string, i int, any class) int {
	for {
		c, n := classAt(text, i)
		if n == 0 || c&any != 0 {
			return i
		}
		i += n
	}
}

// words calls emit for each word, next giving the length of the first.
func words(text string, emit func(string), next func(string) int) {
	for len(text) > 0 {
		n := next(text)
		emit(text[:n])
		text = text[n:]
	}
}

// splitLlama3 cuts by the pattern of Llama-3,
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
//	 ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// where only ASCII letters count as equal to their other case.
func splitLlama3(text string, emit func(string)) {
	words(text, emit, func(text string) int { return wordLlama3(text, 3) })
}

// splitQwen2 cuts by the pattern of Qwen2, which is Llama-3's with \p{N} for \p{N}{1,3}.
func splitQwen2(text string, emit func(string)) {
	words(text, emit, func(text string) int { return wordLlama3(text, 1) })
}

// wordLlama3 is the length of the first word; one of numbers has at most maxDigits.
func wordLlama3(text string, maxDigits int) int {
	if n := contraction(text, 'a'-'A'); n > 0 {
		return n
	}
	c, n := classAt(text, 0)
	if c&letter != 0 {
		return skip(text, n, letter)
	}
	if c&number != 0 {
		return digits(text, maxDigits)
	}
	if c&newline == 0 {
		if end := skip(text, n, letter); end > n {
			return end
		}
	}
	if end := symbols(text); end > 0 {
		return skip(text, end, newline)
	}
	return lines(text)
}

// splitTekken cuts by the pattern of Mistral's tekken,
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|
//	\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
func splitTekken(text string, emit func(string)) { words(text, emit, wordTekken) }

func wordTekken(text string) int {
	c, n := classAt(text, 0)
	if c&number != 0 {
		return n
	}
	if c&newline == 0 {
		for _, match := range []func(string, int) int{lowerWord, upperWord} {
			if end := match(text, n); end > n && c&letter == 0 {
				return end
			}
			if end := match(text, 0); end > 0 {
				return end
			}
		}
	}
	if end := symbols(text); end > 0 {
		for end < len(text) && (text[end] == '\r' || text[end] == '\n' || text[end] == '/') {
			end++
		}
		return end
	}
	return lines(text)
}

// lowerWord returns the end of upper*lower+ from i on, i when it does not match.
// Marks and letters without case are both upper and lower, so upper* gives back what
// lower+ needs.
func lowerWord(text string, i int) int {
	end, lastBoth := i, i // lastBoth: end of the last character that is both
	for {
		c, n := classAt(text, end)
		if c&upper == 0 {
			break
		}
		end += n
		if c&lower != 0 {
			lastBoth = end
		}
	}
	if low := skip(text, end, lower); low > end {
		return low
	}
	return lastBoth
}

// upperWord returns the end of upper+lower* from i on, i when it does not match.
func upperWord(text string, i int) int {
	end := skip(text, i, upper)
	if end == i {
		return i
	}
	return skip(text, end, lower)
}

// splitGPT2 cuts by the pattern of GPT-2,
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
func splitGPT2(text string, emit func(string)) { words(text, emit, wordGPT2) }

func wordGPT2(text string) int {
	if n := contraction(text, 0); n > 0 {
		return n
	}
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	c, n := classAt(text, start)
	switch {
	case c&letter != 0:
		return skip(text, start+n, letter)
	case c&number != 0:
		return skip(text, start+n, number)
	}
	if end := symbols(text); end > 0 {
		return end
	}
	return spaces(text)
}

// splitSmolLM cuts each number out, and what is between by the pattern of GPT-2.
func splitSmolLM(text string, emit func(string)) {
	for len(text) > 0 {
		c, end := classAt(text, 0)
		if c&number != 0 {
			emit(text[:end])
		} else {
			end = skipNot(text, 0, number)
			splitGPT2(text[:end], emit)
		}
		text = text[end:]
	}
}

// splitDefault cuts as files without a known pre-tokenizer are cut: runs of
// punctuation first, what is between by the pattern of GPT-2, then runs of numbers
// and each three ASCII digits. A later pattern sees no character beyond the piece
// that an earlier one made.
func splitDefault(text string, emit func(string)) {
	for len(text) > 0 {
		end := skip(text, 0, punct)
		if end > 0 {
			emit(text[:end])
		} else {
			end = skipNot(text, 0, punct)
			splitGPT2(text[:end], func(word string) { splitNumbers(word, emit) })
		}
		text = text[end:]
	}
}

// splitNumbers cuts word into runs of numbers and of others.
func splitNumbers(word string, emit func(string)) {
	for len(word) > 0 {
		end := skip(word, 0, number)
		if end > 0 {
			splitThrees(word[:end], emit)
		} else {
			end = skipNot(word, 0, number)
			emit(word[:end])
		}
		word = word[end:]
	}
}

// splitThrees cuts each three ASCII digits out of a run of numbers, leftmost first.
func splitThrees(run string, emit func(string)) {
	rest := 0 // start of what no three digits cover
	for i := 0; i+3 <= len(run); {
		if !isDigit(run[i]) || !isDigit(run[i+1]) || !isDigit(run[i+2]) {
			i++
			continue
		}
		if rest < i {
			emit(run[rest:i])
		}
		emit(run[i : i+3])
		i += 3
		rest = i
	}
	if rest < len(run) {
		emit(run[rest:])
	}
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

// contraction returns the length of one of 's 't 'm 'd 're 've 'll at the start of
// text, 0 when there is none. fold is the bit that upper and lower case differ by,
// or 0 when only lower case counts.
func contraction(text string, fold byte) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	a := text[1] | fold
	if a == 's' || a == 't' || a == 'm' || a == 'd' {
		return 2
	}
	if len(text) < 3 {
		return 0
	}
	b := text[2] | fold
	if a == 'r' && b == 'e' || a == 'v' && b == 'e' || a == 'l' && b == 'l' {
		return 3
	}
	return 0
}

// digits returns the end of at most n numbers.
func digits(text string, n int) int {
	end := 0
	for ; n > 0; n-- {
		c, size := classAt(text, end)
		if c&number == 0 {
			break
		}
		end += size
	}
	return end
}

// symbols returns the end of " ?[^\s\p{L}\p{N}]+", 0 when it does not match.
func symbols(text string) int {
	start := 0
	if text[0] == ' ' {
		start = 1
	}
	if end := skipNot(text, start, space|letter|number); end > start {
		return end
	}
	return 0
}

// lines returns the end of "\s*[\r\n]+|\s+(?!\S)|\s+": up to the last line end of
// the run of spaces, else what spaces returns.
func lines(text string) int {
	lineEnd := 0
	for end := 0; ; {
		c, n := classAt(text, end)
		if c&space == 0 {
			break
		}
		end += n
		if c&newline != 0 {
			lineEnd = end
		}
	}
	if lineEnd > 0 {
		return lineEnd
	}
	return spaces(text)
}

// spaces returns the end of "\s+(?!\S)|\s+": the run of spaces, without its last
// character when another word follows. A character that is no space, and that
// nothing else matched, is a word of its own.
func spaces(text string) int {
	end, last := 0, 0
	for {
		c, n := classAt(text, end)
		if c&space == 0 {
			break
		}
		last = end
		end += n
	}
	switch {
	case end == 0:
		_, n := classAt(text, 0)
		return n
	case end < len(text) && last > 0:
		return last
	}
	return end
}
