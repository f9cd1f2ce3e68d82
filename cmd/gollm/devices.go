package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
)

func newDevices() *cobra.Command {
	return &cobra.Command{
		Use:     "devices",
		Short:   "List the devices that --device takes",
		GroupID: groupAbout,
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range device.Names() {
				if err := listDevices(cmd.OutOrStdout(), name); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// maxDevices bounds the devices of a kind that are looked for.
const maxDevices = 64

// listDevices prints a line for each device of a backend: what --device takes,
// and what the device says about itself or why it does not open.
func listDevices(w io.Writer, name string) error {
	for i := range maxDevices {
		text, err := describeDevice(name, i)
		if err != nil && i > 0 {
			return nil
		}
		label := name
		if i > 0 {
			label = fmt.Sprintf("%s:%d", name, i)
		}
		if err != nil {
			text = "not usable: " + console.Message(err)
		}
		if _, err := fmt.Fprintf(w, "%s\t%s\n", label, text); err != nil {
			return err
		}
		if err != nil {
			return nil
		}
	}
	return nil
}

// describeDevice is what device i of a backend says about itself.
func describeDevice(name string, i int) (string, error) {
	dev, err := device.Open(name, device.Config{Index: i})
	if err != nil {
		return "", err
	}
	defer dev.Close()
	text := dev.Info().Name
	if free := dev.Info().Free; free > 0 {
		text += ", " + console.SizeText(int64(free)) + " of memory available"
	}
	return text, nil
}
