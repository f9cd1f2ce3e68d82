package metric

import (
	"strings"
	"unicode"
)

// Punctuation is Python's string.punctuation.
const Punctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"

// Normalize lowers a text, deletes ASCII punctuation, then the articles, and
// leaves single blanks.
func Normalize(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < 0x80 && strings.ContainsRune(Punctuation, c) {
			return -1
		}
		return c
	}, Lower(s))
	return strings.Join(Fields(dropArticles(s)), " ")
}

// chinesePunctuation is what of the scripts of East Asia is deleted, besides the
// punctuation of ASCII.
var chinesePunctuation = &unicode.RangeTable{R16: []unicode.Range16{
	{0x2013, 0x2014, 1}, {0x2018, 0x2019, 1}, {0x201b, 0x201f, 1}, {0x2026, 0x2027, 1}, {0x3001, 0x3003, 1}, {0x300b, 0x3011, 1},
	{0x3014, 0x301f, 1}, {0x3030, 0x3030, 1}, {0x303e, 0x303f, 1}, {0xfe4f, 0xfe4f, 1}, {0xff01, 0xff0d, 1}, {0xff0f, 0xff0f, 1},
	{0xff1a, 0xff20, 1}, {0xff3b, 0xff40, 1}, {0xff5b, 0xff64, 1},
}}

// NormalizeChinese lowers a text and deletes punctuation of ASCII and of Chinese, and white
// space.
func NormalizeChinese(s string) string {
	return strings.Map(func(c rune) rune {
		if IsSpace(c) || unicode.Is(chinesePunctuation, c) || c < 0x80 && strings.ContainsRune(Punctuation, c) {
			return -1
		}
		return c
	}, Lower(s))
}

// dropArticles makes a blank of each word that is an article. A word is a run of
// letters, numbers and underscores of any script.
func dropArticles(s string) string {
	var b strings.Builder
	start := -1
	flush := func(end int) {
		if start < 0 {
			return
		}
		switch word := s[start:end]; word {
		case "a", "an", "the":
			b.WriteByte(' ')
		default:
			b.WriteString(word)
		}
		start = -1
	}
	for i, c := range s {
		if wordRune(c) {
			if start < 0 {
				start = i
			}
			continue
		}
		flush(i)
		b.WriteRune(c)
	}
	flush(len(s))
	return b.String()
}

// wordRune is \w of Python's re.
func wordRune(c rune) bool { return unicode.IsLetter(c) || unicode.IsNumber(c) || c == '_' }

// F1 compares the normalized words of an answer and a reference as multisets. Two
// empty texts have nothing in common and score 0.
func F1(answer, reference string) float64 {
	return F1Words(strings.Fields(Normalize(answer)), strings.Fields(Normalize(reference)))
}

// F1Words is [F1] of words that were normalized before.
func F1Words(a, r []string) float64 {
	count := map[string]int{}
	for _, w := range a {
		count[w]++
	}
	common := 0
	for _, w := range r {
		if count[w] > 0 {
			count[w]--
			common++
		}
	}
	if common == 0 {
		return 0
	}
	precision, recall := float64(common)/float64(len(a)), float64(common)/float64(len(r))
	return 2 * precision * recall / (precision + recall)
}

// Classify looks for the names of classes in an answer. The official code takes
// names that are part of the right one out of the list that it is walking, so
// that the name after one that goes is not looked at; that is kept.
func Classify(answer, reference string, classes []string) float64 {
	var found []string
	for _, c := range classes {
		if strings.Contains(answer, c) {
			found = append(found, c)
		}
	}
	for i := 0; i < len(found); i++ {
		if name := found[i]; name != reference && strings.Contains(reference, name) {
			found = removeFirst(found, name)
		}
	}
	for _, c := range found {
		if c == reference {
			return 1 / float64(len(found))
		}
	}
	return 0
}

// removeFirst takes the first name out of a list.
func removeFirst(list []string, name string) []string {
	for i, s := range list {
		if s == name {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// Count is the share of an answer's numbers that are the reference, as texts.
func Count(answer, reference string) float64 {
	numbers := digitRuns(answer)
	right := 0
	for _, n := range numbers {
		if n == reference {
			right++
		}
	}
	if right == 0 {
		return 0
	}
	return float64(right) / float64(len(numbers))
}

// Retrieve is [Count] of the number in a reference such as "Paragraph 12", or
// "段落12" in Chinese. A reference without a number is an error of the data and
// scores 0.
func Retrieve(answer, reference string) float64 {
	for _, label := range []string{"Paragraph ", "段落"} {
		if _, after, ok := strings.Cut(reference, label); ok {
			if numbers := digitRuns(after); len(numbers) > 0 && strings.HasPrefix(after, numbers[0]) {
				return Count(answer, numbers[0])
			}
		}
	}
	return 0
}

// digitRuns is the runs of decimal digits of any script.
func digitRuns(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return !unicode.IsDigit(c) })
}
