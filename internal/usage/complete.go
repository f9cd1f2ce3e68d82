package usage

import (
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
)

// Complete makes the shell complete a flag with names.
func Complete(cmd *cobra.Command, flag string, names func() []string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // fails only for a flag that does not exist
		func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return names(), cobra.ShellCompDirectiveNoFileComp
		})
}

// Nearest is the one of names that word is most likely a misspelling of, in capitals or
// not, or "".
func Nearest(word string, names []string) string {
	word = strings.ToLower(word)
	least, found := 3, "" // three edits are too many to be a slip
	for _, name := range names {
		lower := strings.ToLower(name)
		d := levenshtein.ComputeDistance(word, lower)
		if d == 2 && word != "" && !strings.HasPrefix(lower, word[:1]) {
			continue // nor is another first letter and one edit more
		}
		if d < least {
			least, found = d, name
		}
	}
	return found
}
