package console

import (
	"regexp"
	"strings"
)

// Libraries say which package an error comes from, as Go's own do; a user has no
// use for that, and with two packages it reads "model: weights: FILE: ...". This
// file is the one place where an error becomes a line for people.

// packagePrefix matches the name of a package of this module before what it
// says, at the beginning of an error or of a wrapped one.
var packagePrefix = regexp.MustCompile(`(^|: )((?:chat|cpu|cuda|device|engine|eval|fusion|grammar|jsonl|kernel|kvcache|lineedit|longbench|metric|model|needle|npy|openai|page|paper|preset|published|punkt|quote|recite|rng|ruler|sampling|serve|sparse|table|tokenizer|trial|weights): )+`)

// Message is one line for people: without names of packages, and with "; "
// between errors that happened together. What a file's name or contents would tell
// the terminal to do is shown, not done, and an endless name loses its middle.
func Message(err error) string {
	text := packagePrefix.ReplaceAllString(err.Error(), "$1")
	return Elide(OneLine(strings.ReplaceAll(text, "\n", "; ")), MaxMessage)
}

// MaxMessage is the characters of a line about an error.
const MaxMessage = 2000
