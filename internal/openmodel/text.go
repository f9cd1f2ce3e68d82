package openmodel

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
)

// TextFlags say where a text comes from.
type TextFlags struct {
	text string
	File string // path; "" or - is stdin, where there is no text
}

// Register registers the flags; what is the help of -p.
func (t *TextFlags) Register(cmd *cobra.Command, what string) {
	cmd.Flags().StringVarP(&t.text, "prompt", "p", "", what)
	cmd.Flags().StringVarP(&t.File, "file", "f", "", "read it from a file, every byte as it is; - is stdin")
	_ = cmd.MarkFlagFilename("file")
}

// Check reports what is wrong with the flags.
func (t *TextFlags) Check(cmd *cobra.Command) error {
	given, file := cmd.Flags().Changed("prompt"), cmd.Flags().Changed("file")
	switch {
	case given && file:
		return usage.Errorf("both -p and -f: a text comes from one of them")
	case !given && !file && console.IsTerminal(cmd.InOrStdin()):
		return usage.Errorf("no text: pass -p TEXT or -f FILE, or pipe it in")
	}
	return nil
}

// Read returns the text, byte for byte.
func (t *TextFlags) Read(cmd *cobra.Command) (string, error) {
	if cmd.Flags().Changed("prompt") {
		return t.text, nil
	}
	b, err := userfile.Read(cmd, "-f", t.File, "a text")
	return string(b), err
}

// TokenFlags say how text becomes tokens.
type TokenFlags struct {
	NoBOS     bool // do not begin with the beginning-of-text token
	NoSpecial bool // what looks like a special token is text
}

// Register registers the flags.
func (t *TokenFlags) Register(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&t.NoBOS, "no-bos", false, "do not begin with the beginning-of-text token")
	cmd.Flags().BoolVar(&t.NoSpecial, "no-special", false, "read <|eot_id|> and its like as plain text, not as tokens")
}

// Encode turns the beginning of a text into tokens: BOS is added where the
// model wants it and the text does not have it, EOS never is.
func (t *TokenFlags) Encode(tok *tokenizer.Tokenizer, text string) []int32 {
	ids := tok.Encode(text, tokenizer.EncodeOptions{ParseSpecial: !t.NoSpecial})
	if t.NoBOS || !tok.AddsBOS() || (len(ids) > 0 && ids[0] == tok.BOS()) {
		return ids
	}
	return append([]int32{tok.BOS()}, ids...)
}

// OpenWithText opens a model and reads a text in its tokens. The text is data: what
// looks like a special token in it is none. bos is the token that begins a window,
// -1 where the model has none.
func OpenWithText(cmd *cobra.Command, model *Flags, text *TextFlags) (m *Model, ids []int32, bos int32, err error) {
	words, err := text.Read(cmd)
	if err != nil {
		return nil, nil, 0, err
	}
	if m, err = model.Open(cmd); err != nil {
		return nil, nil, 0, err
	}
	bos = -1
	if m.Tokenizer.AddsBOS() {
		bos = m.Tokenizer.BOS()
	}
	return m, (&TokenFlags{NoSpecial: true}).Encode(m.Tokenizer, words), bos, nil
}

// TokenCount reads a number of tokens, at least 1: 8k is 8192, 1M is 1048576.
func TokenCount(text string) (int, bool) {
	text, unit := strings.ToLower(strings.TrimSpace(text)), 1
	if digits, ok := strings.CutSuffix(text, "k"); ok {
		text, unit = digits, 1<<10
	} else if digits, ok := strings.CutSuffix(text, "m"); ok {
		text, unit = digits, 1<<20
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxContext/unit {
		return 0, false
	}
	return n * unit, true
}
