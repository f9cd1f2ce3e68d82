package grammar

import (
	"sync"
	"unicode/utf8"
)

// lexeme is an automaton over bytes for a JSON string, without its opening quote, or for a
// number or a name. It is made of an automaton over characters as far as anybody asks; state 0
// is the start. From every state some bytes lead to its end.
type lexeme struct {
	chars  *chars
	quoted bool // a string: its characters may be escaped, and a quote ends it
	ids    map[place]int32
	states []lexState
}

// place is a state of a lexeme: a state of the automaton over characters, and what there is of
// the next character.
type place struct {
	at   int32 // state of chars; where of is known, the state behind the character
	part part
	left uint8 // continuation bytes or digits that are missing
	size uint8 // bytes of the character in UTF-8, for utf8Tail
	// val is the bits of the character so far. It is known where every character that they can
	// become leads to the same state, and then no longer kept.
	val   uint32
	known bool
}

// part is how a character is being written.
type part uint8

const (
	between   part = iota
	utf8Tail       // continuation bytes of UTF-8
	backslash      // what follows a backslash
	hex            // digits of \uXXXX
	lowSlash       // the backslash behind the first half of a surrogate pair, which val holds
	lowU           // its u
	lowHex         // digits of the second half; val holds the first one above 16 bits
)

// lexState is a place with the bytes that lead on from it.
type lexState struct {
	place
	dense *[256]int32 // a step for each byte, 0 where it is not known yet; nil for few
	few   []fewStep   // steps that are known
}

type fewStep struct {
	b  byte
	to int32
}

// Steps of a lexeme: a state plus one, noStep, or less for the end with a label.
const (
	noStep  = -1
	endStep = -2 // minus the label
)

func newLexeme(c *chars, quoted bool) *lexeme {
	l := &lexeme{chars: c, quoted: quoted, ids: map[place]int32{}}
	l.id(place{})
	return l
}

// freeText is the lexeme of a string that may be anything. It is whole, so that nobody who reads
// it changes it.
var freeText = sync.OnceValue(func() *lexeme {
	l := newLexeme(anyText(), true)
	for s := 0; s < len(l.states); s++ {
		for b := range 256 {
			l.next(int32(s), byte(b))
		}
	}
	return l
})

// id is the number of a place.
func (l *lexeme) id(p place) int32 {
	id, ok := l.ids[p]
	if !ok {
		id = int32(len(l.states))
		l.ids[p] = id
		s := lexState{place: p}
		if p.part != backslash && (p.part != between || l.chars.wide(p.at)) {
			s.dense = new([256]int32)
		}
		l.states = append(l.states, s)
	}
	return id
}

// label is what a lexeme without quotes accepts in state s, noLabel for nothing.
func (l *lexeme) label(s int32) int32 {
	if l.quoted {
		return noLabel
	}
	return l.chars.label[l.states[s].at]
}

// next is the step from state s over b.
func (l *lexeme) next(s int32, b byte) int32 {
	st := &l.states[s]
	if st.dense != nil {
		if to := st.dense[b]; to != 0 {
			return to
		}
		to := l.step(st.place, b)
		l.states[s].dense[b] = to
		return to
	}
	for _, f := range st.few {
		if f.b == b {
			return f.to
		}
	}
	to := l.step(st.place, b)
	if to != noStep {
		st = &l.states[s]
		st.few = append(st.few, fewStep{b, to})
	}
	return to
}

// step computes next.
func (l *lexeme) step(p place, b byte) int32 {
	switch p.part {
	case between:
		return l.begin(p.at, b)
	case utf8Tail:
		if b&0xC0 != 0x80 {
			return noStep
		}
		return l.reach(p, p.left-1, p.val<<6|uint32(b&0x3F))
	case backslash:
		return l.escape(p.at, b)
	case lowSlash, lowU:
		if b != "\\u"[p.part-lowSlash] {
			return noStep
		}
		p.part++
		if p.part == lowHex {
			p.left, p.val = 4, p.val<<16
		}
		return l.id(p.forget()) + 1
	}
	d, ok := digit(b)
	if !ok || p.part == lowHex && !lowDigit(p.left, d) {
		return noStep
	}
	if p.part == lowHex {
		high := p.val >> 16 << 16
		return l.reach(p, p.left-1, high|(p.val<<4|d)&0xFFFF)
	}
	return l.reach(p, p.left-1, p.val<<4|d)
}

// begin is the step over the first byte of a character.
func (l *lexeme) begin(at int32, b byte) int32 {
	switch {
	case l.quoted && b == '"':
		if label := l.chars.label[at]; label != noLabel {
			return endStep - label
		}
		return noStep
	case l.quoted && b == '\\':
		return l.reachAny(place{at: at, part: backslash})
	case b < ' ' || b >= utf8.RuneSelf && !l.quoted:
		return noStep
	case b < utf8.RuneSelf:
		return l.reach(place{at: at}, 0, uint32(b))
	case 0xC2 <= b && b <= 0xDF:
		return l.reach(place{at: at, part: utf8Tail, size: 2}, 1, uint32(b&0x1F))
	case 0xE0 <= b && b <= 0xEF:
		return l.reach(place{at: at, part: utf8Tail, size: 3}, 2, uint32(b&0x0F))
	case 0xF0 <= b && b <= 0xF4:
		return l.reach(place{at: at, part: utf8Tail, size: 4}, 3, uint32(b&0x07))
	}
	return noStep
}

// reachAny is the step to a place where nothing is known of the character yet.
func (l *lexeme) reachAny(p place) int32 {
	if len(l.chars.edges[p.at]) == 0 {
		return noStep
	}
	return l.id(p) + 1
}

// escape is the step over the byte behind a backslash.
func (l *lexeme) escape(at int32, b byte) int32 {
	switch b {
	case '"', '\\', '/':
		return l.reach(place{at: at}, 0, uint32(b))
	case 'b':
		return l.reach(place{at: at}, 0, '\b')
	case 'f':
		return l.reach(place{at: at}, 0, '\f')
	case 'n':
		return l.reach(place{at: at}, 0, '\n')
	case 'r':
		return l.reach(place{at: at}, 0, '\r')
	case 't':
		return l.reach(place{at: at}, 0, '\t')
	case 'u':
		return l.reachAny(place{at: at, part: hex, left: 4})
	}
	return noStep
}

func digit(b byte) (uint32, bool) {
	switch {
	case '0' <= b && b <= '9':
		return uint32(b - '0'), true
	case 'a' <= b|0x20 && b|0x20 <= 'f':
		return uint32(b|0x20-'a') + 10, true
	}
	return 0, false
}

// lowDigit reports whether d may be the digit of DC00 to DFFF behind which left-1 follow.
func lowDigit(left uint8, d uint32) bool {
	return left < 3 || left == 4 && d == 0xD || left == 3 && d >= 0xC
}

// reach is the step to p with so many bytes or digits left and val as the bits so far: noStep
// where no character that they can become leads on.
func (l *lexeme) reach(p place, left uint8, val uint32) int32 {
	p.left, p.val = left, val
	if p.known {
		return l.arrive(p)
	}
	if p.part == hex && left == 0 && 0xD800 <= val && val <= 0xDBFF {
		p.part = lowSlash
	}
	lo, hi, whole := p.characters()
	if p.part == hex && left > 0 {
		return l.reachHex(p, lo, hi)
	}
	to, some, all := l.chars.reach(p.at, lo, hi)
	switch {
	case lo > hi || !some:
		return noStep
	case all && whole:
		p.at, p.known = to, true
		return l.arrive(p)
	}
	return l.id(p) + 1
}

// reachHex is reach among the digits of \uXXXX, where the halves of surrogate pairs stand for
// characters beyond 16 bits.
func (l *lexeme) reachHex(p place, lo, hi rune) int32 {
	first, last := max(lo, 0xD800), min(hi, 0xDBFF)
	_, pairs, _ := l.chars.reach(p.at, 0x10000+(first-0xD800)<<10, 0x103FF+(last-0xD800)<<10)
	pairs = pairs && first <= last
	to, some, all := l.chars.reach(p.at, lo, hi)
	switch {
	case all && (hi < 0xD800 || lo > 0xDFFF):
		p.at, p.known = to, true
		return l.arrive(p)
	case some || pairs:
		return l.id(p) + 1
	}
	return noStep
}

// arrive is the step to a place that leads to one state whatever comes.
func (l *lexeme) arrive(p place) int32 {
	if p.left == 0 && (p.part == between || p.part == utf8Tail || p.part == hex || p.part == lowHex) {
		return l.id(place{at: p.at}) + 1
	}
	return l.id(p.forget()) + 1
}

// forget drops the bits of a place that is known.
func (p place) forget() place {
	if p.known {
		p.val, p.size = 0, 0
	}
	return p
}

// characters is the characters that p can become, and whether the bytes or digits that are left
// can have all their values.
func (p place) characters() (lo, hi rune, whole bool) {
	switch p.part {
	case utf8Tail:
		lo, hi = rune(p.val<<(6*p.left)), rune((p.val+1)<<(6*p.left)-1)
		low, high := max(lo, [...]rune{0, 0x80, 0x800, 0x10000}[p.size-1]), min(hi, utf8.MaxRune)
		return low, high, low == lo && high == hi && (hi < 0xD800 || lo > 0xDFFF)
	case hex:
		lo, hi = rune(p.val<<(4*p.left)), rune((p.val+1)<<(4*p.left)-1)
		return lo, hi, true
	case lowSlash, lowU:
		lo = 0x10000 + rune(p.val-0xD800)<<10
		return lo, lo + 0x3FF, true
	case lowHex:
		low := p.val & 0xFFFF << (4 * p.left) & 0x3FF
		if p.left >= 3 {
			low = 0
		}
		lo = 0x10000 + rune(p.val>>16-0xD800)<<10 + rune(low)
		return lo, lo + min(rune(1)<<(4*p.left), 0x400) - 1, true
	}
	return rune(p.val), rune(p.val), true
}
