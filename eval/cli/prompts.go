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

// indexOf is where a template put a message: templates trim them.
func indexOf(wrapped, message string) int {
	trimmed := strings.TrimSpace(message)
	if i := strings.Index(wrapped, trimmed); i >= 0 {
		return i - strings.Index(message, trimmed)
	}
	return 0
}

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
	for i, t := range ids {
		if t == id {
			bos = append(bos, i)
		}
	}
	return ids, bos
}

// request makes the prompt of a text whose question begins at byte split; 0 is
// unknown.
func (p *prompter) request(text string, split, most int) (trial.Request, []int) {
	ids, bos := p.encode(text)
	q := trial.Request{Prompt: ids, Most: most}
	if p.split && split > 0 {
		q.Split = p.tokenAt(ids, text, split)
	}
	return q, bos
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
