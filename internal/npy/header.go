package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// header is what a file says about its array.
type header struct {
	descr   string
	fortran bool
	shape   []int
	size    int64 // bytes before the data
}

// readHeader reads everything before the data of a file of size bytes.
func readHeader(r io.Reader, size int64) (header, error) {
	var fixed [8]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil || string(fixed[:6]) != magic {
		return header{}, errors.New(`not a .npy file: it does not begin with \x93NUMPY`)
	}
	width := 4
	switch fixed[6] {
	case 1:
		width = 2
	case 2, 3:
	default:
		return header{}, fmt.Errorf("format version %d.%d, want 1.0, 2.0 or 3.0", fixed[6], fixed[7])
	}
	var length [4]byte
	if _, err := io.ReadFull(r, length[:width]); err != nil {
		return header{}, errors.New("the file ends inside its header")
	}
	n := int64(binary.LittleEndian.Uint32(length[:]))
	if n > maxHeader {
		return header{}, fmt.Errorf("a header of %d bytes, want at most %d", n, maxHeader)
	}
	before := int64(len(fixed)+width) + n
	if before > size {
		return header{}, errors.New("the file ends inside its header")
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return header{}, errors.New("the file ends inside its header")
	}
	h, err := parseHeader(string(text))
	h.size = before
	return h, err
}

// parseHeader reads the Python dictionary of a header:
// {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
func parseHeader(text string) (header, error) {
	s := &scanner{rest: text}
	h, seen := header{}, map[string]bool{}
	s.expect("{")
	for s.err == nil && !s.accept("}") {
		key := s.quoted()
		s.expect(":")
		if seen[key] {
			s.fail("key %q twice", key)
		}
		seen[key] = true
		switch key {
		case "descr":
			h.descr = s.quoted()
		case "fortran_order":
			h.fortran = s.truth()
		case "shape":
			h.shape = s.tuple()
		default:
			s.fail("key %q, want descr, fortran_order and shape", key)
		}
		if !s.accept(",") {
			s.expect("}")
			break
		}
	}
	if s.err == nil && strings.TrimSpace(s.rest) != "" {
		s.fail("text after the dictionary")
	}
	if s.err == nil && len(seen) != 3 {
		s.fail("descr, fortran_order or shape is missing")
	}
	return h, s.err
}

// scanner reads a header from left to right; the first error sticks.
type scanner struct {
	rest string
	err  error
}

func (s *scanner) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("header: "+format, args...)
	}
}

// accept takes a token if it comes next.
func (s *scanner) accept(token string) bool {
	rest, ok := strings.CutPrefix(strings.TrimLeft(s.rest, " \t\n"), token)
	if ok && s.err == nil {
		s.rest = rest
	}
	return ok && s.err == nil
}

func (s *scanner) expect(token string) {
	if !s.accept(token) {
		s.fail("want %q at %.20q", token, s.rest)
	}
}

// quoted takes a string in single or double quotes, without escapes.
func (s *scanner) quoted() string {
	for _, quote := range []string{"'", `"`} {
		if s.accept(quote) {
			text, rest, ok := strings.Cut(s.rest, quote)
			if !ok || strings.Contains(text, `\`) {
				s.fail("a string does not end or has an escape")
				return ""
			}
			s.rest = rest
			return text
		}
	}
	s.fail("want a string at %.20q; an array of records is not supported", s.rest)
	return ""
}

func (s *scanner) truth() bool {
	if s.accept("True") {
		return true
	}
	s.expect("False")
	return false
}

// tuple takes the dimensions.
func (s *scanner) tuple() []int {
	dims := []int{}
	s.expect("(")
	for s.err == nil && !s.accept(")") {
		dims = append(dims, s.number())
		if len(dims) > maxRank {
			s.fail("more than %d dimensions", maxRank)
		}
		if !s.accept(",") {
			s.expect(")")
			break
		}
	}
	return dims
}

func (s *scanner) number() int {
	s.rest = strings.TrimLeft(s.rest, " \t\n")
	end := 0
	for end < len(s.rest) && s.rest[end] >= '0' && s.rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(s.rest[:end])
	if err != nil {
		s.fail("want a dimension at %.20q", s.rest)
		return 0
	}
	s.rest = s.rest[end:]
	return n
}
