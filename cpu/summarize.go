package cpu

import "github.com/gollm/gollm/device"

// summarize updates an index that is stored beside the pages, or makes means.
func (o *ops) summarize(c *device.Summarize) {
	switch c.Rule {
	case device.SumBlocks:
		o.sumBlocks(c)
	case device.ProjectMeans:
		o.projectMeans(c)
	case device.ProjectRows:
		o.projectRows(c)
	case device.KeyBounds:
		o.keyBounds(c)
	case device.KeyChannels:
		o.keyChannels(c)
	case device.KeySigns:
		o.keySigns(c)
	case device.KeyMirror:
		o.keyMirror(c)
	case device.KeyHashes:
		o.keyHashes(c)
	case device.MeanRows:
		o.meanRows(c)
	case device.MeanKeys:
		o.meanKeys(c)
	case device.AttentionMass:
		o.attentionMass(c)
	default:
		device.Unknown("cpu", c)
	}
}
