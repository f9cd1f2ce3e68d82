package openai

import (
	"encoding/json"
	"strings"

	"github.com/gollm/gollm/tokenizer/chat"
)

// callParser finds the calls of functions in the text of an answer while it is written.
type callParser struct {
	format *chat.CallFormat
	knows  func(name string) bool
	newID  func() string

	held  string // not decided yet
	space string // white space that belongs to text only if more of it follows
	state parserState
	list  bool        // inside a list of calls
	raw   string      // of the call, while it may turn out to be text
	obj   *callObject // of the call; nil before it begins
	calls int         // that have begun

	text   strings.Builder // what became final
	deltas []callDelta
}

// parserState is where in an answer a callParser is.
type parserState int

// The states.
const (
	seekCall parserState = iota // text, unless a call begins
	readCall
	closeCall // behind a call
	plainText // there is no call any more
)

// callDelta is a part of a call; the first one has id and name.
type callDelta struct {
	index     int
	id, name  string
	arguments string
}

// whiteSpace is that of JSON.
const whiteSpace = " \n\r\t"

// newParser makes a parser of an answer, which a forced call begins.
func (t *toolset) newParser() *callParser {
	p := &callParser{
		format: t.format,
		knows: func(name string) bool {
			for _, f := range t.tools {
				if f.Name == name {
					return true
				}
			}
			return false
		},
		newID: func() string { return newID("call_") },
	}
	if t.format.ShortIDs {
		p.newID = func() string { return newID("")[:9] }
	}
	p.held = t.opening()
	return p
}

// write goes on with text, and returns what is final: text, and parts of calls.
func (p *callParser) write(text string) (string, []callDelta) {
	p.held += text
	for p.step() {
	}
	return p.take()
}

// end ends the answer.
func (p *callParser) end() (string, []callDelta) {
	behind := p.list && p.obj == nil && p.calls > 0 // a call of a list
	if p.state == readCall && !behind && (p.obj == nil || !p.obj.committed) {
		p.asText()
	}
	if p.state != readCall {
		p.emitText(p.held)
		p.held = ""
	}
	if p.calls == 0 {
		p.text.WriteString(p.space)
	}
	return p.take()
}

func (p *callParser) take() (string, []callDelta) {
	text, deltas := p.text.String(), p.deltas
	p.text.Reset()
	p.deltas = nil
	return text, deltas
}

// emitText makes text final, but for the white space at its end.
func (p *callParser) emitText(text string) {
	body := strings.TrimRight(text, whiteSpace)
	if body == "" {
		p.space += text
		return
	}
	p.text.WriteString(p.space + body)
	p.space = text[len(body):]
}

// step decides on a part of what is held, and reports whether there may be more.
func (p *callParser) step() bool {
	switch p.state {
	case seekCall:
		if p.format.Open != "" {
			return p.seekOpen()
		}
		return p.seekObject()
	case readCall:
		return p.readCall()
	case closeCall:
		return p.closeCall()
	}
	p.emitText(p.held)
	p.held = ""
	return false
}

// seekOpen looks for what begins a call.
func (p *callParser) seekOpen() bool {
	open := p.format.Open
	if i := strings.Index(p.held, open); i >= 0 {
		p.emitText(p.held[:i])
		p.begin(open, p.held[i+len(open):])
		return true
	}
	n := len(open) - 1
	for ; n > 0 && !strings.HasSuffix(p.held, open[:n]); n-- {
	}
	p.emitText(p.held[:len(p.held)-n])
	p.held = p.held[len(p.held)-n:]
	return false
}

// seekObject begins a call where the answer begins with an object, or with the tag.
func (p *callParser) seekObject() bool {
	body := strings.TrimLeft(p.held, whiteSpace)
	if p.calls > 0 {
		body = strings.TrimLeft(p.held, whiteSpace+";")
	}
	tag, before := p.format.Tag, p.held[:len(p.held)-len(body)]
	switch {
	case strings.HasPrefix(body, "{"):
		p.begin(before, body)
	case strings.HasPrefix(body, tag):
		p.begin(before+tag, body[len(tag):])
	case strings.HasPrefix(tag, body):
		return false
	default:
		p.state = plainText
	}
	return true
}

// begin begins a call, or a list of them.
func (p *callParser) begin(open, rest string) {
	p.state, p.raw, p.obj, p.list, p.held = readCall, open, nil, false, rest
}

// asText makes what was no call text.
func (p *callParser) asText() {
	p.emitText(p.raw)
	p.raw, p.state = "", seekCall
	if p.format.Open == "" {
		p.state = plainText
	}
}

// readCall goes on with an object, and with what is in front of it.
func (p *callParser) readCall() bool {
	if p.obj == nil && !p.readStart() {
		return p.state != readCall
	}
	n, done := p.obj.read(p, p.held)
	if !p.obj.committed {
		p.raw += p.held[:n]
	}
	p.held = p.held[n:]
	switch {
	case p.obj.failed:
		p.asText()
	case !done:
		return false
	case p.list:
		p.obj, p.raw = nil, ""
	default:
		p.state = closeCall
	}
	return true
}

// readStart reads up to the brace of an object, and reports whether it is there.
func (p *callParser) readStart() bool {
	for i, b := range []byte(p.held) {
		switch {
		case strings.IndexByte(whiteSpace, b) >= 0, p.list && b == ',':
		case b == '[' && !p.list && p.format.List:
			p.list = true
		case b == ']' && p.list && p.calls > 0:
			p.held, p.state = p.held[i+1:], closeCall
			return false
		case b == '{':
			p.raw += p.held[:i]
			p.held, p.obj = p.held[i:], &callObject{}
			return true
		default:
			p.asText()
			return false
		}
	}
	p.raw += p.held
	p.held = ""
	return false
}

// closeCall takes what closes a call away.
func (p *callParser) closeCall() bool {
	body := strings.TrimLeft(p.held, whiteSpace)
	rest, closed := strings.CutPrefix(body, p.format.Close)
	if !closed && strings.HasPrefix(p.format.Close, body) {
		return false
	}
	p.state = seekCall
	if closed {
		p.held = rest
	}
	return true
}

// callObject reads the JSON object of a call byte by byte: its name, and its arguments as
// they are written.
type callObject struct {
	at        objectState
	depth     int // of the value
	inString  bool
	escaped   bool
	key       string
	token     []byte // a key, or the value of name
	arguments []byte // not handed over yet
	has       bool   // arguments
	committed bool   // the name is there: it is a call
	failed    bool   // it is none
}

// objectState is what comes next in an object.
type objectState int

// The states.
const (
	wantBrace objectState = iota
	wantKey
	inKey
	wantColon
	wantValue
	inValue
	objectEnd
)

// read reads what there is of the object, hands over what is final, and returns how many
// bytes it read, and whether that was the end.
func (o *callObject) read(p *callParser, text string) (n int, done bool) {
	for n < len(text) && o.at != objectEnd && !o.failed {
		if o.next(text[n]) {
			n++
		}
		if o.key == "name" && o.at == wantKey && !o.committed {
			o.commit(p)
		}
	}
	if o.at == objectEnd && !o.committed {
		o.failed = true
	}
	if o.at == objectEnd && !o.has {
		o.arguments = []byte("{}")
	}
	if o.committed && len(o.arguments) > 0 {
		p.deltas = append(p.deltas, callDelta{index: p.calls - 1, arguments: string(o.arguments)})
		o.arguments = nil
	}
	return n, o.at == objectEnd
}

// commit begins a call whose name is there, if it is one.
func (o *callObject) commit(p *callParser) {
	var name string
	if json.Unmarshal(o.token, &name) != nil || !p.knows(name) {
		o.failed = true
		return
	}
	o.committed, o.key = true, ""
	p.deltas = append(p.deltas, callDelta{index: p.calls, id: p.newID(), name: name})
	p.calls++
	p.raw, p.space = "", ""
}

// next goes on with a byte, and reports whether it is used up.
func (o *callObject) next(b byte) bool {
	space := strings.IndexByte(whiteSpace, b) >= 0
	switch o.at {
	case wantBrace:
		o.at, o.failed = wantKey, b != '{'
	case wantKey:
		switch {
		case b == '"':
			o.at, o.token = inKey, []byte{b}
		case b == '}':
			o.at = objectEnd
		case !space && b != ',':
			o.failed = true
		}
	case inKey:
		o.token = append(o.token, b)
		if o.inString = true; o.quotes(b) {
			o.failed = json.Unmarshal(o.token, &o.key) != nil
			o.at, o.token = wantColon, nil
		}
	case wantColon:
		if b == ':' {
			o.at = wantValue
		} else {
			o.failed = !space
		}
	case wantValue:
		if !space {
			o.at = inValue
			return false
		}
	case inValue:
		return o.value(b)
	}
	return true
}

// quotes goes on with a byte, and reports whether it ends a string.
func (o *callObject) quotes(b byte) bool {
	switch {
	case o.escaped:
		o.escaped = false
	case o.inString && b == '\\':
		o.escaped = true
	case b == '"':
		o.inString = !o.inString
		return !o.inString
	}
	return false
}

// value goes on with a byte of a value, and reports whether it is one.
func (o *callObject) value(b byte) bool {
	ends := false
	switch {
	case o.inString || b == '"':
		ends = o.quotes(b) && o.depth == 0
	case b == '{' || b == '[':
		o.depth++
	case o.depth == 0 && strings.IndexByte(whiteSpace+",}]", b) >= 0: // behind a number or literal
		o.at = wantKey
		return false
	case b == '}' || b == ']':
		o.depth--
		ends = o.depth == 0
	}
	switch o.key {
	case "name":
		o.token = append(o.token, b)
	case "arguments", "parameters":
		o.has, o.arguments = true, append(o.arguments, b)
	}
	if ends {
		o.at = wantKey
	}
	return true
}
