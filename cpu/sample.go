package cpu

import "github.com/gollm/gollm/device"

// sample lists positions with weights, or estimates queries, by addressed random numbers.
func (o *ops) sample(c *device.Sample) {
	switch c.Rule {
	case device.ResidualSample:
		o.residualSample(c)
	case device.ValueSample:
		o.valueSample(c)
	case device.QueryFeatureSample:
		o.queryFeatureSample(c)
	default:
		device.Unknown("cpu", c)
	}
}
