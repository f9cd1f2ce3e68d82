package trial

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gollm/gollm/eval/jsonl"
)

// Extra is our own fields of an answer, under the key gollm; the official scorers
// ignore them.
type Extra struct {
	Line      int      `json:"line"`            // of the sample, from 0
	Score     *float64 `json:"score,omitempty"` // from 0 to 1; nil where this program cannot score
	Prompt    int      `json:"prompt_tokens"`
	New       int      `json:"new_tokens"`
	Finish    string   `json:"finish"`
	Truncated int      `json:"truncated_from,omitempty"` // tokens before the prompt was cut
	BOS       []int    `json:"bos_positions"`
	Dense     int      `json:"dense_queries,omitempty"` // prompt tokens before the question, where it has a phase of its own
	Alarms    []Alarm  `json:"alarms,omitempty"`
}

// Points is the score, 0 where there is none.
func (e Extra) Points() float64 {
	if e.Score == nil {
		return 0
	}
	return *e.Score
}

// Answer is a line of a log.
type Answer struct {
	Extra
	Number int             // of the line in the file, from 1
	Row    json.RawMessage // the whole line
}

// extraKey is where [Extra] stands in a line.
const extraKey = "gollm"

// Encode makes the line of an answer: row, a struct of the fields that a suite
// writes, and extra after them.
func Encode(row any, extra Extra) ([]byte, error) {
	line, err := compact(row)
	if err != nil {
		return nil, err
	}
	more, err := compact(extra)
	if err != nil {
		return nil, err
	}
	line = append(bytes.TrimSuffix(line, []byte("}")), `,"`+extraKey+`":`...)
	return append(append(line, more...), '}'), nil
}

// compact is v as JSON on one line, with text as it is.
func compact(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(b.Bytes(), "\n"), err
}

// decodeLine reads the fields of ours in a line.
func decodeLine(line []byte) (Extra, error) {
	var fields struct {
		Gollm *Extra `json:"gollm"`
	}
	if err := jsonl.Decode(line, &fields); err != nil {
		return Extra{}, jsonl.Explain(line, err)
	}
	if fields.Gollm == nil {
		return Extra{}, fmt.Errorf("no field %s with the number of the sample: this line was not written by a run", extraKey)
	}
	if fields.Gollm.Line < 0 {
		return Extra{}, fmt.Errorf("sample %d, want 0 or more", fields.Gollm.Line)
	}
	// What is not between 0 and 1 is not written by a run, and is a mean that looks right.
	if x := fields.Gollm.Points(); x < 0 || x > 1 {
		return Extra{}, fmt.Errorf("the field %s.score is %v, want 0 to 1: the line was changed since it was written", extraKey, x)
	}
	return *fields.Gollm, nil
}

// Log is the answers of one unit under one setting, in a file that only grows.
type Log struct {
	path   string
	file   *os.File
	times  *os.File
	done   map[int]Extra
	synced int // lines since the last sync
}

// syncEvery is after how many lines a log is brought to the disk. A kill loses
// nothing all the same; this is for the power.
const syncEvery = 16

// OpenLog opens or makes a log in the folder of a run, and the times beside it. A last
// line that was cut off is dropped.
func OpenLog(folder, name string) (*Log, error) {
	l := &Log{path: filepath.Join(folder, name), done: map[int]Extra{}}
	var err error
	if l.file, err = openAppend(folder, name); err != nil {
		return nil, err
	}
	if err = l.load(); err == nil {
		l.times, err = openAppend(folder, timesPath(name))
	}
	if err == nil {
		_, err = dropTorn(l.times)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// timesPath is the file of times beside a log.
func timesPath(path string) string { return path + ".times" }

// openAppend opens or makes a file in the folder of a run that only grows.
func openAppend(folder, name string) (f *os.File, err error) {
	err = InFolder(folder, name, func(root *os.Root) (err error) {
		if err = makeParent(root, name); err == nil {
			f, err = root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
		}
		return err
	})
	return f, err
}

// dropTorn cuts what follows the last line end of f off, and returns what stays,
// in bytes.
func dropTorn(f *os.File) (int64, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, err
	}
	const block = 1 << 16
	for end := size; end > 0; {
		start := max(0, end-block)
		b := make([]byte, end-start)
		if _, err := f.ReadAt(b, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(b, '\n'); i >= 0 {
			end = start + int64(i) + 1
			if end < size {
				err = f.Truncate(end)
			}
			return end, err
		}
		end = start
	}
	return 0, f.Truncate(0)
}

// load reads what is there.
func (l *Log) load() error {
	if _, err := dropTorn(l.file); err != nil {
		return err
	}
	if _, err := l.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return eachLine(l.path, l.file, func(number int, a Answer) error {
		if _, twice := l.done[a.Line]; twice {
			return fmt.Errorf("sample %d has an answer already: two runs wrote to this file; move it away", a.Line)
		}
		l.done[a.Line] = a.Extra
		return nil
	})
}

// eachLine calls f for the answers in a file; name is what errors call it.
func eachLine(name string, r io.Reader, f func(number int, a Answer) error) error {
	in := jsonl.NewReader(r)
	for {
		line, number, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			a := Answer{Number: number}
			if a.Extra, err = decodeLine(line); err == nil {
				a.Row = bytes.Clone(line)
				err = f(number, a)
			}
		}
		if err != nil {
			return fmt.Errorf("trial: %s:%d: %w", name, number, err)
		}
	}
}

// Done reports whether a sample has an answer.
func (l *Log) Done(line int) bool {
	_, ok := l.done[line]
	return ok
}

// Len is the number of answers.
func (l *Log) Len() int { return len(l.done) }

// Append writes an answer and how long it took.
func (l *Log) Append(row any, extra Extra, t Times) error {
	if l.Done(extra.Line) {
		return fmt.Errorf("trial: %s: sample %d has an answer already", l.path, extra.Line)
	}
	line, err := Encode(row, extra)
	if err != nil {
		return fmt.Errorf("trial: %s: sample %d: %w", l.path, extra.Line, err)
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	l.done[extra.Line] = extra
	t.Line = extra.Line
	timed, err := compact(t)
	if err != nil {
		return err
	}
	if _, err := l.times.Write(append(timed, '\n')); err != nil {
		return fmt.Errorf("trial: %w", err)
	}
	if l.synced++; l.synced < syncEvery {
		return nil
	}
	return l.Sync()
}

// Sync brings the log to the disk.
func (l *Log) Sync() error {
	l.synced = 0
	return errors.Join(l.file.Sync(), l.times.Sync())
}

// Close ends the log.
func (l *Log) Close() error {
	var errs []error
	for _, f := range []*os.File{l.file, l.times} {
		if f != nil {
			errs = append(errs, f.Sync(), f.Close())
		}
	}
	return errors.Join(errs...)
}

// Times is how long an answer took.
type Times struct {
	Line      int     `json:"line"`
	PrefillMs float64 `json:"prefill_ms"`       // of all that Shared counts together
	Shared    int     `json:"shared,omitempty"` // settings for which the prompt was read at once; 0 is this one alone
	DecodeMs  float64 `json:"decode_ms"`
	Prompt    int     `json:"prompt_tokens"`           // that were read in PrefillMs
	Reused    int     `json:"reused_tokens,omitempty"` // of the prompt that were not: the sample before had read them
	Steps     int     `json:"steps"`                   // decode steps in DecodeMs
}
