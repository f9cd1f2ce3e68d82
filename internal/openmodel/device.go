package openmodel

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/internal/console"
	"github.com/gollm/gollm/internal/usage"
)

// autoDevice is the name for a GPU if there is one that the model fits, and
// otherwise the CPU.
const autoDevice = "auto"

// DeviceFlag is where to run: auto, or the name of a backend with, after a
// colon, which of its devices.
type DeviceFlag struct {
	name  string
	index int
}

// deviceNames are what --device takes, but for numbers.
func deviceNames() []string { return append([]string{autoDevice}, device.Names()...) }

// ParseDevice reads --device.
func ParseDevice(text string) (DeviceFlag, error) {
	name, number, numbered := strings.Cut(text, ":")
	f := DeviceFlag{name: name}
	if !slices.Contains(deviceNames(), f.name) {
		if f.name == "cuda" {
			return f, usage.Errorf("--device %q: this gollm is for the CPU alone; make cuda builds one for both, as docs/cuda.md says", text)
		}
		return f, usage.Errorf("--device %q is not in this build; want one of: %s", text, strings.Join(deviceNames(), ", "))
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || f.name == autoDevice {
			return f, usage.Errorf("--device %q, want a name, or a name and a number from 0 on, for example cuda:1", text)
		}
		f.index = n
	}
	return f, nil
}

// Open opens the device for weights of need bytes. With auto a GPU that does
// not open, or that is too small, is a line on stderr and the CPU.
func (f DeviceFlag) Open(cmd *cobra.Command, threads int, need int64) (device.Device, error) {
	if f.name != autoDevice {
		return device.Open(f.name, device.Config{Threads: threads, Index: f.index})
	}
	if slices.Contains(device.Names(), "cuda") {
		dev, err := device.Open("cuda", device.Config{})
		if err == nil {
			free := dev.Info().Free
			if uint64(need) <= free {
				return dev, nil
			}
			err = fmt.Errorf("the weights need %s, %s are free on %s", console.SizeText(need), console.SizeText(int64(free)), dev.Info().Name)
			dev.Close()
		}
		cmd.PrintErrf("gollm: running on the CPU: %s\n", console.Message(err))
	}
	return device.Open("cpu", device.Config{Threads: threads})
}
