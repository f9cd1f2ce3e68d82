package ruler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gollm/gollm/eval/jsonl"
)

// Row is one sample of a task.
type Row struct {
	Index          int      // not a key: see the rules of the package
	Input          string   // the prompt without AnswerPrefix
	Outputs        []string // the references
	Length         int      // tokens of the prompt and of the longest answer
	LengthTemplate int      // the same with the chat template
	AnswerPrefix   string   // what the answer begins with, part of the prompt
	AnswerToken    int      // needle tasks: tokens before the first answer
	// SplitChar is the offset in Input, in code points, where the question begins: a
	// field that gollm wrote until November 2026 and reads; 0 is unknown.
	SplitChar int
	Others    map[string]json.RawMessage // fields that we do not know

	Line      int  // of the file that it was read from, from 1; 0 where it was made
	hasPrefix bool // the row has the field answer_prefix
}

// Prompt is what the model reads: Input and AnswerPrefix.
func (r *Row) Prompt() string {
	if r.AnswerPrefix == "" || strings.HasSuffix(r.Input, r.AnswerPrefix) {
		return r.Input
	}
	return r.Input + r.AnswerPrefix
}

// write writes the row as a line of JSON, byte for byte as the official generator
// does. needle says whether the row has the field token_position_answer.
func (r *Row) write(w io.Writer, needle bool) error {
	b := fmt.Appendf(nil, `{"index": %d, "input": `, r.Index)
	b = appendASCII(b, r.Input)
	b = append(b, `, "outputs": [`...)
	for i, o := range r.Outputs {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendASCII(b, o)
	}
	b = fmt.Appendf(b, `], "length": %d, "length_w_model_temp": %d, "answer_prefix": `, r.Length, r.LengthTemplate)
	b = appendASCII(b, r.AnswerPrefix)
	if needle {
		b = fmt.Appendf(b, `, "token_position_answer": %d`, r.AnswerToken)
	}
	_, err := w.Write(append(b, "}\n"...))
	return err
}

// WriteRow writes a row of a task as a line of JSON: the fields of the official
// generator in its order and form, in ASCII, and no others.
func WriteRow(w io.Writer, t Task, r *Row) error { return r.write(w, t.Kind == Needle) }

// appendASCII appends a JSON string as Python writes it.
func appendASCII(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\b':
			b = append(b, `\b`...)
		case c == '\f':
			b = append(b, `\f`...)
		case c >= ' ' && c < 0x7f:
			b = append(b, byte(c))
		case c > 0xffff:
			c -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(b, '"')
}

// Era is a generation of the official code, which gives other prompts under the
// same task names.
type Era string

// The eras. E2 and E3 write the same fields; only the official runner differs,
// which left the prefix out in E2.
const (
	E1 Era = "E1"    // to 2025-05-12: the prefix is part of input
	E2 Era = "E2/E3" // since: the prefix is a field
)

// ParseRow reads a row. Its error does not say where the row is.
func ParseRow(line []byte) (Row, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(line, &fields); err != nil {
		return Row{}, jsonl.Explain(line, err)
	}
	if fields == nil {
		return Row{}, fmt.Errorf("the line is null, want an object with input and outputs")
	}
	r := Row{Others: map[string]json.RawMessage{}}
	var output string
	for key, raw := range fields {
		if err := r.set(key, raw, &output); err != nil {
			return Row{}, fmt.Errorf("field %s: %w", key, jsonl.Plain(err))
		}
	}
	_, hasInput := fields["input"]
	_, hasOutput := fields["output"]
	switch {
	case hasInput && strings.TrimSpace(r.Input) == "":
		return Row{}, fmt.Errorf("field input is empty, want the prompt")
	case r.Length < 0:
		return Row{}, fmt.Errorf("field length: %d, want the tokens of the prompt and its answer", r.Length)
	case !hasInput:
		return Row{}, fmt.Errorf("no field input, which has the prompt; the fields are %s", names(fields))
	case r.Outputs == nil && hasOutput:
		r.Outputs = []string{output}
	case len(r.Outputs) == 0:
		return Row{}, fmt.Errorf("no field outputs with one reference or more; the fields are %s", names(fields))
	}
	return r, nil
}

// set reads one field.
func (r *Row) set(key string, raw json.RawMessage, output *string) error {
	switch key {
	case "index":
		return json.Unmarshal(raw, &r.Index)
	case "input":
		return wantString(raw, &r.Input)
	case "outputs":
		return json.Unmarshal(raw, (*jsonl.Texts)(&r.Outputs))
	case "output":
		return wantString(raw, output)
	case "length":
		return json.Unmarshal(raw, &r.Length)
	case "length_w_model_temp":
		return json.Unmarshal(raw, &r.LengthTemplate)
	case "answer_prefix":
		r.hasPrefix = true
		return wantString(raw, &r.AnswerPrefix)
	case "token_position_answer":
		return json.Unmarshal(raw, &r.AnswerToken)
	case "split_char":
		return json.Unmarshal(raw, &r.SplitChar)
	}
	if lower := strings.ToLower(key); lower != key && slices.Contains(rowFields, lower) {
		return fmt.Errorf("want %s: names are compared with their capitals, as the official code does", lower)
	}
	r.Others[key] = raw
	return nil
}

// rowFields are the fields that are read.
var rowFields = []string{
	"index", "input", "outputs", "output", "length", "length_w_model_temp", "answer_prefix", "token_position_answer", "split_char",
}

// wantString reads a string and refuses null, which JSON would take for "".
func wantString(raw json.RawMessage, s *string) error {
	if bytes.Equal(raw, []byte("null")) {
		return fmt.Errorf("null, want a string")
	}
	return json.Unmarshal(raw, s)
}

// names lists the fields of an object, sorted.
func names(fields map[string]json.RawMessage) string {
	list := make([]string, 0, len(fields))
	for name := range fields {
		list = append(list, name)
	}
	return strings.Join(distinct(list), ", ")
}

// Era tells which code made the row.
func (r *Row) Era() Era {
	if r.hasPrefix {
		return E2
	}
	return E1
}

// chatMarks are what only a chat template puts into a prompt.
var chatMarks = []string{"<|start_header_id|>", "[INST]", "<|im_start|>", "<|user|>"}

// Templated reports whether the prompt has a chat template in it, so that none
// must be added.
func (r *Row) Templated() bool {
	for _, mark := range chatMarks {
		if strings.Contains(r.Input, mark) {
			return true
		}
	}
	return false
}

// questionMarks begin the question of a task in the official wording; the last
// match counts.
func questionMarks(k Kind) []string {
	switch k {
	case Needle:
		return []string{"What is the special magic", "What are all the special magic"}
	case Question:
		return []string{"Answer the question based on the given documents."}
	}
	return []string{"Question: "}
}

// Split is the byte offset in Input where the question begins: that of SplitChar, or
// what the wording says, or where w is nil our own wording or the official one; false
// where none tells.
func (r *Row) Split(t Task, w *Wording) (int, bool) {
	if r.SplitChar > 0 {
		return byteOffset(r.Input, r.SplitChar)
	}
	if w != nil {
		at := strings.LastIndex(r.Input, w.question(t))
		return max(at, 0), at > 0
	}
	if at, ok := r.Split(t, Native); ok {
		return at, true
	}
	at := -1
	for _, mark := range questionMarks(t.Kind) {
		at = max(at, strings.LastIndex(r.Input, mark))
	}
	return max(at, 0), at > 0
}

// byteOffset is where code point number n begins.
func byteOffset(s string, n int) (int, bool) {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at, n == 0
}

// Reader reads a file of rows, one to a line.
type Reader struct {
	name string
	in   *jsonl.Reader
	era  Era
}

// NewReader reads rows from r; name is what errors call the file.
func NewReader(name string, r io.Reader) *Reader {
	return &Reader{name: name, in: jsonl.NewReader(r)}
}

// Next is the next row; its error is io.EOF at the end. Rows of different eras
// are refused: their prompts are not the same task.
func (r *Reader) Next() (Row, error) {
	for {
		line, number, err := r.in.Next()
		if err != nil {
			if err != io.EOF {
				err = fmt.Errorf("ruler: %s:%d: %w", r.name, number, err)
			}
			return Row{}, err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		row, err := ParseRow(line)
		if err != nil {
			return Row{}, fmt.Errorf("ruler: %s:%d: %w", r.name, number, err)
		}
		row.Line = number
		if r.era == "" {
			r.era = row.Era()
		}
		if row.Era() != r.era {
			return Row{}, fmt.Errorf("ruler: %s:%d: a row of era %s in a file of era %s (one has answer_prefix, the other has not): files of two generators were mixed, make them again or take them apart",
				r.name, number, row.Era(), r.era)
		}
		return row, nil
	}
}

// Era is that of the rows read so far.
func (r *Reader) Era() Era { return r.era }
