package cpu

import "github.com/gollm/gollm/device"

// run computes a call that no pattern takes.
func (o *ops) run(c device.Call) {
	switch c := c.(type) {
	case *device.Embed:
		o.embed(c)
	case *device.Gather:
		o.gather(c)
	case *device.Copy:
		o.copyAll(c)
	case *device.Add:
		o.add(c)
	case *device.RMSNorm:
		o.rmsNorm(c)
	case *device.Rope:
		o.rotate(c)
	case *device.SwiGLU:
		o.swiGLU(c)
	case *device.SampleTokens:
		o.sampleTokens(c)
	case *device.Append:
		o.append(c)
	case *device.Attend:
		o.attend(c)
	case *device.Summarize:
		o.summarize(c)
	case *device.Score:
		o.scoreKeys(c)
	case *device.Walk:
		o.walk(c)
	case *device.Select:
		o.selectKeys(c)
	case *device.ReuseSelection:
		o.reuseSelection(c.List, c.Cache, c.Scores, c.Compared, c.Q, c.KV, c.Plan, c.Neighbors)
	case *device.Sample:
		o.drawKeys(c)
	case *device.Mark: // what is done when it returns needs no clock
	case *device.Discard: // memory is there anyway
	default:
		device.Unknown("cpu", c)
	}
}

// summarize brings what is kept of stored keys and queries up to date.
func (o *ops) summarize(c *device.Summarize) {
	switch c.Rule {
	case device.SumBlocks:
		o.sumBlocks(c)
	case device.ProjectMeans:
		o.projectMeans(c)
	case device.ProjectRows:
		o.projectRows(c)
	case device.KeyBounds:
		o.keyBounds(c.Dst, newest{c.KV, c.Rows})
	case device.KeyChannels:
		o.keyChannels(c.Dst, c.X, c.Channels, c.KV)
	case device.KeySigns:
		o.keySigns(c.Dst, c.X, c.Net, c.KV)
	case device.KeyHashes:
		o.keyHashes(c.Hash, c.KV)
	case device.MeanRows:
		o.meanRows(c.Dst, c.X, c.KV, c.Block)
	case device.MeanKeys:
		o.meanKeys(c.Dst, c.KV, c.Block)
	case device.AttentionMass:
		o.attentionMass(c.Dst, c.X, c.KV, c.Plan)
	default:
		device.Unknown("cpu", c)
	}
}

// scoreKeys makes numbers that say how much rows want of what is stored.
func (o *ops) scoreKeys(c *device.Score) {
	switch c.Rule {
	case device.ExactScores:
		o.exactScores(c.Dst, c.Q, c.KV, c.Plan, c.Region)
	case device.BoundScores:
		o.boundScores(c.Dst, c.Q, c.Keys, c.KV)
	case device.ChannelScores:
		o.channelScores(c.Dst, c.Q, c.Keys, c.Channels, c.KV, c.Plan)
	case device.SignScores:
		o.signScores(c.Dst, c.Q, c.Keys, c.Net, c.KV, c.Plan)
	case device.SketchScores:
		o.sketchScores(c)
	case device.VerticalSlash:
		o.verticalSlash(c)
	case device.AnchorMax:
		o.anchorMax(c.Dst, c.Q, c.KV, c.Plan)
	case device.PooledAgreement:
		o.pooledAgreement(c)
	case device.GroupMax:
		o.groupMax(c.Dst, c.Q, c.KV)
	default:
		device.Unknown("cpu", c)
	}
}

// selectKeys lists what rows read.
func (o *ops) selectKeys(c *device.Select) {
	switch c.Rule {
	case device.TopK:
		o.topK(c.List, c.Scores, c.KV, c.K)
	case device.TopP:
		o.topP(c.List, c.Scores, c.KV, c.Mass)
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
		o.collisions(c.List, c.Hash, c.Q, c.KV, c.Plan)
	case device.ExpandLines:
		o.expandLines(c.List, c.Columns, c.Diagonals, c.KV, c.Rows)
	case device.ExpandBlocks:
		o.expandBlocks(c)
	default:
		device.Unknown("cpu", c)
	}
}

// drawKeys draws what stands for more than is read.
func (o *ops) drawKeys(c *device.Sample) {
	switch c.Rule {
	case device.ResidualSample:
		o.residualSample(c.List, c.Q, c.KV, c.Plan, c.Residual)
	case device.ValueSample:
		o.valueSample(c.List, c.Q, c.KV, c.Plan, c.Draws)
	case device.QueryFeatureSample:
		o.queryFeatureSample(c.Dst, c.Q, c.KV, c.Features)
	default:
		device.Unknown("cpu", c)
	}
}
