package openmodel

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/sparse"
)

// AttnNames lists the methods in the order of their table.
func AttnNames() []string {
	var names []string
	for _, e := range sparse.Methods() {
		names = append(names, e.Name)
	}
	return names
}

// CompleteAttn makes the shell complete --attn: the method that is being typed, in
// any place of a spec, and its presets after a colon.
func CompleteAttn(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("attn", // fails only for a flag that does not exist
		func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			if strings.HasPrefix(typed, "@") {
				return nil, cobra.ShellCompDirectiveDefault // a file
			}
			return attnCompletions(typed), cobra.ShellCompDirectiveNoFileComp
		})
}

// attnCompletions is what a spec that ends in the middle of a method may become.
func attnCompletions(typed string) []string {
	before, word := "", typed
	if i := strings.LastIndexAny(typed, "=+ ") + 1; i > 0 {
		before, word = typed[:i], typed[i:]
	}
	if strings.Count(before, "(") > strings.Count(before, ")") {
		return nil // the value of an option
	}
	words := AttnNames()
	if name, _, preset := strings.Cut(word, ":"); preset {
		words = nil
		if e := FindAttn(name); e != nil {
			for _, p := range slices.Sorted(maps.Keys(e.Presets)) {
				words = append(words, name+":"+p)
			}
		}
	}
	var whole []string
	for _, w := range words {
		if strings.HasPrefix(w, word) {
			whole = append(whole, before+w)
		}
	}
	return whole
}

// FindAttn is the method of that name, nil if there is none.
func FindAttn(name string) *sparse.Entry {
	all := sparse.Methods()
	i := slices.IndexFunc(all, func(e sparse.Entry) bool { return e.Name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}
