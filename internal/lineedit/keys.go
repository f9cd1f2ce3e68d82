package lineedit

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// kind is what a key does.
type kind int

// The keys.
const (
	keyNone kind = iota // nothing: a key that has no meaning here
	keyText             // characters
	keyPaste
	keyEnter
	keyNewline
	keyTab
	keyLeft
	keyRight
	keyUp
	keyDown
	keyHome
	keyEnd
	keyTop
	keyBottom
	keyWordLeft
	keyWordRight
	keyPrevious
	keyNext
	keyBackspace
	keyDelete
	keyKillEnd
	keyKillStart
	keyKillWordLeft
	keyKillSpaceLeft
	keyKillWordRight
	keyYank
	keyTranspose
	keyClear
	keyEndOfInput // Ctrl-D, which deletes where there is text
)

// key is a key that was pressed; text is that of keyText and keyPaste.
type key struct {
	kind kind
	text string
}

// controls are the keys of one byte.
var controls = map[byte]kind{
	0x01: keyHome, 0x02: keyLeft, 0x04: keyEndOfInput, 0x05: keyEnd, 0x06: keyRight, 0x08: keyBackspace, '\t': keyTab, '\n': keyEnter,
	0x0b: keyKillEnd, 0x0c: keyClear, '\r': keyEnter, 0x0e: keyNext, 0x10: keyPrevious, 0x14: keyTranspose, 0x15: keyKillStart,
	0x17: keyKillSpaceLeft, 0x19: keyYank, 0x7f: keyBackspace,
}

// metas are the keys of escape and a byte, which Alt sends.
var metas = map[byte]kind{
	'b': keyWordLeft, 'f': keyWordRight, 'd': keyKillWordRight, 0x7f: keyKillWordLeft, 0x08: keyKillWordLeft,
	'\r': keyNewline, '\n': keyNewline, '<': keyTop, '>': keyBottom,
}

// sequences are the keys of escape, [ or O, and these bytes.
var sequences = map[string]kind{
	"A": keyUp, "B": keyDown, "C": keyRight, "D": keyLeft, "H": keyHome, "F": keyEnd,
	"1~": keyHome, "7~": keyHome, "4~": keyEnd, "8~": keyEnd, "3~": keyDelete,
	"1;5C": keyWordRight, "1;5D": keyWordLeft, "1;3C": keyWordRight, "1;3D": keyWordLeft, "5C": keyWordRight, "5D": keyWordLeft,
	"1;5H": keyTop, "1;5F": keyBottom, "3;5~": keyKillWordRight, "3;3~": keyKillWordRight,
	"13;2u": keyNewline, "13;3u": keyNewline, "27;2;13~": keyNewline, "27;3;13~": keyNewline, // Enter with Shift or Alt
}

// What a terminal puts around a paste.
const (
	pasteBegin = "200~"
	pasteEnd   = "\x1b[201~"
)

// longestSequence bounds the bytes of an escape sequence: what is longer is none.
const longestSequence = 32

// decoder makes keys of the bytes that a terminal sends.
type decoder struct {
	buf     []byte
	pasting bool
	pasted  []byte
}

// feed adds bytes.
func (d *decoder) feed(b []byte) { d.buf = append(d.buf, b...) }

// drop forgets what was not read.
func (d *decoder) drop() { *d = decoder{} }

// next is the next key; false where its bytes are not there yet.
func (d *decoder) next() (key, bool) {
	switch {
	case d.pasting:
		return d.paste()
	case len(d.buf) == 0:
		return key{}, false
	case d.buf[0] == 0x1b:
		return d.escape()
	case isControl(d.buf[0]):
		return d.take(1, controls[d.buf[0]])
	}
	return d.characters()
}

// isControl reports whether a byte is a key by itself.
func isControl(b byte) bool { return b < ' ' || b == 0x7f }

// take is the key of the first n bytes.
func (d *decoder) take(n int, k kind) (key, bool) {
	d.buf = d.buf[n:]
	return key{kind: k}, true
}

// characters are those up to the next control, so that what comes at once is inserted
// at once.
func (d *decoder) characters() (key, bool) {
	n := 0
	for n < len(d.buf) && !isControl(d.buf[n]) && utf8.FullRune(d.buf[n:]) {
		_, size := utf8.DecodeRune(d.buf[n:])
		n += size
	}
	if n == 0 {
		return key{}, false
	}
	text := strings.ToValidUTF8(string(d.buf[:n]), string(utf8.RuneError))
	d.buf = d.buf[n:]
	return key{kind: keyText, text: text}, true
}

// escape is a key that begins with an escape character.
func (d *decoder) escape() (key, bool) {
	if len(d.buf) < 2 {
		return key{}, false
	}
	switch c := d.buf[1]; c {
	case '[', 'O':
		return d.sequence()
	case 0x1b:
		return d.take(1, keyNone) // the second one begins the key
	default:
		if c >= utf8.RuneSelf {
			return d.take(1, keyNone) // the character comes next
		}
		return d.take(2, metas[c])
	}
}

// sequence is a key of several bytes, the last one a letter or ~.
func (d *decoder) sequence() (key, bool) {
	for n := 2; n < len(d.buf); n++ {
		c := d.buf[n]
		if n >= longestSequence || c < ' ' {
			return d.take(n, keyNone)
		}
		if c < '@' {
			continue
		}
		name := string(d.buf[2 : n+1])
		if name == pasteBegin {
			d.buf, d.pasting = d.buf[n+1:], true
			return d.paste()
		}
		return d.take(n+1, sequences[name])
	}
	return key{}, false
}

// paste is the text up to the end of a paste, with the ends of lines of Unix.
func (d *decoder) paste() (key, bool) {
	i := bytes.Index(d.buf, []byte(pasteEnd))
	if i < 0 {
		keep := min(len(d.buf), len(pasteEnd)-1) // which may be the beginning of the end
		d.pasted = append(d.pasted, d.buf[:len(d.buf)-keep]...)
		d.buf = append([]byte(nil), d.buf[len(d.buf)-keep:]...)
		return key{}, false
	}
	text := strings.ToValidUTF8(string(append(d.pasted, d.buf[:i]...)), string(utf8.RuneError))
	d.buf, d.pasting, d.pasted = d.buf[i+len(pasteEnd):], false, nil
	return key{kind: keyPaste, text: strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)}, true
}
