package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
)

// longestLine bounds what a file without line ends can allocate, in bytes; a
// prompt of a million tokens has a twentieth of it.
const longestLine = 1 << 27

// Reader cuts a stream into lines of any length.
type Reader struct {
	r      io.Reader
	buf    []byte
	number int
	ended  bool
}

// NewReader reads lines from r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next is the next line without its end, valid until the next call, and its
// number from 1.
func (l *Reader) Next() ([]byte, int, error) {
	searched := 0
	for {
		if i := bytes.IndexByte(l.buf[searched:], '\n'); i >= 0 {
			line := l.buf[:searched+i]
			l.buf = l.buf[searched+i+1:]
			return l.count(line), l.number, nil
		}
		searched = len(l.buf)
		if l.ended {
			if searched == 0 {
				return nil, l.number + 1, io.EOF
			}
			line := l.buf
			l.buf = nil
			return l.count(line), l.number, nil
		}
		if searched > longestLine {
			return nil, l.number + 1, fmt.Errorf("a line of more than %d bytes; this is no file of samples", longestLine)
		}
		if err := l.read(); err != nil {
			return nil, l.number + 1, err
		}
	}
}

// mark is what some editors begin UTF-8 with; it is no part of the text.
const mark = "\ufeff"

// count counts a line, and takes the mark off the first.
func (l *Reader) count(line []byte) []byte {
	if l.number++; l.number == 1 {
		line = bytes.TrimPrefix(line, []byte(mark))
	}
	return line
}

// read makes the buffer longer by what the stream has.
func (l *Reader) read() error {
	const block = 1 << 18
	if cap(l.buf)-len(l.buf) < block {
		grown := make([]byte, len(l.buf), 2*len(l.buf)+2*block)
		copy(grown, l.buf)
		l.buf = grown
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	if err == io.EOF {
		l.ended = true
		err = nil
	}
	return err
}

// Explain says what is wrong with a line that is no JSON object of the wanted form,
// given the error of the decoder: a line that begins as an object and does not end
// as one was cut off, or goes on in the next.
func Explain(line []byte, err error) error {
	text := bytes.TrimSpace(line)
	wrong := new(json.UnmarshalTypeError)
	switch {
	case len(text) > 0 && text[0] != '{':
		return fmt.Errorf("not a JSON object, which a line of UTF-8 has to be: it begins with %q", text[:min(len(text), 20)])
	case !bytes.HasSuffix(text, []byte("}")):
		return fmt.Errorf("the line ends after %d bytes in the middle of an object: the file is cut off, or an object takes several lines (%w)", len(line), err)
	case errors.As(err, &wrong):
		return Plain(err)
	}
	return fmt.Errorf("not a JSON object of the right form: %w", err)
}

// Plain says what was found and what is wanted where the decoder of Go would name a
// type of Go; other errors pass unchanged.
func Plain(err error) error {
	wrong := new(json.UnmarshalTypeError)
	if !errors.As(err, &wrong) {
		return err
	}
	want := kindText(wrong.Type)
	if strings.HasPrefix(wrong.Value, "number ") && want == "number" {
		want = "a number of its range" // which the literal is not in
	}
	if wrong.Field == "" {
		return fmt.Errorf("found %s, want %s", wrong.Value, want)
	}
	return fmt.Errorf("field %s is of type %s, want %s", strings.ToLower(wrong.Field), wrong.Value, want)
}

// Missing is the error of an object without a value of a field: one that is null is
// there, and to be told that it is not sends people looking for it.
func Missing(line []byte, name, what string) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(line, &fields) == nil && string(fields[name]) == "null" {
		return fmt.Errorf("field %s is null, want %s", name, what)
	}
	return fmt.Errorf("no field %s, %s", name, what)
}

// kindText is what JSON calls a type.
func kindText(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Slice:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Bool:
		return "bool"
	case reflect.Float64:
		return "number"
	}
	return "a whole number"
}

// Texts is a list of strings. A null in it is an error and not the empty text, which
// every answer contains.
type Texts []string

// UnmarshalJSON reads the list; null is none.
func (t *Texts) UnmarshalJSON(b []byte) error {
	var list []*string
	if json.Unmarshal(b, &list) != nil || slices.Contains(list, nil) {
		return fmt.Errorf("want a list of strings, found %s", b[:min(len(b), 60)])
	}
	*t = nil
	for _, s := range list {
		*t = append(*t, *s)
	}
	return nil
}
