package openai

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// Template turns a conversation into the text that the model continues. It knows the special tokens
// of the model: those of a conversation are empty.
type Template interface {
	Render(ctx context.Context, c chat.Conversation) (string, error)
	Calls() *chat.CallFormat // nil: it knows no tools
}

// chatRequest is the body of /v1/chat/completions.
type chatRequest struct {
	params
	Messages            []message `json:"messages"`
	MaxCompletionTokens *int      `json:"max_completion_tokens"`
	Logprobs            bool      `json:"logprobs"`
	TopLogprobs         *int      `json:"top_logprobs"`

	Tools    []tool      `json:"tools"`
	Choice   *toolChoice `json:"tool_choice"`
	Parallel *bool       `json:"parallel_tool_calls"`
}

// ignoredChat are fields that change nothing here, besides ignoredParams.
var ignoredChat = with(ignoredParams, map[string][]string{
	"functions": {"[]"}, "function_call": {`"none"`, `"auto"`}, "modalities": {`["text"]`}, "reasoning_effort": {`"none"`},
	"echo": {"false"}, "add_generation_prompt": {"true"}, "continue_final_message": {"false"}, "add_special_tokens": {"false"},
	"chat_template": {"null"}, "chat_template_kwargs": {"{}"}, "documents": {"null"},
})

// message is one turn of a conversation.
type message struct {
	Role    string     `json:"role"`
	Content content    `json:"content"`
	Refusal *string    `json:"refusal"`      // of an answer that is sent back
	Calls   []toolCall `json:"tool_calls"`   // of an answer that is sent back
	CallID  string     `json:"tool_call_id"` // of the role tool
}

// ignoredMessage are fields of answers that clients send back.
var ignoredMessage = map[string][]string{"annotations": {"[]"}, "audio": {"null"}, "function_call": {"null"}, "parsed": nil}

// UnmarshalJSON refuses unknown fields.
func (m *message) UnmarshalJSON(b []byte) error {
	type plain message
	return decode(b, (*plain)(m), ignoredMessage)
}

// toolCall is a call of a function in a message, or a part of it in a stream.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in a stream
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

// functionCall is what is called.
type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"` // JSON
}

// UnmarshalJSON refuses unknown fields.
func (c *toolCall) UnmarshalJSON(b []byte) error {
	type plain toolCall
	return decode(b, (*plain)(c), nil)
}

// UnmarshalJSON refuses unknown fields.
func (c *functionCall) UnmarshalJSON(b []byte) error {
	type plain functionCall
	return decode(b, (*plain)(c), map[string][]string{"parsed_arguments": nil})
}

// content is a string, or a list of parts with texts.
type content string

// UnmarshalJSON reads either.
func (c *content) UnmarshalJSON(b []byte) (err error) {
	*c, err = textOf("messages", b)
	return err
}

// textOf reads a string, null, or a list of parts with texts; param is the field that it is in.
func textOf(param string, b []byte) (content, error) {
	var whole string
	if len(b) == 0 || json.Unmarshal(b, &whole) == nil {
		return content(whole), nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return "", invalid(param, "the content of a message is neither a string nor a list of parts")
	}
	var text strings.Builder
	for _, p := range parts {
		if !slices.Contains([]string{"text", "input_text", "output_text"}, p.Type) {
			return "", unsupported(param, "a part of the type %.40q in a message; this model reads text", p.Type)
		}
		text.WriteString(p.Text)
	}
	return content(text.String()), nil
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
	tools, err := s.toolsOf(c.functions(), c.Choice, c.Parallel)
	if err != nil {
		return err
	}
	if tools != nil && c.ResponseFormat != nil && c.ResponseFormat.Type != "text" {
		return unsupported("response_format", "response_format beside tools: an answer is either; say tool_choice none, or leave one out")
	}
	if base.Prompt, err = s.conversation(r.Context(), c.Messages, tools, true); err != nil {
		return err
	}
	base.MaxTokens = s.answerLen(len(base.Prompt), c.limit(), math.MaxInt32)
	base.Logprobs, base.Top = c.Logprobs, value(c.TopLogprobs, 0)
	all := choices(base, value(c.N, 1))
	if err := s.apply(r.Context(), tools, all); err != nil {
		return err
	}
	return s.run(w, r, &c.params, newChatForm(s, &c, tools, len(all)), all)
}

// functions are the tools.
func (c *chatRequest) functions() (all []function) {
	for _, t := range c.Tools {
		all = append(all, value(t.Function, function{}))
	}
	return all
}

// limit is the number of tokens asked for, by either name.
func (c *chatRequest) limit() *int {
	if c.MaxCompletionTokens != nil {
		return c.MaxCompletionTokens
	}
	return c.MaxTokens
}

func (c *chatRequest) check() error {
	for i, t := range c.Tools {
		if t.Type != "function" || t.Function == nil {
			return unsupported("tools", "tool %d is of the type %.40q, want function, with a function", i, t.Type)
		}
	}
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

// conversation is the tokens of messages, of which no text becomes a special token; answer has them end
// where the answer begins.
func (s *Server) conversation(ctx context.Context, messages []message, t *toolset, answer bool) ([]int32, error) {
	text, err := s.render(ctx, messages, t, chat.Conversation{AddGenerationPrompt: answer, Quote: s.conf.Tokenizer.Quote})
	if err != nil {
		return nil, err
	}
	tok := s.conf.Tokenizer
	return withBOS(tok, tok.Encode(text+t.opening(), tokenizer.EncodeOptions{ParseSpecial: true, Quoted: true})), nil
}

// noTemplate is the error of a conversation where the model is not made for any.
func (s *Server) noTemplate() error {
	return invalid("messages", "%s has no chat template; /v1/completions continues a text, and gollm serve --template names a format", s.conf.Model)
}

// render is the text that the template makes of messages and tools, as a conversation without
// any says.
func (s *Server) render(ctx context.Context, messages []message, t *toolset, c chat.Conversation) (string, error) {
	if s.conf.Template == nil {
		return "", s.noTemplate()
	}
	if len(messages) == 0 {
		return "", invalid("messages", "there are no messages")
	}
	for i, m := range messages {
		turn, err := s.turn(i, m)
		if err != nil {
			return "", err
		}
		c.Messages = append(c.Messages, turn)
	}
	if t != nil {
		c.Tools = t.described()
	}
	text, err := s.conf.Template.Render(ctx, c)
	if err != nil {
		return "", invalid("messages", "the chat template refuses the conversation: %s", strings.NewReplacer("chat: ", "", "tokenizer: ", "").Replace(err.Error()))
	}
	return text, nil
}

// turn is message i as a template knows it.
func (s *Server) turn(i int, m message) (chat.Message, error) {
	turn := chat.Message{Role: m.Role, Content: string(m.Content), CallID: m.CallID}
	switch m.Role {
	case "system", "user", "assistant":
	case "developer":
		turn.Role = "system"
	case "tool":
		if m.CallID == "" {
			return turn, invalid("messages", "message %d is of the role tool and has no tool_call_id", i)
		}
	case "function":
		return turn, unsupported("messages", "message %d is of the role function, which is no more; use tool", i)
	default:
		return turn, invalid("messages", "message %d is of the role %.40q, want system, developer, user, assistant or tool", i, m.Role)
	}
	if m.Role != "tool" && m.CallID != "" || m.Role != "assistant" && len(m.Calls) > 0 {
		return turn, invalid("messages", "message %d is of the role %s: calls belong to the assistant, and tool_call_id to tool", i, m.Role)
	}
	if m.Role == "tool" || len(m.Calls) > 0 {
		if _, err := s.callFormat("messages"); err != nil {
			return turn, err
		}
	}
	for _, call := range m.Calls {
		args := json.RawMessage(strings.TrimSpace(call.Function.Arguments))
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		if !json.Valid(args) || args[0] != '{' {
			return turn, invalid("messages", "message %d: the arguments of the call of %.80q are no JSON object", i, call.Function.Name)
		}
		turn.Calls = append(turn.Calls, chat.Call{ID: call.ID, Name: call.Function.Name, Arguments: args})
	}
	return turn, nil
}

// chatForm is the form of the answers of /v1/chat/completions.
type chatForm struct {
	s        *Server
	logprobs bool
	ids      bool          // tokens are named by their ids
	parsers  []*callParser // by choice; empty where there are no tools
}

func newChatForm(s *Server, c *chatRequest, t *toolset, choices int) *chatForm {
	f := &chatForm{s: s, logprobs: c.Logprobs, ids: c.TokensAsIDs}
	if t != nil {
		for range choices {
			f.parsers = append(f.parsers, t.newParser())
		}
	}
	return f
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
	Role    string     `json:"role"`
	Content *string    `json:"content"` // null where there are calls and no text
	Refusal *string    `json:"refusal"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
}

// chatDelta is a part of an answer; the first one has the role.
type chatDelta struct {
	Role    string     `json:"role,omitempty"`
	Content string     `json:"content,omitempty"`
	Calls   []toolCall `json:"tool_calls,omitempty"`
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

// choice is an answer or a part of one, nil where there is nothing new to say.
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
	content, calls := text.String(), []toolCall(nil)
	if len(f.parsers) > 0 {
		content, calls, finish = f.called(index, content, finish)
	}
	if which == later && content == "" && calls == nil && logs == nil && finish == nil {
		return nil
	}
	c := chatChoice{Index: index, Logprobs: logs, FinishReason: finish}
	switch which {
	case whole:
		c.Message = &chatMessage{Role: "assistant", Content: &content, Calls: joined(calls)}
		if content == "" && calls != nil {
			c.Message.Content = nil
		}
	case first:
		c.Delta = &chatDelta{Role: "assistant", Content: content, Calls: calls}
	default:
		c.Delta = &chatDelta{Content: content, Calls: calls}
	}
	return c
}

// called divides the text of an answer into text and calls.
func (f *chatForm) called(index int, text string, finish *string) (string, []toolCall, *string) {
	p := f.parsers[index]
	content, deltas := p.write(text)
	if finish != nil {
		rest, more := p.end()
		content, deltas = content+rest, append(deltas, more...)
		if *finish == "stop" && p.calls > 0 {
			finish = &finishCalls
		}
	}
	var calls []toolCall
	for _, d := range deltas {
		if n := len(calls); n > 0 && *calls[n-1].Index == d.index {
			calls[n-1].Function.Arguments += d.arguments
			continue
		}
		c := toolCall{Index: &d.index, ID: d.id, Function: functionCall{Name: d.name, Arguments: d.arguments}}
		if d.name != "" {
			c.Type = "function"
		}
		calls = append(calls, c)
	}
	return content, calls, finish
}

// finishCalls is why an answer ends that calls functions.
var finishCalls = "tool_calls"

// joined are the calls of a whole answer, which has no numbers.
func joined(calls []toolCall) []toolCall {
	for i := range calls {
		calls[i].Index = nil
	}
	return calls
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
	t := chatToken{Token: nameOf(f.s.conf.Tokenizer, id, f.ids), Logprob: finite(logprob), Bytes: []int{}}
	for _, b := range []byte(f.s.conf.Tokenizer.Piece(id)) {
		t.Bytes = append(t.Bytes, int(b))
	}
	return t
}
