package eval

import (
	"bufio"
	"os"
	"runtime"
	"strings"

	"github.com/gollm/gollm/device"
)

// Machine is what a benchmark ran on.
type Machine struct {
	CPU    string
	Cores  int
	Device string
	device.Roofline
}

// Describe names the machine and lets dev measure its peaks.
func Describe(dev device.Device) Machine {
	return Machine{CPU: cpuName("/proc/cpuinfo"), Cores: runtime.NumCPU(), Device: dev.Info().Name, Roofline: dev.Roofline()}
}

// cpuName is the processor's own name, or its architecture where the system
// does not tell.
func cpuName(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
