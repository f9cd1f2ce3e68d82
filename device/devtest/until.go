package devtest

import (
	"slices"
	"testing"

	"github.com/gollm/gollm/device"
)

// interrupted runs every case on a device that has been told to drop its work:
// whatever that leaves in the tensors, nothing breaks, and the device computes
// afterwards what it did before.
func interrupted(t *testing.T, d device.Device) {
	i, ok := d.(device.Interrupter)
	if !ok {
		t.Skip("the device does not drop work")
	}
	done := make(chan struct{})
	close(done)
	for _, c := range slices.Concat(mathCases(), productCases(), sampleCases(), appendCases(), attendCases(),
		sketchCases(), estimateCases(), valueCases(), reuseCases()) {
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, d)
			j := c.make(b)
			i.Until(done)
			j.step(d.Ops())
			_ = d.Sync() // it may say anything
			i.Until(nil)
			b.restore()
			j.step(d.Ops())
			b.sync()
			for _, e := range j.expect {
				b.check(e)
			}
		})
	}
}
