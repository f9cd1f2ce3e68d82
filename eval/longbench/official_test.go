package longbench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// slowWords are what predictions are made of.
var slowWords = strings.Fields("the a an The A. of and Paris paris 12 3,677 U.S.A. École ÉCOLE straße 東京 ok_name x-ray don't return self.cache[key] if (x == null) int a = b; // # note Paragraph 7 007 １２ 段落3 3.5 p.m. aé théa")

// slowClasses have names inside of others, which the official code stumbles over.
var slowClasses = []string{"Food", "Animal", "Disease and medicine", "Disease", "medicine", "Other location", "location", "City", "Country", "Number of something", "Other number"}

func phraseOf(r *rand.Rand, most int) string {
	words := make([]string, r.IntN(most+1))
	for i := range words {
		words[i] = slowWords[r.IntN(len(slowWords))]
	}
	return strings.Join(words, " ")
}

// referenceOf is a reference of a data set.
func referenceOf(r *rand.Rand, d Dataset) string {
	switch {
	case d.Measure == Classification:
		return slowClasses[r.IntN(len(slowClasses))]
	case d.Measure == Counting:
		return fmt.Sprint(1 + r.IntN(9))
	case d.Measure == Retrieval && d.Chinese:
		return fmt.Sprint("段落", 1+r.IntN(12))
	case d.Measure == Retrieval:
		return fmt.Sprint("Paragraph ", 1+r.IntN(12))
	}
	return phraseOf(r, 40) + slowWords[r.IntN(len(slowWords))]
}

// answerOf is a prediction that has something to do with its references.
func answerOf(r *rand.Rand, d Dataset, refs []string) string {
	gold := refs[r.IntN(len(refs))]
	text := []string{
		gold, strings.ToUpper(gold), strings.Join(refs, " "), gold[:len(gold)/2], phraseOf(r, 30), "", "\n\n" + gold + "\n" + phraseOf(r, 5),
		phraseOf(r, 4) + " " + gold + ". " + phraseOf(r, 9), "```\n" + gold + "\x00" + phraseOf(r, 3) + "\t", "1 2 " + gold + " 3",
	}[r.IntN(10)]
	if d.Measure == Classification && r.IntN(3) > 0 {
		text += " " + slowClasses[r.IntN(len(slowClasses))] + slowClasses[r.IntN(len(slowClasses))]
	}
	return strings.ToValidUTF8(strings.Replace(text, " ", []string{" ", "  ", "\n", ". ", "\x1d"}[r.IntN(5)], r.IntN(4)), "")
}

// slowFields is Python's split.
func slowFields(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f })
}

var (
	slowPunctuation = regexp.MustCompile("[!-/:-@\\[-`{-~]")
	slowWord        = regexp.MustCompile(`[\p{L}\p{N}_]+`)
	slowNumber      = regexp.MustCompile(`\p{Nd}+`)
	slowGold        = regexp.MustCompile(`(?:Paragraph |段落)(\p{Nd}+)`)
)

// slowF1 is qa_f1_score.
func slowF1(pred, gold string) float64 {
	words := func(s string) []string {
		s = slowPunctuation.ReplaceAllString(strings.ToLower(s), "")
		return slowFields(slowWord.ReplaceAllStringFunc(s, func(w string) string {
			if w == "a" || w == "an" || w == "the" {
				return " "
			}
			return w
		}))
	}
	p, g := words(pred), words(gold)
	used, same := make([]bool, len(g)), 0.0
	for _, w := range p {
		for j := range g {
			if !used[j] && g[j] == w {
				used[j] = true
				same++
				break
			}
		}
	}
	if same == 0 {
		return 0
	}
	precision, recall := same/float64(len(p)), same/float64(len(g))
	return 2 * precision * recall / (precision + recall)
}

// slowRouge is rouge_l of the package rouge, with its recursion.
func slowRouge(pred, gold string) float64 {
	sentences := func(s string) (all [][]string) {
		for _, piece := range strings.Split(s, ".") {
			if piece != "" {
				all = append(all, strings.Split(strings.Join(slowFields(piece), " "), " "))
			}
		}
		return all
	}
	ps, gs := sentences(pred), sentences(gold)
	if len(ps) == 0 || len(gs) == 0 {
		return 0
	}
	union := map[string]bool{}
	for _, x := range gs {
		for _, y := range ps {
			table := map[[2]int]int{}
			for i := range x {
				for j := range y {
					table[[2]int{i + 1, j + 1}] = max(table[[2]int{i, j + 1}], table[[2]int{i + 1, j}])
					if x[i] == y[j] {
						table[[2]int{i + 1, j + 1}] = table[[2]int{i, j}] + 1
					}
				}
			}
			var walk func(i, j int)
			walk = func(i, j int) {
				switch {
				case i == 0 || j == 0:
				case x[i-1] == y[j-1]:
					union[x[i-1]] = true
					walk(i-1, j-1)
				case table[[2]int{i - 1, j}] > table[[2]int{i, j - 1}]:
					walk(i-1, j)
				default:
					walk(i, j-1)
				}
			}
			walk(len(x), len(y))
		}
	}
	different := func(all [][]string) float64 {
		set := map[string]bool{}
		for _, s := range all {
			for _, w := range s {
				set[w] = true
			}
		}
		return float64(len(set))
	}
	p, r := float64(len(union))/different(ps), float64(len(union))/different(gs)
	return 2 * ((p * r) / (p + r + 1e-8))
}

// slowClassify is classification_score: a list that is walked while names are taken
// out of it.
func slowClassify(pred, gold string) float64 {
	var list []string
	for _, c := range slowClasses {
		if strings.Contains(pred, c) {
			list = append(list, c)
		}
	}
	for at := 0; at < len(list); at++ {
		if list[at] != gold && strings.Contains(gold, list[at]) {
			list = append(append([]string{}, list[:at]...), list[at+1:]...) // the next one is now where this one was
		}
	}
	for _, c := range list {
		if c == gold {
			return 1 / float64(len(list))
		}
	}
	return 0
}

// slowCount is count_score, and retrieval_score with the number in its reference.
func slowCount(pred, gold string) float64 {
	if m := slowGold.FindStringSubmatch(gold); m != nil {
		gold = m[1]
	}
	numbers := slowNumber.FindAllString(pred, -1)
	right := 0.0
	for _, n := range numbers {
		if n == gold {
			right++
		}
	}
	return right / math.Max(1, float64(len(numbers)))
}

// slowMatches is the characters in the matching blocks of difflib.
func slowMatches(a, b, whole []rune) int {
	besti, bestj, best := 0, 0, 0
	common := func(c rune) bool { // begins no match
		n := 0
		for _, x := range whole {
			if x == c {
				n++
			}
		}
		return len(whole) >= 200 && n > len(whole)/100+1
	}
	for i := range a {
		for j := range b {
			k := 0
			for i+k < len(a) && j+k < len(b) && a[i+k] == b[j+k] && !common(a[i+k]) {
				k++
			}
			if k > best {
				besti, bestj, best = i, j, k
			}
		}
	}
	for besti > 0 && bestj > 0 && a[besti-1] == b[bestj-1] {
		besti, bestj, best = besti-1, bestj-1, best+1
	}
	for besti+best < len(a) && bestj+best < len(b) && a[besti+best] == b[bestj+best] {
		best++
	}
	if best == 0 {
		return 0
	}
	return best + slowMatches(a[:besti], b[:bestj], whole) + slowMatches(a[besti+best:], b[bestj+best:], whole)
}

// slowCode is code_sim_score over fuzzywuzzy without python-Levenshtein.
func slowCode(pred, gold string) float64 {
	for strings.HasPrefix(pred, "\n") {
		pred = pred[1:]
	}
	line := ""
	for _, l := range strings.Split(pred, "\n") {
		if !strings.Contains(l, "`") && !strings.Contains(l, "#") && !strings.Contains(l, "//") {
			line = l
			break
		}
	}
	if line == "" || gold == "" {
		return 0
	}
	a, b := []rune(line), []rune(gold)
	return math.RoundToEven(100*(2*float64(slowMatches(a, b, b))/float64(len(a)+len(b)))) / 100
}

// slowScore is the score of a file.
func slowScore(d Dataset, preds []string, refs [][]string) float64 {
	metric := map[Measure]func(pred, gold string) float64{
		F1: slowF1, Rouge: slowRouge, Classification: slowClassify, Counting: slowCount, Retrieval: slowCount, Code: slowCode,
	}[d.Measure]
	total := 0.0
	for i, pred := range preds {
		if d.FirstLine {
			for strings.HasPrefix(pred, "\n") {
				pred = pred[1:]
			}
			pred = strings.Split(pred, "\n")[0]
		}
		best := 0.0
		for _, gold := range refs[i] {
			best = math.Max(best, metric(pred, gold))
		}
		total += best
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(100*total/float64(len(preds)), 'f', 2, 64), 64)
	return rounded
}

// TestScoresOf500Predictions scores files of made-up predictions and compares every
// digit with slow definitions that share no code with what they are held against.
// scripts/official-scores.py does the same with the official code.
func TestScoresOf500Predictions(t *testing.T) {
	for seed, d := range Datasets() {
		if !d.Scorable(Options{}) {
			continue
		}
		r := rand.New(rand.NewPCG(uint64(seed), 500))
		var preds []string
		var refs [][]string
		for range 500 {
			var list []string
			for range 1 + r.IntN(3) {
				list = append(list, referenceOf(r, d))
			}
			refs, preds = append(refs, list), append(preds, answerOf(r, d, list))
		}
		s, err := ScoreFile("p.jsonl", strings.NewReader(file(t, preds, refs, slowClasses, nil)), d, Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := slowScore(d, preds, refs)
		if s.Score != want || len(s.Samples) != 500 {
			t.Errorf("%s: %v of %d, want %v", d.Name, s.Score, len(s.Samples), want)
		}
		if want < 15 || want > 85 {
			t.Errorf("%s: a score of %v tells little", d.Name, want)
		}
	}
}
