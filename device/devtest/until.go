package devtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// eachUntil is which of the cases of an op are interrupted: the first, and one of so many.
// Work is dropped where it is handed out, which is the same for all cases of an op.
const eachUntil = 12

// interrupted runs cases of every op on a device that has been told to drop its work:
// whatever that leaves in the tensors, nothing breaks, and the device computes
// afterwards what it did before.
func interrupted(t *testing.T, d device.Device) {
	done := make(chan struct{})
	close(done)
	seen := map[string]int{} // cases of each op
	for _, c := range slices.Concat(mathCases(), productCases(), fuseCases(), sampleCases(), appendCases(), attendCases(),
		sketchCases(), rankCases(), estimateCases(), valueCases(), featureCases(), stripeCases(), reuseCases(),
		boundCases(), lineCases(), usageCases(), hashCases(), labelCases(), shapeCases()) {
		op, _, _ := strings.Cut(c.name, "/")
		if seen[op]++; seen[op]%eachUntil != 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, d)
			j := c.make(b)
			d.Until(done)
			j.step(d.Queue())
			_ = d.Sync() // it may say anything
			d.Until(nil)
			b.restore()
			j.step(d.Queue())
			b.sync()
			for _, e := range j.expect {
				b.check(e)
			}
		})
	}
}
