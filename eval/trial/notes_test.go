package trial

import (
	"slices"
	"testing"
)

func TestPromptsNotes(t *testing.T) {
	var p Prompts
	for _, tokens := range []int{99, 50, 100, 101, 49, 130, 20} {
		p.Add(Info{Length: 100}, 0, tokens, 0, nil)
	}
	p.Add(Info{Length: 200}, 0, 100, 0, nil)
	p.Add(Info{}, 0, 1000, 2000, nil)
	const odd = "length 100: of 7 prompts 2 have more tokens and 2 less than half of them (20 to 130): they may be made for another tokenizer or length"
	for _, c := range []struct {
		id   Identity
		want []string
	}{
		{Identity{MaxPrompt: 1000}, []string{"1 of 9 prompts were cut to 1000 tokens at most, in the middle", odd}},
		{Identity{MaxPrompt: 7, Wording: "ours", Options: map[string]string{"truncate": "left"}}, []string{"1 of 9 prompts were cut to 7 tokens at most, on the left"}},
	} {
		if got := p.Notes(c.id); !slices.Equal(got, c.want) {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
	if got := new(Prompts).Notes(Identity{}); got != nil {
		t.Errorf("without prompts: %q", got)
	}
}
