package cpu

import (
	"math"
	"slices"

	"github.com/gollm/gollm/device"
)

// channelLabel copies the label channels of a vector, quantized to levels where there is more
// than one.
func channelLabel(dst, x []float32, index []int32, levels int) {
	for i, c := range index {
		dst[i] = 0
		if c >= 0 && int(c) < len(x) {
			dst[i] = x[c]
		}
	}
	if levels <= 1 {
		return
	}
	low, high := slices.Min(dst), slices.Max(dst)
	if !(high > low) {
		return
	}
	step := (high - low) / float32(levels-1)
	for i, v := range dst {
		dst[i] = low + step*float32(math.RoundToEven(float64((v-low)/step)))
	}
}

// channelLabels is the scratch of KeyChannels.
type channelLabels struct {
	label []float32 // [channels]
	half  []uint16  // [channels]: the same in f16
}

// keyChannels stores the channel labels of the rows' keys at their positions.
func (o *ops) keyChannels(c *device.Summarize) {
	g, index, x := newPages(c.KV), i32s(c.Channels.Index), f32s(c.X)
	heads, dim := c.X.Dim(1), c.X.Dim(2)
	groups, n := c.Channels.Index.Dim(0), c.Channels.Index.Dim(1)
	out := elements[uint16](c.Dst)
	s := &o.tasks.keyChannels
	s.label, s.half = grown(&s.label, n), grown(&s.half, n)
	o.eachRow("KeyChannels", c.KV, c.X.Dim(0), func(r, slot, _, p int) {
		page := o.page(&g, slot, p/device.PageLen)
		if page < 0 {
			return
		}
		for group := range groups {
			channelLabel(s.label, row(x, r*heads+group*heads/groups, dim), row(index, group, n), c.Channels.Levels)
			o.vec.ToHalf(s.half, s.label)
			to := out[(page*groups+group)*n*device.PageLen+p%device.PageLen:]
			for i, v := range s.half {
				to[i*device.PageLen] = v
			}
		}
	})
}
