package cpu

import (
	"testing"

	"github.com/gollm/gollm/device"
)

func TestRoofline(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second and 512 MiB")
	}
	dev, err := Open(device.Config{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	p := dev.Roofline()
	if p.Read < 1e8 || p.Int8 < 1e7 || p.Float < 1e7 { // a processor of the last century does that
		t.Errorf("%+v", p)
	}
}
