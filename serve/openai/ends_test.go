package openai

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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
