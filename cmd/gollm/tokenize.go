package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/openmodel"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/tokenizer"
)

const tokenizeLong = `Print the token ids of a text as a JSON array.

The text comes from -p, from -f or from stdin, every byte as it is. Special
tokens such as <|eot_id|> are read as tokens (--no-special reads them as text),
and the beginning-of-text token is added where the model wants it (--no-bos
leaves it out).

--decode does the reverse: ids, as a JSON array or separated by spaces, become
text, without the beginning-of-text token and without a newline at the end.
Special tokens are written out; --no-special leaves them out.`

const tokenizeExample = `  gollm tokenize -m model.gguf -p "Hello, world"
  gollm tokenize -m model.gguf -f book.txt > ids.json
  gollm tokenize -m model.gguf --decode -f ids.json
  gollm tokenize -m model.gguf --pieces -p "antidisestablishmentarianism"`

// tokenizeFlags is what tokenize can be told.
type tokenizeFlags struct {
	model  openmodel.Flags
	text   openmodel.TextFlags
	tokens openmodel.TokenFlags
	decode bool
	pieces bool
}

func newTokenize() *cobra.Command {
	var t tokenizeFlags
	cmd := &cobra.Command{
		Use:        "tokenize -m FILE [-p TEXT | -f FILE]",
		Short:      "Turn text into token ids, or back",
		Long:       tokenizeLong,
		Example:    tokenizeExample,
		GroupID:    groupLook,
		Args:       usage.NoArgs,
		SuggestFor: []string{"encode", "decode", "detokenize", "llama-tokenize"},
		RunE:       func(cmd *cobra.Command, _ []string) error { return t.run(cmd) },
	}
	t.model.RegisterPath(cmd)
	t.text.Register(cmd, "the text, or with --decode the ids")
	t.tokens.Register(cmd)
	cmd.Flags().BoolVar(&t.decode, "decode", false, "turn ids into text")
	cmd.Flags().BoolVar(&t.pieces, "pieces", false, "print one token on a line: its id and what it stands for")
	return cmd
}

func (t *tokenizeFlags) run(cmd *cobra.Command) error {
	for _, err := range []error{t.model.CheckPath(), t.text.Check(cmd)} {
		if err != nil {
			return err
		}
	}
	text, err := t.text.Read(cmd)
	if err != nil {
		return err
	}
	tok, err := openmodel.OpenTokenizer(t.model.Path)
	if err != nil {
		return err
	}
	var ids []int32
	if t.decode {
		if ids, err = parseIDs([]byte(text), tok.Len()); err != nil {
			return err
		}
	} else {
		ids = t.tokens.Encode(tok, text)
	}
	return t.print(cmd, tok, ids)
}

// print writes the ids in the form that the flags ask for.
func (t *tokenizeFlags) print(cmd *cobra.Command, tok *tokenizer.Tokenizer, ids []int32) error {
	switch {
	case t.pieces:
		return writePieces(cmd.OutOrStdout(), tok, ids)
	case t.decode:
		_, err := io.WriteString(console.TextOut(cmd), t.decodeIDs(tok, ids))
		return err
	}
	return console.WriteJSON(cmd.OutOrStdout(), ids)
}

// decodeIDs is the text that encoding made ids from.
func (t *tokenizeFlags) decodeIDs(tok *tokenizer.Tokenizer, ids []int32) string {
	if !t.tokens.NoBOS && tok.AddsBOS() && len(ids) > 0 && ids[0] == tok.BOS() {
		ids = ids[1:]
	}
	return tok.Decode(ids, tokenizer.DecodeOptions{ShowSpecial: !t.tokens.NoSpecial})
}

// writePieces writes each id with what it stands for, quoted.
func writePieces(out io.Writer, tok *tokenizer.Tokenizer, ids []int32) error {
	for _, id := range ids {
		piece, kind := tok.Piece(id), ""
		if tok.Special(id) {
			piece, kind = tok.Text(id), "\tspecial"
		}
		if _, err := fmt.Fprintf(out, "%d\t%q%s\n", id, piece, kind); err != nil {
			return err
		}
	}
	return nil
}

// parseIDs reads ids of a vocabulary of n tokens: a JSON array, or numbers
// separated by spaces, commas or line ends.
func parseIDs(b []byte, n int) ([]int32, error) {
	var words []string
	if text := strings.TrimSpace(string(b)); strings.HasPrefix(text, "[") {
		var raw []json.RawMessage
		if err := json.Unmarshal([]byte(text), &raw); err != nil {
			return nil, fmt.Errorf("token ids: not a JSON array, for example [1, 2, 3]: %w%s", err, placeOf(err))
		}
		for _, r := range raw {
			words = append(words, string(r))
		}
	} else {
		words = strings.FieldsFunc(text, isSeparator)
	}
	ids := make([]int32, len(words))
	for i, w := range words {
		id, err := strconv.ParseInt(w, 10, 64)
		if errors.Is(err, strconv.ErrSyntax) {
			return nil, fmt.Errorf("token ids: number %d is %s, want a whole number from 0 to %d", i+1, shorten(w, 40), n-1)
		}
		if err != nil || id < 0 || id >= int64(n) {
			return nil, fmt.Errorf("token ids: number %d is %s, want 0 to %d: these ids are of another vocabulary", i+1, shorten(w, 40), n-1)
		}
		ids[i] = int32(id)
	}
	return ids, nil
}

// placeOf says where in a text its JSON is broken, where that is known.
func placeOf(err error) string {
	broken := new(json.SyntaxError)
	if !errors.As(err, &broken) {
		return ""
	}
	return fmt.Sprintf(", at byte %d", broken.Offset)
}

func isSeparator(r rune) bool { return strings.ContainsRune(" \t\r\n,", r) }
