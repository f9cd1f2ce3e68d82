package openai

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"strings"

	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// Template turns a conversation into the text that the model continues.
type Template interface {
	Text(ctx context.Context, messages []chat.Message) (string, error)
}

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	params
	Messages            []message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	Logprobs            bool      `json:"logprobs"`
	TopLogprobs         *int      `json:"top_logprobs"`
}

// ignoredChat are fields that change nothing here, besides ignoredParams.
var ignoredChat = with(ignoredParams, map[string][]string{
	"tools": {"[]"}, "tool_choice": {`"none"`, `"auto"`}, "parallel_tool_calls": {"true", "false"},
	"functions": {"[]"}, "function_call": {`"none"`, `"auto"`}, "modalities": {`["text"]`}, "reasoning_effort": {`"none"`},
})

// with is the union of two maps.
func with(a, b map[string][]string) map[string][]string {
	all := map[string][]string{}
	for _, m := range []map[string][]string{a, b} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// message is one turn of a conversation.
type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
	Refusal *string `json:"refusal"` // of an answer that is sent back
}

// UnmarshalJSON refuses unknown fields.
func (m *message) UnmarshalJSON(b []byte) error {
	type plain message
	return strict(b, (*plain)(m))
}

// content is a string, or a list of parts with texts.
type content string

// UnmarshalJSON reads either.
func (c *content) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, (*string)(c)) == nil {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return invalid("messages", "the content of a message is neither a string nor a list of parts")
	}
	var text strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return unsupported("messages", "a part of the type %.40q in a message; this model reads text", p.Type)
		}
		text.WriteString(p.Text)
	}
	*c = content(text.String())
	return nil
}

// chatCompletions answers /v1/chat/completions.
func (s *Server) chatCompletions(w http.ResponseWriter, r *http.Request) error {
	var c chatRequest
	if err := s.read(w, r, &c, ignoredChat); err != nil {
		return err
	}
	base, err := s.request(&c.params)
	if err != nil {
		return err
	}
	if err := c.check(); err != nil {
		return err
	}
	if base.Prompt, err = s.conversation(r.Context(), c.Messages); err != nil {
		return err
	}
	base.MaxTokens = s.answerLen(len(base.Prompt), c.limit(), math.MaxInt32)
	base.Logprobs, base.Top = c.Logprobs, value(c.TopLogprobs, 0)
	return s.run(w, r, &c.params, &chatForm{s: s, logprobs: c.Logprobs}, choices(base, value(c.N, 1)))
}

// limit is the number of tokens asked for, by either name.
func (c *chatRequest) limit() *int {
	if c.MaxCompletionTokens != nil {
		return c.MaxCompletionTokens
	}
	return c.MaxTokens
}

func (c *chatRequest) check() error {
	for _, err := range []error{
		between("max_completion_tokens", c.MaxCompletionTokens, 0, math.MaxInt32), between("top_logprobs", c.TopLogprobs, 0, maxTop),
	} {
		if err != nil {
			return err
		}
	}
	if c.TopLogprobs != nil && !c.Logprobs {
		return invalid("top_logprobs", "top_logprobs without logprobs")
	}
	if c.MaxTokens != nil && c.MaxCompletionTokens != nil && *c.MaxTokens != *c.MaxCompletionTokens {
		return invalid("max_tokens", "max_tokens %d and max_completion_tokens %d: say one", *c.MaxTokens, *c.MaxCompletionTokens)
	}
	return nil
}

// conversation is the tokens of messages, of which no text becomes a special token.
func (s *Server) conversation(ctx context.Context, messages []message) ([]int32, error) {
	text, err := s.render(ctx, messages, true)
	if err != nil {
		return nil, err
	}
	tok := s.conf.Tokenizer
	return withBOS(tok, tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true, Quoted: true})), nil
}

// render is the text that the template makes of messages, with the special tokens in
// their contents quoted where that is asked for.
func (s *Server) render(ctx context.Context, messages []message, quoted bool) (string, error) {
	if s.conf.Template == nil {
		return "", invalid("messages", "%s has no chat template; /v1/completions continues a text, and gollm serve --template names a format", s.conf.Model)
	}
	if len(messages) == 0 {
		return "", invalid("messages", "there are no messages")
	}
	var turns []chat.Message
	for i, m := range messages {
		role, err := roleOf(i, m.Role)
		if err != nil {
			return "", err
		}
		text := string(m.Content)
		if quoted {
			if text, err = s.conf.Tokenizer.Quote(text); err != nil {
				return "", invalid("messages", "message %d: %s", i, strings.TrimPrefix(err.Error(), "tokenizer: "))
			}
		}
		turns = append(turns, chat.Message{Role: role, Content: text})
	}
	text, err := s.conf.Template.Text(ctx, turns)
	if err != nil {
		return "", invalid("messages", "the chat template refuses the conversation: %s", strings.TrimPrefix(err.Error(), "chat: "))
	}
	return text, nil
}

// roleOf is the role of message i that a template knows.
func roleOf(i int, role string) (string, error) {
	switch role {
	case "system", "user", "assistant":
		return role, nil
	case "developer":
		return "system", nil
	case "tool", "function":
		return "", unsupported("messages", "message %d is of the role %s: tools are not supported", i, role)
	}
	return "", invalid("messages", "message %d is of the role %.40q, want system, developer, user or assistant", i, role)
}

// chatForm is the form of the answers of /v1/chat/completions.
type chatForm struct {
	s        *Server
	logprobs bool
}

// chatChoice is one answer, or a part of it in a stream.
type chatChoice struct {
	Index        int           `json:"index"`
	Message      *chatMessage  `json:"message,omitempty"`
	Delta        *chatDelta    `json:"delta,omitempty"`
	Logprobs     *chatLogprobs `json:"logprobs"`
	FinishReason *string       `json:"finish_reason"`
}

// chatMessage is an answer.
type chatMessage struct {
	Role    string  `json:"role"`
	Content string  `json:"content"`
	Refusal *string `json:"refusal"`
}

// chatDelta is a part of an answer; the first one has the role.
type chatDelta struct {
	Role    string `json:"role,omitempty"`
	Content string `json:"content,omitempty"`
}

// chatLogprobs are the tokens of an answer.
type chatLogprobs struct {
	Content []chatToken `json:"content"`
}

// chatToken is a token with its log-probability and the likeliest beside it.
type chatToken struct {
	Token       string       `json:"token"`
	Logprob     float64      `json:"logprob"`
	Bytes       []int        `json:"bytes"`
	TopLogprobs *[]chatToken `json:"top_logprobs,omitempty"`
}

func (f *chatForm) prefix() string { return "chatcmpl-" }

func (f *chatForm) object(stream bool) string {
	if stream {
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

// choice is an answer or a part of one.
func (f *chatForm) choice(index int, pieces []written, finish *string, which part) any {
	var text strings.Builder
	var logs *chatLogprobs
	if f.logprobs && len(pieces) > 0 {
		logs = &chatLogprobs{Content: []chatToken{}}
	}
	for _, p := range pieces {
		text.WriteString(p.Text)
		if f.logprobs && p.Token && p.Log != nil {
			logs.Content = append(logs.Content, f.token(p))
		}
	}
	c := chatChoice{Index: index, Logprobs: logs, FinishReason: finish}
	switch which {
	case whole:
		c.Message = &chatMessage{Role: "assistant", Content: text.String()}
	case first:
		c.Delta = &chatDelta{Role: "assistant", Content: text.String()}
	default:
		c.Delta = &chatDelta{Content: text.String()}
	}
	return c
}

// token is a token with the likeliest beside it.
func (f *chatForm) token(p written) chatToken {
	t := f.named(p.ID, p.Log.Value)
	top := []chatToken{}
	for _, other := range p.Log.Top {
		top = append(top, f.named(other.ID, other.Value))
	}
	t.TopLogprobs = &top
	return t
}

// named is a token alone.
func (f *chatForm) named(id int32, logprob float64) chatToken {
	t := chatToken{Token: tokenName(f.s.conf.Tokenizer, id), Logprob: finite(logprob), Bytes: []int{}}
	for _, b := range []byte(f.s.conf.Tokenizer.Piece(id)) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}
