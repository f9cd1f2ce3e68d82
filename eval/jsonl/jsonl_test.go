package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// read is the lines of r and the error at their end.
func read(r io.Reader) (lines []string, numbers []int, err error) {
	in := NewReader(r)
	for {
		line, number, err := in.Next()
		if err != nil {
			return lines, numbers, err
		}
		lines, numbers = append(lines, string(line)), append(numbers, number)
	}
}

func TestReader(t *testing.T) {
	long := strings.Repeat("x", 700000)
	for text, want := range map[string]string{
		"": "", "a": "a", "a\n": "a", "a\nb": "a|b", "\n\na\n": "||a", "a\r\nb": "a\r|b", "\ufeffa\n\ufeffb": "a|\ufeffb", "\ufeff": "", long + "\n" + long + "\nend": long + "|" + long + "|end",
	} {
		for _, r := range []io.Reader{strings.NewReader(text), iotest.HalfReader(strings.NewReader(text)), iotest.DataErrReader(strings.NewReader(text))} {
			lines, numbers, err := read(r)
			if got := strings.Join(lines, "|"); got != want || err != io.EOF {
				t.Errorf("%.20q: %d lines, %v", text, len(lines), err)
			}
			for i, n := range numbers {
				if n != i+1 {
					t.Errorf("%.20q: line %d has number %d", text, i+1, n)
				}
			}
		}
	}
}

func TestReaderKeepsErrors(t *testing.T) {
	broken := errors.New("broken")
	lines, _, err := read(io.MultiReader(strings.NewReader("a\nb"), iotest.ErrReader(broken)))
	if len(lines) != 1 || !errors.Is(err, broken) {
		t.Errorf("%v, %v", lines, err)
	}
}

// endless is a stream without line ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

func TestReaderEndsEndlessLines(t *testing.T) {
	if _, _, err := read(endless{}); err == nil || !strings.Contains(err.Error(), "no file of samples") {
		t.Errorf("error %v, want one about a line that is too long", err)
	}
}

func TestExplain(t *testing.T) {
	cause := fmt.Errorf("cause")
	for line, want := range map[string]string{
		`[1, 2]`: `begins with "[1, 2]"`, "\xff\xfe{}": "UTF-8", `{"list": "x"}`: "field list is of type string, want array", `{"text": 1}`: "field text is of type number, want string",
		`{"references": [null]}`: "want a list of strings, found [null]", `{"references": [1]}`: "found [1]", `{"references": "a"}`: `found "a"`,
	} {
		var into struct {
			Text       string
			List       []string
			References Texts
		}
		err := json.Unmarshal([]byte(line), &into)
		if err == nil {
			t.Errorf("%s is read as %v", line, into)
		} else if err = Explain([]byte(line), err); !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
	for line, want := range map[string]string{
		`{"a": `: "the line ends after 6 bytes", `{"a": x}`: "not a JSON object", "": "the line ends after 0 bytes",
	} {
		if err := Explain([]byte(line), cause); !strings.Contains(err.Error(), want) || !errors.Is(err, cause) {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}

func TestPlainNamesNoTypeOfGo(t *testing.T) {
	for text, c := range map[string]struct {
		into any
		want string
	}{
		`"x"`:        {new(int), "found string, want a whole number"},
		`1.5`:        {new(int), "found number 1.5, want a whole number"},
		`["x"]`:      {new(map[string]int), "found array, want object"},
		`{"a": "x"}`: {new(struct{ A int }), "field a is of type string, want a whole number"},
	} {
		if err := Plain(json.Unmarshal([]byte(text), c.into)); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", text, err, c.want)
		}
	}
	if err := Plain(io.EOF); err != io.EOF {
		t.Errorf("%v, want what was given", err)
	}
}

func TestMissing(t *testing.T) {
	for line, want := range map[string]string{
		`{"pred": null}`: "field pred is null, want a string", `{}`: "no field pred, a string", `{"Pred": null}`: "no field pred",
	} {
		if err := Missing([]byte(line), "pred", "a string"); !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", line, err, want)
		}
	}
}
