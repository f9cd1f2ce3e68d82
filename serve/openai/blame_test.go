package openai

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/grammar"
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

// TestNoWaitForSchemas has the grammar of a call go on while somebody's schema is compiled, and one that is
// compiled be used.
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
	c, err := s.schemas.calls(t.Context(), tools)
	if err != nil {
		t.Fatal(err)
	}
	m := c.matcher()
	m.expect("\n</tool_call>", betweenCalls)
	s.schemas.compiling.Lock()
	defer s.schemas.compiling.Unlock()
	done := make(chan bool)
	go func() {
		if _, err := s.schemas.calls(t.Context(), tools); err != nil {
			t.Error(err)
		}
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

// TestKeptSchemas compiles more than is kept: what no request has makes room, the oldest first, and
// what requests have is not forgotten; beyond the limit no more are taken.
func TestKeptSchemas(t *testing.T) {
	s := serveStories(t, nil)
	size := maxSchemaBytes/4 - 100
	schema := func(i int) string { return fmt.Sprintf(`{"type":"null","title":"%d%s"}`, i, strings.Repeat("a", size)) }
	ask := func(e *entry, i int) (*grammar.Constraint, error) {
		return s.schemas.constraint(context.WithValue(t.Context(), entryKey{}, e), "text", schema(i))
	}
	kept := func() (all []int) {
		bytes := 0
		for text := range s.schemas.compiled {
			bytes += len(text)
			all = append(all, int(text[len(`{"type":"null","title":"`)]-'0'))
		}
		if bytes > maxSchemaBytes || bytes != s.schemas.size || bytes == 0 {
			t.Errorf("%d bytes of schemas are kept, %d by the count, want at most %d", bytes, s.schemas.size, maxSchemaBytes)
		}
		slices.Sort(all)
		return all
	}
	first := &entry{}
	for i := range 9 {
		e := &entry{}
		if i == 0 {
			e = first
		}
		c, err := ask(e, i)
		if again, _ := ask(e, i); err != nil || c != again {
			t.Fatalf("schema %d is compiled twice, or: %v", i, err)
		}
		if i > 0 {
			s.schemas.release(e)
		}
	}
	if got := kept(); !slices.Equal(got, []int{0, 6, 7, 8}) {
		t.Errorf("kept are %v, want that of the request and the newest", got)
	}
	rest := &entry{}
	for i := 1; i < 4; i++ {
		if _, err := ask(rest, i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ask(&entry{}, 9); err == nil || asAPI(err).status != 429 || !strings.Contains(err.Error(), "at most 4194304; try again later") {
		t.Errorf("more than requests may have: %v", err)
	}
	s.schemas.release(rest)
	if _, err := ask(rest, 9); err != nil {
		t.Errorf("once they have ended: %v", err)
	}
	if got := kept(); !slices.Equal(got, []int{0, 2, 3, 9}) {
		t.Errorf("kept are %v", got)
	}
}

// TestSchemasEnd has requests that are answered, or refused, hold no schema.
func TestSchemasEnd(t *testing.T) {
	parsed, err := chat.Parse(callTemplates["hermes"])
	if err != nil {
		t.Fatal(err)
	}
	s := serveStories(t, func(c *Config) { c.Template = format{parsed, "<s>", "</s>"} })
	const form = `{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"null"}}}`
	for path, body := range map[string]string{
		"/v1/completions":      `{"prompt":"a","max_tokens":3,"n":2,"response_format":` + form + `}`,
		"/v1/chat/completions": `{"messages":[{"role":"user","content":"a"}],"max_tokens":9,"tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}]}`,
		"/v1/responses":        `{"input":"a","max_output_tokens":100000,"text":{"format":{"type":"json_object"}}}`, // more than fit
	} {
		if status, text := s.ask("POST", path, body); status != 200 && path != "/v1/responses" {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
	if n := len(s.schemas.compiled); n != 3 {
		t.Errorf("%d schemas are kept, want 3", n)
	}
	for schema, c := range s.schemas.compiled {
		if c.users != 0 || c.asked == 0 {
			t.Errorf("%.80q: %d requests have it", schema, c.users)
		}
	}
}
