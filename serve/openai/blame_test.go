package openai

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gollm/gollm/tokenizer/chat"
)

// TestBlame names the function whose parameters are refused, and where in them.
func TestBlame(t *testing.T) {
	for name, source := range callTemplates {
		parsed, err := chat.Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		s := serveStories(t, func(c *Config) { c.Template = format{parsed, "<s>", "</s>"} })
		for _, c := range []struct{ parameters, want string }{
			{`{"properties":{"a":{"oneOf":[]}}}`, "the parameters of g: the schema at #/properties/a: the keyword"},
			{`{"type":"object","properties":{"a":false},"required":["a"]}`, "the parameters of g: the schema at #: no value"},
			{`{"$defs":{"b":{"type":"x"}},"properties":{"a":{"$ref":"#/$defs/b"}}}`, "the parameters of g: the schema at #/$defs/b: the type"},
		} {
			status, text := s.ask("POST", "/v1/chat/completions", fmt.Sprintf(`{"messages":[{"role":"user","content":"a"}],"tool_choice":"required",`+
				`"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"g","parameters":%s}}]}`, c.parameters))
			if status != 400 || !strings.Contains(strings.ReplaceAll(text, `\"`, `"`), c.want) {
				t.Errorf("%s, %s: %d %s, want %s", name, c.parameters, status, text, c.want)
			}
		}
	}
}
