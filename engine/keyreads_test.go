package engine

import (
	"slices"
	"strings"
	"testing"

	"github.com/gollm/gollm/device"
)

// readNothing are the calls that read no stored keys, or only keys that their plan
// reads as well.
var readNothing = strings.Fields(`
	Embed Gather Copy Add RMSNorm Rope SwiGLU MatMul MaskTokens SampleTokens Mark Discard
	Append Attend Walk
	Summarize(SumBlocks) Summarize(ProjectMeans) Summarize(ProjectRows) Summarize(KeyBounds)
	Summarize(KeyChannels) Summarize(KeySigns) Summarize(KeyMirror) Summarize(KeyHashes) Summarize(MeanRows)
	Score(BoundScores) Score(ChannelScores) Score(SignScores) Score(MirrorScores) Score(SketchScores) Score(AnchorMax)
	Score(PooledAgreement) Score(GroupMax)
	Select(TopK) Select(TopP) Select(TopBlocks) Select(TopParts) Select(TopLines) Select(HeavyHitters)
	Select(Collisions) Select(ExpandLines) Select(ExpandBlocks)
	Sample(ResidualSample) Sample(QueryFeatureSample)
`)

// TestKeyReadsOfEveryCall: a call that reads keys to select and is not recorded would be
// missing in every audit, silently.
func TestKeyReadsOfEveryCall(t *testing.T) {
	rules := device.Rules()
	for _, name := range rules {
		if (keyReaders[name] != nil) == slices.Contains(readNothing, name) {
			t.Errorf("call %s: either it reads keys to select, then it belongs in keyReaders, or it does not, then it belongs in this list", name)
		}
	}
	for name := range keyReaders {
		if !slices.Contains(rules, name) {
			t.Errorf("keyReaders has %s, which is no call", name)
		}
	}
}
