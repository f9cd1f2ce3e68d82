package openai

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/tokenizer/chat"
)

// responseEvent is an event of /v1/responses.
type responseEvent struct {
	Type      string
	Number    int `json:"sequence_number"`
	Index     int `json:"output_index"`
	Delta     string
	Text      string
	Arguments string
	Item      *outputItem
	Response  *response
}

// responseEvents are the events of a stream, whose names are their types.
func responseEvents(t *testing.T, body string) (all []responseEvent) {
	t.Helper()
	for i, text := range strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		name, data, _ := strings.Cut(text, "\ndata: ")
		var e responseEvent
		if err := json.Unmarshal([]byte(data), &e); err != nil || name != "event: "+e.Type || e.Number != i {
			t.Fatalf("event %d is %q: %v", i, text, err)
		}
		all = append(all, e)
	}
	return all
}

// TestResponses is a text as /v1/chat/completions writes it, whole and in a stream.
func TestResponses(t *testing.T) {
	s := serveStories(t, nil)
	var chat chatAnswer
	s.post(t, "/v1/chat/completions", `{"messages":[{"role":"system","content":"Be kind."},{"role":"user","content":"Hi."},{"role":"assistant","content":"Ho."},{"role":"user","content":"And?"}],"temperature":0,"max_tokens":12}`, &chat)
	body := `{"instructions":"Be kind.","input":[{"role":"user","content":"Hi."},{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Ho.","annotations":[]}]},` +
		`{"role":"user","content":[{"type":"input_text","text":"And?"}]}],"temperature":0,"max_output_tokens":12,"store":false,"metadata":{"a":"b"}`
	var got response
	s.post(t, "/v1/responses", body+"}", &got)
	want := *chat.Choices[0].Message.Content
	if part := (*got.Output[0].Content)[0]; part.Text != want || got.Status != "incomplete" || got.Incomplete.Reason != "max_output_tokens" || string(got.Metadata) != `{"a":"b"}` {
		t.Errorf("%+v %q, want %q", got, part.Text, want)
	}
	if u := got.Usage; u.Input != chat.Usage.Prompt || u.Output != 12 || u.Total != u.Input+12 || u.Gollm.Attn != "dense" {
		t.Errorf("%+v", u)
	}
	_, text := s.ask("POST", "/v1/responses", body+`,"stream":true}`)
	var kinds []string
	var written string
	for _, e := range responseEvents(t, text) {
		written += e.Delta
		if e.Type == "response.output_text.done" && e.Text != want {
			t.Errorf("it ends as %q", e.Text)
		}
		if n := len(kinds); n == 0 || kinds[n-1] != e.Type {
			kinds = append(kinds, e.Type)
		}
		if e.Type == "response.incomplete" && ((*e.Response.Output[0].Content)[0].Text != want || e.Response.Usage.Output != 12) {
			t.Errorf("%+v", e.Response)
		}
	}
	if order := []string{"response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.delta",
		"response.output_text.done", "response.content_part.done", "response.output_item.done", "response.incomplete"}; written != want || !reflect.DeepEqual(kinds, order) {
		t.Errorf("%q, want %q; %v", written, want, kinds)
	}
	s.post(t, "/v1/responses", `{"input":"Hi.","seed":3,"temperature":2,"text":{"format":{"type":"json_schema","name":"x","strict":true,"schema":{"enum":["a","b"]}}}}`, &got)
	if text := (*got.Output[0].Content)[0].Text; got.Status != "completed" || text != `"a"` && text != `"b"` {
		t.Errorf("%s: %q is none of the schema", got.Status, text)
	}
}

// TestResponseTools are calls, whole and in a stream, and what follows on their answers.
func TestResponseTools(t *testing.T) {
	s := serveCaller(t, "hermes")
	tools := strings.NewReplacer(`{"type":"function","function":{`, `{"type":"function",`, `}}}}},`, `}}}},`, `false}}}]`, `false}}]`).Replace(weatherTools)
	for seed := range 4 {
		body := fmt.Sprintf(`{"input":"Hi.","seed":%d,"temperature":1.5,"tool_choice":"required","max_output_tokens":900,%s`, seed, tools)
		var got response
		s.post(t, "/v1/responses", body+"}", &got)
		var calls []toolCall
		for _, it := range got.Output {
			if it.Type != "function_call" || it.Status != "completed" || it.ID == it.CallID {
				t.Errorf("%+v", it)
			}
			calls = append(calls, toolCall{ID: it.CallID, Type: "function", Function: functionCall{it.Name, *it.Arguments}})
		}
		if names := checkCalls(t, calls); len(names) == 0 || got.Status != "completed" {
			t.Fatalf("%+v", got)
		}
		_, text := s.ask("POST", "/v1/responses", body+`,"stream":true}`)
		written := make([]string, len(calls))
		for _, e := range responseEvents(t, text) {
			switch e.Type {
			case "response.output_item.added":
				if e.Item.Name != calls[e.Index].Function.Name || *e.Item.Arguments != "" {
					t.Errorf("call %d begins as %+v", e.Index, e.Item)
				}
			case "response.function_call_arguments.delta":
				written[e.Index] += e.Delta
			case "response.function_call_arguments.done":
				if e.Arguments != calls[e.Index].Function.Arguments || written[e.Index] != e.Arguments {
					t.Errorf("call %d ends as %q, %q", e.Index, e.Arguments, written[e.Index])
				}
			}
		}
	}
	var all items
	if err := json.Unmarshal([]byte(`[{"role":"user","content":"a"},{"type":"function_call","call_id":"1","name":"f","arguments":"{}","id":"fc_1"},{"type":"function_call","call_id":"2","name":"g","arguments":"{\"x\":1}"},`+
		`{"type":"function_call_output","call_id":"1","output":"b"},{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"c"}]}]`), &all); err != nil {
		t.Fatal(err)
	}
	text, err := s.render(t.Context(), all, nil, chat.Conversation{})
	if want := `<s>user: aassistant: <tool_call>{"name": "f", "arguments": {}}</tool_call><tool_call>{"name": "g", "arguments": {"x": 1}}</tool_call>tool: btool: c`; err != nil || text != want {
		t.Errorf("%q, want %q; %v", text, want, err)
	}
}
