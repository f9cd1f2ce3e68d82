package openai

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// TestNoWaitForSchemas has the grammar of a call go on while somebody's schema is compiled.
func TestNoWaitForSchemas(t *testing.T) {
	parsed, err := chat.Parse(callTemplates["hermes"])
	if err != nil {
		t.Fatal(err)
	}
	s := serveStories(t, func(c *Config) { c.Template = format{parsed, "<s>", "</s>"} })
	tools, err := s.toolsOf([]function{{Name: "f"}}, &toolChoice{mode: "required"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.schemas.calls(tools)
	if err != nil {
		t.Fatal(err)
	}
	m := c.matcher()
	m.expect("\n</tool_call>", betweenCalls)
	s.schemas.mu.Lock()
	defer s.schemas.mu.Unlock()
	done := make(chan bool)
	go func() {
		m.MaskContext(t.Context())
		s.schemas.objectTokens()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("a mask waits until a schema is compiled")
	}
}

// TestKeptSchemas compiles more than is kept: the oldest make room.
func TestKeptSchemas(t *testing.T) {
	s := serveStories(t, nil)
	size := maxSchemaBytes/4 - 100
	for i := range 9 {
		schema := fmt.Sprintf(`{"type":"null","title":"%d%s"}`, i, strings.Repeat("a", size))
		c, err := s.schemas.constraint("text", schema)
		if again, _ := s.schemas.constraint("text", schema); err != nil || c != again {
			t.Fatalf("schema %d is compiled twice, or: %v", i, err)
		}
	}
	kept := 0
	for schema := range s.schemas.compiled {
		kept += len(schema)
	}
	if kept > maxSchemaBytes || kept != s.schemas.size || kept == 0 {
		t.Errorf("%d bytes of schemas are kept, %d by the count, want at most %d", kept, s.schemas.size, maxSchemaBytes)
	}
}
