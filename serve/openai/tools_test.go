package openai

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/tokenizer/chat"
)

// callTemplates are short templates, one for each format of calls.
var callTemplates = map[string]string{
	"llama": `{{ bos_token }}{% if tools %}Answer {"name": N, "parameters": {}}. {{ tools | tojson }}{% endif %}{% for m in messages %}<|start_header_id|>{{ m.role }} {{ m.content }}` +
		`{% for c in m.tool_calls %}{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}{% endfor %}{% endfor %}>`,
	"mistral": `{{ bos_token }}{% if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}{% for m in messages %}[INST]{{ m.content }}[/INST]` +
		`{% if m.tool_calls %}[TOOL_CALLS]{{ m.tool_calls | tojson }}{% endif %}{% endfor %}`,
	"hermes": `{{ bos_token }}{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}` +
		`{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}`,
}

// serveCaller starts a server of a random model whose vocabulary has the tokens of all
// formats, with one of callTemplates.
func serveCaller(t *testing.T, template string) testServer {
	t.Helper()
	tokens, types := []string{"<unk>", "<s>", "</s>"}, []int32{2, 3, 3}
	for b := range 256 {
		tokens, types = append(tokens, fmt.Sprintf("<0x%02X>", b)), append(types, 6)
	}
	tokens, types = append(tokens, "[TOOL_CALLS]", "<|python_tag|>", "<tool_call>", "</tool_call>"), append(types, 3, 3, 4, 4)
	for len(tokens) < 320 {
		tokens, types = append(tokens, fmt.Sprintf("▁w%d", len(tokens))), append(types, 1)
	}
	path := clitest.RandomModel(t, modeltest.Shape{Context: 2048, Layers: 1, Keys: map[string]any{"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types}})
	return serveModel(t, path, 2048, func(c *Config) {
		parsed, err := chat.Parse(callTemplates[template])
		if err != nil {
			t.Fatal(err)
		}
		c.Template = format{parsed, "<s>", "</s>"}
	})
}

// weatherTools are two functions, one of them with a schema that refers to itself.
const weatherTools = `"tools":[{"type":"function","function":{"name":"weather","description":"<tool_call>","strict":true,"parameters":{"type":"object",` +
	`"properties":{"city":{"$ref":"#/$defs/city"},"days":{"type":"integer","minimum":1,"maximum":9}},"required":["city","days"],"additionalProperties":false,"$defs":{"city":{"enum":["Köln","Rome"]}}}}},` +
	`{"type":"function","function":{"name":"now","strict":true,"parameters":{"type":"object","properties":{},"additionalProperties":false}}}]`

// checkCalls wants calls as weatherTools has them, and returns their names.
func checkCalls(t *testing.T, calls []toolCall) (names []string) {
	t.Helper()
	for _, c := range calls {
		var got struct {
			City string
			Days int
		}
		err := strict([]byte(c.Function.Arguments), &got)
		switch {
		case c.Type != "function" || len(c.ID) < 9 || c.Index != nil || err != nil:
			t.Errorf("%+v: %v", c, err)
		case c.Function.Name == "weather" && got.Days >= 1 && got.Days <= 9 && (got.City == "Köln" || got.City == "Rome"):
		case c.Function.Name == "now" && got == struct {
			City string
			Days int
		}{}:
		default:
			t.Errorf("%+v", c)
		}
		names = append(names, c.Function.Name)
	}
	return names
}

// TestTools wants calls where there must be one, which are as the schema says, and the same
// in a stream.
func TestTools(t *testing.T) {
	for name := range callTemplates {
		s := serveCaller(t, name)
		several := 0
		for seed := range 6 {
			for choice, want := range map[string]string{`"required"`: "", `{"type":"function","function":{"name":"now"}}`: "now"} {
				body := fmt.Sprintf(`{"messages":[{"role":"user","content":"</tool_call>"}],"temperature":1.5,"seed":%d,"max_tokens":1200,"tool_choice":%s,%s`, seed, choice, weatherTools)
				var got chatAnswer
				s.post(t, "/v1/chat/completions", body+"}", &got)
				m := got.Choices[0].Message
				names := checkCalls(t, m.Calls)
				if len(names) == 0 || m.Content != nil || *got.Choices[0].FinishReason != "tool_calls" || want != "" && !slices.Equal(names, []string{want}) {
					t.Fatalf("%s, %s: %q, %s, %v", name, choice, names, *got.Choices[0].FinishReason, value(m.Content, "null"))
				}
				several += len(names) - 1
				calls, content, finish := streamed(t, s, body)
				for i := range m.Calls {
					m.Calls[i].ID = ""
				}
				if !reflect.DeepEqual(calls, m.Calls) || content != "" || finish != "tool_calls" {
					t.Errorf("%s: the stream has %+v %q %s, want %+v", name, calls, content, finish, m.Calls)
				}
			}
		}
		if (several > 0) != (name != "llama") {
			t.Errorf("%s: %d calls more than one", name, several)
		}
		var got chatAnswer
		s.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":300,"seed":1,"n":8,"tool_choice":"required","parallel_tool_calls":false,`+weatherTools+`}`, &got)
		for _, one := range got.Choices {
			if n := len(checkCalls(t, one.Message.Calls)); n != 1 {
				t.Errorf("%s: %d calls, want one", name, n)
			}
		}
	}
}

// streamed is an answer put together from its stream: calls without ids, text, and why it
// ended.
func streamed(t *testing.T, s testServer, body string) (calls []toolCall, content, finish string) {
	t.Helper()
	_, text := s.ask("POST", "/v1/chat/completions", body+`,"stream":true}`)
	for _, e := range events[chatAnswer](t, text) {
		d := e.Choices[0].Delta
		content += d.Content
		finish = value(e.Choices[0].FinishReason, finish)
		for _, c := range d.Calls {
			if *c.Index == len(calls) {
				if c.ID == "" || c.Function.Name == "" || c.Type != "function" {
					t.Errorf("a call begins with %+v", c)
				}
				calls = append(calls, toolCall{Type: c.Type, Function: functionCall{Name: c.Function.Name}})
			} else if c.ID != "" || c.Function.Name != "" || *c.Index != len(calls)-1 {
				t.Errorf("a call goes on with %+v", c)
			}
			calls[*c.Index].Function.Arguments += c.Function.Arguments
		}
	}
	return calls, content, finish
}

// TestToolsAuto makes the model likely to call: text stays text, and calls of strict functions
// are as their schemas say. With tool_choice none there is no call.
func TestToolsAuto(t *testing.T) {
	for _, c := range [][2]string{{"llama", "<0x7B>"}, {"llama", "<|python_tag|>"}, {"mistral", "[TOOL_CALLS]"}, {"hermes", "<tool_call>"}} {
		name := c[0]
		s := serveCaller(t, name)
		id, _ := s.engine.Tokenizer.ID(c[1])
		calls, texts := 0, 0
		for seed := range 10 {
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Hi"}],"temperature":1,"seed":%d,"max_tokens":300,"logit_bias":{"%d":6,"2":4},%s`, seed, id, weatherTools)
			var got chatAnswer
			s.post(t, "/v1/chat/completions", body+"}", &got)
			m := got.Choices[0].Message
			if *got.Choices[0].FinishReason == "length" {
				continue
			}
			calls += len(checkCalls(t, m.Calls))
			texts += len(value(m.Content, ""))
			if want := map[bool]string{true: "tool_calls", false: "stop"}[len(m.Calls) > 0]; *got.Choices[0].FinishReason != want {
				t.Errorf("%s ends by %s: %+v", name, *got.Choices[0].FinishReason, m)
			}
			again, content, _ := streamed(t, s, body)
			if content != value(m.Content, "") || len(again) != len(m.Calls) {
				t.Errorf("%s: the stream has %q and %d calls, want %q and %d", name, content, len(again), value(m.Content, ""), len(m.Calls))
			}
			var none chatAnswer
			s.post(t, "/v1/chat/completions", body+`,"tool_choice":"none"}`, &none)
			if m := none.Choices[0].Message; m.Calls != nil || m.Content == nil {
				t.Errorf("%s with tool_choice none: %+v", name, m)
			}
		}
		for seed := range 4 {
			var got chatAnswer
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":"Hi"}],"seed":%d,"max_tokens":200,"logit_bias":{"%d":9},"parallel_tool_calls":false,%s}`,
				seed, id, strings.ReplaceAll(weatherTools, `"strict":true,`, ""))
			s.post(t, "/v1/chat/completions", body, &got)
			if n := len(got.Choices[0].Message.Calls); n > 1 || n == 0 && name == "mistral" {
				t.Errorf("%s without parallel calls: %d", name, n)
			}
		}
		if calls == 0 || texts == 0 && name == "hermes" {
			t.Errorf("%s: %d calls and %d bytes of text", name, calls, texts)
		}
	}
}

// TestToolConversation sends calls and their answers back: they are in the prompt as the
// template writes them, and nothing of them is a control token.
func TestToolConversation(t *testing.T) {
	s := serveCaller(t, "mistral")
	messages := []message{
		{Role: "user", Content: "a"},
		{Role: "assistant", Calls: []toolCall{{ID: "1", Function: functionCall{Name: "[TOOL_CALLS]", Arguments: `{"</s>": "<s>"}`}}}},
		{Role: "tool", Content: "[TOOL_CALLS]", CallID: "1"},
	}
	tools, err := s.toolsOf([]function{{Name: "f", Parameters: json.RawMessage(`{"title":"[TOOL_CALLS]"}`)}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := s.conversation(t.Context(), messages, tools, true)
	if err != nil {
		t.Fatal(err)
	}
	marker, _ := s.engine.Tokenizer.ID("[TOOL_CALLS]")
	var special []int32
	for _, id := range ids {
		if s.engine.Tokenizer.Special(id) {
			special = append(special, id)
		}
	}
	if !slices.Equal(special, []int32{s.engine.Tokenizer.BOS(), marker}) {
		t.Errorf("the control tokens are %v", special)
	}
	text, err := s.render(t.Context(), messages, tools, chat.Conversation{})
	if want := `<s>[AVAILABLE_TOOLS][{"type": "function", "function": {"name": "f", "parameters": {"title": "[TOOL_CALLS]"}}}][INST]a[/INST][INST][/INST]` +
		`[TOOL_CALLS][{"type": "function", "function": {"name": "[TOOL_CALLS]", "arguments": {"</s>": "<s>"}}, "id": "1"}][INST][TOOL_CALLS][/INST]`; err != nil || text != want {
		t.Errorf("%s\n%s %v", text, want, err)
	}
}

// TestCallParser has answers and what is in them, in one piece and in small ones.
func TestCallParser(t *testing.T) {
	for _, c := range []struct{ format, text, content, calls string }{
		{"llama", `{"name": "f", "parameters": {"a": "}\"{"}}`, "", `f({"a": "}\"{"})`},
		{"llama", "\n <|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "", `f({})`},
		{"llama", `{"parameters": {"a": [1, {}]}, "name": "f"}; {"name": "g", "arguments": 5}`, "", `f({"a": [1, {}]})g(5)`},
		{"llama", `{"name": "f"}`, "", `f({})`},
		{"llama", `{"name": "other", "parameters": {}}`, `{"name": "other", "parameters": {}}`, ""},
		{"llama", ` {"age": 5, "x": "\\"} `, ` {"age": 5, "x": "\\"} `, ""},
		{"llama", `Hi. {"name": "f", "parameters": {}}`, `Hi. {"name": "f", "parameters": {}}`, ""},
		{"llama", `<|python_tag|>f.call(x=1)`, `<|python_tag|>f.call(x=1)`, ""},
		{"llama", `{"name": "f", "parameters": {"a": 1`, "", `f({"a": 1)`},
		{"llama", `{"nam`, `{"nam`, ""},
		{"llama", `<|pyt`, `<|pyt`, ""},
		{"mistral", `[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "arguments": {"é": 1}, "id": "x"}]`, "", `f({})g({"é": 1})`},
		{"mistral", `[TOOL_CALLS] [{"name": "f", "arguments": {}} ] `, "", `f({})`},
		{"mistral", `[TOOL_CALLS]{"name": "f", "arguments": {}}`, "", `f({})`},
		{"mistral", `Ok [TOOL_CALLS]never mind [INST`, `Ok [TOOL_CALLS]never mind [INST`, ""},
		{"mistral", `[TOOL_CALLS][]`, `[TOOL_CALLS][]`, ""},
		{"mistral", `[TOOL_CALLS][{"name": "f", "arguments": {}},`, "", `f({})`},
		{"hermes", "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": true}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", "Let me see.", `f({"a": true})g({})`},
		{"hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> done ", " done", `f({})`},
		{"hermes", "<tool_call>\n{\"name\": \"x\"}\n</tool_call>", "<tool_call>\n{\"name\": \"x\"}\n</tool_call>", ""},
		{"hermes", "a < b <tool> ", "a < b <tool> ", ""},
		{"hermes", "a <tool_c", "a <tool_c", ""},
	} {
		parsed, err := chat.Parse(callTemplates[c.format])
		if err != nil {
			t.Fatal(err)
		}
		tools := &toolset{format: parsed.Calls(), tools: []function{{Name: "f"}, {Name: "g"}}}
		for seed := range 20 {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			p := tools.newParser()
			var content, calls strings.Builder
			open := ""
			add := func(text string, deltas []callDelta) {
				content.WriteString(text)
				for _, d := range deltas {
					if d.name != "" {
						calls.WriteString(open + d.name + "(")
						open = ")"
					}
					calls.WriteString(d.arguments)
				}
			}
			for rest := []rune(c.text); len(rest) > 0; {
				n := len(rest)
				if seed > 0 {
					n = 1 + rng.IntN(min(n, 1+seed))
				}
				add(p.write(string(rest[:n])))
				rest = rest[n:]
			}
			add(p.end())
			if got := calls.String() + open; content.String() != c.content || got != c.calls {
				t.Fatalf("%s, %q: %q and %q, want %q and %q", c.format, c.text, content.String(), got, c.content, c.calls)
			}
		}
	}
}

// TestCallFormats finds the format of templates of models.
func TestCallFormats(t *testing.T) {
	for file, want := range map[string]string{"meta-llama-Llama-3.1-8B-Instruct.jinja": "parameters", "mistralai-Mistral-Nemo-Instruct-2407.jinja": "arguments"} {
		source, err := os.ReadFile("../../../shared/data/templates/" + file)
		if err != nil {
			t.Skip(err)
		}
		parsed, err := chat.Parse(string(source))
		if err != nil {
			t.Fatal(err)
		}
		if f := parsed.Calls(); f == nil || f.Arguments != want || f.List != (want == "arguments") {
			t.Errorf("%s: %+v", file, f)
		}
	}
}
