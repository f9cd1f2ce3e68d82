package metric

import (
	"strconv"
	"strings"
	"unicode"
)

// IsSpace is Python's str.isspace: white space of Unicode and four separators.
func IsSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }

// Strip is Python's str.strip.
func Strip(s string) string { return strings.TrimFunc(s, IsSpace) }

// Fields is Python's str.split without arguments.
func Fields(s string) []string { return strings.FieldsFunc(s, IsSpace) }

// Round is Python's round: the nearest number of so many decimals, by the exact
// value of x.
func Round(x float64, decimals int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', decimals, 64), 64)
	if err != nil {
		return x // infinite or no number
	}
	return r
}

// Lower is Python's str.lower. It differs from the mapping of single runes for
// two letters: a dotted capital I becomes two code points, and a capital sigma at
// the end of a word has a form of its own.
func Lower(s string) string {
	if !strings.ContainsAny(s, "İΣ") {
		return strings.ToLower(s)
	}
	runes := []rune(s)
	var b strings.Builder
	for i, c := range runes {
		switch {
		case c == 'İ':
			b.WriteString("i\u0307")
		case c == 'Σ' && endsWord(runes, i):
			b.WriteRune('ς')
		default:
			b.WriteRune(unicode.ToLower(c))
		}
	}
	return b.String()
}

// endsWord reports whether the letter at i follows a letter with case and none
// follows it.
func endsWord(runes []rune, i int) bool {
	before := i - 1
	for before >= 0 && caseIgnorable(runes[before]) {
		before--
	}
	after := i + 1
	for after < len(runes) && caseIgnorable(runes[after]) {
		after++
	}
	return before >= 0 && cased(runes[before]) && (after == len(runes) || !cased(runes[after]))
}

func cased(c rune) bool {
	return unicode.In(c, unicode.Lu, unicode.Ll, unicode.Lt, unicode.Other_Lowercase, unicode.Other_Uppercase)
}

// caseIgnorable is what does not divide a word for the rule of the sigma.
func caseIgnorable(c rune) bool {
	return unicode.In(c, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:·״\u2018\u2019\u2024\u2027", c)
}
