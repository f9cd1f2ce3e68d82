package openai

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"

	"github.com/gollm/gollm/serve"
)

// responsesRequest is the body of /v1/responses.
type responsesRequest struct {
	Model           string  `json:"model"`
	Input           items   `json:"input"`
	Instructions    *string `json:"instructions"`
	MaxOutputTokens *int    `json:"max_output_tokens"`
	sampled
	Stream   bool            `json:"stream"`
	Text     *textOptions    `json:"text"`
	Tools    []responseTool  `json:"tools"`
	Choice   json.RawMessage `json:"tool_choice"`
	Parallel *bool           `json:"parallel_tool_calls"`
	Metadata json.RawMessage `json:"metadata"` // is sent back
	Store    *bool           `json:"store"`
	Previous *string         `json:"previous_response_id"`
}

// ignoredResponses are fields that change nothing here, with the values that they may have.
var ignoredResponses = with(ignoredSampling, map[string][]string{
	"user": nil, "service_tier": nil, "safety_identifier": nil, "prompt_cache_key": nil, "prompt_cache_retention": nil, "stream_options": nil,
	"background": {"false"}, "truncation": {`"disabled"`}, "include": {"[]"}, "reasoning": {"{}", `{"effort":"none"}`}, "top_logprobs": {"0"},
	"conversation": {"null"}, "prompt": {"null"}, "max_tool_calls": {"null"},
})

// params are the fields that other endpoints have too.
func (q *responsesRequest) params() *params {
	return &params{Model: q.Model, sampled: q.sampled, Stream: q.Stream}
}

// responseTool is a function as /v1/responses has it.
type responseTool struct {
	Type string `json:"type"`
	function
}

// UnmarshalJSON refuses unknown fields, and other tools than functions.
func (t *responseTool) UnmarshalJSON(b []byte) error {
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(b, &kind); err != nil || kind.Type != "function" {
		return unsupported("tools", "a tool of the type %.40q; the tools here are functions of the client", kind.Type)
	}
	type plain responseTool
	return strict(b, (*plain)(t))
}

// textOptions is the form of the text of an answer.
type textOptions struct {
	Format    *textFormat `json:"format,omitempty"`
	Verbosity *string     `json:"verbosity,omitempty"` // of no effect
}

// textFormat is responseFormat on one level.
type textFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
}

// UnmarshalJSON refuses unknown fields.
func (o *textOptions) UnmarshalJSON(b []byte) error {
	type plain textOptions
	return strict(b, (*plain)(o))
}

// format is the form as /v1/chat/completions says it.
func (o *textOptions) format() *responseFormat {
	if o == nil || o.Format == nil {
		return nil
	}
	f := o.Format
	return &responseFormat{Type: f.Type, JSONSchema: &jsonSchema{Name: f.Name, Strict: f.Strict, Schema: f.Schema}}
}

// items is a conversation: a text of the user, or messages, calls and their answers.
type items []message

// item is one of them.
type item struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// ignoredItem are fields of items of answers that clients send back.
var ignoredItem = map[string][]string{"id": nil, "status": nil, "phase": nil, "parsed_arguments": nil}

// UnmarshalJSON reads either.
func (all *items) UnmarshalJSON(b []byte) error {
	var text string
	if json.Unmarshal(b, &text) == nil {
		if string(b) != "null" {
			*all = items{{Role: "user", Content: content(text)}}
		}
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(b, &list) != nil {
		return invalid("input", "input is neither a string nor a list of items")
	}
	for _, one := range list {
		var it item
		if err := decode(one, &it, ignoredItem); err != nil {
			return err
		}
		if err := all.add(&it); err != nil {
			return err
		}
	}
	return nil
}

// add adds an item. Calls belong to the message of the assistant before them.
func (all *items) add(it *item) (err error) {
	var m message
	switch it.Type {
	case "message", "":
		m.Role = it.Role
		m.Content, err = textOf("input", it.Content)
	case "function_call_output":
		m.Role, m.CallID = "tool", it.CallID
		m.Content, err = textOf("input", it.Output)
	case "function_call":
		call := toolCall{ID: it.CallID, Type: "function", Function: functionCall{Name: it.Name, Arguments: it.Arguments}}
		if n := len(*all); n > 0 && (*all)[n-1].Role == "assistant" {
			(*all)[n-1].Calls = append((*all)[n-1].Calls, call)
			return nil
		}
		m.Role, m.Calls = "assistant", []toolCall{call}
	default:
		return unsupported("input", "an item of the type %.40q, want message, function_call or function_call_output", it.Type)
	}
	*all = append(*all, m)
	return err
}

// responses answers /v1/responses.
func (s *Server) responses(w http.ResponseWriter, r *http.Request) error {
	var q responsesRequest
	if err := s.read(w, r, &q, ignoredResponses); err != nil {
		return err
	}
	request, tools, err := s.responsesRequest(r.Context(), &q)
	if api := new(apiError); errors.As(err, &api) && api.Param != nil && *api.Param == "messages" {
		api.Param = new("input")
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	answers, err := s.conf.Scheduler.Submit(ctx, request)
	if err != nil {
		return err
	}
	x := s.newResponder(w, &q, tools)
	x.usage.Gollm.Attn = s.conf.Attn[request.Attn]
	defer func() { s.note(r, x.ID, &x.usage, 1) }()
	if err = x.answer(answers[0]); x.Status != "in_progress" || r.Context().Err() == nil {
		return err
	}
	cancel()
	if await(answers[0]); x.usage.Prompt == 0 {
		res, _ := answers[0].Result()
		x.usage.add(res, false)
	}
	return errGone
}

// responsesRequest is what a body asks for.
func (s *Server) responsesRequest(ctx context.Context, q *responsesRequest) (request serve.Request, tools *toolset, err error) {
	switch {
	case value(q.Store, false):
		return request, nil, unsupported("store", "store is true, and this server keeps no answers; leave it out, or say false")
	case q.Previous != nil:
		return request, nil, unsupported("previous_response_id", "this server keeps no answers; send the conversation so far as input")
	}
	if err := between("max_output_tokens", q.MaxOutputTokens, 0, math.MaxInt32); err != nil {
		return request, nil, err
	}
	if request, err = s.request(q.params()); err != nil {
		return request, nil, err
	}
	if tools, err = s.responseTools(q); err != nil {
		return request, nil, err
	}
	messages := []message(q.Input)
	if q.Instructions != nil {
		messages = append([]message{{Role: "system", Content: content(*q.Instructions)}}, messages...)
	}
	if request.Prompt, err = s.conversation(ctx, messages, tools, true); err != nil {
		return request, nil, err
	}
	request.MaxTokens = s.answerLen(len(request.Prompt), q.MaxOutputTokens, math.MaxInt32)
	all := []serve.Request{request}
	if err := s.constrain(ctx, "text", q.Text.format(), all); err != nil {
		return request, nil, err
	}
	err = s.apply(ctx, tools, all)
	return all[0], tools, err
}

// responseTools is what a body says of functions.
func (s *Server) responseTools(q *responsesRequest) (*toolset, error) {
	var all []function
	for _, t := range q.Tools {
		all = append(all, t.function)
	}
	var choice *toolChoice
	if len(q.Choice) > 0 {
		if err := json.Unmarshal(q.Choice, &choice); err != nil {
			return nil, jsonError(err)
		}
	}
	tools, err := s.toolsOf(all, choice, q.Parallel)
	if f := q.Text.format(); err == nil && tools != nil && f != nil && f.Type != "text" {
		return nil, unsupported("text", "text.format beside tools: an answer is either; say tool_choice none, or leave one out")
	}
	return tools, err
}
