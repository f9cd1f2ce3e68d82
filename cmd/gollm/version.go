package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/usage"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version and how it was built",
		GroupID: groupAbout,
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			_, err := fmt.Fprintln(cmd.OutOrStdout(), versionText(info))
			return err
		},
	}
}

// versionText is one line about the build; info is nil where the binary has
// none.
func versionText(info *debug.BuildInfo) string {
	version, commit, dirty := "unknown", "", ""
	if info != nil {
		version = info.Main.Version
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				commit = ", commit " + s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				dirty = " with changes"
			}
		}
	}
	return fmt.Sprintf("gollm %s%s%s, %s %s/%s, %s", version, commit, dirty, runtime.Version(), runtime.GOOS, runtime.GOARCH, devicesText(device.Names()))
}

// devicesText says whether there is a backend for GPUs among those of a build.
func devicesText(names []string) string {
	if slices.Contains(names, "cuda") {
		return "with CUDA"
	}
	return "without CUDA"
}
