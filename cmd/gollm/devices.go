package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
)

func newDevices() *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the devices that --device takes",
		GroupID: groupAbout,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range device.Names() {
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\t%s\n", name, describeDevice(name)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// describeDevice is what a device says about itself, or why it does not open.
func describeDevice(name string) string {
	dev, err := device.Open(name, device.Config{})
	if err != nil {
		return "not usable: " + err.Error()
	}
	defer dev.Close()
	text := dev.Name()
	if r, ok := dev.(device.MemoryReporter); ok && r.Available() > 0 {
		text += ", " + sizeText(int64(r.Available())) + " of memory available"
	}
	return text
}
