package openmodel

import (
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/sparse"
)

func TestSpecFiles(t *testing.T) {
	for text, want := range map[string]string{
		"dense":                              "dense",
		"- streaming":                        "streaming",
		"- streaming:paper":                  "streaming:paper",
		"streaming: {sink: 4, window: 16}":   "",
		"- streaming: {sink: 4, window: 16}": "streaming(sink=4,window=16)",
		"prefill:\n  - streaming:\n      sink: 4\ndecode:\n  - topk": "prefill=streaming(sink=4) decode=topk",
		"decode: topk": "decode=topk",
		"prefill: [{streaming: {sink: 4}}]\ndecode: [topk: {k: 0.25}]": "prefill=streaming(sink=4) decode=topk(k=0.25)",
		"- topk:":          "topk",
		"- topk: {k: 1.0}": "topk(k=1.0)",
	} {
		s, err := ReadSpec("@" + clitest.WriteFile(t, "spec.yaml", text))
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "want prefill or decode") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		line, err := sparse.Parse(want)
		if err != nil {
			t.Fatal(err)
		}
		if s.String() != line.String() {
			t.Errorf("%q is %q, want %q", text, s, line)
		}
	}
}

func TestSpecFileErrors(t *testing.T) {
	for text, word := range map[string]string{
		"":                                     "empty",
		"[]":                                   "empty",
		"- nope":                               "there are: dense",
		"- streaming: {sinks: 4}":              "it has: sink, window",
		"- streaming: {sink: many}":            "want a whole number",
		"- streaming: {sink: 1, sink: 2}":      "given twice",
		"- streaming:none":                     "no preset",
		"- streaming: [1]":                     "line 1: want a map of options",
		"- streaming: {sink: [1]}":             "want one word or number",
		"- 'streaming(sink=4)'":                "want one word or number",
		"- streaming: {sink: '4) + topk(k=1'}": "want one word or number",
		"- {streaming: {}, topk: {}}":          "want the name of a method",
		"prefill: dense\nprefill: topk":        "twice",
		"both: dense":                          "want prefill or decode",
		"- [dense":                             "line 1",
		"- streaming\n- topk":                  "both of the stage",
	} {
		path := clitest.WriteFile(t, "spec.yaml", text)
		_, err := ReadSpec("@" + path)
		if err == nil || !strings.Contains(err.Error(), word) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("%q: %v, want %q", text, err, word)
		}
	}
	if _, err := ReadSpec("@no-such-file.yaml"); err == nil || !strings.Contains(err.Error(), "no-such-file.yaml") {
		t.Errorf("%v", err)
	}
}

// FuzzSpecFile: no panic, and a spec that is read is one that the one-line form
// can say.
func FuzzSpecFile(f *testing.F) {
	f.Add("prefill: [{streaming: {sink: 4}}]\ndecode: [topk: {k: 0.25}]")
	f.Add("- &a streaming\n- *a")
	f.Fuzz(func(t *testing.T, text string) {
		line, err := specLine([]byte(text))
		if err != nil {
			return
		}
		s, err := sparse.Parse(line)
		if err != nil {
			return
		}
		if again, err := sparse.Parse(s.String()); err != nil || again.String() != s.String() {
			t.Errorf("%q is %q, and that is %v, %v", text, s, again, err)
		}
	})
}
