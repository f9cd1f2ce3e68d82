package lineedit

import (
	"slices"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
)

// buffer is the text of an entry and the place of the cursor in it.
type buffer struct {
	text   []rune
	at     int // characters before the cursor
	killed []rune
}

// set replaces the text; the cursor goes to its end.
func (b *buffer) set(text string) {
	b.text = []rune(text)
	b.at = len(b.text)
}

// insert puts text before the cursor.
func (b *buffer) insert(text []rune) {
	b.text = slices.Insert(b.text, b.at, text...)
	b.at += len(text)
}

// lineStart is where the line of the cursor begins.
func (b *buffer) lineStart() int {
	i := b.at
	for i > 0 && b.text[i-1] != '\n' {
		i--
	}
	return i
}

// lineEnd is where the line of the cursor ends.
func (b *buffer) lineEnd() int {
	i := b.at
	for i < len(b.text) && b.text[i] != '\n' {
		i++
	}
	return i
}

// before is where the character before the cursor begins, as people count them: a
// letter with its accents and an emoji of several code points are one.
func (b *buffer) before() int {
	if b.at == 0 {
		return 0
	}
	start := b.lineStart()
	if start == b.at {
		return b.at - 1 // an end of line
	}
	if last := b.text[b.at-1]; last < 0x80 {
		return b.at - 1
	}
	i := start
	for {
		n := clusterLen(b.text[i:b.at])
		if i+n >= b.at {
			return i
		}
		i += n
	}
}

// after is where the character behind the cursor ends.
func (b *buffer) after() int {
	if b.at == len(b.text) {
		return b.at
	}
	return b.at + clusterLen(b.text[b.at:])
}

// longestCluster bounds the code points that are looked at for one character.
const longestCluster = 64

// clusterLen is the code points of the first character of text, which is not empty.
func clusterLen(text []rune) int {
	if text[0] < 0x80 && (len(text) == 1 || text[1] < 0x80) {
		return 1
	}
	for most := 8; ; most *= 8 {
		some := text[:min(len(text), most)]
		cluster, rest, _, _ := uniseg.FirstGraphemeClusterInString(string(some), -1)
		if rest != "" || len(some) == len(text) || most >= longestCluster {
			return utf8.RuneCountInString(cluster)
		}
	}
}

// isWord reports whether words are made of c.
func isWord(c rune) bool { return unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c) }

// isNoSpace reports whether c belongs to what Ctrl-W takes at once.
func isNoSpace(c rune) bool { return !unicode.IsSpace(c) }

// leftOf is where the run of characters before the cursor begins, with what separates
// it from the cursor.
func (b *buffer) leftOf(in func(rune) bool) int {
	i := b.at
	for i > 0 && !in(b.text[i-1]) {
		i--
	}
	for i > 0 && in(b.text[i-1]) {
		i--
	}
	return i
}

// rightOf is where the next word ends.
func (b *buffer) rightOf(in func(rune) bool) int {
	i := b.at
	for i < len(b.text) && !in(b.text[i]) {
		i++
	}
	for i < len(b.text) && in(b.text[i]) {
		i++
	}
	return i
}

// remove takes the characters from one place to another out.
func (b *buffer) remove(from, to int) {
	b.text = slices.Delete(b.text, from, to)
	b.at = from
}

// kill is remove for what yank puts back.
func (b *buffer) kill(from, to int) {
	if from < to {
		b.killed = slices.Clone(b.text[from:to])
		b.remove(from, to)
	}
}

// killEnd kills the rest of the line, or its end where nothing else is left.
func (b *buffer) killEnd() {
	end := b.lineEnd()
	if end == b.at && end < len(b.text) {
		end++
	}
	b.kill(b.at, end)
}

// transpose swaps the two characters around the cursor, or before it at the end of a
// line.
func (b *buffer) transpose() {
	at := min(b.at, b.lineEnd()-1)
	if at <= b.lineStart() {
		return
	}
	b.text[at-1], b.text[at] = b.text[at], b.text[at-1]
	b.at = at + 1
}

// edit does what a key does to the text, and reports whether it does anything.
func (b *buffer) edit(k key) bool {
	switch k.kind {
	case keyText, keyPaste:
		b.insert([]rune(k.text))
	case keyNewline:
		b.insert([]rune{'\n'})
	case keyBackspace:
		b.remove(b.before(), b.at)
	case keyDelete, keyEndOfInput:
		b.remove(b.at, b.after())
	case keyKillEnd:
		b.killEnd()
	case keyKillStart:
		b.kill(b.lineStart(), b.at)
	case keyKillWordLeft:
		b.kill(b.leftOf(isWord), b.at)
	case keyKillSpaceLeft:
		b.kill(b.leftOf(isNoSpace), b.at)
	case keyKillWordRight:
		b.kill(b.at, b.rightOf(isWord))
	case keyYank:
		b.insert(b.killed)
	case keyTranspose:
		b.transpose()
	default:
		return b.move(k.kind)
	}
	return true
}

// move does what a key does to the cursor, and reports whether it does anything.
func (b *buffer) move(k kind) bool {
	switch k {
	case keyLeft:
		b.at = b.before()
	case keyRight:
		b.at = b.after()
	case keyHome:
		b.at = b.lineStart()
	case keyEnd:
		b.at = b.lineEnd()
	case keyTop:
		b.at = 0
	case keyBottom:
		b.at = len(b.text)
	case keyWordLeft:
		b.at = b.leftOf(isWord)
	case keyWordRight:
		b.at = b.rightOf(isWord)
	default:
		return false
	}
	return true
}
