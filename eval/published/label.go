package published

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// label is a right answer as the official Python code has it: a text, a number, or a list
// of such. That code walks through a text as through a list of its characters, and some data
// sets are scored that way; what it would stop at with an error is an error here.
type label struct{ value any }

// readLabel reads a right answer.
func readLabel(raw json.RawMessage) (label, error) {
	var l label
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&l.value); err != nil {
		return l, fmt.Errorf("the right answer is no JSON: %w", err)
	}
	if l.value == nil {
		return l, fmt.Errorf("the right answer is null")
	}
	return l, nil
}

// first is the first of a list, or the answer itself.
func (l label) first() (label, error) {
	list, ok := l.value.([]any)
	if !ok {
		return l, nil
	}
	if len(list) == 0 {
		return l, fmt.Errorf("the list of right answers is empty")
	}
	return label{list[0]}, nil
}

// texts is what Python's for walks through.
func (l label) texts() ([]string, error) {
	var all []string
	switch v := l.value.(type) {
	case string:
		for _, c := range v {
			all = append(all, string(c))
		}
		return all, nil
	case []any:
		for _, x := range v {
			s, ok := x.(string)
			if !ok {
				return nil, fmt.Errorf("a right answer is %v, want a text", x)
			}
			all = append(all, s)
		}
		return all, nil
	}
	return nil, fmt.Errorf("the right answer is %v, want a text or a list of texts", l.value)
}

// text is the answer where it is a text.
func (l label) text() (string, error) {
	if s, ok := l.value.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("the right answer is %v, want a text", l.value)
}

// is reports whether the answer is that text: a number never is.
func (l label) is(text string) bool { return l.value == text }

// has is Python's in: of a list, one of its members, of a text, a part of it.
func (l label) has(text string) bool {
	switch v := l.value.(type) {
	case string:
		return strings.Contains(v, text)
	case []any:
		for _, x := range v {
			if x == text {
				return true
			}
		}
	}
	return false
}

// number is the value of the answer where it is a number; whole tells whether Python reads
// it as an int.
func (l label) number() (value *big.Rat, whole, ok bool) {
	n, ok := l.value.(json.Number)
	if !ok || len(n) > maxDigits {
		return nil, false, false
	}
	value, ok = new(big.Rat).SetString(n.String())
	return value, !strings.ContainsAny(n.String(), ".eE"), ok
}

// maxDigits is how long the text of a number is at most that is compared.
const maxDigits = 4300

// numbers is the whole numbers of a list, of the list in it where it has one.
func (l label) numbers() ([]string, error) {
	list, ok := l.value.([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("the right answer is %v, want a list of whole numbers", l.value)
	}
	if inner, nested := list[0].([]any); nested {
		list = inner
	}
	var all []string
	for _, x := range list {
		n, ok := x.(json.Number)
		if !ok {
			return nil, fmt.Errorf("a right answer is %v, want a whole number", x)
		}
		all = append(all, n.String())
	}
	return all, nil
}
