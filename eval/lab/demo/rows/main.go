package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/gollm/gollm/tokenizer"
)

// options are what the command line says.
type options struct {
	vocab   string // file of the vocabulary
	texts   bool   // write texts, not batches
	lengths []share
	recipes []share
	tokens  int // of a batch
	seed    uint64
	first   int // number of the first batch
	count   int
	workers int
}

// share is a name with a weight.
type share struct {
	name   string
	weight float64
}

func main() {
	var o options
	var lengths, recipes string
	flag.StringVar(&o.vocab, "vocab", "", "JSON file with tokens and merges")
	flag.BoolVar(&o.texts, "texts", false, "write texts, one JSON string a line, to make a vocabulary from")
	flag.StringVar(&lengths, "lengths", "512:1", "tokens of a row, each with a weight")
	flag.StringVar(&recipes, "recipes", "needles:1", "kinds of rows, each with a weight")
	flag.IntVar(&o.tokens, "tokens", 65536, "tokens of a batch")
	flag.Uint64Var(&o.seed, "seed", 1, "same seed, same batches")
	flag.IntVar(&o.first, "first", 0, "number of the first batch")
	flag.IntVar(&o.count, "count", 1, "batches")
	flag.IntVar(&o.workers, "workers", 1, "threads")
	flag.Parse()
	if err := o.run(lengths, recipes); err != nil {
		fmt.Fprintln(os.Stderr, "rows:", err)
		os.Exit(1)
	}
}

func (o *options) run(lengths, recipes string) error {
	var err error
	if o.lengths, err = parseShares(lengths); err != nil {
		return err
	}
	if o.recipes, err = parseShares(recipes); err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	if o.texts {
		err = o.writeTexts(out)
	} else {
		err = o.writeBatches(out)
	}
	if err != nil {
		return err
	}
	return out.Flush()
}

// parseShares reads "name:weight,name:weight".
func parseShares(text string) ([]share, error) {
	var all []share
	for part := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(part, ":")
		weight, err := strconv.ParseFloat(number, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: want a name, a colon and a number", part)
		}
		all = append(all, share{name, weight})
	}
	return all, nil
}

// loadVocab reads the file that the trainer writes.
func loadVocab(path string) (tokenizer.Vocab, error) {
	v := tokenizer.Vocab{
		Model: tokenizer.ByteLevel, Pre: "llama-bpe", BOS: 0, EOS: 1,
		UNK: tokenizer.None, EOT: tokenizer.None, EOM: tokenizer.None, AddBOS: true,
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		return v, err
	}
	v.Types = make([]int32, len(v.Tokens))
	for i := range v.Types {
		v.Types[i] = tokenizer.TypeNormal
	}
	v.Types[v.BOS], v.Types[v.EOS] = tokenizer.TypeControl, tokenizer.TypeControl
	return v, nil
}
