package punkt

import (
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// englishFile is lines of a name and what is under it, tabs between them.
//
//go:embed english.txt.gz
var englishFile string

// model is what was learned of a language. Words are types: see [typeOf].
type model struct {
	abbrevs  map[string]bool      // without their full stops
	pairs    map[[2]string]bool   // words that a full stop between them does not part
	starters map[string]bool      // words that often begin sentences
	contexts map[string]caseFlags // in which case a word was seen where
}

// caseFlags are the cases in which a word was seen.
type caseFlags uint8

// The flags of the file: at the beginning of sentences, inside of them, and where it
// could not be told.
const (
	upperFirst caseFlags = 2 << iota
	upperInside
	upperUnknown
	lowerFirst
	lowerInside
	lowerUnknown

	seenUpper = upperFirst | upperInside | upperUnknown
	seenLower = lowerFirst | lowerInside | lowerUnknown
)

// english is what was learned of English.
var english = sync.OnceValue(func() *model {
	m, err := readModel(englishFile)
	if err != nil {
		panic("punkt: english.txt.gz: " + err.Error()) // the file is part of the program
	}
	return m
})

// readModel reads a model from its compressed text.
func readModel(file string) (*model, error) {
	z, err := gzip.NewReader(strings.NewReader(file))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	m := &model{abbrevs: map[string]bool{}, pairs: map[[2]string]bool{}, starters: map[string]bool{}, contexts: map[string]caseFlags{}}
	for line := range strings.Lines(string(text)) {
		name, list, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if err := m.add(name, strings.Split(list, "\t")); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// add adds a line. The name of a line of contexts is their flags.
func (m *model) add(name string, list []string) error {
	switch name {
	case "abbreviations":
		addTo(m.abbrevs, list)
	case "starters":
		addTo(m.starters, list)
	case "collocations":
		for _, pair := range list {
			a, b, _ := strings.Cut(pair, " ")
			m.pairs[[2]string{a, b}] = true
		}
	default:
		flags, err := strconv.ParseUint(name, 10, 7)
		if err != nil {
			return fmt.Errorf("a line of %q, want abbreviations, starters, collocations or flags", name)
		}
		for _, word := range list {
			m.contexts[word] = caseFlags(flags)
		}
	}
	return nil
}

// addTo adds words to a set.
func addTo(set map[string]bool, words []string) {
	for _, w := range words {
		set[w] = true
	}
}
