package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/longbench"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/tokenizer/chat"
)

// textFlags are what the suites can be told whose texts come from files: how many of them,
// how long they may be, and what chat template is around them.
type textFlags struct {
	run      runFlags
	data     string
	samples  int
	length   int // tokens of a prompt; 0 is what the model leaves
	cut      string
	template openmodel.TemplateFlags
	plain    bool
	skips    bool // longer prompts can be left out
}

func (l *textFlags) register(cmd *cobra.Command, data string) {
	f := cmd.Flags()
	f.StringVar(&l.data, "data", "", data)
	f.IntVarP(&l.samples, "samples", "n", 0, "first samples of each data set (default: all)")
	f.IntVar(&l.length, "max-length", 0, "tokens of a prompt before the chat template (default: what the model was trained for, less the answer and 500)")
	cuts := []string{"middle", "left", "right", "error"}
	what := "what of a longer prompt goes: middle, left, right, or error to stop"
	if l.skips {
		cuts, what = append(cuts, "skip"), "what of a longer prompt goes: middle, left, right, skip to leave it out, or error to stop"
	}
	f.StringVar(&l.cut, "truncate", "middle", what)
	l.template.Register(cmd, "what the model is told before the prompt, in its chat template")
	usage.Complete(cmd, "truncate", func() []string { return cuts })
}

func (l *textFlags) check() error {
	switch {
	case l.data == "":
		return usage.Errorf("no data: --data names it; see --help")
	case l.samples < 0 || l.length < 0:
		return usage.Errorf("-n and --max-length are 0 or more")
	}
	switch l.cut {
	case "middle", "left", "right", "error":
		return nil
	case "skip":
		if l.skips {
			return nil
		}
	}
	return usage.Errorf("--truncate %s, want middle, left, right or error", l.cut)
}

// writer makes prompts out of texts: cut, wrapped and in tokens.
type writer struct {
	*prompter
	flags    *textFlags
	speaker  *openmodel.Speaker // nil: no chat template
	template string             // of the speaker: its name, or its text where it is the model's own
	trained  int                // tokens
	odd      bool               // the middle keeps one more at the end of an odd number
}

// newWriter opens what the flags name.
func (l *textFlags) newWriter(cmd *cobra.Command, odd bool) (*writer, error) {
	m, err := openForPrompts(&l.run.model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	w := &writer{flags: l, odd: odd, trained: m.context, prompter: &prompter{tok: m.tok, bos: l.run.bos, split: l.run.phase == "question+decode"}}
	if !l.plain && (m.template != "" || l.template.Template != "") {
		w.template = cmp.Or(l.template.Template, m.template)
		w.speaker, err = l.template.PlainSpeaker(m.tok, m.file.Path(), m.template)
	}
	return w, err
}

// most is the tokens that a prompt may have.
func (w *writer) most(answer int) int {
	if w.flags.length > 0 {
		return w.flags.length
	}
	return max(w.trained-answer-500, 1)
}

// write makes the prompt of a text. split is the byte where the question begins.
func (w *writer) write(text string, split, answer int, chat bool) (s trial.Sample, err error) {
	text, split, from, err := w.shorten(text, split, w.most(answer))
	if err != nil {
		return s, err
	}
	p := wholePrompt{text: text, split: split, most: answer}
	if chat && w.speaker != nil {
		if err := w.wrap(&p, openmodel.Conversation("", nil, text), 0, split); err != nil {
			return s, err
		}
	}
	s = w.sample(&p)
	s.Truncated = from
	return s, nil
}

// shorten cuts a text to so many tokens, as --truncate says; from is its tokens before, 0
// where it was not cut.
func (w *writer) shorten(text string, split, limit int) (short string, at, from int, err error) {
	ids, _ := w.encode(text)
	if len(ids) <= limit {
		return text, split, 0, nil
	}
	if w.flags.cut == "error" || limit < 1 {
		return "", 0, 0, fmt.Errorf("the prompt has %d tokens, %d at most are allowed; --truncate cuts it, --max-length allows more", len(ids), limit)
	}
	head, tail := longbench.Cut(w.flags.cut).Truncate(ids, limit, w.odd)
	decode := func(ids []int32) string { return w.tok.Decode(ids, tokenizer.DecodeOptions{}) }
	end := text[min(split, len(text)):]
	short = decode(head) + decode(tail)
	return short, max(0, len(short)-len(end)), len(ids), nil
}

// wrap puts a conversation into the chat template, behind the system message of the flags.
// The question begins at a byte of the content of a message; behind the last one it begins
// behind the whole text.
func (w *writer) wrap(p *wholePrompt, talk []chat.Message, message, at int) error {
	system := openmodel.ConversationSystem(w.flags.template.System)
	talk, message = append(system, talk...), message+len(system)
	text, err := w.speaker.Text(context.Background(), talk)
	if err != nil {
		return err
	}
	p.text, p.split = text, len(text)
	if message < len(talk) {
		marked := slices.Clone(talk)
		content := marked[message].Content
		marked[message].Content = content[:at] + splitMark + content[at:]
		with, err := w.speaker.Text(context.Background(), marked)
		if err != nil {
			return err
		}
		before, _, _ := strings.Cut(with, splitMark)
		p.split = commonPrefix(text, before) // templates trim messages
	}
	twice, err := w.appliedTwice(talk, text)
	if twice {
		p.alarms = append(p.alarms, trial.AlarmTemplate)
	}
	return err
}

// splitMark stands in a message where its question begins, to be found in the text of a
// template. No template trims it and no text has it.
const splitMark = "\x00\x01question\x01\x00"

// commonPrefix is how many bytes two texts begin with alike.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// appliedTwice reports whether what the template puts before a message, or a special token,
// stands in a message too. text is the conversation in the template.
func (w *writer) appliedTwice(talk []chat.Message, text string) (bool, error) {
	bare := slices.Clone(talk)
	for i := range bare {
		if w.tok.HasSpecial(bare[i].Content) {
			return true, nil
		}
		bare[i].Content = splitMark
	}
	frame, err := w.speaker.Text(context.Background(), bare)
	if err != nil {
		return false, err
	}
	head, _, _ := strings.Cut(frame, splitMark)
	head = strings.TrimSpace(strings.TrimPrefix(head, w.tok.Text(w.tok.BOS())))
	return head != "" && strings.Count(text, head) > strings.Count(frame, head), nil
}

// suite begins the description of a run.
func (l *textFlags) suite(name string, w *writer, remarks []string) *suite {
	s := &suite{name: name, notes: remarks, ident: trial.Identity{
		Data: map[string]string{}, Samples: l.samples, MaxPrompt: w.most(0),
		Options: map[string]string{"truncate": l.cut, "system": l.template.System},
	}}
	if w.speaker == nil {
		s.notes = append(s.notes, "no chat template around the prompts")
	} else {
		s.ident.Template = w.template
	}
	return s
}
