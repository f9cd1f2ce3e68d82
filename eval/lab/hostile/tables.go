package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"github.com/parquet-go/parquet-go"

	"github.com/gollm/gollm/eval/published"
	"github.com/gollm/gollm/eval/table"
)

// publishedRow has the columns of all suites that come as Parquet.
type publishedRow struct {
	Context  string          `parquet:"context"`
	Question string          `parquet:"question,optional"`
	Prefix   string          `parquet:"answer_prefix,dict"`
	Answer   []string        `parquet:"answer,list"`
	Task     string          `parquet:"task,dict"`
	Tokens   int64           `parquet:"max_new_tokens"`
	Prompt   string          `parquet:"prompt"`
	Needles  int64           `parquet:"n_needles"`
	Share    float64         `parquet:"share"`
	Turns    []publishedTurn `parquet:"multi_turns,list"`
}

// publishedTurn is a question of SCBench.
type publishedTurn struct {
	Input   string   `parquet:"input"`
	Answer  string   `parquet:"answer"`
	Options []string `parquet:"options,list"`
}

// startTables feeds Parquet files: to the reader, and their rows to the suites.
func startTables() (execution, error) {
	var whole bytes.Buffer
	w := parquet.NewGenericWriter[publishedRow](&whole, parquet.Compression(&parquet.Snappy), parquet.MaxRowsPerRowGroup(2))
	for i := range 3 {
		row := publishedRow{Context: "a text", Question: "q", Prefix: " A:", Answer: []string{"a", "b"}, Task: "vt", Tokens: int64(i) + 1, Prompt: `[{"role":"user","content":"x"}]`, Needles: 2,
			Turns: []publishedTurn{{"The x is", "a", []string{"a", "b", "c", "d"}}, {"q", "b", nil}}}
		if _, err := w.Write([]publishedRow{row}); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return func(rng *rand.Rand) ([]byte, string) {
		b := bytes.Clone(whole.Bytes())
		if rng.IntN(3) == 0 {
			b = changeBytes(b, rng)
		} else {
			for range rng.IntN(4) {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
		}
		return b, feedTable(b)
	}, nil
}

// feedTable reads a file and asks what its rows ask.
func feedTable(b []byte) string {
	rows := 0
	for r, err := range table.Parquet("hostile.parquet", bytes.NewReader(b), int64(len(b))) {
		if err != nil && rows == 0 {
			return refused("refused", err)
		}
		if err != nil {
			return refused("read in part", err)
		}
		if rows++; rows > 1000 {
			return fmt.Sprintf("WRONG: more than 1000 rows in %d bytes", len(b))
		}
		for _, name := range published.Names() {
			for _, d := range published.Find(name).Sets {
				for _, w := range []*published.Wording{published.OwnShared, published.OwnInfinite} {
					if _, err := d.Questions(r.JSON, rows, &published.Options{Wording: w}); err != nil && refused("", err) != "" {
						return refused("", err)
					}
				}
			}
		}
	}
	return "read"
}
