package ruler

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/gollm/gollm/eval/jsonl"
)

// WordsVersion is whose word lists keys and words are drawn from. Those of 3.0.1 give
// other rows in the eight tasks that draw words.
const WordsVersion = "wonderwords 2.2.0"

//go:embed words/adjectivelist.txt
var adjectiveText string

//go:embed words/nounlist.txt
var nounText string

//go:embed words/verblist.txt
var verbText string

// WordList is a copy of the different single words there are to ask for, sorted; a list of
// common words that needs more takes them from a user's file.
func WordList() []string { return slices.Clone(singles()) }

// singles is the sorted single words: nouns, adjectives and verbs.
var singles = sync.OnceValue(func() []string {
	all := slices.Concat(lines(nounText), lines(adjectiveText), lines(verbText))
	slices.Sort(all)
	return slices.Compact(all)
})

// lines is the lines of a word list.
func lines(text string) []string {
	list := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i, w := range list {
		list[i] = strings.TrimRight(w, " \r\t")
	}
	return list
}

// keyTable is the sorted list of every adjective-noun, six million of them,
// without making them: all keys of one adjective stand together, unless the
// adjective with its hyphen begins another one (blue, blue-eyed).
type keyTable struct {
	nouns  []string
	groups []keyGroup
	first  []int // the number of the first key of each group
	total  int
}

// keyGroup is the keys of one adjective, or those of several sorted together.
type keyGroup struct {
	adjective string
	mixed     []string // all keys, where there is more than one adjective
}

// keys is the table of the embedded lists.
var keys = sync.OnceValue(func() *keyTable { return newKeyTable(lines(adjectiveText), lines(nounText)) })

func newKeyTable(adjectives, nouns []string) *keyTable {
	t := &keyTable{nouns: distinct(nouns)}
	heads := distinct(adjectives)
	slices.SortFunc(heads, func(a, b string) int { return strings.Compare(a+"-", b+"-") })
	for i := 0; i < len(heads); {
		end := i + 1
		for end < len(heads) && strings.HasPrefix(heads[end], heads[i]+"-") {
			end++
		}
		t.add(heads[i:end])
		i = end
	}
	return t
}

// add appends the keys of some adjectives as a group.
func (t *keyTable) add(adjectives []string) {
	g, size := keyGroup{adjective: adjectives[0]}, len(t.nouns)
	if len(adjectives) > 1 {
		for _, a := range adjectives {
			for _, n := range t.nouns {
				g.mixed = append(g.mixed, a+"-"+n)
			}
		}
		g.mixed = distinct(g.mixed)
		size = len(g.mixed)
	}
	t.groups, t.first = append(t.groups, g), append(t.first, t.total)
	t.total += size
}

// at is key number i.
func (t *keyTable) at(i int) string {
	g := sort.SearchInts(t.first, i+1) - 1
	i -= t.first[g]
	if mixed := t.groups[g].mixed; mixed != nil {
		return mixed[i]
	}
	return t.groups[g].adjective + "-" + t.nouns[i]
}

// distinct is a sorted copy without repeats.
func distinct(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}

// ParseWords reads more words: the values of a JSON object, as RULER's
// english_words.json has them, a JSON list of words, or lines.
func ParseWords(b []byte) ([]string, error) {
	var words []string
	switch first := strings.TrimSpace(string(b[:min(len(b), 64)])); {
	case strings.HasPrefix(first, "version https://git-lfs"):
		return nil, errors.New("ruler: this is a pointer of Git LFS, not the file; run git lfs pull in the checkout")
	case strings.HasPrefix(first, "{"):
		return wordValues(b)
	case strings.HasPrefix(first, "["):
		if err := json.Unmarshal(b, &words); err != nil {
			return nil, fmt.Errorf("ruler: not a JSON list of words: %w", jsonl.Plain(err))
		}
	default:
		words = strings.Fields(string(b))
	}
	if len(words) == 0 {
		return nil, errors.New("ruler: no words in the file")
	}
	return words, nil
}

// wordValues is the values of a JSON object, in the order of the file.
func wordValues(b []byte) ([]string, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	var words []string
	for i := 0; ; i++ {
		token, err := d.Token()
		if err != nil {
			if errors.Is(err, io.EOF) && len(words) > 0 {
				return words, nil
			}
			return nil, fmt.Errorf("ruler: not a JSON object of words: %w", err)
		}
		word, ok := token.(string)
		if i > 0 && i%2 == 0 && ok { // token 0 is the brace, then key and value by turns
			words = append(words, word)
		}
	}
}
