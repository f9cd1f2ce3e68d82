package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/serve"
)

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
		{"/v1/completions", "{\"prompt\":\"caf\xe9\"}", 400, "", "not UTF-8: byte 14 is 0xe9"},
		{"/v1/completions", `{"prompt":"\\\ud83d"}`, 400, "", "half a surrogate pair"},
		{"/v1/completions", `{"prompt":"\udc00\ud800"}`, 400, "", "half a surrogate pair"},
		{"/v1/completions", `{"prompt":"a","prompt":"b"}`, 400, "prompt", "there twice"},
		{"/v1/completions", `{"prompt":["a"],"logit_bias":{"1":2,"\u0031":3}}`, 400, "1", "there twice"},
		{"/v1/completions", `null`, 400, "", "want an object"},
		{"/v1/completions", `[1]`, 400, "", "array, want an object"},
		{"/v1/completions", `{}`, 400, "prompt", "no prompt"},
		{"/v1/completions", `{"prompt":[]}`, 400, "prompt", "no prompt"},
		{"/v1/completions", `{"prompt":{}}`, 400, "prompt", "neither"},
		{"/v1/completions", `{"prompt":["a",2]}`, 400, "prompt", "prompt 1 of the list"},
		{"/v1/completions", `{"prompt":[[],[1]]}`, 400, "prompt", "prompt 0 of the list"},
		{"/v1/completions", `{"prompt":[512]}`, 400, "", "id 512, want 0 to 511"},
		{"/v1/completions", `{"prompt":[1,null,2]}`, 400, "prompt", "neither"},
		{"/v1/completions", `{"prompt":[[1],[1,null]]}`, 400, "prompt", "prompt 1 of the list"},
		{"/detokenize", `{"tokens":[null]}`, 400, "tokens", "null is no token id"},
		{"/detokenize", `{"tokens":[` + strings.Repeat("1,", 480) + `1]}`, 400, "tokens", "larger than 1000 bytes"},
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
		{"/v1/completions", `{"prompt":"a","logit_bias":{"7":1,"07":2}}`, 400, "logit_bias", `"07", want the id`},
		{"/v1/completions", `{"prompt":"a","logit_bias":{"1":101}}`, 400, "logit_bias", "-100 to 100"},
		{"/v1/completions", `{"prompt":"a","attn":"topk"}`, 400, "attn", "dense; prefill=dense decode=quest(budget=32)"},
		{"/v1/completions", `{"prompt":"a","attn":"quest(budget=31)"}`, 400, "attn", "which is quest(budget=31), is none of those that the server was started with: dense; prefill"},
		{"/v1/completions", `{"prompt":"a","attn":"dence"}`, 400, "attn", `no method is called "dence"; the server was started with dense; prefill`},
		{"/v1/completions", `{"prompt":"a","attn":"quest(budget=x)"}`, 400, "attn", "want a count such as 128"},
		{"/v1/completions", `{"prompt":"a","attn":"@/etc/passwd"}`, 400, "attn", "no method is called"},
		{"/v1/completions", `{"prompt":"a","stream_options":{"include_usage":true}}`, 400, "stream_options", "without stream"},
		{"/v1/completions", `{"prompt":"a","stream":true,"stream_options":{"x":true}}`, 422, "x", "unknown field"},
		{"/v1/completions", `{"prompt":"a","colour":"red"}`, 422, "colour", "unknown field \"colour\"; the fields are model"},
		{"/v1/completions", `{"prompt":"a","repetition_penalty":1.1}`, 422, "repetition_penalty", "repetition_penalty is not supported, want repeat_penalty; leave it out, or say 1 or 1.0"},
		{"/v1/completions", `{"prompt":"a","stop_token_ids":[1,999999]}`, 400, "", "id 999999, want 0 to 511"},
		{"/v1/completions", `{"prompt":"a","min_tokens":5,"max_tokens":4}`, 400, "", "at least 5 tokens are asked for and at most 4"},
		{"/v1/completions", `{"prompt":"a","ignore_eos":true,"response_format":{"type":"json_object"}}`, 400, "", "leave out ignore_eos"},
		{"/v1/completions", `{"prompt":"a","ignore_eos":1}`, 400, "ignore_eos", "want true or false"},
		{"/v1/completions", `{"prompt":"a","prompt_logprobs":1}`, 422, "prompt_logprobs", "want echo; leave it out, or say null"},
		{"/tokenize", `{"content":"a"}`, 422, "content", "unknown field \"content\", want prompt; the fields are"},
		{"/v1/completions", `{"prompt":"a","suffix":"red"}`, 422, "suffix", "not supported"},
		{"/v1/completions", `{"prompt":"a","best_of":2}`, 422, "best_of", "say 1"},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"xml"}}`, 422, "response_format", "want text, json_object or json_schema"},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"json_schema"}}`, 400, "response_format", "no json_schema with a schema"},
		{"/v1/completions", `{"prompt":"a","response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"oneOf":[]}}}}`, 400, "response_format", "oneOf"},
		{"/v1/completions", `{"prompt":"a","model":"other"}`, 404, "", "stories is"},
		{"/v1/completions", `{"prompt":"` + strings.Repeat("a", 1000) + `"}`, 413, "", "larger than 1000 bytes"},
		{"/v1/chat/completions", `{"messages":[]}`, 400, "messages", "no messages"},
		{"/v1/chat/completions", `{"messages":[{"role":"king","content":"a"}]}`, 400, "messages", "king"},
		{"/v1/chat/completions", `{"messages":[{"role":"tool","content":"a"}]}`, 400, "messages", "no tool_call_id"},
		{"/v1/chat/completions", `{"messages":[{"role":"tool","content":"a","tool_call_id":"x"}]}`, 422, "messages", "knows no tools"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a","tool_call_id":"x"}]}`, 400, "messages", "belong to the assistant"},
		{"/v1/chat/completions", `{"messages":[{"role":"function","content":"a"}]}`, 422, "messages", "no more"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":5}]}`, 400, "messages", "neither a string"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 422, "messages", "image_url"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a","name":"x"}]}`, 422, "name", "unknown field"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"\ufdd0"}]}`, 400, "messages", "U+FDD0"},
		{"/v1/chat/completions", `{"messages":[{"role":"assistant","content":"a"}]}`, 400, "messages", "template refuses"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{}]}`, 422, "tools", "want function"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}}]}`, 422, "tools", "knows no tools"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"a b"}}]}`, 400, "tools", "letters, digits"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f"}},{"type":"function","function":{"name":"f"}}]}`, 400, "tools", "two tools"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":[]}}]}`, 400, "tools", "no JSON object"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tool_choice":"required"}`, 400, "tool_choice", "without tools"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tool_choice":"any"}`, 400, "tool_choice", "want none, auto"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"allowed_tools"}}`, 422, "tool_choice", "a function"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"top_logprobs":2}`, 400, "top_logprobs", "without logprobs"},
		{"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":2,"max_completion_tokens":3}`, 400, "max_tokens", "say one"},
		{"/tokenize", `{}`, 400, "prompt", "no prompt"},
		{"/detokenize", `{"tokens":[1,-1]}`, 400, "tokens", "token 1 is id -1"},
		{"/v1/nothing", `{}`, 404, "", "nothing at"},
		{"/v1/responses", `{}`, 400, "input", "no messages"},
		{"/v1/responses", `{"input":5}`, 400, "input", "neither a string nor a list"},
		{"/v1/responses", `{"input":"a","store":true}`, 422, "store", "keeps no answers"},
		{"/v1/responses", `{"input":"a","previous_response_id":"resp_1"}`, 422, "previous_response_id", "keeps no answers"},
		{"/v1/responses", `{"input":"a","background":true}`, 422, "background", "say false"},
		{"/v1/responses", `{"input":"a","max_tokens":5}`, 422, "max_tokens", "unknown field"},
		{"/v1/responses", `{"input":"a","max_output_tokens":-5}`, 400, "max_output_tokens", "want 0 to"},
		{"/v1/responses", `{"input":[{"type":"item_reference","id":"x"}]}`, 422, "input", "item_reference"},
		{"/v1/responses", `{"input":[{"role":"user","content":[{"type":"input_image"}]}]}`, 422, "input", "input_image"},
		{"/v1/responses", `{"input":[{"type":"function_call_output","output":"a"}]}`, 400, "input", "no tool_call_id"},
		{"/v1/responses", `{"input":"a","tools":[{"type":"web_search"}]}`, 422, "tools", "web_search"},
		{"/v1/responses", `{"input":"a","tools":[{"type":"function","name":"f"}]}`, 422, "tools", "knows no tools"},
		{"/v1/responses", `{"input":"a","text":{"format":{"type":"json_schema","schema":{"oneOf":[]}}}}`, 400, "text", "oneOf"},
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
	for _, body := range []string{`{"prompt":["\ud83d\ude00","\\ud800","{\"a\":1,\"a\":2}"],"max_tokens":0}`, `{"prompt":"prompt","max_tokens":0,"metadata":[{"a":1},{"a":1}]}`} {
		if status, answer := s.ask("POST", "/v1/completions", body); status != 200 {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	if status, body := s.ask("HEAD", "/health", ""); status != 200 { // net/http leaves the body out
		t.Error(status, body)
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
		if got := w.Header().Get("Access-Control-Allow-Headers"); want != "" && got != "Authorization, *" {
			t.Errorf("%s may send the headers %q, want all", origin, got)
		}
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

// TestLogLines wants a short line for each request, whatever its method and path are.
func TestLogLines(t *testing.T) {
	s := serveStories(t, func(c *Config) { c.Key = "secret" })
	s.ask(strings.Repeat("A", 30000), "/"+strings.Repeat("a%0Aä", 5000), "")
	if got := s.log.String(); len(got) > 600 || strings.Count(got, "\n") != 1 || !strings.Contains(got, "status=401") {
		t.Errorf("%d bytes, %d lines: %.300s", len(got), strings.Count(got, "\n"), got)
	}
}

// TestLogsHoldNoText wants nothing of a prompt in the log unless somebody asks for it.
func TestLogsHoldNoText(t *testing.T) {
	for _, log := range []bool{false, true} {
		s := serveStories(t, func(c *Config) { c.LogText = log })
		s.ask("POST", "/v1/completions", `{"prompt":"Zanzibar","max_tokens":2,"stop":"Zanzibar"}`)
		for _, wrong := range []string{`{"prompt":"Zanzibar","max_tokens":"x"}`, `{"Zanzibar":1}`, `{"prompt":"a","attn":"Zanzibar"}`, `{"prompt":"Zanzibar\ud800"}`, `{"prompt":"a","Zanzibar":1,"Zanzibar":2}`} {
			s.ask("POST", "/v1/completions", wrong)
		}
		s.ask("POST", "/v1/chat/completions", `{"messages":[{"role":"Zanzibar","content":"Zanzibar"}]}`)
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
