package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/gollm/gollm/internal/quote"
)

// value is a JSON value whose objects keep their order, which is the order of writing.
type value struct {
	kind    kind
	text    string            // of a string, or the digits of a number as they were written
	items   []*value          // of an array
	members []member          // of an object
	index   map[string]*value // the members of a large object, by name; nil for a small one
}

type member struct {
	name  string
	value *value
}

// kind is the type of a JSON value.
type kind uint8

const (
	isNull kind = iota
	isFalse
	isTrue
	isNumber
	isString
	isArray
	isObject
)

var kindNames = [...]string{"null", "false", "true", "a number", "a string", "an array", "an object"}

func (k kind) String() string { return kindNames[k] }

// manyMembers is from where on an object finds its members by an index.
const manyMembers = 32

// member is the value of a member, nil where there is none.
func (v *value) member(name string) *value {
	if v.index != nil {
		return v.index[name]
	}
	for _, m := range v.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// equal reports whether v and w are the same value. Numbers are compared as they are written.
func (v *value) equal(w *value) bool {
	if v.kind != w.kind || v.text != w.text || len(v.items) != len(w.items) || len(v.members) != len(w.members) {
		return false
	}
	for i, item := range v.items {
		if !item.equal(w.items[i]) {
			return false
		}
	}
	for _, m := range v.members {
		if other := w.member(m.name); other == nil || !m.value.equal(other) {
			return false
		}
	}
	return true
}

// append writes v as compact JSON.
func (v *value) append(b []byte) []byte {
	switch v.kind {
	case isString:
		return appendString(b, v.text)
	case isNumber:
		return append(b, v.text...)
	case isArray:
		b = append(b, '[')
		for i, item := range v.items {
			b = item.append(comma(b, i))
		}
		return append(b, ']')
	case isObject:
		b = append(b, '{')
		for i, m := range v.members {
			b = append(appendString(comma(b, i), m.name), ':')
			b = m.value.append(b)
		}
		return append(b, '}')
	}
	return append(b, v.kind.String()...)
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ',')
	}
	return b
}

func appendString(b []byte, s string) []byte {
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string has always a JSON form
	}
	return append(b, quoted...)
}

// Limits of a schema as text.
const (
	maxSchema = 1 << 20 // bytes
	maxDepth  = 200     // objects and arrays inside each other
)

// parse reads one JSON value. Objects that name a member twice are refused.
func parse(text []byte) (*value, error) {
	if len(text) > maxSchema {
		return nil, refuse("#", "the schema has %d bytes, at most %d are read", len(text), maxSchema)
	}
	if !utf8.Valid(text) {
		return nil, refuse("#", "the schema is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, refuse("#", "the schema is not JSON: %v", plain(err))
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, refuse("#", "the schema is one JSON value, but more follows at byte %d", d.InputOffset())
	}
	return v, nil
}

// plain makes of the end of the text in the middle of a value what it is.
func plain(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseValue(d *json.Decoder, depth int) (*value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d objects and arrays inside each other", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case string:
		return &value{kind: isString, text: t}, nil
	case json.Number:
		return &value{kind: isNumber, text: t.String()}, nil
	case bool:
		if t {
			return &value{kind: isTrue}, nil
		}
		return &value{kind: isFalse}, nil
	case json.Delim:
		if t == '[' {
			return parseArray(d, depth)
		}
		return parseObject(d, depth)
	}
	return &value{kind: isNull}, nil
}

func parseArray(d *json.Decoder, depth int) (*value, error) {
	v := &value{kind: isArray}
	for d.More() {
		item, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		v.items = append(v.items, item)
	}
	_, err := d.Token()
	return v, err
}

func parseObject(d *json.Decoder, depth int) (*value, error) {
	v := &value{kind: isObject}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := t.(string)
		if seen[name] {
			return nil, fmt.Errorf("an object has two members %s", quote.Short(name))
		}
		seen[name] = true
		item, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		v.members = append(v.members, member{name, item})
	}
	v.makeIndex()
	_, err := d.Token()
	return v, err
}

// makeIndex makes the index of an object whose members are read, where there are many.
func (v *value) makeIndex() {
	if len(v.members) < manyMembers {
		return
	}
	v.index = make(map[string]*value, len(v.members))
	for _, m := range v.members {
		v.index[m.name] = m.value
	}
}

// SchemaError is a schema that Compile refuses.
type SchemaError struct {
	Path    string // a JSON pointer to what is refused, "#" for the whole schema
	Message string // what is wrong, and what to write instead
}

// Error is the message behind the path.
func (e *SchemaError) Error() string { return "grammar: " + e.Path + ": " + e.Message }

func refuse(path, format string, args ...any) error {
	return &SchemaError{Path: path, Message: fmt.Sprintf(format, args...)}
}

// pointerEscape writes a name as a part of a JSON pointer.
var pointerEscape = strings.NewReplacer("~", "~0", "/", "~1")

// pointerUnescape reads a part of a JSON pointer.
var pointerUnescape = strings.NewReplacer("~1", "/", "~0", "~")

// maxPart is the bytes of a member's name that a path shows.
const maxPart = 60

// under is the path of a member of what is at path. A name that could be no part of a line of
// text, or is long, is quoted.
func under(path, name string) string {
	part := pointerEscape.Replace(name)
	if quoted := quote.Short(part); len(part) > maxPart || quoted != `"`+part+`"` {
		part = quoted
	}
	return path + "/" + part
}
