package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// toJSON is the filter tojson(indent=None) as Hugging Face defines it: json.dumps
// of Python without escaping what is not ASCII, keys in order.
func toJSON(f *fence, e *exec.Evaluator, v *exec.Value, a *exec.VarArgs) *exec.Value {
	w := jsonWriter{fence: f, indent: -1}
	if v := a.KwArgs["indent"]; v != nil && v.IsInteger() {
		w.indent = v.Integer()
	}
	if w.indent > 16 {
		return f.failf("the template indents JSON by %d", w.indent)
	}
	w.write(v, 0)
	return exec.AsValue(w.out.String())
}

type jsonWriter struct {
	fence  *fence
	out    bytes.Buffer
	indent int // -1: all on one line
}

func (w *jsonWriter) write(v *exec.Value, depth int) {
	if w.fence.room(w.out.Len()) != nil || depth > maxDepth {
		return
	}
	switch {
	case v == nil || v.IsNil():
		w.out.WriteString("null")
	case v.IsString():
		w.string(v.String())
	case v.IsBool():
		w.out.WriteString(strconv.FormatBool(v.Bool()))
	case v.IsInteger():
		w.out.WriteString(strconv.Itoa(v.Integer()))
	case v.IsFloat():
		w.out.WriteString(pythonFloat(v.Float()))
	case v.IsDict():
		all := pairs(v)
		w.list('{', '}', len(all), depth, func(i int) {
			w.string(exec.ToValue(all[i][0]).String())
			w.out.WriteString(": ")
			w.write(exec.ToValue(all[i][1]), depth+1)
		})
	case v.IsList():
		w.list('[', ']', v.Len(), depth, func(i int) { w.write(v.Index(i), depth+1) })
	default:
		w.fence.failf("the template writes %s as JSON", kindOf(v))
	}
}

func (w *jsonWriter) list(open, close byte, n, depth int, each func(int)) {
	w.out.WriteByte(open)
	for i := range n {
		if w.fence.err != nil {
			return
		}
		if i > 0 {
			w.out.WriteByte(',')
			if w.indent < 0 {
				w.out.WriteByte(' ')
			}
		}
		w.line(depth + 1)
		each(i)
	}
	if n > 0 {
		w.line(depth)
	}
	w.out.WriteByte(close)
}

func (w *jsonWriter) line(depth int) {
	if w.indent >= 0 {
		w.out.WriteString("\n" + strings.Repeat(" ", w.indent*depth))
	}
}

func (w *jsonWriter) string(s string) {
	w.out.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			w.out.WriteByte('\\')
			w.out.WriteRune(r)
		case r >= ' ':
			w.out.WriteRune(r)
		default:
			w.out.WriteString(controlEscape(r))
		}
	}
	w.out.WriteByte('"')
}

func controlEscape(r rune) string {
	if i := strings.IndexRune("\b\f\n\r\t", r); i >= 0 {
		return `\` + string("bfnrt"[i])
	}
	return fmt.Sprintf(`\u%04x`, r)
}

// pythonFloat is repr of a float in Python.
func pythonFloat(x float64) string {
	s := strconv.FormatFloat(x, 'e', -1, 64)
	exp, _ := strconv.Atoi(s[strings.IndexByte(s, 'e')+1:])
	if exp < -4 || exp >= 16 {
		return s
	}
	s = strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// fromJSON reads JSON into values that keep the order of keys. quote changes every string,
// keys too; nil leaves them.
func fromJSON(data []byte, quote func(string) (string, error)) (*exec.Value, error) {
	r := jsonReader{json.NewDecoder(bytes.NewReader(data)), quote}
	r.UseNumber()
	v, err := r.read(0)
	if err != nil {
		return nil, err
	}
	if _, err := r.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the JSON value")
	}
	return v, nil
}

// jsonReader reads one JSON value.
type jsonReader struct {
	*json.Decoder
	quote func(string) (string, error)
}

func (r jsonReader) read(depth int) (*exec.Value, error) {
	if depth > maxDepth/2 {
		return nil, fmt.Errorf("JSON is nested more than %d deep", maxDepth/2)
	}
	t, err := r.Token()
	if err != nil {
		return nil, err
	}
	switch t := t.(type) {
	case string:
		if r.quote != nil {
			t, err = r.quote(t)
		}
		return exec.AsValue(t), err
	case json.Number:
		if n, err := strconv.Atoi(t.String()); err == nil {
			return exec.AsValue(n), nil
		}
		x, err := t.Float64()
		return exec.AsValue(x), err
	case json.Delim:
		if t == '[' {
			return r.list(depth)
		}
		return r.dict(depth)
	}
	return exec.AsValue(t), nil
}

func (r jsonReader) list(depth int) (*exec.Value, error) {
	out := []any{}
	for r.More() {
		v, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v.Interface())
	}
	_, err := r.Token()
	return exec.AsValue(out), err
}

func (r jsonReader) dict(depth int) (*exec.Value, error) {
	out := exec.NewDict()
	for r.More() {
		key, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		v, err := r.read(depth + 1)
		if err != nil {
			return nil, err
		}
		out.Pairs = append(out.Pairs, &exec.Pair{Key: key, Value: v})
	}
	_, err := r.Token()
	return exec.AsValue(out), err
}
