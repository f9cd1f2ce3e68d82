package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// wellFormed refuses JSON that different readers read differently: text that is not Unicode,
// which encoding/json replaces, and names that an object has twice, of which it takes
// parts of both. What is not JSON at all passes: reading it says why.
func wellFormed(b []byte) error {
	if !json.Valid(b) {
		return nil
	}
	if !utf8.Valid(b) {
		return invalid("", "the body is not UTF-8: %s", notUTF8(b))
	}
	var names []map[string]bool // of the objects and arrays that are open, nil for an array
	name := false               // the next string is one
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			names, name = append(names, map[string]bool{}), true
		case '[':
			names, name = append(names, nil), false
		case '}', ']':
			names = names[:len(names)-1]
		case ',':
			name = names[len(names)-1] != nil
		case '"':
			text := stringOf(b[i:])
			i += len(text) - 1
			if err := checkString(text, name, names); err != nil {
				return err
			}
			name = false
		}
	}
	return nil
}

// notUTF8 says where bytes are no UTF-8.
func notUTF8(b []byte) string {
	at := 0
	for {
		r, n := utf8.DecodeRune(b[at:])
		if r == utf8.RuneError && n <= 1 {
			return fmt.Sprintf("byte %d is %#02x", at, b[at])
		}
		at += n
	}
}

// stringOf is the JSON string that a text begins with, quotes included.
func stringOf(b []byte) []byte {
	for i := 1; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[:i+1]
		}
	}
}

// checkString refuses half a surrogate pair, and a name that the innermost object has.
func checkString(text []byte, name bool, names []map[string]bool) error {
	if !wholePairs(text) {
		return invalid("", "the body has half a surrogate pair in %.80s: that is no character", text)
	}
	if !name {
		return nil
	}
	var key string
	_ = json.Unmarshal(text, &key) // was valid
	object := names[len(names)-1]
	if object[key] {
		return invalid(key, "the field %.80q is there twice", key)
	}
	object[key] = true
	return nil
}

// wholePairs reports whether the escapes of a JSON string that are halves of surrogate pairs
// stand in pairs.
func wholePairs(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return true
		}
		if text[i+1] != 'u' {
			text = text[i+2:]
			continue
		}
		r := escaped(text[i:])
		text = text[i+6:]
		if !utf16.IsSurrogate(r) {
			continue
		}
		if len(text) < 6 || text[0] != '\\' || text[1] != 'u' || utf16.DecodeRune(r, escaped(text)) == utf8.RuneError {
			return false
		}
		text = text[6:]
	}
}

// escaped is the number of an escape such as \u00e9.
func escaped(text []byte) rune {
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // was valid
	return rune(n)
}
