//go:build cuda || cudaemu

package cuda

import (
	"flag"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
	"github.com/gollm/gollm/device/fusion"
)

// TestConformance runs the suite on the first GPU, or in the emulator. Every pattern of fuse.go
// must fuse calls of some case, or nothing compares it with the calls one by one.
func TestConformance(t *testing.T) {
	fused := fusions{}
	devtest.Run(t, func(t *testing.T) device.Device {
		d := openTest(t)
		if fusion.Observe(d.Queue(), fused, false) == nil {
			t.Fatal("the queue has no window to observe")
		}
		return d
	})
	if strings.Contains(flag.Lookup("test.run").Value.String(), "/") || flag.Lookup("test.skip").Value.String() != "" {
		return // not all groups
	}
	for _, p := range new(ops).patterns() {
		if fused[p.Name] == 0 {
			t.Errorf("pattern %q fuses no calls of the suite", p.Name)
		}
	}
}

// fusions observes how many times each pattern has run.
type fusions map[string]int

// Queued comes with each call.
func (fusions) Queued(device.Call) {}

// Begin comes before the launches of a pattern or a call.
func (fusions) Begin() {}

// End counts the pattern that has run; it is empty for a call that none fuses.
func (f fusions) End(pattern string, _ []device.Call) { f[pattern]++ }

// openTest opens the device, and fails the test if that is not possible.
func openTest(t *testing.T) device.Device {
	d, err := Open(device.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
