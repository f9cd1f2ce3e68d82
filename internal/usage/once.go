package usage

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// once is a flag whose second value would replace the first one without a word.
type once struct {
	pflag.Value
	given bool
	text  string // what was given
}

// Set takes the first value, and the same one again.
func (o *once) Set(text string) error {
	if o.given && text != o.text {
		return &givenTwice{o.text, text}
	}
	o.given, o.text = true, text
	return o.Value.Set(text)
}

// givenTwice is two values of a flag that takes one.
type givenTwice struct{ first, second string }

func (e *givenTwice) Error() string {
	return fmt.Sprintf("is given twice, %q and %q", e.first, e.second)
}

// TakeOnce makes the flags that one might think are read twice refuse that, in all
// commands where they are not repeatable. Of others the last one counts, so that a
// command line can end with what differs from an alias.
func TakeOnce(cmd *cobra.Command) {
	for _, name := range []string{"attn", "prompt", "file"} {
		f := cmd.Flags().Lookup(name)
		if f == nil {
			continue
		}
		if _, list := f.Value.(pflag.SliceValue); !list {
			f.Value = &once{Value: f.Value}
		}
	}
	for _, sub := range cmd.Commands() {
		TakeOnce(sub)
	}
}
