package cpu

import (
	"testing"

	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/devtest"
)

func TestConformance(t *testing.T) {
	for _, k := range vec.All() {
		t.Run(k.Name, func(t *testing.T) {
			devtest.Run(t, func(t *testing.T) device.Device { return open(2, k) })
		})
	}
}
