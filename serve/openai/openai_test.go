package openai

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// format is a built-in chat format as a Template.
type format struct {
	*chat.Template
	bos, eos string
}

// Text renders messages.
func (f format) Text(ctx context.Context, messages []chat.Message) (string, error) {
	return f.Render(ctx, chat.Conversation{Messages: messages, AddGenerationPrompt: true, BOS: f.bos, EOS: f.eos})
}

// testAttn are the specs of the test servers.
var testAttn = []string{"dense", "prefill=dense decode=quest(budget=32)"}

// testServer is a server of the model of the stories, with the engine for comparison.
type testServer struct {
	*Server
	engine *engine.Engine
	log    *bytes.Buffer
}

// serveStories starts a server; change edits what it is made of. When the test ends its
// goroutines and pages must be back.
func serveStories(t testing.TB, change func(*Config)) testServer {
	t.Helper()
	e, err := engine.Open("../../testdata/stories260K.gguf", "cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var specs []*sparse.Spec
	for _, text := range testAttn {
		spec, err := sparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		specs = append(specs, spec)
	}
	runners, err := e.NewRunners(engine.Config{Context: 256, Slots: 4, Blocks: 20}, specs...)
	if err != nil {
		t.Fatal(err)
	}
	before := runtime.NumGoroutine()
	m := NewMetrics("stories", testAttn)
	s := serve.New(e, runners, serve.Config{MaxQueue: 200, Observe: m})
	m.Watch(s, "stories")
	llama2, err := chat.Builtin("llama2")
	if err != nil {
		t.Fatal(err)
	}
	tok := e.Tokenizer
	log := &bytes.Buffer{}
	c := Config{
		Scheduler: s, Tokenizer: tok, Model: "stories", Attn: testAttn, Template: format{llama2, tok.Text(tok.BOS()), tok.Text(tok.EOS())},
		Version: "test", MaxBody: 1 << 20, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: m,
	}
	if change != nil {
		change(&c)
	}
	t.Cleanup(func() {
		s.Close(context.Background())
		for range 200 {
			if runtime.NumGoroutine() <= before {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before && !strings.HasPrefix(t.Name(), "Fuzz") { // a fuzzer starts its own
			t.Errorf("%d goroutines, %d before", n, before)
		}
		if all, free := runners[0].Blocks(); all != free {
			t.Errorf("%d of %d blocks are free in the end", free, all)
		}
		if err := engine.CloseAll(runners); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return testServer{New(c), e, log}
}

// ask sends a request and returns status and body.
func (s testServer) ask(method, path, body string, header ...string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// post sends a request that is answered, and reads the answer into dst.
func (s testServer) post(t *testing.T, path, body string, dst any) {
	t.Helper()
	status, text := s.ask("POST", path, body)
	if status != http.StatusOK {
		t.Fatalf("%s: %d %s", body, status, text)
	}
	if err := json.Unmarshal([]byte(text), dst); err != nil {
		t.Fatal(err)
	}
}

// completion is an answer of /v1/completions, or an event of it.
type completion struct {
	ID, Object, Model string
	Choices           []completionChoice
	Usage             *usage
}

// events are the values of a stream, which must end with [DONE].
func events[T any](t *testing.T, body string) (all []T) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(body, "\n\n"), "\n\n")
	for i, line := range lines {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok || (data == "[DONE]") != (i == len(lines)-1) {
			t.Fatalf("event %d of %d is %q", i, len(lines), line)
		}
		if data == "[DONE]" {
			return all
		}
		var v T
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

// storyCase is a prompt and how llama.cpp continues it.
type storyCase struct {
	Prompt string  `json:"prompt"`
	IDs    []int32 `json:"prompt_tokens"`
	Text   string  `json:"greedy_text"`
	Greedy []int32 `json:"greedy_tokens"`
}

func storyCases(t *testing.T) []storyCase {
	t.Helper()
	data, err := os.ReadFile("../../testdata/stories260K.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cases []storyCase `json:"cases"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

// quoted is a value as JSON.
func quoted(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// logprobs are the log-probabilities that package engine computes for ids, and the
// likeliest token at each position.
func (s testServer) logprobs(t *testing.T, ids []int32) (of []float64, best []int32) {
	t.Helper()
	r, err := s.engine.NewRunner(engine.Config{Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	seq, err := r.Open()
	if err != nil {
		t.Fatal(err)
	}
	err = seq.Prefill(t.Context(), ids, engine.PrefillOptions{Logits: func(pos int, logits []float32) error {
		if pos+1 < len(ids) {
			of = append(of, float64(logits[ids[pos+1]])-engine.LogSumExp(logits))
			top := 0
			for id := range logits {
				if logits[id] > logits[top] {
					top = id
				}
			}
			best = append(best, int32(top))
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return of, best
}

// TestEcho is what evaluations ask for: the log-probability of every token of a prompt,
// which are those of the engine's logits to the last digit, as text and as token ids.
func TestEcho(t *testing.T) {
	s := serveStories(t, nil)
	c := storyCases(t)[0]
	of, best := s.logprobs(t, c.IDs)
	for _, prompt := range []string{quoted(c.Prompt), quoted(c.IDs), quoted([]string{c.Prompt}), quoted([][]int32{c.IDs})} {
		var got completion
		s.post(t, "/v1/completions", `{"prompt":`+prompt+`,"max_tokens":0,"echo":true,"logprobs":2,"temperature":0}`, &got)
		one := got.Choices[0]
		l := one.Logprobs
		if one.Text != c.Prompt || *one.FinishReason != "length" || len(l.Tokens) != len(c.IDs) || got.Usage.Prompt != len(c.IDs) || got.Usage.Completion != 0 {
			t.Fatalf("%+v %+v", one, got.Usage)
		}
		if l.TokenLogprobs[0] != nil || l.TopLogprobs[0] != nil || l.Tokens[0] != "<s>" || l.TextOffset[0] != 0 {
			t.Errorf("the first token is %q with %v", l.Tokens[0], l.TokenLogprobs[0])
		}
		for i, want := range of {
			name := tokenName(s.engine.Tokenizer, best[i])
			top := l.TopLogprobs[i+1]
			if *l.TokenLogprobs[i+1] != want || top[l.Tokens[i+1]] != want || len(top) < 2 {
				t.Errorf("token %d: %v, want %v; %v", i+1, *l.TokenLogprobs[i+1], want, top)
			}
			for other, x := range top {
				if x > top[name] {
					t.Errorf("token %d: %q is likelier than %q: %v", i+1, other, name, top)
				}
			}
			if at, text := l.TextOffset[i+1], strings.TrimPrefix(l.Tokens[i+1], " "); !strings.HasPrefix(strings.TrimPrefix(one.Text[at:], " "), text) {
				t.Errorf("token %d, %q, is not at %d", i+1, text, at)
			}
		}
	}
}

// TestCompletions is the text of llama.cpp, whole and in a stream, of several prompts and
// choices.
func TestCompletions(t *testing.T) {
	s := serveStories(t, nil)
	c := storyCases(t)[0]
	n := len(c.Greedy)
	var got completion
	s.post(t, "/v1/completions", `{"model":"stories","prompt":`+quoted(c.Prompt)+`,"temperature":0,"max_tokens":`+strconv.Itoa(n)+`}`, &got)
	if got.Choices[0].Text != c.Text || *got.Choices[0].FinishReason != "length" || got.Usage.Total != len(c.IDs)+n || !strings.HasPrefix(got.ID, "cmpl-") || got.Object != "text_completion" {
		t.Errorf("%q, %+v", got.Choices[0].Text, got.Usage)
	}
	if got.Choices[0].Logprobs != nil || got.Usage.Gollm.Attn != "dense" || got.Usage.Gollm.Prefill <= 0 {
		t.Errorf("%+v", got)
	}
	status, body := s.ask("POST", "/v1/completions", `{"prompt":[`+quoted(c.Prompt)+`,"Tom"],"temperature":0,"max_tokens":`+strconv.Itoa(n)+`,"n":2,"stream":true,"echo":true,"stream_options":{"include_usage":true}}`)
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	all := events[completion](t, body)
	var text [4]strings.Builder
	ends := 0
	for _, e := range all[:len(all)-1] {
		for _, one := range e.Choices {
			text[one.Index].WriteString(one.Text)
			if one.FinishReason != nil {
				ends++
			}
		}
	}
	for i := range 2 {
		if got := text[i].String(); got != c.Prompt+c.Text {
			t.Errorf("choice %d of the stream: %q", i, got)
		}
		if a := text[2+i].String(); !strings.HasPrefix(a, "Tom") || a != text[2].String() {
			t.Errorf("choice %d of the stream: %q", 2+i, a)
		}
	}
	if u := all[len(all)-1]; ends != 4 || len(u.Choices) != 0 || u.Usage.Completion != 4*n || u.Usage.Prompt != len(c.IDs)+3 {
		t.Errorf("%d ends, %+v", ends, u.Usage)
	}
}

// TestFields changes one field after the other, each of which must change the answer.
func TestFields(t *testing.T) {
	s := serveStories(t, nil)
	ask := func(fields string) completionChoice {
		var got completion
		s.post(t, "/v1/completions", `{"prompt":"Once upon a time","max_tokens":40,"seed":3`+fields+`}`, &got)
		return got.Choices[0]
	}
	plain, greedy := ask("").Text, ask(`,"temperature":0`).Text
	if plain != ask("").Text || plain == greedy {
		t.Error("one seed gives two texts, or that of temperature 0")
	}
	for _, fields := range []string{`,"seed":4`, `,"temperature":2`, `,"top_p":0.5`, `,"min_p":0.3`, `,"repeat_penalty":1.5`, `,"presence_penalty":2`,
		`,"frequency_penalty":2`, `,"max_tokens":7`, `,"logit_bias":{"403":-100,"405":-100,"407":50}`} {
		if ask(fields).Text == plain {
			t.Errorf("%s changes nothing", fields)
		}
	}
	if ask(`,"top_k":1`).Text != greedy {
		t.Error("top_k 1 is not the likeliest token")
	}
	if ask(`,"temperature":0,"attn":"prefill=dense decode=quest(budget=32)"`).Text == "" {
		t.Error("another spec writes nothing")
	}
	for _, stop := range []string{`"."`, `["nothing","."]`} {
		got := ask(`,"temperature":0,"stop":` + stop)
		if want, _, _ := strings.Cut(greedy, "."); got.Text != want || *got.FinishReason != "stop" {
			t.Errorf("stop %s: %q, want %q", stop, got.Text, want)
		}
	}
	var two completion
	s.post(t, "/v1/completions", `{"prompt":"Once","max_tokens":30,"n":2,"seed":5}`, &two)
	if two.Choices[0].Text == two.Choices[1].Text {
		t.Error("two choices are the same")
	}
}

// TestEnd makes the model end its answer: the token that does so has no text and is
// counted, with its log-probability, as evaluations expect.
func TestEnd(t *testing.T) {
	s := serveStories(t, nil)
	var got completion
	s.post(t, "/v1/completions", `{"prompt":"Once","max_tokens":1,"echo":true,"logprobs":1,"logit_bias":{"2":100}}`, &got)
	one := got.Choices[0]
	if n := len(one.Logprobs.Tokens); one.Text != "Once" || *one.FinishReason != "stop" || one.Logprobs.Tokens[n-1] != "</s>" || got.Usage.Prompt != n-1 || got.Usage.Completion != 1 {
		t.Errorf("%+v %+v %+v", one, one.Logprobs, got.Usage)
	}
}

// chatAnswer is an answer of /v1/chat/completions, or an event of it.
type chatAnswer struct {
	Object  string
	Choices []chatChoice
	Usage   *usage
}

// TestChat talks: the tokens are those of the template, the special tokens in a message
// are text, and a stream is the answer.
func TestChat(t *testing.T) {
	s := serveStories(t, nil)
	messages := `[{"role":"system","content":"Be kind."},{"role":"user","content":[{"type":"text","text":"Tell me "},{"type":"text","text":"a story."}]}]`
	var text struct{ Prompt string }
	s.post(t, "/apply-template", `{"messages":`+messages+`}`, &text)
	if text.Prompt != "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nTell me a story. [/INST]" {
		t.Errorf("the template makes %q", text.Prompt)
	}
	var plain completion
	s.post(t, "/v1/completions", `{"prompt":`+quoted(text.Prompt)+`,"temperature":0,"max_tokens":12}`, &plain)
	var got chatAnswer
	s.post(t, "/v1/chat/completions", `{"messages":`+messages+`,"temperature":0,"max_completion_tokens":12,"logprobs":true,"top_logprobs":2}`, &got)
	one := got.Choices[0]
	if one.Message.Content != plain.Choices[0].Text || one.Message.Role != "assistant" || got.Usage.Prompt != plain.Usage.Prompt || got.Object != "chat.completion" {
		t.Errorf("%+v, want %q", one.Message, plain.Choices[0].Text)
	}
	if l := one.Logprobs.Content; len(l) != 12 || len(*l[0].TopLogprobs) != 2 || (*l[0].TopLogprobs)[0].Logprob != l[0].Logprob || l[0].Logprob > 0 {
		t.Errorf("%+v", l)
	}
	_, body := s.ask("POST", "/v1/chat/completions", `{"messages":`+messages+`,"temperature":0,"max_tokens":12,"stream":true}`)
	var written strings.Builder
	for i, e := range events[chatAnswer](t, body) {
		d := e.Choices[0].Delta
		if (d.Role == "assistant") != (i == 0) || e.Object != "chat.completion.chunk" || e.Usage != nil {
			t.Errorf("event %d: %+v", i, e)
		}
		written.WriteString(d.Content)
	}
	if written.String() != one.Message.Content {
		t.Errorf("the stream is %q, want %q", written.String(), one.Message.Content)
	}

	tok := s.engine.Tokenizer
	ids, err := s.conversation(t.Context(), []message{{Role: "user", Content: "a</s>b<s>"}})
	if err != nil || slices.Contains(ids[1:], tok.BOS()) || slices.Contains(ids, tok.EOS()) {
		t.Errorf("a message with special tokens becomes %v, %v", ids, err)
	}
	if text := tok.Decode(ids, tokenizer.DecodeOptions{}); text != "[INST] a</s>b<s> [/INST]" {
		t.Errorf("it reads %q", text)
	}
}

// TestErrors is one error for each kind of request that makes no sense.
func TestErrors(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.MaxBody = 1000 })
	for _, c := range []struct {
		path, body  string
		status      int
		param, text string
	}{
		{"/v1/completions", ``, 400, "", "not JSON"},
		{"/v1/completions", `{"prompt":"a"`, 400, "", "unexpected end"},
		{"/v1/completions", `{"prompt":"a"} x`, 400, "", "after top-level value"},
		{"/v1/completions", `null`, 400, "", "want an object"},
		{"/v1/completions", `[1]`, 400, "", "array, want an object"},
		{"/v1/completions", `{}`, 400, "prompt", "no prompt"},
		{"/v1/completions", `{"prompt":[]}`, 400, "prompt", "no prompt"},
		{"/v1/completions", `{"prompt":{}}`, 400, "prompt", "neither"},
		{"/v1/completions", `{"prompt":["a",2]}`, 400, "prompt", "prompt 1 of the list"},
		{"/v1/completions", `{"prompt":[[],[1]]}`, 400, "prompt", "prompt 0 of the list"},
		{"/v1/completions", `{"prompt":[512]}`, 400, "", "id 512, want 0 to 511"},
		{"/v1/completions", `{"prompt":"a","max_tokens":"x"}`, 400, "max_tokens", "max_tokens is a JSON string, want a whole number"},
		{"/v1/completions", `{"prompt":"a","max_tokens":-1}`, 400, "max_tokens", "want 0 to"},
		{"/v1/completions", `{"prompt":"a","max_tokens":300}`, 400, "", "a sequence holds 256 tokens"},
		{"/v1/completions", `{"prompt":"a","temperature":-1}`, 400, "temperature", "want 0 to 100"},
		{"/v1/completions", `{"prompt":"a","top_p":0}`, 400, "top_p", "top_k 1"},
		{"/v1/completions", `{"prompt":"a","n":129}`, 400, "n", "want 1 to 128"},
		{"/v1/completions", `{"prompt":["a","b"],"n":65}`, 400, "n", "at most 128 answers"},
		{"/v1/completions", `{"prompt":"a","logprobs":21}`, 400, "logprobs", "want 0 to 20"},
		{"/v1/completions", `{"prompt":"a","stop":""}`, 400, "stop", "0 bytes"},
		{"/v1/completions", `{"prompt":"a","stop":5}`, 400, "stop", "want an array"},
		{"/v1/completions", `{"prompt":"a","logit_bias":{"x":1}}`, 400, "logit_bias", "id of a token"},
		{"/v1/completions", `{"prompt":"a","logit_bias":{"1":101}}`, 400, "logit_bias", "-100 to 100"},
		{"/v1/completions", `{"prompt":"a","attn":"topk"}`, 400, "attn", "dense; prefill=dense decode=quest(budget=32)"},
		{"/v1/completions", `{"prompt":"a","stream_options":{"include_usage":true}}`, 400, "stream_options", "without stream"},
		{"/v1/completions", `{"prompt":"a","stream":true,"stream_options":{"x":true}}`, 422, "x", "unknown field"},
		{"/v1/completions", `{"prompt":"a","colour":"red"}`, 422, "colour", "unknown field"},
		{"/v1/completions", `{"prompt":"a","suffix":"red"}`, 422, "suffix", "not supported"},
		{"/v1/completions", `{"prompt":"a","best_of":2}`, 422, "best_of", "say 1"},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"json_object"}}`, 422, "response_format", "json_object"},
		{"/v1/completions", `{"prompt":"a","model":"other"}`, 404, "", "stories is"},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("a", 1000) + `"}`, 413, "", "larger than 1000 bytes"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages", "no messages"},
		{"/v1/chat/completions", `{"messages":[{"role":"king","content":"a"}]}`, 400, "messages", "king"},
		{"/v1/chat/completions", `{"messages":[{"role":"tool","content":"a"}]}`, 422, "messages", "tools are not supported"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":5}]}`, 400, "messages", "neither a string"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 422, "messages", "image_url"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a","name":"x"}]}`, 422, "name", "unknown field"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"\ufdd0"}]}`, 400, "messages", "U+FDD0"},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","content":"a"}]}`, 400, "messages", "template refuses"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{}]}`, 422, "tools", "not supported"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"top_logprobs":2}`, 400, "top_logprobs", "without logprobs"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"max_completion_tokens":3}`, 400, "max_tokens", "say one"},
		{"/tokenize", `{}`, 400, "prompt", "no prompt"},
		{"/detokenize", `{"tokens":[1,-1]}`, 400, "tokens", "token 1 is id -1"},
		{"/v1/responses", `{}`, 404, "", "nothing at"},
	} {
		status, body := s.ask("POST", c.path, c.body)
		var e struct {
			Error struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatalf("%.80s: %s", c.body, body)
		}
		if status != c.status || e.Error.Param != c.param || !strings.Contains(e.Error.Message, c.text) || e.Error.Type != "invalid_request_error" {
			t.Errorf("%.80s: %d %+v, want %d %q %q", c.body, status, e.Error, c.status, c.param, c.text)
		}
	}
	if status, body := s.ask("GET", "/v1/completions", ""); status != 405 {
		t.Error(status, body)
	}
	if status, body := s.ask("POST", "/v1/completions", "{}", "Content-Type", "text/plain"); status != 415 {
		t.Error(status, body)
	}
	if status, _ := s.ask("POST", "/v1/completions", `{"prompt":["`+strings.Repeat(`a","`, 99)+`"],"n":1,"max_tokens":1}`); status != 200 {
		t.Error("100 prompts:", status)
	}
	e := asAPI(&serve.BusyError{Waiting: 3, Limit: 3})
	if e.status != 429 || !strings.Contains(e.Message, "3 requests are waiting") || *e.Code != "rate_limit_exceeded" {
		t.Errorf("%+v", e)
	}
	w := httptest.NewRecorder()
	writeError(w, serve.ErrClosed)
	if w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

// TestAccess wants the key everywhere but at /health, and lets named origins alone read.
func TestAccess(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.Key, c.Origins = "secret", []string{"https://one.example"} })
	for path := range s.routes {
		want := http.StatusUnauthorized
		if path == "/health" {
			want = http.StatusOK
		}
		for _, header := range [][]string{nil, {"Authorization", "Bearer secrets"}, {"Authorization", "secret"}} {
			if status, _ := s.ask("GET", path, "", header...); status != want {
				t.Errorf("%s with %v: %d, want %d", path, header, status, want)
			}
		}
	}
	if status, _ := s.ask("GET", "/v1/nothing", ""); status != http.StatusUnauthorized {
		t.Errorf("a path that is not there tells so: %d", status)
	}
	if status, body := s.ask("GET", "/v1/models", "", "Authorization", "Bearer secret"); status != http.StatusOK || !strings.Contains(body, `"max_model_len":256`) {
		t.Error(status, body)
	}
	for origin, want := range map[string]string{"https://one.example": "https://one.example", "https://two.example": ""} {
		r := httptest.NewRequest("OPTIONS", "/v1/completions", nil)
		r.Header.Set("Origin", origin)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if got := w.Header().Get("Access-Control-Allow-Origin"); got != want || (w.Code == 204) != (want != "") {
			t.Errorf("%s: %q, status %d", origin, got, w.Code)
		}
	}
}

// TestLocal answers under the names of this machine alone.
func TestLocal(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.Local = true })
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8080": 200, "127.0.0.1:1": 200, "[::1]:80": 200, "[::1]": 200, "::1": 200,
		"evil.example": 403, "evil.example:8080": 403, "localhost.evil.example": 403, "192.168.1.1:80": 403, "": 403,
	} {
		r := httptest.NewRequest("GET", "/v1/models", nil)
		r.Host = host
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("host %q: status %d, want %d", host, w.Code, want)
		}
	}
}

// TestLogsHoldNoText wants nothing of a prompt in the log unless somebody asks for it.
func TestLogsHoldNoText(t *testing.T) {
	for _, log := range []bool{false, true} {
		s := serveStories(t, func(c *Config) { c.LogText = log })
		s.ask("POST", "/v1/completions", `{"prompt":"Zanzibar","max_tokens":2,"stop":"Zanzibar"}`)
		s.ask("POST", "/v1/completions", `{"prompt":"Zanzibar","max_tokens":"x"}`)
		if got := s.log.String(); strings.Contains(got, "Zanzibar") != log || !strings.Contains(got, "completion_tokens=2") || !strings.Contains(got, "status=400") {
			t.Errorf("with text %v the log is %s", log, got)
		}
	}
}

// TestAbout is what a client asks of the server itself.
func TestAbout(t *testing.T) {
	s := serveStories(t, nil)
	c := storyCases(t)[0]
	var words struct {
		Count  int
		Tokens []int32
	}
	s.post(t, "/tokenize", `{"model":"stories","prompt":`+quoted(c.Prompt)+`}`, &words)
	if !reflect.DeepEqual(words.Tokens, c.IDs) || words.Count != len(c.IDs) {
		t.Errorf("%v, want %v", words.Tokens, c.IDs)
	}
	s.post(t, "/tokenize", `{"prompt":`+quoted(c.Prompt)+`,"add_special_tokens":false}`, &words)
	if !reflect.DeepEqual(words.Tokens, c.IDs[1:]) {
		t.Errorf("%v, want %v", words.Tokens, c.IDs[1:])
	}
	var text struct{ Prompt string }
	s.post(t, "/detokenize", `{"tokens":`+quoted(c.IDs[1:])+`}`, &text)
	if text.Prompt != c.Prompt {
		t.Errorf("%q, want %q", text.Prompt, c.Prompt)
	}
	for path, want := range map[string]string{
		"/health": `{"status":"ok"}`, "/tokenizer_info": `{"bos_token":"<s>","eos_token":"</s>","model_max_length":256}`, "/version": `{"version":"test"}`, "/v1/models/stories": `"id":"stories"`,
		"/v1/models": `"attn":["dense","prefill=dense decode=quest(budget=32)"]`,
	} {
		if status, body := s.ask("GET", path, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _ := s.ask("GET", "/v1/models/other", ""); status != 404 {
		t.Errorf("another model: %d", status)
	}
	s.conf.Scheduler.Close(context.Background())
	if status, _ := s.ask("GET", "/health", ""); status != 503 {
		t.Errorf("health of a server that was closed: %d", status)
	}
	if status, _ := s.ask("POST", "/v1/completions", `{"prompt":"a"}`); status != 503 {
		t.Errorf("a request to a server that was closed: %d", status)
	}
}

// TestMetrics holds names, types and labels against what routers and dashboards read.
func TestMetrics(t *testing.T) {
	s := serveStories(t, nil)
	s.ask("POST", "/v1/completions", `{"prompt":"Once upon a time","max_tokens":5,"temperature":0}`)
	_, body := s.ask("GET", "/metrics", "")
	for _, line := range []string{
		"# TYPE vllm:num_requests_running gauge", "# TYPE vllm:num_requests_waiting gauge", "# TYPE vllm:kv_cache_usage_perc gauge",
		"# TYPE vllm:time_to_first_token_seconds histogram", "# TYPE vllm:inter_token_latency_seconds histogram", "# TYPE vllm:e2e_request_latency_seconds histogram",
		"# TYPE vllm:prompt_tokens_total counter", "# TYPE vllm:prefix_cache_queries_total counter", "# TYPE vllm:prefix_cache_hits_total counter",
		`vllm:num_requests_running{model_name="stories"} 0`, `vllm:num_requests_waiting{model_name="stories"} 0`,
		`vllm:cache_config_info{block_size="64",model_name="stories",num_gpu_blocks="20"} 1`,
		`vllm:generation_tokens_total{model_name="stories"} 5`, `vllm:inter_token_latency_seconds_count{model_name="stories"} 4`,
		`vllm:time_to_first_token_seconds_count{model_name="stories"} 1`, `vllm:e2e_request_latency_seconds_count{model_name="stories"} 1`,
		`vllm:request_success_total{finished_reason="length",model_name="stories"} 1`, `gollm_generation_tokens_total{attn="dense",model_name="stories"} 5`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if t.Failed() {
		t.Log(body)
	}
}

// listen serves on a port of this machine.
func (s testServer) listen(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// dial sends a request and returns the connection.
func dial(t *testing.T, address, request string) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

// TestBadClients closes half a connection, reads nothing, sends a body without an end, and
// goes away; others are answered meanwhile, and in the end everything is back.
func TestBadClients(t *testing.T) {
	s := serveStories(t, nil)
	address := s.listen(t)
	body := `{"prompt":"Once","max_tokens":250,"stream":true,"logprobs":20,"logit_bias":{"1":-100,"2":-100}}`
	request := "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	deaf := dial(t, address, request) // reads nothing
	gone := dial(t, address, request) // goes away
	if line, err := bufio.NewReader(gone).ReadString('\n'); err != nil || !strings.Contains(line, "200 OK") {
		t.Fatal(line, err)
	}
	half := dial(t, address, request) // says that it will send no more
	mute := dial(t, address, request[:len(request)-9])
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for range 3 {
		r, err := http.Post("http://"+address+"/v1/completions", "application/json", strings.NewReader(`{"prompt":"Tom","max_tokens":3}`))
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatal(r, err)
		}
		r.Body.Close()
	}
	mute.Close()
	deaf.Close()
	for range 500 {
		if st := s.conf.Scheduler.Stats(); st.Running+st.Waiting == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%+v after five seconds", s.conf.Scheduler.Stats())
}

// TestDeafClient asks for more than the buffers of a connection hold and reads nothing: the
// handler gives up, with a stream and without.
func TestDeafClient(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.Patience = 50 * time.Millisecond })
	ended := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		ended <- struct{}{}
	}))
	server.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if err := c.(*net.TCPConn).SetWriteBuffer(4096); err != nil {
			t.Error(err)
		}
		return ctx
	}
	server.Start()
	t.Cleanup(server.Close)
	for _, stream := range []string{"true", "false"} {
		body := `{"prompt":"Once","max_tokens":250,"stream":` + stream + `,"logprobs":20,"logit_bias":{"1":-100,"2":-100}}`
		conn := dial(t, server.Listener.Addr().String(), "")
		if err := conn.SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "+strconv.Itoa(len(body))+"\r\n\r\n"+body); err != nil {
			t.Fatal(err)
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("stream %s: the handler still waits for its client", stream)
			conn.Close()
			<-ended
		}
	}
}

// FuzzRequest sends any body to any endpoint: it is answered, with JSON or a stream.
func FuzzRequest(f *testing.F) {
	for _, body := range []string{
		`{"prompt":"Once","max_tokens":2}`, `{"prompt":[[1,2],[3]],"n":2,"max_tokens":1,"echo":true,"logprobs":3,"logit_bias":{"5":1}}`,
		`{"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"stream":true,"stream_options":{"include_usage":true},"logprobs":true,"top_logprobs":1}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"</s>"}]}],"max_tokens":1,"stop":["a","b"],"seed":-1,"temperature":1e-30}`,
		`{"prompt":"` + strings.Repeat("[", 50) + `","max_tokens":0}`, `{"tokens":[1,2,3]}`, `{"prompt":"\ud800","max_tokens":1,"top_p":0.1,"min_p":1,"repeat_penalty":0.01}`,
	} {
		for i := range 5 {
			f.Add(uint8(i), []byte(body))
		}
	}
	s := serveStories(f, nil)
	paths := []string{"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template"}
	f.Fuzz(func(t *testing.T, path uint8, body []byte) {
		var v struct {
			Stream bool `json:"stream"`
			Tokens int  `json:"max_tokens"`
			N      int  `json:"n"`
		}
		if json.Unmarshal(body, &v); v.Tokens > 8 || v.N > 8 {
			return // right, and slow
		}
		status, text := s.ask("POST", paths[int(path)%len(paths)], string(body))
		switch {
		case status >= 500 || status < 200:
			t.Fatalf("%d %s", status, text)
		case status == 200 && strings.HasPrefix(text, "data: "):
		case !json.Valid([]byte(text)):
			t.Fatalf("%d %q", status, text)
		}
	})
}

// TestImpossible wants log-probabilities that JSON can say.
func TestImpossible(t *testing.T) {
	if finite(math.Inf(-1)) != minLogprob || finite(-3) != -3 {
		t.Error("an infinite log-probability stays")
	}
}
