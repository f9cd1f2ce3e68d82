package jsonl

import (
	"bytes"
	"fmt"
	"io"
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
			l.number++
			return line, l.number, nil
		}
		searched = len(l.buf)
		if l.ended {
			if searched == 0 {
				return nil, l.number + 1, io.EOF
			}
			line := l.buf
			l.buf = nil
			l.number++
			return line, l.number, nil
		}
		if searched > longestLine {
			return nil, l.number + 1, fmt.Errorf("a line of more than %d bytes; this is no file of samples", longestLine)
		}
		if err := l.read(); err != nil {
			return nil, l.number + 1, err
		}
	}
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

// Explain says what is wrong with a line that is no JSON object, given the error
// of the decoder: a line that does not end as an object was cut off.
func Explain(line []byte, err error) error {
	if !bytes.HasSuffix(bytes.TrimSpace(line), []byte("}")) {
		return fmt.Errorf("the line ends after %d bytes in the middle of an object: the file is cut off (%w)", len(line), err)
	}
	return fmt.Errorf("not a JSON object of the right form: %w", err)
}
