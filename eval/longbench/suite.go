package longbench

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/gollm/gollm/eval/jsonl"
)

// The files of a checkout of version 1 and their hashes at 2e00731.
const (
	promptFile = "LongBench/config/dataset2prompt.json"
	lengthFile = "LongBench/config/dataset2maxlen.json"
	promptHash = "56d22ad4f382169c2b8a11ff4c982a4a1bea096c8152b0f0b85b64686b157c30"
	lengthHash = "72966b3c0933e214591637fb085798c5e687ebff4ddaab5d99bbc31120532022"
)

// Suite is the prompts and budgets of version 1.
type Suite struct {
	prompts map[string]string
	lengths map[string]int
	Known   bool // the files are those of the commit that this package follows
}

// LoadSuite reads the configuration of a checkout of THUDM/LongBench.
func LoadSuite(checkout string) (*Suite, error) {
	s := &Suite{Known: true}
	for _, f := range []struct {
		name, hash string
		into       any
	}{{promptFile, promptHash, &s.prompts}, {lengthFile, lengthHash, &s.lengths}} {
		path := filepath.Join(checkout, f.name)
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("longbench: %s is not a checkout of THUDM/LongBench: %w", checkout, err)
		}
		if err := json.Unmarshal(b, f.into); err != nil {
			return nil, fmt.Errorf("longbench: %s: %w", path, jsonl.Plain(err))
		}
		sum := sha256.Sum256(b)
		s.Known = s.Known && hex.EncodeToString(sum[:]) == f.hash
	}
	for _, d := range datasets {
		if !strings.Contains(s.prompts[d.Name], "{context}") || s.lengths[d.Name] < 1 {
			return nil, fmt.Errorf("longbench: %s in %s has no prompt with a context or no length for %s", promptFile, checkout, d.Name)
		}
	}
	return s, nil
}

// NewTokens is the tokens that an answer of a data set may have.
func (s *Suite) NewTokens(d Dataset) int { return s.lengths[d.Name] }

// Prompt fills the prompt of a data set. Braces in a sample are text. split is
// the offset in bytes where the question begins: what follows the context.
func (s *Suite) Prompt(d Dataset, r *Row) (text string, split int) {
	template := s.prompts[d.Name]
	slots := strings.NewReplacer("{context}", r.Context, "{input}", r.Input)
	head, tail, _ := strings.Cut(template, "{context}")
	before := slots.Replace(head) + r.Context
	rest := strings.TrimLeft(tail, "\n ")
	before += tail[:len(tail)-len(rest)]
	return before + slots.Replace(rest), len(before)
}

// DataPath is where a data set is in the folder of the unzipped data.
func DataPath(dir string, d Dataset, e bool) string {
	name := d.Name
	if e {
		name += "_e"
	}
	return filepath.Join(dir, name+".jsonl")
}

// Row is a sample of version 1.
type Row struct {
	Input      string      `json:"input"`
	Context    string      `json:"context"`
	Answers    jsonl.Texts `json:"answers"`
	Length     int         `json:"length"` // words, or characters of a Chinese text
	Dataset    string      `json:"dataset"`
	Language   string      `json:"language"`
	AllClasses jsonl.Texts `json:"all_classes"`
	ID         string      `json:"_id"`
	Line       int         `json:"-"` // of the file that it was read from, from 1
}

// Reader reads samples of a data set.
type Reader struct {
	E    bool // the samples are of LongBench-E and have to say how long they are
	name string
	data Dataset
	in   *jsonl.Reader
}

// NewReader reads the samples of d from r; name is what errors call the file.
func NewReader(name string, d Dataset, r io.Reader) *Reader {
	return &Reader{name: name, data: d, in: jsonl.NewReader(r)}
}

// Next is the next sample; its error is io.EOF at the end.
func (r *Reader) Next() (Row, error) {
	for {
		line, number, err := r.in.Next()
		if err == io.EOF {
			return Row{}, err
		}
		var row Row
		if err == nil {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			row, err = r.parse(line)
			row.Line = number
		}
		if err != nil {
			return Row{}, fmt.Errorf("longbench: %s:%d: %w", r.name, number, err)
		}
		return row, nil
	}
}

// parse reads a line and refuses one of another data set.
func (r *Reader) parse(line []byte) (Row, error) {
	var row Row
	if err := jsonl.Decode(line, &row); err != nil {
		return row, jsonl.Explain(line, err)
	}
	switch {
	case row.Context == "":
		return row, fmt.Errorf("no field context, the text that is asked about")
	case row.Dataset != "" && strings.TrimSuffix(row.Dataset, "_e") != r.data.Name:
		return row, fmt.Errorf("a sample of %s in a file of %s", row.Dataset, r.data.Name)
	case r.E && row.Length == 0 && !has(line, "length"):
		return row, errNoLength
	}
	return row, r.data.checkFields(row.Answers, row.AllClasses, row.Length)
}
