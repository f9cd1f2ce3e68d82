//go:build cuda || cudaemu

package engine_test

import (
	"testing"

	_ "github.com/gollm/gollm/cuda" // the device that devtest.Device names then
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/model/modeltest"
	"github.com/gollm/gollm/weights"
)

// A row alone in its pass goes through kernels of its own, which add in another order
// than those of several rows. The cache of these tests is in F32: one in F16 makes
// 2⁻¹¹ of a key of it where a sum falls on the other side of a half, for all later
// rows, and this model, whose heads are 8 wide, then gives logits up to 1e-3 away.
const (
	stepCache     = device.F32
	stepDistance  = 2e-5
	batchDistance = 2e-5
)

// tracedFile opens the model of TestTrace: one that is small enough for the emulator.
func tracedFile(t *testing.T) *weights.File {
	t.Helper()
	return modeltest.File(t, modeltest.Writer(modeltest.Shape{Layers: 3, Dim: 32, FF: 32}))
}
