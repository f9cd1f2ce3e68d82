package main

import (
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/device/sampling"
	"github.com/gollm/gollm/engine"
)

func TestStatisticsLine(t *testing.T) {
	s := summary{
		Result: engine.Result{Tokens: make([]int32, 20), Stop: engine.StopLength, Prompt: 5, Prefill: 100 * time.Millisecond, Decode: time.Second, Steps: 19},
		Attn:   "topk(k=9)", Prompt: make([]int32, 5), KVBytes: 40960, First: 101 * time.Millisecond, Sampling: sampling.Params{Temperature: 1, Seed: 7},
	}
	const want = "[5 prompt tokens at 50.0 tok/s | first token after 101 ms | 20 tokens at 19.0 tok/s | attention topk(k=9) | KV 40.0 KiB | seed 7 | ended by -n]"
	if got := s.line(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Sampling.Temperature, s.Stop = 0, engine.StopEnd
	if got := s.line(); strings.Contains(got, "seed") || strings.Contains(got, "ended") {
		t.Errorf("%s, want neither seed nor reason", got)
	}
	s = summary{Result: engine.Result{Stop: engine.StopCancelled}, Attn: "dense", Prompt: make([]int32, 5231), KVBytes: 1 << 24}
	if got := s.line(); got != "[5231 prompt tokens | 0 tokens | attention dense | KV 16.0 MiB | interrupted]" {
		t.Errorf("stopped while it read the prompt: %s", got)
	}
}
