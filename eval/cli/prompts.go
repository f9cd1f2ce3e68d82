package cli

import (
	"errors"
	"strings"

	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/model"
	"github.com/gollm/gollm/tokenizer"
	"github.com/gollm/gollm/weights"
)

// promptModel is what of a model file makes prompts: no weights are read.
type promptModel struct {
	file     *weights.File
	tok      *tokenizer.Tokenizer
	template string // "" where the file has none
	context  int    // tokens that the model was trained for
}

// openForPrompts opens a model file for its prompts.
func openForPrompts(flags *openmodel.Flags) (*promptModel, error) {
	f, err := weights.Open(flags.Path)
	if err != nil {
		return nil, userfile.OpenError("-m", flags.Path, userfile.GGUF, err)
	}
	m := &promptModel{file: f}
	if m.tok, err = openmodel.FileTokenizer(f); err == nil {
		m.template, err = f.StringOr("tokenizer.chat_template", "")
	}
	if err == nil {
		var c model.Config
		c, err = model.ReadConfig(f, flags.Rope.RopeOptions)
		m.context = c.Context
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return m, nil
}

// Close unmaps the file.
func (m *promptModel) Close() error { return m.file.Close() }

// prompter turns texts into prompts.
type prompter struct {
	tok   *tokenizer.Tokenizer
	bos   string
	split bool // the question has a phase of its own
}

// encode is the tokens of a text, BOS by the policy, and where it has BOS.
func (p *prompter) encode(text string) (ids []int32, bos []int) {
	ids = p.tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: true})
	id := p.tok.BOS()
	if id == tokenizer.None {
		return ids, nil
	}
	has := len(ids) > 0 && ids[0] == id
	switch {
	case p.bos == "one" && p.tok.AddsBOS() && !has, p.bos == "official" && p.tok.AddsBOS():
		ids = append([]int32{id}, ids...)
	case p.bos == "none" && has:
		ids = ids[1:]
	}
	return ids, p.begins(ids)
}

// wholePrompt is the text of a prompt as the model gets it.
type wholePrompt struct {
	text   string
	split  int    // the byte where the question begins; 0 is unknown
	hidden bool   // the question is not known while what is before it is read
	prefix string // what the answer begins with, which text ends with
	most   int    // tokens of the answer
	alarms []trial.Alarm
}

// sample makes the tokens of a prompt and looks at them.
func (p *prompter) sample(w *wholePrompt) trial.Sample {
	var s trial.Sample
	s.Most, s.Alarms = w.most, w.alarms
	if w.hidden {
		s.Prompt, s.BOS = p.encode(w.text[:w.split])
		s.Split = len(s.Prompt)
		s.Prompt = append(s.Prompt, p.tok.Encode(w.text[w.split:], tokenizer.EncodeOptions{ParseSpecial: true})...)
		s.BOS = p.begins(s.Prompt)
	} else {
		s.Prompt, s.BOS = p.encode(w.text)
		if p.split && w.split > 0 {
			s.Split = p.tokenAt(s.Prompt, w.text, w.split)
		}
	}
	if oddBOS(p.tok, s.BOS) {
		s.Alarms = append(s.Alarms, trial.AlarmBOS)
	}
	if !endsWith(p.tok, s.Prompt, w.prefix) {
		s.Alarms = append(s.Alarms, trial.AlarmPrefix)
	}
	return s
}

// begins is where a prompt has BOS.
func (p *prompter) begins(ids []int32) []int {
	var at []int
	for i, id := range ids {
		if id == p.tok.BOS() {
			at = append(at, i)
		}
	}
	return at
}

// oddBOS reports whether BOS is not where a model wants it: once at the beginning, of one
// that wants none not twice.
func oddBOS(tok *tokenizer.Tokenizer, at []int) bool {
	if tok.AddsBOS() {
		return len(at) != 1 || at[0] != 0
	}
	return len(at) > 1 && at[0] == 0
}

// endsWith reports whether the last tokens of a prompt are those of a text.
func endsWith(tok *tokenizer.Tokenizer, ids []int32, text string) bool {
	tail := ""
	for i := len(ids) - 1; i >= 0 && len(tail) < len(text); i-- {
		piece := tok.Text(ids[i]) // of a special token
		if !tok.Special(ids[i]) {
			piece = tok.Piece(ids[i])
		}
		tail = piece + tail
	}
	return strings.HasSuffix(tail, text)
}

// tokenAt is the first token that begins at byte split of the text or later.
func (p *prompter) tokenAt(ids []int32, text string, split int) int {
	at := 0
	for i, id := range ids {
		if at >= split {
			return i
		}
		piece := len(p.tok.Text(id)) // of a special token
		if !p.tok.Special(id) {
			piece = len(p.tok.Piece(id))
		} else if !strings.HasPrefix(text[min(at, len(text)):], p.tok.Text(id)) {
			piece = 0 // a BOS that the text does not have
		}
		at += piece
	}
	return len(ids)
}
