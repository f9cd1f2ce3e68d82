package metric

import "strings"

// Clean is what RULER does to an answer before it looks for references: white
// space around it goes, and every control character becomes a line end.
func Clean(answer string) string {
	control := func(c rune) rune {
		if c < 0x20 {
			return '\n'
		}
		return c
	}
	return Strip(strings.Map(control, Strip(answer)))
}

// ContainsAll is the share of references that an answer contains, without regard
// to case or to where words end.
func ContainsAll(answer string, references []string) float64 {
	answer = Lower(answer)
	found := 0.0
	for _, r := range references {
		if strings.Contains(answer, Lower(r)) {
			found++
		}
	}
	return found / float64(len(references))
}

// ContainsAny is 1 where an answer contains a reference, else 0.
func ContainsAny(answer string, references []string) float64 {
	answer = Lower(answer)
	for _, r := range references {
		if strings.Contains(answer, Lower(r)) {
			return 1
		}
	}
	return 0
}

// FirstIntegers is how SANTA grades several values: of the first four different
// whole numbers of an answer, those that are references, over the references.
func FirstIntegers(answer string, references []string) float64 {
	seen := map[string]bool{}
	var numbers []string
	for _, n := range digitRuns(answer) {
		if !seen[n] && len(numbers) < 4 {
			numbers, seen[n] = append(numbers, n), true
		}
	}
	found := 0.0
	for _, r := range references {
		for _, n := range numbers {
			if n == r {
				found++
				break
			}
		}
	}
	return found / float64(len(references))
}
