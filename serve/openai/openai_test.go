package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
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

// Render renders a conversation.
func (f format) Render(ctx context.Context, c chat.Conversation) (string, error) {
	c.BOS, c.EOS = f.bos, f.eos
	return f.Template.Render(ctx, c)
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
	return serveModel(t, "../../testdata/stories260K.gguf", 256, change)
}

// serveModel is serveStories with another model and context.
func serveModel(t testing.TB, path string, length int, change func(*Config)) testServer {
	t.Helper()
	e, err := engine.Open(path, "cpu", device.Config{Threads: 1})
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
	runners, err := e.NewRunners(engine.Config{Context: length, Slots: 4, Blocks: length * 5 / 64}, specs...)
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
	if got.Choices[0].Logprobs != nil || got.Usage.Gollm.Attn != "dense" || got.Usage.Gollm.PrefillMS <= 0 {
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
		for name, usual := range map[string]string{"max_tokens": "40", "seed": "3"} {
			if !strings.Contains(fields, `"`+name+`"`) {
				fields += `,"` + name + `":` + usual
			}
		}
		var got completion
		s.post(t, "/v1/completions", `{"prompt":"Once upon a time"`+fields+`}`, &got)
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
	if *one.Message.Content != plain.Choices[0].Text || one.Message.Role != "assistant" || got.Usage.Prompt != plain.Usage.Prompt || got.Object != "chat.completion" {
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
	if written.String() != *one.Message.Content {
		t.Errorf("the stream is %q, want %q", written.String(), *one.Message.Content)
	}

	tok := s.engine.Tokenizer
	ids, err := s.conversation(t.Context(), []message{{Role: "user", Content: "a</s>b<s>"}}, nil, true)
	if err != nil || slices.Contains(ids[1:], tok.BOS()) || slices.Contains(ids, tok.EOS()) {
		t.Errorf("a message with special tokens becomes %v, %v", ids, err)
	}
	if text := tok.Decode(ids, tokenizer.DecodeOptions{}); text != "[INST] a</s>b<s> [/INST]" {
		t.Errorf("it reads %q", text)
	}
}

// TestImpossible wants log-probabilities that JSON can say.
func TestImpossible(t *testing.T) {
	if finite(math.Inf(-1)) != minLogprob || finite(-3) != -3 {
		t.Error("an infinite log-probability stays")
	}
}
