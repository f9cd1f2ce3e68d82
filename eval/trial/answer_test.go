package trial

import (
	"slices"
	"testing"

	_ "github.com/gollm/gollm/cpu"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/model/modeltest"
)

// TestForcedIsTheFreeAnswer reads a right answer on the way: where that is what the model
// writes by itself, it writes the same; and what is read changes what follows.
func TestForcedIsTheFreeAnswer(t *testing.T) {
	dev, err := device.Open("cpu", device.Config{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Load(modeltest.File(t, modeltest.Writer(modeltest.Shape{Context: 256})), dev)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	r, err := e.NewRunner(engine.Config{Context: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a := Answerer{Runner: r, Vocab: e.Model.Vocab, Ends: func(int32) bool { return false }}
	answer := func(forced []int32) (tokens []int32) {
		q := Request{Prompt: []int32{0, 9, 200, 31, 7}, Most: 12, Forced: forced}
		if err := a.Answer(t.Context(), q, []int{0}, func(_ int, r Reply) error { tokens = r.Tokens; return nil }); err != nil {
			t.Fatal(err)
		}
		return tokens
	}
	free := answer(nil)
	if got := answer(free); len(free) != 12 || !slices.Equal(got, free) {
		t.Errorf("%v behind the free answer %v", got, free)
	}
	other := slices.Clone(free)
	other[0] = 5
	if got := answer(other); got[0] != free[0] || slices.Equal(got, free) {
		t.Errorf("%v behind another beginning, %v behind its own", got, free)
	}
}
