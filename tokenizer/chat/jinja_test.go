package chat

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"
)

// tool is the function of the conversation with tools.
const tool = `{"type": "function", "function": {
	"name": "weather", "description": "Weather of a \"city\", in °C & more",
	"parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1.5}}, "required": ["city"]}}}`

// jinjaConversations are those of scripts/chat-vectors.py.
func jinjaConversations() []Conversation {
	short, tools, odd := sample, sample, sample
	short.Messages, short.AddGenerationPrompt = sample.Messages[1:3], false
	tools.Tools = []json.RawMessage{json.RawMessage(tool), json.RawMessage(tool)}
	odd.Messages = []Message{{Role: "user", Content: "naïve 😀 <|eot_id|> {{ 1 }} \\n \"q\""}}
	called := tools
	called.Tools, called.Messages = tools.Tools[:1], []Message{
		{Role: "user", Content: "How is it in Köln?"},
		{Role: "assistant", Calls: []Call{{ID: "abcdefgh1", Name: "weather", Arguments: json.RawMessage(`{"city": "Köln", "days": [1, 2.5, null]}`)}}},
		{Role: "tool", Content: `{"sky": "<|eot_id|>"}`, CallID: "abcdefgh1"},
	}
	return []Conversation{sample, short, tools, odd, called}
}

// TestAgainstPython checks renderings against those of Python's Jinja.
func TestAgainstPython(t *testing.T) {
	data, err := os.ReadFile("testdata/jinja.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Source, File string
		Conversation int
		Want         string
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) < 65 {
		t.Fatalf("only %d vectors", len(vectors))
	}
	conversations := jinjaConversations()
	for _, v := range vectors {
		t.Run(v.File, func(t *testing.T) {
			source := v.Source
			if v.File != "" {
				source = sharedTemplate(t, v.File)
			}
			got, err := render(t, source, conversations[v.Conversation])
			if err != nil || got != v.Want {
				t.Errorf("%q: got %q, %v\nwant %q", v.Source, got, err, v.Want)
			}
		})
	}
}

// TestUnsupported names what Jinja has and this package refuses.
func TestUnsupported(t *testing.T) {
	for _, source := range []string{
		`{{ 'a' 'b' }}`, `{% block x %}{% endblock %}`, `{% call x() %}{% endcall %}`, `{% call 1 %}{% endcall %}`, `{% macro m() %}{% endmacro %}{% call m() %}x{% endcall %}{{ caller }}`, `{% call x %}{% endcall %}`,
		`{{ cycler(1, 2) }}`, `{{ 'x' | urlize }}`, `{{ lipsum(9) }}`, `{% set a, b = 1 %}`, `{% set a, b = 1, 2, 3 %}`, `{% set a, 1 = 1, 2 %}`,
		`{% with a %}{% endwith %}`, `{% with 1 = 2 %}{% endwith %}`, `{% filter %}{% endfilter %}`, `{% filter nosuch %}{% endfilter %}`,
		`{% filter upper %}`, `{% endfilter %}`, `{% call(1) x() %}{% endcall %}`, `{{ '%d' | format('x') }}`, `{{ '%q' | format(1) }}`,
		`{{ '%s %s' | format(1) }}`, `{{ '%s' | format(1, 2) }}`, `{{ '%(a)s' | format(b=1) }}`, `{{ '%*d' | format(3, 1) }}`, `{{ 1 % (2, 3) }}`,
	} {
		if got, err := render(t, source, sample); err == nil {
			t.Errorf("%s gives %q", source, got)
		} else if !strings.HasPrefix(err.Error(), "chat: template: ") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestErrorsNameTheLine checks that what cannot be parsed is told with its line.
func TestErrorsNameTheLine(t *testing.T) {
	for source, want := range map[string]string{
		"a\n{{ 1":                "line 2: '}}' expected",
		"a\r\n\r\n{{ 'abc }}":    "line 3: it cannot be read",
		"\n{{ ! }}":              "line 2: it cannot be read",
		"a\n\n{% set x 1 %}":     `line 3: malformed set tag, near "1"`,
		"\n{% set %}":            "line 2: expected",
		"\n{% set x = %}":        "line 2: expected",
		"\n{% if %}x{% endif %}": "line 2: expected",
		"\n{% if x %}\n{% for y in %}{% endfor %}\n\n\n": "line 3: expected",
		"\n{% if 1 %}\n\n{% include 'x' %}{% endif %}":   "line 4: the tag include reads other templates",
		"\n\n{% macro m(x=f()) %}{% endmacro %}":         "line 3: macro m: a default value",
		"\n{% call 1 %}{% endcall %}":                    "line 2: malformed call tag",
	} {
		_, err := Parse(source)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", source, err, want)
		}
	}
}

// FuzzChatTemplate checks that any template ends soon, without a panic, with a text
// of bounded length or an error of one sentence.
func FuzzChatTemplate(f *testing.F) {
	for _, test := range hostile {
		f.Add(test[0])
	}
	data, err := os.ReadFile("testdata/jinja.json")
	if err != nil {
		f.Fatal(err)
	}
	var vectors []struct{ Source string }
	if err := json.Unmarshal(data, &vectors); err != nil {
		f.Fatal(err)
	}
	for _, v := range vectors {
		f.Add(v.Source)
	}
	c := jinjaConversations()[2]
	f.Fuzz(func(t *testing.T, source string) {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		tpl, err := Parse(source)
		if err == nil {
			var text string
			text, err = tpl.Render(ctx, c)
			if len(text) > totalBytes+64*(len(source)+4096) {
				t.Errorf("it renders %d bytes", len(text))
			}
		}
		if err != nil && len(err.Error()) > 500 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
		if took := time.Since(start); took > hang {
			t.Errorf("it took %v", took)
		}
	})
}
