package cpu

import (
	"math"

	"github.com/gollm/gollm/device"
)

// maskTokens sets the logits of the tokens whose bit is 0 to -Inf.
func (o *ops) maskTokens(c *device.MaskTokens) {
	vocab, words := c.Logits.Dim(1), c.Allowed.Dim(1)
	x, allowed := f32s(c.Logits), i32s(c.Allowed)
	for r := range c.Logits.Dim(0) {
		logits := row(x, r, vocab)
		for w, bits := range row(allowed, r, words) {
			for id := 32 * w; bits != -1 && id < min(32*w+32, vocab); id++ {
				if bits>>(id%32)&1 == 0 {
					logits[id] = float32(math.Inf(-1))
				}
			}
		}
	}
}
