package trial

import (
	"fmt"
	"slices"
)

// Prompts counts what of the prompts of a run a report must say: those that were cut,
// and those that have not the tokens that their length says, as prompts that were made
// for another tokenizer have not.
type Prompts struct {
	cut, all int
	lengths  []oddLength
	alarms   map[Alarm]*alarmed
}

// oddLength is the prompts of a length that do not have it.
type oddLength struct {
	length, all, over, under int
	least, most              int // tokens of those that are over or under
}

// Add counts the prompt of a sample of a unit, by its line. truncated is its tokens before it
// was cut, 0 where it was not.
func (p *Prompts) Add(u Info, line, tokens, truncated int, alarms []Alarm) {
	p.all++
	p.alarm(u, line, alarms)
	if truncated > 0 {
		p.cut++
	}
	if u.Length == 0 {
		return
	}
	at := slices.IndexFunc(p.lengths, func(l oddLength) bool { return l.length == u.Length })
	if at < 0 {
		at, p.lengths = len(p.lengths), append(p.lengths, oddLength{length: u.Length})
	}
	l := &p.lengths[at]
	l.all++
	over, under := tokens > u.Length, 2*tokens < u.Length
	if !over && !under {
		return
	}
	if l.over+l.under == 0 || tokens < l.least {
		l.least = tokens
	}
	l.most = max(l.most, tokens)
	if over {
		l.over++
	} else {
		l.under++
	}
}

// Notes is what there is to say. Prompts that were made in the run fill their length as
// the rules of the suite say, which may be less than half of it.
func (p *Prompts) Notes(id Identity) []string {
	var notes []string
	if p.cut > 0 {
		where := map[string]string{"left": "on the left", "right": "on the right"}[id.Options["truncate"]]
		if where == "" {
			where = "in the middle"
		}
		notes = append(notes, fmt.Sprintf("%d of %d prompts were cut to %d tokens at most, %s", p.cut, p.all, id.MaxPrompt, where))
	}
	if id.Wording != "" {
		return notes
	}
	for _, l := range p.lengths {
		if l.over+l.under > 0 {
			notes = append(notes, fmt.Sprintf("length %d: of %d prompts %d have more tokens and %d less than half of them (%d to %d): they may be made for another tokenizer or length",
				l.length, l.all, l.over, l.under, l.least, l.most))
		}
	}
	return notes
}
