package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/serve"
	"github.com/gollm/gollm/serve/openai"
	"github.com/gollm/gollm/sparse"
	"github.com/gollm/gollm/tokenizer/chat"
)

// serveDemo serves the demo model in this process, and returns the address.
func serveDemo(t *testing.T, size engine.Config, conf serve.Config, change func(http.Handler) http.Handler) string {
	t.Helper()
	e, err := engine.Open("../../../testdata/demo.gguf", "cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*sparse.Spec
	for _, text := range specs {
		spec, err := sparse.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, spec)
	}
	runners, err := e.NewRunners(size, parsed...)
	if err != nil {
		t.Fatal(err)
	}
	m := openai.NewMetrics("demo", specs)
	conf.Observe = m
	s := serve.New(e, runners, conf)
	m.Watch(s, "demo")
	llama2, err := chat.Builtin("llama2")
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(change(openai.New(openai.Config{
		Scheduler: s, Tokenizer: e.Tokenizer, Model: "demo", Attn: specs, Template: llama2, MaxBody: 1 << 20, Log: slog.New(slog.DiscardHandler), Metrics: m,
	})))
	t.Cleanup(func() {
		server.Close()
		s.Close(t.Context())
		if err := engine.CloseAll(runners); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return server.URL
}

// TestSoak is the load of make serve-load in small: every answer is that of the request
// alone, and pages, goroutines and files are back. A server that answers one request with
// another text is found out.
func TestSoak(t *testing.T) {
	same := func(h http.Handler) http.Handler { return h }
	want, err := alone(t.Context(), http.DefaultClient, serveDemo(t, engine.Config{Context: 512, Slots: 1}, serve.Config{NoPrefix: true}, same), 12)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	for _, wrong := range []bool{false, true} {
		url := serveDemo(t, engine.Config{Context: 512, Slots: 8, Blocks: 8}, serve.Config{MaxStall: 1e6}, func(h http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if wrong && strings.HasPrefix(r.URL.Path, "/v1/chat") {
					r.URL.Path = "/v1/models"
					r.Method = http.MethodGet
				}
				h.ServeHTTP(w, r)
			})
		})
		var out strings.Builder
		s := soak{url: url, n: 30, clients: 10, want: want, out: &out}
		err := s.run(t.Context())
		if (err != nil) != wrong || wrong && !strings.Contains(err.Error(), "want [") && !strings.Contains(err.Error(), "EOF") {
			t.Errorf("a wrong server %v: %v\n%s", wrong, err, &out)
		}
	}
}

// TestReadEvents wants the end of a stream, and its errors.
func TestReadEvents(t *testing.T) {
	for text, want := range map[string]string{
		"data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: [DONE]\n\n": "<nil>",
		"data: {\"choices\":[{\"text\":\"a\"}]}\n\n":                 io.ErrUnexpectedEOF.Error(),
		"data: {\"error\":{\"message\":\"broken\"}}\n\n":             "broken",
		"data: {\n\n": "unexpected end of JSON input",
	} {
		if err := readEvents(strings.NewReader(text), func(envelope) {}); fmt.Sprint(err) != want {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
