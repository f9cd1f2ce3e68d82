package openai

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestNoOriginByDefault lets no page of a browser read an answer, nor ask whether it may, where
// no origin is named.
func TestNoOriginByDefault(t *testing.T) {
	s := serveStories(t, nil)
	for _, method := range []string{"OPTIONS", "GET"} {
		r := httptest.NewRequest(method, "/v1/models", nil)
		r.Header.Set("Origin", "http://localhost:3000")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s is answered with %s", method, name)
			}
		}
		if (w.Code == 200) != (method == "GET") {
			t.Errorf("%s: status %d", method, w.Code)
		}
	}
}

// TestBusy answers with 429 and Retry-After where the queue is full, for a stream too, and
// takes requests again once there is room.
func TestBusy(t *testing.T) {
	s := serveStories(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"prompt":["`+strings.Repeat(`Once","`, 99)+`"],"max_tokens":240,"logit_bias":{"1":-100,"2":-100}}`)).WithContext(ctx)
		r.Header.Set("Content-Type", "application/json")
		s.ServeHTTP(httptest.NewRecorder(), r)
	}()
	for range 500 {
		if s.conf.Scheduler.Stats().Waiting > 90 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	for _, stream := range []string{"true", "false"} {
		r := httptest.NewRequest("POST", "/v1/completions", strings.NewReader(`{"prompt":"a","n":128,"max_tokens":1,"stream":`+stream+`}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"rate_limit_exceeded"`) || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("stream %s: %d %v %s", stream, w.Code, w.Header(), w.Body)
		}
	}
	cancel()
	<-ended
	if status, body := s.ask("POST", "/v1/completions", `{"prompt":"a","n":2,"max_tokens":1}`); status != 200 {
		t.Error(status, body)
	}
}
