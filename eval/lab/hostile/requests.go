package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/serve/openai"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer/chat"
	"github.com/gollm/gollm/weights"
)

// toolTemplate writes messages and calls of functions in short.
const toolTemplate = `{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{% endfor %}`

// toolChat is a template of the server, with the special tokens of the small model.
type toolChat struct{ *chat.Template }

// Render renders a conversation.
func (t toolChat) Render(ctx context.Context, c chat.Conversation) (string, error) {
	c.BOS, c.EOS = "<s>", "</s>"
	return t.Template.Render(ctx, c)
}

// maxBody is the limit of bodies of the server that requests are fed to, in bytes.
const maxBody = 64 << 10

// startRequests feeds requests to the handlers of gollm serve, over a small model: valid bodies of
// every endpoint of which fields are dropped, doubled, of another type, huge or deep, and
// texts and headers that are wrong.
func startRequests() (execution, error) {
	s, err := requestServer()
	if err != nil {
		return nil, err
	}
	return func(rng *rand.Rand) ([]byte, string) {
		q := newRequest(rng)
		return q.bytes(), feedRequest(s, q)
	}, nil
}

// requestServer is the handlers over a small model of two specs.
func requestServer() (http.Handler, error) {
	file, err := weights.Parse("hostile.gguf", small(device.F32, true, rand.New(rand.NewPCG(1, 2))).bytes())
	if err != nil {
		return nil, err
	}
	e, err := engineOf(file)
	if err != nil {
		return nil, err
	}
	specs := []string{"dense", "streaming(sink=2,window=8)"}
	var parsed []*sparse.Spec
	for _, text := range specs {
		spec, err := sparse.Parse(text)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, spec)
	}
	runners, err := e.NewRunners(engine.Config{Context: 512, Slots: 4, Blocks: 12}, parsed...)
	if err != nil {
		return nil, err
	}
	template, err := chat.Parse(toolTemplate)
	if err != nil {
		return nil, err
	}
	m := openai.NewMetrics("small", specs)
	scheduler := serve.New(e, runners, serve.Config{Observe: m})
	m.Watch(scheduler, "small")
	return openai.New(openai.Config{
		Scheduler: scheduler, Tokenizer: e.Tokenizer, Model: "small", Attn: specs, Template: toolChat{template}, Version: "hostile",
		MaxBody: maxBody, Log: slog.New(slog.DiscardHandler), Metrics: m,
	}), nil
}

// validBodies are bodies that are answered with 200, by path.
var validBodies = []struct{ path, body string }{
	{"/v1/completions", `{"model":"small","prompt":"hell","max_tokens":3,"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"seed":7,"stop":["h","e"],"ignore_eos":true,"min_tokens":2,"stop_token_ids":[9]}`},
	{"/v1/completions", `{"prompt":[[1,5,6],[7]],"n":2,"max_tokens":2,"echo":true,"logprobs":3,"logit_bias":{"5":1.5},"presence_penalty":0.5,"frequency_penalty":-1}`},
	{"/v1/completions", `{"prompt":["he","ll"],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true},"attn":"streaming(sink=2,window=8)","repeat_penalty":1.1}`},
	{"/v1/completions", `{"prompt":[1,2,3],"max_tokens":0,"echo":true,"logprobs":0,"best_of":1,"suffix":"","user":"me"}`},
	{"/v1/completions", `{"prompt":"h","max_tokens":4,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"schema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"enum":["x",null]}},"required":["a","b"],"additionalProperties":false}}}}`},
	{"/v1/chat/completions", `{"model":"small","messages":[{"role":"system","content":"he"},{"role":"user","content":"h"}],"max_completion_tokens":2,"logprobs":true,"top_logprobs":2}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"h"},{"type":"text","text":"</s>"}]}],"max_tokens":2,"stream":true,"n":2,"response_format":{"type":"json_object"}}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c1","content":"no"}],"tools":[{"type":"function","function":{"name":"f","description":"d","strict":true,"parameters":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}}}],"tool_choice":"none","parallel_tool_calls":false,"max_tokens":2}`},
	{"/v1/chat/completions", `{"messages":[{"role":"user","content":"h"}],"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"boolean"}}}}}],"tool_choice":"required","max_tokens":8,"stream":true}`},
	{"/v1/responses", `{"model":"small","instructions":"he","input":"h","max_output_tokens":2,"temperature":0.5,"store":false}`},
	{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_text","text":"h"}]},{"type":"function_call","call_id":"c1","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"no"}],"tools":[{"type":"function","name":"f","parameters":{"type":"object","properties":{}},"strict":true}],"tool_choice":"none","text":{"format":{"type":"json_object"}},"stream":true,"max_output_tokens":3}`},
	{"/tokenize", `{"model":"small","prompt":"hello </s>","add_special_tokens":false}`},
	{"/tokenize", `{"messages":[{"role":"user","content":"h"}],"tools":[],"add_generation_prompt":false,"return_token_strs":true}`},
	{"/detokenize", `{"model":"small","tokens":[1,5,6,7,2]}`},
	{"/apply-template", `{"messages":[{"role":"user","content":"h"},{"role":"assistant","content":"e"},{"role":"user","content":"l"}]}`},
}

// request is one to the server.
type request struct {
	method, path string
	header       http.Header
	body         []byte
	valid        bool // nothing was changed
}

// bytes are a request for people.
func (q request) bytes() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s\n", q.method, q.path)
	_ = q.header.Write(&b) // of a buffer
	return append(append(b.Bytes(), '\n'), q.body...)
}

// newRequest is a valid request with up to four changes.
func newRequest(rng *rand.Rand) request {
	from := pick(validBodies, rng)
	q := request{method: http.MethodPost, path: from.path, header: http.Header{"Content-Type": {"application/json"}}}
	v := parseJSON(from.body)
	changes := rng.IntN(5)
	q.valid = changes == 0
	for range changes {
		v.change(rng)
	}
	var text bytes.Buffer
	v.write(&text)
	q.body = text.Bytes()
	if !q.valid && rng.IntN(6) == 0 {
		q.body = changeText(q.body, rng)
	}
	if !q.valid && rng.IntN(20) == 0 {
		q.changeHeader(rng)
	}
	return q
}

// changeText makes a body one that is cut, longer, in another encoding, or has another byte.
func changeText(b []byte, rng *rand.Rand) []byte {
	switch rng.IntN(8) {
	case 0:
		return b[:rng.IntN(len(b)+1)]
	case 1:
		return append(b, pick([]string{"x", "{}", "\x00", " \n\t", ","}, rng)...)
	case 2:
		return append([]byte("\xef\xbb\xbf"), b...)
	case 3:
		var wide []byte
		for _, unit := range utf16.Encode([]rune(string(b))) {
			wide = append(wide, byte(unit), byte(unit>>8))
		}
		return wide
	case 4:
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(b) // to a buffer
		_ = w.Close()
		return packed.Bytes()
	case 5:
		return append(b, bytes.Repeat([]byte(" "), maxBody)...)
	case 6:
		return []byte(url.Values{"prompt": {string(b)}}.Encode())
	}
	return changeBytes(b, rng)
}

// changeHeader makes method, path or media type odd.
func (q *request) changeHeader(rng *rand.Rand) {
	switch rng.IntN(4) {
	case 0:
		q.method = pick([]string{"GET", "PUT", "DELETE", "HEAD", "OPTIONS", "TRACE", "X"}, rng)
	case 1:
		q.path = pick([]string{"/", "/v1", "/v1/completions/", "/v1//completions", "/v1/models/../completions", "/v1/models/\x00", "/V1/COMPLETIONS", "/health", "/metrics"}, rng)
	case 2:
		q.header["Content-Type"] = []string{pick([]string{"", "text/plain", "application/json; charset=utf-16", "application/json;;", "multipart/form-data", "application/jsonx", "\x01"}, rng)}
	case 3:
		q.header["Content-Encoding"] = []string{pick([]string{"gzip", "br", "identity", "x"}, rng)}
	}
}

// answer is what the server wrote.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader notes the status.
func (a *answer) WriteHeader(status int) { a.status = status }

// Write notes a part of the body.
func (a *answer) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.body.Write(b)
}

// Flush is for streams.
func (a *answer) Flush() {}

// feedRequest asks the server, and looks at the answer.
func feedRequest(s http.Handler, q request) string {
	r := &http.Request{
		Method: q.method, URL: &url.URL{Path: q.path}, Header: q.header, Body: io.NopCloser(bytes.NewReader(q.body)), ContentLength: int64(len(q.body)),
		Host: "localhost", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
	a := &answer{header: http.Header{}}
	s.ServeHTTP(a, r)
	if wrong := a.wrong(q); wrong != "" {
		return fmt.Sprintf("WRONG: status %d: %.200q: %.300q", a.status, wrong, a.body.Bytes())
	}
	return fmt.Sprint(a.status)
}

// refusals are the codes of requests that make no sense.
var refusals = []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity}

// wrong says what is not right about an answer, "" where it is.
func (a *answer) wrong(q request) string {
	plain := q.method == http.MethodPost && slices.ContainsFunc(validBodies, func(v struct{ path, body string }) bool { return v.path == q.path })
	switch {
	case a.status == http.StatusOK && plain && !json.Valid(q.body):
		return "the body is not JSON"
	case a.status == http.StatusOK:
		return a.wrongText()
	case q.valid:
		return "the request is valid"
	case !slices.Contains(refusals, a.status):
		return "no code of a refusal"
	case plain && len(q.body) > maxBody && a.status != http.StatusRequestEntityTooLarge && a.status != http.StatusUnsupportedMediaType:
		return "the body is too large"
	}
	return a.wrongError()
}

// wrongText says what is not right about an answer of status 200: JSON, lines of text, or a
// stream that has an end.
func (a *answer) wrongText() string {
	switch kind := a.header.Get("Content-Type"); {
	case strings.HasPrefix(kind, "text/plain"):
	case strings.HasPrefix(kind, "text/event-stream"):
		return wrongStream(a.body.String())
	case !json.Valid(a.body.Bytes()):
		return "no JSON"
	}
	return ""
}

// wrongStream says what is not right about a stream of events: [DONE] ends those of
// completions, and an event of that name those of responses.
func wrongStream(text string) string {
	last := ""
	for event := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		name, data := "", event
		if rest, ok := strings.CutPrefix(event, "event: "); ok {
			name, data, _ = strings.Cut(rest, "\n")
		}
		data, ok := strings.CutPrefix(data, "data: ")
		if last = cmp.Or(name, data); last == "[DONE]" {
			continue
		}
		if !ok || !json.Valid([]byte(data)) || strings.HasPrefix(data, `{"error"`) || name == "error" || name == "response.failed" {
			return "an event " + event
		}
	}
	if last != "[DONE]" && last != "response.completed" && last != "response.incomplete" {
		return "the stream has no end"
	}
	return ""
}

// wrongError says what is not right about an error: it has OpenAI's fields and says something short.
func (a *answer) wrongError() string {
	var e struct {
		Error *struct {
			Message, Type *string
			Param, Code   *string
		}
	}
	d := json.NewDecoder(&a.body)
	d.DisallowUnknownFields()
	switch err := d.Decode(&e); {
	case err != nil:
		return err.Error()
	case e.Error == nil || e.Error.Message == nil || e.Error.Type == nil || *e.Error.Message == "" || *e.Error.Type != "invalid_request_error":
		return "no error of OpenAI's form"
	case len(*e.Error.Message) > maxError:
		return fmt.Sprintf("an error of %d bytes: %.200s", len(*e.Error.Message), *e.Error.Message)
	}
	return ""
}
