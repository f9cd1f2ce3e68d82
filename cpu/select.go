package cpu

import "github.com/gollm/gollm/device"

// selectKeys lists the units that rows read, ascending.
func (o *ops) selectKeys(c *device.Select) {
	switch c.Rule {
	case device.TopK:
		o.topK(c)
	case device.TopP:
		o.topP(c)
	case device.TopBlocks:
		o.topBlocks(c)
	case device.TopParts:
		o.topParts(c)
	case device.TopLines:
		o.topLines(c)
	case device.HeavyHitters:
		o.heavyHitters(c)
	case device.WithinMargin:
		o.withinMargin(c)
	case device.Collisions:
		o.collisions(c)
	case device.ExpandLines:
		o.expandLines(c)
	case device.ExpandBlocks:
		o.expandBlocks(c)
	default:
		device.Unknown("cpu", c)
	}
}
