//go:build !cuda && !cudaemu

package engine_test

import "github.com/gollm/gollm/device"

const (
	stepCache     = device.F16
	stepDistance  = 2e-5 // of the logits of a step from those of a prefill: attention adds in another order
	batchDistance = 0    // of the logits of a sequence among others from those alone
)
