package cpu

import "github.com/gollm/gollm/device"

// score makes one number for each row, head group and unit: a position, a part of a page
// or a block.
func (o *ops) score(c *device.Score) {
	switch c.Rule {
	case device.ExactScores:
		o.exactScores(c)
	case device.BoundScores:
		o.boundScores(c)
	case device.ChannelScores:
		o.channelScores(c)
	case device.SignScores:
		o.signScores(c)
	case device.MirrorScores:
		o.mirrorScores(c)
	case device.SketchScores:
		o.sketchScores(c)
	case device.VerticalSlash:
		o.verticalSlash(c)
	case device.AnchorMax:
		o.anchorMax(c)
	case device.PooledAgreement:
		o.pooledAgreement(c)
	case device.GroupMax:
		o.groupMax(c)
	default:
		device.Unknown("cpu", c)
	}
}
