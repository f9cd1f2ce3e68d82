package lineedit

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// What a history keeps at most.
const (
	maxEntries    = 1000
	maxEntryBytes = 64 << 10 // of the file; longer entries are kept for the session
	maxFileBytes  = 4 << 20
)

// History is the entries of this session and, where it has a file, of those before.
type History struct {
	path    string // empty: none
	entries []string
}

// OpenHistory reads the history of a file, which holds a JSON string on each line and
// need not be there yet; without a path the history is that of the session. A file
// that has grown beyond what is kept is written anew. A file of something else is an
// error, and left as it is.
func OpenHistory(path string) (*History, error) {
	h := &History{path: path}
	if path == "" {
		return h, nil
	}
	b, err := readEnd(path, maxFileBytes)
	if os.IsNotExist(err) {
		return h, nil
	}
	if err != nil {
		return &History{}, err
	}
	lines := bytes.Split(b, []byte("\n"))
	last := len(lines) - 1 // empty, or cut by a program that died
	for i, line := range lines[:last] {
		var entry string
		if err := json.Unmarshal(line, &entry); err == nil {
			h.remember(entry)
		} else if i > 0 || len(b) < maxFileBytes { // the first one may begin in the middle
			return &History{}, fmt.Errorf("%s is no history: line %d is no JSON string", path, i+1)
		}
	}
	if last > 0 && (last > maxEntries || len(b) == maxFileBytes || len(lines[last]) > 0) {
		return h, h.rewrite()
	}
	if last == 0 && len(b) > 0 {
		return &History{}, fmt.Errorf("%s is no history: it has no whole line", path)
	}
	return h, nil
}

// readEnd is the last bytes of a file.
func readEnd(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	if _, err := f.Seek(max(0, info.Size()-limit), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// remember adds an entry that is not the last one again.
func (h *History) remember(entry string) bool {
	if entry == "" || len(h.entries) > 0 && h.entries[len(h.entries)-1] == entry {
		return false
	}
	h.entries = append(h.entries, entry)
	h.entries = h.entries[max(0, len(h.entries)-maxEntries):]
	return true
}

// Add adds an entry, to the file too. A history whose file takes nothing goes on
// without it.
func (h *History) Add(entry string) error {
	if !h.remember(entry) || h.path == "" || len(entry) > maxEntryBytes {
		return nil
	}
	err := h.append(entry)
	if err != nil {
		h.path = ""
	}
	return err
}

// append writes one entry at the end of the file. Only its owner may read it.
func (h *History) append(entry string) error {
	if err := os.MkdirAll(filepath.Dir(h.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	line, err := json.Marshal(entry)
	if err == nil {
		_, err = f.Write(append(line, '\n'))
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// rewrite replaces the file by what is kept.
func (h *History) rewrite() error {
	f, err := os.CreateTemp(filepath.Dir(h.path), filepath.Base(h.path)+".*") // with 0600
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, entry := range h.entries {
		line, _ := json.Marshal(entry) // a string always has a JSON form
		w.Write(append(line, '\n'))    // errors stick until Flush
	}
	err = w.Flush()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // the history stays as it was
	}
	return err
}

// walk is a place in a history; the one behind the last entry is what is being typed.
type walk struct {
	*History
	at    int
	draft string
}

// begin goes behind the last entry.
func (w *walk) begin() { w.at, w.draft = len(w.entries), "" }

// step goes some entries on from text, false where there are none.
func (w *walk) step(n int, text string) (string, bool) {
	to := w.at + n
	if to < 0 || to > len(w.entries) {
		return "", false
	}
	if w.at == len(w.entries) {
		w.draft = text
	}
	if w.at = to; to == len(w.entries) {
		return w.draft, true
	}
	return w.entries[to], true
}
