package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gollm/gollm/device"
)

// autoDevice is the name for a GPU if there is one that the model fits, and
// otherwise the CPU.
const autoDevice = "auto"

// deviceFlag is where to run: auto, or the name of a backend with, after a
// colon, which of its devices.
type deviceFlag struct {
	name  string
	index int
}

// deviceNames are what --device takes, but for numbers.
func deviceNames() []string { return append([]string{autoDevice}, device.Names()...) }

// parseDevice reads --device.
func parseDevice(text string) (deviceFlag, error) {
	name, number, numbered := strings.Cut(text, ":")
	f := deviceFlag{name: name}
	if !slices.Contains(deviceNames(), f.name) {
		if f.name == "cuda" {
			return f, usagef("--device %q: this gollm is for the CPU alone; make cuda builds one for both, as docs/cuda.md says", text)
		}
		return f, usagef("--device %q is not in this build; want one of: %s", text, strings.Join(deviceNames(), ", "))
	}
	if numbered {
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || f.name == autoDevice {
			return f, usagef("--device %q, want a name, or a name and a number from 0 on, for example cuda:1", text)
		}
		f.index = n
	}
	return f, nil
}

// openFor opens the device for weights of need bytes. With auto a GPU that does
// not open, or that is too small, is a line on stderr and the CPU.
func (f deviceFlag) openFor(cmd *cobra.Command, threads int, need int64) (device.Device, error) {
	if f.name != autoDevice {
		return device.Open(f.name, device.Config{Threads: threads, Index: f.index})
	}
	if slices.Contains(device.Names(), "cuda") {
		dev, err := device.Open("cuda", device.Config{})
		if err == nil {
			free := availableOf(dev)
			if uint64(need) <= free {
				return dev, nil
			}
			err = fmt.Errorf("the weights need %s, %s are free on %s", sizeText(need), sizeText(int64(free)), dev.Info().Name)
			dev.Close()
		}
		cmd.PrintErrf("gollm: running on the CPU: %s\n", message(err))
	}
	return device.Open("cpu", device.Config{Threads: threads})
}

// availableOf is how many bytes a device may still give; 0 is unknown.
func availableOf(dev device.Device) uint64 {
	return dev.Info().Free
}
