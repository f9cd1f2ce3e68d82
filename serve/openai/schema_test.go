package openai

import (
	"encoding/json"
	"testing"
)

// TestSchema wants answers that are what the schema says, whatever the model would write.
func TestSchema(t *testing.T) {
	s := serveStories(t, nil)
	format := `"response_format":{"type":"json_schema","json_schema":{"name":"child","strict":true,"schema":{"type":"object",` +
		`"properties":{"name":{"type":"string","maxLength":8},"age":{"type":"integer","minimum":1,"maximum":9},"kind":{"enum":["girl","boy"]}},"required":["name","age","kind"],"additionalProperties":false}}}`
	var got chatAnswer
	s.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"Who?"}],"temperature":2,"seed":4,"n":4,"max_tokens":150,"logprobs":true,`+format+`}`, &got)
	seen := map[string]bool{}
	for _, one := range got.Choices {
		var child struct {
			Name, Kind string
			Age        int
		}
		if err := strict([]byte(*one.Message.Content), &child); err != nil || *one.FinishReason != "stop" {
			t.Errorf("%q ends by %s: %v", *one.Message.Content, *one.FinishReason, err)
		}
		if len([]rune(child.Name)) > 8 || child.Age < 1 || child.Age > 9 || child.Kind != "girl" && child.Kind != "boy" {
			t.Errorf("%+v", child)
		}
		seen[*one.Message.Content] = true
	}
	if len(seen) < 2 {
		t.Error("all choices are the same")
	}
	var text completion
	s.post(t, "/v1/completions", `{"prompt":"Once","temperature":2,"max_tokens":30,"seed":1,"response_format":{"type":"json_object"}}`, &text)
	if c := text.Choices[0]; c.Text[0] != '{' || *c.FinishReason == "stop" && !json.Valid([]byte(c.Text)) {
		t.Errorf("%q", c.Text)
	}
	if n := len(s.schemas.compiled); n != 2 {
		t.Errorf("%d schemas are kept, want 2", n)
	}
}
