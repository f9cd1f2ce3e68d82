package cpu

import (
	"github.com/gollm/gollm/cpu/kernel"
	"github.com/gollm/gollm/cpu/vec"
	"github.com/gollm/gollm/device"
	"github.com/gollm/gollm/device/fusion"
)

// ops is the queue of the device. It runs calls one after the other, but for products,
// which wait for others of the same activations.
type ops struct {
	fusion.Window
	d        *dev
	vec      *vec.Kernels
	pool     *Pool
	matmul   *MatMul
	products []kernel.Product // of the calls that run
	tasks    tasks
	scored   scored
}

// tasks is the task of every call and rule, one of each: their scratch memory is reused,
// and a call allocates nothing once it has grown.
type tasks struct {
	// math
	rmsNorm rmsNormTask
	swiGLU  swiGLUTask
	add     addTask
	rotate  rotateTask
	rope    ropeTable
	tokens  tokenSampler

	attention attention
	sketch    sketchScratch // of sums, projections, walks and the blocks that they select
	pooled    []pooledScratch

	// Summarize
	keyBounds   keyBoundsTask
	keyChannels channelLabels
	keySigns    keySignsTask
	keyMirror   keyMirrorTask
	keyHashes   keyHashTask
	meanKeys    meanKeysTask
	mass        massTask

	// Score
	exactScores   exactTask
	listedScores  listedScoreTask
	boundScores   boundScoreTask
	channelScores channelScoreTask
	signScores    signScoreTask
	verticalSlash verticalSlashTask
	anchorMax     anchorTask
	agreement     agreementTask
	groupMax      groupMaxTask

	// Select
	top          topTask
	subPages     subPageTask
	topLines     topLinesTask
	expandLines  expandLinesTask
	expandBlocks expandBlocksTask
	heavyHitters heavyHitterTask
	margin       marginTask
	collisions   collisionTask
	refresh      refreshTask
	neighbors    neighborTask

	// Sample
	residual residualTask
	values   valueTask
}

// newOps makes the queue of a device.
func newOps(d *dev, pool *Pool, kernels *vec.Kernels) *ops {
	o := &ops{d: d, vec: kernels, pool: pool, matmul: NewMatMul(pool)}
	o.Open(o.run, fusion.Pattern{Name: "products", Match: fusion.Products, Run: o.multiply})
	return o
}

// run computes a call that is not part of a fused pattern.
func (o *ops) run(c device.Call) {
	o.scored.follow(c)
	switch c := c.(type) {
	case *device.Embed:
		o.embed(c)
	case *device.Gather:
		o.gather(c)
	case *device.Copy:
		o.copyTensor(c)
	case *device.Add:
		o.add(c)
	case *device.RMSNorm:
		o.rmsNorm(c)
	case *device.Rope:
		o.rope(c)
	case *device.SwiGLU:
		o.swiGLU(c)
	case *device.MaskTokens:
		o.maskTokens(c)
	case *device.SampleTokens:
		o.sampleTokens(c)
	case *device.Append:
		o.append(c)
	case *device.Attend:
		o.attend(c)
	case *device.Summarize:
		o.summarize(c)
	case *device.Score:
		o.score(c)
	case *device.Walk:
		o.walk(c)
	case *device.Select:
		o.selectKeys(c)
	case *device.ReuseSelection:
		o.reuseSelection(c)
	case *device.Sample:
		o.sample(c)
	case *device.Mark: // calls are done when they return: there is nothing to time
	case *device.Discard: // nothing is saved by not writing it
	default:
		device.Unknown("cpu", c)
	}
}
