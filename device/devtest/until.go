package devtest

import (
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// eachUntil selects the cases that are cancelled: the first of each op, and one of every
// eachUntil after it. Work is dropped where it is dispatched, which is the same for all cases of an
// op.
const eachUntil = 12

// interrupted runs cases of every op on a device whose work is cancelled: it must not break, and
// afterwards the device computes what it did before.
func interrupted(t *testing.T, d device.Device) {
	done := make(chan struct{})
	close(done)
	for _, cases := range [][]testCase{mathCases(), productCases(), fuseCases(), sampleCases(), appendCases(), attendCases(),
		walkCases(), topCases(), residualCases(), valueCases(), featureCases(), marginCases(), reuseCases(),
		boundCases(), lineCases(), massCases(), hashCases(), codeCases(), shapeCases()} {
		interruptSome(t, d, done, cases)
	}
}

// interruptSome runs cases of every op of a group.
func interruptSome(t *testing.T, d device.Device, done chan struct{}, cases []testCase) {
	seen := map[string]int{} // cases of each op
	for _, c := range cases {
		op, _, _ := strings.Cut(c.name, "/")
		if seen[op]++; seen[op]%eachUntil != 1 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			b := newBed(t, d)
			j := c.make(b)
			d.Until(done)
			j.step(d.Queue())
			_ = d.Sync() // any result is allowed
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
