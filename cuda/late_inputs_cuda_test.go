//go:build cuda

package cuda

import "github.com/gollm/gollm/device"

// lateCopies is how many copies a call of the kernel makes, as in late.cu.
const lateCopies = 24

// LateCopies copies words a while after the next call could have started. That one is not
// told what is done before it.
func (d *dev) LateCopies(dst, src []device.Tensor) {
	for len(dst) > 0 {
		n := min(len(dst), lateCopies)
		c := d.ops.call("late_copies").int(n)
		for i := range n {
			c.tensor(dst[i]).tensor(src[i]).int(dst[i].Size() / 4)
		}
		c.int(make([]int, 3*(lateCopies-n))...).pdlEarly().run(blocks{1, 1, 1}, 1024)
		dst, src = dst[n:], src[n:]
	}
	d.hazards.forget()
}
