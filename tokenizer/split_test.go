package tokenizer

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dlclark/regexp2"
)

// patterns are the definitions of the pre-tokenizers. Only ASCII letters have two
// cases in them, as in llama.cpp.
var patterns = map[string]string{
	"llama-bpe": `'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"qwen2":     `'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
	"gpt-2":     `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`,
	"tekken": `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|` +
		`\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`,
}

// defaultPatterns are applied one after the other, each to the pieces of the one
// before; what a pattern does not match stays as it is.
var defaultPatterns = []string{`[\p{P}\$\+<=>\^~\|]+`, patterns["gpt-2"], `\p{N}+`, `[0-9][0-9][0-9]`}

// splitBy returns the matches of a pattern and what is between them.
func splitBy(t *testing.T, re *regexp2.Regexp, text string) (words []string) {
	t.Helper()
	runes := []rune(text)
	at := 0
	m, err := re.FindRunesMatch(runes)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		if m.Index > at {
			words = append(words, string(runes[at:m.Index]))
		}
		words = append(words, m.String())
		at = m.Index + m.Length
	}
	if err != nil {
		t.Fatal(err)
	}
	if at < len(runes) {
		words = append(words, string(runes[at:]))
	}
	return words
}

// hardText makes a text of characters at which the patterns part.
func hardText(rng *rand.Rand) string {
	alphabet := []rune("aAbzZsStTrReEvVlLdDmM''' \t\n\r\n  012٣²½Ⅷ.,!?/-_$+<=>^~|`éÉßǅʰªः\u0301\u0308中あ한ا\u00a0\u3000\u2028\u0085\u200b\u200d😀\x00\x7f\ufffd\U0010ffff")
	var b strings.Builder
	for range rng.IntN(24) {
		if rng.IntN(12) == 0 {
			b.WriteRune(rune(rng.IntN(0x2000)))
		} else {
			b.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
	}
	return b.String()
}

// TestSplit checks the splitters against the patterns that define them.
func TestSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var defaults []*regexp2.Regexp
	for _, p := range defaultPatterns {
		defaults = append(defaults, regexp2.MustCompile(p, regexp2.None))
	}
	compiled := map[string]*regexp2.Regexp{}
	for name, p := range patterns {
		compiled[name] = regexp2.MustCompile(p, regexp2.None)
	}
	for range 4000 {
		text := hardText(rng)
		for name, re := range compiled {
			checkSplit(t, name, text, splitBy(t, re, text))
		}
		pieces := []string{text}
		for _, re := range defaults {
			var next []string
			for _, p := range pieces {
				next = append(next, splitBy(t, re, p)...)
			}
			pieces = next
		}
		checkSplit(t, "default", text, pieces)
		if t.Failed() {
			return
		}
	}
}

func checkSplit(t *testing.T, name, text string, want []string) {
	t.Helper()
	var got []string
	preTokenizers[name].split(text, func(word string) { got = append(got, word) })
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q: got %q, want %q", name, text, got, want)
	}
}

// TestSplitInvalid checks that stray bytes are in exactly one word each.
func TestSplitInvalid(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		text := make([]byte, rng.IntN(20))
		for i := range text {
			text[i] = "ab 1\n'.\x80\xbf\xc3\xe2\xf0\xff"[rng.IntN(13)]
		}
		for name, p := range preTokenizers {
			var got strings.Builder
			p.split(string(text), func(word string) {
				if word == "" {
					t.Errorf("%s: %q has an empty word", name, text)
				}
				got.WriteString(word)
			})
			if got.String() != string(text) {
				t.Errorf("%s: %q became %q", name, text, got.String())
			}
		}
	}
}

// TestNewLetters checks letters that are newer than the tables of the standard
// library: three of them are one word.
func TestNewLetters(t *testing.T) {
	checkSplit(t, "llama-bpe", "\U0002EBF0\U0002EE5Da 1", []string{"\U0002EBF0\U0002EE5Da", " ", "1"})
	checkSplit(t, "llama-bpe", "\U0002EBEF\U0002EBEFa", []string{"\U0002EBEF\U0002EBEF", "a"})
}
