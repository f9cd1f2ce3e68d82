package published

import (
	"fmt"
	"math/big"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"

	"github.com/gollm/gollm/eval/metric"
)

// scorer is the score of an answer, from 0 to 1.
type scorer func(answer string, gold label) (float64, error)

// truth is 1 for true.
func truth(right bool) float64 {
	if right {
		return 1
	}
	return 0
}

// blanks makes a blank of each of some characters or texts.
func blanks(text string, of ...string) string {
	for _, s := range of {
		text = strings.ReplaceAll(text, s, " ")
	}
	return text
}

// single leaves one blank where there are several.
func single(text string) string {
	for strings.Contains(text, "  ") {
		text = strings.ReplaceAll(text, "  ", " ")
	}
	return text
}

// punctuation is what stands between the words of an answer.
var punctuation = []string{"\n", ":", `"`, "'", ".", ",", "?", "!", "{", "}"}

// inWords looks for the right answer among the words of an answer.
func inWords(answer string, gold label) (float64, error) {
	gold, err := gold.first()
	if err != nil {
		return 0, err
	}
	for _, w := range metric.Fields(blanks(answer, punctuation...)) {
		if gold.is(w) {
			return 1, nil
		}
	}
	return 0, nil
}

// contained looks for the right answer in an answer.
func contained(answer string, gold label) (float64, error) {
	gold, err := gold.first()
	if err != nil {
		return 0, err
	}
	text, err := gold.text()
	return truth(err == nil && strings.Contains(answer, text)), err
}

// firstNumber compares the first run of digits with the right answer, as texts.
func firstNumber(answer string, gold label) (float64, error) {
	gold, err := gold.first()
	if err != nil {
		return 0, err
	}
	runs := digits(answer)
	return truth(len(runs) > 0 && gold.is(runs[0]) || len(runs) == 0 && gold.is("")), nil
}

// digits is the runs of digits of ASCII.
func digits(text string) []string {
	return strings.FieldsFunc(text, func(c rune) bool { return c < '0' || c > '9' })
}

// lastInteger compares the last word with the right answer, as whole numbers.
func lastInteger(answer string, gold label) (float64, error) {
	gold, err := gold.first()
	if err != nil {
		return 0, err
	}
	words := metric.Fields(blanks(metric.Strip(answer), "\n", ".", "`", "'", `"`, ":"))
	if len(words) == 0 {
		return 0, nil
	}
	n, ok := integer(words[len(words)-1])
	want, _, known := gold.number()
	return truth(ok && known && want.Cmp(new(big.Rat).SetInt(n)) == 0), nil
}

// integer is Python's int of a word: digits of any script, with single underscores between
// them and a sign before them.
func integer(word string) (*big.Int, bool) {
	sign := ""
	if word != "" && (word[0] == '+' || word[0] == '-') {
		sign, word = word[:1], word[1:]
	}
	if word == "" || len(word) > maxDigits || strings.HasPrefix(word, "_") || strings.HasSuffix(word, "_") || strings.Contains(word, "__") {
		return nil, false
	}
	plain, ok := ascii(strings.ReplaceAll(word, "_", ""))
	if !ok {
		return nil, false
	}
	return new(big.Int).SetString(sign+plain, 10)
}

// ascii is a run of digits in those of ASCII; false where it has anything else. The digits
// of a script stand together in Unicode, in blocks of ten.
func ascii(text string) (string, bool) {
	b := make([]byte, 0, len(text))
	for _, c := range text {
		v := digitValue(c)
		if v < 0 {
			return "", false
		}
		b = append(b, '0'+byte(v))
	}
	return string(b), true
}

// digitValue is the value of a decimal digit, -1 of what is none. The digits of a script
// follow each other from 0 to 9.
func digitValue(c rune) int {
	if c >= '0' && c <= '9' {
		return int(c - '0')
	}
	if !unicode.IsDigit(c) {
		return -1
	}
	for _, r := range unicode.Nd.R16 {
		if lo, hi := rune(r.Lo), rune(r.Hi); c >= lo && c <= hi {
			return int(c-lo) % 10
		}
	}
	for _, r := range unicode.Nd.R32 {
		if lo, hi := rune(r.Lo), rune(r.Hi); c >= lo && c <= hi {
			return int(c-lo) % 10
		}
	}
	return -1
}

// firstDecimal is the first number of an answer, its part before the point and that behind
// it, in digits of ASCII.
func firstDecimal(answer string) (before, after string, ok bool) {
	runes := []rune(answer)
	run := func(i int) int {
		for i < len(runes) && unicode.IsDigit(runes[i]) {
			i++
		}
		return i
	}
	for i := range runes {
		end := run(i)
		if end == i {
			continue
		}
		before, ok = ascii(string(runes[i:end]))
		if end < len(runes) && runes[end] == '.' {
			if more := run(end + 1); more > end+1 {
				after, _ = ascii(string(runes[end+1 : more]))
			}
		}
		return before, after, ok
	}
	return "", "", false
}

// number compares the first number of an answer with the right answer. truncates says what a
// fraction is worth where a whole number is asked for: SCBench cuts it off, InfiniteBench's
// code stops with an error, which is 0 here.
func number(truncates bool) scorer {
	return func(answer string, gold label) (float64, error) {
		gold, err := gold.first()
		if err != nil {
			return 0, err
		}
		want, whole, ok := gold.number()
		if !ok {
			return 0, fmt.Errorf("the right answer is %v, want a number", gold.value)
		}
		before, after, found := firstDecimal(answer)
		if !found || len(before)+len(after) > maxDigits || whole && after != "" && !truncates {
			return 0, nil
		}
		text := before
		if !whole || truncates {
			text = before + "." + after
		}
		return truth(sameNumber(text, want, whole)), nil
	}
}

// sameNumber compares the text of a number with a right answer as Python does, whose
// numbers with a point are float64; of whole ones the fraction is cut off.
func sameNumber(text string, want *big.Rat, whole bool) bool {
	got, ok := new(big.Rat).SetString(text)
	if !ok {
		return false
	}
	if strings.Contains(text, ".") {
		x, _ := got.Float64()
		if got = new(big.Rat).SetFloat64(x); got == nil {
			return false // infinite
		}
	}
	if !whole {
		y, _ := want.Float64()
		if want = new(big.Rat).SetFloat64(y); want == nil {
			return false
		}
		return got.Cmp(want) == 0
	}
	return new(big.Rat).SetInt(new(big.Int).Quo(got.Num(), got.Denom())).Cmp(want) == 0
}

// letter is the multiple choice of code_debug: gold is the name of a function and its
// letter.
func letter(answer string, gold label) (float64, error) {
	names, err := gold.texts()
	if err != nil || len(names) < 2 {
		return 0, fmt.Errorf("the right answer is %v, want a name and a letter", gold.value)
	}
	name, choice := names[0], names[1]
	answer = metric.Strip(answer)
	if head := beginning(answer, 2); head == choice+"." || head == choice+":" {
		return 1, nil
	}
	answer = single(blanks(answer, "\n", "`", "'", `"`, "-", "*", "Option", "option"))
	rest, found := afterAny(answer, "answer is:", "is:", "answer:", "correct option is:")
	return truth(found && rest != "" && (strings.HasPrefix(rest[1:], choice) || strings.HasPrefix(rest[1:], name))), nil
}

// beginning is the first n characters.
func beginning(text string, n int) string {
	for i := range text {
		if n == 0 {
			return text[:i]
		}
		n--
	}
	return text
}

// afterAny is what follows the first of some texts that an answer has, with a mark in the
// place of the character that follows it at once, which the official code passes over; ""
// where none follows.
func afterAny(answer string, texts ...string) (rest string, found bool) {
	for _, t := range texts {
		if _, after, ok := strings.Cut(answer, t); ok {
			if after == "" {
				return "", true
			}
			return "*" + after[len(beginning(after, 1)):], true
		}
	}
	return "", false
}

// choice is the multiple choice of books.
func choice(answer string, gold label) (float64, error) {
	answer = metric.Strip(answer)
	switch {
	case answer == "":
		return 0, nil
	case strings.ContainsRune("ABCD", rune(answer[0])):
		return truth(gold.has(answer[:1])), nil
	case gold.has(answer):
		return 1, nil
	}
	answer = single(blanks(answer, "\n", `"`, "'", ".", ",", "?", "!", "{", "}"))
	if rest, found := afterAny(answer, "answer is:", "answer:", "answer is", "option is"); found {
		names, err := gold.texts()
		for _, n := range names {
			if rest != "" && strings.HasPrefix(rest[1:], n) {
				return 1, err
			}
		}
		return 0, err
	}
	for _, w := range metric.Fields(answer) {
		if strings.Contains("ABCD", w) {
			return truth(gold.has(w)), nil
		}
	}
	return 0, nil
}

// upper is Python's str.upper.
func upper(text string) string { return cases.Upper(language.Und).String(text) }

// speaker looks for the first right answer among the words of an answer in capitals.
func speaker(answer string, gold label) (float64, error) {
	names, err := gold.texts()
	if err != nil || len(names) == 0 {
		return 0, fmt.Errorf("the right answer is %v, want a text or a list of texts", gold.value)
	}
	for _, w := range metric.Fields(blanks(metric.Strip(answer), punctuation...)) {
		if upper(w) == names[0] {
			return 1, nil
		}
	}
	return 0, nil
}

// anyUpper looks for any right answer in an answer, both in capitals.
func anyUpper(answer string, gold label) (float64, error) {
	names, err := gold.texts()
	if err != nil {
		return 0, err
	}
	answer = upper(metric.Strip(answer))
	for _, n := range names {
		if strings.Contains(answer, upper(n)) {
			return 1, nil
		}
	}
	return 0, nil
}

// best is the best of a measure over the right answers.
func best(answer string, gold label, measure func(answer, gold string) (float64, error)) (float64, error) {
	golds, err := gold.texts()
	if err != nil {
		return 0, err
	}
	x := 0.0
	for _, g := range golds {
		y, err := measure(answer, g)
		if err != nil {
			return 0, err
		}
		x = max(x, y)
	}
	return x, nil
}

// wordF1 compares words.
func wordF1(answer string, gold label) (float64, error) {
	return best(answer, gold, func(a, g string) (float64, error) { return metric.F1(a, g), nil })
}

// runeF1 compares characters.
func runeF1(answer string, gold label) (float64, error) {
	runes := func(s string) []string { return strings.Split(metric.NormalizeChinese(s), "") }
	return best(answer, gold, func(a, g string) (float64, error) { return metric.F1Words(runes(a), runes(g)), nil })
}

// summary is rougeLsum, of several references the best.
func summary(answer string, gold label) (float64, error) {
	if text, ok := gold.value.(string); ok {
		return metric.RougeLSum(answer, text)
	}
	return best(answer, gold, metric.RougeLSum)
}

// sequence is the part of a list of numbers that an answer has right from its beginning on.
func sequence(answer string, gold label) (float64, error) {
	want, err := gold.numbers()
	if err != nil {
		return 0, err
	}
	right := 0
	for i, n := range digits(answer) {
		if i == len(want) || want[i] != canonical(n) {
			break
		}
		right++
	}
	return float64(right) / float64(len(want)), nil
}

// canonical is a run of digits without zeros in front.
func canonical(n string) string {
	if n = strings.TrimLeft(n, "0"); n == "" {
		return "0"
	}
	return n
}

// hundredths is the share of the right answers in an answer, rounded to hundredths as the
// official code rounds each.
func hundredths(answer string, gold label) (float64, error) {
	golds, err := gold.texts()
	if err != nil || len(golds) == 0 {
		return 0, fmt.Errorf("the right answer is %v, want a text or a list of texts", gold.value)
	}
	return metric.Round(metric.ContainsAll(answer, golds), 2), nil
}

// cleaned is a score of RULER as KVPress takes it: control characters are taken out, which
// RULER makes line ends of.
func cleaned(score func(answer string, references []string) float64) scorer {
	return func(answer string, gold label) (float64, error) {
		golds, err := gold.texts()
		if err != nil || len(golds) == 0 {
			return 0, fmt.Errorf("the right answer is %v, want a list of texts", gold.value)
		}
		answer = strings.Map(func(c rune) rune {
			if c < 0x20 {
				return -1
			}
			return c
		}, metric.Strip(answer))
		return score(metric.Strip(answer), golds), nil
	}
}

// prefixed is the similarity of MRCR: 0 for what does not begin with the text that the
// question asks for, else the ratio of what follows it.
func prefixed(a *Answer, gold label) (float64, error) {
	want, err := gold.text()
	if err != nil {
		return 0, err
	}
	if a.Marker == nil {
		return 0, fmt.Errorf("no field random_string_to_prepend, what the answer has to begin with")
	}
	rest, ok := strings.CutPrefix(a.Prediction, *a.Marker)
	if !ok {
		return 0, nil
	}
	return metric.Ratio(rest, strings.TrimPrefix(want, *a.Marker))
}
