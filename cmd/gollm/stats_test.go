package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
)

func TestSizesCountsAndTimes(t *testing.T) {
	for want, got := range map[string]string{
		"0 B": sizeText(0), "1023 B": sizeText(1023), "1.00 KiB": sizeText(1024), "4.58 GiB": sizeText(4_920_000_000),
		"1024 PiB": sizeText(1 << 60), "999": countText(999), "260 K": countText(260_032), "8.03 B": countText(8_030_261_312),
		"1.50 ms": timeText(1500 * time.Microsecond), "12.3 s": timeText(12300 * time.Millisecond), "2m5s": timeText(125 * time.Second),
		"": atText(math.NaN()), " at 59.1 tok/s": atText(59.06), "1 token": plural(1, "token"), "0 tokens": plural(0, "token"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if atText(math.Inf(1)) != "" || round3(math.NaN()) != 0 || round3(1.23456) != 1.235 {
		t.Error("figures that are none")
	}
}

func TestStatisticsLine(t *testing.T) {
	s := summary{
		Result: engine.Result{Tokens: make([]int32, 20), Stop: engine.StopLength, Prompt: 5, Prefill: 100 * time.Millisecond, Decode: time.Second, Steps: 19},
		Attn:   "topk(k=9)", Prompt: make([]int32, 5), KVBytes: 40960, First: 101 * time.Millisecond, Sampling: device.Sampling{Temperature: 1, Seed: 7},
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
