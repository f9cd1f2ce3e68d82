package trial

import (
	"fmt"
	"slices"
)

// Alarm is what is wrong with a prompt, or with a result: mistakes of harnesses that moved
// published scores. A run goes on, and its report says so.
type Alarm string

// The alarms of prompts.
const (
	// AlarmBOS is a prompt of a model that wants the token that begins a text, which has none
	// at its beginning or several.
	AlarmBOS Alarm = "have not exactly one beginning-of-text token, at the beginning"
	// AlarmTemplate is a prompt in which the chat template, or special tokens of one, stand
	// inside a message.
	AlarmTemplate Alarm = "have a chat template inside a message: it was applied twice"
	// AlarmPrefix is a prompt that does not end with the tokens that the answer begins with.
	AlarmPrefix Alarm = "do not end with what the answer is to begin with"
)

// promptAlarms are those of prompts.
var promptAlarms = []Alarm{AlarmBOS, AlarmTemplate, AlarmPrefix}

// alarmed counts an alarm.
type alarmed struct {
	count int
	task  string // of the first
	line  int
}

// alarm counts the alarms of a prompt, which may be of somebody else's file: only those above
// are told of.
func (p *Prompts) alarm(u Info, line int, alarms []Alarm) {
	for _, a := range alarms {
		if p.alarms == nil {
			p.alarms = map[Alarm]*alarmed{}
		}
		first := p.alarms[a]
		if first == nil {
			first = &alarmed{task: u.Task, line: line}
			p.alarms[a] = first
		}
		if first.count++; u.Task == first.task {
			first.line = min(first.line, line)
		}
	}
}

// Alarms is what there is to say of the prompts.
func (p *Prompts) Alarms() []string {
	var list []string
	for _, a := range promptAlarms {
		if n := p.alarms[a]; n != nil {
			list = append(list, fmt.Sprintf("%d of %d prompts %s; one is that of sample %d of %s", n.count, p.all, a, n.line, n.task))
		}
	}
	return list
}

// betterThan is the probability below which a sparse method that is better than dense
// attention is said to be a likely bug.
const betterThan = 0.01

// scored is how many units a mean is over.
func (s *Setting) scored(mean Info) (n int) {
	for i := range s.Units {
		if s.Units[i].within(mean) {
			n++
		}
	}
	return n
}

// betterAlarms are the results of a setting that are better than those of dense attention by
// more than chance, by an exact sign test on the samples that both answered: of a hundred
// results of a method that is as good as dense attention, one or less is.
func betterAlarms(dense string, set *Setting) []string {
	var list []string
	tests := 0
	for i, r := range slices.Concat(set.Units, set.Means) {
		p := r.Paired
		if p == nil || p.Win+p.Loss == 0 || i >= len(set.Units) && set.scored(r.Info) < 2 {
			continue // a mean over one unit says what that does
		}
		tests++
		if p.Win > p.Loss && p.Difference.Mean > 0 && p.Sign < betterThan {
			length := ""
			if r.Length > 0 {
				length = fmt.Sprintf(" at %d tokens", r.Length)
			}
			list = append(list, fmt.Sprintf("%s is better than %s in %s%s by %.1f, with %d wins and %d losses, p = %.2g by an exact sign test: a sparse method has nothing that dense attention lacks, so this is likely a bug in the comparison",
				set.Attn, dense, r.Task, length, 100*p.Difference.Mean, p.Win, p.Loss, p.Sign))
		}
	}
	if len(list) > 0 {
		list = append(list, fmt.Sprintf("%d of %d such tests of %s have p < %v", len(list), tests, set.Attn, betterThan))
	}
	return list
}
