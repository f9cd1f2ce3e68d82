package main

import "github.com/spf13/cobra"

func newChat() *cobra.Command {
	return &cobra.Command{Use: "chat", GroupID: groupRun, Run: func(*cobra.Command, []string) {}}
}
