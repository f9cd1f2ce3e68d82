package ruler

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Text is the sentences around a context: a template with slots in braces, and
// how the answer begins.
type Text struct {
	Template string
	Prefix   string
}

// Wording is the sentences of all kinds of tasks.
type Wording struct {
	Name string // what a report calls it
	Text map[Kind]Text
	// One is for needle tasks with a single answer. Where it is empty, the plural
	// of the needle text is turned into a singular by the official replacements,
	// which touch the chat template too.
	One Text
}

// Native is our own wording, for users without an official checkout. Scores under
// it are not those of the publication, and a report must say so.
var Native = &Wording{
	Name: "gollm",
	Text: map[Kind]Text{
		Needle: {
			"The text below hides several special magic {type_needle_v}. Read it with care: there will be a question about the {type_needle_v} at the end.\n{context}\nQuestion: What are the special magic {type_needle_v} for {query} in the text above?",
			" Answer: The special magic {type_needle_v} for {query} in the text above are",
		},
		Chain: {
			"The text below hides a chain of variable assignments. Follow the chain from variable to variable.\n\n{context}\nQuestion: Which variables hold the value {query} in the text above?",
			" Answer: By the chain of assignments in the text above, {num_v} variables hold the value {query}, namely:",
		},
		Common: {
			"The numbered list below repeats some words more often than others. Find the words that it repeats most.\n{context}\nQuestion: Which 10 words are the most common in the list above?",
			" Answer: The 10 most common words in the list above are:",
		},
		Frequent: {
			"The coded text below repeats some coded words more often than others. Count the coded words. {context}\nQuestion: Leaving out the dots, which three coded words are the most frequent in the text above?",
			" Answer: The three most frequent coded words in the text above are:",
		},
		Question: {
			"Answer the question from the documents below. Write the answer and no other words.\n\nThe documents:\n\n{context}\n\nAnswer the question from the documents above. Write the answer and no other words.\n\nQuestion: {query}",
			" Answer:",
		},
	},
	One: Text{
		"The text below hides a special magic {type_needle_v}. Read it with care: there will be a question about the {type_needle_v} at the end.\n{context}\nQuestion: What is the special magic {type_needle_v} for {query} in the text above?",
		" Answer: The special magic {type_needle_v} for {query} in the text above is",
	},
}

// officialKeys are the names of the kinds in the official file.
var officialKeys = map[Kind]string{
	Needle: "niah", Chain: "variable_tracking", Common: "common_words_extraction",
	Frequent: "freq_words_extraction", Question: "qa",
}

// officialPath is where a checkout has its wording, and officialHash the file's
// SHA-256 at the commit that this package was written against.
const (
	officialPath = "scripts/data/synthetic/constants.py"
	officialHash = "6296e901d495ec6200dc3f68993ea13d8282e3c0dbe1a8c47967f111105d1fde"
)

// LoadWording reads the official wording from a checkout of NVIDIA/RULER. known
// tells whether the file is the one that the rules of this package were taken
// from; only then is the wording called official.
func LoadWording(checkout string) (w *Wording, known bool, err error) {
	path := filepath.Join(checkout, officialPath)
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, false, fmt.Errorf("ruler: %s is not a checkout of NVIDIA/RULER: %w", checkout, err)
	}
	sum := sha256.Sum256(source)
	hash := hex.EncodeToString(sum[:])
	known = hash == officialHash
	w = &Wording{Name: "official", Text: map[Kind]Text{}}
	if !known {
		w.Name = fmt.Sprintf("of a checkout, %s with SHA-256 %s", filepath.Base(officialPath), hash[:12])
	}
	for kind, key := range officialKeys {
		text, err := findText(string(source), key)
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		w.Text[kind] = text
	}
	return w, known, nil
}

// findText reads the strings of one task out of the official Python file.
func findText(source, key string) (Text, error) {
	_, entry, ok := strings.Cut(source, "'"+key+"'")
	if !ok {
		return Text{}, fmt.Errorf("ruler: no task %q in the dictionary TASKS; use a checkout of 2024-04 or later", key)
	}
	template, err := pythonString(entry, "'template'")
	if err != nil {
		return Text{}, err
	}
	prefix, err := pythonString(entry, "'answer_prefix'")
	return Text{template, prefix}, err
}

// pythonEscapes are the escapes that the official strings use.
var pythonEscapes = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\'`, "'", `\\`, `\`)

// pythonString is the string in three quotes that follows a key.
func pythonString(source, key string) (string, error) {
	const quotes = `"""`
	_, after, ok := strings.Cut(source, key)
	if ok {
		if before, rest, opened := strings.Cut(after, quotes); opened && strings.Trim(before, ": \t\r\n") == "" {
			if text, _, closed := strings.Cut(rest, quotes); closed {
				return pythonEscapes.Replace(text), nil
			}
		}
	}
	return "", fmt.Errorf("ruler: no string in three quotes after %s; the file is not one that this version can read", key)
}

// fill puts values into the slots of a template, in one pass: braces in a value
// are text. values are pairs of a slot, with its braces, and what goes there.
func fill(template string, values ...string) string {
	return strings.NewReplacer(values...).Replace(template)
}

// question is how the question of a task begins: what follows the context, which is
// the same in every prompt up to the next slot.
func (w *Wording) question(t Task) string {
	text := w.Text[t.Kind]
	if t.single() && w.One != (Text{}) {
		text = w.One
	}
	_, after, _ := strings.Cut(text.Template, "{context}")
	head, _, _ := strings.Cut(strings.TrimLeft(after, "\n "), "{")
	if t.single() && w.One == (Text{}) {
		head = singular(head)
	}
	return head
}

// singularSteps is what the official generator makes of a needle prompt with one
// answer.
var singularSteps = [][2]string{{"Some", "A"}, {"are all", "is"}, {"are", "is"}, {"answers", "answer"}}

func singular(template string) string {
	for _, s := range singularSteps {
		template = strings.ReplaceAll(template, s[0], s[1])
	}
	return template
}
