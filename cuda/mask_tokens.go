//go:build cuda || cudaemu

package cuda

import "github.com/gollm/gollm/device"

// maskTokens sets the logits of the tokens whose bit is 0 to -Inf.
func (o *ops) maskTokens(c *device.MaskTokens) {
	rows, vocab := c.Logits.Dim(0), c.Logits.Dim(1)
	o.launch("mask_tokens").tensor(c.Logits).tensor(c.Allowed).int(vocab, c.Allowed.Dim(1)).
		run(blocks{rows, ceil(vocab, 1024), 1}, 256)
}
