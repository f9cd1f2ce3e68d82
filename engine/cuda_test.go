//go:build cuda || cudaemu

package engine_test

import _ "github.com/gollm/gollm/cuda" // the device that devtest.Device names then

// A row alone in its pass goes through kernels of its own, which add in another order
// than those of several rows. Where a sum then falls on the other side of a half, an
// activation is rounded to another of its 8 bits, hence much more than the last bits:
// a rounding is off by 1/254 of the largest activation of its block.
const (
	stepDistance  = 1e-3
	batchDistance = 1e-3
)
