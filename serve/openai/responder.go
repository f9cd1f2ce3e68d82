package openai

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/gollm/gollm/serve"
)

// response is an answer of /v1/responses: what was asked for, and what was written.
type response struct {
	ID          string             `json:"id"`
	Object      string             `json:"object"`
	Created     int64              `json:"created_at"`
	Completed   *int64             `json:"completed_at"`
	Status      string             `json:"status"`
	Error       *apiError          `json:"error"`
	Incomplete  *incompleteDetails `json:"incomplete_details"`
	Model       string             `json:"model"`
	Output      []*outputItem      `json:"output"`
	Usage       *responseUsage     `json:"usage"`
	Background  bool               `json:"background"`
	Store       bool               `json:"store"`
	Previous    *string            `json:"previous_response_id"`
	Truncation  string             `json:"truncation"`
	Instruction *string            `json:"instructions"`
	MaxTokens   *int               `json:"max_output_tokens"`
	Temperature float32            `json:"temperature"`
	TopP        float32            `json:"top_p"`
	Text        *textOptions       `json:"text"`
	Tools       []responseTool     `json:"tools"`
	Choice      json.RawMessage    `json:"tool_choice"`
	Parallel    bool               `json:"parallel_tool_calls"`
	Metadata    json.RawMessage    `json:"metadata"`
}

// incompleteDetails is why an answer is not whole.
type incompleteDetails struct {
	Reason string `json:"reason"`
}

// responseUsage is usage under other names.
type responseUsage struct {
	Input   int `json:"input_tokens"`
	Details struct {
		Cached  int `json:"cached_tokens"`
		Written int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int        `json:"total_tokens"`
	Gollm gollmUsage `json:"gollm"`
}

// outputItem is a message or a call.
type outputItem struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`

	Role    string       `json:"role,omitempty"`
	Content *[]*textPart `json:"content,omitempty"`

	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"` // JSON
}

// textPart is the text of a message.
type textPart struct {
	Type        string `json:"type"`
	Text        string `json:"text"`
	Annotations []any  `json:"annotations"`
	Logprobs    []any  `json:"logprobs"`
}

// responder makes an answer of /v1/responses, event by event where it is a stream.
type responder struct {
	response
	w      http.ResponseWriter
	stream bool
	gone   bool // nobody reads
	events int
	usage  usage
	parser *callParser // nil without tools
	open   *outputItem // the last item of Output while it is written
}

// newResponder begins an answer.
func (s *Server) newResponder(w http.ResponseWriter, q *responsesRequest, t *toolset) *responder {
	x := &responder{w: w, stream: q.Stream, response: response{
		ID: newID("resp_"), Object: "response", Created: time.Now().Unix(), Status: "in_progress", Model: s.conf.Model, Output: []*outputItem{},
		Truncation: "disabled", Instruction: q.Instructions, MaxTokens: q.MaxOutputTokens, Temperature: value(q.Temperature, 1), TopP: value(q.TopP, 1),
		Text: q.Text, Tools: q.Tools, Choice: q.Choice, Parallel: value(q.Parallel, true), Metadata: q.Metadata,
	}}
	if x.Text == nil || x.Text.Format == nil {
		x.Text = &textOptions{Format: &textFormat{Type: "text"}}
	}
	if x.Tools == nil {
		x.Tools = []responseTool{}
	}
	if len(x.Choice) == 0 {
		x.Choice = json.RawMessage(`"auto"`)
	}
	if len(x.Metadata) == 0 {
		x.Metadata = json.RawMessage("{}")
	}
	if t != nil {
		x.parser = t.newParser()
	}
	return x
}

// answer writes an answer.
func (x *responder) answer(a *serve.Answer) error {
	if x.stream {
		x.w.Header().Set("Content-Type", "text/event-stream")
		x.w.Header().Set("Cache-Control", "no-cache")
	}
	x.whole("response.created")
	x.whole("response.in_progress")
	for p := range a.Pieces() {
		if x.write(p.Text); x.gone {
			return nil
		}
	}
	res, err := a.Result()
	x.usage.add(res, false)
	finish, err := finishName(res, err)
	if err != nil && x.stream {
		api := asAPI(err)
		x.send("error", struct {
			eventHead
			Message string  `json:"message"`
			Code    *string `json:"code"`
			Param   *string `json:"param"`
		}{x.head("error"), api.Message, api.Code, api.Param})
		return nil
	} else if err != nil {
		return err
	}
	x.end(finish)
	if !x.stream {
		writeJSON(x.w, http.StatusOK, x.response)
	}
	return nil
}

// write goes on with text, in which there may be calls.
func (x *responder) write(text string) {
	if x.parser == nil {
		x.text(text)
		return
	}
	content, calls := x.parser.write(text)
	x.parts(content, calls)
}

// parts goes on with text and calls. Text that comes with a call stands before it.
func (x *responder) parts(content string, calls []callDelta) {
	x.text(content)
	for _, d := range calls {
		x.call(d)
	}
}

// end ends the answer.
func (x *responder) end(finish string) {
	if x.parser != nil {
		x.parts(x.parser.end())
	}
	if len(x.Output) == 0 {
		x.begin(&outputItem{ID: newID("msg_"), Type: "message", Role: "assistant"})
	}
	x.Status = "completed"
	if finish == "length" {
		x.Status, x.Incomplete = "incomplete", &incompleteDetails{"max_output_tokens"}
	}
	x.closeItem(x.Status)
	now := time.Now().Unix()
	x.Completed = &now
	u := &responseUsage{Input: x.usage.Prompt, Output: x.usage.Completion, Total: x.usage.Total, Gollm: x.usage.Gollm}
	u.Details.Cached = x.usage.Details.Cached
	x.Usage = u
	x.whole("response." + x.Status)
}

// text goes on with the text of a message.
func (x *responder) text(text string) {
	if text == "" {
		return
	}
	if x.open == nil || x.open.Type != "message" {
		x.begin(&outputItem{ID: newID("msg_"), Type: "message", Role: "assistant"})
	}
	part := (*x.open.Content)[0]
	part.Text += text
	x.send("response.output_text.delta", struct {
		partEvent
		Delta    string `json:"delta"`
		Logprobs []any  `json:"logprobs"`
	}{x.part("response.output_text.delta"), text, []any{}})
}

// call goes on with a call.
func (x *responder) call(d callDelta) {
	if d.name != "" {
		x.begin(&outputItem{ID: newID("fc_"), Type: "function_call", CallID: d.id, Name: d.name, Arguments: new("")})
	}
	if d.arguments == "" {
		return
	}
	*x.open.Arguments += d.arguments
	x.send("response.function_call_arguments.delta", struct {
		itemEvent
		Delta string `json:"delta"`
	}{x.item("response.function_call_arguments.delta"), d.arguments})
}

// begin begins an item.
func (x *responder) begin(it *outputItem) {
	x.closeItem("completed")
	it.Status = "in_progress"
	message := it.Type == "message"
	if message {
		it.Content = &[]*textPart{}
	}
	x.open, x.Output = it, append(x.Output, it)
	x.outputItem("response.output_item.added")
	if message {
		*it.Content = append(*it.Content, &textPart{Type: "output_text", Annotations: []any{}, Logprobs: []any{}})
		x.contentPart("response.content_part.added")
	}
}

// closeItem ends the item that is written.
func (x *responder) closeItem(status string) {
	it := x.open
	if it == nil {
		return
	}
	it.Status = status
	if it.Type == "message" {
		const done = "response.output_text.done"
		x.send(done, struct {
			partEvent
			Text     string `json:"text"`
			Logprobs []any  `json:"logprobs"`
		}{x.part(done), (*it.Content)[0].Text, []any{}})
		x.contentPart("response.content_part.done")
	} else {
		const done = "response.function_call_arguments.done"
		x.send(done, struct {
			itemEvent
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		}{x.item(done), it.Name, *it.Arguments})
	}
	x.outputItem("response.output_item.done")
	x.open = nil
}

// eventHead is what every event has.
type eventHead struct {
	Type   string `json:"type"`
	Number int    `json:"sequence_number"`
}

// itemEvent is what an event about an item has.
type itemEvent struct {
	eventHead
	ID    string `json:"item_id"`
	Index int    `json:"output_index"`
}

// partEvent is what an event about the text of a message has.
type partEvent struct {
	itemEvent
	Part int `json:"content_index"`
}

func (x *responder) head(kind string) eventHead { return eventHead{kind, x.events} }

func (x *responder) item(kind string) itemEvent {
	return itemEvent{x.head(kind), x.open.ID, len(x.Output) - 1}
}

func (x *responder) part(kind string) partEvent { return partEvent{x.item(kind), 0} }

// whole sends the answer as far as it is written.
func (x *responder) whole(kind string) {
	x.send(kind, struct {
		eventHead
		Response *response `json:"response"`
	}{x.head(kind), &x.response})
}

// outputItem sends the item that is written.
func (x *responder) outputItem(kind string) {
	x.send(kind, struct {
		eventHead
		Index int         `json:"output_index"`
		Item  *outputItem `json:"item"`
	}{x.head(kind), len(x.Output) - 1, x.open})
}

// contentPart sends the text of the message that is written.
func (x *responder) contentPart(kind string) {
	x.send(kind, struct {
		partEvent
		Part *textPart `json:"part"`
	}{x.part(kind), (*x.open.Content)[0]})
}

// send sends an event, where the answer is a stream that somebody reads.
func (x *responder) send(kind string, v any) {
	x.events++
	if !x.stream || x.gone {
		return
	}
	x.gone = !sendEvent(x.w, kind, v)
}
