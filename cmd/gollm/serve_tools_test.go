//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// TestServeTools has the demo model call a function by the template of docs/serve and the request of
// docs/serve.md, and takes the answer to the call.
func TestServeTools(t *testing.T) {
	found := regexp.MustCompile(`(?s)serve -m testdata/demo.gguf (--template docs/serve/tools.jinja) .*? -d '\n(.*?)'\n`).FindStringSubmatch(contents(t, "../../docs/serve.md"))
	if found == nil {
		t.Fatal("docs/serve.md has no call of a function")
	}
	_, url, _ := startServer(t, "-m", "../../testdata/demo.gguf", "--template", "../../docs/serve/tools.jinja", "--ctx", "2k", "--slots", "2")
	type call struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	}
	var got struct {
		Choices []struct {
			Reason  string `json:"finish_reason"`
			Message struct {
				Content *string
				Calls   []call `json:"tool_calls"`
			}
		}
	}
	ask := func(path, body string, dst any) {
		r, err := http.Post(strings.TrimSuffix(url, "/v1")+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		b, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(b, dst); err != nil || r.StatusCode != 200 {
			t.Fatalf("%d %s", r.StatusCode, b)
		}
	}
	ask("/v1/chat/completions", found[2], &got)
	one := got.Choices[0]
	var args struct {
		City string
		Days int
	}
	if len(one.Message.Calls) != 1 || one.Reason != "tool_calls" || one.Message.Content != nil {
		t.Fatalf("%+v", one)
	}
	c := one.Message.Calls[0]
	if err := json.Unmarshal([]byte(c.Function.Arguments), &args); err != nil || c.Function.Name != "weather" || args.City != "Rome" && args.City != "Oslo" || args.Days < 1 || args.Days > 7 {
		t.Errorf("%+v %v", c, err)
	}
	var request map[string]any
	if err := json.Unmarshal([]byte(found[2]), &request); err != nil {
		t.Fatal(err)
	}
	c.Function.Arguments = `{"city":"Rome","days":2}`
	request = map[string]any{"tools": request["tools"], "messages": append(request["messages"].([]any),
		map[string]any{"role": "assistant", "tool_calls": []call{c}}, map[string]any{"role": "tool", "tool_call_id": c.ID, "content": "No."})}
	body, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var text struct{ Prompt string }
	ask("/apply-template", string(body), &text)
	for _, want := range []string{`{"name": "weather", "parameters": {`, "user: Is it raining in Rome?\nassistant: \n<tool_call>\n" +
		`{"name": "weather", "arguments": {"city": "Rome", "days": 2}}` + "\n</tool_call>\ntool: No.\nassistant: "} {
		if !strings.Contains(text.Prompt, want) {
			t.Errorf("%q has no %q", text.Prompt, want)
		}
	}
}
