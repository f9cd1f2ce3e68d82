package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// TestEnds has answers end, and not end, where vLLM's extensions say, on both endpoints that know them by
// the same names and on /v1/responses.
func TestEnds(t *testing.T) {
	s := serveStories(t, nil)
	c := storyCases(t)[0]
	tok := s.conf.Tokenizer
	three := ""
	for _, id := range c.Greedy[:3] {
		three += tok.Piece(id)
	}
	wanted := fmt.Sprintf(`"logit_bias":{"%d":100}`, tok.EOS()) // the model would end at once
	for _, x := range []struct {
		fields string
		n      int
		text   string // of the answer, "-" for any
		finish string
	}{
		{wanted, 1, "", "stop"},
		{wanted + `,"ignore_eos":true`, 12, "", "length"},
		{wanted + `,"min_tokens":5`, 6, "-", "stop"},
		{wanted + `,"min_tokens":12`, 12, "-", "length"},
		{wanted + fmt.Sprintf(`,"ignore_eos":true,"stop_token_ids":[%d]`, tok.EOS()), 1, "", "stop"},
		{fmt.Sprintf(`"stop_token_ids":[%d]`, c.Greedy[3]), 4, three, "stop"},
		{fmt.Sprintf(`"stop_token_ids":[%d],"min_tokens":6`, c.Greedy[3]), 12, "-", "length"},
		{`"stop":` + quoted(tok.Piece(c.Greedy[3])), 4, three, "stop"},
		{`"stop":` + quoted(tok.Piece(c.Greedy[3])) + `,"min_tokens":4`, 12, "-", "length"},
	} {
		var got completion
		s.post(t, "/v1/completions", `{"prompt":`+quoted(c.Prompt)+`,"temperature":0,"max_tokens":12,`+x.fields+`}`, &got)
		one := got.Choices[0]
		if got.Usage.Completion != x.n || *one.FinishReason != x.finish || x.text != "-" && one.Text != x.text {
			t.Errorf("%s: %d tokens, %s, %q; want %d, %s, %q", x.fields, got.Usage.Completion, *one.FinishReason, one.Text, x.n, x.finish, x.text)
		}
	}
	for path, fields := range map[string]string{"/v1/chat/completions": `"messages":[{"role":"user","content":"a"}],"max_tokens":9,`, "/v1/responses": `"input":"a","max_output_tokens":9,`} {
		var got struct{ Usage map[string]any }
		s.post(t, path, `{`+fields+wanted+`,"ignore_eos":true}`, &got)
		if n := max(number(got.Usage["completion_tokens"]), number(got.Usage["output_tokens"])); n != 9 {
			t.Errorf("%s: %v tokens, want 9", path, n)
		}
	}
}

// number is a number of JSON, 0 for anything else.
func number(v any) float64 {
	x, _ := v.(float64)
	return x
}

// TestDefaultsOfOthers takes fields of other servers that say what is so here, and refuses them
// where they say anything else: nothing is ignored that changes an answer.
func TestDefaultsOfOthers(t *testing.T) {
	s := serveStories(t, nil)
	for name, values := range with(ignoredSampling, map[string][]string{"stream_options": {`{"include_obfuscation":false}`}}) {
		for _, v := range values {
			if status, text := s.ask("POST", "/v1/completions", fmt.Sprintf(`{"prompt":"a","max_tokens":1,"stream":true,%q:%s}`, name, v)); status != 200 {
				t.Errorf("%s %s: %d %s", name, v, status, text)
			}
		}
		if status, text := s.ask("POST", "/v1/completions", fmt.Sprintf(`{"prompt":"a","max_tokens":1,"stream":true,%q:{"x":7}}`, name)); status != 422 || !strings.Contains(text, "unsupported_parameter") {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// TestTokensAsIDs names tokens by their ids.
func TestTokensAsIDs(t *testing.T) {
	s := serveStories(t, nil)
	c := storyCases(t)[0]
	var got completion
	s.post(t, "/v1/completions", `{"prompt":`+quoted(c.Prompt)+`,"temperature":0,"max_tokens":3,"logprobs":2,"return_tokens_as_token_ids":true}`, &got)
	var want []string
	for _, id := range c.Greedy[:3] {
		want = append(want, fmt.Sprintf("token_id:%d", id))
	}
	l := got.Choices[0].Logprobs
	if !slices.Equal(l.Tokens, want) || len(l.TopLogprobs[0]) != 2 || lookup(l.TopLogprobs[0], want[0]) == nil {
		t.Errorf("%q %v, want %q", l.Tokens, l.TopLogprobs, want)
	}
	var chat chatAnswer
	s.post(t, "/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":1,"logprobs":true,"top_logprobs":1,"return_tokens_as_token_ids":true}`, &chat)
	if token := chat.Choices[0].Logprobs.Content[0].Token; !strings.HasPrefix(token, "token_id:") {
		t.Error(token)
	}
}

// TestTokenizeConversation wants the tokens of messages that a chat would have, and on demand
// without what begins the answer.
func TestTokenizeConversation(t *testing.T) {
	parsed, err := chat.Parse(`{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}` + "\n" + `{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}`)
	if err != nil {
		t.Fatal(err)
	}
	s := serveStories(t, func(c *Config) { c.Template = format{parsed, "<s>", "</s>"} })
	type tokens struct {
		Count  int
		Tokens []int32
		Names  []string `json:"token_strs"`
	}
	var open, closed tokens
	const messages = `"messages":[{"role":"user","content":"Tom</s>"}]`
	s.post(t, "/tokenize", `{`+messages+`,"return_token_strs":true}`, &open)
	s.post(t, "/tokenize", `{`+messages+`,"add_generation_prompt":false,"add_special_tokens":false}`, &closed)
	var said completion
	s.post(t, "/v1/chat/completions", `{`+messages+`,"max_tokens":0}`, &said)
	tok := s.conf.Tokenizer
	if open.Count != said.Usage.Prompt || len(open.Names) != open.Count || len(open.Tokens) != open.Count || slices.Contains(open.Tokens, tok.EOS()) || open.Tokens[0] != tok.BOS() || open.Names[0] != "<s>" {
		t.Errorf("%+v, the chat has %d tokens", open, said.Usage.Prompt)
	}
	if all, rest := tok.Decode(open.Tokens, tokenizer.DecodeOptions{}), tok.Decode(closed.Tokens, tokenizer.DecodeOptions{}); all != rest+"assistant:" || closed.Names != nil {
		t.Errorf("%q, and without the beginning of the answer %q, %q", all, rest, closed.Names)
	}
	var text struct{ Prompt string }
	if s.post(t, "/apply-template", `{`+messages+`,"add_generation_prompt":false}`, &text); text.Prompt != "<s>user: Tom</s>\n" {
		t.Errorf("%q", text.Prompt)
	}
	for body, want := range map[string]string{
		`{"prompt":"a",` + messages + `}`:                                          "say one",
		`{"prompt":"a","add_generation_prompt":true}`:                              "say one",
		`{` + messages + `,"add_special_tokens":true}`:                             "the template says",
		`{"messages":[]}`:                                                          "no messages",
		`{"add_generation_prompt":5,` + messages + `}`:                             "add_generation_prompt is a JSON number",
		`{"continue_final_message":1,` + messages + `}`:                            "say false",
		`{"tools":[{"type":"function","function":{"name":"f"}}],` + messages + `}`: "knows no tools",
	} {
		if status, answer := s.ask("POST", "/tokenize", body); status/100 != 4 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s, want %s", body, status, answer, want)
		}
	}
}
