package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/eval/needle"
	"github.com/gollm/gollm/eval/page"
	"github.com/gollm/gollm/eval/ruler"
	"github.com/gollm/gollm/eval/trial"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
	"github.com/gollm/gollm/internal/userfile"
	"github.com/gollm/gollm/tokenizer"
)

const niahLong = `Hide a sentence at every depth of texts of every length, ask for it, and draw
what was found as a map: a row for each depth, a column for each length.

The haystack is --haystack FILE, any text, or sentences of our own that mean
nothing. The needle and the question are those of MInference, the instruction
around them is ours. The folder of -o gets heat.csv and heat.svg for each
attention.`

// niahFlags is what eval niah can be told.
type niahFlags struct {
	run      runFlags
	lengths  string
	depths   int
	rounds   int
	seed     uint64
	haystack string
}

func newNiah() *cobra.Command {
	var n niahFlags
	cmd := &cobra.Command{
		Use:     "niah -m FILE -o DIR",
		Short:   "Find a needle in a haystack, at every depth and length",
		Long:    niahLong,
		Example: "  gollm eval niah -m model.gguf --lengths 1k,2k,4k,8k --depths 11 --rounds 3 --haystack book.txt -o niah",
		Args:    usage.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return n.execute(cmd) },

		SuggestFor: []string{"needle", "haystack"},
	}
	n.run.model.RegisterPath(cmd)
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
	maxDepths = 101
	maxRounds = 10000
)

// grid reads the flags that say what is asked.
func (n *niahFlags) grid() (g needle.Grid, err error) {
	if n.depths < 1 || n.depths > maxDepths {
		return g, usage.Errorf("--depths %d, want 1 to %d: there is one for each percent", n.depths, maxDepths)
	}
	if n.rounds < 1 || n.rounds > maxRounds {
		return g, usage.Errorf("--rounds %d, want 1 to %d", n.rounds, maxRounds)
	}
	g = needle.Grid{Depths: needle.Spread(0, 100, n.depths), Rounds: n.rounds, Seed: n.seed}
	if g.Lengths, err = parseLengths(n.lengths); err != nil {
		return g, usage.Errorf("--lengths: %v", err)
	}
	if err := g.Check(); err != nil {
		return g, usage.Errorf("%v", err)
	}
	return g, nil
}

// tokenizer is that of the model, which must have room for the longest prompts:
// making those of a length that no model has takes all memory. Their exact size
// is known when they are made.
func (n *niahFlags) tokenizer(g needle.Grid) (*tokenizer.Tokenizer, error) {
	m, err := openForPrompts(&n.run.model)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	return m.tok, n.run.fits(slices.Max(g.Lengths)-needle.Reserved, m.context)
}

func (n *niahFlags) execute(cmd *cobra.Command) error {
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
	return n.run.execute(cmd, s, tok)
}

// hay is the text of the haystack.
func (n *niahFlags) hay(s *suite) (string, error) {
	if n.haystack == "" {
		s.notes = append(s.notes, "haystack: built-in sentences")
		return ruler.Filler(1, fillerWords), nil
	}
	b, err := userfile.ReadLimited(n.haystack, userfile.MaxText)
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
func (n *niahFlags) unit(g needle.Grid, hay []int32, length int, tok *tokenizer.Tokenizer) trial.Unit {
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
func (n *niahFlags) sample(g needle.Grid, hay []int32, length, i int, tok *tokenizer.Tokenizer) (trial.Sample, error) {
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
	if oddBOS(tok, s.BOS) {
		s.Alarms = append(s.Alarms, trial.AlarmBOS)
	}
	s.Grade = func(answer string) (float64, error) { return k.Correct(answer), nil }
	s.Row = func(answer string) any {
		return needleRow{k.Length, float64(k.Depth), answer, k.Answer, k.Correct(answer) == 1, k.Seed, k.Position}
	}
	return s, nil
}

// heats is what was found under each setting of a needle run, none of another suite.
func heats(s *trial.Summary) ([]*needle.Heat, error) {
	id := &s.Manifest.Identity
	if id.Suite != "niah" {
		return nil, nil
	}
	depths, err := readDepths(id.Options["depths"])
	if err != nil {
		return nil, fmt.Errorf("the manifest of the run: %w", err)
	}
	var all []*needle.Heat
	for _, set := range s.Settings {
		g := needle.Grid{Depths: depths}
		for _, u := range set.Units {
			g.Lengths = append(g.Lengths, u.Length)
		}
		h := needle.NewHeat(g)
		for l := range set.Units {
			for line, score := range set.Units[l].Scores() {
				h.Add(line%len(depths), l, score)
			}
		}
		all = append(all, h)
	}
	return all, nil
}

// readDepths reads the depths of a run as its manifest has them: "[0 50 100]".
func readDepths(text string) ([]int, error) {
	var depths []int
	for field := range strings.FieldsSeq(strings.Trim(text, "[]")) {
		d, err := strconv.Atoi(field)
		if err != nil || d < 0 || d > 100 || len(depths) == maxDepths {
			return nil, fmt.Errorf("option depths is %.60q, want up to %d numbers from 0 to 100", text, maxDepths)
		}
		depths = append(depths, d)
	}
	if len(depths) == 0 {
		return nil, fmt.Errorf("option depths is %.60q, want one number from 0 to 100 at least", text)
	}
	return depths, nil
}

// printMaps prints the maps of a needle run.
func printMaps(out io.Writer, s *trial.Summary) error {
	all, err := heats(s)
	if err != nil {
		return err
	}
	for i, h := range all {
		if _, err := fmt.Fprintln(out, console.OneLine(s.Settings[i].Attn)); err != nil {
			return err
		}
		// Its colours are ours: they go past what escapes the text of files.
		if err := h.WriteText(console.Beneath(out).(io.Writer), console.IsTerminal(out)); err != nil {
			return err
		}
	}
	return nil
}

// writeMaps writes the maps of a needle run into the folders of their settings, and
// returns them for the report. They are drawn from the answers each time: a picture
// that lies in the folder may be anybody's, and would become part of the page.
func writeMaps(folder string, s *trial.Summary) ([]page.Map, error) {
	all, err := heats(s)
	if err != nil {
		return nil, err
	}
	var maps []page.Map
	for i, h := range all {
		attn := s.Settings[i].Attn
		var table, picture strings.Builder
		if err := h.WriteCSV(&table); err != nil {
			return nil, err
		}
		if err := h.WriteSVG(&picture, attn); err != nil {
			return nil, err
		}
		dir := trial.SettingName(i, attn)
		if err := trial.WriteFile(folder, filepath.Join(dir, "heat.csv"), []byte(table.String())); err != nil {
			return nil, err
		}
		if err := trial.WriteFile(folder, filepath.Join(dir, "heat.svg"), []byte(picture.String())); err != nil {
			return nil, err
		}
		maps = append(maps, page.Map{Name: attn, SVG: template.HTML(picture.String())})
	}
	return maps, nil
}
