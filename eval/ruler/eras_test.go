package ruler

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

// eraFields are the fields of the official files, in their order.
var eraFields = map[string][]string{
	"E1": {"index", "input", "outputs", "length"},
	"E2": {"index", "input", "outputs", "length", "length_w_model_temp", "answer_prefix"},
	"E3": {"index", "input", "outputs", "length", "length_w_model_temp", "answer_prefix"},
}

// keysOf is the fields of an object in the order in which they are written.
func keysOf(t *testing.T, line []byte) []string {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(line))
	var keys []string
	depth := 0
	for d.More() || depth > 0 {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
			continue
		case json.Delim('}'), json.Delim(']'):
			depth--
			continue
		}
		if name, ok := token.(string); ok && depth == 1 {
			keys = append(keys, name)
			var value json.RawMessage
			if err := d.Decode(&value); err != nil {
				t.Fatal(err)
			}
		}
	}
	return keys
}

// TestOfficialFilesAreReadFieldByField reads the files of testdata, which have the
// form of each era's official generator (scripts/ruler-eras.py), and compares every
// field with what a plain JSON decoder finds.
func TestOfficialFilesAreReadFieldByField(t *testing.T) {
	for era, fields := range eraFields {
		for _, name := range []string{"niah_multiquery", "vt", "fwe"} {
			task, _ := FindTask(name)
			path := DataPath("testdata/"+era, 1024, task)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want := slices.Clone(fields)
			if era != "E1" && task.Kind == Needle {
				want = append(want, "token_position_answer")
			}
			in, lines := NewReader(path, bytes.NewReader(b)), bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n"))
			for i, line := range lines {
				if keys := keysOf(t, line); !slices.Equal(keys, want) {
					t.Fatalf("%s:%d: fields %v, want %v", path, i+1, keys, want)
				}
				var f map[string]any
				if err := json.Unmarshal(line, &f); err != nil {
					t.Fatal(err)
				}
				r, err := in.Next()
				if err != nil {
					t.Fatal(err)
				}
				number := func(key string) int { x, _ := f[key].(float64); return int(x) }
				prefix, _ := f["answer_prefix"].(string)
				var outputs []string
				for _, o := range f["outputs"].([]any) {
					outputs = append(outputs, o.(string))
				}
				if r.Index != number("index") || r.Input != f["input"] || !slices.Equal(r.Outputs, outputs) || r.Length != number("length") ||
					r.LengthTemplate != number("length_w_model_temp") || r.AnswerPrefix != prefix || r.AnswerToken != number("token_position_answer") || r.Line != i+1 || len(r.Others) != 0 {
					t.Errorf("%s:%d: read as %+v", path, i+1, r)
				}
				var again bytes.Buffer
				if err := WriteRow(&again, task, &r); err != nil || era != "E1" && again.String() != string(line)+"\n" {
					t.Errorf("%s:%d: written again as %s, %v", path, i+1, again.String(), err)
				}
				if r.Prompt() != f["input"].(string)+prefix || !strings.Contains(r.Prompt(), " Answer: ") || r.Templated() {
					t.Errorf("%s:%d: the prompt ends in %q", path, i+1, r.Prompt()[len(r.Prompt())-80:])
				}
				if at := strings.Index(r.Input, r.Outputs[0]); era != "E1" && task.Kind == Needle && r.Index != at || task.Kind != Needle && r.Index != i {
					t.Errorf("%s:%d: index %d", path, i+1, r.Index)
				}
			}
			if era == "E1" != (in.Era() == E1) || len(lines) < 2 {
				t.Errorf("%s: %d rows of era %s", path, len(lines), in.Era())
			}
		}
	}
}
