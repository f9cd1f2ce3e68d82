//go:build cuda || cudaemu

package cuda

import (
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

// TestConformance runs the suite on the first GPU, or on the emulator.
func TestConformance(t *testing.T) {
	devtest.Run(t, openTest)
}

// openTest opens the device, and fails where that is not possible.
func openTest(t *testing.T) device.Device {
	d, err := Open(device.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
