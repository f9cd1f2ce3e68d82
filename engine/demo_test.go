package engine_test

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/gollm/gollm/engine"
	"github.com/gollm/gollm/tokenizer"
)

// demoPrompt is a row of testdata/demo-eval.jsonl.gz, whose README tells more.
type demoPrompt struct {
	Index  int     `json:"index"`
	Task   string  `json:"task"`
	Input  string  `json:"input"`
	Length int     `json:"length"`
	MaxNew int     `json:"max_new"`
	Answer *string `json:"peer_answer"` // llama.cpp's, where it was asked
}

// answered is the prompts that llama.cpp answered.
func answered(t *testing.T) []demoPrompt {
	t.Helper()
	f, err := os.Open("../testdata/demo-eval.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var rows []demoPrompt
	for d := json.NewDecoder(z); ; {
		var row demoPrompt
		if err := d.Decode(&row); errors.Is(err, io.EOF) {
			return rows
		} else if err != nil {
			t.Fatal(err)
		}
		if row.Answer != nil {
			rows = append(rows, row)
		}
	}
}

// TestDemoAnswersAreLlamaCpps asks the demo model what llama.cpp was asked:
// prompts of 1,000 to 8,000 tokens, whose answers take the whole text to find.
func TestDemoAnswersAreLlamaCpps(t *testing.T) {
	rows := answered(t)
	if len(rows) != 37 {
		t.Fatalf("%d prompts with answers, want 37", len(rows))
	}
	e := open(t, "../testdata/demo.gguf")
	r := runner(t, e, engine.Config{Context: 8192 + 64})
	for _, row := range rows {
		t.Run(fmt.Sprintf("%s/%d", row.Task, row.Index), func(t *testing.T) {
			ids := e.Tokenizer.Encode(row.Input, tokenizer.EncodeOptions{AddSpecial: true})
			if len(ids) != row.Length {
				t.Fatalf("%d tokens, want %d", len(ids), row.Length)
			}
			res, err := sequence(t, r).Generate(context.Background(), ids, engine.Options{MaxTokens: row.MaxNew})
			if err != nil {
				t.Fatal(err)
			}
			got, _, _ := strings.Cut(res.Text, ".")
			got, _, _ = strings.Cut(got, "\n")
			if got != *row.Answer {
				t.Errorf("answer %q, want %q", got, *row.Answer)
			}
		})
	}
}
