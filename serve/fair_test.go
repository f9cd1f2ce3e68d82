package serve

import (
	"testing"

	"github.com/gollm/gollm/engine"
)

// TestLargePromptBesideAnotherSpec has a request that needs most of the cache, beside a spec whose
// requests never stop coming: they give way, although each of them would fit.
func TestLargePromptBesideAnotherSpec(t *testing.T) {
	e := testModel(t)
	text := story(t, 300)
	s := start(t, e, Config{}, engine.Config{Context: 320, Slots: 4, Blocks: 6}, "dense", "streaming(sink=2,window=40)")
	small := func(tokens int) *Answer {
		all, err := s.Submit(t.Context(), Request{Prompt: text[:60], MaxTokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		return all[0]
	}
	running := []*Answer{small(20), small(60)} // one of them is always in the middle
	for range running[0].Pieces() {
		break // it runs
	}
	large, err := s.Submit(t.Context(), Request{Attn: 1, Prompt: text, MaxTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, _, err := read(large[0])
		done <- err
	}()
	for n := 0; ; n++ {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		if n == 40 {
			t.Fatalf("%d requests of another spec, which came later, are answered, and the large one is not", n)
		}
		if _, _, err := read(running[0]); err != nil {
			t.Fatal(err)
		}
		running = append(running[1:], small(80))
	}
}
