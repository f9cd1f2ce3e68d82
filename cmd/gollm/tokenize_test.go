package main

import (
	"os"
	"strings"
	"testing"

	"github.com/gollm/gollm/internal/clitest"
	"github.com/gollm/gollm/internal/golden"
	"github.com/gollm/gollm/model/modeltest"
)

func TestTokenizeGolden(t *testing.T) {
	model := clitest.Stories(t)
	golden.Compare(t, "tokenize-pieces.golden", ok(t, "", "tokenize", "-m", model, "--pieces", "-p", "Once upon a time</s>é\n"))
	if got, want := ok(t, "", "tokenize", "-m", model, "-p", "Once upon a time"), "[1,403,407,261,378]\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// What tokenize prints, tokenize --decode turns back, byte for byte.
func TestTokenizeRoundTrip(t *testing.T) {
	vocab := clitest.Need(t, "../../../shared/data/tokenizer/llama-bpe.gguf")
	texts := []string{"", " ", "Hello, world", "\n\n a\tb  c\n", "naïve 日本 👩‍👩‍👧", "a\xff\xc3b", `quote " and \n`}
	for model, texts := range map[string][]string{clitest.Stories(t): texts, vocab: {strings.Join(texts, "|")}} { // the large one takes its time to load
		for _, text := range texts {
			ids := ok(t, text, "tokenize", "-m", model)
			if got := ok(t, ids, "tokenize", "-m", model, "--decode"); got != text {
				t.Errorf("%s: %q came back as %q by way of %s", model, text, got, ids)
			}
		}
	}
	text := "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
	if got := ok(t, ok(t, text, "tokenize", "-m", vocab), "tokenize", "-m", vocab, "--decode"); got != text {
		t.Errorf("%q came back as %q", text, got)
	}
	if got := ok(t, ok(t, text, "tokenize", "-m", vocab), "tokenize", "-m", vocab, "--decode", "--no-special"); got != "user\n\nHi" {
		t.Errorf("--no-special: %q", got)
	}
}

func TestTokenizeFlags(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"-p", "<s></s>"}, "[1,2]\n"},
		{[]string{"-p", "</s>", "--no-bos"}, "[2]\n"},
		{[]string{"-p", "", "--no-bos"}, "[]\n"},
		{[]string{"-p", ""}, "[1]\n"},
		{[]string{"--decode", "-p", "1 2"}, "</s>"},
		{[]string{"--decode", "--no-bos", "-p", "[1,2]"}, "<s></s>"},
		{[]string{"--decode", "-p", "100, 101\n102"}, "abc"},
		{[]string{"--decode", "-p", ""}, ""},
	} {
		if got := ok(t, "", append([]string{"tokenize", "-m", model}, tt.args...)...); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.args, got, tt.want)
		}
	}
}

// A file's bytes are the text: no newline is trimmed.
func TestTokenizeFileIsExact(t *testing.T) {
	model := clitest.RandomModel(t, modeltest.Shape{})
	path := clitest.WriteFile(t, "text", "a\n\r\n")
	if got := ok(t, "", "tokenize", "-m", model, "--no-bos", "-f", path); !strings.HasSuffix(got, ",13,16,13]\n") {
		t.Errorf("%s, want the line ends", got)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if one, two := ok(t, "", "tokenize", "-m", model, "-f", path), ok(t, string(b), "tokenize", "-m", model, "-f", "-"); one != two {
		t.Errorf("-f FILE gives %s, -f - %s", one, two)
	}
}
