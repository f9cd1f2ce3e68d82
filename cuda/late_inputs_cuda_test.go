//go:build cuda

package cuda

import "github.com/gollm/gollm/device"

// maxLateCopies is the copies per launch of the kernel late_copies; see late.cu.
const maxLateCopies = 24

// LateCopies copies tensors a while after the next launch could start early. Hazards do not know
// of the copies.
func (d *dev) LateCopies(dst, src []device.Tensor) {
	for len(dst) > 0 {
		n := min(len(dst), maxLateCopies)
		c := d.ops.launch("late_copies").int(n)
		for i := range n {
			c.tensor(dst[i]).tensor(src[i]).int(dst[i].Size() / 4)
		}
		c.int(make([]int, 3*(maxLateCopies-n))...).pdlEarly().run(blocks{1, 1, 1}, 1024)
		dst, src = dst[n:], src[n:]
	}
	d.hazards.forget()
}
