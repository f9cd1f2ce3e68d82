package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/needle"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/tokenizer"
)

const evalNiahLong = `Hide a sentence at every depth of texts of every length, ask for it, and draw
what was found as a map: a row for each depth, a column for each length.

The haystack is --haystack FILE, any text, or sentences of our own that mean
nothing. The needle and the question are those of MInference, the instruction
around them is ours. The folder of -o gets heat.csv and heat.svg for each
attention.`

// evalNiahFlags is what eval niah can be told.
type evalNiahFlags struct {
	run      evalFlags
	lengths  string
	depths   int
	rounds   int
	seed     uint64
	haystack string
}

func newEvalNiah() *cobra.Command {
	var n evalNiahFlags
	cmd := &cobra.Command{
		Use:     "niah -m FILE -o DIR",
		Short:   "Find a needle in a haystack, at every depth and length",
		Long:    evalNiahLong,
		Example: "  gollm eval niah -m model.gguf --lengths 1k,2k,4k,8k --depths 11 --rounds 3 --haystack book.txt -o niah",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return n.execute(cmd) },
	}
	n.run.model.registerPath(cmd)
	f := cmd.Flags()
	f.StringVar(&n.lengths, "lengths", "1k,2k,4k", "lengths in tokens")
	f.IntVar(&n.depths, "depths", 10, "depths, evenly from 0 to 100 %")
	f.IntVar(&n.rounds, "rounds", 1, "prompts of each depth and length")
	f.Uint64Var(&n.seed, "seed", 42, "same seed, same prompts")
	f.StringVar(&n.haystack, "haystack", "", "a text file (default: sentences of our own)")
	n.run.register(cmd)
	return cmd
}

// coder is the tokenizer of needle prompts, whose parts are data: special tokens
// in them are text.
type coder struct{ tok *tokenizer.Tokenizer }

func (c coder) Encode(text string) []int32 { return c.tok.Encode(text, tokenizer.EncodeOptions{}) }
func (c coder) Text(id int32) string       { return strings.TrimPrefix(c.tok.Piece(id), " ") }

// needleTokens is the tokens of an answer.
const needleTokens = 32

// The most that a map is drawn of: a depth for each percent, and so many rounds
// that no figure needs more.
const (
	mostDepths = 101
	mostRounds = 10000
)

// grid reads the flags that say what is asked.
func (n *evalNiahFlags) grid() (g needle.Grid, err error) {
	if n.depths < 1 || n.depths > mostDepths {
		return g, usagef("--depths %d, want 1 to %d: there is one for each percent", n.depths, mostDepths)
	}
	if n.rounds < 1 || n.rounds > mostRounds {
		return g, usagef("--rounds %d, want 1 to %d", n.rounds, mostRounds)
	}
	g = needle.Grid{Depths: needle.Spread(0, 100, n.depths), Rounds: n.rounds, Seed: n.seed}
	if g.Lengths, err = parseLengths(n.lengths); err != nil {
		return g, usagef("--lengths: %v", err)
	}
	if err := g.Check(); err != nil {
		return g, usagef("%v", err)
	}
	return g, nil
}

// tokenizer is that of the model, which must have room for the longest prompts:
// making those of a length that no model has takes all memory. Their exact size
// is known when they are made.
func (n *evalNiahFlags) tokenizer(g needle.Grid) (*tokenizer.Tokenizer, error) {
	m, err := openForPrompts(n.run.model.path)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.tok, n.run.fits(slices.Max(g.Lengths)-needle.Reserved, m.context)
}

func (n *evalNiahFlags) execute(cmd *cobra.Command) error {
	if err := n.run.check(); err != nil {
		return err
	}
	g, err := n.grid()
	if err != nil {
		return err
	}
	tok, err := n.tokenizer(g)
	if err != nil {
		return err
	}
	s := &suite{name: "niah", ident: trial.Identity{
		Data: map[string]string{}, Wording: "gollm", Options: map[string]string{
			"seed": fmt.Sprint(n.seed), "lengths": fmt.Sprint(g.Lengths), "depths": fmt.Sprint(g.Depths), "rounds": fmt.Sprint(n.rounds),
		},
	}}
	text, err := n.hay(s)
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(text))
	s.ident.Data["haystack"] = hex.EncodeToString(sum[:])
	hay := coder{tok}.Encode(text)
	for _, length := range g.Lengths {
		s.units = append(s.units, n.unit(g, hay, length, tok))
	}
	if err := n.run.execute(cmd, s, tok); err != nil || n.run.dry {
		return err
	}
	if err := n.maps(cmd, g); err != nil {
		return err
	}
	summary, err := trial.Summarize(cmd.Context(), n.run.out)
	if err != nil {
		return err
	}
	return writeReport(filepath.Join(n.run.out, "report.html"), n.run.out, summary) // with the maps
}

// hay is the text of the haystack.
func (n *evalNiahFlags) hay(s *suite) (string, error) {
	if n.haystack == "" {
		s.notes = append(s.notes, "haystack: built-in sentences")
		return ruler.Filler(1, fillerWords), nil
	}
	b, err := readLimited(n.haystack, mostText)
	return string(b), err
}

// needleRow is an answer in the official form.
type needleRow struct {
	Length   int     `json:"context_length"`
	Depth    float64 `json:"depth_percent"`
	Response string  `json:"response"`
	Answer   string  `json:"answer"`
	Correct  bool    `json:"correct"`
	Seed     uint64  `json:"seed"`
	Position int     `json:"needle_token"`
}

// unit is the prompts of a length.
func (n *evalNiahFlags) unit(g needle.Grid, hay []int32, length int, tok *tokenizer.Tokenizer) trial.Unit {
	u := trial.Unit{Info: trial.Info{Name: fmt.Sprintf("%d/niah.jsonl", length), Task: "niah", Group: "retrieval", Length: length, Count: g.Cases()}}
	u.Each = func(f func(line int, make func() (trial.Sample, error)) error) error {
		for i := range u.Count {
			if err := f(i, func() (trial.Sample, error) { return n.sample(g, hay, length, i, tok) }); err != nil {
				return err
			}
		}
		return nil
	}
	return u
}

// sample makes the prompt of case i of a length.
func (n *evalNiahFlags) sample(g needle.Grid, hay []int32, length, i int, tok *tokenizer.Tokenizer) (trial.Sample, error) {
	k, err := g.Make(coder{tok}, hay, length, i)
	if err != nil {
		return trial.Sample{}, err
	}
	var s trial.Sample
	s.Prompt, s.Most = k.Prompt, needleTokens
	if n.run.most > 0 {
		s.Most = n.run.most
	}
	if n.run.phase == "question+decode" {
		s.Split = k.Split
	}
	if n.run.bos != "none" && tok.AddsBOS() {
		s.Prompt = append([]int32{tok.BOS()}, s.Prompt...)
		s.BOS = []int{0}
		k.Position++
		if s.Split > 0 {
			s.Split++
		}
	}
	s.Grade = func(answer string) (float64, error) { return k.Correct(answer), nil }
	s.Row = func(answer string) any {
		return needleRow{k.Length, float64(k.Depth), answer, k.Answer, k.Correct(answer) == 1, k.Seed, k.Position}
	}
	return s, nil
}

// maps draws what was found under each attention.
func (n *evalNiahFlags) maps(cmd *cobra.Command, g needle.Grid) error {
	m, err := trial.ReadManifest(n.run.out)
	if err != nil {
		return err
	}
	for i, attn := range m.Identity.Settings {
		h := needle.NewHeat(g)
		for l, u := range m.Units {
			for r := range m.Identity.Times(i) {
				answers, err := trial.ReadAnswers(trial.RepeatPath(n.run.out, i, attn, r, u.Name))
				if err != nil {
					return err
				}
				for line, a := range answers {
					h.Add(line%len(g.Depths), l, a.Points())
				}
			}
		}
		if err := n.draw(cmd, h, i, attn); err != nil {
			return err
		}
	}
	return nil
}

// draw writes a map into the folder of its setting and on the terminal.
func (n *evalNiahFlags) draw(cmd *cobra.Command, h *needle.Heat, i int, attn string) error {
	dir := filepath.Join(n.run.out, trial.SettingName(i, attn))
	out := cmd.OutOrStdout()
	fmt.Fprintln(out, oneLine(attn))
	if err := h.WriteText(dataOut(cmd), isTerminal(out)); err != nil {
		return err
	}
	var table, picture strings.Builder
	if err := h.WriteCSV(&table); err != nil {
		return err
	}
	if err := h.WriteSVG(&picture, attn); err != nil {
		return err
	}
	if err := trial.WriteFile(filepath.Join(dir, "heat.csv"), []byte(table.String())); err != nil {
		return err
	}
	return trial.WriteFile(filepath.Join(dir, "heat.svg"), []byte(picture.String()))
}
