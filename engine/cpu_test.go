//go:build !cuda && !cudaemu

package engine_test

import (
	"testing"

	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/weights"
)

const (
	stepCache     = device.F16
	stepDistance  = 2e-5 // of the logits of a step from those of a prefill: attention adds in another order
	batchDistance = 0    // of the logits of a sequence among others from those alone
)

// tracedFile opens the model of TestTrace.
func tracedFile(t *testing.T) *weights.File {
	t.Helper()
	f, err := weights.Open("../testdata/ruler.gguf")
	if err != nil {
		t.Fatal(err)
	}
	return f
}
