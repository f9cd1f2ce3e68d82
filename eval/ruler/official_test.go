package ruler

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// slowWords are what predictions are made of: cases, scripts, digits, words with
// capitals that have two small letters or one more code point.
var slowWords = strings.Fields("the a The of Paris paris PARIS 12 3,677 1234567 U.S.A. École ÉCOLE straße STRASSE ΟΔΟΣ οδος İstanbul ISTANBUL 東京 x-ray don't KDRXW kdrxw bdd640fb-0667 １２")

// phraseOf is up to most words.
func phraseOf(r *rand.Rand, most int) string {
	words := make([]string, r.IntN(most+1))
	for i := range words {
		words[i] = slowWords[r.IntN(len(slowWords))]
	}
	return strings.Join(words, " ")
}

// answerOf is a prediction that has something to do with its references.
func answerOf(r *rand.Rand, refs []string) string {
	gold := refs[r.IntN(len(refs))]
	text := []string{
		gold, strings.ToUpper(gold), strings.ToLower(gold), strings.Join(refs, ", "), strings.Join(refs[:len(refs)/2], " "), gold[:len(gold)/2],
		phraseOf(r, 30), "", "\x00\x1f \u00a0\u2003", "\n\n" + gold + "\n", phraseOf(r, 4) + "x" + gold + "y. ", gold + "\x00" + phraseOf(r, 3) + "\t\x1c",
	}[r.IntN(12)]
	blank := []string{" ", "\n"}[r.IntN(2)]
	return strings.ToValidUTF8(strings.Replace(text, blank, []string{" ", "  ", "\n", "\x07", "\x0b", "\x1f"}[r.IntN(6)], r.IntN(4)), "")
}

// slowLower is Python's lower: one code point becomes two, and a sigma at the end
// of a word another letter.
func slowLower(s string) string {
	c, out := []rune(s), ""
	for i, x := range c {
		switch {
		case x == 'İ':
			out += "i\u0307"
		case x == 'Σ' && i > 0 && unicode.IsLetter(c[i-1]) && (i+1 == len(c) || !unicode.IsLetter(c[i+1])):
			out += "ς"
		default:
			out += strings.ToLower(string(x))
		}
	}
	return out
}

// slowClean is what the official code does to a prediction before it is scored.
func slowClean(s string) string {
	space := func(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }
	out := ""
	for _, c := range strings.TrimFunc(s, space) {
		if c < ' ' {
			c = '\n'
		}
		out += string(c)
	}
	return strings.TrimFunc(out, space)
}

// slowScore is string_match_all, or string_match_part, of a file.
func slowScore(preds []string, refs [][]string, part bool) (score float64, nulls int) {
	for i, p := range preds {
		p = slowClean(p)
		if p == "" {
			nulls++
		}
		found := 0.0
		for _, ref := range refs[i] {
			low, in := slowLower(p), slowLower(ref)
			for at := 0; at+len(in) <= len(low); at++ {
				if low[at:at+len(in)] == in {
					found++
					break
				}
			}
		}
		if part {
			score += min(found, 1)
		} else {
			score += found / float64(len(refs[i]))
		}
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(score/float64(len(preds))*100, 'f', 2, 64), 64)
	return rounded, nulls
}

// TestScoresOf500Predictions scores files of made-up predictions and compares every
// digit with slow definitions that share no code with what they are held against.
// scripts/official-scores.py does the same with the official code.
func TestScoresOf500Predictions(t *testing.T) {
	seen := map[float64]bool{}
	for seed, name := range TaskNames() {
		task, _ := FindTask(name)
		r := rand.New(rand.NewPCG(uint64(seed), 500))
		var preds []string
		var refs [][]string
		for range 500 {
			var list []string
			for range 1 + r.IntN(5) {
				ref := strings.TrimSpace(phraseOf(r, 2) + " " + slowWords[r.IntN(len(slowWords))])
				list = append(list, strings.ReplaceAll(ref, " ", []string{" ", " ", "\n"}[r.IntN(3)])) // what a control character of an answer becomes
			}
			refs, preds = append(refs, list), append(preds, answerOf(r, list))
		}
		s, err := ScoreFile("p.jsonl", strings.NewReader(file(t, preds, refs)), task, Official)
		if err != nil {
			t.Fatal(err)
		}
		want, nulls := slowScore(preds, refs, strings.HasPrefix(name, "qa"))
		if s.Score != want || s.Nulls != nulls || len(s.Samples) != 500 {
			t.Errorf("%s: %v and %d nulls of %d, want %v and %d", name, s.Score, s.Nulls, len(s.Samples), want, nulls)
		}
		seen[want] = true
		if want < 20 || want > 90 || nulls < 20 {
			t.Errorf("%s: a score of %v with %d nulls tells little", name, want, nulls)
		}
	}
	if len(seen) < 10 {
		t.Errorf("%d different scores tell little", len(seen))
	}
}
