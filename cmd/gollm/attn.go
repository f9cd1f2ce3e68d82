package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/sparse"
)

func newAttn() *cobra.Command {
	return &cobra.Command{
		Use:     "attn",
		Short:   "List the attention systems that --attn takes",
		GroupID: groupAbout,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range sparse.Methods() {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
