package main

import "github.com/spf13/cobra"

func newBench() *cobra.Command {
	return &cobra.Command{Use: "bench", GroupID: groupLook, Run: func(*cobra.Command, []string) {}}
}
